//! Gives the shared library its versioned soname.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmyriexpress.so.1");
    // Stay loaded after dlclose: memory that is never freed would be lost, and allocated again by the next dlopen.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
