//! Storage of operation records.
//!
//! ```text
//!   slot    0 .. 63   64 .. 127  ...        each with a record and the owner's data
//!            chunk      chunk
//! ```
//!
//! The layer above provides the storage of the endpoint's table of operations. It can therefore keep its own data of an
//! operation beside the record, find both by one number, and choose the kind of memory.

use super::record::Record;
use std::fmt;

/// Records and the owner's data, by slot number from 0 on.
///
/// * Slots are only added: `len` never decreases, and the contents of a slot do not move.
/// * A new slot holds [`Record::default`] and default data.
/// * Only the table changes a record or reads it; see [`Ops`](super::Ops). The storage just keeps it.
/// * Records are dropped with their endpoint, in any state. A storage that reuses the memory of its slots afterwards
///   writes [`Record::default`] where an operation still is.
pub trait OpStorage<M, W>: Default + fmt::Debug {
    /// Returns the number of free slots to keep unused while more can be added, so that stale ids of them stay
    /// recognisable. If it is not 0, the slot that has been free for longest is reused first, otherwise the one freed
    /// last.
    #[inline(always)]
    fn reuse_delay(&self) -> u32 {
        0
    }

    /// Returns the number of slots, at most `u32::MAX`.
    fn len(&self) -> u32;

    /// Returns true while there is no slot.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds at least one slot. Returns false and changes nothing if no more can be added.
    fn grow(&mut self) -> bool;

    /// Returns the record in a slot. Panics, as a slice does, if there is no such slot.
    fn record(&self, place: u32) -> &Record<M>;

    /// Returns the record in a slot for changing. Panics like [`Self::record`].
    fn record_mut(&mut self, place: u32) -> &mut Record<M>;

    /// Returns the owner's data in a slot. Panics like [`Self::record`].
    fn data(&self, place: u32) -> &W;

    /// Returns the owner's data in a slot for changing. Panics like [`Self::record`].
    fn data_mut(&mut self, place: u32) -> &mut W;

    /// Notes that an operation uses a slot from now on: calls `begin`, keeps the data that it returns, and returns its
    /// memory with the record. Called once for each operation. Only panics before calling `begin`.
    fn on_use<R>(&mut self, place: u32, begin: impl FnOnce() -> (R, W)) -> (R, &mut Record<M>);

    /// Notes that the operation in a slot has been freed, and returns its record. Called once for each
    /// [`Self::on_use`].
    #[inline]
    fn on_free(&mut self, place: u32) -> &mut Record<M> {
        self.record_mut(place)
    }
}

/// Storage in ordinary memory for up to `MAX` operations, allocated in chunks of 64. No chunk is freed before the
/// storage is dropped.
#[derive(Debug)]
pub struct ChunkedStorage<M, W, const MAX: u32 = { u32::MAX }>(Vec<Box<Chunk<M, W>>>);

type Chunk<M, W> = [(Record<M>, W); CHUNK];

/// Number of slots added at a time: about ten kilobytes.
const CHUNK: usize = 64;

impl<M, W, const MAX: u32> Default for ChunkedStorage<M, W, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<M, W, const MAX: u32> ChunkedStorage<M, W, MAX> {
    #[inline]
    fn at(&self, place: u32) -> &(Record<M>, W) {
        let place = place as usize;
        &self.0[place / CHUNK][place % CHUNK]
    }

    #[inline]
    fn at_mut(&mut self, place: u32) -> &mut (Record<M>, W) {
        let place = place as usize;
        &mut self.0[place / CHUNK][place % CHUNK]
    }
}

impl<M: fmt::Debug, W: Default + fmt::Debug, const MAX: u32> OpStorage<M, W>
    for ChunkedStorage<M, W, MAX>
{
    #[inline]
    fn len(&self) -> u32 {
        // Cannot truncate: `grow` keeps the number below `MAX`.
        (self.0.len() * CHUNK) as u32
    }

    fn grow(&mut self) -> bool {
        let more = self.0.len() < MAX as usize / CHUNK;
        if more {
            let chunk: Vec<_> = (0..CHUNK).map(|_| Default::default()).collect();
            // The boxed slice has exactly `CHUNK` elements.
            self.0.extend(chunk.into_boxed_slice().try_into());
        }
        more
    }

    #[inline]
    fn record(&self, place: u32) -> &Record<M> {
        &self.at(place).0
    }

    #[inline]
    fn record_mut(&mut self, place: u32) -> &mut Record<M> {
        &mut self.at_mut(place).0
    }

    #[inline]
    fn data(&self, place: u32) -> &W {
        &self.at(place).1
    }

    #[inline]
    fn data_mut(&mut self, place: u32) -> &mut W {
        &mut self.at_mut(place).1
    }

    #[inline]
    fn on_use<R>(&mut self, place: u32, begin: impl FnOnce() -> (R, W)) -> (R, &mut Record<M>) {
        let (record, data) = self.at_mut(place);
        let (memory, word) = begin();
        *data = word;
        (memory, record)
    }
}
