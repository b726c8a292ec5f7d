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
//! While a message is undecided no packets are polled, so no message can overtake it, and a handler
//! may take any time. Posting, cancelling, connecting and disconnecting continue, also from inside
//! the handler.

use super::commands::inbound_status;
use super::inbound::Found;
use super::outbound::notify_code;
use super::{Core, Endpoint};
use crate::event::{Decision, Deferred};
use crate::ids::{RemoteId, RequestId};
use crate::matching::{Payload, Waiting};
use crate::owner::Owner;
use crate::port::Port;
use crate::status::Status;
use crate::time::{Clock, Instant};
use crate::wire::{self, Header};

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The number of undecided messages: those that wait for [`Self::next_deferred`] and the one
    /// that has not come back to [`Self::decide`]. While there is one, [`Self::progress`] does
    /// nothing.
    #[inline]
    pub fn undecided(&self) -> usize {
        self.core.undecided.len()
    }

    /// The oldest undecided message; `None` when there is none, and while another one is out. A
    /// message for which a receive has been posted meanwhile goes into that receive instead, so
    /// this may cause completions.
    pub fn next_deferred(&mut self) -> Option<Deferred> {
        let mut next = None;
        while let Some(waiting) = self.core.undecided.next() {
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
                Decision::Continue => {
                    if let Some(waiting) = self.receive(waiting) {
                        self.core.unexpected.add(waiting);
                    }
                }
            }
        }
        if self.has_work() {
            self.flush();
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

    /// A message that lay here goes into a receive that is in no list.
    pub(super) fn fill_waiting(&mut self, id: RequestId, waiting: Waiting, now: Instant) {
        let (source, bits, length) = (waiting.source, waiting.bits, waiting.length);
        self.let_go(&waiting);
        self.consumed(source, waiting.paid());
        match waiting.payload {
            Payload::Eager(data) => self.fill_receive(id, source, bits, &data),
            Payload::Offer { send_id, key } => {
                self.match_offer(id, source, (send_id, key), bits, length, now);
            }
        }
    }

    /// A message has been consumed by other means than a receive. The send of one that was only offered
    /// ends with `told`.
    pub(super) fn finish(&mut self, waiting: &Waiting, told: Status) {
        self.let_go(waiting);
        self.consumed(waiting.source, waiting.paid());
        if let Payload::Offer { send_id, .. } = waiting.payload {
            self.finish_offer(waiting.source, send_id, told);
        }
    }

    /// Tells the sender of an offer that its bytes are not wanted, and how its send ends.
    pub(super) fn finish_offer(&mut self, source: RemoteId, send_id: u64, told: Status) {
        let mut done = Header::new(wire::Kind::Notify, send_id, 0);
        done.aux = notify_code(told);
        self.push_control(source, done, &[]);
    }

    /// The bytes of a message are about to go.
    pub(super) fn let_go(&mut self, waiting: &Waiting) {
        debug_assert!(waiting.held() <= self.kept_bytes);
        self.kept_bytes = self.kept_bytes.saturating_sub(waiting.held());
    }
}
