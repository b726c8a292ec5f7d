//! Round: the position within a poll of the reliability layer.
//!
//! ```text
//!   begin --> Backlog -----> Datagrams ------> Data --------> Timers --> Over: everything queued is sent
//!             links with     of both           of the data
//!             packets        channels          channel, if a Ping came
//!
//!   a batch  [ done ][ done ][ datagram ][ .. ][ .. ]       the service's memory, until its next event
//!                              |
//!                     on_datagram --> Current: a link's reassembly, step by step, and then the link
//!                                       |- Part      the chunk still lies in the datagram --> read, skip
//!                                       |- Packet    the chunk, or a body that was kept
//!                                       `- Placed
//! ```
//!
//! Up, Down and Writable events are queued and returned before any other. A link may be closed after any event; its
//! queued events and its position here are then forgotten.
//!
//! Owns: the queued events, the kept body that is lent.
//! Out of scope: the contents of datagrams and chunks.

use super::links::{Links, shared};
use super::reassembly::{BodyLimits, Reassembly, Step};
use super::service::Channel;
use crate::ids::LinkId;
use crate::memory::Memory;
use crate::port::{HEADER_LEN, HeaderBytes, Place};
use crate::round::PortEvent;
use crate::time::Instant;
use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::ops::Range;
use std::vec;

#[derive(Debug)]
pub(super) struct Round<A> {
    pub(super) now: Instant,
    /// Approximate number of datagrams to request from the service.
    pub(super) datagrams: usize,
    /// Number of packets that may still be returned.
    pub(super) packets: usize,
    pub(super) stage: Stage,
    /// Whether anything has happened in this round.
    pub(super) any: bool,
    events: VecDeque<PortEvent>,
    /// Links of the backlog that have not had their turn.
    backlog: vec::IntoIter<LinkId>,
    pub(super) batch: Option<Batch<A>>,
    pub(super) current: Option<Current>,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Backlog,
    Datagrams,
    Data,
    Timers,
    Over,
}

#[derive(Debug)]
pub(super) struct Batch<A> {
    from: (Channel, A),
    segment: usize,
    /// Offset of the next datagram.
    at: usize,
}

/// Link whose packets are being returned.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) link: LinkId,
    /// Range of the latest chunk in the batch; empty if there is none.
    pub(super) chunk: Range<usize>,
    /// Header of the packet that the chunk is, if it has not been returned; `None` otherwise.
    pub(super) whole: Option<HeaderBytes>,
    /// Whether this is a fast receive, with the bookkeeping deferred.
    pub(super) fast: bool,
}

#[derive(Debug, Default)]
enum Body {
    #[default]
    Empty,
    /// Range of bytes in the batch.
    Lent(Range<usize>),
    /// Bytes that were kept for this link, from this offset on.
    Kept(LinkId, Vec<u8>, usize),
}

impl<A> Default for Round<A> {
    fn default() -> Self {
        Self {
            now: Instant(0),
            datagrams: 0,
            packets: 0,
            stage: Stage::Over,
            any: false,
            events: VecDeque::new(),
            backlog: vec::IntoIter::default(),
            batch: None,
            current: None,
            body: Body::Empty,
        }
    }
}

impl<A> Batch<A> {
    /// Makes the position at the start of a batch of datagrams from one sender, `segment` bytes each.
    pub(super) fn new(from: (Channel, A), segment: usize) -> Self {
        Self {
            from,
            segment: segment.max(1),
            at: 0,
        }
    }
}

impl<A> Round<A> {
    pub(super) fn queue(&mut self, event: PortEvent) {
        self.events.push_back(event);
    }

    /// Returns the body of the last event; `bytes`: the service's batch.
    #[inline]
    pub(super) fn body<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        let body = match &self.body {
            Body::Empty => None,
            Body::Lent(range) => bytes.get(range.clone()),
            Body::Kept(_, bytes, at) => bytes.get(*at..),
        };
        body.unwrap_or(&[])
    }
}

impl<A: Copy + Eq + Hash + fmt::Debug> Links<A> {
    pub(super) fn begin(&mut self, now: Instant, budget: usize) {
        let finished = self.finish_fast_receive();
        self.fast = finished.is_none();
        if let Some(id) = finished {
            self.look_at(now, id);
        }
        let any = finished.is_some() || self.has_backlog();
        let backlog = self.take_backlog().into_iter();
        let round = &mut self.round;
        (round.now, round.stage) = (now, Stage::Backlog);
        (round.datagrams, round.packets) = (budget, budget.max(1));
        (round.any, round.backlog) = (any, backlog);
    }

    /// Ends the lending of the last event's body.
    #[inline]
    pub(super) fn take_back(&mut self) {
        if let Body::Kept(id, bytes, 0) = std::mem::take(&mut self.round.body)
            && let Some(link) = self.table.get_mut(id)
        {
            link.reassembly.reuse(bytes);
        }
    }

    /// Returns the next event of the data received so far.
    #[inline]
    pub(super) fn next_event(&mut self) -> Option<PortEvent> {
        loop {
            if let Some(event) = self.round.events.pop_front() {
                return Some(event);
            }
            let current = self.round.current.as_mut()?;
            let (link, fast) = (current.link, current.fast);
            if let Some(header) = current.whole.take() {
                self.round.body = Body::Lent(current.chunk.start + HEADER_LEN..current.chunk.end);
                if fast {
                    self.round.current = None;
                }
                return Some(PortEvent::Packet { link, header });
            }
            let step = self.reassemble(link, |reassembly, _, budget| reassembly.next(budget));
            match step {
                Some(Step::Ask { header, begin }) => {
                    return Some(PortEvent::Part {
                        link,
                        header,
                        begin,
                    });
                }
                Some(Step::Packet { header, bytes, at }) => {
                    self.round.body = Body::Kept(link, bytes, at);
                    return Some(PortEvent::Packet { link, header });
                }
                Some(Step::Placed(header)) => return Some(PortEvent::Placed { link, header }),
                Some(Step::Done) if fast => self.note_backlog(link),
                Some(Step::Done) => self.settle(link),
                Some(Step::Fin) => self.on_fin(self.round.now, link),
                None => {}
            }
            self.round.current = None;
        }
    }

    /// Handles the next datagram of the batch. Returns false if there is none.
    #[inline]
    pub(super) fn next_datagram(&mut self, bytes: &[u8]) -> bool {
        let Some(batch) = &mut self.round.batch else {
            return false;
        };
        let (from, at) = (batch.from, batch.at);
        let end = bytes.len().min(at + batch.segment);
        let datagram = bytes.get(at..end).unwrap_or(&[]);
        if datagram.is_empty() {
            self.round.batch = None;
            return false;
        }
        batch.at = end;
        self.on_datagram(self.round.now, from, at, datagram);
        self.fast = false;
        true
    }

    /// Begins with the packets of the next link of the backlog. Returns false if there is none.
    pub(super) fn next_of_backlog(&mut self) -> bool {
        let next = self.round.backlog.next();
        self.round.current = next.map(|link| Current {
            link,
            chunk: 0..0,
            whole: None,
            fast: false,
        });
        next.is_some()
    }

    /// Answers the [`PortEvent::Part`] that was returned last; `bytes`: the service's batch.
    pub(super) fn answer<M: Memory>(&mut self, place: Option<Place<'_, M>>, bytes: &[u8]) {
        let Some(Current { link, chunk, .. }) = &self.round.current else {
            return;
        };
        let chunk = bytes.get(chunk.clone()).unwrap_or(&[]);
        self.reassemble(*link, |reassembly, limits, _| {
            reassembly.answer(place, chunk, limits);
        });
    }

    /// Forgets the events of a closed link.
    pub(super) fn forget(&mut self, id: LinkId) {
        self.round.events.retain(|event| event.link() != Some(id));
        self.round.current.take_if(|current| current.link == id);
    }

    /// Calls the reassembly of a link, and updates the count of early bytes.
    #[inline]
    pub(super) fn reassemble<T>(
        &mut self,
        id: LinkId,
        call: impl FnOnce(&mut Reassembly, BodyLimits, &mut usize) -> T,
    ) -> Option<T> {
        let link = self.table.get_mut(id)?;
        let before = shared(link.reassembly.kept_bytes());
        let result = call(&mut link.reassembly, self.limits, &mut self.round.packets);
        self.early_bytes = self.early_bytes + shared(link.reassembly.kept_bytes()) - before;
        Some(result)
    }

    /// Ends the turn of a link whose packets have been returned; its peer may wait for the receive window that they
    /// used.
    fn settle(&mut self, id: LinkId) {
        let (now, limit) = (self.round.now, self.window_limit());
        self.note_backlog(id);
        if let Some(link) = self.table.get_mut(id) {
            let left = limit.saturating_sub(link.reassembly.kept_bytes());
            let window = u32::try_from(left).unwrap_or(u32::MAX);
            link.session.on_drained(now, window, limit);
        }
        self.touch(id);
        self.look_at(now, id);
    }
}
