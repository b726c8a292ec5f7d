//! The 64 match bits of every message between two methods.
//!
//! ```text
//!    63..60   59..52      51..32        31..0
//!   +------+----------+-----------+----------------+
//!   | type |  class   |  peer id  |  BMI tag, or   |   the class is masked out of every match; it is 0
//!   |      |          |           |  version       |   except in unexpected messages of the stand-alone BMI
//!   +------+----------+-----------+----------------+
//! ```
//!
//! The peer id in a message is the number that the *receiver* gave the sender in the handshake. In CONN_REQ and
//! CONN_ACK it is the number that the receiver is to use from then on.
//!
//! A rejected CONN_REQ is answered with a CONN_ACK whose id is negative (20 bits, two's complement) and whose version
//! has its highest bit set: a peer that does not implement negative ids sees an unknown version, and fails the
//! connection, too.
//!
//! Owns: the layout (docs/hosts.md, Handshake of the C method).

use mx_proto::{MatchBits, MatchMask};
use std::fmt;

/// Version of the handshake, in the tag of CONN_REQ and CONN_ACK.
pub const VERSION: u32 = 0x100;

/// Key with which methods open their endpoints and connect to each other: "pvfs". Programs with other keys cannot
/// connect.
pub const KEY: u32 = 0x7076_6673;

/// Largest peer id.
pub const PEER_ID_MAX: u32 = (1 << 20) - 1;

/// Mask for matching receives: everything but the class.
pub const MATCH: MatchMask = MatchMask(!(0xff << CLASS_SHIFT));

/// Version bit of a refusal.
const REFUSED: u32 = 1 << 31;

/// Types of messages. The values are the C method's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MessageType {
    /// Never sent: match bits of the transport connect that the C method makes to answer a CONN_REQ.
    IconAck = 0x9,
    /// Answer to CONN_REQ.
    ConnAck = 0xa,
    /// Never sent: match bits of this method's own transport connect.
    IconReq = 0xb,
    /// First message to a peer: this process's name, and its number for the peer.
    ConnReq = 0xc,
    /// A message that the receiver takes with `testunexpected`.
    Unexpected = 0xd,
    /// A message for which the receiver posts a receive.
    Expected = 0xe,
}

impl MessageType {
    const fn of(bits: MatchBits) -> Option<Self> {
        Some(match bits.0 >> 60 {
            0x9 => Self::IconAck,
            0xa => Self::ConnAck,
            0xb => Self::IconReq,
            0xc => Self::ConnReq,
            0xd => Self::Unexpected,
            0xe => Self::Expected,
            _ => return None,
        })
    }
}

/// Reasons for rejecting a CONN_REQ. The CONN_ACK carries the negative value in place of a peer id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Refusal {
    /// The versions differ.
    Version = -1,
    /// The message is malformed.
    Malformed = -2,
    /// No peer id or memory is left.
    NoRoom = -3,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "another version of the handshake",
            Self::Malformed => "a malformed connection request",
            Self::NoRoom => "no room for another peer",
        })
    }
}

/// Fields of match bits. Any 64-bit value can be split into fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// Type; `None` for unassigned numbers.
    pub kind: Option<MessageType>,
    /// Id that the receiver has given the sender, 20 bits; in a handshake message the id that the receiver is to use
    /// from then on.
    pub id: u32,
    /// Tag of the message; the version in a handshake message.
    pub tag: u32,
    /// Class of an unexpected message.
    pub class: u8,
}

impl Fields {
    /// Splits match bits into fields. Never fails: an unassigned type gives `None` as `kind`.
    #[inline]
    pub const fn of(bits: MatchBits) -> Self {
        Self {
            kind: MessageType::of(bits),
            id: (bits.0 >> 32) as u32 & PEER_ID_MAX,
            tag: bits.0 as u32,
            class: (bits.0 >> CLASS_SHIFT) as u8,
        }
    }

    /// Returns the number of the inbox queue ("turn") of an unexpected message: each peer has one queue for each class
    /// up to `class_max`, and queues take turns.
    #[inline]
    pub const fn turn(self, class_max: u8) -> u32 {
        turn(self.id, self.class & class_max)
    }

    /// Returns the negative reason in a CONN_ACK that rejects, as sent, so perhaps none of [`Refusal`]; `None` if it
    /// accepts.
    pub const fn refusal(self) -> Option<i32> {
        if self.tag & REFUSED == 0 {
            return None;
        }
        // Sign-extends the 20 bits.
        Some(((self.id << 12) as i32) >> 12)
    }
}

/// Position of the class.
const CLASS_SHIFT: u32 = 52;

/// Returns `bits`, whose class is 0, with the class set.
#[inline]
pub const fn with_class(bits: MatchBits, class: u8) -> MatchBits {
    MatchBits(bits.0 | (class as u64) << CLASS_SHIFT)
}

/// Returns the number of the inbox queue ("turn") for unexpected messages of `class` from the peer with the id `id`.
#[inline]
pub const fn turn(id: u32, class: u8) -> u32 {
    (class as u32) << 20 | id & PEER_ID_MAX
}

/// Splits the number of an inbox queue ([`turn`]) into peer id and class.
#[inline]
pub const fn of_turn(turn: u32) -> (u32, u8) {
    (turn & PEER_ID_MAX, (turn >> 20) as u8)
}

/// Returns the numbers of all inbox queues of a peer, one for each class up to `class_max`.
pub fn turns_of(id: u32, class_max: u8) -> impl Iterator<Item = u32> {
    (0..=class_max).map(move |class| turn(id, class))
}

/// Composes match bits with class 0. Uses the low 20 bits of `id` (see [`Fields::id`]).
#[inline]
pub const fn bits(kind: MessageType, id: u32, tag: u32) -> MatchBits {
    MatchBits((kind as u64) << 60 | ((id & PEER_ID_MAX) as u64) << 32 | tag as u64)
}

/// Returns the match bits of a CONN_ACK that rejects.
pub const fn refusal_bits(reason: Refusal) -> MatchBits {
    bits(
        MessageType::ConnAck,
        reason as i32 as u32,
        VERSION | REFUSED,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_c_methods() {
        let refusals = [Refusal::Version, Refusal::Malformed, Refusal::NoRoom];
        assert_eq!(refusals.map(|it| it as i32), [-1, -2, -3]);
        assert_eq!(
            bits(MessageType::ConnReq, 7, VERSION).0,
            0xc000_0007_0000_0100
        );
        assert_eq!(
            bits(MessageType::ConnAck, 9, VERSION).0,
            0xa000_0009_0000_0100
        );
        assert_eq!(
            bits(MessageType::Unexpected, 0xf_ffff, 0xffff_ffff).0,
            0xd00f_ffff_ffff_ffff
        );
        assert_eq!(bits(MessageType::Expected, 1, 0).0, 0xe000_0001_0000_0000);
        assert_eq!(bits(MessageType::IconReq, 0, 0).0, 0xb << 60);
        assert_eq!(bits(MessageType::IconAck, 0, 0).0, 0x9 << 60);
    }

    #[test]
    fn a_class_never_decides_a_match_and_comes_back() {
        let plain = bits(MessageType::Unexpected, 5, 6);
        for class in [1, 0xff] {
            let set = with_class(plain, class);
            assert_eq!((set.0 ^ plain.0) & !(0xff << 52), 0);
            assert_eq!(MATCH.apply(set), plain);
            let fields = Fields::of(set);
            assert_eq!((fields.id, fields.tag, fields.class), (5, 6, class));
            assert_eq!(of_turn(fields.turn(u8::MAX)), (5, class));
            assert_eq!(of_turn(fields.turn(0)), (5, 0));
        }
        assert_eq!(with_class(plain, 0), plain);
        assert_eq!(Fields::of(plain).turn(u8::MAX), 5);
    }

    #[test]
    fn every_field_comes_back_and_ids_are_cut_to_20_bits() {
        for id in [0, 1, PEER_ID_MAX, PEER_ID_MAX + 1] {
            for tag in [0, 1, u32::MAX] {
                let fields = Fields::of(bits(MessageType::Unexpected, id, tag));
                assert_eq!(fields.kind, Some(MessageType::Unexpected));
                assert_eq!((fields.id, fields.tag), (id & PEER_ID_MAX, tag));
            }
        }
        for kind in (0..9).chain([0xf]) {
            assert_eq!(Fields::of(MatchBits(kind << 60)).kind, None);
        }
    }

    #[test]
    fn rejection_is_negative_or_a_wrong_version_to_old_peers() {
        for reason in [Refusal::Version, Refusal::Malformed, Refusal::NoRoom] {
            let fields = Fields::of(refusal_bits(reason));
            assert_eq!(fields.refusal(), Some(reason as i32));
            assert_ne!(fields.tag, VERSION);
            assert!((fields.tag as i32) < 0);
        }
        let accepted = Fields::of(bits(MessageType::ConnAck, PEER_ID_MAX, VERSION));
        assert_eq!(accepted.refusal(), None);
    }
}
