//! Unsupported machines, rejected by the compiler. It knows every target, also without a standard
//! library for it, which this file does not need.

use crate::root;
use std::env;
use std::fs;
use std::process::Command;

/// Returns the compiler's output on `mx-proto/src/target_check.rs` for that target.
fn words(target: &str) -> String {
    let directory = env::temp_dir().join(format!("mx-machines-{}-{target}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let source = directory.join("lib.rs");
    let machine = root().join("mx-proto/src/target_check.rs");
    let text = format!(
        "#![feature(no_core, rustc_attrs)]\n#![no_core]\n\
         #[rustc_builtin_macro]\nmacro_rules! compile_error {{ ($words:expr) => {{}} }}\n\
         #[path = {machine:?}]\nmod machine;\n"
    );
    fs::write(&source, text).unwrap();
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["--crate-type=lib", "--emit=metadata", "--target", target])
        .arg("--out-dir")
        .args([&directory, &source])
        .output()
        .unwrap();
    fs::remove_dir_all(&directory).unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn short_address_and_big_endian_machines_are_refused() {
    for (target, short, big) in [
        ("x86_64-unknown-linux-gnu", false, false),
        ("aarch64-unknown-linux-gnu", false, false),
        ("i686-unknown-linux-gnu", true, false),
        ("armv7-unknown-linux-gnueabihf", true, false),
        ("x86_64-unknown-linux-gnux32", true, false),
        ("s390x-unknown-linux-gnu", false, true),
        ("aarch64_be-unknown-linux-gnu", false, true),
        ("powerpc-unknown-linux-gnu", true, true),
    ] {
        let words = words(target);
        let says = |what: &str| {
            words.contains(&format!(
                "error: libbmi_mx and libmyriexpress are for {what} machines: "
            ))
        };
        assert_eq!(
            (says("64-bit"), says("little-endian")),
            (short, big),
            "{target}: {words}"
        );
        // The file has been compiled.
        assert!(
            !words.contains("E0463") && !words.contains("could not find specification"),
            "{words}"
        );
    }
}
