//! Large messages by RMA: the receiver's card reads the sender's memory.
//!
//! ```text
//!   registering side                              reading side
//!   registered for remote reading
//!   RemoteKey, in the endpoint's offer -------> pieces, each an fi_read into the user's buffer
//!        <======================================   at most WINDOW a link
//!        <------------ Reading, every 2 s -------  (the card's reads are not visible here)
//!   deregister                                  registered for local writing, if the plan requires it
//!                                               ReadDone, or recall
//! ```
//!
//! Used only over providers with real RMA ([`Plan`]). Elsewhere there is no [`Remote`], and the endpoint sends messages
//! through the port's own buffers. A call may always refuse, and the endpoint repeats a failed read that way.
//!
//! Three calls revoke memory: `deregister`, `recall` and `on_link_down`. Once one of them returns, the memory is not
//! accessed any more, whatever the peer or the provider does: a closed registration cannot be read or written. If reads
//! need no local registration, the card reads into bounce buffers, which are then copied. If a provider fails to close
//! a registration, [`Remote::wants_renewal`] returns true at once, and the caller has to close endpoint and domain
//! before it returns.
//!
//! Owns: registrations of sends, reads and their pieces.
//! Out of scope: frames; links, of which it knows only an id and an address.

mod events;

use super::bounce::{self, BounceBuffers};
use super::ops::{Op, Ops};
use super::pieces::Pieces;
use super::plan::{Plan, Reads};
use super::reading::Reading;
use super::registration::{Lease, Registrations};
use events::{Events, LookLimit, Outcome};
use libfabric_sys::abi::{FI_EAGAIN, FI_REMOTE_READ};
use mx_port_fabric::{CqEvent, Domain, Ep, Mr};
use mx_proto::port::{RemoteKey, RemoteRead, SendError};
use mx_proto::{Instant, LinkId, Memory};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Several pieces of memory.
pub(super) type Segments = SmallVec<[(*mut u8, usize); 2]>;

/// Reads and registrations of all links.
pub(super) struct Remote {
    /// Memory that peers may read, by the key of its registration.
    registered: HashMap<u64, Registered>,
    registrations: Registrations,
    links: HashMap<LinkId, Link>,
    reads: Slab<Read>,
    posted: Slab<PostedRead>,
    /// Links that had no room.
    blocked: VecDeque<LinkId>,
    /// Time of the next Reading frames; `None` without reads.
    chime: Option<Instant>,
    /// True if operations need registered memory; otherwise they use bounce buffers.
    local: bool,
    /// Maximum number of bounce buffers held by the provider for closed links before everything is reopened.
    lost_max: usize,
    piece_max: usize,
    /// See [`Reads::connected`].
    connected: bool,
    /// Time of the last poll.
    now: Instant,
    events: Events,
}

// SAFETY: its pointers are to memory lent to the port, which any one thread at a time may use; they are only passed on.
unsafe impl Send for Remote {}

struct Link {
    peer: u64,
    /// Reads with pieces to post, in turn.
    turn: VecDeque<usize>,
    /// Number of pieces that the provider holds.
    posted: usize,
    /// True if the link is in `blocked`.
    blocked: bool,
}

struct Registered {
    link: LinkId,
    address: u64,
    token: u64,
    mr: Mr,
}

struct Read {
    link: LinkId,
    token: u64,
    key: RemoteKey,
    /// Address of the first byte at the peer.
    remote: u64,
    pieces: Pieces,
    /// Lease of each segment; empty if none is needed.
    leases: SmallVec<[Lease; 1]>,
    posted: usize,
    failed: bool,
    /// True if a piece has arrived since the peer was last told.
    moved: bool,
}

struct PostedRead {
    link: LinkId,
    /// `None` once the read's memory has been revoked.
    read: Option<usize>,
    landing: Option<BounceTarget>,
}

/// Destination of a piece in a bounce buffer.
struct BounceTarget {
    buffer: u32,
    start: *mut u8,
    len: usize,
}

/// Parts of the port that a call needs.
pub(super) struct PortContext<'a> {
    pub(super) domain: &'a Domain,
    /// Endpoint that all links share.
    pub(super) main: &'a Ep,
    pub(super) ops: &'a mut Ops,
    /// Memory for reads that cannot be revoked.
    pub(super) bounce: &'a mut BounceBuffers,
    /// Progress reports to be sent to peers, in order.
    pub(super) out: &'a mut VecDeque<(LinkId, Reading)>,
    /// Completions of other operations found while waiting for our own; the port handles them next, in order, before it
    /// reads the queue again.
    pub(super) backlog: &'a mut VecDeque<CqEvent>,
}

/// Reports for the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Report {
    /// A read has ended; unless `ok`, its buffer's contents are undefined.
    ReadDone { link: LinkId, token: u64, ok: bool },
    /// The peer is reading the memory registered with this token.
    Registered { link: LinkId, token: u64 },
    /// The read with this token makes progress.
    Reading { link: LinkId, token: u64 },
    /// The connection below the link is dead: frames over it may be lost.
    Broken { link: LinkId },
}

impl Report {
    /// Returns the link that the report is about.
    pub(super) fn link(self) -> LinkId {
        match self {
            Self::ReadDone { link, .. }
            | Self::Registered { link, .. }
            | Self::Reading { link, .. }
            | Self::Broken { link } => link,
        }
    }
}

impl Remote {
    /// Creates the state; `None` if the provider has no real RMA.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        let Reads {
            max_read,
            connected,
            ..
        } = plan.rma?;
        Some(Self {
            registered: HashMap::new(),
            registrations: Registrations::new(),
            links: HashMap::new(),
            reads: Slab::new(),
            posted: Slab::new(),
            blocked: VecDeque::new(),
            chime: None,
            local: plan.mr_local,
            // Reads of closed links occupy the provider's queue, too.
            lost_max: bounce::MOST.min(plan.terms.tx_depth) / 2,
            connected,
            piece_max: if connected {
                max_read.clamp(1, PIECE_CONNECTED)
            } else if plan.mr_local {
                max_read.clamp(1, PIECE_MAX)
            } else {
                max_read.clamp(1, bounce::BUFFER_BYTES)
            },
            now: Instant::default(),
            events: Events::default(),
        })
    }

    /// Returns true if each peer has a connection, which a rejected read breaks.
    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns true if the provider kept memory that had to be returned: everything has to be closed and reopened
    /// before the current call returns to the endpoint.
    pub(super) fn wants_renewal(&self) -> bool {
        self.events.renewal
    }

    /// Returns the next report, oldest first.
    pub(super) fn next_report(&mut self) -> Option<Report> {
        self.events.reports.pop_front()
    }

    /// Lets the peer read `memory` until [`Remote::deregister`]. `None`: not possible, for example because the memory
    /// is in several pieces, and a key names one registration. `token` is returned with [`Report::Registered`].
    pub(super) fn register<M: Memory>(
        &mut self,
        outlet: &mut PortContext<'_>,
        link: LinkId,
        memory: &M,
        token: u64,
    ) -> Option<RemoteKey> {
        if memory.len() < READ_MIN {
            return None;
        }
        let [(start, len)] = segments_of(memory)[..] else {
            return None;
        };
        if !self.links.contains_key(&link) || self.registered.len() >= REGISTERED_MAX {
            return None;
        }
        // SAFETY: the caller lends the memory until `deregister` returns, which closes the registration, or has the
        // endpoint closed if it cannot.
        let mr = unsafe {
            self.registrations
                .register(outlet.domain, outlet.main, start, len, FI_REMOTE_READ)
        };
        let mr = mr.ok()?;
        let (address, key) = (mr.remote_base(start), mr.key());
        if self.registered.contains_key(&key) {
            log::warn!("rdm: the provider gave out registration key {key:#x} twice");
            return None;
        }
        self.registered.insert(
            key,
            Registered {
                link,
                address,
                token,
                mr,
            },
        );
        Some(RemoteKey { address, key })
    }

    /// Ends a registration: once this returns, the memory is not read any more.
    pub(super) fn deregister(
        &mut self,
        outlet: &mut PortContext<'_>,
        link: LinkId,
        key: RemoteKey,
    ) {
        if self.of(link, key).is_some()
            && let Some(Registered { mr, token, .. }) = self.registered.remove(&key.key)
        {
            self.events.forget_registration(link, token);
            finish(outlet, &mut self.events, mr.close());
        }
        self.handle_met(outlet);
    }

    /// Starts a read; [`Report::ReadDone`] follows. Fails if RMA is not possible now; then nothing has been started.
    pub(super) fn read<M: Memory>(
        &mut self,
        outlet: &mut PortContext<'_>,
        link: LinkId,
        read: RemoteRead<'_, M>,
    ) -> Result<(), SendError> {
        let begun = self.begin(outlet, link, read);
        self.handle_met(outlet);
        begun.ok_or(SendError::Down)
    }

    fn begin<M: Memory>(
        &mut self,
        outlet: &mut PortContext<'_>,
        link: LinkId,
        read: RemoteRead<'_, M>,
    ) -> Option<()> {
        let RemoteRead {
            key,
            from,
            memory,
            at,
            len,
            token,
        } = read;
        let end = at.checked_add(len)?;
        if len < READ_MIN || end > memory.len() || !self.links.contains_key(&link) {
            return None;
        }
        let remote = key.address.checked_add(from as u64)?;
        remote.checked_add(len as u64)?;
        let mut segments = Segments::new();
        memory.visit_mut(at, len, |piece| {
            segments.push((piece.as_mut_ptr(), piece.len()));
        });
        let pieces = Pieces::new(segments.clone(), self.piece_max);
        if len / pieces.left().max(1) < PIECE_MIN {
            return None;
        }
        let leases = self.lease(outlet, &segments)?;
        let id = self.reads.insert(Read {
            link,
            token,
            key,
            remote,
            pieces,
            leases,
            posted: 0,
            failed: false,
            moved: false,
        });
        if let Some(link) = self.links.get_mut(&link) {
            link.turn.push_back(id);
        }
        let soon = self.now.after(CHIME);
        self.chime.get_or_insert(soon);
        self.post(outlet, link);
        Some(())
    }

    /// Stops a read: its report follows once the pieces in flight have ended.
    pub(super) fn stop_reading(&mut self, outlet: &mut PortContext<'_>, link: LinkId, token: u64) {
        if let Some(id) = self.find(link, token) {
            self.reads[id].fail();
            self.end_read(outlet, id);
        }
        self.handle_met(outlet);
    }

    /// Ends a read: once this returns, its memory is not written any more, and no report of it follows.
    pub(super) fn recall(&mut self, outlet: &mut PortContext<'_>, link: LinkId, token: u64) {
        if let Some(id) = self.find(link, token) {
            let looks = if self.connected {
                LookLimit::between_pieces()
            } else {
                LookLimit::new()
            };
            self.take_back(outlet, &[id], looks);
        }
        self.handle_met(outlet);
        self.events.forget_read(link, token);
    }

    /// Records that a link can carry frames; `peer` is its address on the shared endpoint.
    pub(super) fn on_link_up(&mut self, link: LinkId, peer: u64) {
        self.links.entry(link).or_insert(Link {
            peer,
            turn: VecDeque::new(),
            posted: 0,
            blocked: false,
        });
    }

    /// Ends all reads and registrations of a closed link, without reports.
    pub(super) fn on_link_down(&mut self, outlet: &mut PortContext<'_>, link: LinkId) {
        let reads: Vec<usize> = self
            .reads
            .iter()
            .filter(|(_, read)| read.link == link)
            .map(|(id, _)| id)
            .collect();
        self.take_back(outlet, &reads, LookLimit::new());
        self.links.remove(&link);
        if self.lost() > self.lost_max {
            log::warn!("rdm: reads from dead peers fill the provider's queue");
            self.events.renewal = true;
        }
        let gone: Vec<Registered> = self
            .registered
            .extract_if(|_, registered| registered.link == link)
            .map(|(_, registered)| registered)
            .collect();
        for registered in gone {
            finish(outlet, &mut self.events, registered.mr.close());
        }
        self.handle_met(outlet);
        self.events.forget_link(link);
    }

    /// Handles the peer's report that it is reading. Its contents are not trusted.
    pub(super) fn on_reading(&mut self, link: LinkId, Reading(key): Reading) {
        if let Some(registered) = self.of(link, key) {
            let token = registered.token;
            self.events.report(Report::Registered { link, token });
        }
    }

    /// Handles the completion of a piece.
    pub(super) fn on_event(&mut self, outlet: &mut PortContext<'_>, piece: u32, outcome: Outcome) {
        self.ended(outlet, piece, outcome);
        self.handle_met(outlet);
    }

    /// Handles completions found while waiting; handling one may find more.
    fn handle_met(&mut self, outlet: &mut PortContext<'_>) {
        while let Some((piece, outcome)) = self.events.met.pop_front() {
            self.ended(outlet, piece, outcome);
        }
    }

    fn ended(&mut self, outlet: &mut PortContext<'_>, piece: u32, outcome: Outcome) {
        let Some(posted) = self.posted.try_remove(piece as usize) else {
            return;
        };
        if let Some(link) = self.links.get_mut(&posted.link) {
            link.posted = link.posted.saturating_sub(1);
        }
        if let Some(BounceTarget { buffer, start, len }) = posted.landing {
            if posted.read.is_some() && outcome.is_ok() {
                let bytes = outlet.bounce.bytes(buffer, len);
                // SAFETY: the piece's memory is lent until its read has been reported or revoked; neither has happened,
                // since `read` is some.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
            }
            outlet.bounce.give(buffer);
        }
        if outcome.is_err() && self.connected && self.links.contains_key(&posted.link) {
            self.events.report(Report::Broken { link: posted.link });
        }
        if let Some(id) = posted.read
            && let Some(read) = self.reads.get_mut(id)
        {
            read.posted -= 1;
            match outcome {
                Ok(()) => {
                    read.moved = true;
                    let (link, token) = (read.link, read.token);
                    self.events.report(Report::Reading { link, token });
                }
                Err(errno) => {
                    log::debug!("link {:?}: a read failed ({errno})", read.link);
                    read.fail();
                }
            }
            self.end_read(outlet, id);
        }
        self.post(outlet, posted.link);
    }

    /// Does due work: retries, and progress reports of reads.
    pub(super) fn poll(&mut self, outlet: &mut PortContext<'_>, now: Instant) {
        self.now = now;
        self.registrations.tidy();
        for _ in 0..self.blocked.len() {
            let Some(id) = self.blocked.pop_front() else {
                break;
            };
            if let Some(link) = self.links.get_mut(&id) {
                link.blocked = false;
                self.post(outlet, id);
            }
        }
        if self.chime.is_some_and(|chime| chime <= now) {
            self.chime = (!self.reads.is_empty()).then(|| now.after(CHIME));
            for (_, read) in &mut self.reads {
                if std::mem::take(&mut read.moved) {
                    outlet.out.push_back((read.link, Reading(read.key)));
                }
            }
        }
        self.handle_met(outlet);
    }

    /// Time at which [`Remote::poll`] is due even if nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.blocked.is_empty() {
            self.chime
        } else {
            Some(self.now.after(RETRY))
        }
    }

    /// Numbers of reads and registrations.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.reads.len(), self.registered.len())
    }

    /// Number of bounce buffers that the provider holds for closed links, perhaps forever.
    fn lost(&self) -> usize {
        let lost = self.posted.iter().filter(|(_, posted)| {
            posted.landing.is_some() && !self.links.contains_key(&posted.link)
        });
        lost.count()
    }

    /// Ends reads without a report. Those that do not end within the limit lose their registrations.
    fn take_back(&mut self, outlet: &mut PortContext<'_>, ids: &[usize], mut looks: LookLimit) {
        for id in ids {
            if let Some(read) = self.reads.get_mut(*id) {
                read.fail();
            }
            self.end_read(outlet, *id);
        }
        while self.local && ids.iter().any(|id| self.reads.contains(*id)) {
            self.events.look(outlet);
            while let Some((piece, outcome)) = self.events.met.pop_front() {
                looks.begin_again();
                self.ended(outlet, piece, outcome);
            }
            if !looks.again() {
                break;
            }
        }
        for id in ids {
            let Some(mut read) = self.reads.try_remove(*id) else {
                continue;
            };
            for (_, posted) in &mut self.posted {
                posted.read.take_if(|of| *of == *id);
            }
            for lease in read.leases.drain(..) {
                finish(outlet, &mut self.events, self.registrations.revoke(lease));
            }
            if let Some(link) = self.links.get_mut(&read.link) {
                link.turn.retain(|turn| turn != id);
                if self.connected && read.posted > 0 {
                    self.events.report(Report::Broken { link: read.link });
                }
            }
        }
    }

    /// Registers all segments, or none; `None` if that fails.
    fn lease(
        &mut self,
        outlet: &mut PortContext<'_>,
        segments: &Segments,
    ) -> Option<SmallVec<[Lease; 1]>> {
        let mut leases = SmallVec::new();
        if !self.local {
            return Some(leases);
        }
        for &(start, len) in segments {
            // SAFETY: the caller of `read` lends the memory until the read has been reported or revoked, and before
            // that the leases are given back or revoked.
            let lease = unsafe {
                self.registrations
                    .lease(outlet.domain, outlet.main, start, len)
            };
            match lease {
                Ok(lease) => leases.push(lease),
                Err(_) => {
                    self.give_back(outlet, &mut leases);
                    return None;
                }
            }
        }
        Some(leases)
    }

    fn give_back(&mut self, outlet: &mut PortContext<'_>, leases: &mut SmallVec<[Lease; 1]>) {
        for lease in leases.drain(..) {
            finish(
                outlet,
                &mut self.events,
                self.registrations.give_back(lease),
            );
        }
    }

    /// Posts pieces of a link's reads, as many as it may have outstanding.
    fn post(&mut self, outlet: &mut PortContext<'_>, link: LinkId) {
        while let Some(state) = self.links.get_mut(&link)
            && state.posted < WINDOW
            && let Some(&id) = state.turn.front()
        {
            let next = self.reads.get_mut(id);
            let Some((read, piece)) = next.and_then(|read| {
                let piece = read.pieces.peek()?;
                Some((read, piece))
            }) else {
                state.turn.pop_front();
                continue;
            };
            let desc = read
                .leases
                .get(piece.segment)
                .map_or(std::ptr::null_mut(), |lease| self.registrations.desc(lease));
            let landing = if self.local {
                None
            } else {
                match outlet.bounce.take() {
                    None => return state.block(&mut self.blocked, link),
                    buffer => buffer,
                }
            };
            let start = landing.map_or(piece.start, |(_, start)| start);
            let number = self.posted.vacant_key() as u32;
            let context = outlet.ops.begin(Op::Read(number));
            // SAFETY: the memory is lent until the read is reported or revoked; before that this piece completes, or
            // its registration or endpoint is closed. A bounce buffer outlives the endpoint, and is not reused until
            // the completion.
            let posted = unsafe {
                outlet.main.read(
                    start,
                    piece.len,
                    desc,
                    state.peer,
                    read.remote.wrapping_add(piece.offset as u64),
                    read.key.key,
                    context,
                )
            };
            if posted.is_err() {
                outlet.ops.end(context);
                if let Some((buffer, _)) = landing {
                    outlet.bounce.give(buffer);
                }
            }
            match posted {
                Ok(()) => {
                    read.posted += 1;
                    read.pieces.advance();
                    state.posted += 1;
                    state.turn.rotate_left(1);
                    self.posted.insert(PostedRead {
                        link,
                        read: Some(id),
                        landing: landing.map(|(buffer, _)| BounceTarget {
                            buffer,
                            start: piece.start,
                            len: piece.len,
                        }),
                    });
                }
                Err(FI_EAGAIN) => return state.block(&mut self.blocked, link),
                Err(errno) => {
                    log::debug!("link {link:?}: a read could not be posted ({errno})");
                    read.fail();
                    self.end_read(outlet, id);
                }
            }
        }
    }

    /// Reports a read that has no pieces left.
    fn end_read(&mut self, outlet: &mut PortContext<'_>, id: usize) {
        let ended = self
            .reads
            .get(id)
            .is_some_and(|read| read.posted == 0 && read.pieces.peek().is_none());
        if !ended {
            return;
        }
        let mut read = self.reads.remove(id);
        self.give_back(outlet, &mut read.leases);
        let Read {
            link,
            token,
            failed,
            ..
        } = read;
        if let Some(state) = self.links.get_mut(&link) {
            // A later read may reuse the number, and must not be queued twice.
            state.turn.retain(|turn| *turn != id);
        }
        let ok = !failed;
        self.events.report(Report::ReadDone { link, token, ok });
    }

    fn find(&self, link: LinkId, token: u64) -> Option<usize> {
        let mut reads = self.reads.iter();
        let found = reads.find(|(_, read)| (read.link, read.token) == (link, token));
        found.map(|(id, _)| id)
    }

    fn of(&self, link: LinkId, key: RemoteKey) -> Option<&Registered> {
        self.registered
            .get(&key.key)
            .filter(|registered| registered.link == link && registered.address == key.address)
    }
}

impl Link {
    /// Queues a link that had no room.
    fn block(&mut self, blocked: &mut VecDeque<LinkId>, id: LinkId) {
        if !self.blocked {
            self.blocked = true;
            blocked.push_back(id);
        }
    }
}

impl Read {
    /// Posts no more pieces; those in flight end by themselves.
    fn fail(&mut self) {
        self.failed = true;
        self.pieces.finish();
    }
}

/// Closes a registration. If the provider is busy with it, handling arrivals may help.
fn finish(outlet: &mut PortContext<'_>, events: &mut Events, closed: Result<(), (Mr, i32)>) {
    let mut closed = closed;
    let mut looks = LookLimit::last();
    while let Err((mr, code)) = closed {
        if events.renewal {
            // The renewal closes this one, too.
            return;
        }
        events.look(outlet);
        if !looks.again() {
            log::warn!("rdm: a registration cannot be closed (error {code})");
            events.renewal = true;
            return;
        }
        closed = mr.close();
    }
}

fn segments_of<M: Memory>(memory: &M) -> Segments {
    let mut segments = Segments::new();
    memory.visit(0, memory.len(), |piece| {
        segments.push((piece.as_ptr().cast_mut(), piece.len()));
    });
    segments
}

/// Minimum length of a read, in bytes; shorter data is copied: requesting a piece and reporting its end costs about as
/// much as copying this much twice.
const READ_MIN: usize = 32 * 1024;

/// Minimum average length of pieces, in bytes; below it, copying is cheaper than an operation per piece.
const PIECE_MIN: usize = 16 * 1024;

/// Longest piece, in bytes: bounds the cost of a failure and the time between progress reports.
const PIECE_MAX: usize = 4 << 20;

/// Longest piece, in bytes, where a cancel waits for pieces in flight ([`Reads::connected`]).
const PIECE_CONNECTED: usize = 256 << 10;

/// Maximum number of pieces in flight per link: enough for a card that transfers a piece in 80 us to find the next one,
/// and few enough that a silent peer does not fill the shared endpoint's queue.
const WINDOW: usize = 8;

/// Interval of Reading frames; timeouts of requests are tens of seconds.
const CHIME: Duration = Duration::from_secs(2);

/// Pause before a rejected post is retried, if nothing completes before.
const RETRY: Duration = Duration::from_millis(1);

/// Maximum number of registrations of all links, which cards limit.
const REGISTERED_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests;
