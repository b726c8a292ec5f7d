//! Unexpected messages: those that arrived before their receive, until they have one.
//!
//! ```text
//!                 .-- Defer -----> UNDECIDED --show--> OUT --.
//!   arrives ------+-- Continue --> UNEXPECTED <--- decided --'   bits, mask --> a receive
//!      |          `-- Inbox -----> TURN                          in turn    --> the layer above (`rotation`)
//!      `-- STREAMED: its data is coming on a link; then the same
//!
//!   one slab       #0  #1  #2  #3  #4               each message once: body, payment, stage
//!   by stage       #0 <-> #1                        undecided; unexpected, by bits besides; of one turn
//!   by source      #0 <-> #2 <-> #4                 in the order in which they came
//!   by name        (source, its name for it) -> #3  those of which the sender has the bytes
//!
//!   body           AtSender ---> Fetching ---> Bytes, Memory   (Unavailable: undecided, and cannot be fetched)
//! ```
//!
//! Every undecided message is younger than every unexpected one of its source.
//!
//! Owns: the messages, their bytes and payments; the names under which senders have offered messages, also
//! those that a receive has taken.
//! Out of scope: operations, the pool, the limit for each sender (see `flow`).
//! Cost: O(1) for each message, per mask in use if it is unexpected; no allocation once there are enough
//! places. The next undecided one is found by passing over those of sources whose bytes are on their way.

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

/// A message that arrived before its receive.
#[derive(Debug)]
pub(crate) struct UnexpectedMessage<M> {
    pub(crate) source: RemoteId,
    pub(crate) bits: MatchBits,
    pub(crate) length: u32,
    /// Credits drawn from the pool, and the payment of its sender.
    pub(crate) drawn: u32,
    pub(crate) paid: Payment,
    /// Its sender has gone without an heir, and what it costs is a tombstone from there.
    pub(crate) tombstone: Option<Source>,
    /// Its sender's name for it, if it was only offered.
    pub(crate) send_id: Option<u64>,
    pub(crate) body: Body<M>,
    pub(crate) stage: Stage,
}

/// The bytes of a message.
#[derive(Debug)]
pub(crate) enum Body<M> {
    /// All of them; of one that is streamed, room for them.
    Bytes(Vec<u8>),
    /// All of them, where their taker wants them.
    Memory(M),
    /// The bytes are with the sender, which may have made them readable.
    AtSender(Option<RemoteKey>),
    /// The bytes are with the sender, and cannot be fetched now.
    Unavailable,
    /// The bytes are on their way: the operation that fetches them.
    Fetching(RequestId),
}

/// The thing that a message waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// For the rest of it.
    Streamed,
    /// For a decision, in the order of arrival.
    Undecided,
    /// For the end of one.
    Out,
    /// For a receive.
    Unexpected,
    /// For its turn.
    Turn {
        slot: u32,
        /// The message can be had.
        ready: bool,
    },
}

impl<M> UnexpectedMessage<M> {
    /// A message in no stage.
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

    /// All of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.body, Body::Bytes(_) | Body::Memory(_))
    }

    /// Its sender has the bytes, and nothing is done about that.
    fn is_there(&self) -> bool {
        matches!(self.body, Body::AtSender(_) | Body::Unavailable)
    }

    /// Its sender's name for it, and the key with which the sender's memory can be read.
    pub(crate) fn offer(&self) -> (u64, Option<RemoteKey>) {
        let key = match self.body {
            Body::AtSender(key) => key,
            _ => None,
        };
        (self.send_id.unwrap_or_default(), key)
    }

    /// The operation that fetches its bytes.
    pub(crate) fn fetch(&self) -> Option<RequestId> {
        match self.body {
            Body::Fetching(op) => Some(op),
            _ => None,
        }
    }

    /// Whether the message came with its data, and a receive may get it.
    pub(crate) fn is_complete(&self) -> bool {
        let waits = matches!(self.stage, Stage::Undecided | Stage::Unexpected);
        waits && self.send_id.is_none()
    }
}

/// A message of which the sender has the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfferTarget {
    /// The message is on its way into this receive.
    Pull(RequestId),
    /// The message is here.
    Unexpected(EntryId),
}

/// All unexpected messages of one endpoint.
#[derive(Debug)]
pub(crate) struct UnexpectedQueue<M> {
    messages: Table<EntryId, UnexpectedMessage<M>>,
    by_source: RemoteLists,
    /// Should a sender give two messages the same name, the younger one has it.
    pub(crate) names: HashMap<(RemoteId, u64), OfferTarget, RandomState>,
    unexpected: MatchTable,
    undecided: ChainEnds,
    out: Option<EntryId>,
    /// Number of messages in these two stages. Every message that comes asks whether it is 0.
    undecided_count: usize,
    /// The neighbours of an undecided message, or of one that has a turn.
    order: Chains,
    /// The sources of undecided messages whose bytes are on their way: one of each.
    previews: Vec<RemoteId>,
    turns: InboxRotation,
    /// Bytes of those that came with their data and have no turn.
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
    /// All messages, also those that are not here.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Number of messages that wait for a receive.
    #[inline]
    pub(crate) fn unexpected(&self) -> usize {
        self.unexpected.len()
    }

    /// Number of messages that wait for a decision, including the one that is out.
    #[inline]
    pub(crate) fn undecided(&self) -> usize {
        self.undecided_count
    }

    /// The one that is being decided.
    #[inline]
    pub(crate) fn out(&self) -> Option<EntryId> {
        self.out
    }

    /// Bytes of those that came with their data, and wait for a receive or a decision.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<&UnexpectedMessage<M>> {
        self.messages.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut UnexpectedMessage<M>> {
        self.messages.get_mut(id)
    }

    /// The message at a place.
    pub(crate) fn at(&self, place: u32) -> Option<(EntryId, &UnexpectedMessage<M>)> {
        self.messages.at(place)
    }

    /// All messages of a source that has not gone, in the order in which they came.
    pub(crate) fn of(
        &self,
        source: RemoteId,
    ) -> impl Iterator<Item = (EntryId, &UnexpectedMessage<M>)> {
        let places = self.by_source.of(source);
        places.filter_map(|place| self.messages.at(place))
    }

    /// The credits that unexpected messages of a source hold. Cost: O(n) for all of its messages.
    pub(crate) fn held_of(&self, source: RemoteId) -> u32 {
        let held = self.of(source).map(|(_, message)| match message.paid {
            Payment::Credits(cost) if message.stage == Stage::Unexpected => cost,
            _ => 0,
        });
        held.sum()
    }

    /// Adds a message in no stage: one that is streamed, or whose stage follows.
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

    /// Has a message wait for a decision.
    pub(crate) fn defer(&mut self, id: EntryId) {
        self.leave(id);
        self.order.append(&mut self.undecided, id.index());
        self.enter(id, Stage::Undecided);
    }

    /// Has a message wait for a receive.
    pub(crate) fn await_receive(&mut self, id: EntryId) {
        self.leave(id);
        if let Some(message) = self.messages.get(id) {
            self.unexpected.add(message.bits, id.index());
        }
        self.enter(id, Stage::Unexpected);
    }

    /// Begins the decision about a message. Returns its bytes, if they are here.
    pub(crate) fn show(&mut self, id: EntryId) -> Option<Vec<u8>> {
        debug_assert!(self.out.is_none(), "two messages are being decided");
        self.leave(id);
        self.enter(id, Stage::Out);
        self.out = Some(id);
        self.take_bytes(id)
    }

    /// The bytes of a message, if they are here, until they are put back.
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

    /// Takes a message out of the chain of its stage. Gives how many of its turn can be had because of that.
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

    /// A message has come into one of the stages before a receive, or leaves it.
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

    /// Takes a message out, whatever its stage. Gives how many of its turn can be had because of that.
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

    /// Forgets the name of an offer, if that is who has it.
    pub(crate) fn forget_name(&mut self, name: (RemoteId, u64), of: OfferTarget) {
        if self.names.get(&name) == Some(&of) {
            self.names.remove(&name);
        }
    }

    /// The oldest unexpected message that a receive with `bits` and `mask` accepts.
    #[inline]
    pub(crate) fn front(&mut self, bits: MatchBits, mask: MatchMask) -> Option<EntryId> {
        let oldest = self.unexpected.front(bits, mask)?;
        Some(self.messages.at(oldest)?.0)
    }

    /// The oldest undecided message behind none of the same source whose bytes are on their way; `None` while
    /// one is out.
    pub(crate) fn next_undecided(&self) -> Option<EntryId> {
        let mut all = self.all_undecided();
        let next = all.find(|(_, message)| !self.previews.contains(&message.source))?;
        Some(next.0)
    }

    /// The oldest one of all; `None` while one is out.
    pub(crate) fn oldest_undecided(&self) -> Option<EntryId> {
        Some(self.all_undecided().next()?.0)
    }

    fn all_undecided(&self) -> impl Iterator<Item = (EntryId, &UnexpectedMessage<M>)> {
        let some = self.out.map_or(self.undecided, |_| ChainEnds::EMPTY);
        let places = self.order.walk(some);
        places.filter_map(|place| self.messages.at(place))
    }

    /// Whether the bytes of one more undecided message may be fetched.
    pub(crate) fn may_preview(&self) -> bool {
        self.previews.len() < PREVIEWS_MAX
    }

    /// The bytes of a message that has a turn, or is undecided, are on their way from now on, for `drawn`
    /// credits.
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

    /// Ends the fetch of a message whose bytes are here, or cannot be had: only an undecided message stays then. Returns how
    /// many of its turn can be had because of that.
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
        // Its sender has been told, and cannot take it back any more.
        if let Some(name) = message.send_id.take() {
            self.forget_name((source, name), OfferTarget::Unexpected(id));
        }
        self.mark_arrived(id.index(), slot)
    }

    /// Nothing has been paid for a message any more.
    pub(crate) fn forgive(&mut self, id: EntryId) {
        if let Some(message) = self.messages.get_mut(id) {
            message.paid = Payment::Credits(0);
        }
    }

    /// The source of a message has gone, and another remote stands for it.
    pub(crate) fn rename(&mut self, id: EntryId, to: RemoteId) {
        if let Some(message) = self.messages.get_mut(id) {
            let source = std::mem::replace(&mut message.source, to);
            self.by_source.leave(source, id.index());
            self.by_source.join(to, id.index());
        }
    }

    /// The source of a message that is out, or here and has a turn, has gone: what it was paid with is a
    /// tombstone from there. It waits for no other source's: those may wait for what it holds. Gives whether
    /// it can be had because of that.
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

/// Undecided messages of which the bytes may be on their way at once, each of another source. Their memory
/// is not paid for.
const PREVIEWS_MAX: usize = 64;

#[cfg(test)]
mod tests;
