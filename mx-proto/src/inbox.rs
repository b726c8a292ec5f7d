//! Messages for whoever asks, in turn: those that can be had, and those that are still to be fetched.
//!
//! ```text
//!   rotation   turn 7 -> turn 3 -> turn 9          turns whose first message is here; one gives one, then
//!                |         |         |             it is the next one's
//!                #         #         #   <- next_message          #  here
//!                #         #       (...)                        (..) offered, or on its way
//!              (...)                 #             what is behind one that is not here waits for it
//!                #
//!                                                  fetched: of each turn the first that is not here,
//!   line       turn 7 -> turn 5                    turns in the order in which they come to that
//! ```
//!
//! However much there is in one turn, it delays another's oldest message by one hand-out. Turn 0 stands
//! in no rotation: its messages are taken by its number.
//!
//! Owns: the messages, and what they were paid with. Knows nothing of: operations, the pool, what a turn
//! is. Cost: everything is O(1) for each message that it is about, and allocates nothing once there are
//! places enough; besides the messages 32 bytes for each turn up to the highest number.

use crate::by_partner::ByPartner;
use crate::flow::Paid;
use crate::ids::{MatchBits, PartnerId, RequestId};
use crate::matching::{Chains, Ends};
use crate::origin::Source;
use crate::port::RemoteKey;
use slab::Slab;

/// One message.
#[derive(Debug)]
pub(crate) struct Entry<M> {
    pub(crate) turn: u32,
    pub(crate) length: u32,
    pub(crate) source: PartnerId,
    pub(crate) bits: MatchBits,
    pub(crate) body: Body<M>,
    /// What its sender has paid, and credits of the pool's own.
    pub(crate) paid: Paid,
    pub(crate) drawn: u32,
    /// Its sender has gone, and it is an estate from there.
    pub(crate) estate: Option<Source>,
    /// In the order of arrival; once it can be had, in the order in which messages could.
    number: u64,
    /// It can be had.
    ready: bool,
}

/// What there is of a message.
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
        (source, bits, length): (PartnerId, MatchBits, u32),
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
            estate: None,
            number: 0,
            ready: false,
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
    /// By number of the turn.
    turns: Vec<Turn>,
    messages: Chains,
    rotation: Ends,
    rotating: Chains,
    line: Ends,
    lined: Chains,
    /// Those whose sender has not gone.
    by_source: ByPartner,
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
    all: Ends,
    /// The first that is not here.
    absent: Option<u32>,
    /// How many are before it.
    ready: u32,
    rotates: bool,
    /// `absent` is to be fetched, and nothing has been done about that.
    waits: bool,
}

impl Turn {
    const EMPTY: Self = Self {
        all: Ends::EMPTY,
        absent: None,
        ready: 0,
        rotates: false,
        waits: false,
    };
}

impl<M> Default for Inbox<M> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            turns: Vec::new(),
            messages: Chains::default(),
            rotation: Ends::EMPTY,
            rotating: Chains::default(),
            line: Ends::EMPTY,
            lined: Chains::default(),
            by_source: ByPartner::default(),
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

    /// How many can be had in turn.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// How many are here, whether they can be had or wait for one before them.
    pub(crate) fn here(&self) -> usize {
        self.here
    }

    /// Bytes of those that are here or on their way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many are on their way.
    pub(crate) fn coming(&self) -> usize {
        self.coming
    }

    /// Turns that wait for a message to be fetched.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Is there any message of a turn's?
    pub(crate) fn holds(&self, turn: u32) -> bool {
        let queue = self.turns.get(turn as usize);
        queue.is_some_and(|queue| queue.all.oldest().is_some())
    }

    /// Whose turn it is.
    #[inline]
    pub(crate) fn turn(&self) -> Option<u32> {
        self.rotation.oldest()
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Entry<M>> {
        self.entries.get(place as usize)
    }

    /// The oldest message of a turn, if it can be had.
    pub(crate) fn first(&self, turn: u32) -> Option<&Entry<M>> {
        let queue = self.turns.get(turn as usize)?;
        self.get(queue.all.oldest()?).filter(|entry| entry.ready)
    }

    /// The youngest message of a turn.
    pub(crate) fn last(&self, turn: u32) -> Option<u32> {
        self.turns.get(turn as usize)?.all.youngest()
    }

    /// The message that is to be fetched next.
    #[inline]
    pub(crate) fn to_fetch(&self) -> Option<u32> {
        let turn = self.line.oldest()?;
        self.turns.get(turn as usize)?.absent
    }

    /// All messages of a sender that has not gone.
    pub(crate) fn of_source(&self, source: PartnerId) -> Vec<u32> {
        self.by_source.of(source).collect()
    }

    /// Puts a message, whole or offered, behind the others of its turn. Gives its place, and whether it
    /// can be had.
    pub(crate) fn add(&mut self, mut entry: Entry<M>) -> (u32, bool) {
        let (turn, source, whole) = (entry.turn, entry.source, entry.is_whole());
        if turn as usize >= self.turns.len() {
            self.turns.resize(turn as usize + 1, Turn::EMPTY);
        }
        entry.number = self.next_number();
        self.here += usize::from(whole);
        self.bytes += if whole { entry.length as usize } else { 0 };
        // Credits bound how many there are far below 2^32.
        let place = self.entries.insert(entry) as u32;
        let queue = &mut self.turns[turn as usize];
        let first_absent = queue.absent.is_none();
        self.messages.append(&mut queue.all, place);
        self.by_source.join(source, place);
        let ready = first_absent && self.advance(turn, Some(place)) > 0;
        (place, ready)
    }

    /// Takes out the oldest message of a turn, if it can be had. `in_turn`: it has had its turn then.
    pub(crate) fn take(&mut self, turn: u32, in_turn: bool) -> Option<Entry<M>> {
        self.first(turn)?;
        let place = self.turns.get(turn as usize)?.all.oldest()?;
        let entry = self.remove(place)?.0;
        if let Some(queue) = self.turns.get_mut(turn as usize)
            && in_turn
            && queue.rotates
        {
            self.rotating.unlink(&mut self.rotation, turn);
            self.rotating.append(&mut self.rotation, turn);
        }
        Some(entry)
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
        let turn = entry.turn;
        self.leave_line(turn);
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
        let turn = entry.turn;
        if self.turns[turn as usize].absent != Some(place) {
            return 0;
        }
        self.advance(turn, Some(place))
    }

    /// Takes a message out. Gives how many of its turn can be had because of that.
    pub(crate) fn remove(&mut self, place: u32) -> Option<(Entry<M>, u32)> {
        let entry = self.entries.try_remove(place as usize)?;
        let turn = entry.turn;
        let behind = self.messages.behind(place);
        let queue = &mut self.turns[turn as usize];
        self.messages.unlink(&mut queue.all, place);
        if entry.estate.is_none() {
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
            self.ready -= usize::from(turn != 0);
            if queue.ready == 0 && std::mem::take(&mut queue.rotates) {
                self.rotating.unlink(&mut self.rotation, turn);
            }
        }
        let absent = queue.absent == Some(place);
        if absent {
            self.leave_line(turn);
        }
        let ready = if absent {
            self.advance(turn, behind)
        } else {
            0
        };
        if self.entries.is_empty() && self.entries.capacity() > ROOM_KEPT {
            // What a flood has left behind.
            *self = Self::default();
        }
        Some((entry, ready))
    }

    /// The sender of a message has gone: what it was paid with is an estate from there.
    pub(crate) fn bequeath(&mut self, place: u32, from: Source) {
        if let Some(entry) = self.entries.get_mut(place as usize)
            && entry.estate.replace(from).is_none()
        {
            self.by_source.leave(entry.source, place);
        }
    }

    /// One turn turns out to be another: what can be had of both is handed out in the order in which it
    /// could, and the rest in the order in which it came.
    pub(crate) fn rename(&mut self, from: u32, into: u32) {
        if from == into || !self.holds(from) {
            return;
        }
        if into as usize >= self.turns.len() {
            self.turns.resize(into as usize + 1, Turn::EMPTY);
        }
        let old = std::mem::replace(&mut self.turns[from as usize], Turn::EMPTY);
        let new = std::mem::replace(&mut self.turns[into as usize], Turn::EMPTY);
        let mut places: Vec<u32> = self.messages.walk(old.all).collect();
        for place in &places {
            self.entries[*place as usize].turn = into;
        }
        places.extend(self.messages.walk(new.all));
        places.sort_unstable_by_key(|place| {
            let entry = &self.entries[*place as usize];
            (!entry.ready, entry.number)
        });
        let mut merged = Turn {
            ready: old.ready + new.ready,
            absent: places.get((old.ready + new.ready) as usize).copied(),
            ..Turn::EMPTY
        };
        for place in places {
            self.messages.append(&mut merged.all, place);
        }
        // Turn 0 has no place in the rotation.
        self.ready += if from == 0 { old.ready as usize } else { 0 };
        self.ready -= if into == 0 { old.ready as usize } else { 0 };
        merged.rotates = merged.ready > 0 && into != 0;
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
    }

    /// What is here from `next` on, and not behind one that is not, can be had. Gives how many that are.
    fn advance(&mut self, turn: u32, mut next: Option<u32>) -> u32 {
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
        let queue = &mut self.turns[turn as usize];
        queue.absent = next;
        queue.ready += ready;
        if turn != 0 {
            self.ready += ready as usize;
            if queue.ready > 0 && !std::mem::replace(&mut queue.rotates, queue.ready > 0) {
                self.rotating.append(&mut self.rotation, turn);
            }
        }
        if offered && !std::mem::replace(&mut queue.waits, true) {
            self.lined.append(&mut self.line, turn);
            self.waiting += 1;
        }
        ready
    }

    fn leave_line(&mut self, turn: u32) {
        if let Some(queue) = self.turns.get_mut(turn as usize)
            && std::mem::take(&mut queue.waits)
        {
            self.lined.unlink(&mut self.line, turn);
            self.waiting -= 1;
        }
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers - 1
    }
}

/// Of two turns, which stand in a chain or not, one is left, which stands there or not.
fn join(
    chain: &mut Chains,
    ends: &mut Ends,
    [(from, stood), (into, stands)]: [(u32, bool); 2],
    stays: bool,
) {
    match (stood, stands, stays) {
        (true, false, true) => chain.replace(ends, from, into),
        (false, false, true) => chain.append(ends, into),
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
const ROOM_KEPT: usize = 4096;
