//! Rotation of the inbox: messages for the layer above, in turns of their peers, arrived or still to be fetched.
//!
//! ```text
//!   rotation   turn 7 -> turn 3 -> turn 9          turns whose first message has arrived; each hands out one
//!                |         |         |             message, then the next turn follows
//!                #         #         #   <- take                   #  arrived
//!                #         #       (...)                        (..) offered, or being fetched
//!              (...)                 #             messages after one that has not arrived wait for it
//!                #
//!                                                  to fetch: in each turn the first that has not arrived,
//!   line       turn 7 -> turn 5                    turns in the order in which they have come to it
//! ```
//!
//! However many messages one turn has, it delays another turn's oldest message by one message.
//!
//! Cost: O(1) for each message. A turn without messages takes no memory, so there may be any number of turns.

use super::{Body, Stage, UnexpectedMessage, UnexpectedQueue};
use crate::ids::EntryId;
use crate::matching::{ChainEnds, Chains};
use crate::stats::InboxStats;
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;

/// Turns with messages, and their order.
#[derive(Default, Debug)]
pub(super) struct InboxRotation {
    pub(super) all: Slab<PeerQueue>,
    /// Slots of turns, by number.
    pub(super) slots: HashMap<u32, u32, RandomState>,
    pub(super) rotation: ChainEnds,
    pub(super) rotating: Chains,
    pub(super) line: ChainEnds,
    pub(super) lined: Chains,
    /// Number of messages that can be handed out.
    ready: usize,
    pub(super) stats: InboxStats,
}

/// Messages of one turn, in the order in which they were sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerQueue {
    pub(super) number: u32,
    all: ChainEnds,
    /// First message that has not arrived; `None`: all have.
    pub(super) absent: Option<u32>,
    /// Number of messages before it.
    ready: u32,
    rotates: bool,
    /// Whether `absent` is to be fetched and the fetch has not begun.
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
    #[inline]
    fn first(&self) -> Option<&PeerQueue> {
        self.all.get(self.rotation.oldest()? as usize)
    }

    fn of(&self, number: u32) -> Option<&PeerQueue> {
        self.all.get(*self.slots.get(&number)? as usize)
    }

    /// Returns the slot of a turn; a new one if it had no messages.
    fn slot(&mut self, number: u32) -> u32 {
        let all = &mut self.all;
        *(self.slots.entry(number)).or_insert_with(|| all.insert(PeerQueue::new(number)) as u32)
    }

    fn forget(&mut self, slot: u32) {
        let turn = self.all.remove(slot as usize);
        self.slots.remove(&turn.number);
    }

    fn pass(&mut self) {
        if let Some(slot) = self.rotation.oldest() {
            self.rotating.unlink(&mut self.rotation, slot);
            self.rotating.append(&mut self.rotation, slot);
        }
    }
}

impl<M> UnexpectedQueue<M> {
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.turns.ready
    }

    pub(crate) fn inbox_stats(&self) -> InboxStats {
        self.turns.stats
    }

    /// Returns whether a turn has any message.
    pub(crate) fn holds(&self, turn: u32) -> bool {
        self.turns.slots.contains_key(&turn)
    }

    #[inline]
    pub(crate) fn turn(&self) -> Option<u32> {
        Some(self.turns.first()?.number)
    }

    pub(crate) fn turn_of(&self, message: &UnexpectedMessage<M>) -> Option<u32> {
        match message.stage {
            Stage::Turn { slot, .. } => Some(self.turns.all.get(slot as usize)?.number),
            _ => None,
        }
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut UnexpectedMessage<M>> {
        self.messages.at_mut(self.turns.first()?.all.oldest()?)
    }

    pub(crate) fn last(&self, turn: u32) -> Option<EntryId> {
        let last = self.turns.of(turn)?.all.youngest()?;
        Some(self.messages.at(last)?.0)
    }

    /// Returns the message that is to be fetched next.
    #[inline]
    pub(crate) fn to_fetch(&self) -> Option<EntryId> {
        let slot = self.turns.line.oldest()?;
        let absent = self.turns.all.get(slot as usize)?.absent?;
        Some(self.messages.at(absent)?.0)
    }

    /// Puts a message, whole or offered, at the end of a turn. Returns whether it is ready.
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

    /// Removes the oldest message of the next turn, and moves that turn to the back. Returns the turn, too.
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

    pub(crate) fn pass(&mut self) {
        self.turns.pass();
    }

    /// Removes a message from its turn. Returns how many others become ready thereby.
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

    /// Handles the arrival of a fetched message. Returns how many messages of its turn become ready thereby.
    pub(super) fn mark_arrived(&mut self, place: u32, slot: u32) -> u32 {
        self.turns.stats.fetching -= 1;
        self.turns.stats.messages += 1;
        if self.turns.all[slot as usize].absent != Some(place) {
            return 0;
        }
        self.advance(slot, Some(place))
    }

    /// Moves a message that has arrived before the first that has not.
    pub(super) fn pass_absent(&mut self, place: u32, slot: u32) {
        let queue = &mut self.turns.all[slot as usize];
        if let Some(absent) = queue.absent {
            self.order.unlink(&mut queue.all, place);
            self.order.insert(&mut queue.all, place, absent);
            self.advance(slot, Some(place));
        }
    }

    /// Makes messages ready from `next` on, up to the first that has not arrived. Returns their number.
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
