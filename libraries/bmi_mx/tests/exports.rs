//! Symbols of the shared library.
//!
//! ```text
//!   nm -D libbmi_mx.so     exactly the names below: no crate's symbol is exported, none of MX
//!                          (libmyriexpress may be in the same process), and no host symbol is required
//!   readelf -s             the tables are data objects of 200 bytes, visible by default
//!   readelf -d             the soname
//! ```

use crate::exported::{
    are_objects, exported, has_soname, imports_no_function_of_descriptors, wants_nothing_of,
};

const LIBRARY: &str = "libbmi_mx.so";

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

#[test]
fn exactly_the_method_is_exported() {
    let mut expected: Vec<String> = FUNCTIONS
        .iter()
        .chain(&TABLES)
        .map(ToString::to_string)
        .collect();
    expected.sort();
    let exported = exported(LIBRARY);
    assert_eq!(exported, expected);
    let of_mx = |name: &&String| name.starts_with("mx_") || name.starts_with("MX_");
    assert_eq!(exported.iter().find(of_mx), None);
}

#[test]
fn no_symbol_of_a_host_is_wanted() {
    wants_nothing_of(
        LIBRARY,
        &[
            "bmi",
            "BMI",
            "gossip",
            "__gossip",
            "PINT",
            "gen_",
            "id_gen",
            "string_key",
            "mx_",
        ],
    );
}

#[test]
fn an_interposer_has_no_function_to_replace() {
    imports_no_function_of_descriptors(LIBRARY);
}

#[test]
fn the_tables_can_be_copied_into_a_program() {
    are_objects(LIBRARY, &TABLES, "200");
}

#[test]
fn the_soname_is_versioned() {
    has_soname(LIBRARY, "libbmi_mx.so.0");
}

#[test]
fn the_header_declares_what_is_exported() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/bmi_mx.h");
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
