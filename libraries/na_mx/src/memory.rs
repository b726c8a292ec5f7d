//! Mercury's memory handles.
//!
//! ```text
//!   create, segments --> local: pieces, rights --register--> a region's key --serialize--> 24 bytes
//!                                                                                            |
//!                                           remote: key, length  <-------- deserialize ------'
//! ```
//!
//! Owns: the pieces of a handle; the memory belongs to the program.

use crate::abi::{
    NA_FAULT, NA_INVALID_ARG, NA_MEM_READ_ONLY, NA_MEM_WRITE_ONLY, NA_OVERFLOW, na_return,
    na_segment,
};
use libc::c_ulong;
use mx_proto::{RegionKey, Rights};
use mx_sys::UserMemory;

/// A memory handle.
#[derive(Debug)]
pub(crate) enum Handle {
    /// Memory of this process.
    Local(Local),
    /// Memory of a peer.
    Remote {
        /// Key of its region.
        key: RegionKey,
        /// Length in bytes.
        len: u64,
    },
}

/// Memory of this process.
#[derive(Debug)]
pub(crate) struct Local {
    pieces: Vec<(usize, usize)>,
    len: u64,
    /// Access rights of peers.
    pub(crate) rights: Rights,
    /// Key of the region while registered, else `None`.
    pub(crate) key: Option<RegionKey>,
}

/// Size of a serialized handle in bytes: a mark, the key, the length.
pub(crate) const SERIALIZED: usize = 24;
const MARK: u64 = u64::from_le_bytes(*b"MXmemh1\0");

/// Maximum number of pieces of a handle.
pub(crate) const SEGMENTS_MAX: usize = 4096;

impl Local {
    /// Makes a handle of these pieces, with peers' rights from `flags`.
    pub(crate) fn new(segments: &[na_segment], flags: c_ulong) -> Result<Self, na_return> {
        if segments.len() > SEGMENTS_MAX {
            return Err(NA_OVERFLOW);
        }
        let whole = |segment: &na_segment| (segment.base.expose_provenance(), segment.len);
        let mut handle = Self {
            pieces: segments.iter().map(whole).collect(),
            len: 0,
            rights: Rights {
                read: flags & NA_MEM_READ_ONLY != 0,
                write: flags & NA_MEM_WRITE_ONLY != 0,
            },
            key: None,
        };
        for (start, len) in &handle.pieces {
            if *start == 0 && *len > 0 {
                return Err(NA_FAULT);
            }
            let sum = handle.len.checked_add(*len as u64);
            handle.len = sum.ok_or(NA_OVERFLOW)?;
        }
        Ok(handle)
    }

    /// Returns all of the memory.
    pub(crate) fn whole(&self) -> Result<UserMemory, na_return> {
        self.part(0, self.len)
    }

    /// Returns `len` bytes from `offset` on.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<UserMemory, na_return> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(NA_OVERFLOW);
        }
        let (mut skip, mut left) = (offset, len);
        let pieces = self.pieces.iter().filter_map(|(start, len)| {
            let skipped = skip.min(*len as u64);
            skip -= skipped;
            let taken = (*len as u64 - skipped).min(left);
            left -= taken;
            // At most the length of the piece, which is a usize.
            let start = start + skipped as usize;
            (taken > 0).then(|| (std::ptr::with_exposed_provenance_mut(start), taken as usize))
        });
        // SAFETY: the program keeps the memory until the transfer has completed, or the handle is deregistered.
        unsafe { UserMemory::list(pieces.collect::<Vec<_>>()) }.map_err(|_| NA_FAULT)
    }
}

impl Handle {
    /// Encodes the handle for a peer.
    pub(crate) fn serialize(&self) -> Result<[u8; SERIALIZED], na_return> {
        let (key, len) = match self {
            Self::Local(local) => (local.key.ok_or(NA_INVALID_ARG)?, local.len),
            Self::Remote { key, len } => (*key, *len),
        };
        let mut bytes = [0; SERIALIZED];
        for (at, word) in [MARK, key.0, len].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Decodes a peer's handle.
    pub(crate) fn deserialize(bytes: &[u8]) -> Result<Self, na_return> {
        let bytes = bytes.get(..SERIALIZED).ok_or(NA_OVERFLOW)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if word(0) != MARK {
            return Err(NA_INVALID_ARG);
        }
        Ok(Self::Remote {
            key: RegionKey(word(8)),
            len: word(16),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::Memory;

    fn bytes(memory: &UserMemory) -> Vec<u8> {
        let mut all = Vec::new();
        memory.visit(0, memory.len(), |piece| all.extend_from_slice(piece));
        all
    }

    #[test]
    fn parts_of_segments_are_cut_at_their_bounds() {
        let mut pieces = [vec![1_u8, 2, 3], vec![], vec![4, 5], vec![6]];
        let segments = pieces.each_mut().map(|piece| na_segment {
            base: piece.as_mut_ptr().cast(),
            len: piece.len(),
        });
        let local = Local::new(&segments, NA_MEM_READ_ONLY).unwrap();
        let part = |offset, len| local.part(offset, len).map(|part| bytes(&part));
        assert_eq!(part(0, 6), Ok(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(part(2, 3), Ok(vec![3, 4, 5]));
        assert_eq!(part(6, 0), Ok(vec![]));
        for (offset, len) in [(0, 7), (6, 1), (u64::MAX, 2), (1, u64::MAX)] {
            assert_eq!(part(offset, len), Err(NA_OVERFLOW), "{offset} {len}");
        }
    }

    #[test]
    fn a_handle_survives_the_way_and_a_cut_or_foreign_one_does_not() {
        let handle = Handle::Remote {
            key: RegionKey(u64::MAX - 7),
            len: 1 << 40,
        };
        let text = handle.serialize().unwrap();
        let read = Handle::deserialize(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{handle:?}"));
        assert!(Handle::deserialize(&text[1..]).is_err());
        assert!(Handle::deserialize(&[0; SERIALIZED]).is_err());
        let local = Local::new(&[], NA_MEM_WRITE_ONLY).unwrap();
        let unregistered = Handle::Local(local).serialize();
        assert_eq!(unregistered, Err(NA_INVALID_ARG));
    }
}
