//! Slots: buffers that frames are sent from.
//!
//! ```text
//!   header + segments --gather--> slot --fi_send--> provider --completion--> free again
//! ```
//!
//! No measured provider cancels a send, and some never complete one to a dead peer. So a frame that is not injected is
//! copied into a slot, and the application's memory is free at once. [`PER_LINK`] bounds the slots that a provider
//! holds for a dead peer; closing the endpoint frees them.
//!
//! Owns: the memory and its registrations. The memory must outlive the endpoint.

use libc::c_void;
use mx_port_fabric::{Buffers, Domain, Ep, FabricError};
use mx_proto::LinkId;

/// Slots per allocation.
const CHUNK: usize = 32;

/// Maximum number of slots of a port: 32 MiB with software's 64 KiB, reached only if many peers are slow at once.
const TOTAL: usize = 512;

/// Cap on the queue depth of which dead peers may hold half: 1024 slots, 64 MiB with software's 64 KiB.
const LOST_MAX: usize = 2048;

/// Maximum number of slots that a link may have with the provider: enough to fill a fast fabric with small frames, and
/// few enough that a dead peer cannot take them all.
const PER_LINK: usize = 64;

/// Send slots of a port.
pub(super) struct Slots {
    /// Bytes of a slot.
    size: usize,
    chunks: Vec<Buffers>,
    free: Vec<u32>,
    /// Link of the frame in each slot; `None` if free.
    owners: Vec<Option<LinkId>>,
    register: bool,
    /// Maximum number of sends outstanding at the provider.
    depth: usize,
    /// Slots with frames to closed links; they do not count against the others.
    lost: usize,
    /// Maximum number of slots in use at a time since [`Slots::give_back`].
    most: usize,
}

/// Slot to be filled and sent.
pub(super) struct FrameSlot<'a> {
    pub(super) number: u32,
    pub(super) bytes: &'a mut [u8],
    /// Provider's descriptor of the slot.
    pub(super) desc: *mut c_void,
}

impl Slots {
    /// Creates slots of `size` bytes, to be registered if `register`; the provider accepts `depth` sends at once.
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

    /// Maximum number of slots.
    fn room(&self) -> usize {
        (TOTAL + self.lost).min(self.depth)
    }

    /// Takes a slot for a frame to `owner`; `None` if there is no slot, or no memory for more.
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

    /// Assigns a free slot to a link.
    #[inline]
    fn occupy(&mut self, owner: LinkId) -> Option<u32> {
        let number = self.free.pop()?;
        self.most = self.most.max(self.taken());
        self.owners[number as usize] = Some(owner);
        Some(number)
    }

    /// Maximum number of slots that a link may have now. The limit shrinks with the free slots, so that peers that have
    /// stopped reading never get all of them.
    #[inline]
    pub(super) fn allowance(&self) -> u32 {
        let left = self.room().saturating_sub(self.taken());
        PER_LINK.min(1 + left / 4) as u32
    }

    /// Frees a slot. Returns the link of its frame; `None` if it was already free.
    pub(super) fn put(&mut self, number: u32) -> Option<LinkId> {
        let owner = self.owners.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(owner)
    }

    /// Sets the number of slots with frames to closed links. Returns true if they fill so much of the provider's queue
    /// that other links suffer.
    pub(super) fn lose(&mut self, lost: usize) -> bool {
        self.lost = lost;
        lost > self.depth.min(LOST_MAX) / 2
    }

    fn taken(&self) -> usize {
        self.owners.len() - self.free.len()
    }

    /// Frees memory that has not been needed since the last call and is not in use now.
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
        // Low slots are used first, so that the last chunks become free.
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Closes the registrations; the memory stays.
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

    /// Creates slots of which `count` are in use, in chunks as small as possible.
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
        // All slots were needed since the last call.
        slots.give_back();
        assert_eq!(slots.chunks.len(), 4);
        // The provider holds the last slot, perhaps forever: its memory has to stay.
        slots.give_back();
        assert_eq!((slots.chunks.len(), slots.taken()), (4, 2));
        // Low slots are used first.
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
