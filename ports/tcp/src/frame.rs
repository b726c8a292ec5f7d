//! Framing of packets in the byte stream.
//!
//! ```text
//!   preamble (8)          packet                        packet
//!   93 M X T C P v v  |  header (32)     body        |  header (32)  body ...
//!                           `- body length at 4, little endian
//! ```
//!
//! Each side begins with the preamble, so that a connection of another program is recognised by its first bytes.

use mx_proto::port::{HEADER_LEN, HeaderBytes};

/// Version of the framing, the last two bytes of the preamble. A peer with another version is rejected.
pub(super) const VERSION: u16 = 1;

/// Bytes of a preamble.
pub(super) const PREAMBLE_LEN: usize = 8;

/// Bytes with which no text protocol begins.
const MAGIC: [u8; 6] = *b"\x93MXTCP";

/// Largest accepted body length in bytes: a data packet is never longer, so a larger length is an error.
pub(super) const BODY_MAX: usize = 1 << 30;

/// Result of checking a stream's first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Greeting {
    /// Correct so far, but not complete.
    Incomplete,
    /// A complete preamble of this version.
    Known,
    /// A preamble of another version.
    OtherVersion(u16),
    /// Another protocol.
    Nonsense,
}

/// Returns the preamble, the first bytes of each direction.
pub(super) fn preamble() -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks the first bytes of a stream, of any number.
pub(super) fn judge(bytes: &[u8]) -> Greeting {
    let n = bytes.len().min(MAGIC.len());
    if bytes[..n] != MAGIC[..n] {
        return Greeting::Nonsense;
    }
    match bytes.get(MAGIC.len()..PREAMBLE_LEN) {
        None => Greeting::Incomplete,
        Some(version) => match u16::from_le_bytes([version[0], version[1]]) {
            VERSION => Greeting::Known,
            other => Greeting::OtherVersion(other),
        },
    }
}

/// Returns the header at the beginning of `bytes`, if it is complete.
#[inline]
pub(super) fn header(bytes: &[u8]) -> Option<HeaderBytes> {
    bytes.first_chunk::<HEADER_LEN>().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_is_known_and_every_prefix_of_it_is_incomplete() {
        let bytes = preamble();
        assert_eq!(judge(&bytes), Greeting::Known);
        for n in 0..PREAMBLE_LEN {
            assert_eq!(judge(&bytes[..n]), Greeting::Incomplete, "{n} bytes");
        }
    }

    #[test]
    fn a_wrong_byte_is_nonsense_at_once() {
        assert_eq!(judge(b"G"), Greeting::Nonsense);
        assert_eq!(judge(b"\x93MXTCQ"), Greeting::Nonsense);
    }

    #[test]
    fn another_version_is_named() {
        assert_eq!(judge(b"\x93MXTCP\x02\x01"), Greeting::OtherVersion(0x102));
    }

    #[test]
    fn a_header_is_there_when_all_of_it_is() {
        let bytes = [7; HEADER_LEN];
        assert_eq!(header(&bytes[..31]), None);
        assert_eq!(header(&bytes), Some(bytes));
    }
}
