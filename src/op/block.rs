//! The memory of operations, laid out so that the host can read an operation's id and address.
//!
//! ```text
//!     0  op_id   its own address while it is in use, otherwise 0      read by the host
//!     8  memory  the buffer of an operation that waits in a queue
//!    72  addr    struct bmi_method_addr *                             read by the host
//!    80  Op      everything else
//!
//!   [ 64 blocks | 64 | 128 | 256 ...  | reserved        ]     index = place in this row
//! ```
//!
//! The host takes an operation id for a pointer and reads the words at 0 and 72 without asking
//! (BMI-HOST-ABI.md section 6.2), also for stale ids. So blocks are never unmapped: an arena that
//! goes hands its blocks to the next one. No id is followed before it has been compared with the range.
//!
//! Owns: the blocks, and their address space. Knows nothing of: what an operation is for.
//! Cost: whether an id is one of ours takes two comparisons and one load.

use super::table::Op;
use crate::abi::types::bmi_method_addr;
use mx_sys::UserMemory;
use mx_sys::fork::ForkLock;
use mx_sys::places::Reservation;
use std::cell::UnsafeCell;
use std::mem::{offset_of, size_of};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

/// One operation's memory.
#[repr(C, align(64))]
struct Block {
    op_id: AtomicI64,
    memory: UnsafeCell<Option<UserMemory>>,
    _pad: [u8; ADDR_AT - 8 - size_of::<Option<UserMemory>>()],
    addr: AtomicPtr<bmi_method_addr>,
    op: UnsafeCell<Op>,
}

/// Where the host looks for the address.
const ADDR_AT: usize = 72;

const _: () = {
    assert!(offset_of!(Block, op_id) == 0);
    assert!(offset_of!(Block, addr) == ADDR_AT);
    assert!(size_of::<Block>() >= 128);
};

// SAFETY: the cells are reached only through the one `Arena` that holds the block, by
// `&self` for reading and `&mut self` for writing; everybody else sees the two atomics only.
unsafe impl Sync for Block {}

/// Blocks no arena holds. They are free: every `op_id` in them is 0.
static SPARE: ForkLock<Vec<Row>> = ForkLock::new(Vec::new());

/// Blocks that an arena begins with; then it has twice as many each time.
const FIRST: usize = 64;
/// Blocks at most: as many as operations, and 16 GiB of addresses.
const MOST: usize = 64 << 20;

/// Blocks side by side.
struct Row {
    reservation: Reservation,
    /// So many from its beginning on are blocks.
    made: usize,
}

impl Row {
    fn new() -> Option<Self> {
        let reservation = Reservation::new(MOST * size_of::<Block>())?;
        Some(Self {
            reservation,
            made: 0,
        })
    }

    /// Has at least `len` blocks from now on, if it can.
    fn reach(&mut self, len: usize) -> bool {
        let more = (len * size_of::<Block>()).saturating_sub(self.reservation.open());
        if !self.reservation.grow(more) {
            return false;
        }
        let start = self.reservation.start().cast::<Block>();
        for index in self.made..len {
            // SAFETY: within what is open, at a place of its own, which nobody has seen yet.
            unsafe { start.add(index).write(Block::new()) };
        }
        self.made = self.made.max(len);
        true
    }
}

/// The blocks of one table of operations.
#[derive(Default)]
pub(super) struct Arena {
    row: Option<Row>,
    /// Of its blocks, those that are used.
    len: usize,
}

impl Arena {
    /// Blocks there are.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len as u32
    }

    /// Adds as many again. False when there can be no more.
    pub(super) fn grow(&mut self) -> bool {
        if self.row.is_none() {
            self.row = SPARE.lock().pop().or_else(Row::new);
        }
        let len = (2 * self.len).max(FIRST);
        let grown = self.row.as_mut().is_some_and(|row| row.reach(len));
        if grown {
            self.len = len;
        }
        grown
    }

    /// The index of the block with this address; `None` when it is not in this arena.
    #[inline]
    pub(super) fn index_of(&self, id: i64) -> Option<u32> {
        let row = self.blocks();
        let offset = (id as usize).wrapping_sub(row.as_ptr().addr());
        let known = offset < size_of_val(row) && offset % size_of::<Block>() == 0;
        known.then_some((offset / size_of::<Block>()) as u32)
    }

    /// The block's address, as an id.
    #[inline]
    pub(super) fn id_of(&self, index: u32) -> i64 {
        ptr::from_ref(self.block(index)) as i64
    }

    /// What the host reads at 0.
    #[inline]
    pub(super) fn op_id(&self, index: u32) -> i64 {
        self.block(index).op_id.load(Ordering::Relaxed)
    }

    /// What the host reads at 72.
    #[inline]
    pub(super) fn addr(&self, index: u32) -> *mut bmi_method_addr {
        self.block(index).addr.load(Ordering::Relaxed)
    }

    /// Shows the block to the host.
    #[inline]
    pub(super) fn show(&mut self, index: u32, addr: *mut bmi_method_addr) {
        let id = self.id_of(index);
        let block = self.block(index);
        block.addr.store(addr, Ordering::Relaxed);
        block.op_id.store(id, Ordering::Release);
    }

    /// Hides it: its id is stale from now on. The address stays, as the host may read it before
    /// it looks at the id.
    #[inline]
    pub(super) fn hide(&mut self, index: u32) {
        self.block(index).op_id.store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn op(&self, index: u32) -> &Op {
        // SAFETY: `&self` excludes `op_mut`, and no other arena holds this block.
        unsafe { &*self.block(index).op.get() }
    }

    #[inline]
    pub(super) fn op_mut(&mut self, index: u32) -> &mut Op {
        // SAFETY: `&mut self` excludes every other reference, and no other arena holds this block.
        unsafe { &mut *self.block(index).op.get() }
    }

    #[inline]
    pub(super) fn memory_mut(&mut self, index: u32) -> &mut Option<UserMemory> {
        // SAFETY: as in `op_mut`; this is another cell of the block.
        unsafe { &mut *self.block(index).memory.get() }
    }

    /// Panics, like a slice does, for an index that is not below `len`: they all come from here.
    #[inline]
    fn block(&self, index: u32) -> &'static Block {
        &self.blocks()[index as usize]
    }

    #[inline]
    fn blocks(&self) -> &'static [Block] {
        match &self.row {
            None => &[],
            // SAFETY: so many have been written there, side by side, and they stay for ever.
            Some(row) => unsafe {
                slice::from_raw_parts(row.reservation.start().cast().as_ptr(), self.len)
            },
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for index in 0..self.len() {
            self.hide(index);
            self.memory_mut(index).take();
            *self.op_mut(index) = Op::FREE;
        }
        SPARE.lock().extend(self.row.take());
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} blocks)", self.len())
    }
}

impl Block {
    const fn new() -> Self {
        Self {
            op_id: AtomicI64::new(0),
            memory: UnsafeCell::new(None),
            _pad: [0; ADDR_AT - 8 - size_of::<Option<UserMemory>>()],
            addr: AtomicPtr::new(ptr::null_mut()),
            op: UnsafeCell::new(Op::FREE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_an_index_and_an_id_of_its_own() {
        let mut arena = Arena::default();
        assert_eq!(arena.len(), 0);
        assert_eq!(arena.index_of(0), None);
        assert!(arena.grow() && arena.grow() && arena.grow());
        assert_eq!(arena.len(), 256);
        for index in 0..arena.len() {
            let id = arena.id_of(index);
            assert_eq!(arena.index_of(id), Some(index));
            assert_eq!(arena.index_of(id + 1), None);
            assert_eq!(arena.index_of(id + 8), None);
        }
        for nonsense in [-1, 1, i64::MIN, i64::MAX] {
            assert_eq!(arena.index_of(nonsense), None);
        }
    }

    #[test]
    fn the_host_reads_id_and_address_at_their_offsets_and_zero_afterwards() {
        let mut arena = Arena::default();
        assert!(arena.grow());
        let addr = 0x1000 as *mut bmi_method_addr;
        arena.show(5, addr);
        let id = arena.id_of(5);
        let words = id as *const u64;
        // SAFETY: a block of the arena, which has 128 bytes and is never unmapped.
        unsafe {
            assert_eq!(words.read(), id as u64);
            assert_eq!(words.add(9).read(), 0x1000);
        }
        arena.hide(5);
        drop(arena);
        // SAFETY: as above; the arena is gone but its memory stays.
        assert_eq!(unsafe { words.read() }, 0);
    }

    #[test]
    fn memory_of_an_arena_that_is_gone_serves_the_next() {
        let grown = || {
            let mut arena = Arena::default();
            assert!(arena.grow());
            arena
        };
        let first = grown();
        let id = first.id_of(5);
        drop(first);
        // A test beside this one may have taken them meanwhile.
        let found = (0..10_000).any(|_| {
            let all: Vec<_> = (0..64).map(|_| grown()).collect();
            let found = all.iter().any(|arena| arena.index_of(id) == Some(5));
            std::thread::sleep(std::time::Duration::from_millis(1));
            found
        });
        assert!(found);
    }
}
