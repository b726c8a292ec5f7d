//! Large messages by RMA: the receiver's card reads the sender's memory.
//!
//! ```text
//!   registering side                              reading side
//!   registered for remote reading
//!   key --------------------------------------> pieces, each an fi_read into place
//!        <======================================   at most WINDOW a link
//!        <------------ Reading, every 2 s -------  (the card's reads are not visible here)
//!   closed                                     registered for local writing, if the plan needs it
//! ```
//!
//! A closed registration cannot be read or written any more, whatever is still under way: that ends
//! the access here. Where reads need no local registration, the card reads into bounce buffers,
//! which are then copied. If a provider does not close a registration, only closing the endpoint
//! helps, and [`Events::demand_renewal`] requests it.
//!
//! Owns: registrations of sends, reads and their pieces.
//! Not here: frames.

use super::bounce;
use super::ops::Op;
use super::pieces::Pieces;
use super::plan::{Plan, Reads};
use super::reading::Reading;
use super::registration::{Lease, Registrations};
use super::remote::{Events, LookLimit, Outcome, Outlet, PIECE_MIN, ReadRequest, Report, Segments};
use libfabric_sys::abi::{FI_EAGAIN, FI_REMOTE_READ};
use mx_port_fabric::Mr;
use mx_proto::port::{RemoteKey, SendError};
use mx_proto::{Instant, LinkId};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Reads and registrations of all links.
pub(super) struct Rma {
    /// By the key of its registration.
    registered: HashMap<u64, Registered>,
    registrations: Registrations,
    links: HashMap<LinkId, Link>,
    reads: Slab<Read>,
    posted: Slab<Posted>,
    /// Links that had no room.
    blocked: VecDeque<LinkId>,
    /// The time of the next Reading frame to peers.
    chime: Option<Instant>,
    /// Operations need their memory registered. Where they do not, they go into bounce buffers.
    local: bool,
    /// Bounce buffers that the provider may keep for links that are gone, before everything is opened anew.
    lost_max: usize,
    piece_max: usize,
    /// [`Reads::connected`]
    connected: bool,
    /// As of the last poll.
    now: Instant,
}

struct Link {
    peer: u64,
    /// Reads with pieces to post.
    turn: VecDeque<usize>,
    /// Pieces the provider has.
    posted: usize,
    /// In `blocked`.
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
    /// One for each segment, or none at all.
    leases: SmallVec<[Lease; 1]>,
    posted: usize,
    failed: bool,
    /// Something came in since the peer was told last.
    moved: bool,
}

struct Posted {
    link: LinkId,
    /// `None`: its memory has been taken from it.
    read: Option<usize>,
    landing: Option<Landing>,
}

/// The destination of a piece in a bounce buffer.
struct Landing {
    buffer: u32,
    start: *mut u8,
    len: usize,
}

impl Rma {
    pub(super) fn new(plan: &Plan, reads: Reads) -> Self {
        let Reads {
            max_read,
            connected,
            ..
        } = reads;
        Self {
            registered: HashMap::new(),
            registrations: Registrations::new(),
            links: HashMap::new(),
            reads: Slab::new(),
            posted: Slab::new(),
            blocked: VecDeque::new(),
            chime: None,
            local: plan.mr_local,
            // Reads of links that are gone occupy the provider's queue, too.
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
        }
    }

    /// Only memory in one piece: a key names one registration.
    pub(super) fn register(
        &mut self,
        outlet: &mut Outlet<'_>,
        link: LinkId,
        segments: Segments,
        token: u64,
    ) -> Option<RemoteKey> {
        let [(start, len)] = segments[..] else {
            return None;
        };
        if !self.links.contains_key(&link) || self.registered.len() >= REGISTERED_MAX {
            return None;
        }
        // SAFETY: the caller of `Remote::register` lends the memory until `deregister` has returned,
        // which closes the registration, or has the endpoint closed if it cannot.
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

    pub(super) fn deregister(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        link: LinkId,
        key: RemoteKey,
    ) {
        if self.of(link, key).is_some()
            && let Some(Registered { mr, token, .. }) = self.registered.remove(&key.key)
        {
            events.forget_registration(link, token);
            finish(outlet, events, mr.close());
        }
    }

    pub(super) fn read(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        link: LinkId,
        request: ReadRequest,
    ) -> Result<(), SendError> {
        if !self.links.contains_key(&link) {
            return Err(SendError::Down);
        }
        let remote = request.key.address.checked_add(request.from);
        let remote = remote
            .filter(|remote| remote.checked_add(request.len as u64).is_some())
            .ok_or(SendError::Down)?;
        let pieces = Pieces::new(request.segments.clone(), self.piece_max);
        if request.len / pieces.left().max(1) < PIECE_MIN {
            return Err(SendError::Down);
        }
        let leases = self
            .lease(outlet, events, &request.segments)
            .ok_or(SendError::Down)?;
        let id = self.reads.insert(Read {
            link,
            token: request.token,
            key: request.key,
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
        self.post(outlet, events, link);
        Ok(())
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(super) fn stop_reading(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        link: LinkId,
        token: u64,
    ) {
        if let Some(id) = self.find(link, token) {
            self.reads[id].fail();
            self.end_read(outlet, events, id);
        }
    }

    pub(super) fn recall(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        link: LinkId,
        token: u64,
    ) {
        if let Some(id) = self.find(link, token) {
            let looks = if self.connected {
                LookLimit::between_pieces()
            } else {
                LookLimit::new()
            };
            self.take_back(outlet, events, &[id], looks);
        }
    }

    pub(super) fn on_link_up(&mut self, link: LinkId, peer: u64) {
        self.links.entry(link).or_insert(Link {
            peer,
            turn: VecDeque::new(),
            posted: 0,
            blocked: false,
        });
    }

    pub(super) fn on_link_down(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        link: LinkId,
    ) {
        let reads: Vec<usize> = self
            .reads
            .iter()
            .filter(|(_, read)| read.link == link)
            .map(|(id, _)| id)
            .collect();
        self.take_back(outlet, events, &reads, LookLimit::new());
        self.links.remove(&link);
        if self.lost() > self.lost_max {
            log::warn!("rdm: reads from dead peers fill the provider's queue");
            events.demand_renewal();
        }
        let gone: Vec<Registered> = self
            .registered
            .extract_if(|_, registered| registered.link == link)
            .map(|(_, registered)| registered)
            .collect();
        for registered in gone {
            finish(outlet, events, registered.mr.close());
        }
    }

    pub(super) fn on_reading(&mut self, events: &mut Events, link: LinkId, Reading(key): Reading) {
        if let Some(registered) = self.of(link, key) {
            let token = registered.token;
            events.report(Report::Registered { link, token });
        }
    }

    pub(super) fn on_event(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        piece: u32,
        outcome: Outcome,
    ) {
        let Some(posted) = self.posted.try_remove(piece as usize) else {
            return;
        };
        if let Some(link) = self.links.get_mut(&posted.link) {
            link.posted = link.posted.saturating_sub(1);
        }
        if let Some(Landing { buffer, start, len }) = posted.landing {
            if posted.read.is_some() && outcome.is_ok() {
                let bytes = outlet.bounce.bytes(buffer, len);
                // SAFETY: the piece's memory is lent until its read has been reported or taken back;
                // neither has happened, or `read` were none.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
            }
            outlet.bounce.give(buffer);
        }
        if outcome.is_err() && self.connected && self.links.contains_key(&posted.link) {
            events.report(Report::Broken { link: posted.link });
        }
        if let Some(id) = posted.read
            && let Some(read) = self.reads.get_mut(id)
        {
            read.posted -= 1;
            match outcome {
                Ok(()) => {
                    read.moved = true;
                    let (link, token) = (read.link, read.token);
                    events.report(Report::Reading { link, token });
                }
                Err(errno) => {
                    log::debug!("link {:?}: a read failed ({errno})", read.link);
                    read.fail();
                }
            }
            self.end_read(outlet, events, id);
        }
        self.post(outlet, events, posted.link);
    }

    pub(super) fn poll(&mut self, outlet: &mut Outlet<'_>, events: &mut Events, now: Instant) {
        self.now = now;
        self.registrations.tidy();
        for _ in 0..self.blocked.len() {
            let Some(id) = self.blocked.pop_front() else {
                break;
            };
            if let Some(link) = self.links.get_mut(&id) {
                link.blocked = false;
                self.post(outlet, events, id);
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
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.blocked.is_empty() {
            self.chime
        } else {
            Some(self.now.after(RETRY))
        }
    }

    /// Reads and registrations under way.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.reads.len(), self.registered.len())
    }

    /// Bounce buffers that the provider has for links that are gone, and may keep for ever.
    fn lost(&self) -> usize {
        let lost = self.posted.iter().filter(|(_, posted)| {
            posted.landing.is_some() && !self.links.contains_key(&posted.link)
        });
        lost.count()
    }

    /// Ends reads without a report. Those that do not end within that limit lose their registrations.
    fn take_back(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        ids: &[usize],
        mut looks: LookLimit,
    ) {
        for id in ids {
            if let Some(read) = self.reads.get_mut(*id) {
                read.fail();
            }
            self.end_read(outlet, events, *id);
        }
        while self.local && ids.iter().any(|id| self.reads.contains(*id)) {
            events.look(outlet);
            while let Some((piece, outcome)) = events.next_met() {
                looks.begin_again();
                self.on_event(outlet, events, piece, outcome);
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
                finish(outlet, events, self.registrations.revoke(lease));
            }
            if let Some(link) = self.links.get_mut(&read.link) {
                link.turn.retain(|turn| turn != id);
                if self.connected && read.posted > 0 {
                    events.report(Report::Broken { link: read.link });
                }
            }
        }
    }

    /// Registers all segments, or none; `None` when that does not go.
    fn lease(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        segments: &Segments,
    ) -> Option<SmallVec<[Lease; 1]>> {
        let mut leases = SmallVec::new();
        if !self.local {
            return Some(leases);
        }
        for &(start, len) in segments {
            // SAFETY: the caller of `Remote::read` lends the memory until the read has been
            // reported or taken back, and before that the leases are given back or revoked.
            let lease = unsafe {
                self.registrations
                    .lease(outlet.domain, outlet.main, start, len)
            };
            match lease {
                Ok(lease) => leases.push(lease),
                Err(_) => {
                    self.give_back(outlet, events, &mut leases);
                    return None;
                }
            }
        }
        Some(leases)
    }

    fn give_back(
        &mut self,
        outlet: &mut Outlet<'_>,
        events: &mut Events,
        leases: &mut SmallVec<[Lease; 1]>,
    ) {
        for lease in leases.drain(..) {
            finish(outlet, events, self.registrations.give_back(lease));
        }
    }

    /// Gives the provider as many pieces of a link's reads as it may have.
    fn post(&mut self, outlet: &mut Outlet<'_>, events: &mut Events, link: LinkId) {
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
            // SAFETY: the memory is lent until the read is reported or taken back; before that
            // this piece completes, or its registration or its endpoint is closed. A bounce buffer outlives
            // the endpoint, and is not given out again until the completion.
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
                    self.posted.insert(Posted {
                        link,
                        read: Some(id),
                        landing: landing.map(|(buffer, _)| Landing {
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
                    self.end_read(outlet, events, id);
                }
            }
        }
    }

    /// Reports a read of which nothing is to come any more.
    fn end_read(&mut self, outlet: &mut Outlet<'_>, events: &mut Events, id: usize) {
        let ended = self
            .reads
            .get(id)
            .is_some_and(|read| read.posted == 0 && read.pieces.peek().is_none());
        if !ended {
            return;
        }
        let mut read = self.reads.remove(id);
        self.give_back(outlet, events, &mut read.leases);
        let Read {
            link,
            token,
            failed,
            ..
        } = read;
        if let Some(state) = self.links.get_mut(&link) {
            // A later read may reuse its number, and must not have two turns.
            state.turn.retain(|turn| *turn != id);
        }
        let ok = !failed;
        events.report(Report::ReadDone { link, token, ok });
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
    /// There is no room for it now.
    fn block(&mut self, blocked: &mut VecDeque<LinkId>, id: LinkId) {
        if !self.blocked {
            self.blocked = true;
            blocked.push_back(id);
        }
    }
}

impl Read {
    /// Nothing more is posted; what is under way ends by itself.
    fn fail(&mut self) {
        self.failed = true;
        self.pieces.finish();
    }
}

/// A registration has to be closed. Where the provider is still busy with it, that may change when
/// it handles what has arrived.
fn finish(outlet: &mut Outlet<'_>, events: &mut Events, closed: Result<(), (Mr, i32)>) {
    let mut closed = closed;
    let mut looks = LookLimit::last();
    while let Err((mr, code)) = closed {
        if events.renewal_is_due() {
            // The renewal closes this one, too.
            return;
        }
        events.look(outlet);
        if !looks.again() {
            log::warn!("rdm: a registration cannot be closed (error {code})");
            return events.demand_renewal();
        }
        closed = mr.close();
    }
}

/// The longest piece: a failure costs no more than this, and signs of life come often enough.
const PIECE_MAX: usize = 4 << 20;

/// The same where a cancel has to wait for those under way ([`Reads::connected`]).
const PIECE_CONNECTED: usize = 256 << 10;

/// Pieces of one link under way: enough for a card that carries a piece in 80 us to find the next
/// one, and few enough that a silent peer does not fill the queue of the endpoint all share.
const WINDOW: usize = 8;

/// The interval of Reading frames. Time-outs of requests are tens of seconds.
const CHIME: Duration = Duration::from_secs(2);

/// The pause before retrying what the provider had no room for, if nothing completes before.
const RETRY: Duration = Duration::from_millis(1);

/// Registrations of all links: cards have a limited number of registrations.
const REGISTERED_MAX: usize = 16 * 1024;
