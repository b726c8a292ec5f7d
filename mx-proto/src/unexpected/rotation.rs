//! Messages for the layer above, in turns: those that are here, and those that are still to be fetched.
//!
//! ```text
//!   rotation   turn 7 -> turn 3 -> turn 9          turns whose first message is here; each hands out one
//!                |         |         |             message, then it is the next turn
//!                #         #         #   <- take                   #  here
//!                #         #       (...)                        (..) offered, or on its way
//!              (...)                 #             messages behind one that is not here wait for it
//!                #
//!                                                  fetched: of each turn the first that is not here,
//!   line       turn 7 -> turn 5                    turns in the order in which they come to that
//! ```
//!
//! However many messages one turn has, it delays another's oldest message by one hand-out.
//!
//! Cost: O(1) for each message. A turn without messages takes no memory, so there may be any number of
//! turns.

use super::{Body, Stage, UnexpectedMessage, UnexpectedQueue};
use crate::ids::EntryId;
use crate::matching::{ChainEnds, Chains};
use crate::stats::InboxStats;
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;

/// See the module.
#[derive(Default, Debug)]
pub(super) struct InboxRotation {
    /// Turns with messages.
    pub(super) all: Slab<PeerQueue>,
    /// The slots of turns, by number.
    pub(super) slots: HashMap<u32, u32, RandomState>,
    pub(super) rotation: ChainEnds,
    pub(super) rotating: Chains,
    pub(super) line: ChainEnds,
    pub(super) lined: Chains,
    /// Messages that can be had in turn; the other figures.
    ready: usize,
    pub(super) stats: InboxStats,
}

/// The messages of one turn, in the order in which they were sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerQueue {
    pub(super) number: u32,
    all: ChainEnds,
    /// The first that is not here.
    pub(super) absent: Option<u32>,
    /// The number of messages before it.
    ready: u32,
    rotates: bool,
    /// `absent` is to be fetched, and nothing has been done about that.
    waits: bool,
}

impl PeerQueue {
    const fn new(number: u32) -> Self {
        Self {
            number,
            all: ChainEnds::EMPTY,
            absent: None,
            ready: 0,
            rotates: false,
            waits: false,
        }
    }
}

impl InboxRotation {
    /// The turn whose turn it is.
    #[inline]
    fn first(&self) -> Option<&PeerQueue> {
        self.all.get(self.rotation.oldest()? as usize)
    }

    fn of(&self, number: u32) -> Option<&PeerQueue> {
        self.all.get(*self.slots.get(&number)? as usize)
    }

    /// The slot of a turn; a new one if it had no messages.
    fn slot(&mut self, number: u32) -> u32 {
        let all = &mut self.all;
        *(self.slots.entry(number)).or_insert_with(|| all.insert(PeerQueue::new(number)) as u32)
    }

    /// A turn has no messages any more.
    fn forget(&mut self, slot: u32) {
        let turn = self.all.remove(slot as usize);
        self.slots.remove(&turn.number);
    }

    /// Passes the turn on to the next one.
    fn pass(&mut self) {
        if let Some(slot) = self.rotation.oldest() {
            self.rotating.unlink(&mut self.rotation, slot);
            self.rotating.append(&mut self.rotation, slot);
        }
    }
}

impl<M> UnexpectedQueue<M> {
    /// The number of messages that can be handed out.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.turns.ready
    }

    /// The figures of those with turns.
    pub(crate) fn inbox_stats(&self) -> InboxStats {
        self.turns.stats
    }

    /// Whether a turn has any message.
    pub(crate) fn holds(&self, turn: u32) -> bool {
        self.turns.slots.contains_key(&turn)
    }

    /// The next turn.
    #[inline]
    pub(crate) fn turn(&self) -> Option<u32> {
        Some(self.turns.first()?.number)
    }

    /// The turn of a message.
    pub(crate) fn turn_of(&self, message: &UnexpectedMessage<M>) -> Option<u32> {
        match message.stage {
            Stage::Turn { slot, .. } => Some(self.turns.all.get(slot as usize)?.number),
            _ => None,
        }
    }

    /// The oldest message of the turn whose turn it is.
    pub(crate) fn first_mut(&mut self) -> Option<&mut UnexpectedMessage<M>> {
        self.messages.at_mut(self.turns.first()?.all.oldest()?)
    }

    /// The youngest message of a turn.
    pub(crate) fn last(&self, turn: u32) -> Option<EntryId> {
        let last = self.turns.of(turn)?.all.youngest()?;
        Some(self.messages.at(last)?.0)
    }

    /// The message that is to be fetched next.
    #[inline]
    pub(crate) fn to_fetch(&self) -> Option<EntryId> {
        let slot = self.turns.line.oldest()?;
        let absent = self.turns.all.get(slot as usize)?.absent?;
        Some(self.messages.at(absent)?.0)
    }

    /// Puts a message, whole or offered, behind the others of a turn. Gives whether it can be had.
    pub(crate) fn await_turn(&mut self, id: EntryId, turn: u32) -> bool {
        self.leave(id);
        let Some(message) = self.messages.get_mut(id) else {
            return false;
        };
        let slot = self.turns.slot(turn);
        message.stage = Stage::Turn { slot, ready: false };
        if message.is_whole() {
            self.turns.stats.messages += 1;
            self.turns.stats.bytes += message.length as usize;
        }
        let queue = &mut self.turns.all[slot as usize];
        let first_absent = queue.absent.is_none();
        self.order.append(&mut queue.all, id.index());
        first_absent && self.advance(slot, Some(id.index())) > 0
    }

    /// Takes out the oldest message of the turn whose turn it is; then it is the next one's. Gives the turn,
    /// too.
    pub(crate) fn take(&mut self) -> Option<(u32, UnexpectedMessage<M>)> {
        let first = self.turns.first()?;
        let (turn, oldest) = (first.number, first.all.oldest()?);
        let id = self.messages.at(oldest)?.0;
        let message = self.remove(id)?.0;
        if self.turn() == Some(turn) {
            self.pass();
        }
        Some((turn, message))
    }

    /// Passes the turn on to the next one.
    pub(crate) fn pass(&mut self) {
        self.turns.pass();
    }

    /// A message leaves its turn. Gives how many others can be had because of that.
    pub(super) fn leave_turn(&mut self, place: u32, slot: u32, ready: bool) -> u32 {
        let behind = self.order.behind(place);
        let turns = &mut self.turns;
        let queue = &mut turns.all[slot as usize];
        self.order.unlink(&mut queue.all, place);
        if let Some((_, message)) = self.messages.at(place) {
            turns.stats.messages -= usize::from(message.is_whole());
            turns.stats.fetching -= usize::from(matches!(message.body, Body::Fetching(_)));
            if !message.is_there() {
                turns.stats.bytes -= message.length as usize;
            }
        }
        if ready {
            queue.ready -= 1;
            turns.ready -= 1;
            if queue.ready == 0 && std::mem::take(&mut queue.rotates) {
                turns.rotating.unlink(&mut turns.rotation, slot);
            }
        }
        let absent = queue.absent == Some(place);
        let empty = queue.all.oldest().is_none();
        let mut more = 0;
        if absent {
            self.leave_line(slot);
            more = self.advance(slot, behind);
        }
        if empty {
            self.turns.forget(slot);
        }
        more
    }

    /// A message that was on its way is here. Gives how many of its turn can be had because of that.
    pub(super) fn mark_arrived(&mut self, place: u32, slot: u32) -> u32 {
        self.turns.stats.fetching -= 1;
        self.turns.stats.messages += 1;
        if self.turns.all[slot as usize].absent != Some(place) {
            return 0;
        }
        self.advance(slot, Some(place))
    }

    /// A message that is here goes before the first that is not.
    pub(super) fn pass_absent(&mut self, place: u32, slot: u32) {
        let queue = &mut self.turns.all[slot as usize];
        if let Some(absent) = queue.absent {
            self.order.unlink(&mut queue.all, place);
            self.order.insert(&mut queue.all, place, absent);
            self.advance(slot, Some(place));
        }
    }

    /// Makes messages ready from `next` on, up to the first that is not here. Returns their number.
    fn advance(&mut self, slot: u32, mut next: Option<u32>) -> u32 {
        let turns = &mut self.turns;
        let mut more = 0;
        while let Some(place) = next
            && let Some(message) = self.messages.at_mut(place)
            && message.is_whole()
        {
            message.stage = Stage::Turn { slot, ready: true };
            more += 1;
            next = self.order.behind(place);
        }
        let fetch = next.and_then(|place| self.messages.at(place));
        let offered = fetch.is_some_and(|(_, message)| message.is_there());
        let queue = &mut turns.all[slot as usize];
        queue.absent = next;
        queue.ready += more;
        turns.ready += more as usize;
        if queue.ready > 0 && !std::mem::replace(&mut queue.rotates, true) {
            turns.rotating.append(&mut turns.rotation, slot);
        }
        if offered && !std::mem::replace(&mut queue.waits, true) {
            turns.lined.append(&mut turns.line, slot);
            turns.stats.waiting += 1;
        }
        more
    }

    pub(super) fn leave_line(&mut self, slot: u32) {
        let turns = &mut self.turns;
        if let Some(queue) = turns.all.get_mut(slot as usize)
            && std::mem::take(&mut queue.waits)
        {
            turns.lined.unlink(&mut turns.line, slot);
            turns.stats.waiting -= 1;
        }
    }
}
