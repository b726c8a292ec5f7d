//! Send buffer: the bytes of unacknowledged segments.
//!
//! ```text
//!   block of one fragment, or of small fragments in a row      blocks:  10 KiB | 64 KiB
//!   [ header | payload ][ header | payload ][ header | pay ]            in use, or free for reuse
//!     `---- SegmentPlace ----'   `---- SegmentPlace ----'
//!     `------------- run_of: a GSO batch -----------------'
//! ```
//!
//! Owns: every accepted and unacknowledged byte, of all links of a port.
//! Out of scope: links, sequence numbers.
//! Cost: reserving, writing and releasing are O(1) for each block and allocate nothing as long as there are
//! free blocks; an idle send buffer holds nothing after [`SendBuffer::trim`].

use crate::supply::Supply;

/// Bytes before every segment's payload that are reserved for the datagram's header.
pub(super) const HEADER_SPACE: usize = 64;

/// Sizes of blocks in bytes, by class: one jumbo frame, or some fragments of a small message, or small fragments; the
/// largest GSO batch, and the largest datagram.
const CLASS_BYTES: [usize; 2] = [10 << 10, 64 << 10];

/// Number of free blocks kept of each class. 64 large ones, 4 MiB, are the most that one link has in flight.
const CLASS_SPARE: [usize; 2] = [128, 64];

/// Largest fragment in bytes, with its header, that shares a block with other fragments.
const SHARED_MAX: usize = 1 << 10;

/// Stands for no block.
const NONE: u32 = u32::MAX;

/// Place of one segment: `len` bytes, including the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentPlace {
    pub(super) block: u32,
    pub(super) at: u32,
    pub(super) len: u32,
}

impl SegmentPlace {
    pub(super) fn adjoins(self, next: Self) -> bool {
        self.block == next.block && self.at + self.len == next.at
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) place: SegmentPlace,
    /// Offset of its first byte in the fragment.
    pub(super) offset: u32,
    /// Length of its payload in bytes.
    pub(super) payload: u32,
}

#[derive(Debug)]
struct Block {
    /// Memory of the block; empty if the entry is vacant.
    bytes: Box<[u8]>,
    class: u8,
    /// Number of segments in the block that have not been released.
    live: u32,
    /// Next block of a fragment that is being written, or next vacant entry.
    next: u32,
}

/// Bytes of unacknowledged segments.
#[derive(Debug)]
pub(super) struct SendBuffer {
    blocks: Vec<Block>,
    /// Free blocks with memory, by class.
    spare: [Vec<u32>; CLASS_BYTES.len()],
    /// First entry without memory.
    vacant: u32,
    /// Block that takes the next small fragments, and the number of its bytes that are taken.
    open: u32,
    taken: usize,
    bytes: usize,
    limit: usize,
    supply: Supply,
}

/// A fragment that is being written.
///
/// The fragment must be written to its end, because the reserved memory is released with its segments.
#[derive(Debug)]
pub(super) struct Writer {
    block: u32,
    /// Offset of the current segment in the block.
    at: u32,
    /// Payload length of the current segment; `filled`: bytes of it already written.
    size: u32,
    filled: u32,
    /// Offset of the current segment in the fragment.
    offset: u32,
    /// Length of the fragment in bytes.
    len: u32,
    /// Payload length of every segment but the last.
    payload: u32,
    finished: bool,
}

impl SendBuffer {
    /// Makes a send buffer that never has more than `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            blocks: Vec::new(),
            spare: [const { Vec::new() }; CLASS_BYTES.len()],
            vacant: NONE,
            open: NONE,
            taken: 0,
            bytes: 0,
            limit,
            supply: Supply::ENDLESS,
        }
    }

    pub(super) fn from(self, supply: Supply) -> Self {
        Self { supply, ..self }
    }

    /// Returns the number of bytes in all blocks, free ones included.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves memory for a fragment of `len` bytes, cut into segments of at most `payload` bytes. `None`: the limit
    /// is reached, or `payload` is no valid size.
    pub(super) fn writer(&mut self, len: usize, payload: usize) -> Option<Writer> {
        let stride = HEADER_SPACE + payload;
        let largest = CLASS_BYTES[CLASS_BYTES.len() - 1];
        if payload == 0 || stride > largest {
            return None;
        }
        let total = u32::try_from(len).ok()?;
        let whole = HEADER_SPACE + len;
        if len <= payload && whole <= SHARED_MAX {
            let (block, at) = self.share(whole)?;
            return Some(Writer::new((block, at), total, payload as u32));
        }
        let a_block = largest / stride;
        let (mut first, mut last) = (NONE, NONE);
        let mut left = len;
        let mut segments = len.div_ceil(payload).max(1);
        while segments > 0 {
            let here = segments.min(a_block);
            let bytes = left.min(here * payload);
            let Some(block) = self.reserve(bytes + here * HEADER_SPACE, here as u32) else {
                self.give_up(first);
                return None;
            };
            match self.blocks.get_mut(last as usize) {
                Some(before) => before.next = block,
                None => first = block,
            }
            last = block;
            segments -= here;
            left -= bytes;
        }
        Some(Writer::new((first, 0), total, payload as u32))
    }

    /// Takes `need` bytes of the open block for one segment. Small fragments written one after the other thus adjoin,
    /// and can leave in one GSO batch. Returns the block and the offset in it.
    fn share(&mut self, need: usize) -> Option<(u32, u32)> {
        if self.open == NONE || self.taken + need > CLASS_BYTES[0] {
            self.open = NONE;
            self.open = self.reserve(CLASS_BYTES[0], 0)?;
            self.taken = 0;
        }
        let at = self.taken;
        self.taken += need;
        self.blocks[self.open as usize].live += 1;
        Some((self.open, at as u32))
    }

    /// Returns the bytes of a segment, including the space for its header. Empty if there is no such segment.
    #[inline]
    pub(super) fn bytes_of(&mut self, place: SegmentPlace) -> &mut [u8] {
        self.run_of(place, place)
    }

    /// Returns the bytes of all segments from `first` to `last`, which are adjacent in one block.
    #[inline]
    pub(super) fn run_of(&mut self, first: SegmentPlace, last: SegmentPlace) -> &mut [u8] {
        debug_assert_eq!(first.block, last.block);
        let end = last.at as usize + last.len as usize;
        let block = self.blocks.get_mut(first.block as usize);
        let run = block.and_then(|block| block.bytes.get_mut(first.at as usize..end));
        debug_assert!(run.is_some(), "no segment at {first:?}");
        run.unwrap_or_default()
    }

    /// Releases a segment. Its block becomes free when all segments in it have been released.
    #[inline]
    pub(super) fn release(&mut self, place: SegmentPlace) {
        let Some(block) = self.blocks.get_mut(place.block as usize) else {
            return;
        };
        debug_assert!(block.live > 0, "released twice: {place:?}");
        block.live = block.live.saturating_sub(1);
        if block.live > 0 {
            return;
        }
        if place.block == self.open {
            self.taken = 0;
        } else {
            self.free(place.block);
        }
    }

    /// Frees the memory of all blocks without segments.
    pub(super) fn trim(&mut self) {
        if self.is_open_idle() {
            self.free(self.open);
            self.open = NONE;
        }
        for class in 0..CLASS_BYTES.len() {
            for index in std::mem::take(&mut self.spare[class]) {
                self.drop_memory(index);
            }
        }
        if self.bytes == 0 {
            self.blocks = Vec::new();
            self.vacant = NONE;
        }
    }

    /// Frees memory, unless segments are in use and memory will be needed again soon.
    pub(super) fn trim_if_idle(&mut self) {
        let spare = self.spare.iter().zip(CLASS_BYTES);
        let free: usize = spare.map(|(blocks, bytes)| blocks.len() * bytes).sum();
        let idle = if self.is_open_idle() {
            CLASS_BYTES[0]
        } else {
            0
        };
        if free + idle == self.bytes {
            self.trim();
        }
    }

    /// Returns whether there is an open block, without segments.
    fn is_open_idle(&self) -> bool {
        let open = self.blocks.get(self.open as usize);
        open.is_some_and(|open| open.live == 0)
    }

    /// Takes a block of at least `need` bytes for `live` segments.
    fn reserve(&mut self, need: usize, live: u32) -> Option<u32> {
        let class = CLASS_BYTES.iter().position(|&bytes| need <= bytes)?;
        let index = match self.spare[class].pop() {
            Some(index) => index,
            None => self.obtain(class)?,
        };
        let block = &mut self.blocks[index as usize];
        block.live = live;
        block.next = NONE;
        Some(index)
    }

    #[cold]
    fn obtain(&mut self, class: usize) -> Option<u32> {
        let size = CLASS_BYTES[class];
        if self.supply.is_critical() {
            return None;
        }
        if self.bytes + size > self.limit {
            // Free blocks of other classes may use up the limit.
            self.trim();
        }
        if self.bytes + size > self.limit {
            return None;
        }
        self.bytes += size;
        let block = Block {
            bytes: vec![0; size].into_boxed_slice(),
            class: class as u8,
            live: 0,
            next: NONE,
        };
        let index = self.vacant;
        if let Some(vacant) = self.blocks.get_mut(index as usize) {
            self.vacant = vacant.next;
            *vacant = block;
            return Some(index);
        }
        self.blocks.push(block);
        Some(self.blocks.len() as u32 - 1)
    }

    fn free(&mut self, index: u32) {
        let class = usize::from(self.blocks[index as usize].class);
        if self.spare[class].len() < CLASS_SPARE[class] {
            self.spare[class].push(index);
        } else {
            self.drop_memory(index);
        }
    }

    fn drop_memory(&mut self, index: u32) {
        let block = &mut self.blocks[index as usize];
        self.bytes -= block.bytes.len();
        block.bytes = Box::default();
        block.next = self.vacant;
        self.vacant = index;
    }

    /// Frees a chain of blocks into which nothing has been written.
    fn give_up(&mut self, mut index: u32) {
        while let Some(block) = self.blocks.get_mut(index as usize) {
            block.live = 0;
            let next = block.next;
            self.free(index);
            index = next;
        }
    }
}

impl Writer {
    /// Makes a writer of `len` bytes in segments of `payload` bytes, the first one at a block and offset.
    fn new((block, at): (u32, u32), len: u32, payload: u32) -> Self {
        Self {
            block,
            at,
            size: len.min(payload),
            filled: 0,
            offset: 0,
            len,
            payload,
            finished: false,
        }
    }

    /// Adds bytes to the fragment; excess bytes are ignored. Calls `done` with every complete segment.
    pub(super) fn push(
        &mut self,
        send_buffer: &mut SendBuffer,
        mut bytes: &[u8],
        done: &mut impl FnMut(&mut SendBuffer, Segment),
    ) {
        while !bytes.is_empty() && !self.finished {
            let take = bytes.len().min((self.size - self.filled) as usize);
            let (now, later) = bytes.split_at(take);
            if let Some(into) = self.next_bytes(send_buffer, take) {
                into.copy_from_slice(now);
            }
            bytes = later;
            self.filled += take as u32;
            if self.filled == self.size {
                self.end_segment(send_buffer, done);
            }
        }
    }

    /// Completes the fragment, with zeros if bytes are missing: memory that was shorter than promised leaves a fragment
    /// that must still end. Makes an empty fragment a segment, too.
    pub(super) fn fill_up(
        &mut self,
        send_buffer: &mut SendBuffer,
        done: &mut impl FnMut(&mut SendBuffer, Segment),
    ) {
        while !self.finished {
            let missing = (self.size - self.filled) as usize;
            if let Some(into) = self.next_bytes(send_buffer, missing) {
                into.fill(0);
            }
            self.end_segment(send_buffer, done);
        }
    }

    fn next_bytes<'a>(
        &self,
        send_buffer: &'a mut SendBuffer,
        count: usize,
    ) -> Option<&'a mut [u8]> {
        let from = self.at as usize + HEADER_SPACE + self.filled as usize;
        let block = send_buffer.blocks.get_mut(self.block as usize);
        block.and_then(|block| block.bytes.get_mut(from..from + count))
    }

    fn end_segment(
        &mut self,
        send_buffer: &mut SendBuffer,
        done: &mut impl FnMut(&mut SendBuffer, Segment),
    ) {
        let place = SegmentPlace {
            block: self.block,
            at: self.at,
            len: HEADER_SPACE as u32 + self.size,
        };
        let segment = Segment {
            place,
            offset: self.offset,
            payload: self.size,
        };
        let stride = HEADER_SPACE as u32 + self.payload;
        self.at += stride;
        self.offset += self.size;
        self.size = self.payload.min(self.len - self.offset);
        self.filled = 0;
        self.finished = self.size == 0;
        // Only the last block of a fragment holds fewer than `a_block` segments, and the fragment ends with it.
        let largest = CLASS_BYTES[CLASS_BYTES.len() - 1];
        if !self.finished && (self.at + stride) as usize > largest {
            self.at = 0;
            let block = send_buffer.blocks.get(self.block as usize);
            self.block = block.map_or(NONE, |block| block.next);
        }
        done(send_buffer, segment);
    }
}

#[cfg(test)]
mod tests;
