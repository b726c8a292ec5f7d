//! Inside a file system, log lines go to the file system's log.
//!
//! `tests/gossip.c` is a program that contains the host's logger; the library finds that with `dlsym`. The test
//! compiles it, because a variadic function cannot be defined in Rust.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the program, compiled once for both tests.
fn host() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gossip");
        let status = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-o"])
            .arg(&program)
            .arg(root.join("tests/gossip.c"))
            .arg("-I")
            .arg(root.join("../../include"))
            .arg("-ldl")
            .status()
            .unwrap();
        assert!(status.success());
        program
    })
}

/// Returns the lines of the host's logger and of stderr, with `environment` set.
fn run(environment: &[(&str, &str)]) -> (String, String) {
    let output = Command::new(host())
        .arg(crate::exported::library(
            env!("CARGO_PKG_NAME"),
            "libbmi_mx.so",
        ))
        .env_remove("BMI_MX_LOG")
        .env_remove("MX_LOG")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn gossip_gets_warnings_always_and_the_rest_by_mask() {
    let (out, err) = run(&[]);
    let code = -1_073_741_977;
    let unknown = format!("bmi_mx: debug: BMI_mx_get_info: unknown info key 99 ({code})");
    assert_eq!(
        out,
        format!(
            "== off\n\
             debug 50 W bmi_mx: warning: address \"mx://host:70000\": endpoint number 70000 is out of \
             range (0 to 65535) at position 10\n\
             == no format\n\
             debug 50 W bmi_mx: warning: address \"mx://%s%n%s%n:3\": character '%' cannot be part of a \
             host name at position 5\n\
             == no mistake\n\
             == mask without the switch\n\
             == without the facility\n\
             == on\n\
             debug 50 D {unknown}\n\
             == another bit\n"
        )
    );
    assert_eq!(err, "");
}

#[test]
fn what_the_variable_asks_for_is_not_swallowed_by_the_mask() {
    let (out, err) = run(&[("BMI_MX_LOG", "debug")]);
    let asked = out
        .lines()
        .filter(|line| line.starts_with("debug 50 D bmi_mx: debug: "))
        .count();
    assert_eq!(asked, 5, "{out}");
    assert!(!out.contains("err "), "{out}");
    assert_eq!(err, "");

    let (out, _) = run(&[("MX_LOG", "error")]);
    assert!(!out.contains("bmi_mx"), "{out}");
}
