//! Eager messages that have arrived only in part.
//!
//! ```text
//!   header --begin--> a receive accepts it and has room: Pulling ---> read into its memory --> complete
//!             |
//!             `---->  none: bytes that its credits cover --------> whole: as any unexpected message
//! ```
//!
//! Matching is done when the header comes, so that the body is written once, into its receive. If
//! that is cancelled meanwhile, its memory is free at once, and the port drops the rest of the
//! body.
//!
//! Owns: the messages in progress, at most one a link.
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

/// Memory of such messages that came before their receives, for the next ones: to have it mapped and zeroed
/// anew costs more than the copy.
#[derive(Debug, Default)]
pub(super) struct BodyPool(Vec<Vec<u8>>);

/// So many are kept, of [`Config::eager_max`](crate::Config::eager_max) bytes at most.
const BODIES_KEPT: usize = 8;

impl BodyPool {
    /// Memory for a body. What is in it is from an earlier one, if anything, and none of it is read before
    /// all has been written over.
    fn take(&mut self, len: usize) -> Vec<u8> {
        match self.0.pop() {
            Some(mut body) if body.capacity() >= len => {
                body.resize(len, 0);
                body
            }
            _ => vec![0; len],
        }
    }

    /// A body has been read.
    pub(super) fn give_back(&mut self, body: Vec<u8>) {
        if body.capacity() > SMALL_MAX && self.0.len() < BODIES_KEPT {
            self.0.push(body);
        }
    }
}

/// By the link on which they come.
pub(super) type AllStreamed = HashMap<LinkId, Streamed, RandomState>;

/// A message whose body is coming.
#[derive(Debug)]
pub(super) struct Streamed {
    from: RemoteId,
    into: BodyDestination,
}

/// The destination of the body.
#[derive(Debug)]
enum BodyDestination {
    /// Into the memory of this receive, which is `Pulling`.
    Receive(RequestId),
    /// Into the bytes of this unexpected message.
    Unexpected(EntryId),
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The first bytes of a message have come: reads them to where its body belongs. False: that is nowhere.
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

    /// Matches a message whose sender is known. `Ok(None)`: the link ends, for another reason.
    fn match_streamed(
        &mut self,
        from: RemoteId,
        header: &Header,
    ) -> Result<Option<BodyDestination>, Violation> {
        let (len, bits) = (header.body_len, MatchBits(header.word));
        let paid = self.received(from, header.aux, cost(len));
        let paid = paid?;
        // Nothing overtakes an undecided message.
        if self.unexpected.undecided() == 0 {
            match self.find_receive(from, bits) {
                MatchResult::Receive(id) if self.ops.record(id.index()).state.room() >= len => {
                    self.stats.matched += 1;
                    self.consumed(from, paid);
                    self.receive_streamed(id, from, bits, len);
                    return Ok(Some(BodyDestination::Receive(id)));
                }
                // It gets what fits when all of it is here.
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

    /// The message goes into this receive, which is in no list.
    fn receive_streamed(&mut self, id: RequestId, from: RemoteId, bits: MatchBits, len: u32) {
        let record = self.ops.record_mut(id.index());
        record.become_next(|memory| {
            State::Pulling(Pulling::new(memory, (STREAMED, None), bits, len, None))
        });
        let now = self.clock.now();
        self.wait_in_order(id, from, now);
    }

    /// Reads more of the body that is arriving on this link. False: it has no place any more.
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

    /// All of it is there.
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

    /// A message without a receive is complete.
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

    /// The rest of what is coming on a link never will. The sender of such a message: it is to be lost
    /// with it.
    pub(super) fn cut(&mut self, link: LinkId) -> Option<RemoteId> {
        Some(self.streamed.remove(&link)?.from)
    }

    /// The sender of a message that has been cut believes that it has arrived: its session ends. The message
    /// and a receive end with it.
    pub(super) fn lose(&mut self, cut: Option<RemoteId>, reason: LinkDown) {
        if let Some(from) = cut {
            self.fail_remote(from, DownReason::Link(reason));
        }
    }

    /// Cuts the message that comes on the link of a remote that is about to go.
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
