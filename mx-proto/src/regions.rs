//! Regions: memory of this process that peers may access.
//!
//! ```text
//!   register --> Region: key, memory, rights <--key, offset, length-- Get or Put of a peer
//!                   |                            `--> a part of the memory, or the reason for refusing it
//!                   `-- accesses: internal operations that have such a part
//!   deregister --> neither the region nor its accesses
//! ```
//!
//! A key is a 64-bit number derived from the endpoint's secret key, so peers cannot guess it. A region is the same for
//! all peers: whichever peer knows its key may access it, within its bounds and rights.
//!
//! Owns: the regions of an endpoint, and the list of accesses to each.
//! Out of scope: packets, peers; `endpoint/regions.rs` has them.
//! Cost: registering takes one HMAC, an access one hash.

use crate::ids::RequestId;
use crate::memory::Memory;
use crate::ops::List;
use crate::secret;
use crate::status::Status;
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// Key of a registered region, which peers state in a get or put. Hard to guess: every peer that knows it has access,
/// so the owner sends it only to those that shall.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionKey(pub u64);

/// Kinds of access that peers have to a registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Peers may get bytes from the region.
    pub read: bool,
    /// Peers may put bytes into the region.
    pub write: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// The peer reads.
    Get,
    /// The peer writes.
    Put,
}

#[derive(Debug)]
struct Region<M> {
    memory: M,
    rights: Rights,
    /// Operations that have a part of the memory.
    accesses: List,
}

#[derive(Debug)]
pub(crate) struct Regions<M> {
    by_key: HashMap<u64, Region<M>, RandomState>,
    /// Number of keys that have been drawn.
    drawn: u64,
}

impl<M> Default for Regions<M> {
    fn default() -> Self {
        Self {
            by_key: HashMap::default(),
            drawn: 0,
        }
    }
}

impl<M> Regions<M> {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the number of operations that have a part of a region.
    pub(crate) fn in_use(&self) -> usize {
        let lists = self.by_key.values().map(|region| &region.accesses);
        lists.map(List::len).sum()
    }

    /// Adds a region, with a key derived from `secret`.
    pub(crate) fn add(&mut self, secret: &[u8; 16], memory: M, rights: Rights) -> RegionKey {
        let region = Region {
            memory,
            rights,
            accesses: List::EMPTY,
        };
        loop {
            self.drawn += 1;
            let key = secret::region_key(secret, self.drawn);
            if let Entry::Vacant(entry) = self.by_key.entry(key) {
                entry.insert(region);
                return RegionKey(key);
            }
        }
    }

    /// Removes a region to which there is no access. Returns false if there is no such region.
    pub(crate) fn remove(&mut self, key: RegionKey) -> bool {
        let removed = self.by_key.remove(&key.0);
        debug_assert!(
            removed
                .as_ref()
                .is_none_or(|region| region.accesses.is_empty())
        );
        removed.is_some()
    }

    pub(crate) fn accesses(&mut self, key: RegionKey) -> Option<&mut List> {
        self.by_key
            .get_mut(&key.0)
            .map(|region| &mut region.accesses)
    }

    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
    }
}

impl<M: Memory> Regions<M> {
    /// Returns `len` bytes of a region from `offset` on, or the reason for refusing the access. The numbers come from
    /// the wire, so no sum of them may be assumed to fit.
    pub(crate) fn part(
        &self,
        key: RegionKey,
        access: Access,
        (offset, len): (u64, u64),
    ) -> Result<M, Status> {
        let region = self.by_key.get(&key.0).ok_or(Status::NoRegion)?;
        let allowed = match access {
            Access::Get => region.rights.read,
            Access::Put => region.rights.write,
        };
        if !allowed {
            return Err(Status::NotAllowed);
        }
        let whole = region.memory.len() as u64;
        let fits = offset.checked_add(len).is_some_and(|end| end <= whole);
        let (true, Ok(offset), Ok(len)) = (fits, usize::try_from(offset), usize::try_from(len))
        else {
            return Err(Status::OutOfRange);
        };
        let part = region.memory.part(offset, len);
        part.ok_or(Status::NoResources)
    }
}

/// Gets and puts between this endpoint and one remote.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    /// Own transfers that have been requested from the remote, at most [`TRANSFERS_MAX`].
    asked: SmallVec<[Transfer; 2]>,
    /// Own transfers that wait for their turn, oldest first.
    waiting: VecDeque<Transfer>,
    /// Internal operations that serve the remote, at most [`SERVED_MAX`].
    served: SmallVec<[RequestId; 2]>,
}

/// Get or put of this endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) op: RequestId,
    pub(crate) key: RegionKey,
    /// Offset of the first byte in the region.
    pub(crate) offset: u64,
}

impl Transfers {
    /// Returns the next transfer to request; `None` if the maximum is in progress, or none waits.
    pub(crate) fn next(&mut self) -> Option<Transfer> {
        if self.asked.len() >= TRANSFERS_MAX {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.asked.push(next);
        Some(next)
    }

    pub(crate) fn wait(&mut self, transfer: Transfer) {
        self.waiting.push_back(transfer);
    }

    pub(crate) fn asked(&self, op: RequestId) -> Option<Transfer> {
        self.asked.iter().copied().find(|of| of.op == op)
    }

    /// Removes a transfer that is over. Returns whether others wait.
    pub(crate) fn remove(&mut self, op: RequestId) -> bool {
        if let Some(nth) = self.asked.iter().position(|of| of.op == op) {
            self.asked.swap_remove(nth);
        } else {
            self.waiting.retain(|of| of.op != op);
        }
        !self.waiting.is_empty()
    }

    pub(crate) fn take_waiting(&mut self) -> VecDeque<Transfer> {
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn served(&self) -> &[RequestId] {
        &self.served
    }

    pub(crate) fn serve(&mut self, op: RequestId) {
        self.served.push(op);
    }

    pub(crate) fn end_served(&mut self, op: RequestId) {
        self.served.retain(|of| *of != op);
    }
}

/// Maximum number of gets and puts in progress to one peer; further ones wait. Part of the protocol: see
/// [`SERVED_MAX`].
pub(crate) const TRANSFERS_MAX: usize = 16;
/// Maximum number of parts of one get in progress: two for each of four links.
pub(crate) const PARTS_MAX: usize = 8;
/// Maximum number of accesses of one peer served at a time: all that a peer within the limits above can request.
pub(crate) const SERVED_MAX: usize = TRANSFERS_MAX * PARTS_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory with this start and length, and no bytes.
    #[derive(Debug, PartialEq)]
    struct Span(usize, usize);

    impl Memory for Span {
        fn len(&self) -> usize {
            self.1
        }

        fn part(&self, offset: usize, len: usize) -> Option<Self> {
            Some(Self(self.0 + offset, len))
        }

        fn visit(&self, _: usize, _: usize, _: impl FnMut(&[u8])) {}

        fn visit_mut(&mut self, _: usize, _: usize, _: impl FnMut(&mut [u8])) {}
    }

    const BOTH: Rights = Rights {
        read: true,
        write: true,
    };

    #[test]
    fn bounds_and_rights_are_checked_at_below_and_above_their_limits() {
        let mut regions = Regions::default();
        let readable = Rights {
            write: false,
            ..BOTH
        };
        let key = regions.add(&[7; 16], Span(1000, 100), readable);
        let get = |offset, len| regions.part(key, Access::Get, (offset, len));
        assert_eq!(get(0, 100), Ok(Span(1000, 100)));
        assert_eq!(get(99, 1), Ok(Span(1099, 1)));
        assert_eq!(get(100, 0), Ok(Span(1100, 0)));
        for (offset, len) in [
            (0, 101),
            (100, 1),
            (99, 2),
            (101, 0),
            (u64::MAX, 0),
            (u64::MAX, 1),
            (1, u64::MAX),
            (u64::MAX - 49, 100),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(get(offset, len), Err(Status::OutOfRange), "{offset} {len}");
        }
        let put = regions.part(key, Access::Put, (0, 1));
        assert_eq!(put, Err(Status::NotAllowed));
    }

    #[test]
    fn keys_differ_and_that_of_an_earlier_region_leads_nowhere() {
        let mut regions = Regions::default();
        let keys: Vec<_> = (0..1000)
            .map(|_| regions.add(&[7; 16], Span(0, 1), BOTH))
            .collect();
        assert_eq!(regions.len(), 1000);
        assert!(regions.remove(keys[5]) && !regions.remove(keys[5]));
        for key in [keys[5], RegionKey(keys[6].0 ^ 1), RegionKey(0)] {
            let part = regions.part(key, Access::Get, (0, 1));
            assert_eq!(part, Err(Status::NoRegion));
        }
    }

    #[test]
    fn so_many_transfers_are_under_way_and_the_others_have_their_turn() {
        let mut transfers = Transfers::default();
        let op = |n| RequestId::new(n, 1);
        for n in 0..TRANSFERS_MAX as u32 + 2 {
            transfers.wait(Transfer {
                op: op(n),
                key: RegionKey(1),
                offset: 0,
            });
        }
        while transfers.next().is_some() {}
        assert_eq!(transfers.asked.len(), TRANSFERS_MAX);
        // A waiting transfer is cancelled, then one in progress.
        assert!(transfers.remove(op(TRANSFERS_MAX as u32)));
        assert!(transfers.remove(op(3)));
        let next = transfers.next().map(|of| of.op);
        assert_eq!(next, Some(op(TRANSFERS_MAX as u32 + 1)));
        assert!(!transfers.remove(op(4)) && transfers.asked(op(4)).is_none());
    }
}
