//! Completions and reports of remote reads, and waiting for a completion within a call.
//!
//! Owns: reports not yet fetched.
//! Out of scope: the meaning of reads and registrations.

use super::{PortContext, Report};
use crate::ops::{Op, Ops};
use mx_port_fabric::CqEvent;
use mx_proto::LinkId;
use nix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::time::Duration;

/// Outcome of a completion: success, or the positive error number.
pub(super) type Outcome = Result<(), i32>;

/// Reports, and completions found out of order.
#[derive(Default)]
pub(super) struct Events {
    /// Reports, oldest first.
    pub(super) reports: VecDeque<Report>,
    /// Completions of pieces found while waiting for another; handled before the call ends.
    pub(super) met: VecDeque<(u32, Outcome)>,
    /// True if the provider keeps memory that has to be returned now.
    pub(super) renewal: bool,
}

impl Events {
    pub(super) fn report(&mut self, report: Report) {
        // Repeated progress is reported once.
        let repeated = !matches!(report, Report::ReadDone { .. })
            && self.reports.back().is_some_and(|last| *last == report);
        if !repeated {
            self.reports.push_back(report);
        }
    }

    /// Reads the queue; keeps completions of pieces here, others in the port's backlog.
    pub(super) fn look(&mut self, outlet: &mut PortContext<'_>) {
        let mut events = Vec::new();
        if outlet.domain.read(&mut events, LOOK_EVENTS).is_err() {
            // The port's next read gets the same error and handles it.
            return;
        }
        for event in events {
            if !self.meet(outlet.ops, &event) {
                outlet.backlog.push_back(event);
            }
        }
    }

    /// Keeps a completion of a piece. Returns false for other operations.
    fn meet(&mut self, ops: &mut Ops, event: &CqEvent) -> bool {
        let Some(Op::Read(piece)) = ops.of(event.context) else {
            return false;
        };
        ops.end(event.context);
        self.met.push_back((piece, event.outcome.map(drop)));
        true
    }

    pub(super) fn forget_read(&mut self, link: LinkId, token: u64) {
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

    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.reports.retain(|report| report.link() != link);
    }
}

/// Limit of queue reads in a call that revokes memory, before it takes harsher measures.
pub(super) struct LookLimit {
    /// Time of the first read; `None` before.
    begun: Option<Duration>,
    span: Duration,
    looks: u32,
    /// Pause before each read after the first [`LOOKS_MIN`].
    pause: Duration,
    /// Sum of the pauses.
    paused: Duration,
}

impl LookLimit {
    pub(super) fn new() -> Self {
        Self::of(LOOKING_MAX)
    }

    /// Limit for when the only measure left is to close the shared endpoint.
    pub(super) fn last() -> Self {
        Self::of(LAST_LOOKING_MAX)
    }

    /// Limit for reads that end if their peer is alive, where revoking them breaks its connection.
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

    /// Restarts the time after a completion.
    pub(super) fn begin_again(&mut self) {
        self.begun = None;
    }

    /// Returns whether the queue may be read again.
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

/// Returns the processor time of this thread, so that a process that was not scheduled for a while does not lose its
/// links.
fn worked() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Maximum number of completions read in one call.
const LOOK_EVENTS: usize = 64;

/// Number of reads to which only [`LAST_LOOKING_MAX`] applies. A peer's transport has sent its last message before the
/// peer reports completion, so that arrives within a few reads, of about a microsecond each when the queue is empty.
const LOOKS_MIN: u32 = 250;

/// Maximum processor time after [`LOOKS_MIN`] reads: more find nothing either.
const LOOKING_MAX: Duration = Duration::from_micros(500);

/// Maximum processor time for any number of reads, because the call must not block.
const LAST_LOOKING_MAX: Duration = Duration::from_millis(4);

/// Maximum time between the ends of two pieces: a peer that is silent longer may be dead.
const BETWEEN_PIECES_MAX: Duration = Duration::from_millis(250);

/// Pause between reads for a piece that does not end at once.
const PAUSE: Duration = Duration::from_micros(200);
