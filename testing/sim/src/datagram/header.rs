//! Datagrams of the reliability layer, built and read field by field.
//!
//! ```text
//!   build(DATA, &[(TO, theirs), (FROM, ours), (SEQ, 7)], payload)      magic, version, length and sums are right
//!   altered(&seen, &[(SEQ, 8)])                                        another one with other fields, sealed again
//!   SEQ.of(&seen)                                                      7
//! ```
//!
//! Follows the layout of docs/dgram.md and uses nothing of the code under test, which could be wrong in both
//! directions alike.

/// Bytes of a datagram's header.
pub const HEADER: usize = 64;
/// Bytes of payload in a Hello and a Welcome.
pub const GREETING: usize = 65;

/// Kind of a caller's first datagram.
pub const HELLO: u8 = 1;
/// Kind of the answer to a Hello.
pub const WELCOME: u8 = 2;
/// Kind of a segment.
pub const DATA: u8 = 3;
/// Kind of an acknowledgement by itself.
pub const ACK: u8 = 4;
/// Kind of a request for an acknowledgement.
pub const PING: u8 = 5;
/// Kind of the end of a session.
pub const RESET: u8 = 6;

/// Flag: the sender asks for an acknowledgement at once.
pub const ASK: u64 = 2;
/// Flag: the payload has a checksum.
pub const SUMMED: u64 = 4;
/// Flag: the caller has not heard from the session yet.
pub const OPENING: u64 = 8;

/// A little-endian number in a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Offset of its first byte.
    pub at: usize,
    /// Length in bytes, at most 8.
    pub len: usize,
}

const fn field(at: usize, len: usize) -> Field {
    Field { at, len }
}

/// Magic and version.
const PROTOCOL: Field = field(0, 3);
/// Kind of the datagram.
pub const KIND: Field = field(3, 1);
/// Checksum of the header.
const HEADER_SUM: Field = field(4, 4);
/// Session cookie of the receiver.
pub const TO: Field = field(8, 8);
/// Session cookie of the sender.
pub const FROM: Field = field(16, 8);
/// Number of the segment, or stamp of a Ping.
pub const SEQ: Field = field(24, 4);
/// Number of the next segment wanted.
pub const ACKED: Field = field(28, 4);
/// Bitmap of early segments; in an opening datagram the caller's first number.
pub const SACK: Field = field(32, 8);
/// Receive window in bytes.
pub const WINDOW: Field = field(40, 4);
/// Flags.
pub const FLAGS: Field = field(44, 2);
/// Length of the payload.
pub const PAYLOAD: Field = field(46, 2);
/// Number of the packet.
pub const FRAGMENT: Field = field(48, 4);
/// Offset of the payload in the packet.
pub const OFFSET: Field = field(52, 4);
/// Length of the packet.
pub const WHOLE: Field = field(56, 4);
/// Checksum of the payload.
const PAYLOAD_SUM: Field = field(60, 4);

impl Field {
    /// Reads the field, which lies within `bytes`.
    pub fn of(self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        word[..self.len].copy_from_slice(&bytes[self.at..self.at + self.len]);
        u64::from_le_bytes(word)
    }

    /// Writes the low bytes of `value`, and no checksum.
    pub fn put(self, bytes: &mut [u8], value: u64) {
        bytes[self.at..self.at + self.len].copy_from_slice(&value.to_le_bytes()[..self.len]);
    }
}

/// Returns true for a datagram of this kind.
pub fn is_kind(bytes: &[u8], kind: u8) -> bool {
    bytes[KIND.at] == kind
}

/// Builds a datagram. Fields that are not listed are 0, magic, version, payload length and checksums are right.
pub fn build(kind: u8, fields: &[(Field, u64)], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend_from_slice(payload);
    claim(&mut bytes);
    KIND.put(&mut bytes, kind.into());
    for (field, value) in fields {
        field.put(&mut bytes, *value);
    }
    seal(&mut bytes);
    bytes
}

/// Makes magic, version and payload length right.
pub fn claim(bytes: &mut [u8]) {
    PROTOCOL.put(bytes, u64::from_le_bytes(*b"mR\x03\0\0\0\0\0"));
    PAYLOAD.put(bytes, (bytes.len() - HEADER) as u64);
}

/// Copies a datagram with other values in some fields, and right checksums.
pub fn altered(bytes: &[u8], fields: &[(Field, u64)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (field, value) in fields {
        field.put(&mut bytes, *value);
    }
    seal(&mut bytes);
    bytes
}

/// Makes both checksums right, that of the payload only if the flags name it. Bytes shorter than a header stay
/// as they are.
pub fn seal(bytes: &mut [u8]) {
    let Some((header, payload)) = bytes.split_first_chunk_mut::<HEADER>() else {
        return;
    };
    if FLAGS.of(header) & SUMMED != 0 {
        PAYLOAD_SUM.put(header, crc32c(payload).into());
    }
    HEADER_SUM.put(header, 0);
    let sum = crc32c(&*header);
    HEADER_SUM.put(header, sum.into());
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 1 ^ (0x82f6_3b78 * (crc & 1));
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, byte)
}
