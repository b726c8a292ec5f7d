//! Packets over kernel TCP: one connection is one link, no call blocks.
//!
//! ```text
//!   Endpoint --connect--> dial ----> Table of Links <---- accept <-- listeners
//!            --send-----> send (Tx) ---^   |   ^                        |
//!            --next-----> round -----------'   |                  control epoll
//!                         poll_set: which links   |
//!            <--event---- visit of a link <---- receive (Rx) --> application memory
//! ```
//!
//! Each direction is a preamble, then packets (`frame`). `receive` reads large bodies straight into application memory,
//! `send` writes them straight from it. `round` hands out events one at a time; `poll_set` selects the links to read
//! without asking the kernel each time; `alarms` has the timers.
//!
//! Owns: sockets, both epoll instances, the bytes in between.
//! Out of scope: the contents of packets, peers, name resolution (see the resolver).
//! Cost: a small packet is one `send` here and one successful `recv` there; an idle link costs no system call and less
//! than 400 bytes.
//!
//! Detection of dead peers: `TCP_USER_TIMEOUT` would end the connection to a live process that does not read for that
//! long (it counts time with a closed window). So this port periodically asks the kernel whether data is unacknowledged
//! and when the peer's last acknowledgement arrived.
//!
//! The bytes of incomplete packets of all links are bounded: further packets stay in the kernel until they are complete
//! (`unread`).

mod alarms;
mod batch;
mod dial;
mod frame;
mod link;
mod options;
mod poll_set;
mod receive;
mod round;
mod send;
mod staging;
mod sys;
mod unread;
mod unsent;
mod upkeep;

pub use options::{TcpOptions, TcpStats};
pub use receive::STRANGER_MAX;

use alarms::Alarms;
use batch::Batch;
use link::{Link, Phase, Table};
use mx_port_base::descriptors;
use mx_port_base::epoll::READABLE;
use mx_port_base::interfaces::is_of_this_host;
use mx_port_base::origin::Origin;
use mx_port_base::ports;
use mx_port_base::strangers::Strangers;
use mx_proto::port::{
    ACCEPTED_WITHIN, Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, LinkDown,
    LinkFigures, Place, Port, SendError, Sent, WakeDescriptors, has_places_beside,
};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::shares::Shares;
use mx_proto::{Instant, LinkId, Memory, Target};
use poll_set::PollSet;
use receive::Turn;
use round::Round;
use send::Refusal;
use smallvec::SmallVec;
use staging::Pool;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;

/// Longest body that is collected and delivered whole, in bytes. With its header it fits into a staging buffer.
const PACKET_MAX: usize = 48 * 1024;

/// Longest body of an eager message, in bytes: rendezvous takes up to twice the time of a smaller one over loopback.
/// Larger messages use rendezvous, so that no small message waits for them.
const EAGER_MAX: usize = 128 * 1024;

/// Longest body of a data packet, in bytes. Small packets wait for at most this much, in addition to the kernel's
/// buffer.
const DATA_MAX: usize = 1 << 20;

/// Bytes of a large message that are requested at once: enough to keep a fast path busy for longer than a request
/// takes.
const PULL_BLOCK: usize = 4 << 20;

/// Port of one endpoint over kernel TCP: its listeners, its connections (one a link) and their timers. Implements
/// [`Port`], [`LinkControl`] and [`Rounds`]; no call blocks.
pub struct TcpPort {
    listeners: Vec<sys::TcpSocket>,
    local_port: u16,
    options: TcpOptions,
    links: Table,
    links_max: usize,
    strangers: Strangers,
    /// Shares of links that this side started or the endpoint has bound.
    places: Shares,
    pool: Pool,
    scratch: Box<[u8]>,
    batch: Batch,
    poll_set: PollSet,
    alarms: Alarms,
    round: Round,
    /// Visit of a link in progress within a round.
    turn: Option<Turn>,
    /// Events not handed out yet: links that came up, went down or have room.
    events: VecDeque<PortEvent>,
    /// Links that linger and have no alarm yet, because closing has no clock.
    closing: Vec<LinkId>,
    /// Links that have sent something since they were last checked.
    doubted: Vec<LinkId>,
    /// True if the alarm for checking links is set.
    vitals_set: bool,
    /// True if `closing` or `doubted` need a clock.
    chores: bool,
    /// True if listeners are watched.
    accepting: bool,
    /// Congestion control of sockets to other machines, if it differs from that within this one.
    elsewhere: Option<Vec<u8>>,
    stats: TcpStats,
}

impl TcpPort {
    /// Opens a port and listens at all addresses of the options, with one port number. Skips addresses of a family that
    /// the machine lacks if another address is left. Fails with `AddrInUse` if another socket listens there.
    pub fn open(options: TcpOptions) -> io::Result<Self> {
        let (listeners, local_port, elsewhere) = dial::listen(&options.listen, options.dead_after)?;
        let poll_set = PollSet::new()?;
        for (at, listener) in listeners.iter().enumerate() {
            let word = dial::listener_word(at);
            poll_set.control.add(listener, word, READABLE)?;
        }
        let most = places(options.max_links, descriptors::most());
        Ok(Self {
            listeners,
            local_port,
            links: Table::default(),
            links_max: most,
            strangers: Strangers::new(ACCEPTED_WITHIN),
            places: Shares::new(most, options.source_share),
            pool: Pool::new(options.kept_bytes),
            scratch: vec![0; send::SCRATCH].into_boxed_slice(),
            batch: Batch::default(),
            poll_set,
            alarms: Alarms::default(),
            round: Round::default(),
            turn: None,
            events: VecDeque::new(),
            closing: Vec::new(),
            doubted: Vec::new(),
            vitals_set: false,
            chores: false,
            accepting: true,
            elsewhere,
            stats: TcpStats::default(),
            options,
        })
    }

    /// Returns false if the host program has closed the descriptor of a listener; the port must not be used any more
    /// then.
    pub fn is_intact(&self) -> bool {
        self.listeners.iter().all(sys::TcpSocket::is_intact)
    }

    /// Returns the port number of all listeners, chosen by the kernel if the options have 0; 0 without listeners.
    pub fn local_port(&self) -> u16 {
        self.local_port
    }

    /// Records what a thread that slept has learned from the kernel: whether the data descriptor is readable (`data`).
    /// The next poll relies on it instead of asking again. For the control descriptor see
    /// [`LinkControl::note_control`].
    pub fn note_told(&mut self, data: bool) {
        self.poll_set.told(data);
    }

    /// Ends the links whose local address this machine has lost, because nothing reaches them any more; each goes down
    /// with [`LinkDown::Reset`].
    pub fn leave_old_addresses(&mut self) {
        let mut known: Vec<(IpAddr, bool)> = Vec::new();
        let mut cut = Vec::new();
        for (id, link) in self.links.iter_mut() {
            let id = id.at_port(ports::TCP);
            let Ok(local) = sys::local_address(&link.fd) else {
                continue;
            };
            let local = local.ip();
            let found = known.iter().find(|(address, _)| *address == local);
            let is_here = found.map(|(_, is_here)| *is_here).unwrap_or_else(|| {
                let is_here = local.is_loopback() || is_of_this_host(local);
                known.push((local, is_here));
                is_here
            });
            if !is_here {
                log::info!(
                    "tcp: {}: {local} is no longer an address of this machine",
                    link.peer
                );
                cut.push(id);
            }
        }
        for id in cut {
            self.announce_down(id, LinkDown::Reset);
        }
    }

    /// Returns the address of a link's peer as [`Origin::Address`]; [`Origin::Unknown`] if the id is stale.
    pub fn origin(&self, link: LinkId) -> Origin {
        let link = self.links.get(link);
        link.map_or(Origin::Unknown, |link| Origin::Address(link.peer))
    }

    /// Returns the kernel's measurements of a link's network path, for tools; `None` if the id is stale or the kernel
    /// reports none. One system call.
    pub fn figures(&self, link: LinkId, now: Instant) -> Option<LinkFigures> {
        sys::figures(&self.links.get(link)?.fd, now)
    }

    /// Returns the port's counters.
    pub fn stats(&self) -> TcpStats {
        TcpStats {
            kept: self.pool.kept() as u64,
            ..self.stats
        }
    }

    /// Binds a link, which ends its time as a stranger. Returns false if its source has too many links.
    fn keep(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.get_mut(id) else {
            return true;
        };
        if !std::mem::take(&mut link.stranger) {
            return true;
        }
        let source = link.source;
        self.unlist_stranger(source);
        let may = self.places.may_take(source, 1);
        self.places.take(source, 1);
        may
    }

    /// Removes a link from everything but the lists, in which its id becomes stale.
    fn drop_link(&mut self, id: LinkId) -> Option<Box<Link>> {
        let link = self.links.remove(id)?;
        // Removed explicitly: a child process may hold the descriptor, and then closing ours does not remove it.
        match link.phase {
            Phase::Dialling(_) | Phase::Greeting => {
                self.poll_set.control.remove(&link.fd);
                self.poll_set.pending -= 1;
            }
            Phase::Open | Phase::Lingering => self.poll_set.data.remove(&link.fd),
        }
        link.rx.forget(&mut self.pool);
        if link.stranger {
            self.unlist_stranger(link.source);
        } else {
            self.places.give_back(link.source, 1);
        }
        if self.links.is_empty() {
            self.links.forget_places();
            self.give_back_memory();
        }
        Some(link)
    }

    /// Handles a refusal of the sending half.
    #[cold]
    fn refused(&mut self, id: LinkId, refusal: Refusal) -> SendError {
        match refusal {
            Refusal::Full => {
                self.wait_for_room(id);
                SendError::WouldBlock
            }
            Refusal::Failed(error) => {
                self.sending_failed(id, &error);
                SendError::Down
            }
        }
    }

    /// Records that the endpoint waits for room.
    fn wait_for_room(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id) {
            link.waiting = true;
            self.poll_set.block(id, link);
        }
    }

    /// Records that a link can send nothing more; the next poll delivers what has arrived and takes it down.
    fn sending_failed(&mut self, id: LinkId, error: &io::Error) {
        if let Some(link) = self.links.get_mut(id) {
            link.failed.get_or_insert_with(|| reason(error));
            self.poll_set.queue(id, link);
        }
    }

    /// Lists a link whose peer has to be checked for liveness.
    #[inline]
    fn doubt(id: LinkId, link: &mut Link, doubted: &mut Vec<LinkId>, chores: &mut bool) {
        if !link.doubted {
            link.doubted = true;
            doubted.push(id);
            // The alarm is set later, where a clock is available.
            *chores = true;
        }
    }
}

impl LinkControl for TcpPort {
    fn limits(&self, link: LinkId) -> Limits {
        let bound = self.links.get(link).and_then(|link| link.unsent.bound());
        Limits {
            packet_max: PACKET_MAX,
            streamed_max: EAGER_MAX,
            // A started packet delays others like bytes in the kernel.
            data_max: bound.map_or(DATA_MAX, |bound| DATA_MAX.min(bound as usize / 2)),
            pull_block: PULL_BLOCK,
            remote_read: false,
            refusal_ends_link: false,
            data_links: self.options.data_links,
        }
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        let addresses = (self.options.resolver)(target)?;
        self.start_dialling(addresses, now)
    }

    fn connect_beside(&mut self, link: LinkId, now: Instant) -> Result<LinkId, ConnectError> {
        if !self.has_places_beside(link) {
            return Err(ConnectError::NoResources);
        }
        let beside = self.links.get(link).ok_or(ConnectError::NoRoute)?;
        self.start_dialling(SmallVec::from_slice(&[beside.peer]), now)
    }

    /// Returns true if links beside sessions' own are left.
    fn has_places_beside(&self, _link: LinkId) -> bool {
        has_places_beside(self.links.len(), self.links_max)
    }

    fn accept(&mut self, id: LinkId) {
        if self.links.get(id).is_some() && !self.keep(id) {
            // The link arrived with too many others of its source.
            self.announce_down(id, LinkDown::Reset);
        }
    }

    fn close(&mut self, id: LinkId, how: Close) {
        self.end_batch();
        self.forget_events(id);
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let orderly = how == Close::Flush
            && link.failed.is_none()
            && !link.tx.is_partial()
            && matches!(link.phase, Phase::Open);
        if !orderly {
            self.drop_link(id);
            return;
        }
        link.waiting = false;
        link.phase = Phase::Lingering;
        // All arriving bytes are discarded.
        link.rx.stop_waiting(&link.fd);
        if link.watched_by_edge {
            self.poll_set.watch_waiting(id, link);
        }
        if matches!(link.tx.flush(&link.fd), Ok(true)) {
            sys::finish_sending(&link.fd);
        } else {
            self.poll_set.block(id, link);
        }
        self.closing.push(id);
        self.chores = true;
    }

    fn deadline(&self) -> Option<Instant> {
        Instant::earliest([self.alarms.next(), self.strangers.deadline()])
    }

    fn hold(&mut self, may: bool) {
        self.batch.open = may;
    }

    fn holds(&self) -> bool {
        !self.batch.is_empty()
    }

    fn send_held(&mut self) {
        self.end_batch();
    }

    fn arm(&mut self) -> bool {
        self.end_batch();
        self.poll_set.look = true;
        if self.chores || !self.is_between_rounds() || self.poll_set.has_work() {
            return false;
        }
        self.poll_set
            .prepare_to_sleep(&mut self.links, &mut self.pool)
    }

    fn disarm(&mut self) {}

    fn link_count(&self) -> usize {
        self.links.len()
    }

    fn note_control(&mut self) {
        self.poll_set.control_due = true;
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: Some(self.poll_set.control.raw()),
            data: Some(self.poll_set.data.raw()),
        }
    }
}

impl<M: Memory> Port<M> for TcpPort {
    #[inline]
    fn send(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        debug_assert_eq!(mx_proto::port::body_len(header), body.len());
        if self.batch.has_to_do() && self.hold_packet(id, header, &body) {
            return Ok(Sent::Whole);
        }
        let link = self.links.get_mut(id).ok_or(SendError::Down)?;
        match link.phase {
            Phase::Open if link.failed.is_none() => {}
            Phase::Dialling(_) => {
                link.waiting = true;
                return Err(SendError::WouldBlock);
            }
            _ => return Err(SendError::Down),
        }
        Self::doubt(id, link, &mut self.doubted, &mut self.chores);
        match link.tx.packet(&link.fd, header, &body, &mut self.scratch) {
            Ok(sent) => {
                if link.tx.has_backlog() || sent != Sent::Whole {
                    link.waiting |= sent != Sent::Whole;
                    self.poll_set.block(id, link);
                }
                Ok(sent)
            }
            Err(refusal) => Err(self.refused(id, refusal)),
        }
    }

    fn resume(
        &mut self,
        id: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.end_batch();
        let link = self.links.get_mut(id).ok_or(SendError::Down)?;
        if link.failed.is_some() || !matches!(link.phase, Phase::Open) {
            return Err(SendError::Down);
        }
        Self::doubt(id, link, &mut self.doubted, &mut self.chores);
        match link
            .tx
            .more(&link.fd, memory, offset, len, &mut self.scratch)
        {
            Ok(Sent::Whole) => Ok(Sent::Whole),
            Ok(sent) => {
                self.wait_for_room(id);
                Ok(sent)
            }
            Err(refusal) => Err(self.refused(id, refusal)),
        }
    }

    fn detach(&mut self, id: LinkId, memory: &M, offset: usize, len: usize) {
        self.end_batch();
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        link.tx.detach(memory, offset, len);
        if link.tx.has_backlog() {
            self.poll_set.block(id, link);
        }
    }
}

impl<M: Memory> Rounds<M> for TcpPort {
    type Lent<'a> = &'a [u8];

    #[inline]
    fn begin(&mut self, now: Instant, budget: usize) {
        self.begin_round(now, budget);
    }

    #[inline]
    fn next(&mut self) -> Next {
        self.next_event()
    }

    #[inline]
    fn body(&self) -> &[u8] {
        self.lent()
    }

    #[inline]
    fn read(&mut self, place: Place<'_, M>) {
        self.read_part(place);
    }

    /// Does nothing: a part that is not read is skipped.
    fn skip(&mut self) {}
}

/// Lingering links get no more polls. Their bytes still reach their peers: the kernel continues to send, unless unread
/// bytes make it reset the connection.
impl Drop for TcpPort {
    fn drop(&mut self) {
        for (_, link) in self.links.iter_mut() {
            if !matches!(link.phase, Phase::Lingering) {
                continue;
            }
            if !matches!(link.tx.flush(&link.fd), Ok(true)) {
                log::debug!("tcp: {}: closed before everything was sent", link.peer);
            }
            // The link ends whatever this returns.
            let _ = link.rx.discard(&link.fd, &mut self.pool);
        }
    }
}

impl std::fmt::Debug for TcpPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpPort")
            .field("local_port", &self.local_port)
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

/// Limit of link indices: the bits above are for the port's number, and for other tokens.
const INDEX_LIMIT: usize = 1 << 28;

/// Returns the number of links for a process with this many descriptors, some of which are left to the process.
fn places(wanted: usize, descriptors: usize) -> usize {
    let ours = descriptors - (descriptors / 8).min(64);
    wanted.min(ours).clamp(1, INDEX_LIMIT)
}

/// Returns the reason for a link's end after an error of the kernel.
fn reason(error: &io::Error) -> LinkDown {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => LinkDown::Refused,
        Some(libc::ETIMEDOUT) => LinkDown::TimedOut,
        Some(
            libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::EACCES
            | libc::EPERM
            | libc::EINVAL,
        ) => LinkDown::Unreachable,
        _ => LinkDown::Reset,
    }
}
