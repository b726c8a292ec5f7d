//! The encoding of a greeting, and of CONN_REQ and CONN_ACK, which a C `bmi_mx` sends instead.
//!
//! ```text
//!   greeting   version (4) | sender's id for the receiver (4) | "mx://host:board:endpoint", no NUL
//!
//!   CONN_REQ   bits: type 0xc | sender's id for the receiver | version
//!              body: "mx://host:board:endpoint" NUL
//!   CONN_ACK   bits: type 0xa | sender's id for the receiver | version     (accepted)
//!                    type 0xa | negative reason | version, bit 31 set      (rejected)
//!              body: none
//! ```
//!
//! Out of scope: peers, the endpoint.

use crate::match_layout::{Fields, VERSION};
use mx_proto::flow::{CREDIT, OVERHEAD};
use mx_proto::wire::GREETING_MAX;
use std::fmt;

/// Longest accepted CONN_REQ, in bytes: a name of 253 bytes, its numbers, and any bytes after the NUL.
pub const REQUEST_MAX: usize = 2048;

/// Longest name sent, in bytes without its NUL.
const NAME_MAX: usize = CREDIT - OVERHEAD - 1;

/// A method's introduction in the hello of a connect, or of its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting<'a> {
    /// Version of the match bits.
    pub version: u32,
    /// Id that the sender gives the receiver.
    pub id: u32,
    /// The sender's name for itself; any text.
    pub name: &'a str,
}

/// Bytes of a greeting before its name.
const GREETING_HEAD: usize = 8;

impl<'a> Greeting<'a> {
    /// Encodes a greeting, its name truncated to fit a hello. The name is for display; the transport identifies the
    /// sender.
    pub fn emit(id: u32, name: &str) -> Vec<u8> {
        let most = GREETING_MAX - GREETING_HEAD;
        let end = (0..=most).rev().find(|at| name.is_char_boundary(*at));
        let name = name.get(..end.unwrap_or(0)).unwrap_or(name);
        [&VERSION.to_le_bytes(), &id.to_le_bytes(), name.as_bytes()].concat()
    }

    /// Decodes a greeting. `None` without a version and an id, or if the name is not UTF-8.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (id, name) = rest.split_first_chunk()?;
        Some(Self {
            version: u32::from_le_bytes(*version),
            id: u32::from_le_bytes(*id),
            name: std::str::from_utf8(name).ok()?,
        })
    }
}

/// Body of a CONN_REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnReq<'a> {
    /// The peer's name for itself; any text, not necessarily an address.
    pub name: &'a str,
}

/// Reasons why a CONN_REQ's body is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Length of a body that is too long, in bytes.
    TooLong(usize),
    /// The name has no NUL.
    NoNul,
    /// The name is empty.
    Empty,
    /// The name is not UTF-8.
    NotUtf8,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => write!(f, "{len} bytes (at most {REQUEST_MAX})"),
            Self::NoNul => f.write_str("a name without a terminating NUL"),
            Self::Empty => f.write_str("an empty name"),
            Self::NotUtf8 => f.write_str("a name that is not UTF-8"),
        }
    }
}

impl<'a> ConnReq<'a> {
    /// Encodes a CONN_REQ's body: the name truncated to fit one credit, so that the message always carries its data.
    /// The name is for display; the transport identifies the sender.
    pub fn emit(name: &str) -> Vec<u8> {
        let most = (0..=NAME_MAX).rev().find(|at| name.is_char_boundary(*at));
        let name = name.get(..most.unwrap_or(0)).unwrap_or(name);
        [name.as_bytes(), &[0]].concat()
    }

    /// Decodes a CONN_REQ's body.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > REQUEST_MAX {
            return Err(Malformed::TooLong(bytes.len()));
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Malformed::NoNul)?;
        let name = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed::NotUtf8)?;
        if name.is_empty() {
            return Err(Malformed::Empty);
        }
        Ok(Self { name })
    }
}

/// Contents of a CONN_ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The peer accepts.
    Accepted {
        /// The peer's number for this process.
        tx_id: u32,
    },
    /// The peer rejects the request, with this (negative) reason.
    Refused {
        /// Reason as sent, negative.
        answer: i32,
    },
    /// The peer speaks another version.
    Version {
        /// The peer's version.
        theirs: u32,
    },
    /// The peer accepts without an id, which is invalid.
    NoId,
}

impl Answer {
    /// Decodes a CONN_ACK's match bits.
    pub const fn of(fields: Fields) -> Self {
        if let Some(answer) = fields.refusal() {
            return Self::Refused { answer };
        }
        if fields.tag != VERSION {
            return Self::Version { theirs: fields.tag };
        }
        match fields.id {
            0 => Self::NoId,
            tx_id => Self::Accepted { tx_id },
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted { tx_id } => write!(f, "accepted as {tx_id}"),
            Self::Refused { answer: -1 } => {
                write!(
                    f,
                    "rejected with -1: it does not support version {VERSION:#x}"
                )
            }
            Self::Refused { answer } => write!(f, "refused with {answer}"),
            Self::Version { theirs } => {
                write!(f, "it uses version {theirs:#x}; ours is {VERSION:#x}")
            }
            Self::NoId => f.write_str("an answer without an id"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::match_layout::{MessageType, PEER_ID_MAX, Refusal, bits, refusal_bits};

    #[test]
    fn a_greeting_has_version_id_and_as_much_of_the_name_as_fits() {
        let bytes = Greeting::emit(7, "mx://oss7:0:3");
        let greeting = Greeting {
            version: VERSION,
            id: 7,
            name: "mx://oss7:0:3",
        };
        assert_eq!(Greeting::parse(&bytes), Some(greeting));
        let long = Greeting::emit(PEER_ID_MAX, &"\u{e9}".repeat(100));
        assert_eq!(long.len(), GREETING_MAX);
        assert_eq!(Greeting::parse(&long).unwrap().id, PEER_ID_MAX);
        for bad in [&bytes[..7], &[&bytes[..8], &[0xff]].concat()] {
            assert_eq!(Greeting::parse(bad), None);
        }
    }

    #[test]
    fn a_request_is_a_name_and_its_nul_whatever_comes_behind() {
        let bytes = ConnReq::emit("mx://oss7:0:3");
        assert_eq!(bytes, b"mx://oss7:0:3\0");
        for padding in [&b""[..], b"\0\0\0", b"MXrs\xff\xff"] {
            let request = [&bytes, padding].concat();
            assert_eq!(ConnReq::parse(&request).unwrap().name, "mx://oss7:0:3");
        }
    }

    #[test]
    fn a_name_is_cut_to_what_goes_without_credits() {
        let long = ConnReq::emit(&format!("mx://{}", "\u{e9}".repeat(150)));
        assert_eq!(mx_proto::flow::cost(long.len() as u32), 1);
        let name = ConnReq::parse(&long).unwrap().name;
        assert!((NAME_MAX - 1..=NAME_MAX).contains(&name.len()), "{name}");
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        assert_eq!(ConnReq::parse(b""), Err(Malformed::NoNul));
        assert_eq!(ConnReq::parse(b"mx://c:1"), Err(Malformed::NoNul));
        assert_eq!(ConnReq::parse(b"\0mx"), Err(Malformed::Empty));
        assert_eq!(ConnReq::parse(b"\xff\0"), Err(Malformed::NotUtf8));
        let long = vec![b'a'; REQUEST_MAX + 1];
        assert_eq!(
            ConnReq::parse(&long),
            Err(Malformed::TooLong(REQUEST_MAX + 1))
        );
    }

    #[test]
    fn no_bytes_whatsoever_make_the_parser_fall_over() {
        let mut state = 1u64;
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    [0, b'M', b'X', (state >> 33) as u8][(state >> 60) as usize % 4]
                })
                .collect();
            if let Ok(request) = ConnReq::parse(&bytes) {
                assert!(request.name.len() < len);
            }
        }
    }

    #[test]
    fn answers_are_told_apart() {
        let of = |bits| Answer::of(Fields::of(bits));
        let ack = MessageType::ConnAck;
        let accepted = Answer::Accepted { tx_id: PEER_ID_MAX };
        assert_eq!(of(bits(ack, PEER_ID_MAX, VERSION)), accepted);
        assert_eq!(of(bits(ack, 0, VERSION)), Answer::NoId);
        assert_eq!(of(bits(ack, 1, 0x101)), Answer::Version { theirs: 0x101 });
        let refused = Answer::Refused { answer: -1 };
        assert_eq!(of(refusal_bits(Refusal::Version)), refused);
    }
}
