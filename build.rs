//! Gives the shared library its versioned soname.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbmi_mx.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
