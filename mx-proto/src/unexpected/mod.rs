//! Unexpected messages: those that arrived before their receive.
//!
//! ```text
//!                 .-- Defer -----> UNDECIDED --show--> OUT --.
//!   arrives ------+-- Continue --> UNEXPECTED <--- decided --'   bits, mask --> a receive
//!      |          `-- Inbox -----> TURN                          in turn    --> the layer above (`rotation`)
//!      `-- STREAMED: its data is arriving on a link; then as above
//!
//!   one slab       #0  #1  #2  #3  #4               each message once: body, payment, stage
//!   by stage       #0 <-> #1                        undecided; unexpected, also by bits; of one turn
//!   by source      #0 <-> #2 <-> #4                 in the order in which they came
//!   by name        (source, sender's id) -> #3      those whose data is with the sender
//!
//!   body           AtSender ---> Fetching ---> Bytes, Memory   (Unavailable: undecided, and cannot be fetched)
//! ```
//!
//! Every undecided message is younger than every unexpected one of its source.
//!
//! Owns: the messages, their data and payments; the ids under which senders have offered messages, including
//! those that a receive has taken.
//! Out of scope: operations, the pool, the limit for each sender (see `flow`).
//! Cost: O(1) for each message, and for each mask in use if it is unexpected; no allocation once there are enough
//! slots. The search for the next undecided one skips messages of sources whose data is being fetched.

mod rotation;

use crate::flow::Payment;
use crate::ids::{EntryId, MatchBits, MatchMask, RemoteId, RequestId};
use crate::matching::{ChainEnds, Chains, KEPT_MAX, MatchTable};
use crate::origin::Source;
use crate::port::RemoteKey;
use crate::remote_lists::RemoteLists;
use crate::table::Table;
use foldhash::fast::RandomState;
use rotation::InboxRotation;
use std::collections::HashMap;

/// Message that arrived before its receive.
#[derive(Debug)]
pub(crate) struct UnexpectedMessage<M> {
    pub(crate) source: RemoteId,
    pub(crate) bits: MatchBits,
    pub(crate) length: u32,
    /// Credits drawn from the pool for fetching; `paid`: payment by the sender.
    pub(crate) drawn: u32,
    pub(crate) paid: Payment,
    /// Source whose tombstone pays for the message, if its sender is lost and no remote stands for it; `None`
    /// otherwise.
    pub(crate) tombstone: Option<Source>,
    /// Sender's id of the message, if it was offered; `None`: it carried its data.
    pub(crate) send_id: Option<u64>,
    pub(crate) body: Body<M>,
    pub(crate) stage: Stage,
}

#[derive(Debug)]
pub(crate) enum Body<M> {
    /// All data; of a streamed message, memory for it.
    Bytes(Vec<u8>),
    /// All data, in memory of the owner.
    Memory(M),
    /// The data is with the sender, which may have registered it.
    AtSender(Option<RemoteKey>),
    /// The data is with the sender and cannot be fetched now.
    Unavailable,
    /// The data is being fetched by this operation.
    Fetching(RequestId),
}

/// Stage of a message: the event that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Waits for the rest of its data.
    Streamed,
    /// Waits for a decision, in the order of arrival.
    Undecided,
    /// Shown; waits for the end of the decision.
    Out,
    /// Waits for a receive.
    Unexpected,
    /// Waits in a turn of the inbox.
    Turn {
        slot: u32,
        /// Whether the message can be handed out.
        ready: bool,
    },
}

impl<M> UnexpectedMessage<M> {
    /// Makes a message in no stage.
    pub(crate) fn new(
        (source, bits, length): (RemoteId, MatchBits, u32),
        paid: Payment,
        send_id: Option<u64>,
        body: Body<M>,
    ) -> Self {
        Self {
            source,
            bits,
            length,
            drawn: 0,
            paid,
            tombstone: None,
            send_id,
            body,
            stage: Stage::Streamed,
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.body, Body::Bytes(_) | Body::Memory(_))
    }

    /// Returns whether the data is with the sender and is not being fetched.
    fn is_there(&self) -> bool {
        matches!(self.body, Body::AtSender(_) | Body::Unavailable)
    }

    /// Returns the sender's id of the message, and the key with which the sender's memory can be read.
    pub(crate) fn offer(&self) -> (u64, Option<RemoteKey>) {
        let key = match self.body {
            Body::AtSender(key) => key,
            _ => None,
        };
        (self.send_id.unwrap_or_default(), key)
    }

    /// Returns the operation that fetches the data; `None`: there is none.
    pub(crate) fn fetch(&self) -> Option<RequestId> {
        match self.body {
            Body::Fetching(op) => Some(op),
            _ => None,
        }
    }

    /// Returns whether the message carried its data and a receive may get it.
    pub(crate) fn is_complete(&self) -> bool {
        let waits = matches!(self.stage, Stage::Undecided | Stage::Unexpected);
        waits && self.send_id.is_none()
    }
}

/// Owner of an offered message's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfferTarget {
    /// The receive into which the message is being pulled.
    Pull(RequestId),
    /// The unexpected message.
    Unexpected(EntryId),
}

#[derive(Debug)]
pub(crate) struct UnexpectedQueue<M> {
    messages: Table<EntryId, UnexpectedMessage<M>>,
    by_source: RemoteLists,
    /// Offered messages by source and sender's id. If a sender uses an id twice, the younger message has it.
    pub(crate) names: HashMap<(RemoteId, u64), OfferTarget, RandomState>,
    unexpected: MatchTable,
    undecided: ChainEnds,
    out: Option<EntryId>,
    /// Number of messages in these two stages. Every arriving message checks whether it is 0.
    undecided_count: usize,
    /// Neighbours of an undecided message, or of one in a turn.
    order: Chains,
    /// Sources with an undecided message whose data is being fetched, one message each.
    previews: Vec<RemoteId>,
    turns: InboxRotation,
    /// Bytes of messages that carried their data and are in no turn.
    bytes: usize,
}

impl<M> Default for UnexpectedQueue<M> {
    fn default() -> Self {
        Self {
            messages: Table::default(),
            by_source: RemoteLists::default(),
            names: HashMap::default(),
            unexpected: MatchTable::default(),
            undecided: ChainEnds::EMPTY,
            out: None,
            undecided_count: 0,
            order: Chains::default(),
            previews: Vec::new(),
            turns: InboxRotation::default(),
            bytes: 0,
        }
    }
}

impl<M> UnexpectedQueue<M> {
    /// Returns the number of all messages, including those whose data is with the sender.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    #[inline]
    pub(crate) fn unexpected(&self) -> usize {
        self.unexpected.len()
    }

    /// Returns the number of messages that wait for a decision, including the shown one.
    #[inline]
    pub(crate) fn undecided(&self) -> usize {
        self.undecided_count
    }

    /// Returns the message that is being decided.
    #[inline]
    pub(crate) fn out(&self) -> Option<EntryId> {
        self.out
    }

    /// Returns the number of bytes of messages that carried their data and wait for a receive or a decision.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<&UnexpectedMessage<M>> {
        self.messages.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut UnexpectedMessage<M>> {
        self.messages.get_mut(id)
    }

    pub(crate) fn at(&self, place: u32) -> Option<(EntryId, &UnexpectedMessage<M>)> {
        self.messages.at(place)
    }

    /// Returns all messages of a source that has not been lost, in the order in which they came.
    pub(crate) fn of(
        &self,
        source: RemoteId,
    ) -> impl Iterator<Item = (EntryId, &UnexpectedMessage<M>)> {
        let places = self.by_source.of(source);
        places.filter_map(|place| self.messages.at(place))
    }

    /// Returns the credits that unexpected messages of a source hold. Cost: O(n) for all of its messages.
    pub(crate) fn held_of(&self, source: RemoteId) -> u32 {
        let held = self.of(source).map(|(_, message)| match message.paid {
            Payment::Credits(cost) if message.stage == Stage::Unexpected => cost,
            _ => 0,
        });
        held.sum()
    }

    /// Adds a message in no stage: a streamed one, or one whose stage follows.
    pub(crate) fn add(&mut self, message: UnexpectedMessage<M>) -> EntryId {
        let (source, name) = (message.source, message.send_id);
        let id = self.messages.insert(message);
        self.by_source.join(source, id.index());
        if let Some(name) = name {
            self.names
                .insert((source, name), OfferTarget::Unexpected(id));
        }
        id
    }

    pub(crate) fn defer(&mut self, id: EntryId) {
        self.leave(id);
        self.order.append(&mut self.undecided, id.index());
        self.enter(id, Stage::Undecided);
    }

    pub(crate) fn await_receive(&mut self, id: EntryId) {
        self.leave(id);
        if let Some(message) = self.messages.get(id) {
            self.unexpected.add(message.bits, id.index());
        }
        self.enter(id, Stage::Unexpected);
    }

    /// Begins the decision about a message. Returns its data, if it has arrived.
    pub(crate) fn show(&mut self, id: EntryId) -> Option<Vec<u8>> {
        debug_assert!(self.out.is_none(), "two messages are being decided");
        self.leave(id);
        self.enter(id, Stage::Out);
        self.out = Some(id);
        self.take_bytes(id)
    }

    /// Takes the data out of a message until it is put back; `None` if it has not arrived.
    pub(crate) fn take_bytes(&mut self, id: EntryId) -> Option<Vec<u8>> {
        match &mut self.messages.get_mut(id)?.body {
            Body::Bytes(bytes) => Some(std::mem::take(bytes)),
            _ => None,
        }
    }

    fn enter(&mut self, id: EntryId, stage: Stage) {
        if let Some(message) = self.messages.get_mut(id) {
            message.stage = stage;
            self.count(id, true);
        }
    }

    /// Removes a message from the chain of its stage. Returns how many messages of its turn become ready thereby.
    fn leave(&mut self, id: EntryId) -> u32 {
        self.count(id, false);
        let place = id.index();
        match self.messages.get(id).map(|message| message.stage) {
            None | Some(Stage::Streamed) => 0,
            Some(Stage::Undecided) => {
                self.order.unlink(&mut self.undecided, place);
                0
            }
            Some(Stage::Out) => {
                self.out = None;
                0
            }
            Some(Stage::Unexpected) => {
                self.unexpected.remove(place);
                0
            }
            Some(Stage::Turn { slot, ready, .. }) => self.leave_turn(place, slot, ready),
        }
    }

    /// Counts a message that enters or leaves one of the stages before a receive.
    fn count(&mut self, id: EntryId, comes: bool) {
        let Some(message) = self.messages.get(id) else {
            return;
        };
        let (undecided, counts) = match message.stage {
            Stage::Undecided | Stage::Out => (1, true),
            Stage::Unexpected => (0, true),
            Stage::Streamed | Stage::Turn { .. } => (0, false),
        };
        let bytes = match message.send_id {
            None if counts => message.length as usize,
            _ => 0,
        };
        if comes {
            self.undecided_count += undecided;
            self.bytes += bytes;
        } else {
            self.undecided_count -= undecided;
            self.bytes -= bytes;
        }
    }

    /// Removes a message in any stage. Returns how many messages of its turn become ready thereby, too.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<(UnexpectedMessage<M>, u32)> {
        let ready = self.leave(id);
        let message = self.messages.remove(id)?;
        if message.tombstone.is_none() {
            self.by_source.leave(message.source, id.index());
        }
        if let Some(name) = message.send_id {
            self.forget_name((message.source, name), OfferTarget::Unexpected(id));
        }
        if self.messages.is_empty() && self.messages.capacity() > KEPT_MAX {
            // Frees the memory left from a flood. Ids stay stale.
            self.messages.forget_places();
            *self = Self {
                messages: std::mem::take(&mut self.messages),
                names: std::mem::take(&mut self.names),
                ..Self::default()
            };
        }
        Some((message, ready))
    }

    /// Forgets the id of an offer, if `of` still has it.
    pub(crate) fn forget_name(&mut self, name: (RemoteId, u64), of: OfferTarget) {
        if self.names.get(&name) == Some(&of) {
            self.names.remove(&name);
        }
    }

    /// Returns the oldest unexpected message that a receive with `bits` and `mask` accepts.
    #[inline]
    pub(crate) fn front(&mut self, bits: MatchBits, mask: MatchMask) -> Option<EntryId> {
        let oldest = self.unexpected.front(bits, mask)?;
        Some(self.messages.at(oldest)?.0)
    }

    /// Returns the oldest undecided message of a source none of whose messages is being fetched; `None` while one is
    /// shown.
    pub(crate) fn next_undecided(&self) -> Option<EntryId> {
        let mut all = self.all_undecided();
        let next = all.find(|(_, message)| !self.previews.contains(&message.source))?;
        Some(next.0)
    }

    /// Returns the oldest undecided message; `None` while one is shown.
    pub(crate) fn oldest_undecided(&self) -> Option<EntryId> {
        Some(self.all_undecided().next()?.0)
    }

    fn all_undecided(&self) -> impl Iterator<Item = (EntryId, &UnexpectedMessage<M>)> {
        let some = self.out.map_or(self.undecided, |_| ChainEnds::EMPTY);
        let places = self.order.walk(some);
        places.filter_map(|place| self.messages.at(place))
    }

    /// Returns whether the data of one more undecided message may be fetched.
    pub(crate) fn may_preview(&self) -> bool {
        self.previews.len() < PREVIEWS_MAX
    }

    /// Begins the fetch of a message in a turn, or of an undecided one, with `drawn` credits.
    pub(crate) fn begin(&mut self, id: EntryId, op: RequestId, drawn: u32) {
        let Some(message) = self.messages.get_mut(id) else {
            return;
        };
        debug_assert!(message.is_there(), "fetched twice");
        message.body = Body::Fetching(op);
        message.drawn = drawn;
        match message.stage {
            Stage::Turn { slot, .. } => {
                let stats = &mut self.turns.stats;
                stats.fetching += 1;
                stats.bytes += message.length as usize;
                self.leave_line(slot);
            }
            _ => self.previews.push(message.source),
        }
    }

    /// Ends the fetch of a message, with its data, or without it; without it only an undecided message stays. Returns
    /// how many messages of its turn become ready thereby.
    pub(crate) fn end(&mut self, id: EntryId, body: Body<M>) -> u32 {
        let Some(message) = self.messages.get_mut(id) else {
            return 0;
        };
        debug_assert!(matches!(message.body, Body::Fetching(_)));
        message.body = body;
        let source = message.source;
        let Stage::Turn { slot, .. } = message.stage else {
            self.previews.retain(|of| *of != source);
            return 0;
        };
        // The sender has been told, and cannot withdraw the message any more.
        if let Some(name) = message.send_id.take() {
            self.forget_name((source, name), OfferTarget::Unexpected(id));
        }
        self.mark_arrived(id.index(), slot)
    }

    /// Removes the payment of a message.
    pub(crate) fn forgive(&mut self, id: EntryId) {
        if let Some(message) = self.messages.get_mut(id) {
            message.paid = Payment::Credits(0);
        }
    }

    /// Gives a message of a lost source to another remote, its tombstone.
    pub(crate) fn rename(&mut self, id: EntryId, to: RemoteId) {
        if let Some(message) = self.messages.get_mut(id) {
            let source = std::mem::replace(&mut message.source, to);
            self.by_source.leave(source, id.index());
            self.by_source.join(to, id.index());
        }
    }

    /// Charges a message to the tombstone of its lost source: a shown message, or a complete one in a turn. It no
    /// longer waits for messages of other sources in its turn, which may wait for the credits that it holds. Returns
    /// whether it becomes ready thereby.
    pub(crate) fn charge_to_tombstone(&mut self, id: EntryId, from: Source) -> bool {
        let Some(message) = self.messages.get_mut(id) else {
            return false;
        };
        if message.tombstone.replace(from).is_none() {
            self.by_source.leave(message.source, id.index());
        }
        match message.stage {
            Stage::Turn { slot, ready, .. } if !ready => {
                self.pass_absent(id.index(), slot);
                true
            }
            _ => false,
        }
    }
}

/// Maximum number of undecided messages whose data is being fetched, each of another source. Their memory is not paid
/// for.
const PREVIEWS_MAX: usize = 64;

#[cfg(test)]
mod tests;
