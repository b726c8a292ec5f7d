//! Init and finalize are counted, and the last finalize closes what is open.
//!
//! ```text
//!   init init finalize [ still open ] finalize [ closed ]      twice: it starts again
//! ```
//!
//! The count belongs to the process, so this test has a separate process.

use crate::own_process::in_own_process;
use libc::c_int;
use myriexpress_api::abi::{MX_ANY_ENDPOINT, MX_ANY_NIC, MX_API};
use myriexpress_api::error::{Code, Error};
use myriexpress_api::exports::endpoint::mx_open_endpoint;
use myriexpress_api::exports::lifecycle::{MX_ERRORS_RETURN, mx_set_error_handler};
use myriexpress_api::library::{finalize, init, settings};
use myriexpress_api::process::{self, OpenParams};
use std::ptr::null_mut;
use std::sync::mpsc;

fn code<T>(result: Result<T, Error>) -> Code {
    result.map_or_else(|error| error.code(), |_| Code::Success)
}

#[test]
fn inits_are_counted_and_the_last_finalize_ends_the_library() {
    in_own_process!();
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
    nothing_opened_meanwhile_outlives_the_library();
}

/// Opens endpoints until that is rejected; reports each. Returns the code.
fn open_until_the_end(opened: &mpsc::Sender<()>) -> u32 {
    loop {
        let mut endpoint = null_mut();
        // SAFETY: no parameters, and an endpoint to write to.
        let code = unsafe {
            mx_open_endpoint(
                MX_ANY_NIC,
                MX_ANY_ENDPOINT,
                0,
                null_mut(),
                0,
                &raw mut endpoint,
            )
        };
        if code != Code::Success as u32 {
            return code;
        }
        let _ = opened.send(());
    }
}

fn nothing_opened_meanwhile_outlives_the_library() {
    // SAFETY: a handler of the library's.
    unsafe { mx_set_error_handler(MX_ERRORS_RETURN) };
    for _ in 0..20 {
        assert_eq!(code(init(MX_API)), Code::Success);
        let (told, opened) = mpsc::channel();
        let opening = std::thread::spawn(move || open_until_the_end(&told));
        opened.recv().unwrap();
        assert_eq!(code(finalize()), Code::Success);
        assert_eq!(opening.join().unwrap(), Code::NotInitialized as u32);
        assert_eq!(process::open_endpoints(), []);
    }
}
