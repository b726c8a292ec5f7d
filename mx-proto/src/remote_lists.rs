//! Lists of the slots of a slab that belong to each remote.
//!
//! ```text
//!   slot of a remote:  first, last      slot of the slab:  neighbours
//!         #0  ------------>  #4 <-> #7 <-> #2                 in the order they joined
//!         #1  ------------>  (none)
//! ```
//!
//! A remote's list must be empty when the remote is removed from its table, because its slot is reused.
//!
//! Cost: join and leave are O(1) and allocate nothing once everything has grown; 8 bytes for each slot on either side.

use crate::ids::RemoteId;
use crate::matching::{ChainEnds, Chains};
use crate::table;

#[derive(Debug, Default)]
pub(crate) struct RemoteLists {
    ends: Vec<ChainEnds>,
    chains: Chains,
}

impl RemoteLists {
    /// Adds slot `place`, which must be in no list, to the list of `remote`.
    #[inline]
    pub(crate) fn join(&mut self, remote: RemoteId, place: u32) {
        let at = remote.index() as usize;
        if at >= self.ends.len() {
            table::reserve(&mut self.ends, at + 1);
            self.ends.resize(at + 1, ChainEnds::EMPTY);
        }
        self.chains.append(&mut self.ends[at], place);
    }

    /// Removes slot `place` from the list of `remote`.
    #[inline]
    pub(crate) fn leave(&mut self, remote: RemoteId, place: u32) {
        match self.ends.get_mut(remote.index() as usize) {
            Some(ends) => self.chains.unlink(ends, place),
            None => debug_assert!(false, "{remote:?} has never had a place"),
        }
    }

    /// Returns the slots in a remote's list, in the order in which they joined.
    pub(crate) fn of(&self, remote: RemoteId) -> impl Iterator<Item = u32> {
        let ends = self.ends.get(remote.index() as usize);
        self.chains.walk(ends.copied().unwrap_or(ChainEnds::EMPTY))
    }
}
