//! The endpoint's side of the inbox ([`crate::inbox`]): stores messages, and fetches offered ones.
//!
//! ```text
//!   Verdict::Inbox  --with its data--> memory of the owner's, filled  ---------.
//!        |                `-- none: its bytes are kept -------------------------+--> next_message
//!        `--offered--> line --draw, memory--> Pulling --all there--------------'       credits free
//!                        ^   none: 10 ms later   `-- withdrawn, failed --> gone
//!                        `-- the first waits for its credits
//! ```
//!
//! A fetch is an internal operation: its end is not reported to the owner, and it has the default
//! word.
//!
//! A message's credits are free when it is handed out or dropped; if its sender is gone before
//! that, they are a tombstone of the pool.

use super::deadlines::Deadline;
use super::{Core, DeferredAction, Endpoint, Named};
use crate::event::Message;
use crate::flow::{Paid, cost};
use crate::ids::{MatchBits, RemoteId, RequestId};
use crate::inbox::{Body, Entry};
use crate::memory::{Memory, Source};
use crate::ops::{Fetch, Pulling, State};
use crate::owner::Owner;
use crate::port::{Port, RemoteKey};
use crate::stats::InboxStats;
use crate::status::Status;
use crate::time::{Clock, Instant};
use std::time::Duration;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The turn of the message that [`Self::next_message`] gives: the next that is `wanted`. Turns whose
    /// message the owner has no memory for now are passed by.
    #[inline]
    pub fn next_turn(&mut self, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let first = self.core.inbox.turn()?;
        let mut turn = first;
        while !(wanted(turn) && self.core.is_at_hand()) {
            self.core.inbox.pass();
            turn = self.core.inbox.turn()?;
            if turn == first {
                return None;
            }
        }
        Some(turn)
    }

    /// Takes the oldest message of the turn whose turn it is; its credits are free then. `None` when
    /// there is none, and while the owner has no memory for any.
    pub fn next_message(&mut self) -> Option<Message<O::Memory>> {
        self.next_turn(|_| true)?;
        let entry = self.core.inbox.take()?;
        self.core.pay_back(&entry);
        if self.has_work() {
            self.flush();
        }
        let Body::Here(memory) = entry.body else {
            debug_assert!(false, "a message that is not at hand");
            return None;
        };
        Some(Message {
            turn: entry.turn,
            source: entry.source,
            bits: entry.bits,
            memory,
        })
    }

    /// Messages that can be had in turn: those that [`Self::next_message`] gives.
    #[inline]
    pub fn messages(&self) -> usize {
        self.core.inbox.ready()
    }

    /// Whether there is a message of this turn, here or to be fetched.
    pub fn holds_messages(&self, turn: u32) -> bool {
        self.core.inbox.holds(turn)
    }

    /// Throws all messages of a turn away. The sends of those that were only offered, or are on their
    /// way, end as aborted.
    pub fn forget_messages(&mut self, turn: u32) {
        // From behind: so none can be had because another is gone.
        while let Some(place) = self.core.inbox.last(turn) {
            let entry = self.core.inbox.get(place);
            match entry.map(|entry| (&entry.body, entry.source)) {
                Some((Body::Coming(op), _)) => {
                    let op = *op;
                    let now = self.clock.now();
                    self.core.end_early(op, Status::Cancelled, now);
                }
                Some((Body::Offered { send_id, .. }, source)) => {
                    let send_id = *send_id;
                    self.core.finish_offer(source, send_id, 0, Status::Aborted);
                }
                _ => {}
            }
            self.core.throw_away(place);
        }
        if self.has_work() {
            self.flush();
        }
    }

    /// One turn turns out to be another: their messages are handed out in the order in which they could
    /// be had, then those that are on their way, and the rest in the order in which they came.
    pub fn rename_messages(&mut self, from: u32, into: u32) {
        self.core.inbox.rename(from, into);
    }

    /// The figures of the inbox.
    pub fn inbox_stats(&self) -> InboxStats {
        let inbox = &self.core.inbox;
        InboxStats {
            messages: inbox.here(),
            bytes: inbox.bytes(),
            fetching: inbox.coming(),
            waiting: inbox.waiting(),
        }
    }

    /// Begins to fetch what there is room for.
    pub(super) fn fetch(&mut self) -> bool {
        let mut busy = false;
        while let Some(place) = self.core.next_fetch() {
            let now = self.clock.now();
            if !self.core.begin_fetch(place, now) {
                break;
            }
            busy = true;
        }
        busy
    }
}

/// Memory of the owner's with these bytes in it. `None`: there is none.
fn filled<O: Owner, B: Source + ?Sized>(owner: &mut O, body: &B) -> Option<O::Memory> {
    let len = body.len();
    let mut memory = owner.memory(len)?;
    debug_assert_eq!(memory.len(), len, "memory of another length");
    memory.fill(0, len, body, 0);
    Some(memory)
}

impl<O: Owner> Core<O> {
    /// Whether the next message is in memory of the owner.
    fn is_at_hand(&mut self) -> bool {
        let Self { owner, inbox, .. } = self;
        let Some(entry) = inbox.first_mut() else {
            return false;
        };
        if let Body::Kept(bytes) = &entry.body {
            match filled(owner, &bytes[..]) {
                Some(memory) => entry.body = Body::Here(memory),
                None => return false,
            }
        }
        true
    }

    /// A message that came with its data goes into the inbox.
    pub(super) fn put_in<B: Source + ?Sized>(
        &mut self,
        turn: u32,
        (source, bits): (RemoteId, MatchBits),
        paid: Paid,
        body: &B,
    ) {
        // It came in a packet.
        let length = body.len() as u32;
        let body = match filled(&mut self.owner, body) {
            Some(memory) => Body::Here(memory),
            None => Body::Kept(body.to_vec()),
        };
        self.enter_inbox(Entry::new(turn, (source, bits, length), paid, body));
    }

    /// The same of one that was only offered.
    pub(super) fn put_in_offer(
        &mut self,
        turn: u32,
        what: (RemoteId, MatchBits, u32),
        paid: Paid,
        (send_id, key): (u64, Option<RemoteKey>),
    ) {
        let (source, _, length) = what;
        if !self.flow.may_draw(cost(length) - 1) {
            log::debug!("{source:?} offers {length} bytes, more than is ever fetched");
            self.consumed(source, paid);
            return self.finish_offer(source, send_id, 0, Status::Aborted);
        }
        let key = key.map(Box::new);
        let body = Body::Offered { send_id, key };
        let place = self.enter_inbox(Entry::new(turn, what, paid, body));
        self.names.insert((source, send_id), Named::Inbox(place));
        self.flow.await_draw();
    }

    fn enter_inbox(&mut self, entry: Entry<O::Memory>) -> u32 {
        let (turn, source) = (entry.turn, entry.source);
        let (place, ready) = self.inbox.add(entry);
        if ready {
            self.owner.ready(turn);
        }
        if let Some(remote) = self.remotes.of(source)
            && self.flow.is_overdue(&remote.lends)
        {
            self.tell(source);
        }
        place
    }

    /// The message that is to be fetched now; its credits have been drawn.
    fn next_fetch(&mut self) -> Option<u32> {
        let place = self.inbox.to_fetch().filter(|_| !self.starved)?;
        let length = self.inbox.get(place)?.length;
        self.flow.draw(cost(length) - 1).then_some(place)
    }

    /// False: there is no memory for it, or for an operation.
    fn begin_fetch(&mut self, place: u32, now: Instant) -> bool {
        let Some(entry) = self.inbox.get(place) else {
            return false;
        };
        let (source, bits, length) = (entry.source, entry.bits, entry.length);
        let drawn = cost(length) - 1;
        let room = self.ops.has_room();
        let memory = room.then(|| self.owner.memory(length as usize));
        let Some(memory) = memory.flatten() else {
            self.flow.undraw(drawn);
            self.starved = true;
            self.wheel.set(now, now.after(AGAIN), Deadline::Memory);
            return false;
        };
        debug_assert_eq!(memory.len(), length as usize, "memory of another length");
        let mut pulling = Pulling::new(memory, (0, None), bits, length, None);
        pulling.fetch = Some(Fetch::of(place));
        let (state, timeouts) = (State::Pulling(pulling), self.timeouts);
        let Some(id) = self.ops.add(O::Word::default(), bits, timeouts, state) else {
            debug_assert!(false, "there is room");
            return false;
        };
        if let Some((send_id, key)) = self.inbox.begin(place, id, drawn)
            && let State::Pulling(pulling) = &mut self.ops.record_mut(id.index()).state
        {
            (pulling.send_id, pulling.key) = (send_id, key.map(Box::new));
        }
        self.begin_pull(id, source, now);
        true
    }

    /// Perhaps there is memory now.
    pub(super) fn ask_again(&mut self) {
        self.starved = false;
        self.flow.await_draw();
    }

    /// The fetch of a message is over.
    pub(super) fn end_fetch(&mut self, id: RequestId, place: u32, status: Status) {
        let noted = self.actions.len();
        let rest = self.release(id);
        debug_assert!(rest.is_none(), "half of what we receive");
        let memory = self.ops.finish_keeping(id);
        self.ops.free(id);
        if self.actions.len() > noted {
            // The port may go on with it until it has been told.
            self.actions.extend(memory.map(DeferredAction::LetGo));
            return self.throw_away(place);
        }
        match memory {
            Some(memory) if status == Status::Success => {
                let turn = self.inbox.get(place).map_or(0, |entry| entry.turn);
                let ready = self.inbox.arrived(place, memory);
                self.on_ready(turn, ready);
            }
            _ => {
                log::debug!("a message that was offered is lost: {status:?}");
                self.throw_away(place);
            }
        }
    }

    /// A message goes unread. The sender of one that was only offered does not learn of it.
    pub(super) fn throw_away(&mut self, place: u32) {
        if let Some(entry) = self.take_out(place) {
            self.pay_back(&entry);
        }
    }

    /// The same of one for which nothing has been paid, as there is no room for it.
    pub(super) fn leave_out(&mut self, place: u32) {
        if let Some(entry) = self.take_out(place) {
            self.flow.undraw(entry.drawn);
        }
    }

    /// Takes a message out, wherever it is.
    fn take_out(&mut self, place: u32) -> Option<Entry<O::Memory>> {
        let (entry, ready) = self.inbox.remove(place)?;
        if let Body::Offered { send_id, .. } = entry.body {
            let name = (entry.source, send_id);
            if self.names.get(&name) == Some(&Named::Inbox(place)) {
                self.names.remove(&name);
            }
        }
        self.on_ready(entry.turn, ready);
        Some(entry)
    }

    /// So many more of a turn's can be had, and what comes behind them may be fetched.
    fn on_ready(&mut self, turn: u32, count: u32) {
        for _ in 0..count {
            self.owner.ready(turn);
        }
        if self.inbox.waiting() > 0 {
            self.flow.await_draw();
        }
    }

    /// A message takes no more room here.
    fn pay_back(&mut self, entry: &Entry<O::Memory>) {
        if entry.drawn != 0 {
            self.flow.undraw(entry.drawn);
        }
        match entry.tombstone {
            Some(from) => self.flow.reclaim(from, entry.paid),
            None => self.consumed(entry.source, entry.paid),
        }
    }

    /// A remote is about to go: its messages that are here stay, as a tombstone, the others go. Gives
    /// the places of those that came in slots.
    pub(super) fn bequeath(&mut self, id: RemoteId) -> Vec<u32> {
        let Some(from) = self.remotes.of(id).map(|remote| remote.source) else {
            return Vec::new();
        };
        let mut theirs = self.inbox.of_source(id);
        theirs.retain(|place| match self.inbox.get(*place) {
            Some(entry) if entry.is_whole() => {
                let (turn, in_slot) = (entry.turn, entry.paid.slot().is_some());
                let ready = self.inbox.bequeath(*place, from);
                self.on_ready(turn, ready.into());
                in_slot
            }
            _ => {
                self.throw_away(*place);
                false
            }
        });
        theirs
    }
}

/// The pause before memory is requested again.
const AGAIN: Duration = Duration::from_millis(10);
