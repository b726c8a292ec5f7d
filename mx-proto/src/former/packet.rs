//! Datagrams of the reliability layer: the only place that says "malformed" here.
//!
//! ```text
//!  0             2      3      4                           8
//!  +-------------+------+------+---------------------------+
//!  | magic "mR"  | vers | kind | CRC-32C of everything     |
//!  +-------------+------+------+---------------------------+
//!  | to: the receiver's session cookie, 0 if not known     |
//!  +-------------------------------------------------------+
//!  | from: the sender's session cookie                     |
//!  +---------------------------+---------------------------+
//!  | seq: of this fragment     | ack: next one wanted      |
//!  +---------------------------+---------------------------+
//!  | sack: bit i: ack + 1 + i is here                      |
//!  +-------------+-------------+---------------------------+
//!  | room        | flags       | payload ...               44 bytes, little endian
//! ```
//!
//! | kind    | seq                        | payload                                      |
//! |---------|----------------------------|----------------------------------------------|
//! | Hello   | first number of the caller | -                                            |
//! | Welcome | first number of the called | -                                            |
//! | Data    | this fragment              | packet header (FIRST), bytes of its body     |
//! | Ack     | -                          | -                                            |
//! | Ping    | -                          | - ; asks for an Ack                          |
//! | Reset   | -                          | - ; there is no such session (any more)      |
//!
//! A session is named by two random cookies, one drawn by each side. Everything but a Hello must
//! carry both, so that nothing of an earlier life is taken for a part of this one.

use super::checksum;
use super::seq::Seq;

/// Bytes in front of the payload.
pub(super) const DATAGRAM_HEADER: usize = 44;

/// Version of everything in this file.
const VERSION: u8 = 1;
const MAGIC: [u8; 2] = *b"mR";
const CHECKSUM_AT: usize = 4;

/// The fragment begins a packet: its payload begins with the packet's header.
pub(super) const FIRST: u16 = 1;
/// The fragment ends a packet.
pub(super) const LAST: u16 = 2;
/// Nothing follows this fragment; it carries nothing itself.
pub(super) const FIN: u16 = 4;
/// The sender cannot go on without an acknowledgement.
pub(super) const ASK: u16 = 8;
const ALL_FLAGS: u16 = FIRST | LAST | FIN | ASK;

/// What a datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 1,
    Welcome = 2,
    Data = 3,
    Ack = 4,
    Ping = 5,
    Reset = 6,
}

/// A header, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) sack: u64,
    pub(super) room: u16,
    pub(super) flags: u16,
}

/// Why bytes are no datagram of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadDatagram {
    /// They never were.
    Malformed,
    /// They may have been once.
    Damaged,
}

impl Header {
    /// A header without numbers.
    pub(super) fn new(kind: Kind, to: u64, from: u64) -> Self {
        Self {
            kind,
            to,
            from,
            seq: Seq(0),
            ack: Seq(0),
            sack: 0,
            room: 0,
            flags: 0,
        }
    }

    /// Writes the whole datagram into `into`, which is emptied before.
    pub(super) fn emit(&self, payload: &[u8], into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&MAGIC);
        into.extend_from_slice(&[VERSION, self.kind as u8, 0, 0, 0, 0]);
        into.extend_from_slice(&self.to.to_le_bytes());
        into.extend_from_slice(&self.from.to_le_bytes());
        into.extend_from_slice(&self.seq.0.to_le_bytes());
        into.extend_from_slice(&self.ack.0.to_le_bytes());
        into.extend_from_slice(&self.sack.to_le_bytes());
        into.extend_from_slice(&self.room.to_le_bytes());
        into.extend_from_slice(&self.flags.to_le_bytes());
        debug_assert_eq!(into.len(), DATAGRAM_HEADER);
        into.extend_from_slice(payload);
        let sum = checksum::finish(checksum::update(checksum::START, into));
        into[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Takes a datagram apart.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), BadDatagram> {
        let Some((head, payload)) = bytes.split_first_chunk::<DATAGRAM_HEADER>() else {
            return Err(BadDatagram::Malformed);
        };
        if head[..2] != MAGIC || head[2] != VERSION {
            return Err(BadDatagram::Malformed);
        }
        let mut state = checksum::update(checksum::START, &head[..CHECKSUM_AT]);
        state = checksum::update(state, &[0; 4]);
        state = checksum::update(state, &head[CHECKSUM_AT + 4..]);
        state = checksum::update(state, payload);
        if checksum::finish(state) != u32_at(head, CHECKSUM_AT) {
            return Err(BadDatagram::Damaged);
        }
        let header = Self::read(head).ok_or(BadDatagram::Malformed)?;
        let fits = match header.kind {
            Kind::Data => header.flags & FIN == 0 || payload.is_empty(),
            _ => payload.is_empty(),
        };
        if fits {
            Ok((header, payload))
        } else {
            Err(BadDatagram::Malformed)
        }
    }

    fn read(head: &[u8; DATAGRAM_HEADER]) -> Option<Self> {
        let kind = match head[3] {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Data,
            4 => Kind::Ack,
            5 => Kind::Ping,
            6 => Kind::Reset,
            _ => return None,
        };
        let header = Self {
            kind,
            to: u64_at(head, 8),
            from: u64_at(head, 16),
            seq: Seq(u32_at(head, 24)),
            ack: Seq(u32_at(head, 28)),
            sack: u64_at(head, 32),
            room: u16::from_le_bytes([head[40], head[41]]),
            flags: u16::from_le_bytes([head[42], head[43]]),
        };
        // 0 means "not known", which only a Hello may say, and only of the receiver.
        let named = header.from != 0 && (header.to != 0) == (kind != Kind::Hello);
        (named && header.flags & !ALL_FLAGS == 0).then_some(header)
    }
}

/// A datagram in words, for logs. Wants only its first bytes and does not check the checksum.
pub fn describe(bytes: &[u8]) -> String {
    let head = bytes
        .first_chunk::<DATAGRAM_HEADER>()
        .and_then(Header::read);
    let Some(header) = head else {
        return format!("no datagram of ours: {bytes:02x?}");
    };
    let mut flags = String::new();
    for (bit, name) in [
        (FIRST, " first"),
        (LAST, " last"),
        (FIN, " fin"),
        (ASK, " ask"),
    ] {
        if header.flags & bit != 0 {
            flags.push_str(name);
        }
    }
    format!(
        "{:?} {:04x}->{:04x} seq {} ack {} sack {:x} room {}{flags}",
        header.kind,
        header.from & 0xffff,
        header.to & 0xffff,
        header.seq.0,
        header.ack.0,
        header.sack,
        header.room,
    )
}

/// Callers pass an `at` that lies within the header.
fn u32_at(bytes: &[u8; DATAGRAM_HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; DATAGRAM_HEADER], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind) -> Header {
        Header {
            kind,
            to: if kind == Kind::Hello {
                0
            } else {
                0x1122_3344_5566_7788
            },
            from: 0x99aa_bbcc_ddee_ff01,
            seq: Seq(u32::MAX),
            ack: Seq(5),
            sack: 1 << 63 | 1,
            room: 256,
            flags: if kind == Kind::Data { FIRST | LAST } else { 0 },
        }
    }

    const KINDS: [Kind; 6] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Data,
        Kind::Ack,
        Kind::Ping,
        Kind::Reset,
    ];

    #[test]
    fn every_kind_survives_the_wire() {
        let mut bytes = Vec::new();
        for kind in KINDS {
            let payload: &[u8] = if kind == Kind::Data { b"payload" } else { b"" };
            header(kind).emit(payload, &mut bytes);
            assert_eq!(Header::parse(&bytes), Ok((header(kind), payload)));
            assert!(describe(&bytes).contains(&format!("{kind:?}")));
        }
    }

    #[test]
    fn every_turned_bit_is_noticed() {
        let mut bytes = Vec::new();
        header(Kind::Data).emit(b"some payload", &mut bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn short_datagrams_and_payloads_where_none_belong_are_refused() {
        let mut bytes = Vec::new();
        header(Kind::Ack).emit(b"x", &mut bytes);
        assert_eq!(Header::parse(&bytes), Err(BadDatagram::Malformed));
        header(Kind::Ack).emit(b"", &mut bytes);
        for len in 0..bytes.len() {
            assert_eq!(Header::parse(&bytes[..len]), Err(BadDatagram::Malformed));
        }
    }

    #[test]
    fn unknown_kinds_flags_and_missing_cookies_are_refused() {
        let bad = [
            Header {
                flags: 16,
                ..header(Kind::Data)
            },
            Header {
                from: 0,
                ..header(Kind::Data)
            },
            Header {
                to: 0,
                ..header(Kind::Data)
            },
            Header {
                to: 1,
                ..header(Kind::Hello)
            },
        ];
        let mut bytes = Vec::new();
        for header in bad {
            header.emit(b"", &mut bytes);
            assert_eq!(
                Header::parse(&bytes),
                Err(BadDatagram::Malformed),
                "{header:?}"
            );
        }
    }
}
