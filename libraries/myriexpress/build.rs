//! Gives the shared library its versioned soname.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmyriexpress.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
