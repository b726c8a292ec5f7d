//! The option string of `initialize`.
//!
//! ```text
//!   OrangeFS 2.9.8 and later    initialize(listen, id, flags, options)     NULL or a string
//!   OrangeFS 2.8.2 to 2.9.7     initialize(listen, id, flags)              a leftover register value
//!                                         |
//!        the kernel copies it  ----> EFAULT, no text, no NAME=   no options, and a log line
//!                                         |
//!                                    NAME=value ...              the options
//! ```
//!
//! Both kinds of host have the same table and export the same names, so that only the argument itself can tell them
//! apart. The pointer may be invalid: a system call copies the string, and fails where a read would end the process.
//!
//! Owns: the test for an option string.
//! Out of scope: the settings in it (`config`).

use libc::{c_char, iovec};
use std::io;

/// Longest option string in bytes, its NUL included.
const MAX_OPTIONS: usize = 64 * 1024;

/// Divisor of every page size: if a byte is readable, so are all bytes up to the next multiple.
const PAGE: usize = 4096;

/// Number of characters of a text that the log quotes.
const QUOTED: usize = 60;

/// Returns the options of `initialize`; `None` if its last argument is NULL or no option string.
pub(crate) fn given(argument: *const c_char) -> Option<String> {
    if argument.is_null() {
        return None;
    }
    match copy(argument).and_then(text) {
        Ok(text) if text.trim_matches(is_separator).is_empty() => None,
        Ok(text) if begins_with_name(&text) => Some(text),
        Ok(text) => {
            let quoted: String = text.chars().take(QUOTED).collect();
            log::warn!("ignoring options that begin with {quoted:?}: expected NAME=value");
            None
        }
        Err(error) => {
            let level = match error.raw_os_error() {
                None | Some(libc::EFAULT) => log::Level::Info,
                // The kernel rejects the call itself.
                Some(_) => log::Level::Warn,
            };
            log::log!(
                level,
                "no options: {argument:p} is not a string ({error}); OrangeFS before 2.9.8 passes none"
            );
            None
        }
    }
}

/// Copies the bytes from an address to the first NUL.
fn copy(from: *const c_char) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_OPTIONS {
        let at = from.wrapping_add(bytes.len());
        let mut piece = [0_u8; PAGE];
        let ours = iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: (PAGE - at.addr() % PAGE).min(MAX_OPTIONS - bytes.len()),
        };
        let theirs = iovec {
            iov_base: at.cast_mut().cast(),
            ..ours
        };
        // SAFETY: `ours` is within `piece`. Only the kernel accesses `theirs`, and checks it.
        let got = unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) };
        let piece = match usize::try_from(got) {
            Ok(1..) => &piece[..got as usize],
            _ => return Err(io::Error::last_os_error()),
        };
        match piece.iter().position(|&byte| byte == 0) {
            Some(end) => {
                bytes.extend(&piece[..end]);
                return Ok(bytes);
            }
            None => bytes.extend(piece),
        }
    }
    Err(io::Error::other(format!(
        "no end within {MAX_OPTIONS} bytes"
    )))
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .ok()
        .filter(|text| text.chars().all(|c| !c.is_control() || c.is_whitespace()))
        .ok_or_else(|| io::Error::other("not text"))
}

/// Returns whether a character separates the entries of an option string (`mx_sys::tunable`).
fn is_separator(c: char) -> bool {
    matches!(c, ',' | ';') || c.is_whitespace()
}

fn begins_with_name(text: &str) -> bool {
    let name = text.trim_start_matches(is_separator).split_once('=');
    name.is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn taken(text: &[u8]) -> Option<String> {
        given(CString::new(text).unwrap().as_ptr())
    }

    #[test]
    fn options_are_text_that_begins_with_a_name() {
        for text in [
            "MX_PORT=tcp",
            " ,MX_SPIN_US=3; MX_PORT=tcp",
            "a=",
            "ib_port=2\nMX_PORT",
        ] {
            assert_eq!(taken(text.as_bytes()).as_deref(), Some(text));
        }
        let long = format!("{}MX_SPIN_US=3", " ".repeat(3 * PAGE));
        assert_eq!(taken(long.as_bytes()), Some(long));
    }

    #[test]
    fn anything_else_is_no_options() {
        for text in [
            "",
            " ,\n",
            "mx://localhost:3",
            "bmi_mx",
            "=tcp",
            "/etc/a=b",
            "a b=c",
        ] {
            assert_eq!(taken(text.as_bytes()), None, "{text}");
        }
        for bytes in [&b"MX_PORT=tcp\xff"[..], b"MX_PORT=\x1b[1m", b"\x7fELF\x02"] {
            assert_eq!(taken(bytes), None);
        }
        assert_eq!(taken("a=".repeat(MAX_OPTIONS / 2).as_bytes()), None);
        for address in [1, 7, PAGE, 1 << 46, usize::MAX >> 1, usize::MAX - 6] {
            assert_eq!(given(std::ptr::without_provenance(address)), None);
        }
    }
}
