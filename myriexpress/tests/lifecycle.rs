//! Init and finalize are counted, and the last finalize closes what is open.
//!
//! ```text
//!   init init finalize [ still there ] finalize [ gone ]      twice: it starts again
//! ```
//!
//! The count is the process's, so this is a test program of its own with one test.

use libc::c_int;
use myriexpress::abi::MX_API;
use myriexpress::error::{Code, Error};
use myriexpress::library::{finalize, init, settings};
use myriexpress::process::{self, OpenParams};

fn code<T>(result: Result<T, Error>) -> Code {
    result.map_or_else(|error| error.code(), |_| Code::Success)
}

#[test]
fn inits_are_counted_and_the_last_finalize_ends_the_library() {
    assert_eq!(code(finalize()), Code::NotInitialized);
    assert_eq!(code(settings()), Code::NotInitialized);
    for other in [0x201, 0x401, 0x1, -1, c_int::MIN] {
        assert_eq!(code(init(other)), Code::BadLibVersion, "{other:#x}");
    }
    assert_eq!(code(finalize()), Code::NotInitialized);
    for _ in 0..2 {
        // Another minor number is the same interface.
        assert_eq!(code(init(0x300)), Code::Success);
        assert_eq!(code(init(MX_API)), Code::AlreadyInitialized);
        assert_eq!(code(init(0x3ff)), Code::AlreadyInitialized);
        let endpoint = process::open(&settings().unwrap(), OpenParams::default()).unwrap();
        for _ in 0..2 {
            assert_eq!(code(finalize()), Code::Success);
            assert_eq!(code(settings()), Code::Success);
            assert_eq!(code(process::progress(endpoint)), Code::Success);
        }
        assert_eq!(code(finalize()), Code::Success);
        assert_eq!(code(process::progress(endpoint)), Code::BadEndpoint);
        assert_eq!(code(finalize()), Code::NotInitialized);
        assert_eq!(code(settings()), Code::NotInitialized);
    }
}
