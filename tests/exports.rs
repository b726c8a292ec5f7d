//! What the shared library shows the linker.
//!
//! ```text
//!   nm -D libbmi_mx.so     exactly the names below: no symbol of a crate leaks out, none of MX
//!                          (libmyriexpress may be in the same process), none of a host is wanted
//!   readelf -s             the tables are data objects of 200 bytes, visible by default
//!   readelf -d             the soname
//! ```

use std::path::PathBuf;
use std::process::Command;

/// The functions of the method.
const FUNCTIONS: [&str; 24] = [
    "BMI_mx_cancel",
    "BMI_mx_close_context",
    "BMI_mx_finalize",
    "BMI_mx_get_info",
    "BMI_mx_initialize",
    "BMI_mx_memalloc",
    "BMI_mx_memfree",
    "BMI_mx_method_addr_lookup",
    "BMI_mx_open_context",
    "BMI_mx_post_recv",
    "BMI_mx_post_recv_list",
    "BMI_mx_post_send",
    "BMI_mx_post_send_list",
    "BMI_mx_post_sendunexpected",
    "BMI_mx_post_sendunexpected_list",
    "BMI_mx_query_addr_range",
    "BMI_mx_rev_lookup_unexpected",
    "BMI_mx_set_info",
    "BMI_mx_test",
    "BMI_mx_testcontext",
    "BMI_mx_testsome",
    "BMI_mx_testunexpected",
    "BMI_mx_unexpected_free",
    "bmi_mx_set_host",
];

const TABLES: [&str; 2] = ["bmi_mx_ops", "method_interface"];

/// The library that cargo built for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let candidates = [deps.join("libbmi_mx.so"), deps.join("../libbmi_mx.so")];
    let found = candidates.iter().find(|path| path.exists());
    found
        .cloned()
        .unwrap_or_else(|| panic!("none of {candidates:?} is there"))
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(library())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names in the last column, without their versions.
fn names(listing: &str) -> Vec<String> {
    let mut names: Vec<String> = listing
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.split('@').next().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn exactly_the_method_is_exported() {
    let mut expected: Vec<String> = FUNCTIONS
        .iter()
        .chain(&TABLES)
        .map(ToString::to_string)
        .collect();
    expected.sort();
    let exported = names(&output("nm", &["-D", "--defined-only"]));
    assert_eq!(exported, expected);
    let of_mx = |name: &&String| name.starts_with("mx_") || name.starts_with("MX_");
    assert_eq!(exported.iter().find(of_mx), None);
}

#[test]
fn no_symbol_of_a_host_is_wanted() {
    let undefined = names(&output("nm", &["-D", "--undefined-only"]));
    assert!(
        undefined.iter().any(|name| name == "dlsym"),
        "{undefined:?}"
    );
    for prefix in [
        "bmi",
        "BMI",
        "gossip",
        "__gossip",
        "PINT",
        "gen_",
        "id_gen",
        "string_key",
        "mx_",
    ] {
        let wanted: Vec<_> = undefined
            .iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        assert!(wanted.is_empty(), "{wanted:?}");
    }
}

#[test]
fn the_tables_can_be_copied_into_a_program() {
    let symbols = output("readelf", &["--dyn-syms", "-W"]);
    for table in TABLES {
        // Num: Value Size Type Bind Vis Ndx Name
        let line = symbols
            .lines()
            .find(|line| line.split_whitespace().last() == Some(table))
            .unwrap_or_else(|| panic!("{table} is not there"));
        let columns: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            columns[2..6],
            ["200", "OBJECT", "GLOBAL", "DEFAULT"],
            "{line}"
        );
    }
}

#[test]
fn the_soname_is_versioned() {
    let dynamic = output("readelf", &["-dW"]);
    assert!(
        dynamic.contains("Library soname: [libbmi_mx.so.0]"),
        "{dynamic}"
    );
}

#[test]
fn the_header_declares_what_is_exported() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/include/bmi_mx.h");
    let header = std::fs::read_to_string(path).unwrap();
    for function in FUNCTIONS {
        let declared = header.lines().any(|line| {
            !line.starts_with([' ', '/', '*']) && line.contains(&format!("{function}("))
        });
        assert!(declared, "{function} is not in the header");
    }
    for table in TABLES {
        let line = format!("extern const struct bmi_method_ops {table};");
        assert!(header.contains(&line), "{table} is not in the header");
    }
}
