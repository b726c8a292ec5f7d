//! Storage of records.
//!
//! ```text
//!   place   0 .. 63   64 .. 127  ...        each with a record and the owner's word beside it
//!            chunk      chunk
//! ```
//!
//! The layer above provides the storage of the endpoint's table of operations, so that it can keep
//! its own part of an operation beside the record, find both by one number, and choose the kind of
//! memory.

use super::record::Record;
use std::fmt;

/// Records and the owner's words, by place: numbers from 0 on.
///
/// * Places only become more: `len` never goes back, and what lies at a place does not move.
/// * A new place holds [`Record::default`] and a default word.
/// * A record is changed by the table alone, and looked at through it: see [`Ops`](super::Ops). Nothing
///   else is to be done with one than to keep it.
/// * They go with their endpoint, whatever lies in them. Places whose memory is used for something else
///   afterwards put [`Record::default`] where an operation still is.
pub trait OpStorage<M, W>: Default + fmt::Debug {
    /// The number of free places that are kept unused while there can be more, so that stale ids of
    /// them stay recognisable. If it is not 0, the one that has been free for longest is reused
    /// first, otherwise the one that was used last.
    #[inline(always)]
    fn reuse_delay(&self) -> u32 {
        0
    }

    /// The number of places: at most `u32::MAX`.
    fn len(&self) -> u32;

    /// True while there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds at least one place. False, and nothing has changed, when there can be no more.
    fn grow(&mut self) -> bool;

    /// The record at a place. Panics, as a slice does, when there is no such place.
    fn record(&self, place: u32) -> &Record<M>;

    /// The record at a place, to change it.
    fn record_mut(&mut self, place: u32) -> &mut Record<M>;

    /// The owner's word at a place. Panics like [`Self::record`].
    fn data(&self, place: u32) -> &W;

    /// The owner's word at a place, to change it.
    fn data_mut(&mut self, place: u32) -> &mut W;

    /// Both to change them.
    fn both_mut(&mut self, place: u32) -> (&mut Record<M>, &mut W);

    /// An operation lies at this place from now on; its word is there. Called once for each.
    #[inline]
    fn on_use(&mut self, _place: u32) {}

    /// The operation at this place is no more: called once for each [`Self::on_use`].
    #[inline]
    fn on_free(&mut self, _place: u32) {}
}

/// Places in chunks of ordinary memory, as many as fit into `MAX`. A chunk stays until all of them
/// go.
#[derive(Debug)]
pub struct ChunkedStorage<M, W, const MAX: u32 = { u32::MAX }>(Vec<Box<Chunk<M, W>>>);

type Chunk<M, W> = [(Record<M>, W); CHUNK];

/// Places that are added at a time: about ten kilobytes.
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
        // `grow` sees to it.
        (self.0.len() * CHUNK) as u32
    }

    fn grow(&mut self) -> bool {
        let more = self.0.len() < MAX as usize / CHUNK;
        if more {
            let chunk: Vec<_> = (0..CHUNK).map(|_| Default::default()).collect();
            // It has exactly so many.
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
    fn both_mut(&mut self, place: u32) -> (&mut Record<M>, &mut W) {
        let (record, word) = self.at_mut(place);
        (record, word)
    }
}
