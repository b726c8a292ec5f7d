//! The send queues of one remote.
//!
//! ```text
//!   partial   rest of a packet that the link has accepted in part: before everything
//!   control   replies, pulls, notifies            first
//!   lanes     messages, in the order posted       then these two
//!   streams   parts of offered messages           take turns
//!
//! A stream goes on to its end, or to the end of a run of [`RUN`] bytes, before the next one: so the
//! first of several messages arrives while the others are still to be sent, and the process that waits for it
//! can go on. Fairness is between remotes.
//! ```
//!
//! A lane's messages keep their order, and both lanes are served in the order posted; but neither
//! waits for credits, or the slot, of the other. Copies of completed sends are paid, and only
//! copies stand before them in their lane: so they can always be sent.
//!
//! Only remotes with waiting messages have queues; others keep one empty pointer. A few sets are
//! kept for reuse, so that traffic allocates nothing.
//!
//! Not here: operations' contents, the port.

use crate::flow::Lane;
use crate::ids::RequestId;
use crate::ops::{Form, List};
use crate::port::HeaderBytes;
use crate::time::Instant;
use crate::wire::{Header, Kind};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Everything that waits for one remote.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) partial: Option<Partial>,
    pub(crate) control: Controls,
    /// The remote stands in the endpoint's queue of those with something to send.
    pub(crate) ready: bool,
    /// Sends that are [queued](crate::ops::State::Queued).
    pub(crate) lanes: [List; 2],
    /// Nothing of them could go for want of credits, and nothing has since.
    pub(crate) stalled: bool,
    /// The number of copies, which are the first ones of each lane.
    copies: [u32; 2],
    /// The number of the message that joined a lane last.
    last: u64,
    /// The cost of all waiting messages that have not been paid for.
    pub(crate) cost: u32,
    pub(crate) streams: VecDeque<Stream>,
}

/// A message in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stand {
    /// Its number among all that were posted to this remote while something waited.
    pub(crate) number: u64,
    /// Credits it takes, with its data if it may go so. A copy has paid them.
    pub(crate) cost: u32,
    pub(crate) form: Form,
    /// The time at which it joined.
    pub(crate) since: Instant,
}

/// The rest of a data packet's body that the link has not taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial {
    pub(crate) request: RequestId,
    pub(crate) at: usize,
    pub(crate) end: usize,
}

/// A part of an offered message that the receiver asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) request: RequestId,
    /// The receiver's id of it.
    pub(crate) recv_id: u64,
    /// The receiver's attempt to pull it.
    pub(crate) attempt: u32,
    pub(crate) at: usize,
    pub(crate) end: usize,
}

/// Packets without message data that wait for a link, oldest first.
pub(crate) type Controls = VecDeque<Control>;

/// A packet without message data, ready but for its credits.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) header: Header,
    body: SmallVec<[u8; CONTROL_USUAL]>,
}

impl Control {
    pub(crate) fn new(mut header: Header, body: &[u8]) -> Self {
        header.body_len = body.len() as u32;
        Self {
            header,
            body: SmallVec::from_slice(body),
        }
    }

    pub(crate) fn parts(&self) -> (HeaderBytes, &[u8]) {
        (self.header.emit(), &self.body)
    }
}

/// Bytes of a body that need no memory of their own: those of all that come in numbers.
const CONTROL_USUAL: usize = 32;

impl Stand {
    /// Of one that has not joined a lane yet.
    pub(crate) const NOWHERE: Self = Self {
        number: 0,
        cost: 0,
        form: Form::Plain,
        since: Instant(0),
    };
}

impl Queues {
    pub(crate) fn is_empty(&self) -> bool {
        !self.ready
            && self.partial.is_none()
            && self.control.is_empty()
            && !self.has_messages()
            && self.streams.is_empty()
    }

    /// The packet of a kind of which one at a time is enough.
    pub(crate) fn standing(&mut self, kind: Kind) -> Option<&mut Control> {
        let mut all = self.control.iter_mut();
        all.find(|control| control.header.kind == kind)
    }

    /// The number of waiting packets of these kinds.
    pub(crate) fn count(&self, kinds: &[Kind]) -> usize {
        let all = self.control.iter();
        all.filter(|control| kinds.contains(&control.header.kind))
            .count()
    }

    /// Parts that follow each other go out as one, so that they stay in order. Those of an earlier attempt are not wanted
    /// any more. False, and nothing has changed, when the message has as many parts waiting as a receiver asks for at once.
    pub(crate) fn extend_stream(&mut self, part: Stream) -> bool {
        self.streams
            .retain(|stream| stream.request != part.request || stream.attempt == part.attempt);
        let mut open = 0;
        let of_it = self.streams.iter_mut().rev();
        for stream in of_it.filter(|stream| stream.request == part.request) {
            if open == 0 && stream.end == part.at && stream.recv_id == part.recv_id {
                stream.end = part.end;
                return true;
            }
            open += 1;
            if open == PARTS_MAX {
                return false;
            }
        }
        self.streams.push_back(part);
        true
    }

    /// So many bytes of the first stream have gone.
    pub(crate) fn advance_stream(&mut self, len: usize) {
        let Some(stream) = self.streams.front_mut() else {
            return;
        };
        let run = stream.at / RUN;
        stream.at += len;
        if stream.at >= stream.end {
            self.streams.pop_front();
        } else if stream.at / RUN != run {
            self.streams.rotate_left(1);
        }
    }

    /// Removes a message that is over.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.streams.retain(|stream| stream.request != request);
    }

    /// Whether a part of a large message waits, or the rest of one.
    pub(crate) fn has_bulk(&self) -> bool {
        self.partial.is_some() || !self.streams.is_empty()
    }

    /// Forgets all that was asked for of large messages. Their receivers ask again.
    pub(crate) fn forget_bulk(&mut self) {
        self.partial = None;
        self.streams.clear();
    }

    /// Whether a message waits in a lane.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_empty())
    }

    /// A message is about to join a lane.
    pub(crate) fn enter(&mut self, lane: Lane, form: Form, cost: u32, now: Instant) -> Stand {
        self.last += 1;
        match form {
            Form::Copied => self.copies[lane as usize] += 1,
            Form::Plain | Form::Synchronous => self.cost += cost,
        }
        Stand {
            number: self.last,
            cost,
            form,
            since: now,
        }
    }

    /// It is about to leave.
    pub(crate) fn exit(&mut self, lane: Lane, stand: Stand) {
        self.stalled = false;
        match stand.form {
            Form::Copied => self.copies[lane as usize] -= 1,
            Form::Plain | Form::Synchronous => self.cost -= stand.cost,
        }
    }

    /// Whether the first message of this lane is a copy.
    pub(crate) fn has_copy(&self, lane: Lane) -> bool {
        self.copies[lane as usize] > 0
    }

    /// Whether any message is a copy.
    pub(crate) fn has_copies(&self) -> bool {
        self.copies != [0; 2]
    }

    /// May one more copy join this lane? If there are fewer than `most`, and nothing else in it.
    pub(crate) fn takes_copy(&self, lane: Lane, most: usize) -> bool {
        let copies = self.copies[lane as usize] as usize;
        copies == self.lanes[lane as usize].len()
            && self.copies.iter().sum::<u32>() < u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Messages that wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.iter().map(List::len).sum()
    }

    /// Gives back what a burst has made it grow to.
    fn shrink(&mut self) {
        self.control.shrink_to(CONTROL_KEPT);
        self.streams.shrink_to(STREAMS_KEPT);
    }
}

/// Empty sets for reuse.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a set goes from here to a remote as it is")]
pub(crate) struct Spares(Vec<Box<Queues>>);

impl Spares {
    /// The set in `place`, put there if there is none.
    pub(crate) fn fill<'a>(&mut self, place: &'a mut Option<Box<Queues>>) -> &'a mut Queues {
        place.get_or_insert_with(|| self.0.pop().unwrap_or_default())
    }

    /// Takes back a set in which nothing waits.
    pub(crate) fn tidy(&mut self, place: &mut Option<Box<Queues>>) {
        let Some(mut queues) = place.take_if(|queues| queues.is_empty()) else {
            return;
        };
        debug_assert_eq!(
            (queues.cost, queues.copies),
            (0, [0; 2]),
            "messages that are gone"
        );
        if self.0.len() < SPARES_KEPT {
            queues.shrink();
            self.0.push(queues);
        }
    }
}

/// Parts of one message that may wait. A receiver of ours asks for two, and for no third before
/// it has the first.
const PARTS_MAX: usize = 4;
/// Bytes of one message that go before the next one has its turn: a few milliseconds of a fast network.
const RUN: usize = 4 << 20;
/// Sets kept for the next remotes: as many as are busy at once without one waiting for the other.
const SPARES_KEPT: usize = 64;
/// Entries of memory an empty queue of a kept set has: 64 sets have at most 100 KiB.
const CONTROL_KEPT: usize = 8;
const STREAMS_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn part(n: u32, at: usize, end: usize) -> Stream {
        Stream {
            request: RequestId::new(n, 1),
            recv_id: 7,
            attempt: 1,
            at,
            end,
        }
    }

    #[test]
    fn parts_that_follow_each_other_are_one_and_few_others_are_kept() {
        let mut queues = Queues::default();
        assert!(queues.extend_stream(part(1, 0, 10)));
        assert!(queues.extend_stream(part(1, 10, 20)));
        assert_eq!(queues.streams.len(), 1);
        for n in 1..PARTS_MAX {
            assert!(queues.extend_stream(part(1, 100 * n, 100 * n + 1)));
        }
        assert!(!queues.extend_stream(part(1, 5, 6)));
        assert!(queues.extend_stream(part(2, 5, 6)));
        assert_eq!(queues.streams.len(), PARTS_MAX + 1);
        queues.forget(RequestId::new(1, 1));
        assert_eq!(queues.streams.len(), 1);
    }

    #[test]
    fn parts_of_an_earlier_attempt_are_not_wanted() {
        let mut queues = Queues::default();
        assert!(queues.extend_stream(part(1, 0, 10)) && queues.extend_stream(part(2, 0, 10)));
        let again = Stream {
            attempt: 2,
            ..part(1, 5, 20)
        };
        assert!(queues.extend_stream(again));
        let left: Vec<_> = queues.streams.iter().map(|it| (it.at, it.end)).collect();
        assert_eq!(left, [(0, 10), (5, 20)]);
    }

    #[test]
    fn a_stream_goes_on_to_its_end_or_to_that_of_a_run() {
        const STEP: usize = RUN / 4;
        let mut queues = Queues::default();
        for (n, end) in [(1, 5 * STEP), (2, STEP), (3, 2 * STEP)] {
            assert!(queues.extend_stream(part(n, 0, end)));
        }
        let mut order = Vec::new();
        while let Some(stream) = queues.streams.front() {
            order.push(stream.request.index());
            queues.advance_stream(STEP);
        }
        assert_eq!(order, [1, 1, 1, 1, 2, 3, 3, 1]);
    }
}
