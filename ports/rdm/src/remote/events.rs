//! Completions and reports of remote reads, and the search for a completion that a call waits for.
//!
//! Owns: reports not yet fetched.
//! Out of scope: what reads and registrations are.

use super::{PortContext, Report};
use crate::ops::{Op, Ops};
use mx_port_fabric::CqEvent;
use mx_proto::LinkId;
use nix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::time::Duration;

/// A completion: nothing, or the positive error number.
pub(super) type Outcome = Result<(), i32>;

/// Reports, and completions met out of turn.
#[derive(Default)]
pub(super) struct Events {
    /// Oldest first.
    pub(super) reports: VecDeque<Report>,
    /// Pieces whose end was taken from the queue while looking for something else; handled before the
    /// call ends.
    pub(super) met: VecDeque<(u32, Outcome)>,
    /// The provider keeps memory that has to be given back now.
    pub(super) renewal: bool,
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
    pub(super) fn look(&mut self, outlet: &mut PortContext<'_>) {
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
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

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
