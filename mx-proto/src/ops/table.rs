//! The table of operations: the places in use, and the one function that ends an operation.
//!
//! ```text
//!   free list --add--> in use: a state --finish--> Done --free--> free list
//! ```
//!
//! An id is a place and a generation from one counter: a stale id is invalid until the same place
//! gets the same of 2^31 numbers again.
//!
//! Owns: the places.
//! Out of scope: heads of lists.
//! Cost: O(1), except [`Ops::iter`]; allocates nothing once there are enough places.

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

/// All operations of one endpoint: those that have not completed, and those that have and that its owner
/// has not freed.
pub struct Ops<O: Owner> {
    places: O::OpStorage,
    /// Linked forward only.
    free: List,
    /// The number of operations that have not completed.
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

/// For the owner, which gets the table when an operation has completed.
/// The record of a new operation, and the owner's word of it.
type Opened<'a, O> = (
    &'a mut Record<<O as Owner>::Memory>,
    &'a mut <O as Owner>::OpData,
);

impl<O: Owner> Ops<O> {
    /// Their storage.
    #[inline]
    pub fn places(&self) -> &O::OpStorage {
        &self.places
    }

    /// The owner's word for an operation; `None` when there is no such operation (any more).
    #[inline(always)]
    pub fn data(&self, id: RequestId) -> Option<&O::OpData> {
        self.of(id)?;
        Some(self.places.data(id.index()))
    }

    /// The owner's word of an operation, to change it.
    #[inline(always)]
    pub fn data_mut(&mut self, id: RequestId) -> Option<&mut O::OpData> {
        self.of(id)?;
        Some(self.places.data_mut(id.index()))
    }

    /// The operation at a place, if there is one.
    #[inline(always)]
    pub fn at(&self, place: u32) -> Option<RequestId> {
        if place >= self.places.len() {
            return None;
        }
        let generation = self.places.record(place).generation;
        (generation != 0).then(|| RequestId::new(place, generation))
    }

    /// Has it completed?
    #[inline(always)]
    pub fn is_done(&self, id: RequestId) -> bool {
        self.of(id)
            .is_some_and(|record| matches!(record.state, State::Done))
    }

    /// Its place is for others. False, and nothing has changed, for one that has not completed, and for
    /// none. It must be in no list.
    #[inline]
    pub fn free(&mut self, id: RequestId) -> bool {
        let done = self.is_done(id);
        if done {
            self.release(id.index());
        }
        done
    }

    /// Takes the oldest out of a list of operations that have completed. `read` looks at it, at this
    /// place; then the place is for others.
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
        self.places.on_free(place);
        let record = self.places.record_mut(place);
        let behind = std::mem::replace(&mut record.links, Links::ALONE).behind;
        record.empty();
        list.first = behind;
        list.len = list.len.saturating_sub(1);
        match behind {
            NONE => list.last = NONE,
            behind => self.places.record_mut(behind).links.before = NONE,
        }
        self.put_back(place);
        Some(got)
    }

    /// An operation that is over already, for an owner that must have a record of each: one that was done
    /// when it was posted. It is the owner's like one that has completed. `None` when there can be no
    /// more; after a post that says it is done there is room.
    #[inline]
    pub fn add_done(&mut self, word: O::OpData) -> Option<RequestId> {
        let id = self.add(word, MatchBits(0), TimeOuts::NONE, State::Free)?;
        // It never was under way, so there is no move of it.
        self.places.record_mut(id.index()).state = State::Done;
        self.under_way -= 1;
        Some(id)
    }

    /// Operations, those that have completed and have not been freed included.
    #[inline]
    pub fn in_use(&self) -> usize {
        self.places.len() as usize - self.free.len()
    }

    /// The argument of [`Self::begin_with`] for a table whose ids must differ from those of this
    /// one.
    pub fn next_generation(&self) -> u32 {
        self.next_generation
    }

    /// The generation of the next operation; from 1 on.
    pub fn begin_with(&mut self, generation: u32) {
        self.next_generation = generation.clamp(1, GENERATIONS);
    }

    /// The oldest of a list of the owner's.
    #[inline]
    pub fn first(&self, list: &List) -> Option<RequestId> {
        self.at(list.first)
    }

    /// Everything in a list of the owner's, oldest first.
    pub fn all(&self, list: &List) -> impl Iterator<Item = RequestId> {
        self.of_list(ListKind::State, list)
    }

    /// Puts an operation that has completed, or that is pending, at the end of a list of the owner's. False,
    /// and nothing has changed, for any other one. It must be in no list.
    #[inline]
    pub fn append(&mut self, list: &mut List, id: RequestId) -> bool {
        let owners = self.is_owners(id);
        if owners {
            self.join(ListKind::State, list, id.index());
        }
        owners
    }

    /// Appends an operation whose completion the owner is being told, which is there for sure.
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

    /// Takes such an operation out of the list that it is in. One that is pending stays in its list when it
    /// ends, and must leave it before it is activated.
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
    /// The place of one that has completed is for others.
    #[inline(always)]
    fn release(&mut self, place: u32) {
        self.places.on_free(place);
        self.places.record_mut(place).empty();
        self.put_back(place);
    }

    /// Operations that have not completed.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way as usize
    }

    /// Is there a place for one more, or can there be?
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.has_room_for(1)
    }

    /// Whether there is room for so many more operations.
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
            // The lowest is used first.
            let new = first..self.places.len();
            match self.places.reuse_delay() {
                0 => new.rev().for_each(|place| self.put_back(place)),
                _ => new.for_each(|place| self.put_back(place)),
            }
        }
    }

    /// A free place.
    #[inline(always)]
    fn put_back(&mut self, place: u32) {
        let delay = self.places.reuse_delay();
        let free = &mut self.free;
        let behind = match delay {
            0 => std::mem::replace(&mut free.first, place),
            _ => NONE,
        };
        self.places.record_mut(place).links.behind = behind;
        if delay != 0 {
            match std::mem::replace(&mut free.last, place) {
                NONE => free.first = place,
                last => self.places.record_mut(last).links.behind = place,
            }
        }
        free.len += 1;
    }

    /// A new operation. `None` when there can be no more. With `NO_REMOTE` and in no list; its state may
    /// want both.
    pub(crate) fn add(
        &mut self,
        word: O::OpData,
        bits: MatchBits,
        timeouts: TimeOuts,
        state: State<O::Memory>,
    ) -> Option<RequestId> {
        let (id, (record, its)) = self.open(bits, timeouts)?;
        record.begin(state);
        *its = word;
        self.places.on_use(id.index());
        Some(id)
    }

    /// A post becomes an operation, in the state that `state` makes of its memory.
    /// `None`: there can be no more.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        what: impl Posting<O>,
        (bits, timeouts): (MatchBits, TimeOuts),
        state: impl FnOnce(O::Memory) -> State<O::Memory>,
    ) -> Option<RequestId> {
        if let Some(id) = what.pending() {
            self.activate(id, bits, timeouts, state(what.begin().0));
            return Some(id);
        }
        // Only when there is a place, so that there is no state yet that would have to be let go of.
        let (id, (record, its)) = self.open(bits, timeouts)?;
        let (memory, word) = what.begin();
        record.begin(state(memory));
        *its = word;
        self.places.on_use(id.index());
        Some(id)
    }

    /// A post that is no operation yet becomes a receive for messages of one remote, at the end of its kin, which
    /// [`PostedReceives::enter_at`](crate::matching::PostedReceives::enter_at) finds alone among those of its bits.
    #[inline(always)]
    pub(crate) fn enter_receive(
        &mut self,
        what: impl Posting<O>,
        (bits, timeouts): (MatchBits, TimeOuts),
        position: Position,
        (remote, kin): (RemoteId, &mut List),
    ) -> Option<RequestId> {
        let (id, (record, its)) = self.open(bits, timeouts)?;
        let place = id.index();
        let (memory, word) = what.begin();
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
        *its = word;
        self.places.on_use(place);
        match before {
            NONE => kin.first = place,
            before => self.places.record_mut(before).remote_links.behind = place,
        }
        kin.len += 1;
        Some(id)
    }

    /// A new operation, whose state and word the caller puts there before [`OpStorage::on_use`].
    #[inline(always)]
    fn open(&mut self, bits: MatchBits, timeouts: TimeOuts) -> Option<(RequestId, Opened<'_, O>)> {
        if !self.has_room() {
            return None;
        }
        let place = self.free.first;
        let generation = self.next_generation;
        self.next_generation = if generation == GENERATIONS {
            1
        } else {
            generation + 1
        };
        let (record, word) = self.places.both_mut(place);
        self.free.first = record.links.behind;
        self.free.len -= 1;
        if self.free.first == NONE {
            self.free.last = NONE;
        }
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
        Some((RequestId::new(place, generation), (record, word)))
    }

    /// A pending operation becomes what it would have become when it was posted. Its memory must have
    /// been taken out. Nothing happens to any other.
    fn activate(
        &mut self,
        id: RequestId,
        bits: MatchBits,
        timeouts: TimeOuts,
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

    /// The record of an operation that may have completed.
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

    /// An operation that has not completed.
    #[inline(always)]
    pub(crate) fn get(&self, id: RequestId) -> Option<&Record<O::Memory>> {
        self.of(id)
            .filter(|record| !matches!(record.state, State::Done))
    }

    /// The record of an operation, to change it.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Record<O::Memory>> {
        self.of_mut(id)
            .filter(|record| !matches!(record.state, State::Done))
    }

    /// The record of an operation that is known to be there.
    #[inline(always)]
    pub(crate) fn record(&self, place: u32) -> &Record<O::Memory> {
        self.places.record(place)
    }

    /// The record at a place, to change it.
    #[inline(always)]
    pub(crate) fn record_mut(&mut self, place: u32) -> &mut Record<O::Memory> {
        self.places.record_mut(place)
    }

    /// Ends an operation; no other function does. Its memory is let go of, and from now on it is
    /// its owner's. False when it had ended, or there is none. It must have left all lists.
    pub(crate) fn finish(&mut self, id: RequestId) -> bool {
        let ends = self.get(id).is_some();
        if ends {
            self.end(id.index()).state = State::Done;
        }
        ends
    }

    /// Ends the receive at a place after its memory has been filled from `source`. Returns its id, the number of
    /// bytes written, and its timer.
    #[inline(always)]
    pub(crate) fn finish_filled(
        &mut self,
        place: u32,
        source: &(impl Source + ?Sized),
    ) -> (RequestId, usize, Option<TimerId>) {
        self.under_way -= 1;
        let record = self.places.record_mut(place);
        let timer = record.timer.take();
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

    /// Ends an operation whose memory becomes the caller's.
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

    /// Puts a record at the end of a list. It must not be in one of that strand.
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

    /// Sets the remote of an operation, and adds it to the remote's kin. `only`: it is a receive
    /// for messages of that remote only.
    #[inline(always)]
    pub(crate) fn attach_op(&mut self, place: u32, remote: RemoteId, only: bool, kin: &mut List) {
        let record = self.places.record_mut(place);
        record.remote = remote;
        record.from_one |= only;
        self.join(ListKind::Remote, kin, place);
    }

    /// Takes a record out of a list. It must be in that one.
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
        list.len = list.len.saturating_sub(1);
    }

    /// Everything in a list, oldest first.
    pub(crate) fn of_list(&self, strand: ListKind, list: &List) -> impl Iterator<Item = RequestId> {
        let mut next = list.first;
        std::iter::from_fn(move || {
            let id = self.at(next)?;
            next = self.places.record(next).links(strand).behind;
            Some(id)
        })
    }

    /// Every operation that has not completed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Record<O::Memory>)> {
        let all = (0..self.places.len()).filter_map(|place| self.at(place));
        all.filter_map(|id| Some((id, self.get(id)?)))
    }
}

/// The highest generation. The bit above distinguishes an operation's id from other numbers.
const GENERATIONS: u32 = u32::MAX >> 1;
