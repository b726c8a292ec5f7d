//! Messages about which the layer above decides outside of [`Endpoint::progress`].
//!
//! ```text
//!                      progress                next_deferred                  decide
//!   arrival --> posted receive? --> Defer --> posted receive? --> shown ----> Continue: posted receive?
//!                    |                             |                |               |         |
//!                    v                             v                v Finished      v         v
//!                 received                      received          consumed      received   unexpected
//! ```
//!
//! A message of at most [`PREVIEW_MAX`] bytes is shown with its data. If it was only offered, these are
//! fetched first, and its sender is told nothing before the decision. Messages of other remotes pass
//! meanwhile, so that a stopped one delays no other.
//!
//! While a message is undecided, those that come are undecided, too, so none overtakes it. The sender
//! has credits for them, as for unexpected ones: a layer that decides late stalls them no earlier
//! than one that receives late. While one is shown no packets are polled. Posting, cancelling, connecting
//! and disconnecting continue, also from inside the handler.

use super::commands::inbound_status;
use super::inbound::Found;
use super::outbound::notify_code;
use super::{Core, Endpoint};
use crate::event::{Decision, Deferred};
use crate::flow::Paid;
use crate::ids::{MatchBits, RemoteId, RequestId};
use crate::matching::{EntryId, Offered, Payload, Waiting};
use crate::memory::Memory;
use crate::ops::{Fetch, Pulling, State};
use crate::owner::Owner;
use crate::port::Port;
use crate::status::Status;
use crate::time::{Clock, Instant};
use crate::timeouts::TimeOuts;
use crate::wire::{self, Header};

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The number of undecided messages: those that wait for [`Self::next_deferred`] and the one
    /// that has not come back to [`Self::decide`]. While the latter is out, [`Self::progress`] does
    /// nothing.
    #[inline]
    pub fn undecided(&self) -> usize {
        self.core.undecided.len()
    }

    /// The oldest undecided message; `None` when there is none, and while another one is out. While the
    /// bytes of a message are on their way it is passed by, with those behind it from the same remote;
    /// [`Owner::decidable`] follows. A message for which a receive has been posted
    /// meanwhile goes into that receive instead, so this may cause completions.
    pub fn next_deferred(&mut self) -> Option<Deferred> {
        let mut next = None;
        let now = self.clock.now();
        while let Some(waiting) = self.core.take_to_show(now) {
            let Some(waiting) = self.receive(waiting) else {
                continue;
            };
            let (source, bits) = (waiting.source, waiting.bits);
            if let Some(arrival) = self.core.arrival(source, bits, waiting.length) {
                self.core.undecided.hand_out(source, waiting.paid());
                next = Some(Deferred { arrival, waiting });
                break;
            }
            debug_assert!(false, "a message outlived its remote");
            self.core.let_go(&waiting);
        }
        if self.has_work() {
            self.flush();
        }
        next
    }

    /// Decides about all that wait for it, in their order: [`Decision::Continue`]. The one that is out, if
    /// any, is decided by [`Self::decide`].
    pub fn keep_undecided(&mut self) {
        while let Some(oldest) = self.core.undecided.oldest() {
            let Some(waiting) = self.core.undecided.take(oldest) else {
                break;
            };
            self.core.drop_preview(&waiting);
            self.go_on(waiting);
        }
        if self.has_work() {
            self.flush();
        }
    }

    /// Carries out the decision about a message from [`Self::next_deferred`]. A message of a remote
    /// that is gone is dropped, and so is one from before [`Self::inherit`].
    pub fn decide(&mut self, deferred: Deferred, decision: Decision) {
        let waiting = deferred.waiting;
        let Some(out) = self.core.undecided.take_back() else {
            return;
        };
        if self.core.remotes.of(waiting.source).is_none() {
            self.core.let_go(&waiting);
            if let Some(source) = out.tombstone {
                self.core.flow.reclaim(source, out.paid);
            }
        } else {
            match decision {
                Decision::Finished => {
                    let told = inbound_status(0, waiting.length);
                    self.core.finish(&waiting, told);
                }
                Decision::Continue => self.go_on(waiting),
            }
        }
        if self.has_work() {
            self.flush();
        }
    }

    /// A message goes into a receive, or is unexpected. Only credits limit those: bytes that have been
    /// fetched are not kept.
    fn go_on(&mut self, waiting: Waiting) {
        if let Some(mut waiting) = self.receive(waiting) {
            if let Payload::Offer { bytes, .. } = &mut waiting.payload {
                *bytes = Offered::There(bytes.key());
            }
            self.core.unexpected.add(waiting);
        }
    }

    /// Gives a message to the oldest posted receive that accepts it; back when there is none.
    fn receive(&mut self, waiting: Waiting) -> Option<Waiting> {
        match self.core.find_receive(waiting.source, waiting.bits) {
            Found::Receive(id) => {
                let now = self.clock.now();
                self.core.fill_waiting(id, waiting, now);
            }
            Found::Foreign => self.core.refuse_early(&waiting),
            Found::Nothing => return Some(waiting),
        }
        None
    }
}

impl<O: Owner> Core<O> {
    /// Keeps a message that no receive accepts: until it is decided, or until a receive comes.
    #[inline(never)]
    pub(super) fn keep(&mut self, waiting: Waiting, deferred: bool) {
        let source = waiting.source;
        self.kept_bytes += waiting.held();
        if deferred {
            self.undecided.add(waiting);
        } else {
            self.unexpected.add(waiting);
        }
        if let Some(remote) = self.remotes.of(source)
            && self.flow.is_overdue(&remote.lends)
        {
            self.tell(source);
        }
    }

    /// The same of a message that has come with its data.
    pub(super) fn keep_eager(
        &mut self,
        source: RemoteId,
        header: &Header,
        paid: Paid,
        body: Vec<u8>,
        deferred: bool,
    ) {
        let waiting = Waiting {
            source,
            bits: MatchBits(header.word),
            length: header.length,
            slot: paid.slot(),
            payload: Payload::Eager(body),
        };
        self.keep(waiting, deferred);
    }

    /// A message that lay here goes into a receive that is in no list.
    pub(super) fn fill_waiting(&mut self, id: RequestId, waiting: Waiting, now: Instant) {
        let (source, bits, length) = (waiting.source, waiting.bits, waiting.length);
        self.let_go(&waiting);
        self.consumed(source, waiting.paid());
        match waiting.payload {
            Payload::Eager(data) => {
                self.fill_receive(id, source, bits, &data);
                self.bodies.give_back(data);
            }
            Payload::Offer {
                send_id,
                bytes: Offered::Here(data),
            } => {
                let room = self.ops.record(id.index()).state.room();
                let transferred = room.min(length);
                self.fill_receive(id, source, bits, &data);
                let told = inbound_status(transferred, length);
                self.finish_offer(source, send_id, transferred, told);
            }
            Payload::Offer { send_id, bytes } => {
                self.match_offer(id, source, (send_id, bytes.key()), bits, length, now);
            }
        }
    }

    /// A message has been consumed by other means than a receive. The send of one that was only offered
    /// ends with `told`.
    pub(super) fn finish(&mut self, waiting: &Waiting, told: Status) {
        self.let_go(waiting);
        self.consumed(waiting.source, waiting.paid());
        if let Payload::Offer { send_id, .. } = waiting.payload {
            self.finish_offer(waiting.source, send_id, 0, told);
        }
    }

    /// Tells the sender of an offer that no more of its bytes are wanted, and how its send ends.
    pub(super) fn finish_offer(
        &mut self,
        source: RemoteId,
        send_id: u64,
        transferred: u32,
        told: Status,
    ) {
        let mut done = Header::new(wire::Kind::Notify, send_id, transferred);
        done.aux = notify_code(told);
        self.push_control(source, done, &[]);
    }

    /// Takes out the next message to be shown.
    fn take_to_show(&mut self, now: Instant) -> Option<Waiting> {
        let next = self.next_to_show(now)?;
        self.undecided.take(next)
    }

    /// The next message to be shown. The bytes of those before it are asked for, or on their way.
    fn next_to_show(&mut self, now: Instant) -> Option<EntryId> {
        loop {
            let next = self.undecided.next()?;
            let waiting = self.undecided.get_mut(next)?;
            let (source, bits, length) = (waiting.source, waiting.bits, waiting.length);
            let send_id = match waiting.payload {
                Payload::Offer {
                    send_id,
                    bytes: Offered::There(_),
                } if (1..=PREVIEW_MAX).contains(&length) => send_id,
                _ => return Some(next),
            };
            let fetch = self.begin_preview((source, send_id), bits, length);
            if let Some(waiting) = self.undecided.get_mut(next)
                && let Payload::Offer { bytes, .. } = &mut waiting.payload
            {
                *bytes = fetch.map_or(Offered::Withheld, Offered::Coming);
            }
            let Some(fetch) = fetch else {
                return Some(next);
            };
            self.undecided.begin_preview(next, source, fetch);
            self.begin_pull(fetch, source, now);
        }
    }

    /// `None`: there is no memory for it, or for an operation.
    fn begin_preview(
        &mut self,
        (source, send_id): (RemoteId, u64),
        bits: MatchBits,
        length: u32,
    ) -> Option<RequestId> {
        let living = self.remotes.living(source).is_some();
        if !living || !self.ops.has_room() || !self.undecided.may_preview() {
            return None;
        }
        let memory = self.owner.memory(length as usize)?;
        let mut pulling = Pulling::new(memory, (send_id, None), bits, length, None);
        pulling.fetch = Some(Fetch::PREVIEW);
        let state = State::Pulling(pulling);
        self.ops
            .add(O::Word::default(), bits, TimeOuts::NONE, state)
    }

    /// The bytes of an undecided message are here, or cannot be had.
    pub(super) fn end_preview(&mut self, id: RequestId, status: Status) {
        let memory = self.release_preview(id);
        let here = memory.filter(|_| status == Status::Success).map(|memory| {
            let mut here = Vec::with_capacity(memory.len());
            memory.visit(0, memory.len(), |piece| here.extend_from_slice(piece));
            here.into_boxed_slice()
        });
        if let Some(message) = self.undecided.end_preview(id)
            && let Some(waiting) = self.undecided.get_mut(message)
            && let Payload::Offer { bytes, .. } = &mut waiting.payload
        {
            *bytes = here.map_or(Offered::Withheld, Offered::Here);
        }
        self.owner.decidable();
    }

    /// A message goes without having been shown: its bytes are not wanted any more.
    pub(super) fn drop_preview(&mut self, waiting: &Waiting) {
        if let Payload::Offer {
            bytes: Offered::Coming(id),
            ..
        } = waiting.payload
        {
            drop(self.release_preview(id));
            self.undecided.end_preview(id);
            self.owner.decidable();
        }
    }

    fn release_preview(&mut self, id: RequestId) -> Option<O::Memory> {
        self.ops.get(id)?;
        let rest = self.release(id);
        debug_assert!(rest.is_none(), "half of what we receive");
        let memory = self.ops.finish_keeping(id);
        self.ops.free(id);
        memory
    }

    /// The bytes of a message are about to go.
    pub(super) fn let_go(&mut self, waiting: &Waiting) {
        debug_assert!(waiting.held() <= self.kept_bytes);
        self.kept_bytes = self.kept_bytes.saturating_sub(waiting.held());
    }
}

/// Bytes of the largest message that is always shown with its data. Programs for MX count on as much.
pub const PREVIEW_MAX: u32 = 4096;
