//! Gives the plugin the name under which Mercury loads it, and keeps it loaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libna_plugin_mx.so");
    // Stay loaded after dlclose: threads of the library may still be running.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
