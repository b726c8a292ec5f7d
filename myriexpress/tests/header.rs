//! The numbers of the headers are those of the library.
//!
//! ```text
//!   include/*.h   MX_BAD_SEG_LIST = 10      ==   Code::BadSegList as u32       error, status, info
//!                 #define MX_API 0x301      ==   abi::MX_API
//! ```
//!
//! Sizes and offsets are compared with MX's from both sides: in `abi`, and in C (`c_tests/mx/layout.c`).

use myriexpress_api::abi;
use myriexpress_api::error::Code;
use myriexpress_api::info::Key;
use myriexpress_api::status::StatusCode;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

fn header(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../include")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the constants of `enum name`.
fn constants(header: &str, name: &str) -> BTreeMap<u32, String> {
    let start = header.find(&format!("enum {name} {{")).expect(name);
    let body = header[start..].split('}').next().unwrap();
    let mut constants = BTreeMap::new();
    for line in body.lines() {
        let line = line.trim().trim_end_matches(',');
        if let Some((name, number)) = line.split_once(" = ") {
            let before = constants.insert(number.parse().unwrap(), name.to_owned());
            assert_eq!(before, None, "{line}");
        }
    }
    constants
}

/// Converts a variant's name: `BadSegList` after `MX` is `MX_BAD_SEG_LIST`.
fn c_name(prefix: &str, variant: impl Debug) -> String {
    let mut name = prefix.to_owned();
    for c in format!("{variant:?}").chars() {
        if c.is_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

#[test]
fn enums_have_the_numbers_of_the_library() {
    let main = header("myriexpress.h");
    let returns = Code::ALL
        .iter()
        .map(|code| (*code as u32, c_name("MX", code)));
    assert_eq!(constants(&main, "mx_return_code"), returns.collect());
    let statuses = StatusCode::ALL.iter();
    let statuses = statuses.map(|code| (*code as u32, c_name("MX_STATUS", code)));
    assert_eq!(constants(&main, "mx_status_code"), statuses.collect());
    let keys = Key::ALL.iter().map(|key| (*key as u32, c_name("MX", key)));
    assert_eq!(constants(&main, "mx_get_info_key"), keys.collect());
    let params = [
        (abi::MX_PARAM_ERROR_HANDLER, "MX_PARAM_ERROR_HANDLER"),
        (abi::MX_PARAM_UNEXP_QUEUE_MAX, "MX_PARAM_UNEXP_QUEUE_MAX"),
        (abi::MX_PARAM_CONTEXT_ID, "MX_PARAM_CONTEXT_ID"),
    ];
    let params = params.map(|(number, name)| (number, name.to_owned()));
    assert_eq!(constants(&main, "mx_param_key"), BTreeMap::from(params));
}

#[test]
fn constants_have_the_values_of_the_library() {
    let main = header("myriexpress.h");
    for (name, value) in [
        ("MX_API", "0x301".to_owned()),
        ("MX_MAX_STR_LEN", abi::MX_MAX_STR_LEN.to_string()),
        (
            "MX_SIZEOF_ADDR",
            size_of::<abi::mx_endpoint_addr_t>().to_string(),
        ),
        ("MX_ANY_NIC", format!("{:#x}U", abi::MX_ANY_NIC)),
        ("MX_ANY_ENDPOINT", format!("{:#x}U", abi::MX_ANY_ENDPOINT)),
        ("MX_INFINITE", abi::MX_INFINITE.to_string()),
        (
            "MX_CONTEXT_ID_BITS_MAX",
            abi::MX_CONTEXT_ID_BITS_MAX.to_string(),
        ),
        ("MX_MAX_SEGMENTS", abi::MX_MAX_SEGMENTS.to_string()),
        ("MX_MAX_HOSTNAME_LEN", abi::MX_MAX_HOSTNAME_LEN.to_string()),
        (
            "MYRIEXPRESS_VERSION",
            format!("\"{}\"", env!("CARGO_PKG_VERSION")),
        ),
    ] {
        let line = format!("#define {name} {value}");
        assert!(main.lines().any(|found| found == line), "{line}");
    }
    assert_eq!(abi::MX_API, 0x301);
    assert_eq!(mx_sys::nic::MX_NAME_MAX + 1, abi::MX_MAX_HOSTNAME_LEN);
}
