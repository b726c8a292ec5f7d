//! Unexpected messages for the host, in turns: those that are here, and those that are still to be
//! fetched.
//!
//! ```text
//!   rotation   turn 7 -> turn 3 -> turn 9          turns whose first message is here; each hands out one
//!                |         |         |             message, then it is the next turn
//!                #         #         #   <- next_message          #  here
//!                #         #       (...)                        (..) offered, or on its way
//!              (...)                 #             messages behind one that is not here wait for it
//!                #
//!                                                  fetched: of each turn the first that is not here,
//!   line       turn 7 -> turn 5                    turns in the order in which they come to that
//! ```
//!
//! However many messages one turn has, it delays another's oldest message by one hand-out.
//!
//! Owns: the messages, and their payments.
//! Not here: operations, the pool.
//! Cost: O(1) for each message, and no allocation once there are enough places. A turn without
//! messages takes no memory, so there may be any number of turns.

use crate::by_remote::ByRemote;
use crate::flow::Paid;
use crate::ids::{MatchBits, RemoteId, RequestId};
use crate::matching::{Chains, Ends};
use crate::origin::Source;
use crate::port::RemoteKey;
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;

/// One message.
#[derive(Debug)]
pub(crate) struct Entry<M> {
    pub(crate) turn: u32,
    pub(crate) length: u32,
    pub(crate) source: RemoteId,
    pub(crate) bits: MatchBits,
    pub(crate) body: Body<M>,
    /// The payment of its sender, and credits drawn from the pool.
    pub(crate) paid: Paid,
    pub(crate) drawn: u32,
    /// Its sender has gone, and it is a tombstone from there.
    pub(crate) tombstone: Option<Source>,
    /// In the order of arrival; once it can be had, in the order in which messages could.
    number: u64,
    /// It can be had.
    ready: bool,
    /// The slot of its turn.
    slot: u32,
}

/// The state of a message.
#[derive(Debug)]
pub(crate) enum Body<M> {
    /// All of it, where its taker wants it.
    Here(M),
    /// All of it; there was no such memory.
    Kept(Vec<u8>),
    /// The name under which its sender gives it out.
    Offered {
        send_id: u64,
        key: Option<Box<RemoteKey>>,
    },
    /// It is on its way: the operation that fetches it.
    Coming(RequestId),
}

impl<M> Entry<M> {
    pub(crate) fn new(
        turn: u32,
        (source, bits, length): (RemoteId, MatchBits, u32),
        paid: Paid,
        body: Body<M>,
    ) -> Self {
        Self {
            turn,
            length,
            source,
            bits,
            body,
            paid,
            drawn: 0,
            tombstone: None,
            number: 0,
            ready: false,
            slot: 0,
        }
    }

    /// All of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.body, Body::Here(_) | Body::Kept(_))
    }

    /// Its bytes are here, or room for them.
    fn has_bytes(&self) -> bool {
        !matches!(self.body, Body::Offered { .. })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    entries: Slab<Entry<M>>,
    /// Those with messages.
    turns: Slab<Turn>,
    /// The slots of turns, by number.
    slots: HashMap<u32, u32, RandomState>,
    messages: Chains,
    rotation: Ends,
    rotating: Chains,
    line: Ends,
    lined: Chains,
    /// Those whose sender has not gone.
    by_source: ByRemote,
    /// Numbers given out.
    numbers: u64,
    /// Messages that can be had in turn; those that are here.
    ready: usize,
    here: usize,
    bytes: usize,
    coming: usize,
    waiting: usize,
}

/// The messages of one turn, in the order in which they were sent.
#[derive(Clone, Copy, Debug)]
struct Turn {
    number: u32,
    all: Ends,
    /// The first that is not here.
    absent: Option<u32>,
    /// The number of messages before it.
    ready: u32,
    rotates: bool,
    /// `absent` is to be fetched, and nothing has been done about that.
    waits: bool,
}

impl Turn {
    const fn new(number: u32) -> Self {
        Self {
            number,
            all: Ends::EMPTY,
            absent: None,
            ready: 0,
            rotates: false,
            waits: false,
        }
    }
}

impl<M> Default for Inbox<M> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            turns: Slab::new(),
            slots: HashMap::default(),
            messages: Chains::default(),
            rotation: Ends::EMPTY,
            rotating: Chains::default(),
            line: Ends::EMPTY,
            lined: Chains::default(),
            by_source: ByRemote::default(),
            numbers: 0,
            ready: 0,
            here: 0,
            bytes: 0,
            coming: 0,
            waiting: 0,
        }
    }
}

impl<M> Inbox<M> {
    /// All messages, also those that are not here.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of messages that can be handed out.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// The number of messages that are here, whether they can be handed out or wait for an earlier
    /// one.
    pub(crate) fn here(&self) -> usize {
        self.here
    }

    /// Bytes of those that are here or on their way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of messages being fetched.
    pub(crate) fn coming(&self) -> usize {
        self.coming
    }

    /// Turns that wait for a message to be fetched.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a turn has any message.
    pub(crate) fn holds(&self, turn: u32) -> bool {
        self.slots.contains_key(&turn)
    }

    /// The next turn.
    #[inline]
    pub(crate) fn turn(&self) -> Option<u32> {
        Some(self.turns.get(self.rotation.oldest()? as usize)?.number)
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Entry<M>> {
        self.entries.get(place as usize)
    }

    /// The oldest message of the turn whose turn it is.
    pub(crate) fn first_mut(&mut self) -> Option<&mut Entry<M>> {
        let queue = self.turns.get(self.rotation.oldest()? as usize)?;
        self.entries.get_mut(queue.all.oldest()? as usize)
    }

    /// The youngest message of a turn.
    pub(crate) fn last(&self, turn: u32) -> Option<u32> {
        let slot = *self.slots.get(&turn)?;
        self.turns.get(slot as usize)?.all.youngest()
    }

    /// The message that is to be fetched next.
    #[inline]
    pub(crate) fn to_fetch(&self) -> Option<u32> {
        let slot = self.line.oldest()?;
        self.turns.get(slot as usize)?.absent
    }

    /// All messages of a sender that has not gone.
    pub(crate) fn of_source(&self, source: RemoteId) -> Vec<u32> {
        self.by_source.of(source).collect()
    }

    /// Puts a message, whole or offered, behind the others of its turn. Gives its place, and whether it
    /// can be had.
    pub(crate) fn add(&mut self, mut entry: Entry<M>) -> (u32, bool) {
        let (source, whole) = (entry.source, entry.is_whole());
        let slot = self.slot(entry.turn);
        entry.slot = slot;
        entry.number = self.next_number();
        self.here += usize::from(whole);
        self.bytes += if whole { entry.length as usize } else { 0 };
        // Credits bound how many there are far below 2^32.
        let place = self.entries.insert(entry) as u32;
        let queue = &mut self.turns[slot as usize];
        let first_absent = queue.absent.is_none();
        self.messages.append(&mut queue.all, place);
        self.by_source.join(source, place);
        let ready = first_absent && self.advance(slot, Some(place)) > 0;
        (place, ready)
    }

    /// Takes out the oldest message of the turn whose turn it is; then it is the next one's.
    pub(crate) fn take(&mut self) -> Option<Entry<M>> {
        let place = self
            .turns
            .get(self.rotation.oldest()? as usize)?
            .all
            .oldest()?;
        let entry = self.remove(place)?.0;
        if self.turn() == Some(entry.turn) {
            self.pass();
        }
        Some(entry)
    }

    /// It is the next one's turn.
    pub(crate) fn pass(&mut self) {
        if let Some(slot) = self.rotation.oldest() {
            self.rotating.unlink(&mut self.rotation, slot);
            self.rotating.append(&mut self.rotation, slot);
        }
    }

    /// An offered message is on its way from now on, for `drawn` credits. Gives the name it had.
    pub(crate) fn begin(
        &mut self,
        place: u32,
        op: RequestId,
        drawn: u32,
    ) -> Option<(u64, Option<RemoteKey>)> {
        let entry = self.entries.get_mut(place as usize)?;
        if entry.has_bytes() {
            return None;
        }
        let body = std::mem::replace(&mut entry.body, Body::Coming(op));
        (entry.drawn, self.bytes) = (drawn, self.bytes + entry.length as usize);
        self.coming += 1;
        let slot = entry.slot;
        self.leave_line(slot);
        match body {
            Body::Offered { send_id, key } => Some((send_id, key.map(|key| *key))),
            _ => None,
        }
    }

    /// A message that was on its way is here. Gives how many of its turn can be had because of that.
    pub(crate) fn arrived(&mut self, place: u32, memory: M) -> u32 {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return 0;
        };
        debug_assert!(matches!(entry.body, Body::Coming(_)));
        entry.body = Body::Here(memory);
        self.coming -= 1;
        self.here += 1;
        let slot = entry.slot;
        if self.turns[slot as usize].absent != Some(place) {
            return 0;
        }
        self.advance(slot, Some(place))
    }

    /// Takes a message out. Gives how many of its turn can be had because of that.
    pub(crate) fn remove(&mut self, place: u32) -> Option<(Entry<M>, u32)> {
        let entry = self.entries.try_remove(place as usize)?;
        let slot = entry.slot;
        let behind = self.messages.behind(place);
        let queue = &mut self.turns[slot as usize];
        self.messages.unlink(&mut queue.all, place);
        if entry.tombstone.is_none() {
            self.by_source.leave(entry.source, place);
        }
        self.here -= usize::from(entry.is_whole());
        self.coming -= usize::from(matches!(entry.body, Body::Coming(_)));
        self.bytes -= if entry.has_bytes() {
            entry.length as usize
        } else {
            0
        };
        if entry.ready {
            queue.ready -= 1;
            self.ready -= 1;
            if queue.ready == 0 && std::mem::take(&mut queue.rotates) {
                self.rotating.unlink(&mut self.rotation, slot);
            }
        }
        let absent = queue.absent == Some(place);
        let empty = queue.all.oldest().is_none();
        if absent {
            self.leave_line(slot);
        }
        let ready = if absent {
            self.advance(slot, behind)
        } else {
            0
        };
        if empty {
            self.forget(slot);
        }
        if self.entries.is_empty() && self.entries.capacity() > KEPT_MAX {
            // Frees the memory left from a flood.
            *self = Self::default();
        }
        Some((entry, ready))
    }

    /// The sender of a message that is here has gone: what it was paid with is a tombstone from there. It
    /// waits for no other sender's: those may wait for what it holds. Gives whether it can be had because
    /// of that.
    pub(crate) fn bequeath(&mut self, place: u32, from: Source) -> bool {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return false;
        };
        if entry.tombstone.replace(from).is_none() {
            self.by_source.leave(entry.source, place);
        }
        let (slot, waits) = (entry.slot, !entry.ready);
        let queue = &mut self.turns[slot as usize];
        if let Some(absent) = queue.absent
            && waits
        {
            self.messages.unlink(&mut queue.all, place);
            self.messages.insert(&mut queue.all, place, absent);
            self.advance(slot, Some(place));
        }
        waits
    }

    /// One turn turns out to be another: what can be had of both is handed out in the order in which it
    /// could, and the rest in the order in which it came; but what credits have been drawn for waits for
    /// nothing that has yet to draw some.
    pub(crate) fn rename(&mut self, from: u32, into: u32) {
        if from == into || !self.holds(from) {
            return;
        }
        let number = into;
        let (from, into) = (self.slot(from), self.slot(into));
        let (old, new) = (self.turns[from as usize], self.turns[into as usize]);
        let mut places: Vec<u32> = self.messages.walk(old.all).collect();
        for place in &places {
            let entry = &mut self.entries[*place as usize];
            (entry.turn, entry.slot) = (number, into);
        }
        places.extend(self.messages.walk(new.all));
        places.sort_unstable_by_key(|place| {
            let entry = &self.entries[*place as usize];
            let drawn = entry.drawn > 0 || matches!(entry.body, Body::Coming(_));
            (!entry.ready, !drawn, entry.number)
        });
        let mut merged = Turn {
            ready: old.ready + new.ready,
            absent: places.get((old.ready + new.ready) as usize).copied(),
            ..Turn::new(number)
        };
        for place in places {
            self.messages.append(&mut merged.all, place);
        }
        merged.rotates = merged.ready > 0;
        join(
            &mut self.rotating,
            &mut self.rotation,
            [(from, old.rotates), (into, new.rotates)],
            merged.rotates,
        );
        let fetch = merged.absent.and_then(|place| self.get(place));
        merged.waits = fetch.is_some_and(|entry| !entry.has_bytes());
        join(
            &mut self.lined,
            &mut self.line,
            [(from, old.waits), (into, new.waits)],
            merged.waits,
        );
        self.waiting += usize::from(merged.waits);
        self.waiting -= usize::from(old.waits) + usize::from(new.waits);
        self.turns[into as usize] = merged;
        self.forget(from);
    }

    /// The slot of a turn; a new one if it had no messages.
    fn slot(&mut self, number: u32) -> u32 {
        let turns = &mut self.turns;
        *(self.slots.entry(number)).or_insert_with(|| turns.insert(Turn::new(number)) as u32)
    }

    /// A turn has no messages any more.
    fn forget(&mut self, slot: u32) {
        let turn = self.turns.remove(slot as usize);
        self.slots.remove(&turn.number);
    }

    /// Makes messages ready from `next` on, up to the first that is not here. Returns their number.
    fn advance(&mut self, slot: u32, mut next: Option<u32>) -> u32 {
        let mut ready = 0;
        while let Some(place) = next
            && let Some(entry) = self.entries.get_mut(place as usize)
            && entry.is_whole()
        {
            entry.ready = true;
            entry.number = self.numbers;
            self.numbers += 1;
            ready += 1;
            next = self.messages.behind(place);
        }
        let fetch = next.and_then(|place| self.get(place));
        let offered = fetch.is_some_and(|entry| !entry.has_bytes());
        let queue = &mut self.turns[slot as usize];
        queue.absent = next;
        queue.ready += ready;
        self.ready += ready as usize;
        if queue.ready > 0 && !std::mem::replace(&mut queue.rotates, true) {
            self.rotating.append(&mut self.rotation, slot);
        }
        if offered && !std::mem::replace(&mut queue.waits, true) {
            self.lined.append(&mut self.line, slot);
            self.waiting += 1;
        }
        ready
    }

    fn leave_line(&mut self, slot: u32) {
        if let Some(queue) = self.turns.get_mut(slot as usize)
            && std::mem::take(&mut queue.waits)
        {
            self.lined.unlink(&mut self.line, slot);
            self.waiting -= 1;
        }
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers - 1
    }
}

/// Of two turns, which stand in a chain or not, one is left, which stands there only if one of them did.
fn join(
    chain: &mut Chains,
    ends: &mut Ends,
    [(from, stood), (into, stands)]: [(u32, bool); 2],
    stays: bool,
) {
    match (stood, stands, stays) {
        (true, false, true) => {
            chain.insert(ends, into, from);
            chain.unlink(ends, from);
        }
        _ => {
            if stood {
                chain.unlink(ends, from);
            }
            if stands && !stays {
                chain.unlink(ends, into);
            }
        }
    }
}

/// Messages for which memory is kept when there is none any more.
const KEPT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use mx_sim::Rng;

    /// The reference model: a message.
    #[derive(Clone, Debug, PartialEq)]
    struct Known {
        place: u32,
        source: u32,
        length: u32,
        state: State,
        /// Until it has been ready, in the order in which it came; then in that in which it was.
        number: u64,
        ready: bool,
        drawn: bool,
        gone: bool,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Whole,
        Offered,
        Coming,
    }

    /// The same as lists that are searched from the front.
    #[derive(Default)]
    struct Model {
        turns: Vec<Vec<Known>>,
        rotation: Vec<u32>,
        line: Vec<u32>,
        numbers: u64,
        /// The messages that could be handed out so far.
        ready: u64,
    }

    impl Model {
        /// Brings everything in line with the lists.
        fn see(&mut self) {
            for turn in 0..self.turns.len() as u32 {
                let list = &mut self.turns[turn as usize];
                let here = list
                    .iter()
                    .take_while(|it| it.state == State::Whole)
                    .count();
                for it in list[..here].iter_mut().filter(|it| !it.ready) {
                    (it.ready, it.number) = (true, self.numbers);
                    self.numbers += 1;
                    self.ready += 1;
                }
                let offered = list.get(here).is_some_and(|it| it.state == State::Offered);
                for (all, stands) in [(&mut self.rotation, here > 0), (&mut self.line, offered)] {
                    match all.iter().position(|other| *other == turn) {
                        Some(at) if !stands => drop(all.remove(at)),
                        None if stands => all.push(turn),
                        _ => {}
                    }
                }
            }
        }

        fn find(&mut self, place: u32) -> (u32, usize) {
            let mut all = (0..).zip(&self.turns);
            let found = all.find_map(|(turn, list)| {
                let at = list.iter().position(|it| it.place == place)?;
                Some((turn, at))
            });
            found.expect("it is there")
        }

        fn rename(&mut self, from: u32, into: u32) {
            if from == into || self.turns[from as usize].is_empty() {
                return;
            }
            let mut all = std::mem::take(&mut self.turns[from as usize]);
            all.append(&mut self.turns[into as usize]);
            all.sort_by_key(|it| (!it.ready, !it.drawn, it.number));
            self.turns[into as usize] = all;
            for all in [&mut self.rotation, &mut self.line] {
                let stands = all.contains(&into);
                if stands {
                    all.retain(|turn| *turn != from);
                }
                for turn in all.iter_mut().filter(|turn| **turn == from) {
                    *turn = into;
                }
            }
        }

        fn check(&self, inbox: &Inbox<u32>) {
            let all = || self.turns.iter().flatten();
            assert_eq!(inbox.len(), all().count());
            assert_eq!(inbox.turn(), self.rotation.first().copied());
            let numbers = |chains: &Chains, ends| -> Vec<u32> {
                let slots = chains.walk(ends);
                slots
                    .map(|slot| inbox.turns[slot as usize].number)
                    .collect()
            };
            assert_eq!(numbers(&inbox.rotating, inbox.rotation), self.rotation);
            let line = numbers(&inbox.lined, inbox.line);
            assert_eq!((&line, inbox.waiting()), (&self.line, line.len()));
            let fetch = self.line.first().map(|turn| {
                let mut list = self.turns[*turn as usize].iter();
                list.find(|it| it.state != State::Whole).unwrap().place
            });
            assert_eq!(inbox.to_fetch(), fetch);
            assert_eq!(inbox.ready(), all().filter(|it| it.ready).count());
            let whole = || all().filter(|it| it.state == State::Whole);
            assert_eq!(inbox.here(), whole().count());
            let coming = || all().filter(|it| it.state == State::Coming);
            assert_eq!(inbox.coming(), coming().count());
            let bytes: u32 = whole().chain(coming()).map(|it| it.length).sum();
            assert_eq!(inbox.bytes(), bytes as usize);
            for (turn, list) in (0..).zip(&self.turns) {
                assert_eq!(inbox.holds(turn), !list.is_empty());
                assert_eq!(inbox.last(turn), list.last().map(|it| it.place));
            }
            let turns = self.turns.iter().filter(|list| !list.is_empty()).count();
            assert_eq!((inbox.turns.len(), inbox.slots.len()), (turns, turns));
            for source in 0..3 {
                let theirs = all().filter(|it| it.source == source && !it.gone);
                let mut theirs: Vec<_> = theirs.map(|it| it.place).collect();
                let mut found = inbox.of_source(RemoteId::new(source, 1));
                theirs.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, theirs);
            }
        }
    }

    const TURNS: u32 = 5;

    fn step(rng: &mut Rng, inbox: &mut Inbox<u32>, model: &mut Model, n: u32) {
        let turn = rng.below(TURNS.into()) as u32;
        let places: Vec<_> = model.turns.iter().flatten().map(|it| it.place).collect();
        let some = (!places.is_empty()).then(|| places[rng.index(places.len().max(1))]);
        let before = model.ready;
        let ready = match rng.below(16) {
            0..6 => {
                let (source, whole) = (rng.below(3) as u32, rng.chance(0.6));
                let body = match (whole, rng.chance(0.5)) {
                    (true, true) => Body::Here(n),
                    (true, false) => Body::Kept(vec![0; n as usize]),
                    (false, keyed) => Body::Offered {
                        send_id: n.into(),
                        key: keyed.then(|| {
                            Box::new(RemoteKey {
                                address: n.into(),
                                key: 1,
                            })
                        }),
                    },
                };
                let from = (RemoteId::new(source, 1), MatchBits(n.into()), n);
                let (place, ready) = inbox.add(Entry::new(turn, from, Paid::Credits(1), body));
                model.turns[turn as usize].push(Known {
                    place,
                    source,
                    length: n,
                    state: if whole { State::Whole } else { State::Offered },
                    number: model.numbers,
                    ready: false,
                    drawn: false,
                    gone: false,
                });
                model.numbers += 1;
                model.see();
                u64::from(ready)
            }
            6..9 => {
                let passed = rng.chance(0.3);
                if passed {
                    inbox.pass();
                }
                if passed && !model.rotation.is_empty() {
                    model.rotation.rotate_left(1);
                }
                let turn = inbox.turn();
                let entry = inbox.take();
                let first = turn.map(|turn| model.turns[turn as usize].remove(0));
                assert!(first.as_ref().is_none_or(|it| it.ready));
                let key = |it: Known| (turn.unwrap(), it.length);
                assert_eq!(entry.map(|it| (it.turn, it.length)), first.map(key));
                model.see();
                if let Some(turn) = turn.filter(|turn| model.rotation.contains(turn)) {
                    model.rotation.retain(|other| *other != turn);
                    model.rotation.push(turn);
                }
                0
            }
            9..12 => {
                let Some(place) = inbox.to_fetch() else {
                    return;
                };
                let (turn, at) = model.find(place);
                let it = &mut model.turns[turn as usize][at];
                let name = inbox.begin(place, RequestId::new(n, 1), 3);
                assert_eq!(name.map(|name| name.0), Some(it.length.into()));
                assert!(inbox.begin(place, RequestId::new(n, 1), 3).is_none());
                (it.state, it.drawn) = (State::Coming, true);
                model.see();
                0
            }
            12 | 13 => {
                let mut coming = model.turns.iter_mut().flatten();
                let Some(it) = coming.find(|it| it.state == State::Coming) else {
                    return;
                };
                it.state = State::Whole;
                let ready = inbox.arrived(it.place, 0);
                model.see();
                ready.into()
            }
            14 => {
                let Some(place) = some else { return };
                let (turn, at) = model.find(place);
                let list = &mut model.turns[turn as usize];
                if rng.chance(0.5) && list[at].state == State::Whole {
                    let mut it = list.remove(at);
                    it.gone = true;
                    let here = list.iter().take_while(|it| it.ready).count();
                    list.insert(if it.ready { at } else { here }, it);
                    model.see();
                    let ready = inbox.bequeath(place, Source(7));
                    assert!(!inbox.bequeath(place, Source(7)));
                    assert_eq!(u64::from(ready), model.ready - before);
                    return;
                }
                if inbox.turns[inbox.slots[&turn] as usize].absent == Some(place) {
                    // The next one has not waited.
                    model.line.retain(|other| *other != turn);
                }
                let it = model.turns[turn as usize].remove(at);
                let (entry, ready) = inbox.remove(place).unwrap();
                assert_eq!((entry.turn, entry.length), (turn, it.length));
                assert_eq!(
                    entry.drawn,
                    if it.state == State::Offered {
                        0
                    } else {
                        entry.drawn
                    }
                );
                assert_eq!(entry.tombstone, it.gone.then_some(Source(7)));
                model.see();
                ready.into()
            }
            _ => {
                let into = rng.below(TURNS.into()) as u32;
                inbox.rename(turn, into);
                model.rename(turn, into);
                model.see();
                0
            }
        };
        assert_eq!(ready, model.ready - before, "told of so many more");
    }

    #[test]
    fn lists_that_are_searched_from_the_front_say_the_same() {
        mx_sim::seeds::each(2_000, |seed| {
            let mut rng = Rng::new(seed);
            let mut inbox = Inbox::default();
            let mut model = Model {
                turns: vec![Vec::new(); TURNS as usize],
                ..Model::default()
            };
            for n in 1..=1 + rng.below(150) as u32 {
                step(&mut rng, &mut inbox, &mut model, n);
                model.check(&inbox);
            }
        });
    }

    fn whole(turn: u32, tag: u64) -> Entry<u32> {
        let from = (RemoteId::new(turn, 1), MatchBits(tag), 8);
        Entry::new(turn, from, Paid::Credits(1), Body::Here(0))
    }

    fn offered(turn: u32, tag: u64) -> Entry<u32> {
        let body = Body::Offered {
            send_id: tag,
            key: None,
        };
        Entry {
            body,
            ..whole(turn, tag)
        }
    }

    fn tags(inbox: &mut Inbox<u32>) -> Vec<u64> {
        let next = || inbox.take();
        std::iter::from_fn(next).map(|entry| entry.bits.0).collect()
    }

    #[test]
    fn turns_have_one_message_each_and_keep_their_order() {
        let mut inbox = Inbox::default();
        for tag in [10, 11, 12, 13, 20, 21] {
            inbox.add(whole(tag as u32 / 10, tag));
        }
        assert_eq!(inbox.take().unwrap().bits.0, 10);
        // A new turn stands behind those that have not had their turn, and before any second one.
        inbox.add(whole(3, 30));
        assert_eq!(tags(&mut inbox), [20, 11, 30, 21, 12, 13]);
        assert_eq!(inbox.len(), 0);
    }

    #[test]
    fn what_is_behind_a_message_that_is_fetched_waits_and_others_do_not() {
        let mut inbox = Inbox::default();
        let (large, ready) = inbox.add(offered(1, 10));
        assert!(!ready && !inbox.add(whole(1, 11)).1 && !inbox.add(offered(1, 12)).1);
        assert!(inbox.add(whole(2, 20)).1);
        assert_eq!(tags(&mut inbox), [20]);
        let op = RequestId::new(1, 1);
        assert!(inbox.begin(large, op, 5).is_some());
        assert_eq!((inbox.to_fetch(), inbox.coming()), (None, 1));
        // The next one of that turn is fetched when this one is here.
        assert_eq!(inbox.arrived(large, 0), 2);
        assert!(inbox.to_fetch().is_some());
        assert_eq!(tags(&mut inbox), [10, 11]);
        let (next, _) = inbox.remove(inbox.to_fetch().unwrap()).unwrap();
        assert_eq!((next.bits.0, inbox.len(), inbox.waiting()), (12, 0, 0));
    }

    #[test]
    fn turns_that_turn_out_to_be_one_are_merged_by_age() {
        let mut inbox = Inbox::default();
        for tag in [20, 11, 30, 12, 23, 14, 25] {
            inbox.add(whole(tag as u32 / 10, tag));
        }
        inbox.rename(1, 2);
        assert!(inbox.holds(2) && !inbox.holds(1));
        assert_eq!(tags(&mut inbox), [20, 30, 11, 12, 23, 14, 25]);
        // Without a message the turn is kept.
        for tag in [10, 30, 11] {
            inbox.add(whole(tag as u32 / 10, tag));
        }
        inbox.rename(1, 2);
        assert_eq!(tags(&mut inbox), [10, 30, 11]);
    }

    #[test]
    fn the_memory_of_a_flood_is_given_back_and_that_of_fewer_messages_is_kept() {
        for (count, kept) in [(KEPT_MAX, KEPT_MAX), (2 * KEPT_MAX, 0)] {
            let mut inbox = Inbox::default();
            for n in 0..count as u64 {
                inbox.add(whole(n as u32 % 100, n));
            }
            while inbox.take().is_some() {}
            assert_eq!((inbox.len(), inbox.entries.capacity()), (0, kept));
            inbox.add(whole(7, 70));
            assert_eq!(tags(&mut inbox), [70]);
        }
    }
}
