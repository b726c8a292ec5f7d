//! Slots: buffers that frames are sent from.
//!
//! ```text
//!   header + segments --gather--> slot --fi_send--> provider --completion--> free again
//! ```
//!
//! No provider that was measured cancels a send, and some never complete one to a dead peer. So a
//! frame that is not injected is copied into a slot, and the application's memory is free at once.
//! The slots that a provider keeps for a dead peer are bounded by [`PER_LINK`], and are free again
//! when the endpoint is closed.
//!
//! Owns: the memory and its registrations. The memory must outlive the endpoint.

use libc::c_void;
use mx_port_fabric::{Buffers, Domain, Ep, FabricError};
use mx_proto::LinkId;

/// Slots that are allocated together.
const CHUNK: usize = 32;

/// Slots of one port. With the 64 KiB of software 32 MiB, reached only when many peers are slow at once.
const TOTAL: usize = 512;

/// Providers' queues that are longer than this do not make us keep more for the dead: twice as many
/// slots as half of it, with the 64 KiB of software 64 MiB.
const LOST_MAX: usize = 2048;

/// Slots one link may have with the provider: enough to fill a fast fabric's pipe with small
/// frames, and few enough that a dead peer cannot take them all.
const PER_LINK: usize = 64;

/// The send slots of one port.
pub(super) struct Slots {
    /// Bytes of one.
    size: usize,
    chunks: Vec<Buffers>,
    free: Vec<u32>,
    /// The link of the frame in a slot.
    owners: Vec<Option<LinkId>>,
    register: bool,
    /// Sends the provider takes at once.
    depth: usize,
    /// Slots with frames to peers that have gone; they do not count against the living.
    lost: usize,
    /// The most slots in use at a time since [`Slots::give_back`].
    most: usize,
}

/// A slot to be filled and sent.
pub(super) struct FrameSlot<'a> {
    pub(super) number: u32,
    pub(super) bytes: &'a mut [u8],
    /// The provider's descriptor of it.
    pub(super) desc: *mut c_void,
}

impl Slots {
    /// Slots of `size` bytes, registered if the provider wants that, which takes `depth` sends at
    /// once.
    pub(super) fn new(size: usize, register: bool, depth: usize) -> Self {
        Self {
            size,
            chunks: Vec::new(),
            free: Vec::new(),
            owners: Vec::new(),
            register,
            depth,
            lost: 0,
            most: 0,
        }
    }

    /// Slots there may be.
    fn room(&self) -> usize {
        (TOTAL + self.lost).min(self.depth)
    }

    /// A free slot for a frame to `owner`; `None` when there is none, or no memory for more.
    pub(super) fn take(
        &mut self,
        domain: &Domain,
        main: &Ep,
        owner: LinkId,
    ) -> Option<FrameSlot<'_>> {
        if self.free.is_empty() {
            if self.owners.len() >= self.room() {
                return None;
            }
            if let Err(error) = self.grow(domain, main) {
                log::warn!("no memory for sending: {error}");
                return None;
            }
        }
        let number = self.occupy(owner)?;
        let index = number as usize;
        let size = self.size;
        let chunk = &mut self.chunks[index / CHUNK];
        let at = index % CHUNK * size;
        Some(FrameSlot {
            number,
            desc: chunk.desc(),
            bytes: &mut chunk.bytes_mut()[at..at + size],
        })
    }

    /// A free slot is the link's.
    #[inline]
    fn occupy(&mut self, owner: LinkId) -> Option<u32> {
        let number = self.free.pop()?;
        self.most = self.most.max(self.taken());
        self.owners[number as usize] = Some(owner);
        Some(number)
    }

    /// Slots one link may have now. The fewer are left, the fewer: peers that have stopped reading
    /// never get all of them.
    #[inline]
    pub(super) fn allowance(&self) -> u32 {
        let left = self.room().saturating_sub(self.taken());
        PER_LINK.min(1 + left / 4) as u32
    }

    /// A slot is free again. Returns whose frame it held; `None` when it was free already.
    pub(super) fn put(&mut self, number: u32) -> Option<LinkId> {
        let owner = self.owners.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(owner)
    }

    /// So many slots hold frames to peers that have gone. True when they fill so much of what the
    /// provider takes at once that the living suffer.
    pub(super) fn lose(&mut self, lost: usize) -> bool {
        self.lost = lost;
        lost > self.depth.min(LOST_MAX) / 2
    }

    fn taken(&self) -> usize {
        self.owners.len() - self.free.len()
    }

    /// Gives back the memory that has not been needed since the last call, as far as none of it is in use
    /// now.
    pub(super) fn give_back(&mut self) {
        let needed = self.most.div_ceil(CHUNK).max(1);
        self.most = self.taken();
        while self.chunks.len() > needed
            && let Some(begin) = self.owners.len().checked_sub(CHUNK)
            && self.owners[begin..].iter().all(Option::is_none)
        {
            self.owners.truncate(begin);
            self.chunks.pop();
        }
        let left = self.owners.len();
        self.free.retain(|number| (*number as usize) < left);
        // The first are used first, so that the last fall free.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Gives up the registrations; the memory stays.
    pub(super) fn close_registrations(&mut self) {
        self.chunks.iter_mut().for_each(Buffers::close_registration);
    }

    fn grow(&mut self, domain: &Domain, main: &Ep) -> Result<(), FabricError> {
        let access = self.register.then_some(libfabric_sys::abi::FI_SEND);
        self.add(Buffers::new((domain, main), CHUNK * self.size, access)?);
        Ok(())
    }

    fn add(&mut self, chunk: Buffers) {
        self.chunks.push(chunk);
        let first = self.owners.len();
        self.owners.resize(first + CHUNK, None);
        self.free
            .extend((first..first + CHUNK).rev().map(|slot| slot as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many slots in use, on chunks that are no larger than needed.
    fn slots(count: usize) -> Slots {
        let mut slots = Slots::new(1, false, TOTAL);
        for _ in 0..count {
            if slots.free.is_empty() {
                slots.add(Buffers::unregistered(CHUNK));
            }
            slots.occupy(LinkId::new(0, 1)).unwrap();
        }
        slots
    }

    #[test]
    fn unused_slots_are_freed_after_a_while() {
        let mut slots = slots(3 * CHUNK + 1);
        assert_eq!(slots.chunks.len(), 4);
        let (last, first) = (3 * CHUNK as u32, 0);
        for number in 0..=last {
            if number != last && number != first {
                slots.put(number).unwrap();
            }
        }
        // They were all needed since.
        slots.give_back();
        assert_eq!(slots.chunks.len(), 4);
        // The last one is with the provider, perhaps for ever: its memory has to stay.
        slots.give_back();
        assert_eq!((slots.chunks.len(), slots.taken()), (4, 2));
        // What lies low is used first.
        assert_eq!(slots.occupy(LinkId::new(0, 2)), Some(1));
        slots.put(1).unwrap();
        slots.put(last).unwrap();
        slots.give_back();
        assert_eq!((slots.chunks.len(), slots.owners.len()), (1, CHUNK));
        assert_eq!((slots.free.len(), slots.taken()), (CHUNK - 1, 1));
        assert_eq!(slots.put(last), None);
        slots.put(first).unwrap();
        slots.give_back();
        slots.give_back();
        assert_eq!(slots.chunks.len(), 1);
    }
}
