//! Tells `mx-sys`'s sources, of which this crate takes some, that they are looked at by loom.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=loom");
}
