//! A bare ring in shared memory: no tags, no peers, two copies.
//!
//! ```text
//!           one cache line                  cache lines of their own
//!   slot: [ full | len | up to 56 bytes ] [ up to 32 KiB of data ] x 8
//!   done: number of slots that the reader has emptied
//!
//!   up to 56 bytes: in the cache line of the flag; 57 bytes to 32 KiB: in the slot's data;
//!   larger messages take several slots
//! ```

use super::Wire;
use crate::buffer::Buffer;
use std::cell::UnsafeCell;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const SLOTS: usize = 8;
const CHUNK: usize = 32 * 1024;
/// Bytes left in the first cache line.
const SMALL: usize = 56;

/// Data of a slot, aligned to a cache line.
#[repr(C, align(64))]
struct Data([u8; CHUNK]);

#[repr(C, align(64))]
struct Slot {
    full: AtomicU32,
    len: UnsafeCell<u32>,
    small: UnsafeCell<[u8; SMALL]>,
    data: UnsafeCell<Data>,
}

const _: () = assert!(std::mem::offset_of!(Slot, data) == 64);

impl Slot {
    /// Returns the place of `len` bytes in this slot, at most `CHUNK`.
    #[inline]
    fn place(&self, len: usize) -> *mut u8 {
        match len {
            0..=SMALL => self.small.get().cast(),
            _ => self.data.get().cast(),
        }
    }
}

#[repr(C, align(64))]
struct Done(AtomicU64);

struct Lane {
    slots: Box<[Slot]>,
    done: Done,
}

// SAFETY: a slot's data belongs to the writer while `full` is 0 and to the reader while it is 1;
// each lane has one of each.
unsafe impl Sync for Lane {}
// SAFETY: nothing in it is bound to a thread.
unsafe impl Send for Lane {}

impl Lane {
    fn new() -> Arc<Self> {
        let slot = || Slot {
            full: AtomicU32::new(0),
            len: UnsafeCell::new(0),
            small: UnsafeCell::new([0; SMALL]),
            data: UnsafeCell::new(Data([0; CHUNK])),
        };
        Arc::new(Self {
            slots: (0..SLOTS).map(|_| slot()).collect(),
            done: Done(AtomicU64::new(0)),
        })
    }
}

/// A side of a pair of lanes.
pub(crate) struct Ring {
    out: Arc<Lane>,
    into: Arc<Lane>,
    written: u64,
    known_done: u64,
    read: u64,
}

/// Makes both sides.
pub(crate) fn pair() -> (Ring, Ring) {
    let (a, b) = (Lane::new(), Lane::new());
    let side = |out: &Arc<Lane>, into: &Arc<Lane>| Ring {
        out: out.clone(),
        into: into.clone(),
        written: 0,
        known_done: 0,
        read: 0,
    };
    (side(&a, &b), side(&b, &a))
}

impl Ring {
    /// Waits for an empty slot; returns the place of its `len` bytes, at most `CHUNK`.
    #[inline]
    fn empty(&mut self, len: usize) -> *mut u8 {
        while self.written - self.known_done == SLOTS as u64 {
            self.known_done = self.out.done.0.load(Ordering::Acquire);
            std::hint::spin_loop();
        }
        let slot = &self.out.slots[self.written as usize % SLOTS];
        // SAFETY: the reader has emptied this slot; only this side writes it.
        unsafe { *slot.len.get() = len as u32 };
        slot.place(len)
    }

    /// Marks the slot just written as full.
    #[inline]
    fn filled(&mut self) {
        let slot = &self.out.slots[self.written as usize % SLOTS];
        slot.full.store(1, Ordering::Release);
        self.written += 1;
    }

    /// Waits for a full slot; returns its bytes and their number.
    #[inline]
    fn full(&mut self) -> (*const u8, usize) {
        let slot = &self.into.slots[self.read as usize % SLOTS];
        while slot.full.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        // SAFETY: the writer has filled this slot; only this side reads it.
        let len = unsafe { *slot.len.get() } as usize;
        (slot.place(len), len)
    }

    /// Marks the slot just read as empty.
    #[inline]
    fn emptied(&mut self) {
        let slot = &self.into.slots[self.read as usize % SLOTS];
        slot.full.store(0, Ordering::Relaxed);
        self.read += 1;
        self.into.done.0.store(self.read, Ordering::Release);
    }

    #[inline]
    fn put(&mut self, piece: &[u8]) {
        let place = self.empty(piece.len());
        // SAFETY: a piece has at most CHUNK bytes, and its place room for them.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len()) };
        self.filled();
    }

    #[inline]
    fn take(&mut self, into: &mut [u8]) -> usize {
        let (place, len) = self.full();
        let len = len.min(into.len());
        // SAFETY: `len` fits into both.
        unsafe { std::ptr::copy_nonoverlapping(place, into.as_mut_ptr(), len) };
        self.emptied();
        len
    }
}

impl Wire for Ring {
    #[inline]
    fn send(&mut self, data: &[u8]) {
        if data.is_empty() {
            return self.put(data);
        }
        for piece in data.chunks(CHUNK) {
            self.put(piece);
        }
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) {
        let mut at = self.take(into);
        while at < into.len() {
            at += self.take(&mut into[at..]);
        }
    }

    /// Fills each slot from as many pieces as fit.
    fn send_list(&mut self, data: &Buffer) {
        let (mut left, mut room) = (data.size(), 0);
        let mut place = null_mut::<u8>();
        for mut piece in data.pieces() {
            while !piece.is_empty() {
                if room == 0 {
                    room = left.min(CHUNK);
                    place = self.empty(room);
                }
                let len = piece.len().min(room);
                // SAFETY: the slot has room for `room` more bytes at `place`.
                unsafe {
                    std::ptr::copy_nonoverlapping(piece.as_ptr(), place, len);
                    place = place.add(len);
                }
                piece = &piece[len..];
                room -= len;
                left -= len;
                if room == 0 {
                    self.filled();
                }
            }
        }
    }

    fn recv_list(&mut self, into: &mut Buffer) {
        let (mut place, mut left) = (null::<u8>(), 0);
        for mut piece in into.pieces_mut() {
            while !piece.is_empty() {
                if left == 0 {
                    (place, left) = self.full();
                }
                let len = piece.len().min(left);
                // SAFETY: the slot has `left` more bytes at `place`.
                unsafe {
                    std::ptr::copy_nonoverlapping(place, piece.as_mut_ptr(), len);
                    place = place.add(len);
                }
                piece = &mut piece[len..];
                left -= len;
                if left == 0 {
                    self.emptied();
                }
            }
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::buffer::Layout;

    #[test]
    fn messages_of_any_size_arrive_as_they_were_sent() {
        let (mut near, mut far) = pair();
        for size in [0, 1, SMALL, SMALL + 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7] {
            let sent: Vec<u8> = (0..size).map(|n| (n * 7 + size) as u8).collect();
            let mut back = vec![0; size];
            near.send(&sent);
            far.recv(&mut back);
            assert_eq!(back, sent, "{size} bytes");
        }
    }
    #[test]
    fn lists_of_any_length_arrive_as_they_were_sent() {
        let (mut near, mut far) = pair();
        for (size, pieces) in [
            (1, 1),
            (SMALL, 3),
            (1000, 1000),
            (CHUNK, 64),
            (CHUNK + 1, 2),
            (5 * CHUNK + 7, 3),
            (7 * CHUNK, 2048),
        ] {
            let layout = Layout::new(size, Some(pieces)).unwrap();
            let sent = Buffer::numbered(layout);
            let mut back = Buffer::new(layout);
            near.send_buffer(&sent);
            far.recv_buffer(&mut back);
            assert!(
                back.bytes() == sent.bytes(),
                "{size} bytes in {pieces} pieces"
            );
        }
    }
}
