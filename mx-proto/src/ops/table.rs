//! Table of operations: the slots in use, and the functions that begin and end an operation.
//!
//! ```text
//!   free list --add--> in use: a state --finish--> Done --free--> free list
//! ```
//!
//! An id is a slot and a generation from one counter. A stale id is invalid until its slot gets the same one of 2^31
//! generations again.
//!
//! Owns: the slots.
//! Out of scope: heads of lists.
//! Cost: O(1), except [`Ops::iter`]; allocates nothing once there are enough slots.

use super::list::{Links, List, ListKind, NONE};
use super::record::{BucketHead, NO_REMOTE, Position, Record, State};
use super::storage::OpStorage;
use crate::ids::{MatchBits, RemoteId, RequestId};
use crate::memory::{Memory, Source};
use crate::op_states::{self, Stage};
use crate::owner::{Owner, Posting};
use crate::timeouts::TimeOuts;
use crate::timer::TimerId;
use std::fmt;

/// Operations of one endpoint: those that have not completed, and completed ones that the owner has not freed.
pub struct Ops<O: Owner> {
    places: O::OpStorage,
    /// Free slots, linked forward only.
    free: List,
    /// Number of operations that have not completed.
    under_way: u32,
    pub(super) next_generation: u32,
}

impl<O: Owner> Default for Ops<O> {
    fn default() -> Self {
        Self {
            places: O::OpStorage::default(),
            free: List::EMPTY,
            under_way: 0,
            next_generation: 1,
        }
    }
}

impl<O: Owner> fmt::Debug for Ops<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<O: Owner> Ops<O> {
    /// Returns the storage, in which the owner finds its data by slot.
    #[inline]
    pub fn places(&self) -> &O::OpStorage {
        &self.places
    }

    /// Returns the owner's data of an operation; `None` if the id is stale.
    #[inline(always)]
    pub fn data(&self, id: RequestId) -> Option<&O::OpData> {
        self.of(id)?;
        Some(self.places.data(id.index()))
    }

    /// Returns the owner's data of an operation for changing; `None` if the id is stale.
    #[inline(always)]
    pub fn data_mut(&mut self, id: RequestId) -> Option<&mut O::OpData> {
        self.of(id)?;
        Some(self.places.data_mut(id.index()))
    }

    /// Returns the owner's data of an operation whose completion is being reported to the owner, for changing.
    #[inline(always)]
    pub fn completed_data_mut(&mut self, id: RequestId) -> &mut O::OpData {
        debug_assert!(self.is_done(id), "{id:?} has not completed");
        self.places.data_mut(id.index())
    }

    /// Returns the id of the operation in a slot; `None` if the slot is free or does not exist.
    #[inline(always)]
    pub fn at(&self, place: u32) -> Option<RequestId> {
        if place >= self.places.len() {
            return None;
        }
        let generation = self.places.record(place).generation;
        (generation != 0).then(|| RequestId::new(place, generation))
    }

    /// Returns whether the operation has completed and has not been freed; false if the id is stale.
    #[inline(always)]
    pub fn is_done(&self, id: RequestId) -> bool {
        self.of(id)
            .is_some_and(|record| matches!(record.state, State::Done))
    }

    /// Frees the slot of a completed operation, which must be in no list. Returns false and changes nothing if the
    /// operation has not completed, or does not exist.
    #[inline]
    pub fn free(&mut self, id: RequestId) -> bool {
        let done = self.is_done(id);
        if done {
            self.release(id.index());
        }
        done
    }

    /// Removes the oldest operation from a list of completed ones. Calls `read` with the owner's data and the index of
    /// the operation's slot, then frees the slot. `None` if the list is empty.
    #[inline(always)]
    pub fn pop<R>(
        &mut self,
        list: &mut List,
        read: impl FnOnce(&O::OpStorage, u32) -> R,
    ) -> Option<R> {
        let place = list.first;
        if place == NONE {
            return None;
        }
        let got = read(&self.places, place);
        let behind = self.places.record(place).links.behind;
        list.first = behind;
        list.len -= 1;
        match behind {
            NONE => list.last = NONE,
            behind => self.places.record_mut(behind).links.before = NONE,
        }
        self.release(place);
        Some(got)
    }

    /// Adds an operation that was complete when it was posted, for an owner that needs a record of each; the owner has
    /// to free it. `None`: the table is full. After a post that returned completion there is room.
    #[inline]
    pub fn add_done(&mut self, word: O::OpData) -> Option<RequestId> {
        let id = self.add(word, MatchBits(0), TimeOuts::NONE, State::Free)?;
        // The operation was never in progress, so no transition is recorded.
        self.places.record_mut(id.index()).state = State::Done;
        self.under_way -= 1;
        Some(id)
    }

    /// Returns the number of operations that have not been freed.
    #[inline]
    pub fn in_use(&self) -> usize {
        self.places.len() as usize - self.free.len()
    }

    /// Returns the generation of the next operation. Given to [`Self::begin_with`] of another table, it makes that
    /// table's ids differ from all of this one's.
    pub fn next_generation(&self) -> u32 {
        self.next_generation
    }

    /// Sets the generation of the next operation, at least 1; later ones count up from it.
    pub fn begin_with(&mut self, generation: u32) {
        self.next_generation = generation.clamp(1, GENERATIONS);
    }

    /// Returns the oldest operation of an owner's list; `None` if the list is empty.
    #[inline]
    pub fn first(&self, list: &List) -> Option<RequestId> {
        self.at(list.first)
    }

    /// Returns all operations of an owner's list, oldest first.
    pub fn all(&self, list: &List) -> impl Iterator<Item = RequestId> {
        self.of_list(ListKind::State, list)
    }

    /// Appends a completed or pending operation to an owner's list. Returns false and changes nothing for any other
    /// operation. The operation must be in no list.
    #[inline]
    pub fn append(&mut self, list: &mut List, id: RequestId) -> bool {
        let owners = self.is_owners(id);
        if owners {
            self.join(ListKind::State, list, id.index());
        }
        owners
    }

    /// Appends an operation whose completion is just being reported to the owner, so it certainly exists.
    #[inline(always)]
    pub fn append_completed(&mut self, list: &mut List, id: RequestId) {
        debug_assert!(self.is_done(id), "{id:?} has not completed");
        self.join(ListKind::State, list, id.index());
    }

    /// Inserts a completed operation before `behind`, which is in that list.
    pub fn insert_completed(&mut self, list: &mut List, id: RequestId, behind: RequestId) {
        debug_assert!(self.is_done(id), "{id:?} has not completed");
        debug_assert!(self.is_done(behind), "{behind:?} is not in the list");
        let (place, behind) = (id.index(), behind.index());
        let links = &mut self.places.record_mut(behind).links;
        let before = std::mem::replace(&mut links.before, place);
        self.places.record_mut(place).links = Links { before, behind };
        match before {
            NONE => list.first = place,
            before => self.places.record_mut(before).links.behind = place,
        }
        list.len += 1;
    }

    /// Removes a completed or pending operation from the owner's list that it is in. A pending one stays in its list
    /// when it ends, and must leave it before it is activated.
    #[inline]
    pub fn remove(&mut self, list: &mut List, id: RequestId) {
        if self.is_owners(id) {
            self.leave(ListKind::State, list, id.index());
        }
    }

    #[inline]
    fn is_owners(&self, id: RequestId) -> bool {
        let owners = |state: &_| matches!(state, State::Done | State::Pending { .. });
        self.of(id).is_some_and(|record| owners(&record.state))
    }
}

impl<O: Owner> Ops<O> {
    #[inline(always)]
    fn release(&mut self, place: u32) {
        self.places.on_free(place).empty();
        self.put_back(place);
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way as usize
    }

    /// Returns whether there is room for one more operation; adds slots if needed.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.has_room_for(1)
    }

    /// Returns whether there is room for `more` operations; adds slots if needed.
    #[inline]
    pub(crate) fn has_room_for(&mut self, more: usize) -> bool {
        if self.free.len() < self.places.reuse_delay() as usize + more {
            self.grow();
        }
        self.free.len() >= more
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.places.len();
        if self.places.grow() {
            // The lowest slot is to be used first.
            let new = first..self.places.len();
            match self.places.reuse_delay() {
                0 => new.rev().for_each(|place| self.put_back(place)),
                _ => new.for_each(|place| self.put_back(place)),
            }
        }
    }

    /// Puts a slot whose record is in no list among the free ones.
    #[inline(always)]
    fn put_back(&mut self, place: u32) {
        let free = &mut self.free;
        match (self.places.reuse_delay(), free.first) {
            (0, first) => {
                self.places.record_mut(place).links.behind = first;
                free.first = place;
            }
            (_, NONE) => free.first = place,
            _ => self.places.record_mut(free.last).links.behind = place,
        }
        free.last = place;
        free.len += 1;
    }

    /// Makes an operation with `NO_REMOTE` and in no list, even if its state requires both. `None`: the table is full.
    pub(crate) fn add(
        &mut self,
        word: O::OpData,
        bits: MatchBits,
        timeouts: TimeOuts,
        state: State<O::Memory>,
    ) -> Option<RequestId> {
        if !self.has_room() {
            return None;
        }
        let (id, (), record) = self.open(|| ((), word), (bits, timeouts));
        record.begin(state);
        Some(id)
    }

    /// Makes a post an operation, in the state that `state` makes of its memory. `None`: the table is full.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        what: impl Posting<O>,
        of: (MatchBits, TimeOuts),
        state: impl FnOnce(O::Memory) -> State<O::Memory>,
    ) -> Option<RequestId> {
        if let Some(id) = what.pending() {
            self.activate(id, of, state(what.begin().0));
            return Some(id);
        }
        // Only after a slot has been found, so that no state has to be dropped if there is none.
        if !self.has_room() {
            return None;
        }
        let (id, memory, record) = self.open(|| what.begin(), of);
        record.begin(state(memory));
        Some(id)
    }

    /// Makes a post a receive for messages of one remote, at the end of that remote's list. Its record is ready for
    /// [`PostedReceives::enter_at`](crate::matching::PostedReceives::enter_at). `None`: the table is full.
    #[inline(always)]
    pub(crate) fn enter_receive(
        &mut self,
        what: impl Posting<O>,
        of: (MatchBits, TimeOuts),
        position: Position,
        (remote, kin): (RemoteId, &mut List),
    ) -> Option<RequestId> {
        if !self.has_room() {
            return None;
        }
        let (id, memory, record) = self.open(|| what.begin(), of);
        let place = id.index();
        let head = BucketHead::alone(place);
        record.begin(State::Posted {
            memory,
            position,
            head,
        });
        record.remote = remote;
        record.from_one = true;
        let before = std::mem::replace(&mut kin.last, place);
        record.remote_links.before = before;
        match before {
            NONE => kin.first = place,
            before => self.places.record_mut(before).remote_links.behind = place,
        }
        kin.len += 1;
        Some(id)
    }

    /// Takes a slot for a new operation, which `begin` begins; there must be room. The caller sets the state. Nothing
    /// here can panic while it holds the memory, so that the memory needs no place of its own for unwinding.
    #[inline(always)]
    fn open<R>(
        &mut self,
        begin: impl FnOnce() -> (R, O::OpData),
        (bits, timeouts): (MatchBits, TimeOuts),
    ) -> (RequestId, R, &mut Record<O::Memory>) {
        let place = self.free.first;
        let generation = self.next_generation;
        self.next_generation = if generation == GENERATIONS {
            1
        } else {
            generation + 1
        };
        let (memory, record) = self.places.on_use(place, begin);
        self.free.first = record.links.behind;
        self.free.len -= 1;
        self.under_way += 1;
        record.generation = generation;
        record.links = Links::ALONE;
        record.remote_links = Links::ALONE;
        record.remote = NO_REMOTE;
        record.from_one = false;
        record.timer = None;
        record.timeout = timeouts.transfer;
        record.waiting = timeouts.waiting;
        record.touched = false;
        record.bits = bits;
        (RequestId::new(place, generation), memory, record)
    }

    /// Gives a pending operation the state that it would have had if it were posted now. Its memory must have been
    /// taken out. Does nothing to any other operation.
    fn activate(
        &mut self,
        id: RequestId,
        (bits, timeouts): (MatchBits, TimeOuts),
        state: State<O::Memory>,
    ) {
        let record = self.get_mut(id);
        let pending = |record: &&mut Record<_>| matches!(record.state, State::Pending { .. });
        if let Some(record) = record.filter(pending) {
            op_states::note(Stage::Pending, state.stage());
            record.timeout = timeouts.transfer;
            record.waiting = timeouts.waiting;
            record.bits = bits;
            record.state = state;
        }
    }

    /// Returns the record of an operation, completed or not.
    #[inline(always)]
    fn of(&self, id: RequestId) -> Option<&Record<O::Memory>> {
        if id.index() >= self.places.len() || id.generation() == 0 {
            return None;
        }
        let record = self.places.record(id.index());
        (record.generation == id.generation()).then_some(record)
    }

    #[inline(always)]
    fn of_mut(&mut self, id: RequestId) -> Option<&mut Record<O::Memory>> {
        self.of(id)?;
        Some(self.places.record_mut(id.index()))
    }

    /// Returns the record of an operation that has not completed.
    #[inline(always)]
    pub(crate) fn get(&self, id: RequestId) -> Option<&Record<O::Memory>> {
        self.of(id)
            .filter(|record| !matches!(record.state, State::Done))
    }

    /// Returns the record of an operation that has not completed, for changing.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Record<O::Memory>> {
        self.of_mut(id)
            .filter(|record| !matches!(record.state, State::Done))
    }

    /// Returns the record in a slot known to be in use.
    #[inline(always)]
    pub(crate) fn record(&self, place: u32) -> &Record<O::Memory> {
        self.places.record(place)
    }

    #[inline(always)]
    pub(crate) fn record_mut(&mut self, place: u32) -> &mut Record<O::Memory> {
        self.places.record_mut(place)
    }

    /// Ends an operation: drops its memory and leaves the record to the owner. Returns false if it had ended or does
    /// not exist. It must have left all lists.
    pub(crate) fn finish(&mut self, id: RequestId) -> bool {
        let ends = self.get(id).is_some();
        if ends {
            self.end(id.index()).state = State::Done;
        }
        ends
    }

    /// Ends the receive in a slot after filling its memory from `source`. Returns its id, the number of bytes written,
    /// and its timer.
    #[inline(always)]
    pub(crate) fn finish_filled(
        &mut self,
        place: u32,
        source: &(impl Source + ?Sized),
    ) -> (RequestId, usize, Option<TimerId>) {
        self.under_way -= 1;
        let record = self.places.record_mut(place);
        let timer = record.timer.and_then(|_| record.timer.take());
        Self::check_end(record);
        let id = RequestId::new(place, record.generation);
        let State::Posted { memory, .. } = &mut record.state else {
            let fill = |memory: &mut O::Memory| memory.fill(0, source.len(), source, 0);
            return (id, record.finish_pulling(fill), timer);
        };
        let filled = memory.fill(0, source.len(), source, 0);
        record.state.end_posted();
        (id, filled, timer)
    }

    /// Ends an operation and returns its memory.
    pub(crate) fn finish_keeping(&mut self, id: RequestId) -> Option<O::Memory> {
        self.get(id)?;
        std::mem::replace(&mut self.end(id.index()).state, State::Done).into_memory()
    }

    fn end(&mut self, place: u32) -> &mut Record<O::Memory> {
        self.under_way -= 1;
        let record = self.places.record_mut(place);
        Self::check_end(record);
        record
    }

    /// Checks a record that is about to end.
    #[inline(always)]
    fn check_end(record: &Record<O::Memory>) {
        debug_assert!(record.timer.is_none(), "it has a timer");
        let pending = matches!(record.state, State::Pending { .. });
        debug_assert!(pending || record.links == Links::ALONE, "it is in a list");
        debug_assert_eq!(record.remote_links, Links::ALONE, "it has kin");
        op_states::note(record.state.stage(), Stage::Done);
    }

    /// Appends a record to a list. It must not be in another one of that kind.
    #[inline(always)]
    pub(crate) fn join(&mut self, strand: ListKind, list: &mut List, place: u32) {
        let before = std::mem::replace(&mut list.last, place);
        *self.places.record_mut(place).links_mut(strand) = Links {
            before,
            behind: NONE,
        };
        match before {
            NONE => list.first = place,
            before => self.places.record_mut(before).links_mut(strand).behind = place,
        }
        list.len += 1;
    }

    /// Sets the remote of an operation, and adds it to that remote's list. `only`: it is a receive for messages of that
    /// remote only.
    #[inline(always)]
    pub(crate) fn attach_op(&mut self, place: u32, remote: RemoteId, only: bool, kin: &mut List) {
        let record = self.places.record_mut(place);
        record.remote = remote;
        record.from_one |= only;
        self.join(ListKind::Remote, kin, place);
    }

    #[inline(always)]
    pub(crate) fn leave(&mut self, strand: ListKind, list: &mut List, place: u32) {
        let links = self.places.record_mut(place).links_mut(strand);
        let Links { before, behind } = std::mem::replace(links, Links::ALONE);
        match before {
            NONE => list.first = behind,
            before => self.places.record_mut(before).links_mut(strand).behind = behind,
        }
        match behind {
            NONE => list.last = before,
            behind => self.places.record_mut(behind).links_mut(strand).before = before,
        }
        debug_assert!(list.len > 0, "a list that never had {place}");
        list.len -= 1;
    }

    /// Returns all operations of a list, oldest first.
    pub(crate) fn of_list(&self, strand: ListKind, list: &List) -> impl Iterator<Item = RequestId> {
        let mut next = list.first;
        std::iter::from_fn(move || {
            let id = self.at(next)?;
            next = self.places.record(next).links(strand).behind;
            Some(id)
        })
    }

    /// Returns all operations that have not completed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Record<O::Memory>)> {
        let all = (0..self.places.len()).filter_map(|place| self.at(place));
        all.filter_map(|id| Some((id, self.get(id)?)))
    }
}

/// Highest generation. The bit above it distinguishes an operation's id from other numbers.
const GENERATIONS: u32 = u32::MAX >> 1;
