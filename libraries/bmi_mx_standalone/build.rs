//! Gives the shared library its versioned soname, and binds its functions to itself: a process may have both hosts, and
//! with them both libraries, whose functions have the same names.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbmi_mx_standalone.so.0");
    // Stay loaded after dlclose: memory that is never freed would be lost, and allocated again by the next dlopen.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
