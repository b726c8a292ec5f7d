//! CONN_REQ and CONN_ACK: their bytes, and what they mean.
//!
//! ```text
//!   CONN_REQ   bits: type 0xc | our id for the peer | version
//!              body: "mx://host:board:endpoint" NUL   extension
//!                    what every method sends           ours: an old peer does not look there
//!   CONN_ACK   bits: type 0xa | our id for the peer | version          (accepted)
//!                    type 0xa | negative reason | version, bit 31 set  (refused)
//!              body: extension, to a peer whose CONN_REQ had one; else none
//!   extension  "MXrs" | length of the rest: u32 | flags: u32 | loan: u32      all little-endian
//! ```
//!
//! Owns: the extension's format. Knows nothing of: peers, the endpoint, when to send what.

use crate::match_layout::{Fields, VERSION};
use std::fmt;

/// Longest CONN_REQ we look at: a name of 253 bytes, its numbers, and room for extensions.
pub const REQUEST_MAX: usize = 2048;

/// How an extension begins.
const MAGIC: &[u8; 4] = b"MXrs";

/// Set in the flags of a method that knows credits.
const CREDITS: u32 = 1;

/// What a method of this project says about itself behind its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extension {
    /// Credits it lends to the receiver; `None`: it knows none.
    pub loan: Option<u16>,
}

impl Extension {
    /// The bytes to send.
    pub fn emit(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let flags = if self.loan.is_some() { CREDITS } else { 0 };
        bytes[..4].copy_from_slice(MAGIC);
        // The length of what follows, so that later versions can append fields.
        bytes[4..8].copy_from_slice(&8u32.to_le_bytes());
        bytes[8..12].copy_from_slice(&flags.to_le_bytes());
        bytes[12..].copy_from_slice(&u32::from(self.loan.unwrap_or(0)).to_le_bytes());
        bytes
    }

    /// Reads what arrived. What is not exactly an extension is none: an old peer's padding may hold
    /// anything. A loan of more than 65535 credits is one of 65535.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let fields = rest.get(..u32::from_le_bytes(*len) as usize)?;
        let (flags, fields) = fields.split_first_chunk::<4>()?;
        if magic != MAGIC {
            return None;
        }
        let loan = match fields.first_chunk::<4>() {
            Some(loan) if u32::from_le_bytes(*flags) & CREDITS != 0 => {
                let loan = u32::from_le_bytes(*loan);
                Some(u16::try_from(loan).unwrap_or(u16::MAX))
            }
            _ => None,
        };
        Some(Self { loan })
    }
}

/// A CONN_REQ's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnReq<'a> {
    /// What the peer calls itself. Any text; it may not even be an address.
    pub name: &'a str,
    /// What it says about itself; `None` from an old peer.
    pub extension: Option<Extension>,
}

/// Why a CONN_REQ's body makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// It has this many bytes.
    TooLong(usize),
    /// The name has no end.
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
            Self::NoNul => f.write_str("a name without an end"),
            Self::Empty => f.write_str("an empty name"),
            Self::NotUtf8 => f.write_str("a name that is not UTF-8"),
        }
    }
}

impl<'a> ConnReq<'a> {
    /// The bytes to send.
    pub fn emit(name: &str, extension: Extension) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(name.len() + 17);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&extension.emit());
        bytes
    }

    /// Reads what arrived.
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
        let extension = Extension::parse(&bytes[end + 1..]);
        Ok(Self { name, extension })
    }
}

/// What a CONN_ACK says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The peer will know us by this number.
    Accepted {
        /// It.
        tx_id: u32,
    },
    /// It does not want us, for this (negative) reason.
    Refused {
        /// It.
        answer: i32,
    },
    /// It speaks another version.
    Version {
        /// Which.
        theirs: u32,
    },
    /// It says nothing.
    NoId,
}

impl Answer {
    /// Reads a CONN_ACK's match bits.
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
                write!(f, "refused with -1: it does not speak version {VERSION:#x}")
            }
            Self::Refused { answer } => write!(f, "refused with {answer}"),
            Self::Version { theirs } => {
                write!(f, "it speaks version {theirs:#x}, we speak {VERSION:#x}")
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
    fn an_old_peer_sees_a_name_and_its_nul_and_nothing_else() {
        let lends = Extension { loan: Some(64) };
        let bytes = ConnReq::emit("mx://oss7:0:3", lends);
        assert_eq!(&bytes[..14], b"mx://oss7:0:3\0");
        let request = ConnReq::parse(&bytes).unwrap();
        assert_eq!(request.name, "mx://oss7:0:3");
        assert_eq!(request.extension, Some(lends));
    }

    #[test]
    fn an_old_peers_request_has_no_extension_whatever_its_padding_holds() {
        for padding in [
            &b""[..],
            b"\0\0\0",
            b"MXr",
            b"MXrs\xff\xff\xff\xff",
            b"MXxx\x04\0\0\0ab\0\0",
        ] {
            let bytes = [b"mx://c:1\0", padding].concat();
            let request = ConnReq::parse(&bytes).unwrap();
            assert_eq!((request.name, request.extension), ("mx://c:1", None));
        }
    }

    #[test]
    fn later_versions_may_append_fields_and_earlier_ones_had_fewer() {
        let lends = Extension { loan: Some(7) };
        let mut bytes = lends.emit().to_vec();
        bytes[4] = 11;
        bytes.extend_from_slice(b"new");
        assert_eq!(Extension::parse(&bytes), Some(lends));
        let before = b"MXrs\x04\0\0\0\x01\0\0\0";
        assert_eq!(Extension::parse(before), Some(Extension { loan: None }));
    }

    #[test]
    fn a_loan_is_told_and_one_beyond_all_loans_is_the_largest() {
        for loan in [None, Some(0), Some(u16::MAX)] {
            let extension = Extension { loan };
            assert_eq!(Extension::parse(&extension.emit()), Some(extension));
        }
        let mut bytes = Extension { loan: Some(1) }.emit();
        bytes[12..].copy_from_slice(&u32::MAX.to_le_bytes());
        let most = Extension {
            loan: Some(u16::MAX),
        };
        assert_eq!(Extension::parse(&bytes), Some(most));
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
