//! What two ports say to each other about remote memory.
//!
//! ```text
//!   0 kind   1..4 zero   4.. by kind, little endian
//!
//!   Lane     4 generation u32 | 8 with u32 | 12 address length u32 | 16 tag mask u64 | 24 address
//!              "this is my lane's address", with = 0: a proposal; else the answer to that one
//!   NoLane   4 generation u32                "no lane for your proposal of this generation"
//!   Gone     4 generation u32                "my lane of this generation is closed"
//!   Ask      4 lane u32 | 8 exposure u64 | 16 key u64 | 24 from u64 | 32 tag u64 | 40 len u32
//!              "send me that with this tag, through your lane of this generation"
//!   Refused  4 lane u32 | 8 tag u64          "that tag will not come to your lane"
//!   Reading  8 address u64 | 16 key u64      "I am still reading this" (RMA, which is silent)
//! ```
//!
//! They are the body of a frame of kind `Remote` (see `frame`). A body may be longer than this
//! version knows; what is behind is not looked at.
//!
//! Owns: their layout. Knows nothing of: what follows from them.

use smallvec::SmallVec;

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RemoteFrame {
    /// Where the sender's lane is.
    Lane {
        generation: u32,
        with: u32,
        tag_mask: u64,
        address: SmallVec<[u8; 32]>,
    },
    /// A proposal is declined.
    NoLane { generation: u32 },
    /// The sender's lane is closed.
    Gone { generation: u32 },
    /// A piece of an exposure is wanted.
    Ask(Ask),
    /// It will not come.
    Refused { lane: u32, tag: u64 },
    /// A sign of life.
    Reading { address: u64, key: u64 },
}

/// A piece of an exposure that the peer wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ask {
    /// The asked side's lane that it shall come through.
    pub(super) lane: u32,
    pub(super) exposure: u64,
    pub(super) key: u64,
    pub(super) from: u64,
    pub(super) len: u32,
    pub(super) tag: u64,
}

impl RemoteFrame {
    /// The bytes.
    pub(super) fn emit(&self) -> SmallVec<[u8; 64]> {
        let mut bytes = SmallVec::<[u8; 64]>::from_slice(&[0; 4]);
        bytes[0] = match self {
            Self::Lane { .. } => LANE,
            Self::NoLane { .. } => NO_LANE,
            Self::Gone { .. } => GONE,
            Self::Ask(_) => ASK,
            Self::Refused { .. } => REFUSED,
            Self::Reading { .. } => READING,
        };
        match self {
            Self::Lane {
                generation,
                with,
                tag_mask,
                address,
            } => {
                bytes.extend_from_slice(&generation.to_le_bytes());
                bytes.extend_from_slice(&with.to_le_bytes());
                bytes.extend_from_slice(&(address.len() as u32).to_le_bytes());
                bytes.extend_from_slice(&tag_mask.to_le_bytes());
                bytes.extend_from_slice(address);
            }
            Self::NoLane { generation } | Self::Gone { generation } => {
                bytes.extend_from_slice(&generation.to_le_bytes());
            }
            Self::Ask(ask) => {
                bytes.extend_from_slice(&ask.lane.to_le_bytes());
                bytes.extend_from_slice(&ask.exposure.to_le_bytes());
                bytes.extend_from_slice(&ask.key.to_le_bytes());
                bytes.extend_from_slice(&ask.from.to_le_bytes());
                bytes.extend_from_slice(&ask.tag.to_le_bytes());
                bytes.extend_from_slice(&ask.len.to_le_bytes());
            }
            Self::Refused { lane, tag } => {
                bytes.extend_from_slice(&lane.to_le_bytes());
                bytes.extend_from_slice(&tag.to_le_bytes());
            }
            Self::Reading { address, key } => {
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(&address.to_le_bytes());
                bytes.extend_from_slice(&key.to_le_bytes());
            }
        }
        bytes
    }

    /// `None` when it is none of them, or too short.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(match *bytes.first()? {
            LANE => {
                let len = word(bytes, 12)? as usize;
                if len == 0 || len > ADDRESS_MAX {
                    return None;
                }
                let address = bytes.get(24..24 + len)?;
                Self::Lane {
                    generation: word(bytes, 4)?,
                    with: word(bytes, 8)?,
                    tag_mask: long(bytes, 16)?,
                    address: SmallVec::from_slice(address),
                }
            }
            NO_LANE => Self::NoLane {
                generation: word(bytes, 4)?,
            },
            GONE => Self::Gone {
                generation: word(bytes, 4)?,
            },
            ASK => Self::Ask(Ask {
                lane: word(bytes, 4)?,
                exposure: long(bytes, 8)?,
                key: long(bytes, 16)?,
                from: long(bytes, 24)?,
                tag: long(bytes, 32)?,
                len: word(bytes, 40)?,
            }),
            REFUSED => Self::Refused {
                lane: word(bytes, 4)?,
                tag: long(bytes, 8)?,
            },
            READING => Self::Reading {
                address: long(bytes, 8)?,
                key: long(bytes, 16)?,
            },
            _ => return None,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

const LANE: u8 = 1;
const NO_LANE: u8 = 2;
const GONE: u8 = 3;
const ASK: u8 = 4;
const REFUSED: u8 = 5;
const READING: u8 = 6;

/// The longest address of any provider that lanes are for is a socket's; this leaves room.
const ADDRESS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<RemoteFrame> {
        vec![
            RemoteFrame::Lane {
                generation: 7,
                with: 9,
                tag_mask: u64::MAX >> 1,
                address: SmallVec::from_slice(&[5; 28]),
            },
            RemoteFrame::NoLane { generation: 8 },
            RemoteFrame::Gone {
                generation: u32::MAX,
            },
            RemoteFrame::Ask(Ask {
                lane: 1,
                exposure: 2 << 40,
                key: 3 << 50,
                from: 4 << 33,
                len: 5,
                tag: 6 << 60,
            }),
            RemoteFrame::Refused {
                lane: 3,
                tag: u64::MAX,
            },
            RemoteFrame::Reading {
                address: 1 << 47,
                key: 12,
            },
        ]
    }

    #[test]
    fn every_frame_comes_back_as_it_was_emitted() {
        for frame in samples() {
            assert_eq!(RemoteFrame::parse(&frame.emit()), Some(frame));
        }
    }

    #[test]
    fn a_frame_cut_anywhere_is_none_and_a_longer_one_is_the_same() {
        for frame in samples() {
            let mut bytes = frame.emit();
            for len in 0..bytes.len() {
                assert_eq!(
                    RemoteFrame::parse(&bytes[..len]),
                    None,
                    "{frame:?} at {len}"
                );
            }
            bytes.push(0xff);
            assert_eq!(RemoteFrame::parse(&bytes), Some(frame));
        }
    }

    #[test]
    fn an_address_of_no_length_or_too_long_a_one_is_refused() {
        let lane = |len| RemoteFrame::Lane {
            generation: 1,
            with: 0,
            tag_mask: 1,
            address: SmallVec::from_elem(1, len),
        };
        assert_eq!(RemoteFrame::parse(&lane(0).emit()), None);
        assert_eq!(RemoteFrame::parse(&lane(ADDRESS_MAX + 1).emit()), None);
        assert!(RemoteFrame::parse(&lane(ADDRESS_MAX).emit()).is_some());
        assert_eq!(RemoteFrame::parse(&[0xee; 64]), None);
    }
}
