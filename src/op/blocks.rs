//! Storage of the method's operations, laid out so that the host can read an operation's id and address.
//!
//! ```text
//!     0  op_id   its own address, from its first use on                   read by the host
//!     8  word    the method's part
//!    72  addr    struct bmi_method_addr *  (stand-alone BMI: at 80)        read by the host
//!    88  record  the endpoint's part                                       320 bytes in all
//!
//!   [ 64 blocks | 64 | 128 | 256 ...  | reserved        ]     place = index in this row
//! ```
//!
//! The host uses an operation id as a pointer and reads the words at 0 and 72 (80) unchecked (docs/hosts.md, Operation
//! ids), also of stale ids, and the stand-alone BMI ends the process if the word at 0 is not the id. Therefore blocks
//! are never unmapped, both words stay after the operation was reported, and an unused row serves the next method. The
//! method itself checks `data`, where an operation of the host's has an address. No id is dereferenced before it has
//! been compared with the range.
//!
//! An id is the address of a block, so a stale id is recognised until the block is reused, which happens after at least
//! [`OpStorage::reuse_delay`] other operations. After that it is recognised if the block's operation is of another
//! context.
//!
//! Owns: the blocks, and their address space.
//! Cost: checking an id takes two comparisons and one load.

use super::data::OpData;
use crate::abi::types::bmi_method_addr;
use crate::host;
use mx_proto::ops::{OpStorage, Record};
use mx_sys::UserMemory;
use mx_sys::fork::ForkLock;
use mx_sys::reservation::Reservation;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

/// Beginning of a block, the same for all hosts.
#[derive(Default)]
#[repr(C, align(64))]
struct Block {
    op_id: AtomicI64,
    word: UnsafeCell<OpData>,
}

type Addr = AtomicPtr<bmi_method_addr>;
type Cell = UnsafeCell<Record<UserMemory>>;

/// Offset of the record, after the address of every host.
const RECORD_AT: usize = 88;

/// Bytes from one block to the next.
pub(super) const BLOCK_SIZE: usize = 320;

const _: () = {
    assert!(offset_of!(Block, op_id) == 0);
    assert!(offset_of!(Block, word) + size_of::<OpData>() <= 72);
    assert!(align_of::<Record<UserMemory>>() <= 8);
    assert!(RECORD_AT + size_of::<Record<UserMemory>>() <= BLOCK_SIZE);
    assert!(BLOCK_SIZE.is_multiple_of(align_of::<Block>()));
};

/// Rows without an owner. All blocks in them are free.
static SPARE: ForkLock<Vec<Row>> = ForkLock::new(Vec::new());

/// Number of blocks in a new row; each growth doubles it.
const FIRST: u32 = 64;
/// Maximum number of blocks: 20 GiB of address space.
const MOST: usize = 64 << 20;

/// An array of blocks.
struct Row {
    reservation: Reservation,
    /// Offset at which the host reads the address.
    addr_at: usize,
    /// Number of initialized blocks, from the beginning.
    made: u32,
}

impl Row {
    fn new() -> Option<Self> {
        Some(Self {
            reservation: Reservation::new(MOST * BLOCK_SIZE)?,
            addr_at: host::facts().addr_at,
            made: 0,
        })
    }

    /// Grows the row to at least `len` blocks. Returns false without memory.
    fn reach(&mut self, len: u32) -> bool {
        let more = (len as usize * BLOCK_SIZE).saturating_sub(self.reservation.open());
        if !self.reservation.grow(more) {
            return false;
        }
        let start = self.reservation.start();
        for place in self.made..len {
            // SAFETY: within the open part, at a separate place, which has not been given out yet; each part is at its
            // offset.
            unsafe {
                let block = start.add(place as usize * BLOCK_SIZE);
                block.cast::<Block>().write(Block::default());
                block
                    .add(self.addr_at)
                    .cast::<Addr>()
                    .write(Addr::default());
                block.add(RECORD_AT).cast::<Cell>().write(Cell::default());
            }
        }
        self.made = self.made.max(len);
        true
    }
}

/// Operations of one method, in blocks that are never unmapped, because the host uses an operation's id as a pointer to
/// its block.
pub struct Blocks {
    row: Option<Row>,
    /// Address of the first block; dangling while there is none.
    start: NonNull<u8>,
    /// Offset at which the host reads the address.
    addr_at: usize,
    /// Number of blocks, free ones included.
    len: u32,
    /// Number of blocks of operations that the host knows.
    shown: usize,
    reuse_delay: u32,
}

// SAFETY: the value has its row to itself, and the contents of blocks are `Send`.
unsafe impl Send for Blocks {}

impl Default for Blocks {
    /// Reserves the address space, without blocks: later there may be none left.
    fn default() -> Self {
        let row = SPARE.lock().pop().or_else(Row::new);
        Self {
            start: NonNull::dangling(),
            addr_at: row.as_ref().map_or(0, |row| row.addr_at),
            row,
            len: 0,
            shown: 0,
            reuse_delay: host::facts().reuse_delay,
        }
    }
}

impl Blocks {
    /// Returns the number of operations that the host knows.
    #[inline]
    pub fn shown(&self) -> usize {
        self.shown
    }

    /// Returns the place of the operation with this id; `None` if there is none (any more).
    #[inline]
    pub fn find(&self, id: i64) -> Option<u32> {
        let offset = (id as usize).wrapping_sub(self.start.as_ptr().addr());
        if offset >= self.len as usize * BLOCK_SIZE || offset % BLOCK_SIZE != 0 {
            return None;
        }
        let place = (offset / BLOCK_SIZE) as u32;
        self.is_hosts(place).then_some(place)
    }

    /// Returns whether a number is or was an operation's id, here or with the method that had this row before.
    pub fn was_given_out(&self, id: i64) -> bool {
        let Some(row) = &self.row else {
            return false;
        };
        let start = row.reservation.start();
        let offset = (id as usize).wrapping_sub(start.addr().get());
        if offset / BLOCK_SIZE >= row.made as usize || offset % BLOCK_SIZE != 0 {
            return false;
        }
        // SAFETY: `made` blocks are initialized, and never unmapped.
        let block = unsafe { start.add(offset).cast::<Block>().as_ref() };
        block.op_id.load(Ordering::Relaxed) == id
    }

    /// Returns whether an operation of the host's is at this place.
    #[inline(always)]
    fn is_hosts(&self, place: u32) -> bool {
        !self.data(place).addr.is_null()
    }

    /// Returns the host's id of the operation at this place.
    #[inline(always)]
    pub fn id(&self, place: u32) -> i64 {
        // The id is the address as a number; nothing is read there.
        let offset = place as usize * BLOCK_SIZE;
        self.start.as_ptr().wrapping_add(offset) as i64
    }

    #[inline(always)]
    fn at(&self, place: u32) -> NonNull<u8> {
        if place >= self.len {
            no_place(place, self.len);
        }
        // SAFETY: `len` blocks are initialized, and never unmapped.
        unsafe { self.start.add(place as usize * BLOCK_SIZE) }
    }

    #[inline(always)]
    fn block(&self, place: u32) -> &Block {
        // SAFETY: a block begins with a `Block`.
        unsafe { self.at(place).cast().as_ref() }
    }

    #[inline(always)]
    fn cell(&self, place: u32) -> &Cell {
        // SAFETY: the record is at this offset of a block.
        unsafe { self.at(place).add(RECORD_AT).cast().as_ref() }
    }
}

/// Reports an invalid place. Not inlined, so that the numbers stay in registers where they are compared.
#[cold]
fn no_place(place: u32, len: u32) -> ! {
    panic!("no place {place} of {len}")
}

impl OpStorage<UserMemory, OpData> for Blocks {
    /// Keeps a stale id stale for a while. Hosts of the stand-alone BMI cancel late: Mercury cancels all operations of
    /// a transfer that times out, including those reported long before.
    #[inline(always)]
    fn reuse_delay(&self) -> u32 {
        self.reuse_delay
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.len
    }

    fn grow(&mut self) -> bool {
        let len = self.len.saturating_mul(2).max(FIRST);
        let Some(row) = &mut self.row else {
            return false;
        };
        let grown = row.reach(len);
        if grown {
            (self.start, self.len) = (row.reservation.start(), len);
        }
        grown
    }

    #[inline(always)]
    fn record(&self, place: u32) -> &Record<UserMemory> {
        // SAFETY: `&self` excludes mutation, and no other caller has this row.
        unsafe { &*self.cell(place).get() }
    }

    #[inline(always)]
    fn record_mut(&mut self, place: u32) -> &mut Record<UserMemory> {
        // SAFETY: `&mut self` excludes every other reference, and no other caller has this row.
        unsafe { &mut *self.cell(place).get() }
    }

    #[inline(always)]
    fn data(&self, place: u32) -> &OpData {
        // SAFETY: as in `record`.
        unsafe { &*self.block(place).word.get() }
    }

    #[inline(always)]
    fn data_mut(&mut self, place: u32) -> &mut OpData {
        // SAFETY: as in `record_mut`.
        unsafe { &mut *self.block(place).word.get() }
    }

    /// Publishes an operation of the host's to the host.
    #[inline(always)]
    fn on_use<R>(
        &mut self,
        place: u32,
        begin: impl FnOnce() -> (R, OpData),
    ) -> (R, &mut Record<UserMemory>) {
        let at = self.at(place);
        // SAFETY: a block has each of them at this offset.
        let (block, shown, cell) = unsafe {
            let block = at.cast::<Block>().as_ref();
            let shown = at.add(self.addr_at).cast::<Addr>().as_ref();
            (block, shown, at.add(RECORD_AT).cast::<Cell>().as_ref())
        };
        let (memory, word) = begin();
        if !word.addr.is_null() {
            shown.store(word.addr, Ordering::Relaxed);
            block.op_id.store(at.as_ptr() as i64, Ordering::Release);
            self.shown += 1;
        }
        // SAFETY: as in `record_mut`; these are two cells, and the earlier data has nothing to drop.
        unsafe {
            block.word.get().write(word);
            (memory, &mut *cell.get())
        }
    }

    /// Makes the id stale. The words that the host reads stay.
    #[inline(always)]
    fn on_free(&mut self, place: u32) -> &mut Record<UserMemory> {
        if self.is_hosts(place) {
            self.data_mut(place).addr = ptr::null_mut();
            self.shown -= 1;
        }
        self.record_mut(place)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for place in 0..self.len {
            *self.on_free(place) = Record::default();
            *self.data_mut(place) = OpData::default();
        }
        SPARE.lock().extend(self.row.take());
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocks({} of {} shown)", self.shown, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDR_AT: usize = 72;
    use std::time::Duration;

    fn addr(number: usize) -> *mut bmi_method_addr {
        ptr::without_provenance_mut(number)
    }

    /// Makes blocks of which every other one is shown.
    fn blocks(len: u32) -> Blocks {
        let mut blocks = Blocks::default();
        while blocks.len() < len {
            assert!(blocks.grow());
        }
        for place in (0..len).step_by(2) {
            let word = OpData {
                addr: addr(0x1000 + place as usize),
                ..OpData::default()
            };
            blocks.on_use(place, || ((), word));
        }
        blocks
    }

    #[test]
    fn operation_ids_are_unique_and_other_numbers_are_none() {
        assert_eq!(Blocks::default().find(0), None);
        let mut blocks = blocks(200);
        assert_eq!((blocks.len(), blocks.shown()), (256, 100));
        // Every byte of the whole range, and of as much before and after.
        let (first, span) = (blocks.id(0), 256 * BLOCK_SIZE as i64);
        for id in first - span..first + 2 * span {
            let place = u32::try_from((id - first).div_euclid(BLOCK_SIZE as i64)).ok();
            let whole = (id - first) % BLOCK_SIZE as i64 == 0;
            let place = place.filter(|place| whole && *place < 200 && place % 2 == 0);
            assert_eq!(blocks.find(id), place, "{}", id - first);
        }
        for nonsense in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(blocks.find(nonsense), None);
        }
        // An id is invalid once its block is free, and so is another method's.
        let (id, other) = (blocks.id(4), self::blocks(64));
        assert_eq!((blocks.find(id), other.find(id)), (Some(4), None));
        blocks.on_free(4);
        assert_eq!((blocks.find(id), blocks.shown()), (None, 99));
    }

    #[test]
    fn host_reads_id_and_address_even_after_completion() {
        let mut blocks = blocks(64);
        let words = ptr::with_exposed_provenance::<u64>(blocks.id(6) as usize);
        // SAFETY: a block, which is larger and never unmapped.
        let read = |at| unsafe { words.add(at).read() };
        let (id, shown) = (blocks.id(6), (blocks.id(6) as u64, 0x1006));
        assert_eq!((read(0), read(ADDR_AT / 8)), shown);
        blocks.on_free(6);
        assert_eq!(
            (blocks.find(id), read(0), read(ADDR_AT / 8)),
            (None, shown.0, shown.1)
        );
        // Used for an internal operation.
        blocks.on_use(6, || ((), OpData::default()));
        assert_eq!(
            (blocks.find(id), read(0), read(ADDR_AT / 8)),
            (None, shown.0, shown.1)
        );
        blocks.on_free(6);
        drop(blocks);
        assert_eq!((read(0), read(ADDR_AT / 8)), shown);
    }

    #[test]
    fn an_id_that_was_given_out_is_told_from_other_numbers() {
        let mut blocks = blocks(64);
        let id = blocks.id(4);
        // A concurrent test may have given out places in a row used before.
        assert!(blocks.was_given_out(id));
        assert!(!blocks.was_given_out(id + 8) && !blocks.was_given_out(0));
        assert!(!blocks.was_given_out(id - 5 * BLOCK_SIZE as i64));
        blocks.on_free(4);
        assert!(blocks.was_given_out(id) && blocks.find(id).is_none());
        blocks.row = None;
        assert!(!blocks.was_given_out(id));
    }

    #[test]
    fn what_is_none_of_the_hosts_has_no_id() {
        let mut blocks = blocks(64);
        blocks.on_use(1, || ((), OpData::default()));
        assert_eq!((blocks.find(blocks.id(1)), blocks.shown()), (None, 32));
        blocks.on_free(1);
        assert_eq!(blocks.shown(), 32);
        // An internal operation, such as a send that the host takes for complete.
        let id = blocks.id(2);
        blocks.on_free(2);
        blocks.on_use(2, || ((), OpData::default()));
        assert_eq!((blocks.find(id), blocks.shown()), (None, 31));
    }

    #[test]
    fn the_row_of_a_method_that_is_gone_serves_the_next() {
        let first = blocks(64);
        let id = first.id(2);
        assert_eq!(first.find(id), Some(2));
        drop(first);
        // A concurrent test may have taken it meanwhile.
        let found = (0..10_000).any(|_| {
            let mut all: Vec<Blocks> = (0..64).map(|_| Blocks::default()).collect();
            let found = all.iter_mut().any(|blocks| {
                assert!(blocks.grow() && blocks.shown() == 0 && blocks.find(id).is_none());
                blocks.id(2) == id
            });
            std::thread::sleep(Duration::from_millis(1));
            found
        });
        assert!(found);
    }
}
