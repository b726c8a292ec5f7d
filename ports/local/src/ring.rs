//! A direction of a link: cells and a data area in shared memory, one producer, one consumer.
//!
//! ```text
//!            tail (published by the consumer, in batches)      head (private to the producer)
//!              |                                                 |
//!   cells  ... [ packet | packet | packet |  ...                 ) empty ...
//!                 |         `--- body up to 88 bytes inside
//!                 `--- longer bodies are stored in order in the data area, or, if that is full,
//!                      in the far area (offsets implied)
//! ```
//!
//! A packet is published by storing its cell's flag word last; the flag carries the lap, so the
//! consumer reads only its next cell. Consumers free space in batches, and producers read the tails
//! only when the known space is used up.
//!
//! The other side is another process and may write anything anywhere at any time. So everything read is checked before
//! use, each word is read once, positions are private to the reader and never come from shared memory, and bytes are
//! moved with raw copies, never borrowed. The worst that a hostile peer can cause is wrong bytes in its own packets, or
//! [`Corrupt`].
//!
//! Owns: positions in one ring, the sleeping and waiting words.
//! Out of scope: descriptors, handshakes, links.

use super::barrier;
use super::layout::{
    BODY_MAX, CELL, CELL_TAIL_AT, DATA_ALIGN, DATA_BATCH, DATA_TAIL_AT, FAR_TAIL_AT, Geometry,
    HEADER_AT, INLINE_AT, INLINE_MAX, LEAVING_AT, RING_HEAD, SLEEPING_AT, UNTIL_AT, WAITING_AT,
};
use super::shared::Shared;
use mx_proto::memory::{Memory, Source};
use mx_proto::port::{Body, HEADER_LEN, HeaderBytes};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// Error: the peer wrote values that no correct peer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Corrupt;

/// Reasons why a packet was not put into a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PushError {
    /// The ring has no room.
    Full,
    /// The body is longer than [`BODY_MAX`].
    TooLong,
    /// The consumer's tails are impossible.
    Corrupt,
}

/// Creates both ends of a link's fresh rings, for `side` 0 (initiator) or 1 (acceptor). `memory` is `geometry.total()`
/// bytes long. `asymmetric`: see [`barrier`].
pub(super) fn ends(
    memory: Shared,
    geometry: Geometry,
    side: usize,
    asymmetric: bool,
) -> (Producer, Consumer) {
    debug_assert!(geometry.is_acceptable() && side < 2);
    (
        Producer::new(Ring::new(memory, geometry, side, asymmetric)),
        Consumer::new(Ring::new(memory, geometry, 1 - side, asymmetric)),
    )
}

/// Number of looks at a full data area before the far area is used. A consumer that is copying frees space sooner, and
/// the data area is in a cache.
pub(super) const LOOKS_BEFORE_FAR: u32 = 64;

/// Sending end of a ring.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Ring,
    /// Position of the next cell to fill.
    head: u64,
    /// Position of the next byte of the data area to fill.
    data_head: u64,
    /// Consumer's position at the last check. `head - cell_tail` never exceeds the cells.
    cell_tail: u64,
    /// Consumer's position in the data area at the last check.
    data_tail: u64,
    /// Both positions of the far area.
    far_head: u64,
    far_tail: u64,
    /// Length of the body that found no room, in bytes.
    wanted: usize,
    /// Consecutive looks at a data area without room; after [`LOOKS_BEFORE_FAR`] the far area is used.
    looks: u32,
    /// Cells that may be used: 0 while it accepts nothing, all otherwise.
    cells: u64,
    /// True once it accepts nothing any more.
    retired: bool,
    /// True while it accepts only the rest of a long body.
    midway: bool,
    /// Last value of [`Producer::set_waiting`].
    waiting: bool,
}

impl Producer {
    /// Creates the sending end of a fresh ring.
    fn new(ring: Ring) -> Self {
        Self {
            cells: ring.cells,
            ring,
            head: 0,
            data_head: 0,
            cell_tail: 0,
            data_tail: 0,
            far_head: 0,
            far_tail: 0,
            wanted: 0,
            looks: 0,
            retired: false,
            midway: false,
            waiting: false,
        }
    }

    /// Copies one packet into the ring and publishes it. Returns true if the consumer sleeps and has to be woken.
    #[inline(always)]
    pub(super) fn push<M: Memory>(
        &mut self,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> Result<bool, PushError> {
        let len = body.len();
        let in_cell = len <= INLINE_MAX;
        let room = self.head.wrapping_sub(self.cell_tail) < self.cells
            && (in_cell || (len <= BODY_MAX && self.data_room() >= padded(len)));
        let far = !room && self.make_room(len)?;
        let cell = self.ring.cell(self.head);
        // Words go from registers to the ring; bytes would go through the stack.
        for (n, bytes) in header.as_chunks().0.iter().enumerate() {
            let word = cell.at(HEADER_AT + 8 * n).long();
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        if in_cell {
            let room = cell.at(INLINE_AT).first(INLINE_MAX);
            match body.piece() {
                Some(piece) if piece.len() == len => room.write(piece),
                _ => write_body(body, Room::new(room, len)),
            }
        } else {
            let (area, head) = if far {
                (&self.ring.far, &mut self.far_head)
            } else {
                (&self.ring.data, &mut self.data_head)
            };
            write_body(body, area.room(*head, len));
            *head = head.wrapping_add(padded(len));
        }
        let flag = self.ring.flag_word(self.head, len, far);
        cell.long().store(flag, Ordering::Release);
        self.head = self.head.wrapping_add(1);
        barrier::light(self.ring.asymmetric);
        Ok(self.ring.sleeping().load(Ordering::Relaxed) != 0 && self.ring.take_sleeping())
    }

    /// Returns true if the rejected body would fit now, and some packets after it.
    pub(super) fn has_room(&mut self) -> Result<bool, Corrupt> {
        if self.retired {
            return Ok(false);
        }
        self.look_at_tails()?;
        let cells = self.head.wrapping_sub(self.cell_tail) <= self.ring.cells - self.ring.cells / 8;
        if self.wanted <= INLINE_MAX || self.data_room() >= padded(self.wanted) {
            return Ok(cells);
        }
        self.looks = self.looks.saturating_add(1);
        Ok(cells && self.fits_far(self.wanted))
    }

    /// Asks the consumer to wake us once half of the used space is free, or withdraws that. Returns true if it has rung
    /// meanwhile, or is about to. Before sleeping call [`barrier::heavy`] and check [`Producer::has_room`].
    pub(super) fn set_waiting(&mut self, waiting: bool) -> bool {
        if waiting {
            self.looks = LOOKS_BEFORE_FAR;
        }
        let half = self.head.wrapping_sub(self.cell_tail).div_ceil(2);
        let until = self.cell_tail.wrapping_add(half);
        self.ring.until().store(until, Ordering::Relaxed);
        let taken = self.ring.waiting().swap(waiting.into(), Ordering::Release) == 0;
        std::mem::replace(&mut self.waiting, waiting) && taken
    }

    /// Returns true, once, if the consumer has rung since [`Producer::set_waiting`] or is about to.
    pub(super) fn is_rung(&mut self) -> bool {
        let rung = self.waiting && self.ring.waiting().load(Ordering::Relaxed) == 0;
        self.waiting &= !rung;
        rung
    }

    /// Announces to the consumer that Suspend will come over the socket, perhaps in one kernel report with a wake-up.
    pub(super) fn leave(&self) {
        self.ring.leaving().store(1, Ordering::Release);
    }

    /// Accepts nothing any more, as if the ring were full.
    pub(super) fn retire(&mut self) {
        self.retired = true;
        self.cells = 0;
    }

    /// Accepts only the rest of a long body, or everything again.
    pub(super) fn set_midway(&mut self, midway: bool) {
        self.midway = midway;
        self.cells = if self.midway || self.retired {
            0
        } else {
            self.ring.cells
        };
    }

    /// Returns true after [`Producer::retire`].
    pub(super) fn is_retired(&self) -> bool {
        self.retired
    }

    /// Number of packets pushed.
    pub(super) fn sent(&self) -> u64 {
        self.head
    }

    /// Returns true if a long body fits in the far area and should go there because the consumer is not copying.
    fn fits_far(&self, len: usize) -> bool {
        self.looks >= LOOKS_BEFORE_FAR && self.far_room() >= padded(len)
    }

    #[inline]
    fn data_room(&self) -> u64 {
        self.ring.data.len - self.data_head.wrapping_sub(self.data_tail)
    }

    #[inline]
    fn far_room(&self) -> u64 {
        self.ring.far.len - self.far_head.wrapping_sub(self.far_tail)
    }

    /// Looks for room for a body; returns true if it is in the far area.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, len: usize) -> Result<bool, PushError> {
        if len > BODY_MAX {
            return Err(PushError::TooLong);
        }
        if self.retired || self.midway {
            return Err(PushError::Full);
        }
        self.look_at_tails().map_err(|Corrupt| PushError::Corrupt)?;
        let cell = self.head.wrapping_sub(self.cell_tail) < self.ring.cells;
        let near = len <= INLINE_MAX || self.data_room() >= padded(len);
        if near {
            self.looks = 0;
        }
        if cell && (near || self.fits_far(len)) {
            Ok(!near)
        } else {
            self.wanted = len;
            Err(PushError::Full)
        }
    }

    /// Reads the consumer's tails and checks that they are between their last values and the heads, so that a ring
    /// never seems to contain more than it holds.
    fn look_at_tails(&mut self) -> Result<(), Corrupt> {
        let cell_tail = self.ring.cell_tail().load(Ordering::Acquire);
        let data_tail = self.ring.data_tail().load(Ordering::Acquire);
        let far_tail = self.ring.far_tail().load(Ordering::Acquire);
        if cell_tail.wrapping_sub(self.cell_tail) > self.head.wrapping_sub(self.cell_tail)
            || data_tail.wrapping_sub(self.data_tail) > self.data_head.wrapping_sub(self.data_tail)
            || far_tail.wrapping_sub(self.far_tail) > self.far_head.wrapping_sub(self.far_tail)
        {
            return Err(Corrupt);
        }
        self.cell_tail = cell_tail;
        self.data_tail = data_tail;
        self.far_tail = far_tail;
        Ok(())
    }
}

/// Receiving end of a ring.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Ring,
    /// Position of the next cell to read.
    tail: u64,
    /// Address of the next cell, and the low half of its flag while it is empty.
    cell: Shared,
    empty: u32,
    /// Position of the next long body in the data area.
    data_tail: u64,
    /// Position of the next long body in the far area.
    far_tail: u64,
    /// Tails that the producer has been told.
    published: u64,
    data_published: u64,
    far_published: u64,
    /// True if the producer waits for more space than has been freed.
    held: bool,
    /// Last value of [`Consumer::set_sleeping`].
    sleeping: bool,
}

/// Contents of the next cell.
#[derive(Debug)]
pub(super) struct Packet {
    /// Copy of the packet's header.
    pub(super) header: HeaderBytes,
    /// Body of the packet, still in shared memory.
    pub(super) body: SharedBody,
}

impl Consumer {
    /// Creates the receiving end of a fresh ring.
    fn new(ring: Ring) -> Self {
        Self {
            tail: 0,
            cell: ring.cell(0),
            empty: ring.tag(0).wrapping_sub(1),
            ring,
            data_tail: 0,
            far_tail: 0,
            published: 0,
            data_published: 0,
            far_published: 0,
            held: false,
            sleeping: false,
        }
    }

    /// Moves on to the cell of this position.
    #[inline(always)]
    fn go_to(&mut self, tail: u64) {
        self.tail = tail;
        self.cell = self.ring.cell(tail);
        self.empty = self.ring.tag(tail).wrapping_sub(1);
    }

    /// Returns the flag word of the next cell.
    #[inline(always)]
    fn flag(&self) -> u64 {
        self.cell.long().load(Ordering::Acquire)
    }

    /// Returns true if the next cell has a packet, or is corrupt.
    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        self.flag() as u32 != self.empty
    }

    /// Returns the next packet, if there is one. The packet stays in the ring until [`Consumer::release`].
    #[inline(always)]
    pub(super) fn peek(&self) -> Result<Option<Packet>, Corrupt> {
        let flag = self.flag();
        if flag as u32 == self.empty {
            return Ok(None);
        }
        if flag as u32 != self.empty.wrapping_add(1) {
            return Err(Corrupt);
        }
        let far = flag & FAR != 0;
        let (len, cell) = (((flag & !FAR) >> 32) as usize, self.cell);
        let words: [u64; HEADER_LEN / 8] = cell.at(HEADER_AT).words();
        let mut header: HeaderBytes = [0; HEADER_LEN];
        for (bytes, word) in header.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        let body = if len <= INLINE_MAX && !far {
            let first = cell.at(INLINE_AT);
            SharedBody {
                first,
                first_len: len,
                second: first,
                len,
                far,
            }
        } else {
            self.long_body(len, far)?
        };
        Ok(Some(Packet { header, body }))
    }

    /// Returns the body of the next packet, which is outside its cell.
    #[inline(always)]
    fn long_body(&self, len: usize, far: bool) -> Result<SharedBody, Corrupt> {
        if len > BODY_MAX || len <= INLINE_MAX || (far && self.ring.far.len == 0) {
            return Err(Corrupt);
        }
        Ok(if far {
            self.ring.far.body(self.far_tail, len, far)
        } else {
            self.ring.data.body(self.data_tail, len, far)
        })
    }

    /// Releases the packet that [`Consumer::peek`] returned, with this body. Returns true if the producer waits for
    /// room and has to be woken.
    #[inline]
    pub(super) fn release(&mut self, body: &SharedBody) -> bool {
        let len = body.len;
        self.go_to(self.tail.wrapping_add(1));
        let mut batch = self.tail.wrapping_sub(self.published) >= self.ring.cells / 4;
        if body.far {
            self.far_tail = self.far_tail.wrapping_add(padded(len));
            batch |= self.far_tail.wrapping_sub(self.far_published) >= DATA_BATCH;
        } else if len > INLINE_MAX {
            self.data_tail = self.data_tail.wrapping_add(padded(len));
            batch |= self.data_tail.wrapping_sub(self.data_published) >= DATA_BATCH;
        }
        batch && self.publish()
    }

    /// Publishes the tails of a ring that has become empty, if its producer still waits for more space: no later packet
    /// would lead to waking it. Returns true if the producer has to be woken.
    #[inline]
    pub(super) fn finish(&mut self) -> bool {
        self.held && !self.is_ready() && {
            let rung = self.publish();
            self.held = false;
            rung || self.ring.waiting().swap(0, Ordering::Relaxed) != 0
        }
    }

    /// Sets whether we sleep. Before sleeping call [`barrier::heavy`] and check [`Consumer::is_ready`]. Returns true if
    /// the producer has rung meanwhile, or is about to.
    pub(super) fn set_sleeping(&mut self, sleeping: bool) -> bool {
        let taken = self
            .ring
            .sleeping()
            .swap(sleeping.into(), Ordering::Relaxed)
            == 0;
        std::mem::replace(&mut self.sleeping, sleeping) && taken
    }

    /// Returns true, once, if the producer has rung since [`Consumer::set_sleeping`] or is about to.
    pub(super) fn is_rung(&mut self) -> bool {
        let rung = self.sleeping && !self.is_sleeping();
        self.sleeping &= !rung;
        rung
    }

    /// Returns true until the producer responds to [`Consumer::set_sleeping`].
    pub(super) fn is_sleeping(&self) -> bool {
        self.ring.sleeping().load(Ordering::Relaxed) != 0
    }

    /// Returns true once the producer is about to send Suspend.
    pub(super) fn is_left(&self) -> bool {
        self.ring.leaving().load(Ordering::Acquire) != 0
    }

    /// Number of packets released.
    pub(super) fn taken(&self) -> u64 {
        self.tail
    }

    /// Maximum number of packets in the ring.
    pub(super) fn most(&self) -> u64 {
        self.ring.cells
    }

    /// Returns true if all packets before `until` have been released. The peer's `until` is used for nothing else.
    fn is_enough(&self, until: u64) -> bool {
        until.wrapping_sub(self.tail).wrapping_sub(1) >= self.ring.cells
    }

    #[inline(never)]
    fn publish(&mut self) -> bool {
        self.published = self.tail;
        self.data_published = self.data_tail;
        self.far_published = self.far_tail;
        self.ring.cell_tail().store(self.tail, Ordering::Release);
        self.ring
            .data_tail()
            .store(self.data_tail, Ordering::Release);
        self.ring.far_tail().store(self.far_tail, Ordering::Release);
        barrier::light(self.ring.asymmetric);
        let waiting = self.ring.waiting().load(Ordering::Acquire) != 0;
        let enough = waiting && self.is_enough(self.ring.until().load(Ordering::Relaxed));
        self.held = waiting && !enough;
        enough && self.ring.waiting().swap(0, Ordering::Relaxed) != 0
    }
}

/// Body in shared memory, in one piece or in two around the end of the data area.
///
/// The peer can change the bytes at any time, so they are only ever copied out.
#[derive(Clone, Copy, Debug)]
pub struct SharedBody {
    first: Shared,
    first_len: usize,
    second: Shared,
    len: usize,
    /// True if the body is in the far area.
    far: bool,
}

/// Bit of a cell's flag: the body is in the far area.
const FAR: u64 = 1 << 63;

impl Source for SharedBody {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        match at.checked_add(into.len()) {
            Some(end) if end <= self.first_len => {
                self.first.at(at).read(into);
            }
            _ => { *self }.copy_around(at, into),
        }
        // The caller's copy is volatile, too: the source must not be read again.
        compiler_fence(Ordering::SeqCst);
    }
}

impl SharedBody {
    /// Empty body.
    pub const NONE: Self = Self {
        first: Shared::NONE,
        first_len: 0,
        second: Shared::NONE,
        len: 0,
        far: false,
    };

    /// Copies bytes that end in the second piece, or begin after the first.
    #[inline(never)]
    fn copy_around(&self, at: usize, into: &mut [u8]) {
        let n = into.len().min(self.len.saturating_sub(at));
        let (into, rest) = into[..n].split_at_mut(n.min(self.first_len.saturating_sub(at)));
        if !into.is_empty() {
            self.first.at(at).read(into);
        }
        if !rest.is_empty() {
            self.second.at(at + into.len() - self.first_len).read(rest);
        }
    }
}

/// Pointers to one ring, and arithmetic on positions. Positions count up without limit and wrap.
#[derive(Debug)]
struct Ring {
    head: Shared,
    cell_base: Shared,
    data: Area,
    far: Area,
    /// Number of cells, a power of two.
    cells: u64,
    cell_shift: u32,
    asymmetric: bool,
}

/// Area of consecutive long bodies.
#[derive(Debug)]
struct Area {
    base: Shared,
    /// Bytes, a power of two, or 0.
    len: u64,
}

impl Area {
    /// Returns the memory for `len` bytes from `position` on, at most BODY_MAX and no more than the area has.
    #[inline]
    fn room(&self, position: u64, len: usize) -> Room {
        let at = (position & (self.len - 1)) as usize;
        let here = len.min(self.len as usize - at);
        Room {
            next: self.base.at(at),
            here,
            second: self.base,
            there: len - here,
        }
    }

    #[inline]
    fn body(&self, position: u64, len: usize, far: bool) -> SharedBody {
        let at = (position & (self.len - 1)) as usize;
        let first_len = len.min(self.len as usize - at);
        SharedBody {
            first: self.base.at(at),
            first_len,
            second: self.base,
            len,
            far,
        }
    }
}

impl Ring {
    fn new(memory: Shared, geometry: Geometry, ring: usize, asymmetric: bool) -> Self {
        let part = |at, len: u32| memory.at(at).first(len as usize);
        let area = |at, len: u32| Area {
            base: part(at, len),
            len: len.into(),
        };
        Self {
            head: part(geometry.head_at(ring), RING_HEAD as u32),
            cell_base: part(geometry.cells_at(ring), geometry.cells * CELL as u32),
            data: area(geometry.data_at(ring), geometry.data),
            far: area(geometry.far_at(ring), geometry.far),
            cells: geometry.cells.into(),
            cell_shift: geometry.cells.trailing_zeros(),
            asymmetric,
        }
    }

    #[inline(always)]
    fn cell(&self, position: u64) -> Shared {
        let index = (position & (self.cells - 1)) as usize;
        self.cell_base.at(index * CELL)
    }

    /// Returns the low half of a cell's flag when the packet at `position` is in it. A cell not yet written in this lap
    /// has one less: the previous lap, or 0 in fresh memory.
    #[inline(always)]
    fn tag(&self, position: u64) -> u32 {
        ((position >> self.cell_shift) as u32).wrapping_add(1)
    }

    #[inline(always)]
    fn flag_word(&self, position: u64, len: usize, far: bool) -> u64 {
        let area = if far { FAR } else { 0 };
        area | (len as u64) << 32 | u64::from(self.tag(position))
    }

    #[inline(always)]
    fn cell_tail(&self) -> &AtomicU64 {
        self.head.at(CELL_TAIL_AT).long()
    }

    #[inline(always)]
    fn data_tail(&self) -> &AtomicU64 {
        self.head.at(DATA_TAIL_AT).long()
    }

    #[inline(always)]
    fn far_tail(&self) -> &AtomicU64 {
        self.head.at(FAR_TAIL_AT).long()
    }

    #[inline(always)]
    fn sleeping(&self) -> &AtomicU32 {
        self.head.at(SLEEPING_AT).short()
    }

    #[inline(always)]
    fn waiting(&self) -> &AtomicU32 {
        self.head.at(WAITING_AT).short()
    }

    #[inline(always)]
    fn leaving(&self) -> &AtomicU32 {
        self.head.at(LEAVING_AT).short()
    }

    #[inline(always)]
    fn until(&self) -> &AtomicU64 {
        self.head.at(UNTIL_AT).long()
    }

    /// Claims the right to ring a sleeper's doorbell, which one of many packets gets.
    #[cold]
    fn take_sleeping(&self) -> bool {
        self.sleeping().swap(0, Ordering::Relaxed) != 0
    }
}

/// Visits the bytes of a body, piece by piece.
pub(super) fn visit<M: Memory>(body: &Body<'_, M>, mut put: impl FnMut(&[u8])) {
    match body {
        Body::Bytes(bytes) => put(bytes),
        Body::Memory {
            memory,
            offset,
            len,
        } => memory.visit(*offset, *len, put),
    }
}

/// Writes a body to `room`, and never more than fits.
#[inline(never)]
fn write_body<M: Memory>(body: &Body<'_, M>, mut room: Room) {
    visit(body, |piece| room.put(piece));
}

/// Memory to write a body to, in one piece or in two around the end of an area.
#[derive(Debug)]
struct Room {
    /// Rest of the piece that is being filled.
    next: Shared,
    here: usize,
    /// Second piece.
    second: Shared,
    there: usize,
}

impl Room {
    /// Creates a room of one piece.
    fn new(at: Shared, len: usize) -> Self {
        Self {
            next: at,
            here: len,
            second: at,
            there: 0,
        }
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > self.here {
            return self.put_around(bytes);
        }
        self.next.write(bytes);
        self.next = self.next.at(bytes.len());
        self.here -= bytes.len();
    }

    /// Writes bytes that end in the second piece, or begin after the first.
    #[cold]
    #[inline(never)]
    fn put_around(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(self.here);
        let rest = &rest[..rest.len().min(self.there)];
        self.next.write(first);
        self.second.write(rest);
        self.next = self.second.at(rest.len());
        self.here = self.there - rest.len();
        self.there = 0;
    }
}

/// Returns the bytes that a long body takes in the data area.
#[inline(always)]
fn padded(len: usize) -> u64 {
    (len as u64).next_multiple_of(DATA_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_port_base::sealed::Region;

    const SMALL: Geometry = Geometry::SMALLEST;

    struct Pair {
        producer: Producer,
        consumer: Consumer,
        _region: Region,
    }

    /// Creates both ends of a ring that has been used for `cells` packets and `data` bytes of long bodies.
    fn pair_at(cells: u64, data: u64) -> Pair {
        pair_of(SMALL, cells, data)
    }

    fn pair_of(geometry: Geometry, cells: u64, data: u64) -> Pair {
        let (region, _fd) = Region::create(c"test", geometry.total()).unwrap();
        // SAFETY: the region lives as long as the ends.
        let memory = unsafe { Shared::of(&region) };
        let mut producer = Producer::new(Ring::new(memory, geometry, 0, true));
        let mut consumer = Consumer::new(Ring::new(memory, geometry, 0, true));
        for ring in [&producer.ring, &consumer.ring] {
            for back in 1..=ring.cells {
                let position = cells.wrapping_sub(back);
                ring.cell(position)
                    .long()
                    .store(ring.flag_word(position, 0, false), Ordering::Relaxed);
            }
            ring.cell_tail().store(cells, Ordering::Relaxed);
            ring.data_tail().store(data, Ordering::Relaxed);
        }
        (producer.head, producer.cell_tail) = (cells, cells);
        (producer.data_head, producer.data_tail) = (data, data);
        consumer.go_to(cells);
        consumer.published = cells;
        (consumer.data_tail, consumer.data_published) = (data, data);
        Pair {
            producer,
            consumer,
            _region: region,
        }
    }

    fn header(len: usize, word: u8) -> HeaderBytes {
        mx_sim::header_of(word, len)
    }

    fn push(producer: &mut Producer, bytes: &[u8], word: u8) -> Result<bool, PushError> {
        producer.push::<Vec<u8>>(&header(bytes.len(), word), &Body::Bytes(bytes))
    }

    /// Looks until the far area is used; returns whether there is room then.
    fn has_room_at_last(producer: &mut Producer) -> bool {
        (0..=LOOKS_BEFORE_FAR).any(|_| producer.has_room() == Ok(true))
    }

    fn pop(consumer: &mut Consumer) -> Option<(u8, Vec<u8>)> {
        let packet = consumer.peek().unwrap()?;
        let bytes = packet.body.to_vec();
        consumer.release(&packet.body);
        Some((packet.header[0], bytes))
    }

    fn pattern(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + seed * 7) as u8).collect()
    }

    #[test]
    fn every_length_around_the_limits_arrives_as_it_was() {
        let mut pair = pair_at(0, 0);
        let lengths = (0..=200).chain([1023, 1024, 4097, 32768, BODY_MAX - 1, BODY_MAX]);
        for len in lengths {
            let bytes = pattern(len, len);
            assert_eq!(push(&mut pair.producer, &bytes, len as u8), Ok(false));
            assert_eq!(
                pop(&mut pair.consumer),
                Some((len as u8, bytes)),
                "{len} bytes"
            );
            assert_eq!(pop(&mut pair.consumer), None);
        }
        assert_eq!(
            push(&mut pair.producer, &[0; BODY_MAX + 1], 0),
            Err(PushError::TooLong)
        );
    }

    #[test]
    fn a_body_in_pieces_arrives_in_one() {
        struct Pieces(Vec<Vec<u8>>);
        impl Memory for Pieces {
            fn len(&self) -> usize {
                self.0.iter().map(Vec::len).sum()
            }
            fn visit(&self, offset: usize, len: usize, mut visitor: impl FnMut(&[u8])) {
                let all = self.0.concat();
                let wanted = &all[offset..offset + len];
                wanted.chunks(7).for_each(&mut visitor);
                // Write more than requested.
                visitor(&[0xee; 64]);
            }
            fn visit_mut(&mut self, _: usize, _: usize, _: impl FnMut(&mut [u8])) {}
        }
        let bytes = pattern(5000, 1);
        let memory = Pieces(vec![bytes[..123].to_vec(), bytes[123..].to_vec()]);
        // The end of the data area lies after both pieces, between them, and in one.
        for data in [0, 64 * 1024 - 7 * 64, 64 * 1024 - 192] {
            let mut pair = pair_at(0, data);
            for (offset, len) in [(0, 5000), (100, 50), (4990, 10), (3, 0)] {
                let body = Body::Memory {
                    memory: &memory,
                    offset,
                    len,
                };
                pair.producer.push(&header(len, 1), &body).unwrap();
                assert_eq!(
                    pop(&mut pair.consumer),
                    Some((1, bytes[offset..offset + len].to_vec()))
                );
            }
        }
    }

    #[test]
    fn all_positions_wrap() {
        // Positions of cells and data, and the lap number in the flags.
        let laps = u64::from(u32::MAX) * u64::from(SMALL.cells);
        for (cells, data) in [
            (u64::MAX - 50, u64::MAX - 64 * 1024 + 1),
            (laps - 40, 0),
            (laps - 1, 128 * 1024 - 64),
            (0, 128 * 1024 - 128),
        ] {
            let mut pair = pair_at(cells, data);
            for round in 0..300 {
                let bytes = pattern([5, 100, 9000, 0, 33000][round % 5], round);
                assert_eq!(
                    push(&mut pair.producer, &bytes, round as u8),
                    Ok(false),
                    "{round}"
                );
                assert!(pair.consumer.is_ready());
                assert_eq!(
                    pop(&mut pair.consumer),
                    Some((round as u8, bytes)),
                    "{round}"
                );
                assert!(!pair.consumer.is_ready());
            }
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_a_batch_was_consumed() {
        let mut pair = pair_at(u64::MAX - 10, 0);
        let cells = SMALL.cells as usize;
        for at in 0..cells {
            assert_eq!(push(&mut pair.producer, &[at as u8], 0), Ok(false));
        }
        assert_eq!(push(&mut pair.producer, &[0], 0), Err(PushError::Full));
        for at in 0..cells / 4 {
            assert_eq!(
                push(&mut pair.producer, &[0], 0),
                Err(PushError::Full),
                "{at} consumed"
            );
            assert_eq!(pop(&mut pair.consumer), Some((0, vec![at as u8])));
        }
        assert_eq!(pair.producer.has_room(), Ok(true));
        assert_eq!(push(&mut pair.producer, &[99], 0), Ok(false));
    }

    #[test]
    fn an_emptied_ring_always_has_room_for_any_packet() {
        for batches in 0..40 {
            let mut pair = pair_at(7, 64 * batches);
            for round in 0..200 {
                let len = [40, BODY_MAX, 17000, 89, 15000, 16384][round % 6];
                push(&mut pair.producer, &pattern(len, round), 0).unwrap();
                assert!(pop(&mut pair.consumer).is_some());
                assert_eq!(pair.producer.has_room(), Ok(true));
            }
        }
    }

    #[test]
    fn a_full_data_area_takes_short_bodies_still() {
        let mut pair = pair_at(0, 0);
        let long = pattern(32 * 1024, 3);
        for _ in 0..SMALL.data / (32 * 1024) {
            assert_eq!(push(&mut pair.producer, &long, 0), Ok(false));
        }
        assert_eq!(push(&mut pair.producer, &long, 0), Err(PushError::Full));
        assert_eq!(push(&mut pair.producer, &[1; INLINE_MAX], 0), Ok(false));
        assert_eq!(pop(&mut pair.consumer), Some((0, long.clone())));
        assert_eq!(push(&mut pair.producer, &long, 0), Ok(false));
    }

    #[test]
    fn what_does_not_fit_goes_far_and_comes_in_order() {
        let far = Geometry {
            far: 128 * 1024,
            ..SMALL
        };
        let mut pair = pair_of(far, 7, 0);
        let mut n = 0;
        for round in 0..50 {
            let mut lens = std::collections::VecDeque::new();
            loop {
                let len = [32768, 1000, 88, BODY_MAX, 17, 20000][n % 6];
                match push(&mut pair.producer, &pattern(len, n), n as u8) {
                    Ok(_) => lens.push_back((len, n)),
                    Err(error) => {
                        assert_eq!(error, PushError::Full);
                        if !has_room_at_last(&mut pair.producer) {
                            break;
                        }
                        continue;
                    }
                }
                n += 1;
            }
            let bytes: usize = lens.iter().map(|(len, _)| len).sum();
            assert!(bytes > SMALL.data as usize || lens.len() > 20, "{round}");
            // Leave some: they stay in place while the next arrive.
            for _ in 0..lens.len() - round % 2 {
                let (len, n) = lens.pop_front().unwrap();
                assert_eq!(pop(&mut pair.consumer), Some((n as u8, pattern(len, n))));
            }
            if let Some((len, n)) = lens.pop_front() {
                assert_eq!(pop(&mut pair.consumer), Some((n as u8, pattern(len, n))));
            }
            assert_eq!(pair.producer.has_room(), Ok(true), "{round}");
        }
        assert!(pair.producer.far_head > 20 * 128 * 1024);
    }

    #[test]
    fn a_body_in_a_far_area_that_is_not_there_is_corrupt() {
        for (geometry, len, fine) in [
            (SMALL, 1000, false),
            (Geometry::STREAMING, INLINE_MAX, false),
            (Geometry::STREAMING, 1000, true),
        ] {
            let mut pair = pair_of(geometry, 0, 0);
            push(&mut pair.producer, &pattern(len, 1), 0).unwrap();
            let flag = pair.consumer.ring.cell(0).long();
            flag.store(flag.load(Ordering::Relaxed) | FAR, Ordering::Relaxed);
            assert_eq!(pair.consumer.peek().is_ok(), fine, "{len}");
        }
    }

    #[test]
    fn only_the_first_packet_after_falling_asleep_rings() {
        let mut pair = pair_at(0, 0);
        pair.consumer.set_sleeping(true);
        assert_eq!(push(&mut pair.producer, &[1], 0), Ok(true));
        assert_eq!(push(&mut pair.producer, &[2], 0), Ok(false));
        pair.consumer.set_sleeping(true);
        pair.consumer.set_sleeping(false);
        assert_eq!(push(&mut pair.producer, &[3], 0), Ok(false));
    }

    #[test]
    fn a_waiting_producer_is_rung_once_when_space_is_given_back() {
        let mut pair = pair_at(0, 0);
        for _ in 0..SMALL.cells {
            push(&mut pair.producer, &[1], 0).unwrap();
        }
        pair.producer.set_waiting(true);
        let rings: Vec<bool> = (0..SMALL.cells)
            .map(|_| {
                let packet = pair.consumer.peek().unwrap().unwrap();
                pair.consumer.release(&packet.body)
            })
            .collect();
        assert_eq!(rings.iter().filter(|rung| **rung).count(), 1);
        assert_eq!(
            rings.iter().position(|rung| *rung),
            Some(SMALL.cells as usize / 2 - 1)
        );
    }

    #[test]
    fn who_is_rung_has_room_for_what_waits() {
        let far = Geometry {
            far: 1 << 20,
            ..SMALL
        };
        for (geometry, len) in [(SMALL, 32768), (SMALL, 20), (far, 32768), (far, 4000)] {
            let mut pair = pair_of(geometry, 3, 0);
            let mut sent = 0;
            loop {
                if push(&mut pair.producer, &pattern(len, 1), 0).is_ok() {
                    sent += 1;
                } else if !has_room_at_last(&mut pair.producer) {
                    break;
                }
            }
            pair.producer.set_waiting(true);
            let rung = (0..sent).position(|_| {
                let packet = pair.consumer.peek().unwrap().unwrap();
                pair.consumer.release(&packet.body)
            });
            let rung = rung.unwrap() + 1;
            // Space is freed in batches.
            assert!(
                (sent / 2..sent / 2 + 8).contains(&rung),
                "{len}: {rung} of {sent}"
            );
            assert_eq!(pair.producer.has_room(), Ok(true), "{len}");
        }
    }

    #[test]
    fn waiting_producer_is_rung_when_the_ring_is_empty() {
        for until in [0, 4, 5, u64::MAX / 2, u64::MAX] {
            let mut pair = pair_at(0, 0);
            for len in [32768, 0, 0, 0] {
                push(&mut pair.producer, &pattern(len, 1), 0).unwrap();
            }
            let long = pattern(BODY_MAX, 1);
            assert_eq!(push(&mut pair.producer, &long, 0), Err(PushError::Full));
            pair.producer.set_waiting(true);
            pair.producer.ring.until().store(until, Ordering::Relaxed);
            let mut rung = 0;
            while let Some(packet) = pair.consumer.peek().unwrap() {
                rung += usize::from(pair.consumer.release(&packet.body));
            }
            rung += usize::from(pair.consumer.finish());
            assert_eq!((rung, pair.consumer.finish()), (1, false), "{until}");
            assert_eq!(pair.producer.has_room(), Ok(true));
        }
    }

    #[test]
    fn impossible_tails_are_corrupt_and_possible_ones_are_not() {
        for (cell_tail, data_tail, fine) in [
            (10, 0, true),
            (0, 0, true),
            (11, 0, false),
            (u64::MAX, 0, false),
            (10u64.wrapping_sub(33), 0, false),
            (10, 64, false),
            (10, 0u64.wrapping_sub(SMALL.data as u64 + 64), false),
            (u64::MAX / 2, u64::MAX / 2, false),
        ] {
            let mut pair = pair_at(0, 0);
            for _ in 0..10 {
                push(&mut pair.producer, &[1], 0).unwrap();
            }
            pair.producer
                .ring
                .cell_tail()
                .store(cell_tail, Ordering::Relaxed);
            pair.producer
                .ring
                .data_tail()
                .store(data_tail, Ordering::Relaxed);
            assert_eq!(
                pair.producer.has_room().is_ok(),
                fine,
                "{cell_tail} {data_tail}"
            );
        }
    }

    #[test]
    fn impossible_cells_are_corrupt() {
        let cases: [(u64, bool); 6] = [
            (1, true),
            (0, true),                    // nothing there yet
            (2, false),                   // a lap too far
            (u64::from(u32::MAX), false), // a lap behind
            (1 | (BODY_MAX as u64) << 32, true),
            (1 | (BODY_MAX as u64 + 1) << 32, false),
        ];
        for (flag, fine) in cases {
            let pair = pair_at(0, 0);
            pair.consumer
                .ring
                .cell(0)
                .long()
                .store(flag, Ordering::Relaxed);
            assert_eq!(pair.consumer.peek().is_ok(), fine, "{flag:#x}");
        }
    }

    #[test]
    fn reading_outside_a_body_reads_nothing() {
        let mut pair = pair_at(0, 128 * 1024 - 64);
        let bytes = pattern(200, 9);
        push(&mut pair.producer, &bytes, 0).unwrap();
        let packet = pair.consumer.peek().unwrap().unwrap();
        for at in [0, 1, 63, 64, 65, 199, 200, 201, usize::MAX] {
            for len in [0, 1, 2, 5, 9, 63, 64, 65, 300] {
                let mut into = vec![0xaa; len];
                packet.body.copy_to(at, &mut into);
                let mut expected = vec![0xaa; len];
                Source::copy_to(&bytes[..], at, &mut expected);
                assert_eq!(into, expected, "{len} bytes at {at}");
            }
        }
    }

    /// Both ends use one mapping, unlike those of a link, so that ThreadSanitizer sees them meet.
    #[test]
    fn two_threads_at_the_two_ends_get_every_packet_whole() {
        const PACKETS: usize = 5_000;
        const LENGTHS: [usize; 6] = [0, INLINE_MAX, INLINE_MAX + 1, 3_000, 33_000, BODY_MAX];
        let Pair {
            mut producer,
            mut consumer,
            _region,
        } = pair_at(u64::MAX - 100, 0);
        let bytes = |n: usize| pattern(LENGTHS[n * 7 % LENGTHS.len()], n);
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || {
                for n in 0..PACKETS {
                    while let Err(error) = push(&mut producer, &bytes(n), n as u8) {
                        assert_eq!(error, PushError::Full);
                        std::thread::yield_now();
                    }
                }
            });
            for n in 0..PACKETS {
                let (word, got) = loop {
                    match pop(&mut consumer) {
                        Some(packet) => break packet,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(word, n as u8);
                assert!(got == bytes(n), "packet {n}");
            }
            sending.join().unwrap();
        });
    }
}
