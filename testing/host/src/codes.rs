//! Error codes of BMI, by their names.
//!
//! ```text
//!   -(53 | 0x4000_0080)   "ETIMEDOUT"        -(1 | 0x6000_0080)   "ECANCEL"
//! ```
//!
//! Owns: the codes an operation or a call may end with.

/// BMI's number of a C library's error.
const fn system(n: i32) -> i32 {
    -(n | 0x4000_0080)
}

/// Anything that has no better code.
pub const EIO: i32 = system(4);
/// A wrong argument.
pub const EINVAL: i32 = system(15);
/// Longer than the buffer for it.
pub const EMSGSIZE: i32 = system(42);
/// The peer closed, died, restarted or was dropped.
pub const ENETRESET: i32 = system(51);
/// Nothing was heard of the peer, or nothing moved.
pub const ETIMEDOUT: i32 = system(53);
/// No process listens there.
pub const ECONNREFUSED: i32 = system(54);
/// The peer is being disconnected.
pub const EHOSTDOWN: i32 = system(55);
/// No way to get there.
pub const EHOSTUNREACH: i32 = system(56);
/// Another process has the endpoint.
pub const EADDRINUSE: i32 = system(47);
/// The peer cannot be talked to.
pub const EPROTO: i32 = system(38);
/// No memory, or no room at the peer.
pub const ENOMEM: i32 = system(8);
/// Called off.
pub const ECANCEL: i32 = -(1 | 0x6000_0080);
/// A send whose receive was called off.
pub const ENORECVR: i32 = -(6 | 0x6000_0080);

/// The code as people write it.
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
