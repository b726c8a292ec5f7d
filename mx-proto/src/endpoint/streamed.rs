//! Streamed messages: eager messages that have arrived only in part.
//!
//! ```text
//!   header --begin--> a receive matches and is large enough: Pulling ---> read into its memory --> complete
//!             |
//!             `---->  otherwise: memory that its credits cover -------> complete: unexpected message
//! ```
//!
//! Matching happens when the header arrives, so that the body is written only once, into its receive. If that receive
//! is cancelled meanwhile, its memory is free at once, and the port drops the rest of the body.
//!
//! Owns: the messages in progress, at most one for each link.
//! Cost: an entry in a hash table for each.

use super::Endpoint;
use super::inbound::MatchResult;
use super::introductions::Distrust;
use super::unexpected::filled;
use crate::config::SMALL_MAX;
use crate::event::Verdict;
use crate::flow::cost;
use crate::ids::{EntryId, LinkId, MatchBits, RemoteId, RequestId};
use crate::ops::{Pulling, STREAMED, State};
use crate::owner::Owner;
use crate::port::{Destination, LinkDown, Place, Port};
use crate::remote::RemoteState;
use crate::status::{DownReason, Violation};
use crate::time::Clock;
use crate::unexpected::{Body, UnexpectedMessage};
use crate::wire::Header;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Spare memory of streamed messages without a receive, for later ones: mapping and zeroing new memory costs more than
/// the copy.
#[derive(Debug, Default)]
pub(super) struct BodyPool(Vec<Vec<u8>>);

/// Maximum number of spare bodies, each of at most [`Config::eager_max`](crate::Config::eager_max) bytes.
const BODIES_KEPT: usize = 8;

impl BodyPool {
    /// Returns memory for a body. It may hold bytes of an earlier body, and none of it is read before all has been
    /// overwritten.
    fn take(&mut self, len: usize) -> Vec<u8> {
        match self.0.pop() {
            Some(mut body) if body.capacity() >= len => {
                body.resize(len, 0);
                body
            }
            _ => vec![0; len],
        }
    }

    /// Takes back the memory of a body that has been read.
    pub(super) fn give_back(&mut self, body: Vec<u8>) {
        if body.capacity() > SMALL_MAX && self.0.len() < BODIES_KEPT {
            self.0.push(body);
        }
    }
}

pub(super) type AllStreamed = HashMap<LinkId, Streamed, RandomState>;

#[derive(Debug)]
pub(super) struct Streamed {
    from: RemoteId,
    into: BodyDestination,
}

#[derive(Debug)]
enum BodyDestination {
    /// Memory of this receive, which is `Pulling`.
    Receive(RequestId),
    /// Bytes of this unexpected message.
    Unexpected(EntryId),
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Handles the first bytes of a message: matches it and reads them. Returns false if the body has no destination.
    pub(super) fn begin_streamed(&mut self, link: LinkId, header: &Header) -> bool {
        let from = self.remote_on(link);
        // A stranger's message is examined when it is complete.
        let Some(remote) = self.remotes.of(from) else {
            return false;
        };
        let met = matches!(remote.state, RemoteState::Connected(_));
        if !self.trusts(link, from) {
            self.distrust(from, None, Distrust::Unasked);
            return false;
        }
        let into = if header.length != header.body_len {
            Err(Violation::Length)
        } else if met {
            self.match_streamed(from, header)
        } else {
            Err(Violation::TooEarly)
        };
        match into {
            Ok(Some(into)) => {
                self.streamed.insert(link, Streamed { from, into });
                self.read_streamed(link)
            }
            Ok(None) => false,
            Err(what) => {
                self.violation(link, what);
                false
            }
        }
    }

    /// Matches a message whose sender is known. `Ok(None)`: its session has ended for lack of memory.
    fn match_streamed(
        &mut self,
        from: RemoteId,
        header: &Header,
    ) -> Result<Option<BodyDestination>, Violation> {
        let (len, bits) = (header.body_len, MatchBits(header.word));
        let paid = self.received(from, header.aux, cost(len));
        let paid = paid?;
        // No message may overtake an undecided one.
        if self.unexpected.undecided() == 0 {
            match self.find_receive(from, bits) {
                MatchResult::Receive(id) if self.ops.record(id.index()).state.room() >= len => {
                    self.stats.matched += 1;
                    self.consumed(from, paid);
                    self.receive_streamed(id, from, bits, len);
                    return Ok(Some(BodyDestination::Receive(id)));
                }
                // A receive that is too small gets its part when the whole message has arrived.
                MatchResult::Receive(id) => self.posted.enter(&mut self.ops, id.index()),
                MatchResult::Foreign => {
                    self.consumed(from, paid);
                    return Err(Violation::Foreign);
                }
                MatchResult::Nothing => {}
            }
        }
        if !self.has_room(from, paid) {
            return Ok(None);
        }
        let body = Body::Bytes(self.bodies.take(len as usize));
        let message = UnexpectedMessage::new((from, bits, len), paid, None, body);
        Ok(Some(BodyDestination::Unexpected(
            self.unexpected.add(message),
        )))
    }

    /// Makes this receive, which is in no list, the destination of a message.
    fn receive_streamed(&mut self, id: RequestId, from: RemoteId, bits: MatchBits, len: u32) {
        let record = self.ops.record_mut(id.index());
        record.become_next(|memory| {
            State::Pulling(Pulling::new(memory, (STREAMED, None), bits, len, None))
        });
        let now = self.clock.now();
        self.wait_in_order(id, from, now);
    }

    /// Reads more of the body that is arriving on this link. Returns false if its destination no longer exists.
    pub(super) fn read_streamed(&mut self, link: LinkId) -> bool {
        let Self {
            port,
            streamed,
            unexpected,
            ops,
            remotes,
            ..
        } = self;
        let Some(Streamed { from, into }) = streamed.get_mut(&link) else {
            return false;
        };
        if let Some(met) = remotes.connected_mut(*from) {
            met.silent = 0;
        }
        let memory = match into {
            BodyDestination::Unexpected(id) => {
                match unexpected.get_mut(*id).map(|message| &mut message.body) {
                    Some(Body::Bytes(bytes)) => Destination::Bytes(bytes),
                    _ => return false,
                }
            }
            BodyDestination::Receive(id) => {
                let Some(record) = ops.get_mut(*id) else {
                    return false;
                };
                record.touched = true;
                match &mut record.state {
                    State::Pulling(pulling) => Destination::Memory(&mut pulling.memory),
                    _ => return false,
                }
            }
        };
        port.read(Place { memory, offset: 0 });
        true
    }

    /// Handles the end of a body: the message is complete.
    pub(super) fn end_streamed(&mut self, link: LinkId, header: &Header) {
        let Some(Streamed { from, into }) = self.streamed.remove(&link) else {
            self.stats.stale += 1;
            return;
        };
        self.stats.packets_in += 1;
        let _ = self.apply_credit_fields(from, header);
        match into {
            BodyDestination::Receive(id) => {
                let state = self.ops.get(id).map(|record| &record.state);
                if matches!(state, Some(State::Pulling(_))) {
                    self.arrived_whole(id, from);
                }
            }
            BodyDestination::Unexpected(id) => self.whole(link, from, id),
        }
    }

    /// Handles a complete message that had no receive when it began.
    fn whole(&mut self, link: LinkId, from: RemoteId, id: EntryId) {
        let Some(message) = self.unexpected.get(id) else {
            return;
        };
        let what = (from, message.bits, message.length);
        if self.unexpected.undecided() == 0 {
            match self.find_receive(from, what.1) {
                MatchResult::Receive(op) => {
                    self.stats.matched += 1;
                    let now = self.clock.now();
                    return self.fill_unexpected(op, id, now);
                }
                MatchResult::Foreign => {
                    self.take_out(id);
                    return self.violation(link, Violation::Foreign);
                }
                MatchResult::Nothing => {}
            }
        }
        let body = self.unexpected.take_bytes(id).unwrap_or_default();
        let verdict = self.arrival_to_judge(what);
        let (owner, events) = (&mut self.owner, &mut self.events);
        let verdict =
            verdict.unwrap_or_else(|arrival| owner.arrived(events, &arrival, Some(&body[..])));
        let memory = match verdict {
            Verdict::Inbox { .. } => filled(&mut self.owner, &body[..]),
            _ => None,
        };
        if let Some(message) = self.unexpected.get_mut(id) {
            message.body = memory.map_or(Body::Bytes(body), Body::Memory);
        }
        self.keep(id, verdict);
    }

    /// Drops the message whose body was arriving on a link. Returns its sender, whose session must end, too.
    pub(super) fn cut(&mut self, link: LinkId) -> Option<RemoteId> {
        Some(self.streamed.remove(&link)?.from)
    }

    /// Ends the session of a sender whose message was cut off, because it believes that the message has arrived. The
    /// message and its receive end with the session.
    pub(super) fn lose(&mut self, cut: Option<RemoteId>, reason: LinkDown) {
        if let Some(from) = cut {
            self.fail_remote(from, DownReason::Link(reason));
        }
    }

    /// Drops the message that is arriving on the link of a remote about to be removed.
    pub(super) fn cut_all(&mut self, id: RemoteId) {
        if let Some((link, _)) = self.remotes.of(id).and_then(|remote| remote.link) {
            self.streamed.remove(&link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_large_bodies_are_kept_for_the_next_ones() {
        let mut bodies = BodyPool::default();
        bodies.give_back(vec![1; SMALL_MAX]);
        assert!(bodies.0.is_empty(), "a small one");
        for _ in 0..2 * BODIES_KEPT {
            bodies.give_back(vec![1; 2 * SMALL_MAX]);
        }
        assert_eq!(bodies.0.len(), BODIES_KEPT);
        let used = bodies.0[BODIES_KEPT - 1].as_ptr();
        let body = bodies.take(SMALL_MAX + 1);
        assert_eq!((body.as_ptr(), body.len()), (used, SMALL_MAX + 1));
        let larger = bodies.take(3 * SMALL_MAX);
        assert_eq!(larger, vec![0; 3 * SMALL_MAX]);
    }
}
