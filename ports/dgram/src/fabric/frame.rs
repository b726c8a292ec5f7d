//! Header before each datagram: the sender's name.
//!
//! ```text
//!   0      2         3          4             8                 8 + n
//!   | "mF" | version | n: bytes | FNV-1a of   | sender's name   | datagram
//!   |      |    1    | of name  | n and name  | (no zeroes at   |
//!   |      |         |          | u32 LE      |  its end)       |
//! ```
//!
//! libfabric can identify a sender only by an address it already knows: for one that is not in the address vector it
//! reports "not available" (`udp`, `verbs`, `efa`), or inserts it unasked and without bound (`usnic`). Every caller is
//! unknown at first, and so is a peer evicted from the vector. So the name travels in the datagram, and `FI_SOURCE` is
//! not requested. Names can be forged, as on any network; the cookies of the reliability layer keep forgers out.
//!
//! Fabrics without a checksum need the one here: a damaged name would attribute the datagram to another sender.
//!
//! Out of scope: the datagram that follows.

use super::name::{FabricAddress, NAME_MAX};

/// Longest header in bytes.
pub(super) const HEADER_MAX: usize = FIXED + NAME_MAX;

const FIXED: usize = 8;
const MAGIC: [u8; 2] = *b"mF";
const VERSION: u8 = 1;

/// Builds the header of an endpoint with this name.
pub(super) fn header(name: &FabricAddress) -> Vec<u8> {
    let name = name.short();
    // At most `NAME_MAX`.
    let len = name.len() as u8;
    let mut header = Vec::with_capacity(FIXED + name.len());
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&[VERSION, len]);
    header.extend_from_slice(&sum(len, name).to_le_bytes());
    header.extend_from_slice(name);
    header
}

/// Upper bound of the header's length in bytes, for names as long as this one.
pub(super) fn header_len(name: &FabricAddress) -> usize {
    FIXED + name.bytes().len()
}

/// Result of parsing a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame<'a> {
    /// A datagram: the sender's name without trailing zeros, unchecked, and the payload.
    Datagram(&'a [u8], &'a [u8]),
    /// The bytes are not a frame of this version.
    Foreign,
    /// The frame was damaged in transit.
    Damaged,
}

impl<'a> Frame<'a> {
    /// Parses a received frame.
    pub(super) fn parse(bytes: &'a [u8]) -> Self {
        let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else {
            // Providers with prefixes also deliver empty packets.
            return match bytes {
                [] => Self::Damaged,
                _ => Self::Foreign,
            };
        };
        if fixed[..2] != MAGIC || fixed[2] != VERSION {
            return Self::Foreign;
        }
        let len = fixed[3];
        let Some((name, datagram)) = rest.split_at_checked(len.into()) else {
            return Self::Damaged;
        };
        if fixed[4..] != sum(len, name).to_le_bytes() || datagram.is_empty() {
            return Self::Damaged;
        }
        Self::Datagram(name, datagram)
    }
}

/// Computes FNV-1a: good enough for a few bytes, and as fast as reading them.
fn sum(len: u8, name: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    name.iter().fold(step(0x811c_9dc5, &len), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Vec<u8> {
        let name = FabricAddress::new(&[2, 0, 3, 4, 0, 0]).unwrap();
        let mut frame = header(&name);
        assert!(frame.len() <= header_len(&name));
        frame.extend_from_slice(b"hello");
        frame
    }

    #[test]
    fn a_frame_tells_its_sender() {
        let frame = frame();
        let read = Frame::parse(&frame);
        assert_eq!(read, Frame::Datagram(&[2, 0, 3, 4], b"hello"));
    }

    #[test]
    fn every_damaged_bit_of_the_header_shows() {
        let whole = frame();
        for bit in 0..12 * 8 {
            let mut frame = whole.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            let read = Frame::parse(&frame);
            assert!(!matches!(read, Frame::Datagram(..)), "bit {bit}");
        }
    }

    #[test]
    fn what_is_cut_short_is_no_datagram() {
        let whole = frame();
        for len in 0..=12 {
            let read = Frame::parse(&whole[..len]);
            assert!(!matches!(read, Frame::Datagram(..)), "{len} bytes");
        }
        assert_eq!(Frame::parse(&[0xff; 64]), Frame::Foreign);
    }
}
