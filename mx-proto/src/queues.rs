//! Send queues of one remote.
//!
//! ```text
//!   partials  rests of packets that a link has taken in part: before everything else on that link
//!   control   replies, pulls, notifies            first
//!   lanes     messages, in the order posted       then these two
//!   streams   parts of offered messages           take turns
//! ```
//!
//! The stream of the message with the fewest bytes left goes first on a link, so a short message does not wait for long
//! ones, and the first of several equal ones arrives while the others are still to be sent. The stream that has waited
//! longest has a turn after [`PASSED_MAX`] bytes of others. Fairness is between remotes.
//!
//! A lane's messages keep their order, and both lanes are served in the order posted, but neither waits for credits, or
//! the slot, of the other. Copies of completed sends are paid for, and only copies stand before them in their lane, so
//! they can always be sent.
//!
//! Only remotes with waiting messages have queues; others keep one empty pointer. A few sets are kept for reuse, so
//! that traffic allocates nothing.
//!
//! Out of scope: operations' contents, the port.

use crate::flow::Lane;
use crate::ids::RequestId;
use crate::ops::{Form, List};
use crate::port::HeaderBytes;
use crate::time::Instant;
use crate::wire::{Header, Kind};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Packets and messages that wait for one remote.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Rests of packets, at most one for each link.
    partials: SmallVec<[Partial; 1]>,
    pub(crate) control: Controls,
    /// Whether the remote is in the endpoint's queue of remotes with something to send.
    pub(crate) ready: bool,
    /// Sends in state [`Queued`](crate::ops::State::Queued), by lane.
    pub(crate) lanes: [List; 2],
    /// Whether messages could not be sent for lack of credits, and none has been since.
    pub(crate) stalled: bool,
    /// Number of copies, which are the first messages of each lane.
    copies: [u32; 2],
    /// Number of the message that joined a lane last.
    last: u64,
    /// Cost of all waiting messages that have not been paid for.
    pub(crate) cost: u32,
    pub(crate) streams: VecDeque<Stream>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueuePosition {
    /// Number among all messages queued for this remote.
    pub(crate) number: u64,
    /// Credits that the message costs, with its data if it may carry it. A copy has paid them.
    pub(crate) cost: u32,
    pub(crate) form: Form,
    /// Time at which the message joined the lane.
    pub(crate) since: Instant,
}

/// Rest of a data packet's body that the link has not taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partial {
    pub(crate) link: u32,
    pub(crate) request: RequestId,
    pub(crate) at: usize,
    pub(crate) end: usize,
}

/// Part of an offered message that the receiver has requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) request: RequestId,
    /// Receiver's id of its operation.
    pub(crate) recv_id: u64,
    /// Number of the Pull, which the data quotes.
    pub(crate) attempt: u32,
    /// Number of the link that carries the part.
    pub(crate) link: u32,
    pub(crate) at: usize,
    pub(crate) end: usize,
    /// Length of the whole message in bytes.
    pub(crate) length: usize,
    /// Bytes of other streams sent since this one became the longest waiting of its link, or last had its turn.
    pub(crate) passed: usize,
}

impl Stream {
    /// Returns the number of bytes from here to the end of the message.
    fn left(&self) -> usize {
        self.length - self.at
    }

    /// Returns whether this newly requested part makes `other` obsolete.
    fn replaces(&self, other: &Self) -> bool {
        let overlaps = self.at < other.end && other.at < self.end;
        self.request == other.request && (self.recv_id != other.recv_id || overlaps)
    }
}

/// Packets without message data that wait for a link, oldest first.
pub(crate) type Controls = VecDeque<Control>;

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

/// Body size in bytes up to which a packet needs no allocation: that of all frequent kinds.
const CONTROL_USUAL: usize = 32;

impl QueuePosition {
    /// Position of a message that has not joined a lane yet.
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
            && self.partials.is_empty()
            && self.control.is_empty()
            && !self.has_messages()
            && self.streams.is_empty()
    }

    /// Returns the queued packet of a kind of which one at a time is enough.
    pub(crate) fn standing(&mut self, kind: Kind) -> Option<&mut Control> {
        let mut all = self.control.iter_mut();
        all.find(|control| control.header.kind == kind)
    }

    pub(crate) fn count(&self, kinds: &[Kind]) -> usize {
        let all = self.control.iter();
        all.filter(|control| kinds.contains(&control.header.kind))
            .count()
    }

    /// Adds a part that a receiver has requested. If it directly follows a waiting part of the same number, it extends
    /// that one, so that they stay in order. Waiting parts that it overlaps, and those of another receive, are dropped.
    /// Returns false and drops the part if the message has as many waiting as a receiver may request.
    pub(crate) fn add_stream(&mut self, part: Stream) -> bool {
        self.streams.retain(|stream| !part.replaces(stream));
        let mut waiting = 0;
        let of_it = self.streams.iter_mut().rev();
        for stream in of_it.filter(|stream| stream.request == part.request) {
            if (stream.end, stream.attempt) == (part.at, part.attempt) {
                stream.end = part.end;
                return true;
            }
            waiting += 1;
        }
        if waiting < PARTS_MAX {
            self.streams.push_back(part);
        }
        waiting < PARTS_MAX
    }

    /// Returns the index of the stream whose turn it is on a link.
    pub(crate) fn next_stream(&self, link: u32) -> Option<usize> {
        let all = self.streams.iter().enumerate();
        let mut of_link = all.filter(|(_, stream)| stream.link == link);
        let (first, oldest) = of_link.next()?;
        if oldest.passed >= PASSED_MAX {
            return Some(first);
        }
        let shortest = of_link.min_by_key(|(_, stream)| stream.left());
        let shorter = shortest.filter(|(_, stream)| stream.left() < oldest.left());
        Some(shorter.map_or(first, |(nth, _)| nth))
    }

    /// Counts bytes of a stream that have been sent.
    pub(crate) fn advance_stream(&mut self, nth: usize, len: usize) {
        let Some(stream) = self.streams.get_mut(nth) else {
            return;
        };
        stream.at += len;
        stream.passed = 0;
        let (link, is_over) = (stream.link, stream.at >= stream.end);
        let mut before = self.streams.iter_mut().take(nth);
        if let Some(oldest) = before.find(|stream| stream.link == link) {
            oldest.passed += len;
        }
        if is_over {
            self.streams.remove(nth);
        }
    }

    /// Returns whether a part of a message waits, or the rest of one of its packets.
    pub(crate) fn carries(&self, request: RequestId) -> bool {
        self.streams.iter().any(|stream| stream.request == request)
            || self.partials.iter().any(|of| of.request == request)
    }

    /// Removes the parts of a message that is over.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.streams.retain(|stream| stream.request != request);
    }

    /// Removes everything that a lost link was to carry; the receiver requests it again.
    pub(crate) fn forget_link(&mut self, link: u32) {
        self.streams.retain(|stream| stream.link != link);
        self.end_partial(link);
    }

    /// Removes the packets of a message of which links have taken a part, and returns them.
    pub(crate) fn take_partials(&mut self, request: RequestId) -> SmallVec<[Partial; 1]> {
        let all = std::mem::take(&mut self.partials).into_iter();
        let (taken, kept) = all.partition(|partial| partial.request == request);
        self.partials = kept;
        taken
    }

    /// Returns the packet of which a link has taken a part.
    #[inline]
    pub(crate) fn partial(&self, link: u32) -> Option<Partial> {
        let mut all = self.partials.iter().copied();
        all.find(|partial| partial.link == link)
    }

    /// Records that a link has taken a part of a packet.
    pub(crate) fn set_partial(&mut self, partial: Partial) {
        self.end_partial(partial.link);
        self.partials.push(partial);
    }

    /// Removes the rest of a packet that a link has taken to its end.
    pub(crate) fn end_partial(&mut self, link: u32) {
        self.partials.retain(|partial| partial.link != link);
    }

    /// Returns whether a part of a large message waits for a link, or the rest of a packet.
    pub(crate) fn has_bulk(&self, link: u32) -> bool {
        self.partial(link).is_some() || self.streams.iter().any(|stream| stream.link == link)
    }

    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_empty())
    }

    /// Counts a message that is about to join a lane, and returns its position.
    pub(crate) fn enter(
        &mut self,
        lane: Lane,
        form: Form,
        cost: u32,
        now: Instant,
    ) -> QueuePosition {
        self.last += 1;
        match form {
            Form::Copied => self.copies[lane as usize] += 1,
            Form::Plain | Form::Synchronous => self.cost += cost,
        }
        QueuePosition {
            number: self.last,
            cost,
            form,
            since: now,
        }
    }

    /// Counts a message that is about to leave its lane.
    pub(crate) fn exit(&mut self, lane: Lane, stand: QueuePosition) {
        self.stalled = false;
        match stand.form {
            Form::Copied => self.copies[lane as usize] -= 1,
            Form::Plain | Form::Synchronous => self.cost -= stand.cost,
        }
    }

    /// Returns whether the first message of this lane is a copy.
    pub(crate) fn has_copy(&self, lane: Lane) -> bool {
        self.copies[lane as usize] > 0
    }

    pub(crate) fn has_copies(&self) -> bool {
        self.copies != [0; 2]
    }

    /// Returns whether one more copy may join this lane: there are fewer than `most`, and the lane holds nothing else.
    pub(crate) fn takes_copy(&self, lane: Lane, most: usize) -> bool {
        let copies = self.copies[lane as usize] as usize;
        copies == self.lanes[lane as usize].len()
            && self.copies.iter().sum::<u32>() < u32::try_from(most).unwrap_or(u32::MAX)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lanes.iter().map(List::len).sum()
    }

    /// Frees memory that a burst has used.
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
    /// Returns the set in `place`; puts a spare or new one there if there is none.
    pub(crate) fn get_or_alloc<'a>(
        &mut self,
        place: &'a mut Option<Box<Queues>>,
    ) -> &'a mut Queues {
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

/// Maximum number of waiting parts of one message. A correct receiver requests two for each link.
const PARTS_MAX: usize = 32;
/// Bytes that may pass the longest waiting stream before it may send a packet, which gives it a ninth of its link.
const PASSED_MAX: usize = 8 << 20;
/// Number of sets kept: as many as remotes that are usually busy at once.
const SPARES_KEPT: usize = 64;
/// Capacity that an empty queue of a kept set retains: 64 sets have at most 100 KiB.
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
            link: 0,
            at,
            end,
            length: 100 * PASSED_MAX,
            passed: 0,
        }
    }

    fn ranges(queues: &Queues) -> Vec<(usize, usize)> {
        queues.streams.iter().map(|it| (it.at, it.end)).collect()
    }

    #[test]
    fn adjacent_parts_are_merged_and_few_others_are_kept() {
        let mut queues = Queues::default();
        assert!(queues.add_stream(part(1, 0, 10)));
        assert!(queues.add_stream(part(1, 10, 20)));
        assert_eq!(queues.streams.len(), 1);
        let numbered = Stream {
            attempt: 2,
            ..part(1, 20, 30)
        };
        assert!(queues.add_stream(numbered));
        for n in 2..PARTS_MAX {
            assert!(queues.add_stream(part(1, 100 * n, 100 * n + 1)));
        }
        assert!(!queues.add_stream(part(1, 50, 60)));
        assert!(queues.add_stream(part(2, 50, 60)));
        assert_eq!(queues.streams.len(), PARTS_MAX + 1);
        queues.forget(RequestId::new(1, 1));
        assert_eq!(queues.streams.len(), 1);
    }

    #[test]
    fn parts_that_are_asked_for_again_are_sent_once() {
        let mut queues = Queues::default();
        for (at, attempt) in [(0, 1), (10, 2), (20, 3)] {
            let stream = Stream {
                attempt,
                ..part(1, at, at + 10)
            };
            assert!(queues.add_stream(stream));
        }
        assert!(queues.add_stream(part(2, 0, 10)));
        let again = Stream {
            attempt: 4,
            ..part(1, 5, 20)
        };
        assert!(queues.add_stream(again));
        assert_eq!(ranges(&queues), [(20, 30), (0, 10), (5, 20)]);
        let elsewhere = Stream {
            recv_id: 8,
            ..part(1, 0, 5)
        };
        assert!(queues.add_stream(elsewhere));
        assert_eq!(ranges(&queues), [(0, 10), (0, 5)]);
    }

    #[test]
    fn a_lost_link_takes_along_only_what_it_was_to_carry() {
        let mut queues = Queues::default();
        for link in 0..3 {
            let at = 100 * link as usize;
            let stream = part(1, at, at + 10);
            assert!(queues.add_stream(Stream { link, ..stream }));
            queues.set_partial(Partial {
                link,
                request: stream.request,
                at,
                end: at + 1,
            });
        }
        queues.forget_link(1);
        assert!(!queues.has_bulk(1) && queues.has_bulk(0) && queues.has_bulk(2));
        queues.end_partial(2);
        queues.forget(RequestId::new(1, 1));
        let left = queues.take_partials(RequestId::new(1, 1));
        assert_eq!(left.iter().map(|it| it.link).collect::<Vec<_>>(), [0]);
        assert!(queues.is_empty());
    }

    /// Sends everything that waits for link 0 in packets of `packet` bytes. Returns the messages in the order in which
    /// they are sent.
    fn sent(queues: &mut Queues, packet: usize) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(nth) = queues.next_stream(0) {
            let stream = queues.streams[nth];
            order.push(stream.request.index());
            queues.advance_stream(nth, packet.min(stream.end - stream.at));
        }
        order
    }

    #[test]
    fn the_message_with_the_fewest_bytes_left_goes_first() {
        let mut queues = Queues::default();
        for (n, at, length) in [(1, 0, 40), (2, 20, 50), (3, 0, 20), (4, 0, 20), (5, 0, 1)] {
            let link = u32::from(n == 5);
            let part = part(n, at, length);
            assert!(queues.add_stream(Stream {
                length,
                link,
                ..part
            }));
        }
        assert_eq!(sent(&mut queues, 10), [3, 3, 4, 4, 2, 2, 2, 1, 1, 1, 1]);
        assert!(queues.has_bulk(1));
    }

    #[test]
    fn longest_waiting_stream_gets_a_turn_after_enough_bytes() {
        const PACKET: usize = PASSED_MAX / 4;
        let mut queues = Queues::default();
        assert!(queues.add_stream(part(1, 0, 2 * PACKET)));
        for n in 2..12 {
            let length = PACKET;
            assert!(queues.add_stream(Stream {
                length,
                ..part(n, 0, PACKET)
            }));
        }
        assert_eq!(
            sent(&mut queues, PACKET),
            [2, 3, 4, 5, 1, 6, 7, 8, 9, 1, 10, 11]
        );
    }
}
