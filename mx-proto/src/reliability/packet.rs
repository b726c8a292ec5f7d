//! Datagrams of the reliability layer: the only place that parses them.
//!
//! ```text
//!  0             2      3      4                           8
//!  +-------------+------+------+---------------------------+
//!  | magic "mR"  | vers | kind | CRC-32C of the header     |
//!  +-------------+------+------+---------------------------+
//!  | to: the receiver's session cookie, 0 if not known     |
//!  +-------------------------------------------------------+
//!  | from: the sender's session cookie                     |
//!  +---------------------------+---------------------------+
//!  | seq: of this segment      | ack: next one expected    |
//!  +---------------------------+---------------------------+
//!  | sack: bit i: ack + 1 + i has arrived                  |
//!  +---------------------------+-------------+-------------+
//!  | window: bytes beyond ack  | flags       | payload len |
//!  +---------------------------+-------------+-------------+
//!  | fragment: its number      | offset: in the fragment   |
//!  +---------------------------+---------------------------+
//!  | whole: fragment's length  | CRC-32C of the payload    |
//!  +---------------------------+---------------------------+
//!  | payload ...                                              64 bytes, little endian
//! ```
//!
//! | kind    | seq                        | payload                                      |
//! |---------|----------------------------|----------------------------------------------|
//! | Hello   | first number of the caller | 65 bytes of padding, to be as long as a Welcome |
//! | Welcome | first number of the called | 65 bytes: length and name of the data channel |
//! | Data    | this segment               | `offset..` of packet header and body          |
//! | Ack     | number of the last Ping    | more words of `sack`, at most 16              |
//! | Ping    | its number                 | - ; asks for an Ack                           |
//! | Reset   | -                          | - ; no such session exists (any more)        |
//! | Probe   | -                          | zeros: does a datagram of this size pass?     |
//! | Probed  | size of the Probe          | -                                             |
//!
//! A Probe has a 64-bit value in `fragment` and `offset`. Probed repeats it, which proves that the Probe arrived at the
//! address to which it was sent.
//!
//! A session is identified by two random cookies, one drawn by each side. Every datagram except a Hello must carry
//! both, so datagrams of an earlier life or of a stranger are not accepted.
//!
//! The payload has its own checksum because that is computed once, while the header is written again for every
//! transmission. The checksum is left out where nothing can damage the payload ([`super::DatagramPort::is_safe`]).

use super::checksum::crc32c;
use super::seq::Seq;
use super::service::DATA_NAME_MAX;

/// Length in bytes of the header before the payload.
pub(super) const DATAGRAM_HEADER: usize = 64;

/// Length in bytes of the payload in Hello and Welcome.
pub(super) const GREETING: usize = 1 + DATA_NAME_MAX;

/// Number of words of `sack` in an acknowledgement: one in the header, the others in the payload.
pub(super) const SACK_WORDS: usize = 17;

pub(super) const VERSION: u8 = 3;
const MAGIC: [u8; 2] = *b"mR";
const CHECKSUM_AT: usize = 4;

/// Marks the last segment: a fragment of its own without a byte.
pub(super) const FIN: u16 = 1;
/// Requests an acknowledgement at once.
pub(super) const ASK: u16 = 2;
/// Says that the payload's checksum is present.
pub(super) const SUMMED: u16 = 4;
/// The caller has not been acknowledged yet: `sack` is its first number. In a Reset to such a caller: the session was
/// never known here, and the caller may send Hello again.
pub(super) const OPENING: u16 = 8;
const FLAGS: [(u16, &str); 4] = [
    (FIN, " fin"),
    (ASK, " ask"),
    (SUMMED, " summed"),
    (OPENING, " opening"),
];
const ALL_FLAGS: u16 = FIN | ASK | SUMMED | OPENING;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum DatagramKind {
    Hello = 1,
    Welcome = 2,
    Data = 3,
    Ack = 4,
    Ping = 5,
    Reset = 6,
    Probe = 7,
    Probed = 8,
}

/// Datagram of another version. A Hello, and the Reset that refuses it, have these fields in every version, and a
/// header of 64 bytes with its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnsupportedVersion {
    pub(super) version: u8,
    pub(super) is_hello: bool,
    pub(super) is_reset: bool,
    pub(super) to: u64,
    pub(super) from: u64,
}

impl UnsupportedVersion {
    /// Parses a datagram. `None`: it is not one of another version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<DATAGRAM_HEADER>()?;
        let is_foreign = head[..2] == MAGIC && head[2] != VERSION && is_summed(head);
        is_foreign.then(|| Self {
            version: head[2],
            is_hello: head[3] == DatagramKind::Hello as u8,
            is_reset: head[3] == DatagramKind::Reset as u8,
            to: u64_at(head, 8),
            from: u64_at(head, 16),
        })
    }
}

/// Returns whether the header's checksum is right.
#[inline]
fn is_summed(head: &[u8; DATAGRAM_HEADER]) -> bool {
    let mut unsummed = *head;
    unsummed[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    crc32c(&unsummed) == u32_at(head, CHECKSUM_AT)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: DatagramKind,
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) sack: u64,
    pub(super) window: u32,
    pub(super) flags: u16,
    pub(super) payload: u16,
    pub(super) fragment: u32,
    pub(super) offset: u32,
    pub(super) whole: u32,
    pub(super) sum: u32,
}

/// Reason why a datagram is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadDatagram {
    /// The bytes are no datagram of this protocol version.
    Malformed,
    /// The bytes may have been a valid datagram once.
    Damaged,
}

impl Header {
    pub(super) fn new(kind: DatagramKind, to: u64, from: u64) -> Self {
        Self {
            kind,
            to,
            from,
            seq: Seq(0),
            ack: Seq(0),
            sack: 0,
            window: 0,
            flags: 0,
            payload: 0,
            fragment: 0,
            offset: 0,
            whole: 0,
            sum: 0,
        }
    }

    /// Writes the header to the front of `into`, which has room for it.
    #[inline]
    pub(super) fn write(&self, into: &mut [u8]) {
        let Some(head) = into.first_chunk_mut::<DATAGRAM_HEADER>() else {
            debug_assert!(false, "no room for a header");
            return;
        };
        head[..2].copy_from_slice(&MAGIC);
        head[2..8].copy_from_slice(&[VERSION, self.kind as u8, 0, 0, 0, 0]);
        head[8..16].copy_from_slice(&self.to.to_le_bytes());
        head[16..24].copy_from_slice(&self.from.to_le_bytes());
        head[24..28].copy_from_slice(&self.seq.0.to_le_bytes());
        head[28..32].copy_from_slice(&self.ack.0.to_le_bytes());
        head[32..40].copy_from_slice(&self.sack.to_le_bytes());
        head[40..44].copy_from_slice(&self.window.to_le_bytes());
        head[44..46].copy_from_slice(&self.flags.to_le_bytes());
        head[46..48].copy_from_slice(&self.payload.to_le_bytes());
        head[48..52].copy_from_slice(&self.fragment.to_le_bytes());
        head[52..56].copy_from_slice(&self.offset.to_le_bytes());
        head[56..60].copy_from_slice(&self.whole.to_le_bytes());
        head[60..64].copy_from_slice(&self.sum.to_le_bytes());
        let sum = crc32c(head);
        head[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Replaces the contents of `into` with the whole datagram. Adds the checksum of a payload.
    pub(super) fn emit(mut self, payload: &[u8], into: &mut Vec<u8>) {
        self.payload = payload.len() as u16;
        if !payload.is_empty() {
            self.flags |= SUMMED;
            self.sum = crc32c(payload);
        }
        into.clear();
        into.resize(DATAGRAM_HEADER, 0);
        self.write(into);
        into.extend_from_slice(payload);
    }

    /// Parses and checks a datagram. Returns its header and payload.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), BadDatagram> {
        let Some((head, payload)) = bytes.split_first_chunk::<DATAGRAM_HEADER>() else {
            return Err(BadDatagram::Malformed);
        };
        if head[..2] != MAGIC || head[2] != VERSION {
            return Err(BadDatagram::Malformed);
        }
        if !is_summed(head) {
            return Err(BadDatagram::Damaged);
        }
        let header = Self::read(head).ok_or(BadDatagram::Malformed)?;
        if usize::from(header.payload) != payload.len() {
            return Err(BadDatagram::Malformed);
        }
        let fits = match header.kind {
            DatagramKind::Hello | DatagramKind::Welcome => payload.len() == GREETING,
            DatagramKind::Data => (header.flags & FIN != 0) == payload.is_empty(),
            DatagramKind::Ack => payload.len() % 8 == 0 && payload.len() <= 8 * (SACK_WORDS - 1),
            DatagramKind::Probe => true,
            DatagramKind::Ping | DatagramKind::Reset | DatagramKind::Probed => payload.is_empty(),
        };
        if !fits {
            return Err(BadDatagram::Malformed);
        }
        if header.flags & SUMMED != 0 && crc32c(payload) != header.sum {
            return Err(BadDatagram::Damaged);
        }
        Ok((header, payload))
    }

    fn read(head: &[u8; DATAGRAM_HEADER]) -> Option<Self> {
        let kind = match head[3] {
            1 => DatagramKind::Hello,
            2 => DatagramKind::Welcome,
            3 => DatagramKind::Data,
            4 => DatagramKind::Ack,
            5 => DatagramKind::Ping,
            6 => DatagramKind::Reset,
            7 => DatagramKind::Probe,
            8 => DatagramKind::Probed,
            _ => return None,
        };
        let header = Self {
            kind,
            to: u64_at(head, 8),
            from: u64_at(head, 16),
            seq: Seq(u32_at(head, 24)),
            ack: Seq(u32_at(head, 28)),
            sack: u64_at(head, 32),
            window: u32_at(head, 40),
            flags: u16_at(head, 44),
            payload: u16_at(head, 46),
            fragment: u32_at(head, 48),
            offset: u32_at(head, 52),
            whole: u32_at(head, 56),
            sum: u32_at(head, 60),
        };
        // 0 means "not known"; only a Hello may use it, and only for the receiver.
        let named = header.from != 0 && (header.to != 0) == (kind != DatagramKind::Hello);
        let flags = match kind {
            DatagramKind::Data => ALL_FLAGS,
            DatagramKind::Ack | DatagramKind::Ping | DatagramKind::Probe | DatagramKind::Probed => {
                SUMMED | OPENING
            }
            DatagramKind::Hello | DatagramKind::Welcome => SUMMED,
            DatagramKind::Reset => SUMMED | OPENING,
        };
        (named && header.flags & !flags == 0).then_some(header)
    }

    /// Returns the value of a Probe that its Probed repeats.
    pub(super) fn proof(&self) -> u64 {
        u64::from(self.fragment) | u64::from(self.offset) << 32
    }

    pub(super) fn set_proof(&mut self, proof: u64) {
        self.fragment = proof as u32;
        self.offset = (proof >> 32) as u32;
    }

    /// Returns the words of `sack`: the header's own and those in an acknowledgement's payload, and their number.
    pub(super) fn sack_words(&self, payload: &[u8]) -> ([u64; SACK_WORDS], usize) {
        let mut words = [0; SACK_WORDS];
        if self.flags & OPENING != 0 {
            return (words, 0);
        }
        words[0] = self.sack;
        let mut used = 1;
        if self.kind == DatagramKind::Ack {
            for (word, bytes) in words[1..].iter_mut().zip(payload.chunks_exact(8)) {
                *word = bytes.try_into().map_or(0, u64::from_le_bytes);
                used += 1;
            }
        }
        (words, used)
    }
}

/// Returns the payload of a Welcome, with the name of the data channel, or of a Hello, with an empty name.
pub(super) fn greeting(name: &[u8]) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    let len = name.len().min(DATA_NAME_MAX);
    bytes[0] = len as u8;
    bytes[1..=len].copy_from_slice(&name[..len]);
    bytes
}

/// Returns the name in a greeting.
pub(super) fn name_of(greeting: &[u8]) -> Option<&[u8]> {
    let (len, rest) = greeting.split_first()?;
    rest.get(..usize::from(*len))
}

/// Returns the sender's cookie from the beginning of a datagram; `None` if the bytes are no datagram of ours.
pub(super) fn sender_of(beginning: &[u8; 24]) -> Option<u64> {
    let is_ours = beginning[..2] == MAGIC && beginning[2] == VERSION;
    let from = beginning.last_chunk().map(|from| u64::from_le_bytes(*from));
    from.filter(|_| is_ours)
}

/// Returns a one-line description of a datagram for logs, from its header alone; checksums are not checked. Accepts any
/// bytes.
pub fn describe(bytes: &[u8]) -> String {
    let head = bytes
        .first_chunk::<DATAGRAM_HEADER>()
        .and_then(Header::read);
    let Some(header) = head else {
        let some = &bytes[..bytes.len().min(DATAGRAM_HEADER)];
        return format!("no datagram of ours: {some:02x?}");
    };
    let set = FLAGS.iter().filter(|(bit, _)| header.flags & bit != 0);
    let flags: String = set.map(|(_, name)| *name).collect();
    format!(
        "{:?} {:04x}->{:04x} seq {} ack {} sack {:x} window {} fragment {} {}+{} of {}{flags}",
        header.kind,
        header.from & 0xffff,
        header.to & 0xffff,
        header.seq.0,
        header.ack.0,
        header.sack,
        header.window,
        header.fragment,
        header.offset,
        header.payload,
        header.whole,
    )
}

/// Reads a number. Callers pass an `at` that lies within the header.
#[inline]
fn u16_at(bytes: &[u8; DATAGRAM_HEADER], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8; DATAGRAM_HEADER], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8; DATAGRAM_HEADER], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [DatagramKind; 8] = [
        DatagramKind::Hello,
        DatagramKind::Welcome,
        DatagramKind::Data,
        DatagramKind::Ack,
        DatagramKind::Ping,
        DatagramKind::Reset,
        DatagramKind::Probe,
        DatagramKind::Probed,
    ];

    fn header(kind: DatagramKind) -> Header {
        Header {
            seq: Seq(u32::MAX),
            ack: Seq(5),
            sack: 1 << 63 | 1,
            window: 1 << 20,
            fragment: 7,
            offset: 1400,
            whole: 4000,
            ..Header::new(
                kind,
                u64::from(kind != DatagramKind::Hello) * 0x1122_3344_5566_7788,
                0x99aa_bbcc_ddee_ff01,
            )
        }
    }

    fn payload(kind: DatagramKind) -> Vec<u8> {
        match kind {
            DatagramKind::Hello => greeting(b"").to_vec(),
            DatagramKind::Welcome => greeting(b"\x12\x34").to_vec(),
            DatagramKind::Data => b"payload".to_vec(),
            DatagramKind::Ack => vec![0x55; 24],
            DatagramKind::Probe => vec![0; 1000],
            DatagramKind::Ping | DatagramKind::Reset | DatagramKind::Probed => Vec::new(),
        }
    }

    fn emitted(header: Header, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.emit(payload, &mut bytes);
        bytes
    }

    #[test]
    fn every_kind_survives_the_wire() {
        for kind in KINDS {
            let payload = payload(kind);
            let bytes = emitted(header(kind), &payload);
            let (parsed, rest) = Header::parse(&bytes).expect("well formed");
            let expected = Header {
                flags: parsed.flags,
                sum: parsed.sum,
                payload: payload.len() as u16,
                ..header(kind)
            };
            assert_eq!((parsed, rest), (expected, &payload[..]));
            assert!(describe(&bytes).contains(&format!("{kind:?}")));
        }
    }

    #[test]
    fn a_description_names_the_flags_that_are_set() {
        let mut header = header(DatagramKind::Data);
        header.flags = FIN | ASK;
        let text = describe(&emitted(header, b""));
        assert!(text.ends_with(" of 4000 fin ask"), "{text}");
    }

    #[test]
    fn every_turned_bit_is_noticed() {
        let mut bytes = emitted(header(DatagramKind::Data), b"some payload");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn other_protocol_or_version_is_malformed_despite_checksum() {
        for at in 0..3 {
            let mut bytes = emitted(header(DatagramKind::Data), b"some payload");
            bytes[at] ^= 1;
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
            let sum = crc32c(&bytes[..DATAGRAM_HEADER]);
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(
                Header::parse(&bytes),
                Err(BadDatagram::Malformed),
                "byte {at}"
            );
        }
    }

    #[test]
    fn truncated_datagrams_and_stray_payloads_are_rejected() {
        for kind in KINDS {
            let bytes = emitted(header(kind), &payload(kind));
            for len in 0..bytes.len() {
                assert!(Header::parse(&bytes[..len]).is_err(), "{kind:?} {len}");
            }
        }
        for kind in [
            DatagramKind::Ping,
            DatagramKind::Reset,
            DatagramKind::Probed,
            DatagramKind::Ack,
        ] {
            let bytes = emitted(header(kind), b"x");
            assert_eq!(Header::parse(&bytes), Err(BadDatagram::Malformed));
        }
        let empty = emitted(header(DatagramKind::Data), b"");
        assert_eq!(Header::parse(&empty), Err(BadDatagram::Malformed));
    }

    #[test]
    fn ack_has_whole_words_and_not_too_many() {
        let most = 8 * (SACK_WORDS - 1);
        for (len, fits) in [(0, true), (4, false), (most, true), (most + 8, false)] {
            let bytes = emitted(header(DatagramKind::Ack), &vec![0; len]);
            assert_eq!(Header::parse(&bytes).is_ok(), fits, "{len}");
        }
    }

    #[test]
    fn unknown_or_misplaced_flags_and_no_cookies_are_rejected() {
        let data = header(DatagramKind::Data);
        let bad = [
            Header { flags: 16, ..data },
            Header { from: 0, ..data },
            Header { to: 0, ..data },
            Header {
                flags: FIN,
                ..header(DatagramKind::Ack)
            },
            Header {
                to: 1,
                ..header(DatagramKind::Hello)
            },
        ];
        for header in bad {
            let bytes = emitted(header, &payload(header.kind));
            let parsed = Header::parse(&bytes);
            assert_eq!(parsed, Err(BadDatagram::Malformed), "{header:?}");
        }
    }

    #[test]
    fn greeting_returns_its_name_unless_the_length_is_wrong() {
        assert_eq!(name_of(&greeting(b"here")), Some(&b"here"[..]));
        assert_eq!(name_of(&greeting(b"")), Some(&b""[..]));
        let mut lie = greeting(b"here");
        lie[0] = 65;
        assert_eq!(name_of(&lie), None);
    }

    #[test]
    fn further_sack_words_follow_that_of_the_header() {
        let (words, used) = header(DatagramKind::Ack).sack_words(&[0x55; 24]);
        assert_eq!(used, 4);
        assert_eq!(words[0], 1 << 63 | 1);
        assert_eq!(words[1..4], [0x5555_5555_5555_5555; 3]);
        assert_eq!(header(DatagramKind::Data).sack_words(&[0x55; 24]).1, 1);
    }
}
