//! The port between processes of one host: shared memory.
//!
//! ```text
//!   process A                                                process B
//!   LocalPort                                                LocalPort
//!     |  producer ==> [ cells | data ]  ring 0   ==> consumer  |
//!     |  consumer <== [ cells | data ]  ring 1   <== producer  |
//!     `------ Unix socket: handshake, wake-ups, hang-up -------'
//! ```
//!
//! Packets go through memory that both processes have mapped; nothing enters the kernel
//! while both sides poll. The Unix socket beside it brings the memory over, wakes a side that
//! sleeps, and hangs up when the other side is gone.
//!
//! A few links that were active lately are *hot*: every poll looks at them. The others are *cold*:
//! they stay prepared for sleeping, so that their next packet rings the bell, and polls look at the
//! bells of all of them together now and then. So neither a poll nor going to sleep costs more with
//! a thousand idle clients.
//!
//! Owns: the listening name of one endpoint, and all its links.
//! Knows nothing of: partners, packets' contents, other ports.

mod barrier;
mod control;
mod epoll;
mod handshake;
mod layout;
mod link;
mod ring;
mod socket;
mod table;
#[cfg(test)]
mod tests;

use epoll::{Epoll, Interest};
use layout::BODY_MAX;
use link::{Entry, State};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkDown, Port, SendError, Sent, Sink,
    WakeDescriptors,
};
use mx_proto::{Clock, Instant, LinkId, Memory, Source, Target};
use ring::PushError;
use smallvec::SmallVec;
use socket::{Name, Socket};
use std::io;
use table::Table;

/// Carries packets between processes of this host.
#[derive(Debug)]
pub struct LocalPort {
    name: Name,
    listener: Socket,
    /// Listener, handshakes, hang-ups.
    control: Epoll,
    /// Wake-ups.
    data: Epoll,
    links: Table<Entry>,
    /// The links that every poll looks at; see the module's description.
    hot: Vec<LinkId>,
    /// Where in `hot` the next poll begins.
    turn: usize,
    /// How many links are up and not in `hot`.
    cold: usize,
    /// What polls have cost since the bells of cold links were looked at, in links looked at.
    unheard: usize,
    /// Handshakes that have a time limit or are to be tried again. May contain stale names.
    timed: Vec<LinkId>,
    /// When accepting is tried again after descriptors ran out.
    accept_again: Option<Instant>,
    /// Polls in a row that found nothing.
    empty_polls: u32,
    /// Polls since the control descriptors were looked at.
    polls: u32,
    /// The next poll looks at the control descriptors first.
    control_wanted: bool,
    /// The first poll that finds nothing looks at all descriptors: we have slept.
    slept: bool,
    armed: bool,
    /// The process that opened the port.
    owner: u32,
    stats: LocalStats,
}

/// Numbers about a port's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalStats {
    /// Links that others started and that came up.
    pub accepted: u64,
    /// Links that this side started and that came up.
    pub initiated: u64,
    /// Connections dropped before they were links: nonsense, silence, or no slot left.
    pub refused: u64,
    /// Links cut off because of what the peer wrote into the shared memory.
    pub violations: u64,
}

impl LocalPort {
    /// Opens endpoint `endpoint` of board `board`. `AddrInUse` when it is open already, in this
    /// process or another one of this host.
    pub fn open(port_base: u16, board: u32, endpoint: u32) -> io::Result<Self> {
        Self::with_max_links(port_base, board, endpoint, DEFAULT_MAX_LINKS)
    }

    /// [`LocalPort::open`] with a limit on the number of links, handshakes included. A further
    /// peer is refused.
    pub fn with_max_links(
        port_base: u16,
        board: u32,
        endpoint: u32,
        max_links: usize,
    ) -> io::Result<Self> {
        let name = Name {
            port_base,
            board,
            endpoint,
        };
        let listener = Socket::listen(name)?;
        let control = Epoll::new()?;
        control.add(listener.raw(), control::LISTENER, Interest::Readable)?;
        // Now rather than with the first link: it can take a while.
        barrier::is_asymmetric();
        Ok(Self {
            name,
            listener,
            control,
            data: Epoll::new()?,
            links: Table::new(max_links),
            hot: Vec::new(),
            turn: 0,
            cold: 0,
            unheard: 0,
            timed: Vec::new(),
            accept_again: None,
            empty_polls: 0,
            polls: 0,
            control_wanted: false,
            slept: false,
            armed: false,
            owner: std::process::id(),
            stats: LocalStats::default(),
        })
    }

    /// Starts a link to an endpoint of any board of this host. [`Port::connect`] takes our own
    /// board. [`ConnectError::Refused`] when nobody listens there, as far as this network
    /// namespace can see.
    pub fn connect_to(
        &mut self,
        board: u32,
        endpoint: u32,
        clock: &dyn Clock,
    ) -> Result<LinkId, ConnectError> {
        self.start_connect(board, endpoint, clock)
    }

    /// Makes the next poll look at the control descriptor; for whoever slept on it.
    pub fn note_control(&mut self) {
        self.control_wanted = true;
    }

    /// Numbers about the port's life.
    pub fn stats(&self) -> LocalStats {
        self.stats
    }

    /// Links and handshakes there are now.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// [`Port::limits`].
    pub fn limits(&self) -> Limits {
        Limits {
            packet_max: BODY_MAX,
            data_max: DATA_MAX,
            pull_block: usize::MAX,
            remote_read: false,
        }
    }

    /// [`Port::bind`].
    pub fn bind(&mut self, link: LinkId, cookie: u64) {
        if let Some(entry) = self.links.get_mut(link) {
            entry.cookie = cookie;
        }
    }

    /// [`Port::send`].
    #[inline]
    pub fn send<M: Memory>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let Some(entry) = self.links.get_mut(link) else {
            return Err(SendError::Down);
        };
        let State::Up(up) = &mut entry.state else {
            entry.blocked = true;
            return Err(SendError::WouldBlock);
        };
        match up.producer.push(header, body) {
            Ok(false) if up.hot && entry.socket.is_some() => Ok(Sent::Whole),
            outcome => self.after_push(link, outcome),
        }
    }

    /// [`Port::poll`].
    #[inline]
    pub fn poll<M: Memory, S: Sink<M>>(
        &mut self,
        clock: &dyn Clock,
        budget: usize,
        sink: &mut S,
    ) -> bool {
        let mut any = false;
        if self.control_wanted {
            any = self.poll_control(clock, sink);
        }
        any |= self.poll_rings(budget.max(1), sink);
        self.polls = self.polls.wrapping_add(1);
        if any {
            self.empty_polls = 0;
            if self.polls < CONTROL_EVERY {
                return true;
            }
        } else {
            self.empty_polls += 1;
            if self.empty_polls < CONTROL_EVERY_EMPTY && !self.slept {
                return false;
            }
        }
        any | self.poll_descriptors(clock, budget.max(1), sink)
    }

    /// [`Port::close`].
    pub fn close(&mut self, link: LinkId, how: Close) {
        let Some(mut entry) = self.remove(link) else {
            return;
        };
        if how == Close::Flush
            && let Some(up) = entry.up()
        {
            up.producer.close();
        }
        if let Some(socket) = &entry.socket {
            socket.shut_down();
        }
    }

    /// [`Port::deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        let times = self
            .timed
            .iter()
            .filter_map(|id| match &self.links.get(*id)?.state {
                State::Accepted { deadline } => Some(*deadline),
                State::Dialing(dialing) => Some(dialing.next_try),
                _ => None,
            });
        times.chain(self.accept_again).min()
    }

    /// [`Port::arm`].
    pub fn arm(&mut self) -> bool {
        if self.control_wanted {
            return false;
        }
        self.take_bells();
        self.set_hot_asleep(true);
        barrier::heavy();
        for at in 0..self.hot.len() {
            if self
                .links
                .get_mut(self.hot[at])
                .is_some_and(Entry::wants_poll)
            {
                self.set_hot_asleep(false);
                return false;
            }
        }
        self.armed = true;
        true
    }

    /// [`Port::disarm`].
    pub fn disarm(&mut self) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        self.slept = true;
        // Links beyond the few that are cheap to look at stay prepared for sleeping.
        let mut kept = 0;
        let mut at = 0;
        while let Some(id) = self.hot.get(at).copied() {
            let Some(entry) = self.links.get_mut(id) else {
                self.hot.swap_remove(at);
                continue;
            };
            // One that has rung meanwhile will not ring again until it is prepared anew.
            if kept < HOT_KEPT || entry.blocked || !entry.is_asleep() {
                kept += 1;
                at += 1;
                entry.set_asleep(false);
            } else {
                self.hot.swap_remove(at);
                if let Some(link) = entry.up() {
                    link.hot = false;
                    self.cold += 1;
                }
            }
        }
    }

    /// [`Port::descriptors`].
    pub fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: Some(self.control.raw()),
            data: Some(self.data.raw()),
        }
    }

    #[inline]
    fn poll_rings<M: Memory, S: Sink<M>>(&mut self, budget: usize, sink: &mut S) -> bool {
        let mut any = self.poll_hot(budget, sink);
        if self.cold != 0 {
            // A busy poll counts less: what it found is worth more than what may be elsewhere.
            self.unheard += if any { 1 } else { HOT_KEPT + self.hot.len() };
            if self.unheard >= LISTEN_EVERY {
                self.unheard = 0;
                if self.take_bells() {
                    any = true;
                    self.poll_hot(budget, sink);
                }
            }
        }
        any
    }

    #[inline]
    fn poll_hot<M: Memory, S: Sink<M>>(&mut self, budget: usize, sink: &mut S) -> bool {
        let mut any = false;
        match self.hot.len() {
            0 => {}
            1 => any = self.visit(self.hot[0], budget, sink) != 0,
            n => {
                let quota = (budget / 4).max(1);
                let mut left = budget;
                let mut at = self.turn;
                for _ in 0..n {
                    at = if at + 1 < self.hot.len() { at + 1 } else { 0 };
                    let Some(id) = self.hot.get(at).copied() else {
                        break;
                    };
                    let taken = self.visit(id, quota.min(left), sink);
                    any |= taken != 0;
                    left = left.saturating_sub(taken);
                    if left == 0 {
                        break;
                    }
                }
                self.turn = at;
            }
        }
        any
    }

    /// Takes up to `quota` packets from one link. Returns how many things happened.
    #[inline]
    fn visit<M: Memory, S: Sink<M>>(&mut self, id: LinkId, quota: usize, sink: &mut S) -> usize {
        let Some(entry) = self.links.get_mut(id) else {
            return 0;
        };
        let State::Up(link) = &mut entry.state else {
            return 0;
        };
        let mut taken = 0;
        while taken < quota {
            match link.consumer.peek() {
                Ok(Some(packet)) => {
                    entry.known = true;
                    sink.on_packet(id, entry.cookie, &packet.header, &packet.body);
                    if link.consumer.release(packet.body.len()) {
                        ring_bell(&entry.socket);
                    }
                    taken += 1;
                }
                Ok(None) => break,
                Err(ring::Corrupt) => {
                    link.failed = true;
                    break;
                }
            }
        }
        if taken != 0 {
            link.idle = 0;
        } else {
            link.idle = link.idle.saturating_add(1);
        }
        if entry.blocked
            || link.failed
            || entry.socket.is_none()
            || (link.idle >= COOL_AFTER && self.hot.len() > HOT_KEPT)
        {
            taken += self.visit_oddity(id, sink);
        }
        taken
    }

    /// What is not an everyday matter in a visit: room again, the end, cooling down.
    #[cold]
    #[inline(never)]
    fn visit_oddity<M: Memory, S: Sink<M>>(&mut self, id: LinkId, sink: &mut S) -> usize {
        let Some(entry) = self.links.get_mut(id) else {
            return 0;
        };
        let (cookie, blocked) = (entry.cookie, entry.blocked);
        let Some(link) = entry.up() else { return 0 };
        let room = if blocked {
            link.producer.has_room()
        } else {
            Ok(false)
        };
        link.failed |= room.is_err();
        let cooling = link.idle >= COOL_AFTER && !blocked;
        if let Some(reason) = entry.verdict() {
            self.end(id, reason, sink);
            return 1;
        }
        if room == Ok(true) && entry.socket.is_some() {
            entry.blocked = false;
            sink.on_writable(id, cookie);
            return 1;
        }
        if cooling && self.hot.len() > HOT_KEPT {
            self.cool(COOL_AFTER);
        }
        0
    }

    /// Makes a cold link hot: it is looked at in every poll and need not ring.
    fn warm(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id).and_then(Entry::up) else {
            return;
        };
        link.idle = 0;
        if !link.hot {
            link.hot = true;
            // While we sleep it goes on ringing.
            if !self.armed {
                link.consumer.set_sleeping(false);
            }
            self.cold -= 1;
            self.make_hot(id);
        }
    }

    /// Puts a link among the hot ones; when there are too many, the idlest cool down.
    fn make_hot(&mut self, id: LinkId) {
        if self.hot.len() >= HOT_MAX {
            self.cool(0);
        }
        self.hot.push(id);
    }

    /// Makes hot links cold that have been idle for `idle` polls, the idlest first, until there are
    /// only as many left as stay hot anyway. Links with something to do stay hot.
    fn cool(&mut self, idle: u32) {
        let mut idlest: SmallVec<[(u32, LinkId); HOT_MAX]> = SmallVec::new();
        for id in &self.hot {
            if let Some(Entry {
                blocked: false,
                state: State::Up(link),
                ..
            }) = self.links.get(*id)
                && link.idle >= idle
            {
                idlest.push((link.idle, *id));
            }
        }
        idlest.sort_unstable_by_key(|(idle, _)| std::cmp::Reverse(*idle));
        idlest.truncate(self.hot.len().saturating_sub(HOT_KEPT));
        for (_, id) in &idlest {
            if let Some(entry) = self.links.get_mut(*id) {
                entry.set_asleep(true);
            }
        }
        // One for all of them: it is the dear part.
        barrier::heavy();
        for (_, id) in idlest {
            let Some(entry) = self.links.get_mut(id) else {
                continue;
            };
            if entry.wants_poll() {
                entry.set_asleep(self.armed);
            } else if let Some(link) = entry.up() {
                link.hot = false;
                self.cold += 1;
            }
        }
        let links = &self.links;
        self.hot.retain(|id| {
            links
                .get(*id)
                .is_some_and(|entry| matches!(&entry.state, State::Up(link) if link.hot))
        });
    }

    /// The rare ends of a `send`.
    #[cold]
    #[inline(never)]
    fn after_push(
        &mut self,
        id: LinkId,
        outcome: Result<bool, PushError>,
    ) -> Result<Sent, SendError> {
        // An answer is to be expected, or room.
        self.warm(id);
        let Some(entry) = self.links.get_mut(id) else {
            return Err(SendError::Down);
        };
        let State::Up(link) = &mut entry.state else {
            return Err(SendError::Down);
        };
        if entry.socket.is_none() || link.failed {
            return Err(SendError::Down);
        }
        match outcome {
            Ok(asleep) => {
                if asleep {
                    ring_bell(&entry.socket);
                }
                Ok(Sent::Whole)
            }
            Err(PushError::Full) => {
                entry.blocked = true;
                Err(SendError::WouldBlock)
            }
            Err(PushError::TooLong) => {
                debug_assert!(false, "body longer than the port's limits");
                link.failed = true;
                Err(SendError::Down)
            }
            Err(PushError::Corrupt) => {
                link.failed = true;
                Err(SendError::Down)
            }
        }
    }

    fn set_hot_asleep(&mut self, asleep: bool) {
        for id in &self.hot {
            if let Some(entry) = self.links.get_mut(*id) {
                entry.set_asleep(asleep);
            }
        }
    }

    /// Forgets a link and tells the endpoint, if it knows of it.
    fn end<M: Memory, S: Sink<M>>(&mut self, id: LinkId, reason: LinkDown, sink: &mut S) {
        if let Some(entry) = self.remove(id) {
            if let Some(socket) = &entry.socket {
                socket.shut_down();
            }
            if reason == LinkDown::Protocol {
                self.stats.violations += 1;
            }
            log::debug!("{:?}: {id:?} down: {reason}", self.name);
            if entry.known {
                sink.on_down(id, entry.cookie, reason);
            }
        }
    }

    /// Takes a link out of everything.
    fn remove(&mut self, id: LinkId) -> Option<Entry> {
        let entry = self.links.remove(id)?;
        if let Some(socket) = &entry.socket {
            self.control.remove(socket.raw());
            self.data.remove(socket.raw());
        }
        self.hot.retain(|other| *other != id);
        if let State::Up(link) = &entry.state
            && !link.hot
        {
            self.cold -= 1;
        }
        self.timed.retain(|other| *other != id);
        Some(entry)
    }
}

/// Peers learn that this was on purpose. In a forked child nothing happens: the links are the
/// parent's.
impl Drop for LocalPort {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        for entry in self.links.values() {
            if let State::Up(link) = &entry.state {
                link.producer.close();
            }
            if let Some(socket) = &entry.socket {
                socket.shut_down();
            }
        }
    }
}

impl<M: Memory> Port<M> for LocalPort {
    fn limits(&self, _link: LinkId) -> Limits {
        self.limits()
    }

    fn connect(&mut self, target: Target, clock: &dyn Clock) -> Result<LinkId, ConnectError> {
        self.connect_to(self.name.board, target.endpoint.0, clock)
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        self.bind(link, cookie);
    }

    #[inline]
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        self.send(link, header, &body)
    }

    /// Never called: this port takes packets whole.
    fn resume(&mut self, _: LinkId, _: &M, _: usize, _: usize) -> Result<Sent, SendError> {
        Err(SendError::Down)
    }

    /// Never called: this port takes packets whole.
    fn detach(&mut self, _link: LinkId, _memory: &M, _offset: usize, _len: usize) {}

    #[inline]
    fn poll<S: Sink<M>>(&mut self, clock: &dyn Clock, budget: usize, sink: &mut S) -> bool {
        self.poll(clock, budget, sink)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.close(link, how);
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn arm(&mut self) -> bool {
        self.arm()
    }

    fn disarm(&mut self) {
        self.disarm();
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.descriptors()
    }
}

/// Wakes the peer.
#[cold]
fn ring_bell(socket: &Option<Socket>) {
    if let Some(socket) = socket {
        socket.ring();
    }
}

/// Largest body of a data packet: one chunk of a large message. Smaller ones cost more per byte,
/// larger ones keep the receiver waiting longer for the first.
const DATA_MAX: usize = 32 * 1024;

/// Links of an endpoint unless it says otherwise.
const DEFAULT_MAX_LINKS: usize = 16 * 1024;

/// The control descriptors are looked at after this many polls in a row that found nothing ...
const CONTROL_EVERY_EMPTY: u32 = 256;

/// ... and after this many in all, so that a port that is always busy still accepts.
const CONTROL_EVERY: u32 = 1 << 16;

/// This many links stay hot, however long they have been idle.
const HOT_KEPT: usize = 16;

/// Beyond those, a link cools down after this many polls without a packet.
const COOL_AFTER: u32 = 2048;

/// With this many hot links, a further one makes the idlest of them cool down.
const HOT_MAX: usize = 32;

/// The bells of cold links are looked at (one system call for all) after polls have looked at about
/// this many hot links in vain: often enough to answer a client within microseconds, seldom enough
/// to cost a fraction of those polls.
const LISTEN_EVERY: usize = 512;
