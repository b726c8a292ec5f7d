//! Frame that reports progress of an RMA read to the side that is read.
//!
//! ```text
//!   0 address u64 | 8 key u64      little endian: the sender is still reading this memory
//! ```
//!
//! The body of a frame of kind `Reading` (see `frame`). A longer body, of a later version, is accepted; the excess is
//! ignored.
//!
//! Owns: the layout.

use mx_proto::port::RemoteKey;

/// Progress report: the peer is reading the memory registered with this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reading(pub(super) RemoteKey);

/// Bytes of a report.
const LEN: usize = 16;

impl Reading {
    /// Encodes the report.
    pub(super) fn emit(self) -> [u8; LEN] {
        let Self(RemoteKey { address, key }) = self;
        let bytes = u128::from(key) << u64::BITS | u128::from(address);
        bytes.to_le_bytes()
    }

    /// Parses a report; `None` if it is too short.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = u128::from_le_bytes(*bytes.first_chunk::<LEN>()?);
        Some(Self(RemoteKey {
            address: bytes as u64,
            key: (bytes >> u64::BITS) as u64,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_emitted_or_not_at_all() {
        let (address, key) = (1 << 47 | 5, u64::MAX - 12);
        let reading = Reading(RemoteKey { address, key });
        let mut bytes = reading.emit().to_vec();
        assert_eq!(bytes[..8], address.to_le_bytes());
        for len in 0..bytes.len() {
            assert_eq!(Reading::parse(&bytes[..len]), None, "cut at {len}");
        }
        bytes.push(0xff);
        assert_eq!(Reading::parse(&bytes), Some(reading));
    }
}
