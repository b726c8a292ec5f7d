//! Liveness: detection of dead remotes, while there are operations with them.
//!
//! ```text
//!   step  |  0  |  1  |  2  |  3  |  4  |  5  | ... | 15  |      1/16 of the time-out each
//!   heard |  x           nothing             |     |     |
//!               .     .     .     .  Ping                 lost: between 15/16 and 1 of the time-out
//!                                                         after the last packet
//! ```
//!
//! Handling a packet sets a mark at its remote and reads no clock. The end of each step checks the mark. If the mark is
//! missing, the port is asked, too, because over a lossy network it may have received datagrams although no packet is
//! complete. A late check counts as one step, so time in which this process did not run does not count.
//!
//! The port is told to monitor the peer of the sending link: if a dead peer shows only when something is sent, the port
//! sends something.
//!
//! A remote without operations has no timer. A running timer is not stopped; it ends at its next step if no operations
//! are left.
//!
//! Owns: the length of a step.

use super::Endpoint;
use super::deadlines::Deadline;
use crate::ids::RemoteId;
use crate::owner::Owner;
use crate::port::{LinkDown, Port};
use crate::remote::RemoteState;
use crate::status::DownReason;
use crate::time::{Clock, Instant};
use crate::wire;
use std::time::Duration;

/// Limit of a remote's silence.
#[derive(Debug)]
pub(super) struct Liveness {
    /// Length of a step; `None`: no remote is monitored.
    step: Option<Duration>,
}

impl Liveness {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self {
            step: timeout.map(|timeout| (timeout / STEPS).max(SHORTEST) / PARTS * PARTS),
        }
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Monitors a remote with which there are operations from now on.
    #[cold]
    pub(super) fn begin_monitoring(&mut self, remote: RemoteId) {
        if self.liveness.step.is_some() {
            let now = self.clock.now();
            self.monitor(remote, now);
        }
    }

    /// Handles the end of a step that was due at `due`.
    pub(super) fn end_step(&mut self, id: RemoteId, due: Instant, now: Instant) {
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        let idle = remote.operations.is_empty() && remote.connects.is_empty();
        let RemoteState::Connected(met) = &mut remote.state else {
            return;
        };
        met.step = None;
        if met.silent > 0 {
            let link = met.tx.link();
            if idle && !met.asked {
                return self.port.monitor(link, false);
            }
            let began = due.before(self.liveness.step.unwrap_or_default());
            if self.port.heard_at(link).is_some_and(|at| at >= began) {
                met.silent = 0;
            }
        }
        met.asked &= met.silent > 0;
        match u32::from(met.silent) {
            LOST => {
                self.stats.peer_timeouts += 1;
                return self.fail_remote(id, DownReason::Link(LinkDown::TimedOut));
            }
            PING => self.ask(id),
            _ => {}
        }
        self.next_step(id, due, now);
    }

    pub(super) fn monitor(&mut self, id: RemoteId, now: Instant) {
        // A remote that has never answered is left to the time-outs of its connects.
        if self.liveness.step.is_some()
            && let Some(met) = self.remotes.connected_mut(id)
            && met.step.is_none()
        {
            met.silent = 0;
            self.port.monitor(met.tx.link(), true);
            self.next_step(id, now, now);
        }
    }

    /// Asks a remote whether it is still alive, because another peer has connected under its name. The answer has as
    /// much time as every silent remote has; a peer in its next life answers at once that there is no such session.
    pub(super) fn ask_whether_there(&mut self, id: RemoteId, now: Instant) {
        self.monitor(id, now);
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        let RemoteState::Connected(met) = &mut remote.state else {
            return;
        };
        // Without a peer time-out, the next newcomer asks once more.
        met.asked = met.step.is_some();
        met.silent = met.silent.max(1);
        self.ask(id);
    }

    /// Sends a Ping to a remote, unless one is queued.
    pub(super) fn ask(&mut self, id: RemoteId) {
        if let Some(remote) = self.remotes.of_mut(id)
            && remote.standing(wire::Kind::Ping).is_none()
        {
            self.push_control(id, wire::Header::new(wire::Kind::Ping, 0, 0), &[]);
        }
    }

    /// Begins the step after the one that was due to end at `due`.
    fn next_step(&mut self, id: RemoteId, due: Instant, now: Instant) {
        let (Some(step), Some(met)) = (self.liveness.step, self.remotes.connected_mut(id)) else {
            return;
        };
        // Small delays must not add up, and a long delay must not shorten the next step.
        let began = if now.since(due) < step / 2 { due } else { now };
        let end = began.after(step).up_to(step / PARTS);
        met.silent += 1;
        met.step = Some(self.wheel.set(now, end, Deadline::Silence(id)));
    }

    /// Answers a Ping, whose word identifies the question. Only one answer is queued at a time, to the latest question,
    /// so a remote that reads nothing costs no more memory.
    pub(super) fn on_ping(&mut self, from: RemoteId, question: u64) {
        let Some(remote) = self.remotes.of_mut(from) else {
            return;
        };
        match remote.standing(wire::Kind::Pong) {
            // A Ping of the liveness timer has no number.
            Some(pong) if question != 0 => pong.header.word = question,
            Some(_) => {}
            None => {
                let pong = wire::Header::new(wire::Kind::Pong, question, 0);
                self.push_control(from, pong, &[]);
            }
        }
    }
}

/// Number of steps in a time-out.
const STEPS: u32 = 16;

/// Number of silent steps before a Ping is sent: late enough that an active peer gets none, early enough for several
/// round trips over a bad network.
const PING: u32 = 4;

/// Number of silent steps after which a remote is lost. With the step in which it was last heard, they make one
/// time-out.
const LOST: u32 = STEPS - 1;

/// Number of parts of a step. A step ends at a multiple of such a part, together with steps of other remotes.
const PARTS: u32 = 8;

/// Shortest step: timers are no finer.
const SHORTEST: Duration = Duration::from_millis(1);
