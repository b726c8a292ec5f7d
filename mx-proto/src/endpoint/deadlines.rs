//! Deadlines of an endpoint, in one timer wheel.
//!
//! ```text
//!   operations' time-outs  --.
//!   silence of remotes     --+
//!   checks of data links   --+
//!   time for a move        --+--> wheel --> expire, in full polls
//!   epochs of flow control --+
//!   memory for the inbox   --+
//!   the owner's reminders  --'
//! ```
//!
//! Only full polls look at the wheel, so other polls read no clock for it.
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

pub(super) const TICK: Duration = Duration::from_millis(1);

/// Resolution of operations' time-outs: coarse, so that many expire in one wake-up.
pub(super) const OPS: Duration = Duration::from_millis(64);

/// Subject of a deadline. A deadline whose subject no longer exists is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deadline {
    /// An operation has run out of time.
    Op(RequestId),
    /// A step in the monitoring of a silent remote ends.
    Silence(RemoteId),
    /// The data links of a session are due for a check.
    DataLinks(RemoteId),
    /// The time for a session's move is over.
    Move(RemoteId),
    /// An epoch of flow control has lasted long enough.
    Epoch,
    /// Memory for a message of the inbox, refused before, may be requested again.
    Memory,
    /// A reminder of the owner, with its word.
    Owner(u64),
}

/// Handle to cancel a reminder ([`Endpoint::forget_reminder`]). Dropping it cancels nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reminder(TimerId);

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Sets a reminder: [`Endpoint::next_event`] returns an [`Event::Due`] with `word` once, at `at` or a little later.
    /// No two reminders may have the same word.
    pub fn remind(&mut self, at: Instant, word: u64) -> Reminder {
        let now = self.clock.now();
        Reminder(self.wheel.set(now, at, Deadline::Owner(word)))
    }

    /// Cancels a reminder. Does nothing if it has expired; its event may then still be reported.
    ///
    /// `word` is the word given to [`Endpoint::remind`]. No two reminders may have the same word, because an expired
    /// reminder's slot may have been reused: the word tells whose it is.
    pub fn forget_reminder(&mut self, reminder: Reminder, word: u64) {
        let Reminder(timer) = reminder;
        self.wheel.clear_of(timer, Deadline::Owner(word));
    }

    /// Handles expired deadlines. Returns true if anything happened.
    #[cold]
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let mut busy = false;
        // Monitoring counts silence in steps of its own (`liveness`).
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

    /// Handles the end of an operation's time. Returns false if the operation goes on.
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
