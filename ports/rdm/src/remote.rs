//! Large messages that the receiver reads from the sender's memory.
//!
//! ```text
//!   sender's port                                     receiver's port
//!   register ---- RemoteKey, in the endpoint's offer ---> read
//!      |                                                  |
//!      |   registered for remote reading     <----------- fi_read, piece by piece
//!      v                                                  v
//!   deregister                                            ReadDone, or recall
//! ```
//!
//! Only over providers with real RMA ([`Plan`]). Elsewhere `register` returns no key and `read`
//! refuses, and the endpoint sends the message through the port's own buffers. Refusing is always
//! allowed, and the endpoint repeats a failed read that way.
//!
//! Three calls give memory back: `deregister`, `recall` and `on_link_down`. When one of them
//! returns, the memory is not accessed any more, whatever the peer or the provider do. If a
//! provider does not release it, [`Remote::wants_renewal`] says so at once, and the caller has to
//! close endpoint and domain before it returns itself.
//!
//! Owns: the choice whether to use RMA; reports not yet fetched.
//! Not here: links; it gets only a name and an address.

use super::bounce::BounceBuffers;
use super::ops::{Op, Ops};
use super::plan::Plan;
use super::reading::Reading;
use super::rma::Rma;
use mx_port_fabric::{CqEvent, Domain, Ep};
use mx_proto::port::{RemoteKey, RemoteRead, SendError};
use mx_proto::{Instant, LinkId, Memory};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;

/// Reads and registrations of all links.
pub(super) struct Remote {
    /// `None` where the provider has no real RMA.
    rma: Option<Rma>,
    events: Events,
}

// SAFETY: pointers in it are to memory lent to the port, which one thread at a time may use,
// whichever that is; they are only passed on.
unsafe impl Send for Remote {}

/// The parts of the port that a call needs.
pub(super) struct Outlet<'a> {
    pub(super) domain: &'a Domain,
    /// The endpoint all links share.
    pub(super) main: &'a Ep,
    pub(super) ops: &'a mut Ops,
    /// Memory for cards that cannot be kept from writing.
    pub(super) bounce: &'a mut BounceBuffers,
    /// Signs of life for peers, in order.
    pub(super) out: &'a mut VecDeque<(LinkId, Reading)>,
    /// Events of other operations that were met while looking for our own; the port handles them
    /// next, in this order, before it reads the queue again.
    pub(super) backlog: &'a mut VecDeque<CqEvent>,
}

/// Reports for the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Report {
    /// A read has ended; where not `ok`, nothing is known of what it wrote.
    ReadDone { link: LinkId, token: u64, ok: bool },
    /// The peer is reading what was registered with this token.
    Registered { link: LinkId, token: u64 },
    /// The read with this token gets on.
    Reading { link: LinkId, token: u64 },
    /// The connection below the link is dead: frames over it may vanish.
    Broken { link: LinkId },
}

impl Report {
    /// The link that it is about.
    pub(super) fn link(self) -> LinkId {
        match self {
            Self::ReadDone { link, .. }
            | Self::Registered { link, .. }
            | Self::Reading { link, .. }
            | Self::Broken { link } => link,
        }
    }
}

/// A completion: nothing, or the positive error number.
pub(super) type Outcome = Result<(), i32>;

/// Reports, and completions met out of turn.
#[derive(Default)]
pub(super) struct Events {
    reports: VecDeque<Report>,
    /// Pieces whose end was taken from the queue while looking for something else; handled before the
    /// call ends.
    met: VecDeque<(u32, Outcome)>,
    /// The provider has memory it would not give back.
    renewal: bool,
}

/// Several pieces of memory.
pub(super) type Segments = SmallVec<[(*mut u8, usize); 2]>;

impl Remote {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            rma: plan.rma.map(|reads| Rma::new(plan, reads)),
            events: Events::default(),
        }
    }

    /// Nothing is registered or read any more.
    pub(super) fn close(&mut self) {
        self.rma = None;
    }

    /// May [`Remote::read`] ever succeed?
    pub(super) fn offers_reads(&self) -> bool {
        self.rma.is_some()
    }

    /// Each peer has a connection, which a refused read ends.
    pub(super) fn is_connected(&self) -> bool {
        self.rma.as_ref().is_some_and(Rma::is_connected)
    }

    /// The provider did not give memory back that had to be: everything has to be closed and
    /// opened anew, before the call that led to this returns to the endpoint.
    pub(super) fn wants_renewal(&self) -> bool {
        self.events.renewal
    }

    /// Lets the peer read `memory` until [`Remote::deregister`]. `None`: it cannot be read this way.
    /// `token` comes back with [`Report::Registered`].
    pub(super) fn register<M: Memory>(
        &mut self,
        outlet: &mut Outlet<'_>,
        link: LinkId,
        memory: &M,
        token: u64,
    ) -> Option<RemoteKey> {
        if memory.len() < READ_MIN {
            return None;
        }
        let rma = self.rma.as_mut()?;
        rma.register(outlet, link, segments_of(memory), token)
    }

    /// Ends a registration: when this returns, the memory is not read any more.
    pub(super) fn deregister(&mut self, outlet: &mut Outlet<'_>, link: LinkId, key: RemoteKey) {
        if let Some(rma) = &mut self.rma {
            rma.deregister(outlet, &mut self.events, link, key);
        }
        self.handle_met(outlet);
    }

    /// Begins a read; [`Report::ReadDone`] follows. An error means that it does not go this way
    /// now, and nothing has been begun.
    pub(super) fn read<M: Memory>(
        &mut self,
        outlet: &mut Outlet<'_>,
        link: LinkId,
        read: RemoteRead<'_, M>,
    ) -> Result<(), SendError> {
        let RemoteRead {
            key,
            from,
            memory,
            at,
            len,
            token,
        } = read;
        if len < READ_MIN || at.checked_add(len).is_none_or(|end| end > memory.len()) {
            return Err(SendError::Down);
        }
        let mut segments = Segments::new();
        memory.visit_mut(at, len, |piece| {
            segments.push((piece.as_mut_ptr(), piece.len()));
        });
        let request = ReadRequest {
            key,
            from: from as u64,
            segments,
            len,
            token,
        };
        let rma = self.rma.as_mut().ok_or(SendError::Down)?;
        let begun = rma.read(outlet, &mut self.events, link, request);
        self.handle_met(outlet);
        begun
    }

    /// A read need not go on: its report follows as soon as what is under way has ended.
    pub(super) fn stop_reading(&mut self, outlet: &mut Outlet<'_>, link: LinkId, token: u64) {
        if let Some(rma) = &mut self.rma {
            rma.stop_reading(outlet, &mut self.events, link, token);
        }
        self.handle_met(outlet);
    }

    /// Ends a read: when this returns, its memory is not written any more, and no report of it
    /// follows.
    pub(super) fn recall(&mut self, outlet: &mut Outlet<'_>, link: LinkId, token: u64) {
        if let Some(rma) = &mut self.rma {
            rma.recall(outlet, &mut self.events, link, token);
        }
        self.handle_met(outlet);
        self.events.forget_read(link, token);
    }

    /// The peer says that it is reading. Nothing in it is to be trusted.
    pub(super) fn on_reading(&mut self, link: LinkId, reading: Reading) {
        if let Some(rma) = &mut self.rma {
            rma.on_reading(&mut self.events, link, reading);
        }
    }

    /// A piece of ours has ended.
    pub(super) fn on_event(&mut self, outlet: &mut Outlet<'_>, piece: u32, outcome: Outcome) {
        self.events.met.push_back((piece, outcome));
        self.handle_met(outlet);
    }

    /// A link can carry frames; `peer` is its address on the shared endpoint.
    pub(super) fn on_link_up(&mut self, link: LinkId, peer: u64) {
        if let Some(rma) = &mut self.rma {
            rma.on_link_up(link, peer);
        }
    }

    /// A link is gone: all memory of its reads and registrations is given back, without reports.
    pub(super) fn on_link_down(&mut self, outlet: &mut Outlet<'_>, link: LinkId) {
        if let Some(rma) = &mut self.rma {
            rma.on_link_down(outlet, &mut self.events, link);
        }
        self.handle_met(outlet);
        self.events.forget_link(link);
    }

    /// Does due work: retries, keep-alives of reads.
    pub(super) fn poll(&mut self, outlet: &mut Outlet<'_>, now: Instant) {
        if let Some(rma) = &mut self.rma {
            rma.poll(outlet, &mut self.events, now);
            self.handle_met(outlet);
        }
    }

    /// The time at which [`Remote::poll`] should be called although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.rma.as_ref()?.deadline()
    }

    /// The next report, oldest first.
    pub(super) fn next_report(&mut self) -> Option<Report> {
        self.events.reports.pop_front()
    }

    /// Handles completions met on the way. Each operation ends once, so this does too.
    fn handle_met(&mut self, outlet: &mut Outlet<'_>) {
        while let Some((piece, outcome)) = self.events.met.pop_front() {
            if let Some(rma) = &mut self.rma {
                rma.on_event(outlet, &mut self.events, piece, outcome);
            }
        }
    }
}

/// One read as [`Rma`] takes it.
pub(super) struct ReadRequest {
    pub(super) key: RemoteKey,
    /// First byte of the registration to read.
    pub(super) from: u64,
    pub(super) segments: Segments,
    /// Bytes in all segments together.
    pub(super) len: usize,
    pub(super) token: u64,
}

impl Events {
    pub(super) fn report(&mut self, report: Report) {
        // Repeated signs of life are reported once.
        let repeated = !matches!(report, Report::ReadDone { .. })
            && self.reports.back().is_some_and(|last| *last == report);
        if !repeated {
            self.reports.push_back(report);
        }
    }

    /// Takes what is in the queue; ours are kept here, others in the port's backlog.
    pub(super) fn look(&mut self, outlet: &mut Outlet<'_>) {
        let mut events = Vec::new();
        if outlet.domain.read(&mut events, LOOK_EVENTS).is_err() {
            // The port meets the same error with its next read and handles it.
            return;
        }
        for event in events {
            if !self.meet(outlet.ops, &event) {
                outlet.backlog.push_back(event);
            }
        }
    }

    /// Keeps an event that is about an operation of ours.
    fn meet(&mut self, ops: &mut Ops, event: &CqEvent) -> bool {
        let (context, outcome) = match *event {
            CqEvent::Done { context, .. } => (context, Ok(())),
            CqEvent::Failed { context, errno, .. } => (context, Err(errno)),
        };
        let Some(Op::Read(piece)) = ops.of(context) else {
            return false;
        };
        ops.end(context);
        self.met.push_back((piece, outcome));
        true
    }

    /// The next completion met on the way.
    pub(super) fn next_met(&mut self) -> Option<(u32, Outcome)> {
        self.met.pop_front()
    }

    /// The provider keeps memory that has to be given back now.
    pub(super) fn demand_renewal(&mut self) {
        self.renewal = true;
    }

    /// That has been found already.
    pub(super) fn renewal_is_due(&self) -> bool {
        self.renewal
    }

    fn forget_read(&mut self, link: LinkId, token: u64) {
        self.reports.retain(|report| {
            !matches!(*report,
                Report::ReadDone { link: l, token: t, .. } | Report::Reading { link: l, token: t }
                    if (l, t) == (link, token))
        });
    }

    pub(super) fn forget_registration(&mut self, link: LinkId, token: u64) {
        let gone = Report::Registered { link, token };
        self.reports.retain(|report| *report != gone);
    }

    fn forget_link(&mut self, link: LinkId) {
        self.reports.retain(|report| report.link() != link);
    }
}

/// The limit of looks for completions in a call that gives memory back, before harsher means.
pub(super) struct LookLimit {
    /// `None` before the first look.
    begun: Option<Duration>,
    span: Duration,
    looks: u32,
    /// After the first looks there is one before each.
    pause: Duration,
    /// All of them.
    paused: Duration,
}

impl LookLimit {
    pub(super) fn new() -> Self {
        Self::of(LOOKING_MAX)
    }

    /// For when nothing milder is left than to close the endpoint that all links share.
    pub(super) fn last() -> Self {
        Self::of(LAST_LOOKING_MAX)
    }

    /// For reads that will end if their peer lives, where ending them ends its connection.
    pub(super) fn between_pieces() -> Self {
        Self {
            pause: PAUSE,
            ..Self::of(BETWEEN_PIECES_MAX)
        }
    }

    fn of(span: Duration) -> Self {
        Self {
            begun: None,
            span,
            looks: 0,
            pause: Duration::ZERO,
            paused: Duration::ZERO,
        }
    }

    /// Something was found.
    pub(super) fn begin_again(&mut self) {
        self.begun = None;
    }

    /// May one look again?
    pub(super) fn again(&mut self) -> bool {
        self.looks += 1;
        let span = if self.looks < LOOKS_MIN {
            LAST_LOOKING_MAX.max(self.span)
        } else {
            self.span
        };
        if self.looks > LOOKS_MIN && !self.pause.is_zero() {
            std::thread::sleep(self.pause);
            self.paused += self.pause;
        }
        let now = worked() + self.paused;
        now.saturating_sub(*self.begun.get_or_insert(now)) < span
    }
}

/// The processor time of this thread. A process that was not scheduled for a while must not lose
/// its links.
fn worked() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: an output of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn segments_of<M: Memory>(memory: &M) -> Segments {
    let mut segments = Segments::new();
    memory.visit(0, memory.len(), |piece| {
        segments.push((piece.as_ptr().cast_mut(), piece.len()));
    });
    segments
}

/// Less than this is copied: asking for a piece and telling of its end costs about as much as
/// copying this many bytes twice.
pub(super) const READ_MIN: usize = 32 * 1024;

/// If pieces are shorter than this on average, copying them together is cheaper than an operation
/// for each.
pub(super) const PIECE_MIN: usize = 16 * 1024;

/// Events taken from the queue at a time.
const LOOK_EVENTS: usize = 64;

/// A peer that says it is done has sent its transport's last word before, so it is there after a
/// few looks, of about a microsecond each where nothing else has come.
const LOOKS_MIN: u32 = 250;

/// After so many looks, no more than this of a processor is spent on them: more find nothing either.
const LOOKING_MAX: Duration = Duration::from_micros(500);

/// The limit for any number of them, as the call must not block.
const LAST_LOOKING_MAX: Duration = Duration::from_millis(4);

/// The limit between the ends of two pieces: a peer that is silent so long may have gone.
const BETWEEN_PIECES_MAX: Duration = Duration::from_millis(250);

/// The pause between looks for a piece that does not end at once.
const PAUSE: Duration = Duration::from_micros(200);

#[cfg(test)]
impl Remote {
    /// Reads and registrations under way.
    fn counts(&self) -> (usize, usize) {
        self.rma.as_ref().map_or((0, 0), Rma::counts)
    }
}

#[cfg(test)]
mod tests;
