//! All deadlines of an endpoint, in one timer wheel.
//!
//! ```text
//!   operations' time-outs  --.
//!   silence of remotes    --+
//!   Pings to remotes      --+--> wheel --> expire, in full polls
//!   epochs of flow control --+
//!   memory for the inbox   --+
//!   what the owner set     --'
//! ```
//!
//! The clock is read when there is a deadline, and only by full polls.
//!
//! Owns: the deadlines.

use super::Endpoint;
use crate::event::Event;
use crate::ids::{RemoteId, RequestId};
use crate::ops::State;
use crate::owner::Owner;
use crate::port::Port;
use crate::status::Status;
use crate::time::{Clock, Instant};
use crate::timer::TimerId;
use std::time::Duration;

/// The resolution of deadlines.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// The resolution of operations' time-outs, so that many expire in one wake-up.
pub(super) const OPS: Duration = Duration::from_millis(64);

/// The subject of a deadline; ignored if it is gone when the deadline comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deadline {
    /// An operation has taken too long.
    Op(RequestId),
    /// A step of the time ends in which a remote may be silent.
    Silence(RemoteId),
    /// The data links of a session are to be looked at.
    DataLinks(RemoteId),
    /// A session has to have moved.
    Move(RemoteId),
    /// An epoch of flow control has lasted long enough.
    Epoch,
    /// There was no memory for a message of the inbox.
    Memory,
    /// The owner's own.
    Owner(u64),
}

/// A deadline of the owner's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reminder(TimerId);

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// At `at`, or a little later, there is an [`Event::Due`] with `word`, once.
    pub fn remind(&mut self, at: Instant, word: u64) -> Reminder {
        let now = self.clock.now();
        Reminder(self.wheel.set(now, at, Deadline::Owner(word)))
    }

    /// No [`Event::Due`] with that word is wanted any more. It may have come already; then no other deadline may have the
    /// same word.
    pub fn forget_reminder(&mut self, reminder: Reminder, word: u64) {
        let Reminder(timer) = reminder;
        self.wheel.clear_of(timer, Deadline::Owner(word));
    }

    /// Handles expired deadlines.
    #[cold]
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let mut busy = false;
        // Silence counts in steps of its own (`liveness`).
        let of_peer = |deadline| matches!(deadline, Deadline::Op(_) | Deadline::Owner(_));
        while let Some((deadline, due)) = self.wheel.expired_or_put_off(now, of_peer) {
            match deadline {
                Deadline::Op(id) => busy |= self.end_late(id, now),
                Deadline::Silence(id) => {
                    busy = true;
                    self.end_step(id, due, now);
                }
                Deadline::DataLinks(id) => self.look_at_data_links(id),
                Deadline::Move(id) => {
                    busy = true;
                    self.end_move_time(id);
                }
                Deadline::Epoch => self.end_epoch(now),
                Deadline::Memory => self.ask_again(),
                Deadline::Owner(word) => {
                    busy = true;
                    self.events.push_back(Event::Due(word));
                }
            }
        }
        busy
    }

    /// An operation's time is over. False: it goes on.
    fn end_late(&mut self, id: RequestId, now: Instant) -> bool {
        let Some(record) = self.ops.get_mut(id) else {
            return false;
        };
        record.timer = None;
        if std::mem::take(&mut record.touched) && record.state.is_renewed() {
            self.start_timer(id, now);
            return false;
        }
        if let State::Withdrawn { status, .. } = record.state {
            log::debug!("a withdrawn send was not answered: deregistering its memory anyway");
            self.complete(id, status, 0);
            return true;
        }
        self.stats.timeouts += 1;
        self.end_unexpected(id, Status::Timeout, now);
        true
    }
}
