//! Loading of libraries that are present, missing, or not completely a libfabric.
//!
//! ```text
//!   C source + version script -- cc --> a shared object in a directory of its own --> Library::load
//! ```

use std::path::Path;

use crate::common::{Scratch, VERSIONS, can_compile, source};
use libfabric_sys::abi::{FI_EAVAIL, FI_ENODATA, FI_ENOMEM};
use libfabric_sys::{Library, LoadError};

#[test]
fn a_missing_file_is_not_found_and_the_error_says_what_to_do() {
    let path = Path::new("/nonexistent/libfabric.so.1");
    let error = Library::load(path).expect_err("there is no such file");
    assert!(
        matches!(&error, LoadError::NotFound { asked, .. } if asked == path),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("/nonexistent/libfabric.so.1"), "{text}");
    assert!(
        text.contains("install libfabric1, or set MX_LIBFABRIC"),
        "{text}"
    );
}

#[test]
fn a_name_the_system_does_not_know_is_not_found() {
    let error = Library::load(Path::new("libfabric-that-is-not-there.so.1"))
        .expect_err("there is no such library");
    assert!(matches!(error, LoadError::NotFound { .. }), "{error:?}");
}

#[test]
fn a_file_that_is_no_library_is_unusable() {
    let scratch = Scratch::new();
    let path = scratch.path("libfabric.so.1");
    std::fs::write(
        &path,
        "not an ELF file, though long enough to have been one".repeat(100),
    )
    .expect("the file can be written");
    let error = Library::load(&path).expect_err("it is text");
    assert!(matches!(error, LoadError::Unusable { .. }), "{error:?}");
    assert!(error.to_string().contains("invalid ELF header"), "{error}");
}

#[test]
fn a_directory_is_unusable() {
    let scratch = Scratch::new();
    let error = Library::load(&scratch.path(".")).expect_err("it is a directory");
    assert!(matches!(error, LoadError::Unusable { .. }), "{error:?}");
}

#[test]
fn another_library_has_no_fi_version() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.compile("libother.so", "int other(void) { return 1; }", "", &[]);
    let error = Library::load(&path).expect_err("it is something else");
    assert_eq!(
        error,
        LoadError::MissingSymbol {
            asked: path,
            symbol: "fi_version"
        }
    );
}

#[test]
fn a_library_without_one_of_the_six_is_named_with_it() {
    if !can_compile() {
        return;
    }
    for symbol in [
        "fi_getinfo",
        "fi_freeinfo",
        "fi_dupinfo",
        "fi_fabric",
        "fi_strerror",
    ] {
        let scratch = Scratch::new();
        let source = source(1, 17).replace(symbol, "something_else");
        let versions = VERSIONS.replace(&format!("{symbol};"), "something_else;");
        let path = scratch.compile("libfabric.so.1", &source, &versions, &[]);
        let error = Library::load(&path).expect_err("one symbol is missing");
        assert_eq!(
            error,
            LoadError::MissingSymbol {
                asked: path,
                symbol
            }
        );
    }
}

#[test]
fn a_library_from_before_1_9_is_too_old_and_1_9_is_not() {
    if !can_compile() {
        return;
    }
    for (version, loads) in [
        ((1, 8), false),
        ((1, 0), false),
        ((1, 9), true),
        ((3, 0), true),
    ] {
        let scratch = Scratch::new();
        let path = scratch.libfabric("libfabric.so.1", version.0, version.1);
        match Library::load(&path) {
            Ok(library) => {
                assert!(loads, "{version:?}");
                assert_eq!(library.version(), version);
                assert_eq!(library.path(), Some(&*path));
                let asked = if version == (1, 9) {
                    0x1_0009
                } else {
                    0x1_0011
                };
                assert_eq!(library.api_version(), asked);
            }
            Err(error) => {
                assert!(!loads, "{version:?}");
                let expected = LoadError::TooOld {
                    asked: path.clone(),
                    found: version,
                    needed: (1, 9),
                };
                assert_eq!(error, expected);
            }
        }
    }
}

#[test]
fn a_library_that_lacks_what_it_needs_is_unusable_not_absent() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    let needed = scratch.compile("libneeded.so", "int needed(void) { return 1; }", "", &[]);
    let source = format!(
        "{} int needed(void); int use(void) {{ return needed(); }}",
        source(1, 17)
    );
    let needed_path = needed.to_str().expect("a path in ASCII").to_owned();
    let path = scratch.compile("libfabric.so.1", &source, VERSIONS, &[&needed_path]);
    std::fs::remove_file(&needed).expect("the file can be removed");
    let error = Library::load(&path).expect_err("what it needs is gone");
    assert!(matches!(error, LoadError::Unusable { .. }), "{error:?}");
    assert!(error.to_string().contains("libneeded.so"), "{error}");
}

#[test]
fn the_symbol_versions_asked_for_are_those_of_1_17() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    // Two versions of each symbol, as in 2.x; the default is the newer and must not be taken.
    let source = source(2, 6).replace("fi_getinfo(unsigned", "getinfo_old(unsigned")
        + "__asm__(\".symver getinfo_old, fi_getinfo@FABRIC_1.3\");
           int getinfo_new(void) { return -1; }
           __asm__(\".symver getinfo_new, fi_getinfo@@FABRIC_1.10\");";
    let versions = format!("{VERSIONS} FABRIC_1.10 {{ global: fi_getinfo; }} FABRIC_1.3;");
    let path = scratch.compile("libfabric.so.1", &source, &versions, &[]);
    let library = Library::load(&path).expect("it has all six");
    let error = library
        .query(None, None, 0, None)
        .expect_err("it has no providers");
    assert_eq!(error, FI_ENODATA);
}

#[test]
fn a_library_without_symbol_versions_loads() {
    if !can_compile() {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.compile("libfabric.so.1", &source(1, 20), "", &[]);
    let library = Library::load(&path).expect("it has all six");
    assert_eq!(library.version(), (1, 20));
    assert_eq!(library.strerror(FI_EAVAIL), "error available");
    assert_eq!(library.strerror(-FI_EAVAIL), "error available");
    assert_eq!(library.strerror(17), "error 17");
    assert_eq!(library.strerror(i32::MIN), "error 256");
    assert_eq!(
        library.hints().expect_err("its dupinfo gives null"),
        FI_ENOMEM
    );
}
