//! Gives the shared library its versioned soname.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmyriexpress.so.1");
    // After dlclose, too: what it keeps for good would be lost, and kept once more by the next dlopen.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
