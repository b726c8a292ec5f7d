//! Detection of dead remotes, while there are operations with them.
//!
//! ```text
//!   step  |  0  |  1  |  2  |  3  |  4  |  5  | ... | 15  |      1/16 of the time-out each
//!   heard |  x           nothing             |     |     |
//!               .     .     .     .  Ping                 lost: between 15/16 and 1 of the time-out
//!                                                         after the last packet
//! ```
//!
//! A packet sets a mark at its remote and reads no clock. The mark is checked at the end of each
//! step. If it is missing, the port is asked too: over a network with loss it may have received
//! datagrams although no packet is complete. A late check counts as one step, so that time in which
//! this process did not run is not counted.
//!
//! The port of the sending link is told to monitor the peer: if a dead peer shows only when
//! something is sent, the port sends something.
//!
//! A remote without operations has no timer. A running timer is not stopped, but ends at its next
//! step if there are no operations any more.
//!
//! Owns: how long a step is.

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

/// The limits of a remote's silence.
#[derive(Debug)]
pub(super) struct Liveness {
    /// `None`: no remote is monitored.
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
    /// There is something with a remote from now on.
    #[cold]
    pub(super) fn begin_monitoring(&mut self, remote: RemoteId) {
        if self.liveness.step.is_some() {
            let now = self.clock.now();
            self.monitor(remote, now);
        }
    }

    /// A step has ended, which was to be at `due`.
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

    /// Begins to monitor a remote, unless that has been done.
    pub(super) fn monitor(&mut self, id: RemoteId, now: Instant) {
        // One that has never answered is what connects have a time-out for.
        if self.liveness.step.is_some()
            && let Some(met) = self.remotes.connected_mut(id)
            && met.step.is_none()
        {
            met.silent = 0;
            self.port.monitor(met.tx.link(), true);
            self.next_step(id, now, now);
        }
    }

    /// Asks a remote whether it is still there, as another one has come with its name. An answer has the time that every
    /// silent remote has; a peer in its next life says at once that there is no such session.
    pub(super) fn ask_whether_there(&mut self, id: RemoteId, now: Instant) {
        self.monitor(id, now);
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        let RemoteState::Connected(met) = &mut remote.state else {
            return;
        };
        // Where silence has no end the next newcomer asks once more.
        met.asked = met.step.is_some();
        met.silent = met.silent.max(1);
        self.ask(id);
    }

    /// Sends a remote a Ping, unless one waits.
    pub(super) fn ask(&mut self, id: RemoteId) {
        if let Some(remote) = self.remotes.of_mut(id)
            && remote.standing(wire::Kind::Ping).is_none()
        {
            self.push_control(id, wire::Header::new(wire::Kind::Ping, 0, 0), &[]);
        }
    }

    /// The step that was to end at `due` has.
    fn next_step(&mut self, id: RemoteId, due: Instant, now: Instant) {
        let (Some(step), Some(met)) = (self.liveness.step, self.remotes.connected_mut(id)) else {
            return;
        };
        // Small delays must not add up, and a long one must not make the next step a short one.
        let began = if now.since(due) < step / 2 { due } else { now };
        let end = began.after(step).up_to(step / PARTS);
        met.silent += 1;
        met.step = Some(self.wheel.set(now, end, Deadline::Silence(id)));
    }

    /// The remote wants to know whether we are there, and says which question that is. One answer at a
    /// time is enough, to the last question, and all that is kept for a remote that reads none.
    pub(super) fn on_ping(&mut self, from: RemoteId, question: u64) {
        let Some(remote) = self.remotes.of_mut(from) else {
            return;
        };
        match remote.standing(wire::Kind::Pong) {
            // One of those that watch has no number.
            Some(pong) if question != 0 => pong.header.word = question,
            Some(_) => {}
            None => {
                let pong = wire::Header::new(wire::Kind::Pong, question, 0);
                self.push_control(from, pong, &[]);
            }
        }
    }
}

/// Steps in a time-out.
const STEPS: u32 = 16;

/// Silent steps after which a Ping is sent: late enough that an active peer gets none, early enough
/// for several round trips of a bad network.
const PING: u32 = 4;

/// Silent steps after which it is lost. With the one in which it was last heard, a time-out.
const LOST: u32 = STEPS - 1;

/// A step ends at a multiple of so many parts of it, with those of other remotes.
const PARTS: u32 = 8;

/// The shortest step: timers do not get finer.
const SHORTEST: Duration = Duration::from_millis(1);
