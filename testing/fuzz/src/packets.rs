//! Packets between the ends, marked so that each differs from all others.
//!
//! ```text
//!   0 mark | 1 wants a place | 4 body length | 8 flow | 16 serial | ... 32 body: a pattern
//! ```

use mx_proto::port::{BODY_LEN_AT, HEADER_LEN, HeaderBytes};

const MARK: u8 = 0x11;

/// Contents of such a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    /// Sender and session. Derived from the whole input, so that no input can contain it.
    pub(crate) flow: u64,
    /// Position in the flow, from 0 on.
    pub(crate) serial: u64,
    /// Length of the body.
    pub(crate) len: usize,
    pub(crate) wants_place: bool,
}

impl Packet {
    pub(crate) fn header(&self) -> HeaderBytes {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = MARK;
        bytes[1] = self.wants_place.into();
        put(&mut bytes, BODY_LEN_AT, self.len as u64, 4);
        put(&mut bytes, 8, self.flow, 8);
        put(&mut bytes, 16, self.serial, 8);
        bytes
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        (0..self.len).map(|at| self.byte(at)).collect()
    }

    fn byte(&self, at: usize) -> u8 {
        (self.serial as usize * 31 + at * 7 + at / 251) as u8
    }

    /// Parses a header, if it is one of these.
    pub(crate) fn of(header: &HeaderBytes) -> Option<Self> {
        let packet = Self {
            flow: u64_at(header, 8),
            serial: u64_at(header, 16),
            len: body_len(header),
            wants_place: header[1] == 1,
        };
        (packet.header() == *header).then_some(packet)
    }

    pub(crate) fn has_body(&self, body: &[u8]) -> bool {
        let fits = |(at, byte): (usize, &u8)| *byte == self.byte(at);
        body.len() == self.len && body.iter().enumerate().all(fits)
    }
}

/// Returns the length of the body, from any packet's header.
pub(crate) fn body_len(header: &HeaderBytes) -> usize {
    let at = BODY_LEN_AT;
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u64_at(bytes, at.min(56)).wrapping_shr(8 * (at - at.min(56)) as u32) as u32
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: u64, len: usize) {
    bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
}
