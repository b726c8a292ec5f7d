//! Symbols of the shared library, and functions of the headers.
//!
//! ```text
//!   nm -D libmyriexpress.so   ==   the names below   ==   functions of include/*.h
//!   readelf -s                     the two handlers are data objects of 8 bytes
//!   readelf -d                     the soname
//! ```

#[path = "../../../testing/sim/fixtures/exported.rs"]
mod exported;

use exported::{
    are_objects, exported, has_soname, imports_no_function_of_descriptors, wants_nothing_of,
};
use std::path::PathBuf;

const LIBRARY: &str = "libmyriexpress.so";

/// Functions that a header declares.
const FUNCTIONS: [&str; 47] = [
    "mx__get_mapper_state",
    "mx__init_api",
    "mx_board_number_to_nic_id",
    "mx_buffered",
    "mx_cancel",
    "mx_close_endpoint",
    "mx_connect",
    "mx_context",
    "mx_decompose_endpoint_addr",
    "mx_decompose_endpoint_addr2",
    "mx_disable_progression",
    "mx_disconnect",
    "mx_finalize",
    "mx_forget",
    "mx_get_endpoint_addr",
    "mx_get_endpoint_addr_context",
    "mx_get_info",
    "mx_hostname_to_nic_id",
    "mx_ibuffered",
    "mx_iconnect",
    "mx_iget",
    "mx_ipeek",
    "mx_iprobe",
    "mx_iput",
    "mx_irecv",
    "mx_isend",
    "mx_issend",
    "mx_nic_id_to_board_number",
    "mx_nic_id_to_hostname",
    "mx_open_board",
    "mx_open_endpoint",
    "mx_peek",
    "mx_probe",
    "mx_progress",
    "mx_reenable_progression",
    "mx_register_unexp_callback",
    "mx_register_unexp_handler",
    "mx_set_endpoint_addr_context",
    "mx_set_error_handler",
    "mx_set_request_timeout",
    "mx_strerror",
    "mx_strstatus",
    "mx_test",
    "mx_test_any",
    "mx_wait",
    "mx_wait_any",
    "mx_wakeup",
];

/// Functions in no header, which old MPI libraries look up.
const HIDDEN: [&str; 1] = ["mx__regcache_clean"];

const HANDLERS: [&str; 2] = ["MX_ERRORS_ARE_FATAL", "MX_ERRORS_RETURN"];

const HEADERS: [&str; 3] = ["myriexpress.h", "mx_extensions.h", "mx_io.h"];

fn header(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../include")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a header without comments and preprocessor lines.
fn declarations(header: &str) -> String {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code.push_str(rest);
    let lines = code.lines().filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn exactly_the_api_is_exported() {
    let all = FUNCTIONS.iter().chain(&HIDDEN).chain(&HANDLERS);
    let mut expected: Vec<String> = all.map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(exported(LIBRARY), expected);
}

#[test]
fn exactly_the_api_is_declared_in_the_headers() {
    let mut declared = Vec::new();
    for name in HEADERS {
        let code = declarations(&header(name));
        // A function is a name right before a bracket, at the start of a statement.
        for statement in code.split([';', '{', '}']) {
            let Some((head, _)) = statement.split_once('(') else {
                continue;
            };
            let word = head.rsplit([' ', '*', '\n']).next().unwrap_or_default();
            if word.starts_with("mx_") && !statement.trim_start().starts_with("typedef") {
                declared.push(word.to_owned());
            }
        }
    }
    declared.sort();
    assert_eq!(declared, FUNCTIONS);
    for handler in HANDLERS {
        let line = format!("extern const mx_error_handler_t {handler};");
        let main = header("myriexpress.h");
        assert!(main.contains(&line), "{handler} is not in the header");
    }
}

#[test]
fn nothing_of_the_method_or_its_host_is_wanted() {
    wants_nothing_of(LIBRARY, &["bmi", "BMI", "mx_", "MX_", "fi_", "gossip"]);
    imports_no_function_of_descriptors(LIBRARY);
}

#[test]
fn the_handlers_are_data_of_one_pointer() {
    are_objects(LIBRARY, &HANDLERS, "8");
}

#[test]
fn the_soname_is_versioned() {
    has_soname(LIBRARY, "libmyriexpress.so.1");
}
