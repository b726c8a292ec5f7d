//! A round: the events of all links, one at a time.
//!
//! ```text
//!   begin --control wanted?--> queue
//!
//!   next:  the packet lent last is released to its ring
//!          queue    links with reasons for attention (`queue`)             before all else
//!          rings    the active links in turn, each at most its quota
//!          then     Elsewhere: system calls, if they are due --> rings once more --> Control --> End
//! ```
//!
//! A packet in a ring is lent in place, until the next event. A link that loses its rings meanwhile takes back its
//! packet ([`Round::forget_lent`]).
//!
//! Owns: the position among the active links, the lent packet.

use super::layout::BODY_MAX;
use super::link::{Entry, State};
use super::pieces::STREAMED_MAX;
use super::receive::{ReadOutcome, Violation};
use super::ring::{Corrupt, Packet, SharedBody};
use super::{
    ACTIVE_KEPT, CONTROL_EVERY, CONTROL_EVERY_EMPTY, IDLE_AFTER, LARGE, LISTEN_EVERY,
    LISTEN_EVERY_EMPTY, LocalPort, STREAM, ring_doorbell,
};
use mx_port_base::incoming::{BadPiece, Incoming};
use mx_proto::port::{HEADER_LEN, HeaderBytes, Place, body_len};
use mx_proto::round::{Next, PortEvent};
use mx_proto::{Instant, LinkId, Memory, Source};

/// Position within a round, and the lent packet.
#[derive(Debug)]
pub(super) struct Round {
    now: Instant,
    /// Number of the poll.
    number: u32,
    budget: usize,
    /// Packets that may still be taken from rings.
    left: usize,
    /// Active links still to visit.
    links: usize,
    /// Link being visited, and the number of packets that it may still give.
    link: Option<LinkId>,
    quota: usize,
    /// True if that link needs attention for something outside its ring.
    odd: bool,
    /// True if links are also checked for conditions outside their rings.
    all: bool,
    pub(super) any: bool,
    then: Then,
    current: Current,
    /// Lent body of [`Current::Ring`].
    pub(super) body: SharedBody,
    /// Message whose body [`Current::Owned`] lends.
    pub(super) message: Vec<u8>,
    /// True if the lent bytes have been handed out as a part.
    part: bool,
}

/// Step after all active links have been visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    Elsewhere,
    Control,
    End,
}

/// Lent packet or piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Current {
    Nothing,
    /// A packet in the ring of this link.
    Ring(LinkId),
    /// A message of this many bytes, from the socket of this link.
    Owned(LinkId, u32),
}

/// Borrowed bytes of a packet's body, or of a piece of one: in the ring, where the peer can change them at any time, or
/// in the port's memory, if they came over the socket. Valid until the next event.
#[derive(Debug)]
pub enum Lent<'a> {
    /// Bytes that the peer can still change.
    Shared(&'a SharedBody),
    /// Bytes in memory of the port.
    Bytes(&'a [u8]),
}

impl Source for Lent<'_> {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Shared(body) => body.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    #[inline(always)]
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        match self {
            Self::Shared(body) => body.copy_to(at, into),
            Self::Bytes(bytes) => Source::copy_to(*bytes, at, into),
        }
    }
}

impl Round {
    /// Creates an ended round.
    pub(super) fn new() -> Self {
        Self {
            now: Instant(0),
            number: 0,
            budget: 0,
            left: 0,
            links: 0,
            link: None,
            quota: 0,
            odd: false,
            all: false,
            any: false,
            then: Then::End,
            current: Current::Nothing,
            body: SharedBody::NONE,
            message: Vec::new(),
            part: false,
        }
    }

    /// Ends the lending of a packet in the rings of a link, which are to be freed.
    pub(super) fn forget_lent(&mut self, id: LinkId) {
        if self.current == Current::Ring(id) {
            (self.current, self.body, self.part) = (Current::Nothing, SharedBody::NONE, false);
        }
    }

    /// Begins the visit of a link; `active`: number of active links.
    #[inline(always)]
    fn begin_turn(&mut self, id: LinkId, active: usize) {
        self.link = Some(id);
        self.quota = match active {
            1 => self.left,
            _ => (self.budget / 4).clamp(1, self.left),
        };
    }

    /// Counts a packet or piece that is taken from a ring.
    #[inline(always)]
    fn count(&mut self) {
        (self.left, self.quota) = (self.left - 1, self.quota - 1);
        self.any = true;
    }

    /// Returns the lent bytes.
    #[inline(always)]
    fn lent(&self) -> Lent<'_> {
        match self.current {
            Current::Ring(_) => Lent::Shared(&self.body),
            Current::Owned(_, len) => {
                let body = self.message.get(HEADER_LEN..len as usize);
                Lent::Bytes(body.unwrap_or(&[]))
            }
            Current::Nothing => Lent::Bytes(&[]),
        }
    }
}

impl LocalPort {
    /// Begins a polling round over the rings of recently active links only, which yields at most `budget` packets in
    /// total. Returns false, without a round to end, if none of these links has a packet. Idle links need
    /// [`LocalPort::begin_round`].
    #[inline(always)]
    pub fn begin_active(&mut self, budget: usize) -> bool {
        self.round.any = false;
        let (mut at, mut links) = (self.turn, self.active.len());
        while links > 0 {
            links -= 1;
            at = if at + 1 < self.active.len() {
                at + 1
            } else {
                0
            };
            let Some(id) = self.active.get(at).copied() else {
                return false;
            };
            let link = self.links.get_mut(id).and_then(Entry::up);
            if link.is_some_and(|link| link.consumer.is_ready()) {
                self.begin_rings(budget.max(1), false, Then::End);
                (self.turn, self.round.links) = (at, links);
                self.round.begin_turn(id, self.active.len());
                return true;
            }
        }
        false
    }

    /// Begins a round over all links. `number`: number of this poll, which decides when system calls are due; with 0
    /// all are.
    pub fn begin_round(&mut self, number: u32, now: Instant, budget: usize) {
        self.begin_rings(budget.max(1), true, Then::Elsewhere);
        (self.round.now, self.round.number) = (now, number);
        self.round.any = self.control_wanted && self.poll_control(now);
    }

    #[inline(always)]
    fn begin_rings(&mut self, budget: usize, all: bool, then: Then) {
        self.round.budget = budget;
        (self.round.left, self.round.links) = (budget, self.active.len());
        (self.round.all, self.round.then) = (all, then);
    }

    /// Returns the next event; see [`mx_proto::round::Rounds::next`].
    #[inline(never)]
    pub fn next_event(&mut self) -> Next {
        loop {
            let queued = !self.queue.is_empty();
            let event = match self.round.link {
                _ if self.round.current != Current::Nothing => self.give_back(),
                _ if queued => self.next_queued(),
                Some(id) => self.next_in_ring(id),
                None if self.round.links > 0 && self.round.left > 0 => {
                    self.next_turn();
                    None
                }
                None if self.round.then == Then::End => {
                    let any = self.round.any;
                    return Next::End { any };
                }
                None => {
                    self.go_on();
                    None
                }
            };
            if let Some(event) = event {
                return Next::Event(event);
            }
        }
    }

    /// Offers the whole packets in the rings of active links that need no other attention; see
    /// [`mx_proto::round::Rounds::take_packets`].
    #[inline(always)]
    pub fn take_packets(
        &mut self,
        mut take: impl FnMut(LinkId, &HeaderBytes, &dyn Source) -> bool,
    ) -> Option<bool> {
        match self.round.current {
            Current::Nothing => {}
            Current::Ring(id) if !self.round.part => self.release(id),
            Current::Ring(_) | Current::Owned(..) => return None,
        }
        while self.queue.is_empty() {
            let Some(id) = self.round.link else {
                if self.round.links > 0 && self.round.left > 0 {
                    self.next_turn();
                    continue;
                }
                return (self.round.then == Then::End).then_some(self.round.any);
            };
            let entry = self.links.get_mut(id)?;
            let odd = entry.is_odd() | entry.incoming.is_some();
            let State::Up(link) = &mut entry.state else {
                return None;
            };
            if odd {
                return None;
            }
            while self.round.quota > 0
                && let Some(Packet { header, body }) = link.consumer.peek().ok()?
            {
                let whole = body_len(&header) == body.len() && body.len() < LARGE;
                if !whole || !take(id, &header, &body) {
                    return None;
                }
                link.idle = 0;
                self.round.count();
                if link.consumer.release(&body) {
                    ring_doorbell(&entry.socket);
                }
            }
            if link.consumer.finish() {
                ring_doorbell(&entry.socket);
            }
            self.leave(id);
        }
        None
    }

    /// Visits the next link with a packet in its ring, or stops at one that needs attention.
    #[inline(never)]
    fn next_turn(&mut self) {
        while self.queue.is_empty()
            && let Some(id) = self.next_link()
        {
            let link = self.links.get_mut(id).and_then(Entry::up);
            match link.map(|link| link.consumer.is_ready()) {
                Some(true) => return self.round.begin_turn(id, self.active.len()),
                Some(false) if self.round.all => self.note_idle(id),
                Some(false) | None => {}
            }
        }
    }

    /// Releases the lent packet or piece. Returns the event that follows the last piece of a packet.
    fn give_back(&mut self) -> Option<PortEvent> {
        let id = match self.round.current {
            Current::Nothing => return None,
            Current::Ring(id) => {
                self.release(id);
                id
            }
            Current::Owned(id, _) => {
                self.round.current = Current::Nothing;
                id
            }
        };
        if self.round.part {
            return self.end_piece(id);
        }
        None
    }

    /// Returns the lent bytes.
    #[inline(always)]
    pub fn lent(&self) -> Lent<'_> {
        self.round.lent()
    }

    /// Releases the lent packet to its ring.
    fn release(&mut self, id: LinkId) {
        self.round.current = Current::Nothing;
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let State::Up(link) = &mut entry.state else {
            return;
        };
        if link.consumer.release(&self.round.body) || link.consumer.finish() {
            ring_doorbell(&entry.socket);
        }
        self.round.odd |= entry.blocked | entry.socket.is_none();
        if self.round.body.len() >= LARGE && link.chunks < STREAM {
            link.chunks += 1;
            self.round.odd |= link.chunks == STREAM;
        }
        if self.round.quota == 0 {
            self.leave(id);
        }
    }

    /// Ends the visit of a link.
    #[inline(always)]
    fn leave(&mut self, id: LinkId) {
        self.round.link = None;
        if std::mem::take(&mut self.round.odd) {
            self.visit_oddity(id);
        }
    }

    /// Counts a visit that found the link's ring empty, in a round over all links.
    #[cold]
    fn note_idle(&mut self, id: LinkId) {
        let many = self.active.len() > ACTIVE_KEPT;
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let odd = entry.is_odd();
        if let State::Up(link) = &mut entry.state {
            link.idle = link.idle.saturating_add(1);
            // Checking for space transfers the peer's cache line: not done on a busy link.
            let cooling = link.idle >= IDLE_AFTER && many;
            if cooling || odd {
                self.visit_oddity(id);
            }
        }
    }

    /// Lends the next packet in the ring of a link, or piece of one. `None`: there is none, or it is dropped.
    fn next_in_ring(&mut self, id: LinkId) -> Option<PortEvent> {
        let link = self.links.get_mut(id).and_then(Entry::up);
        let packet = match link.map(|link| link.consumer.peek()) {
            Some(Ok(Some(packet))) => packet,
            Some(Err(Corrupt)) => {
                self.leave_failed(id);
                return None;
            }
            Some(Ok(None)) | None => {
                self.leave(id);
                return None;
            }
        };
        self.round.count();
        self.round.body = packet.body;
        match self.lend(id, Current::Ring(id), &packet.header) {
            Ok(ReadOutcome::Event(event)) => Some(event),
            Ok(_) => None,
            // The piece stays in the ring.
            Err(Violation) => {
                self.leave_failed(id);
                None
            }
        }
    }

    /// Returns the active link to visit next.
    fn next_link(&mut self) -> Option<LinkId> {
        if self.round.links == 0 || self.round.left == 0 {
            return None;
        }
        self.round.links -= 1;
        let active = self.active.len();
        let next = self.turn + 1;
        self.turn = if next < active { next } else { 0 };
        self.active.get(self.turn).copied()
    }

    #[cold]
    fn leave_failed(&mut self, id: LinkId) {
        self.fail(id);
        self.leave(id);
    }

    /// Accepts the lent piece of a packet; strangers may send none. `None`: the piece is dropped.
    #[cold]
    #[inline(never)]
    fn take_piece(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        len: usize,
    ) -> Result<Option<PortEvent>, BadPiece> {
        let entry = self.links.get_mut(id).ok_or(BadPiece)?;
        let header = entry.incoming.is_none().then_some(header);
        if entry.stranger || header.is_some_and(|header| body_len(header) <= BODY_MAX) {
            return Err(BadPiece);
        }
        let event = Incoming::take_piece(&mut entry.incoming, id, header, len, STREAMED_MAX)?;
        self.round.part = event.is_some();
        Ok(event)
    }

    /// Copies the lent piece to its packet's body.
    pub fn read_piece<M: Memory>(&mut self, place: Place<'_, M>) {
        let (Current::Ring(id) | Current::Owned(id, _)) = self.round.current else {
            return;
        };
        if let Some(incoming) = self
            .links
            .get_mut(id)
            .and_then(|entry| entry.incoming.as_mut())
        {
            incoming.read_piece(place, &self.round.lent());
        }
    }

    /// Ends the handling of a piece. Returns the event that follows the last one of a packet.
    #[cold]
    #[inline(never)]
    fn end_piece(&mut self, id: LinkId) -> Option<PortEvent> {
        self.round.part = false;
        Incoming::end_piece(&mut self.links.get_mut(id)?.incoming, id)
    }

    /// Lends a packet, or a piece of one, of a link. An unwanted piece is released at once.
    pub(super) fn lend(
        &mut self,
        id: LinkId,
        current: Current,
        header: &HeaderBytes,
    ) -> Result<ReadOutcome, Violation> {
        self.round.current = current;
        let (len, entry) = (self.lent().len(), self.links.get_mut(id).ok_or(Violation)?);
        entry.known = true;
        if let State::Up(link) = &mut entry.state {
            link.idle = 0;
        }
        if entry.incoming.is_none() && body_len(header) == len {
            let header = *header;
            return Ok(ReadOutcome::Event(PortEvent::Packet { link: id, header }));
        }
        match self.take_piece(id, header, len) {
            Ok(Some(event)) => Ok(ReadOutcome::Event(event)),
            Ok(None) => {
                self.give_back();
                Ok(ReadOutcome::More)
            }
            Err(BadPiece) => {
                self.round.current = Current::Nothing;
                Err(Violation)
            }
        }
    }

    /// Takes the step after all active links have been visited. Returns false if nothing is left.
    fn go_on(&mut self) -> bool {
        match std::mem::replace(&mut self.round.then, Then::End) {
            Then::Elsewhere => self.look_elsewhere(),
            Then::Control => {
                let now = self.round.now;
                self.round.any |= self.poll_control(now);
                !self.queue.is_empty()
            }
            Then::End => false,
        }
    }

    /// Makes the system calls that are due.
    fn look_elsewhere(&mut self) -> bool {
        let (any, number) = (self.round.any, self.round.number);
        let control_every = if any {
            CONTROL_EVERY
        } else {
            CONTROL_EVERY_EMPTY
        };
        if number % control_every == 0 || (self.slept && !any) {
            // Doorbells of active links, too: a peer may suspend one of them.
            self.slept = false;
            self.round.then = Then::Control;
            if self.take_doorbells() {
                self.begin_rings(self.round.budget, true, Then::Control);
            }
            return true;
        }
        let listen_every = if any {
            LISTEN_EVERY
        } else {
            LISTEN_EVERY_EMPTY
        };
        let told = std::mem::take(&mut self.told);
        let all_active = self.active.len() == self.links.len();
        if all_active || told || number % listen_every != 0 || !self.take_doorbells() {
            return false;
        }
        self.round.any = true;
        self.begin_rings(self.round.budget, false, Then::End);
        true
    }
}
