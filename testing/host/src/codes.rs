//! Error codes of BMI, with their names.
//!
//! ```text
//!   -(53 | 0x4000_0080)   "ETIMEDOUT"        -(1 | 0x6000_0080)   "ECANCEL"
//! ```
//!
//! Owns: the codes with which operations and calls end.

/// Returns BMI's number of a C library's error.
const fn system(n: i32) -> i32 {
    -(n | 0x4000_0080)
}

/// Any error without a better code.
pub const EIO: i32 = system(4);
/// Wrong argument.
pub const EINVAL: i32 = system(15);
/// Message longer than its buffer.
pub const EMSGSIZE: i32 = system(42);
/// Peer closed, died, restarted or was dropped.
pub const ENETRESET: i32 = system(51);
/// Peer silent, or no progress.
pub const ETIMEDOUT: i32 = system(53);
/// No process listens at the address.
pub const ECONNREFUSED: i32 = system(54);
/// Peer is being disconnected.
pub const EHOSTDOWN: i32 = system(55);
/// No route to the peer.
pub const EHOSTUNREACH: i32 = system(56);
/// Another process uses the endpoint.
pub const EADDRINUSE: i32 = system(47);
/// Peer speaks no common protocol.
pub const EPROTO: i32 = system(38);
/// No memory here, or at the peer.
pub const ENOMEM: i32 = system(8);
/// Cancelled.
pub const ECANCEL: i32 = -(1 | 0x6000_0080);
/// Send whose receive was cancelled.
pub const ENORECVR: i32 = -(6 | 0x6000_0080);

/// Returns the name of a code.
pub fn name(code: i32) -> String {
    let known = match code {
        0 => "success",
        EIO => "EIO",
        EINVAL => "EINVAL",
        EMSGSIZE => "EMSGSIZE",
        ENETRESET => "ENETRESET",
        ETIMEDOUT => "ETIMEDOUT",
        ECONNREFUSED => "ECONNREFUSED",
        EHOSTDOWN => "EHOSTDOWN",
        EHOSTUNREACH => "EHOSTUNREACH",
        EADDRINUSE => "EADDRINUSE",
        EPROTO => "EPROTO",
        ENOMEM => "ENOMEM",
        ECANCEL => "ECANCEL",
        ENORECVR => "ENORECVR",
        other => return format!("code {other}"),
    };
    known.into()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn codes_are_those_of_the_header() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/bmi_mx.h");
        let header = std::fs::read_to_string(header).unwrap();
        for code in [
            EIO,
            EINVAL,
            EMSGSIZE,
            ENETRESET,
            ETIMEDOUT,
            ECONNREFUSED,
            EHOSTDOWN,
            EHOSTUNREACH,
            EADDRINUSE,
            EPROTO,
            ENOMEM,
            ECANCEL,
        ] {
            let class = if code == ECANCEL {
                0x6000_0080
            } else {
                0x4000_0080
            };
            let line = format!("#define BMI_{} ({} | {class})", name(code), -code ^ class);
            assert!(header.contains(&line), "{line}");
        }
    }
}
