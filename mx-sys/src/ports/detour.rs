//! The dgram port as one of a host's: opened when it is needed, polled as often as it is worth, and
//! left for TCP by links to peers that do not have it.
//!
//! ```text
//!   connect --> open yet? --> link --+-- up
//!                                    `-- nobody there, no answer --> Elsewhere(tcp)
//!                                        unless the address says /dgram
//!
//!   every poll        while there are sessions
//!   every 8th poll    while there is none: strangers may knock
//!                     or something else is busy: looking costs a system call
//! ```
//!
//! A peer that opened no dgram port is found by nobody over UDP, just as one that is not there at
//! all; TCP tells which of the two it is.
//!
//! Owns: the port, once it is open, and which links are on their way up.
//! Knows nothing of: the other ports.

use super::dgram::{self, DgramPort};
use super::host::ROUTE_TCP;
use super::nest::Nest;
use super::owner::{DGRAM, Named};
use crate::nic;
use mx_proto::port::{ConnectError, HeaderBytes, LinkDown, Place, Port, RemoteUse, Sink};
use mx_proto::{Clock, Instant, LinkId, Memory, Source, Target};
use std::collections::{HashMap, HashSet};
use std::io;

/// Polls between two looks when there is something better to do.
const TURN: u32 = 8;

/// Peers remembered so that a detour to them is logged once. Beyond it they begin to be logged
/// again.
const TOLD_MAX: usize = 4096;

/// Opens the port, or says in the log why it cannot be had.
pub(super) type Later = Box<dyn FnOnce() -> Option<DgramPort> + Send>;

/// The port and what is known of its links.
#[derive(Default)]
pub(super) struct Dgram {
    port: Option<DgramPort>,
    /// It was opened with the endpoint: it carries what may take any route.
    pub(super) offered: bool,
    later: Option<Later>,
    /// Polls since the last look.
    waits: u32,
    /// The next poll looks, whatever else there is.
    due: bool,
    /// There was nothing to do at the last look, and no session.
    resting: bool,
    attempts: HashMap<LinkId, Target>,
    told: HashSet<(u64, u32)>,
}

impl std::fmt::Debug for Dgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dgram")
            .field("open", &self.port.is_some())
            .field("offered", &self.offered)
            .finish_non_exhaustive()
    }
}

impl Dgram {
    /// One that is open, or will be for the first address that asks for it.
    pub(super) fn new(port: Option<DgramPort>, later: Option<Later>) -> Self {
        Self {
            offered: port.is_some(),
            port,
            later,
            due: true,
            ..Self::default()
        }
    }

    pub(super) fn port(&self) -> Option<&DgramPort> {
        self.port.as_ref()
    }

    #[inline]
    pub(super) fn port_mut(&mut self) -> Option<&mut DgramPort> {
        self.port.as_mut()
    }

    /// Links there are, those that linger included.
    pub(super) fn link_count(&self) -> usize {
        self.port.as_ref().map_or(0, DgramPort::sessions)
    }

    /// From now on, whoever sleeps does so on this nest.
    pub(super) fn wake_through(&mut self, nest: &Nest, member: u8) -> io::Result<()> {
        match &mut self.port {
            Some(port) => dgram::wake_through(port, nest, member),
            None => Ok(()),
        }
    }

    /// Starts a link. `strict`: this port and no other will do.
    pub(super) fn connect<M: Memory>(
        &mut self,
        target: Target,
        strict: bool,
        (nest, member): (&Nest, u8),
        clock: &dyn Clock,
    ) -> Result<LinkId, ConnectError> {
        if self.port.is_none()
            && let Some(open) = self.later.take()
        {
            self.port = open();
            if let Err(error) = self.wake_through(nest, member) {
                log::error!("dgram: cannot wait for its descriptors: {error}");
                self.port = None;
            }
        }
        let Some(port) = &mut self.port else {
            log::debug!("{target:?}: the dgram port is not open");
            return Err(ConnectError::NoRoute);
        };
        let link = Port::<M>::connect(port, target, clock)?;
        if !strict {
            self.attempts.insert(link, target);
        }
        (self.resting, self.due) = (false, true);
        Ok(link)
    }

    /// The endpoint has closed a link.
    pub(super) fn forget(&mut self, link: LinkId) {
        if !self.attempts.is_empty() {
            self.attempts.remove(&link);
        }
    }

    /// `busy`: something else has found something in this poll.
    #[inline]
    pub(super) fn poll<M: Memory, S: Sink<M>>(
        &mut self,
        busy: bool,
        clock: &dyn Clock,
        budget: usize,
        sink: &mut S,
    ) -> bool {
        let Some(port) = &mut self.port else {
            return false;
        };
        if !self.due && self.waits < TURN && (busy || self.resting) {
            self.waits += 1;
            return false;
        }
        (self.waits, self.due) = (0, false);
        let mut sink = Detour {
            attempts: &mut self.attempts,
            told: &mut self.told,
            sink: Named { sink, owner: DGRAM },
        };
        let some = Port::<M>::poll(port, clock, budget, &mut sink);
        self.resting = !some && port.sessions() == 0 && Port::<M>::deadline(port).is_none();
        some
    }

    pub(super) fn deadline<M: Memory>(&self) -> Option<Instant> {
        self.port.as_ref().and_then(Port::<M>::deadline)
    }

    pub(super) fn arm<M: Memory>(&mut self) -> bool {
        // Who wakes up looks.
        self.due = true;
        self.port.as_mut().is_none_or(Port::<M>::arm)
    }

    pub(super) fn disarm<M: Memory>(&mut self) {
        if let Some(port) = &mut self.port {
            Port::<M>::disarm(port);
        }
    }
}

/// The port's sink: attempts end here.
struct Detour<'a, S> {
    attempts: &'a mut HashMap<LinkId, Target>,
    told: &'a mut HashSet<(u64, u32)>,
    sink: Named<'a, S>,
}

impl<S> Detour<'_, S> {
    /// What to tell the endpoint of a link that is down.
    #[cold]
    fn turn(&mut self, link: LinkId, reason: LinkDown) -> LinkDown {
        let Some(target) = self.attempts.remove(&link) else {
            return reason;
        };
        match reason {
            LinkDown::Refused | LinkDown::Unreachable | LinkDown::TimedOut => {}
            _ => return reason,
        }
        let (nic, endpoint) = (target.nic, target.endpoint.0);
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        if self.told.insert((nic.0, endpoint)) {
            let host = nic::host_name(nic).unwrap_or_else(|| format!("{:#x}", nic.0));
            log::info!("mx://{host}:{endpoint}: over dgram {reason}: trying tcp");
        }
        LinkDown::Elsewhere(ROUTE_TCP)
    }
}

impl<M: Memory, S: Sink<M>> Sink<M> for Detour<'_, S> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        if !self.attempts.is_empty() {
            self.attempts.remove(&link);
        }
        self.sink.on_up(link, cookie);
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        let reason = match self.attempts.is_empty() {
            true => reason,
            false => self.turn(link, reason),
        };
        self.sink.on_down(link, cookie, reason);
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        self.sink.on_packet(link, cookie, header, body);
    }

    #[inline]
    fn place(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) -> Option<Place<'_, M>> {
        self.sink.place(link, cookie, header)
    }

    #[inline]
    fn on_placed(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) {
        self.sink.on_placed(link, cookie, header);
    }

    fn on_writable(&mut self, link: LinkId, cookie: u64) {
        self.sink.on_writable(link, cookie);
    }

    fn on_released(&mut self, link: LinkId, cookie: u64, token: u64) {
        self.sink.on_released(link, cookie, token);
    }

    fn on_remote_activity(&mut self, link: LinkId, cookie: u64, what: RemoteUse) {
        self.sink.on_remote_activity(link, cookie, what);
    }

    fn on_remote_read(&mut self, link: LinkId, cookie: u64, token: u64, ok: bool) {
        self.sink.on_remote_read(link, cookie, token, ok);
    }
}
