//! Port between processes of one machine: shared memory.
//!
//! ```text
//!   process A                                                process B
//!   LocalPort                                                LocalPort
//!     |  producer ==> [ cells | data ]  ring 0   ==> consumer  |
//!     |  consumer <== [ cells | data ]  ring 1   <== producer  |
//!     `------ Unix socket: handshake, wake-ups, hang-up -------'
//! ```
//!
//! Packets go through memory that both processes have mapped; nothing enters the kernel while both sides poll. The Unix
//! socket passes the memory over, wakes a sleeping side, and hangs up when a side ends.
//!
//! A few recently used links are *active*: every poll looks at them. The others are *idle*: they stay prepared for
//! sleeping, so that their next packet rings the doorbell, and all doorbells together are polled from time to time. A
//! thousand idle clients therefore slow down neither a poll nor going to sleep.
//!
//! A link that is idle for long is *suspended*: both sides free its memory, and only the socket stays, which carries
//! packets until there is memory again (`receive`, `idle`).
//!
//! Owns: the listening name of one endpoint, and all its links.
//! Out of scope: remotes, packets' contents, other ports.

mod active;
mod barrier;
mod budget;
mod control;
mod copy;
mod handshake;
mod idle;
mod layout;
mod lifecycle;
mod link;
mod pieces;
mod queue;
mod receive;
mod ring;
mod round;
mod shared;
mod socket;
mod strangers;
#[cfg(test)]
mod tests;

use budget::Budget;
use layout::BODY_MAX;
use link::{Entry, State};
use mx_port_base::epoll::Epoll;
use mx_port_base::nest;
use mx_port_base::strangers::Strangers;
use mx_proto::log_limit::LogLimit;
use mx_proto::port::{
    ACCEPTED_WITHIN, Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, Place, Port,
    SendError, Sent, WakeDescriptors,
};
use mx_proto::round::{Next, Rounds};
use mx_proto::shares::Shares;
use mx_proto::table::Table;
use mx_proto::{Instant, LinkId, Memory, Source, Target};
use ring::PushError;
pub use ring::SharedBody;
pub use round::Lent;
use round::Round;
use socket::{Name, Socket};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Port that carries packets between processes of this machine.
#[derive(Debug)]
pub struct LocalPort {
    name: Name,
    listener: Socket,
    /// Epoll set of the listener, handshakes and hang-ups.
    control: Epoll,
    /// Epoll set of wake-ups.
    data: Epoll,
    links: Table<LinkId, Entry>,
    links_max: usize,
    /// Shares of the link table, by user.
    places: Shares,
    strangers: Strangers,
    /// Links that every poll looks at (see the module).
    active: Vec<LinkId>,
    /// Position in the current round, and the lent packet.
    round: Round,
    /// Index in `active` of the link polled last.
    turn: usize,
    /// Links that need attention beside their rings, each once. May contain stale ids.
    queue: VecDeque<LinkId>,
    /// Links that retry to connect to a full backlog. May contain other and stale ids.
    dialing: Vec<LinkId>,
    /// Shared memory of all links.
    budget: Budget,
    /// Links with rings, in any order, to be checked for idleness. May contain some without rings.
    awake: Vec<LinkId>,
    /// Time of their next check; `None` if none is scheduled.
    next_look: Option<Instant>,
    /// Buffer for a packet to be sent over a socket.
    scratch: Vec<u8>,
    /// Users with the endpoints that they claim without owning, or that have denied ours.
    denied: LogLimit<(u32, u32)>,
    /// Users with such claims.
    deniers: LogLimit<u32>,
    /// Kernel errors that keep us from connecting.
    barred: LogLimit<Option<i32>>,
    /// Users whose processes speak another version.
    other_versions: LogLimit<u32>,
    /// True once the administrator has been told that memory is short.
    warned: bool,
    /// True while the administrator has been told that descriptors are short.
    starved: bool,
    /// Time at which accepting is retried after descriptors ran out.
    accept_again: Option<Instant>,
    /// True if the next poll looks at the control descriptors first.
    control_wanted: bool,
    /// True after a sleep: the first poll that finds nothing looks at all descriptors.
    slept: bool,
    /// True if the kernel has just reported the doorbells, so the next poll need not check them.
    told: bool,
    armed: bool,
    /// Process that opened the port.
    owner: u32,
    stats: LocalStats,
}

mx_proto::counters! {
    /// Counters of a port.
    pub struct LocalStats("local_") {
        Count accepted: u64 = "links over shared memory begun by peers",
        Count initiated: u64 = "links over shared memory begun here",
        Count refused: u64 = "callers over shared memory dropped: nonsense, silence, or no place",
        Count denied: u64 = "callers over shared memory dropped because they claim an endpoint of \
            another user",
        Count violations: u64 = "links closed because of invalid contents of shared memory",
        Count over_share: u64 = "links rejected because their user had its share of shared memory",
        Count unbound: u64 = "links over shared memory that were not introduced in time",
        Count turned_away: u64 = "links for which there was no place, and memory for a link that was not taken",
        Count slept: u64 = "times an idle link gave its shared memory back",
        Level asleep: u64 = "links without shared memory, whose messages go over their sockets",
        Level bytes: u64 = "bytes of shared memory mapped",
    }
}

/// Options of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalOptions {
    /// Maximum number of links, handshakes included. Further peers are rejected.
    pub max_links: usize,
    /// Maximum bytes of shared memory of all links together, counted by the size of the mappings.
    pub bytes: usize,
    /// Maximum share of a user in links and in memory, in percent (1 to 100) of what all other users leave free. Does
    /// not apply to root and our user.
    pub share: u8,
    /// Idle time after which a link is suspended, which frees its memory; shortened once more than half of `bytes` is
    /// in use. `None`: never.
    pub idle: Option<Duration>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            max_links: 16 * 1024,
            bytes: 256 << 20,
            share: 50,
            idle: Some(Duration::from_secs(30)),
        }
    }
}

impl LocalPort {
    /// Opens a port for endpoint `endpoint` of board `board`, with default options, and listens. `port_base`
    /// (`MX_PORT_BASE`) is part of the name: ports with different bases do not find each other. Fails with `AddrInUse`
    /// if a process in this network namespace has the endpoint open.
    pub fn open(port_base: u16, board: u32, endpoint: u32) -> io::Result<Self> {
        Self::with_options(port_base, board, endpoint, LocalOptions::default())
    }

    /// Opens a port like [`LocalPort::open`], with these options.
    pub fn with_options(
        port_base: u16,
        board: u32,
        endpoint: u32,
        options: LocalOptions,
    ) -> io::Result<Self> {
        let name = Name {
            port_base,
            board,
            endpoint,
        };
        let listener = Socket::listen(name)?;
        let control = Epoll::new()?;
        control.add(&listener.raw(), control::LISTENER, control::HEARD)?;
        // Registers now rather than with the first link: it can take a while.
        barrier::is_asymmetric();
        Ok(Self {
            name,
            listener,
            control,
            data: Epoll::new()?,
            links: Table::default(),
            // Tokens from there on belong to other descriptors of the same sleeper.
            links_max: options.max_links.min(nest::FIRST_TOKEN as usize),
            places: Shares::new(strangers::places(options.max_links), options.share),
            strangers: Strangers::new(ACCEPTED_WITHIN),
            active: Vec::new(),
            round: Round::new(),
            turn: 0,
            queue: VecDeque::new(),
            dialing: Vec::new(),
            budget: Budget::new(options.bytes, options.share, options.idle),
            awake: Vec::new(),
            next_look: None,
            scratch: Vec::new(),
            denied: LogLimit::default(),
            deniers: LogLimit::default(),
            barred: LogLimit::default(),
            other_versions: LogLimit::default(),
            warned: false,
            starved: false,
            accept_again: None,
            control_wanted: false,
            slept: false,
            told: false,
            armed: false,
            owner: std::process::id(),
            stats: LocalStats::default(),
        })
    }

    /// Starts a link to an endpoint of any board of this machine; [`LinkControl::connect`] uses our board. Fails with
    /// [`ConnectError::Refused`] if no process listens there in this network namespace.
    pub fn connect_to(
        &mut self,
        board: u32,
        endpoint: u32,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        self.connect_or(board, endpoint, None, now)
    }

    /// Records that the thread that slept on the data descriptor has got all doorbells ([`LocalPort::note_doorbell`]);
    /// the next poll need not check them.
    pub fn note_told(&mut self) {
        (self.slept, self.told) = (false, true);
    }

    /// Returns the epoll instance behind the data descriptor, which is readable when a peer has rung. Its tokens are
    /// link ids; others may add descriptors with tokens that are not.
    pub fn data(&self) -> BorrowedFd<'_> {
        self.data.as_fd()
    }

    /// Returns the port's counters.
    pub fn stats(&self) -> LocalStats {
        LocalStats {
            bytes: self.budget.used() as u64,
            ..self.stats
        }
    }

    /// Sends a packet; see [`Port::send`].
    #[inline(always)]
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
            return self.send_plain(link, header, body);
        };
        match up.producer.push(header, body) {
            Ok(false) if up.active && entry.socket.is_some() => Ok(Sent::Whole),
            Err(PushError::TooLong) => self.send_long(link, header, body),
            Err(PushError::Full) if self.armed => {
                let outcome = entry.push_armed(header, body);
                self.after_push(link, body.len(), outcome)
            }
            outcome => self.after_push(link, body.len(), outcome),
        }
    }

    /// Returns true if there are active links (see the module), whose memory every poll looks at.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Returns whether [`LocalPort::begin_active`] finds all packets of all links: all are active, they are few, and
    /// none waits for room.
    pub fn is_calm(&self) -> bool {
        let blocked = |id: &LinkId| self.links.get(*id).is_none_or(|entry| entry.blocked);
        let few = self.active.len() == self.links.len() && self.active.len() <= ACTIVE_KEPT;
        few && !self.active.iter().any(blocked)
    }

    /// Returns true if there are active links, and nothing else is known to need attention.
    #[inline]
    pub fn is_active(&self) -> bool {
        !self.active.is_empty() && !self.control_wanted && !self.slept && self.queue.is_empty()
    }

    /// Handles the rare outcomes of a `send`.
    #[cold]
    #[inline(never)]
    fn after_push(
        &mut self,
        id: LinkId,
        len: usize,
        outcome: Result<bool, PushError>,
    ) -> Result<Sent, SendError> {
        // An answer or free space is expected soon.
        self.keep_active(id);
        let Some(entry) = self.links.get_mut(id) else {
            return Err(SendError::Down);
        };
        if entry.socket.is_none() {
            return Err(SendError::Down);
        }
        match outcome {
            Ok(asleep) => {
                if asleep {
                    ring_doorbell(&entry.socket);
                }
                Ok(Sent::Whole)
            }
            Err(PushError::Full) => {
                entry.blocked = true;
                if len >= LARGE {
                    self.grow(id);
                }
                Err(SendError::WouldBlock)
            }
            Err(PushError::TooLong | PushError::Corrupt) => {
                self.fail(id);
                Err(SendError::Down)
            }
        }
    }
}

/// Tells peers that the links are closed on purpose. Does nothing in a forked child: the links are the parent's.
impl Drop for LocalPort {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        for (_, entry) in self.links.iter() {
            entry.say_bye();
            if let Some(socket) = &entry.socket {
                socket.shut_down();
            }
        }
    }
}

impl LinkControl for LocalPort {
    fn limits(&self, _link: LinkId) -> Limits {
        Limits {
            packet_max: BODY_MAX,
            streamed_max: pieces::STREAMED_MAX,
            data_max: DATA_MAX,
            pull_block: usize::MAX,
            remote_read: false,
            refusal_ends_link: false,
            data_links: 0,
        }
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        self.connect_to(self.name.board, target.endpoint.0, now)
    }

    fn accept(&mut self, link: LinkId) {
        if let Some(entry) = self.links.get_mut(link)
            && std::mem::take(&mut entry.stranger)
        {
            let source = entry.source;
            self.unlist_stranger(source);
        }
    }

    fn has_room(&mut self, link: LinkId) -> bool {
        let Some(entry) = self.links.get_mut(link) else {
            return false;
        };
        let room = entry.up().map(|up| up.producer.has_room());
        entry.blocked &= room != Some(Ok(true));
        let free = !entry.blocked;
        free && self.send_rest(link)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        // A link that ends within a packet is not in order, so its peer gets no Bye.
        if how == Close::Flush
            && let Some(entry) = self.links.get(link)
            && !entry.midway
        {
            entry.say_bye();
        }
        self.remove(link);
    }

    fn deadline(&self) -> Option<Instant> {
        let times = self
            .dialing
            .iter()
            .filter_map(|id| match &self.links.get(*id)?.state {
                State::Dialing(dialing) => Some(dialing.next_try),
                _ => None,
            });
        times
            .chain(self.accept_again)
            .chain(self.next_look)
            .chain(self.strangers.deadline())
            .min()
    }

    fn arm(&mut self) -> bool {
        self.arm()
    }

    fn disarm(&mut self) {
        self.disarm();
    }

    fn link_count(&self) -> usize {
        self.links.len()
    }

    fn note_control(&mut self) {
        self.control_wanted = true;
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: Some(self.control.raw()),
            data: Some(self.data.raw()),
        }
    }
}

impl<M: Memory> Port<M> for LocalPort {
    #[inline]
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        self.send(link, header, &body)
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.send_pieces(link, None, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize) {
        self.keep_rest(link, memory, offset, len);
    }
}

impl<M: Memory> Rounds<M> for LocalPort {
    type Lent<'a> = Lent<'a>;

    fn begin(&mut self, now: Instant, budget: usize) {
        self.begin_round(0, now, budget);
    }

    fn next(&mut self) -> Next {
        self.next_event()
    }

    #[inline]
    fn take_packets(
        &mut self,
        take: impl FnMut(LinkId, &HeaderBytes, &dyn Source) -> bool,
    ) -> Option<bool> {
        self.take_packets(take)
    }

    fn body(&self) -> Lent<'_> {
        self.lent()
    }

    fn read(&mut self, place: Place<'_, M>) {
        self.read_piece(place);
    }

    fn skip(&mut self) {}
}

#[cold]
fn ring_doorbell(socket: &Option<Socket>) {
    if let Some(socket) = socket {
        socket.ring();
    }
}

/// Largest body of a data packet, in bytes: one chunk of a large message. Smaller ones cost more per byte, larger ones
/// delay the receiver's first copy.
const DATA_MAX: usize = 32 * 1024;

/// Minimum size in bytes of a body that counts as a chunk of a large message.
const LARGE: usize = DATA_MAX / 2;

/// Number of chunks, about a full data area, that make a stream.
const STREAM: u8 = 8;

/// Polls between looks at the control descriptors while polls find nothing ...
const CONTROL_EVERY_EMPTY: u32 = 256;

/// ... and in any case, so that a busy port still accepts connections.
const CONTROL_EVERY: u32 = 1 << 16;

/// Number of links that stay active, however long they are idle.
const ACTIVE_KEPT: usize = 16;

/// Number of polls of all links without a packet after which a link beyond those retires.
const IDLE_AFTER: u32 = 128;

/// Maximum number of active links; a further one makes the longest idle retire.
const ACTIVE_MAX: usize = 32;

/// Polls between looks at the doorbells of idle links (one system call for all) while polls find nothing: often enough
/// to answer a client within microseconds ...
const LISTEN_EVERY_EMPTY: u32 = 16;

/// ... and in any case: more often would delay the active links.
const LISTEN_EVERY: u32 = 64;
