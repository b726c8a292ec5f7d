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
use mx_port_fabric::{Domain, Ep, FabricError, Mr};
use mx_proto::LinkId;
use std::ptr;

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
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    /// The link of the frame in a slot.
    owners: Vec<Option<LinkId>>,
    register: bool,
    /// Sends the provider takes at once.
    depth: usize,
    /// Slots with frames to peers that have gone; they do not count against the living.
    lost: usize,
}

struct Chunk {
    registration: Option<Mr>,
    memory: Box<[u8]>,
}

/// A slot to be filled and sent.
pub(super) struct Slot<'a> {
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
        }
    }

    /// Slots there may be.
    fn room(&self) -> usize {
        (TOTAL + self.lost).min(self.depth)
    }

    /// A free slot for a frame to `owner`; `None` when there is none, or no memory for more.
    pub(super) fn take(&mut self, domain: &Domain, main: &Ep, owner: LinkId) -> Option<Slot<'_>> {
        if self.free.is_empty() {
            if self.owners.len() >= self.room() {
                return None;
            }
            if let Err(error) = self.grow(domain, main) {
                log::warn!("no memory for sending: {error}");
                return None;
            }
        }
        let number = self.free.pop()?;
        let index = number as usize;
        self.owners[index] = Some(owner);
        let size = self.size;
        let chunk = &mut self.chunks[index / CHUNK];
        let at = index % CHUNK * size;
        Some(Slot {
            number,
            bytes: &mut chunk.memory[at..at + size],
            desc: chunk
                .registration
                .as_ref()
                .map_or(ptr::null_mut(), Mr::desc),
        })
    }

    /// Slots one link may have now. The fewer are left, the fewer: peers that have stopped reading
    /// never get all of them.
    #[inline]
    pub(super) fn allowance(&self) -> u32 {
        let taken = self.owners.len() - self.free.len();
        let left = self.room().saturating_sub(taken);
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

    /// Gives up the registrations; the memory stays.
    pub(super) fn close_registrations(&mut self) {
        for chunk in &mut self.chunks {
            chunk.registration = None;
        }
    }

    fn grow(&mut self, domain: &Domain, main: &Ep) -> Result<(), FabricError> {
        let mut memory = vec![0u8; CHUNK * self.size].into_boxed_slice();
        let registration = if self.register {
            let start = memory.as_mut_ptr();
            // SAFETY: a registration is closed before its memory goes: here by the order of
            // `Chunk`'s fields, else by `close_registrations`.
            Some(unsafe {
                domain.register(start, memory.len(), libfabric_sys::abi::FI_SEND, Some(main))
            }?)
        } else {
            None
        };
        self.chunks.push(Chunk {
            registration,
            memory,
        });
        let first = self.owners.len();
        self.owners.resize(first + CHUNK, None);
        self.free
            .extend((first..first + CHUNK).rev().map(|slot| slot as u32));
        Ok(())
    }
}
