//! Gives the plugin the name under which Mercury loads it, and keeps it loaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libna_plugin_mx.so");
    // After dlclose, too: threads of the library may still be running then.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
