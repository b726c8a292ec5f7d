//! The port between processes of one machine: shared memory.
//!
//! ```text
//!   process A                                                process B
//!   LocalPort                                                LocalPort
//!     |  producer ==> [ cells | data ]  ring 0   ==> consumer  |
//!     |  consumer <== [ cells | data ]  ring 1   <== producer  |
//!     `------ Unix socket: handshake, wake-ups, hang-up -------'
//! ```
//!
//! Packets go through memory that both processes have mapped; nothing enters the kernel while both
//! sides poll. The Unix socket beside it passes the memory over, wakes a sleeping side, and hangs
//! up when the other side is gone.
//!
//! A few recently used links are *active*: every poll looks at them. The others are *idle*: they
//! stay prepared for sleeping, so that their next packet rings the doorbell, and all doorbells
//! together are polled from time to time. So with a thousand idle clients neither a poll nor going
//! to sleep costs more.
//!
//! A link that is idle for long is *suspended*: both sides free its memory, and only the socket
//! stays, which carries packets until there is memory again (`receive`, `idle`).
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
use mx_proto::{Instant, LinkId, Memory, Target};
use ring::PushError;
pub use ring::SharedBody;
pub use round::Lent;
use round::Round;
use socket::{Name, Socket};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Carries packets between processes of this host.
#[derive(Debug)]
pub struct LocalPort {
    name: Name,
    listener: Socket,
    /// Listener, handshakes, hang-ups.
    control: Epoll,
    /// Wake-ups.
    data: Epoll,
    links: Table<LinkId, Entry>,
    links_max: usize,
    /// The places in it, by user.
    places: Shares,
    strangers: Strangers,
    /// The links that every poll looks at; see the module's description.
    active: Vec<LinkId>,
    /// The events of a poll, and what is lent of them.
    round: Round,
    /// The position in `active` at which the next poll begins.
    turn: usize,
    /// Links that need attention beside their rings, each once. May contain stale ids.
    queue: VecDeque<LinkId>,
    /// Links whose peer's backlog was full, to be tried again. May contain others, and stale ids.
    dialing: Vec<LinkId>,
    /// The shared memory of all links.
    budget: Budget,
    /// Links with rings, which may be idle, in any order. Also some that have none any more.
    awake: Vec<LinkId>,
    /// The time of their next check.
    next_look: Option<Instant>,
    /// Room for a packet on its way to a socket.
    scratch: Vec<u8>,
    /// Users and endpoints: theirs, for which they may not speak, and those that have denied us.
    denied: LogLimit<(u32, u32)>,
    /// Users that have said so.
    deniers: LogLimit<u32>,
    /// The kernel's reasons for not letting us connect.
    barred: LogLimit<Option<i32>>,
    /// Users with processes that speak another version.
    other_versions: LogLimit<u32>,
    /// The administrator has been told that memory is short.
    warned: bool,
    /// The administrator has been told that descriptors are short.
    starved: bool,
    /// The time at which accepting is tried again after descriptors ran out.
    accept_again: Option<Instant>,
    /// The next poll looks at the control descriptors first.
    control_wanted: bool,
    /// The first poll that finds nothing looks at all descriptors: we have slept.
    slept: bool,
    /// The next poll need not check doorbells: the kernel has just reported them.
    told: bool,
    armed: bool,
    /// The process that opened the port.
    owner: u32,
    stats: LocalStats,
}

mx_proto::counters! {
    /// Numbers about a port's life.
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

/// Options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalOptions {
    /// Links, handshakes included. A further peer is refused.
    pub max_links: usize,
    /// Bytes of shared memory of all links together, as much as is mapped.
    pub bytes: usize,
    /// Percent, 1 to 100, of the places and of the memory that others leave, for the links that one
    /// user began, unless it is ourselves or root.
    pub share: u8,
    /// The idle time after which a link is suspended, while there is plenty of memory. `None`:
    /// never.
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
    /// Opens endpoint `endpoint` of board `board`. `AddrInUse` when it is open already, in this
    /// process or another one of this host.
    pub fn open(port_base: u16, board: u32, endpoint: u32) -> io::Result<Self> {
        Self::with_options(port_base, board, endpoint, LocalOptions::default())
    }

    /// [`LocalPort::open`] with other options.
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
        // Now rather than with the first link: it can take a while.
        barrier::is_asymmetric();
        Ok(Self {
            name,
            listener,
            control,
            data: Epoll::new()?,
            links: Table::default(),
            // Other descriptors wake the same sleeper under the tokens from there on.
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

    /// Starts a link to an endpoint of any board of this machine. [`LinkControl::connect`] takes our own
    /// board. [`ConnectError::Refused`] when nothing listens there in this network namespace.
    pub fn connect_to(
        &mut self,
        board: u32,
        endpoint: u32,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        self.connect_or(board, endpoint, None, now)
    }

    /// The thread that slept on the data descriptor was given all doorbells
    /// ([`LocalPort::note_doorbell`]); the next poll need not check them.
    pub fn note_told(&mut self) {
        (self.slept, self.told) = (false, true);
    }

    /// The epoll instance behind the data descriptor. Its tokens are the names of links; others may put
    /// in what has tokens that name none.
    pub fn data(&self) -> BorrowedFd<'_> {
        self.data.as_fd()
    }

    /// Numbers about the port's life.
    pub fn stats(&self) -> LocalStats {
        LocalStats {
            bytes: self.budget.used() as u64,
            ..self.stats
        }
    }

    /// [`Port::send`].
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

    /// There are links that were active lately.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether [`LocalPort::begin_active`] finds all that comes over links: all are active, they are few, and none waits for room.
    pub fn is_calm(&self) -> bool {
        let blocked = |id: &LinkId| self.links.get(*id).is_none_or(|entry| entry.blocked);
        let few = self.active.len() == self.links.len() && self.active.len() <= ACTIVE_KEPT;
        few && !self.active.iter().any(blocked)
    }

    /// There are active links, and it is known of nothing else that is to be looked at.
    #[inline]
    pub fn is_active(&self) -> bool {
        !self.active.is_empty() && !self.control_wanted && !self.slept && self.queue.is_empty()
    }

    /// The rare ends of a `send`.
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

/// Peers learn that this was on purpose. In a forked child nothing happens: the links are the
/// parent's.
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
        // The peer of a link that ends within a packet is not told that this is in order.
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

    fn body(&self) -> Lent<'_> {
        self.lent()
    }

    fn read(&mut self, place: Place<'_, M>) {
        self.read_piece(place);
    }

    fn skip(&mut self) {}
}

/// Wakes the peer.
#[cold]
fn ring_doorbell(socket: &Option<Socket>) {
    if let Some(socket) = socket {
        socket.ring();
    }
}

/// Largest body of a data packet: one chunk of a large message. Smaller ones cost more per byte,
/// larger ones keep the receiver waiting longer for the first.
const DATA_MAX: usize = 32 * 1024;

/// Bodies so long are chunks of large messages.
const LARGE: usize = DATA_MAX / 2;

/// So many of them, about a data area full, are a stream.
const STREAM: u8 = 8;

/// Every so many polls look at the control descriptors too, if they find nothing else ...
const CONTROL_EVERY_EMPTY: u32 = 256;

/// ... and every so many in any case, so that a port that is always busy still accepts.
const CONTROL_EVERY: u32 = 1 << 16;

/// Number of links that stay active, however long they have been idle.
const ACTIVE_KEPT: usize = 16;

/// Beyond those, a link retire after this many polls of all links without a packet of it.
const IDLE_AFTER: u32 = 128;

/// Number of active links from which on a further one makes the idlest of them retire.
const ACTIVE_MAX: usize = 32;

/// Every so many polls look at the doorbells of idle links (one system call for all), if they find nothing
/// else: often enough to answer a client within microseconds ...
const LISTEN_EVERY_EMPTY: u32 = 16;

/// ... and every so many in any case: what was found is worth more than what may be elsewhere.
const LISTEN_EVERY: u32 = 64;
