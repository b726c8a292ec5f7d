//! Active links, which every poll looks at, and preparing them for a sleep.
//!
//! ```text
//!                     a packet, a doorbell, a send
//!     idle  ------------------------------------------>  active: every poll takes packets from it
//!   prepared for sleeping: the peer rings   <------------  idle for 128 polls, while more links are
//!   its doorbells are polled rarely                retire         active than the minimum
//! ```
//!
//! Owns: the set of active links.
//! Out of scope: descriptors, links that are not up.

use super::link::{Entry, State, UNREAD_MAX};
use super::queue::Reason;
use super::{ACTIVE_KEPT, ACTIVE_MAX, IDLE_AFTER, LocalPort, STREAM, barrier};
use mx_proto::LinkId;
use smallvec::SmallVec;

impl LocalPort {
    /// Prepares all links for a sleep; see [`mx_proto::port::LinkControl::arm`].
    pub(super) fn arm(&mut self) -> bool {
        for at in 0..self.active.len() {
            let id = self.active[at];
            if self.links.get(id).is_some_and(|it| it.unread >= UNREAD_MAX) {
                self.note(id, Reason::Socket);
            }
        }
        if self.control_wanted || !self.queue.is_empty() {
            return false;
        }
        self.set_active_asleep(true);
        barrier::heavy();
        for at in 0..self.active.len() {
            if self
                .links
                .get_mut(self.active[at])
                .is_some_and(Entry::wants_poll)
            {
                self.set_active_asleep(false);
                return false;
            }
        }
        self.armed = true;
        true
    }

    /// Ends a sleep; see [`mx_proto::port::LinkControl::disarm`].
    pub(super) fn disarm(&mut self) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        self.slept = true;
        // Beyond the few links that are cheap to poll, links stay armed for sleeping.
        let mut kept = 0;
        for id in &self.active {
            let Some(entry) = self.links.get_mut(*id) else {
                continue;
            };
            // A link that has rung will not ring again until rearmed; nor does one whose packet had arrived when
            // another thread rearmed it (`take_doorbells`) and had no budget left to take the packet.
            if kept < ACTIVE_KEPT || entry.blocked || !entry.is_asleep() || entry.wants_poll() {
                kept += 1;
                entry.set_asleep(false);
            } else {
                entry.deactivate();
            }
        }
        if kept < self.active.len() {
            self.drop_idle();
        }
    }

    /// Handles rare conditions of an active link: room again, hang-up, a stream, retirement.
    #[cold]
    #[inline(never)]
    pub(super) fn visit_oddity(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let blocked = entry.blocked;
        let Some(link) = entry.up() else { return };
        let room = if blocked {
            link.producer.has_room()
        } else {
            Ok(false)
        };
        let cooling = link.idle >= IDLE_AFTER && !blocked;
        let streams = link.chunks == STREAM;
        if room.is_err() {
            return self.fail(id);
        }
        if let Some(reason) = entry.verdict() {
            return self.end(id, reason);
        }
        if room == Ok(true) && entry.socket.is_some() {
            return self.note(id, Reason::Room);
        }
        if streams {
            self.grow(id);
        }
        if cooling && self.active.len() > ACTIVE_KEPT {
            self.retire(IDLE_AFTER);
        }
    }

    /// Marks a link as in use. An idle link becomes active: every poll looks at it, and its peer need not ring.
    pub(super) fn keep_active(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let State::Up(link) = &mut entry.state else {
            return;
        };
        link.idle = 0;
        if !std::mem::replace(&mut link.active, true) {
            // While this side sleeps, the peer keeps ringing.
            if !self.armed {
                entry.unread += u8::from(link.consumer.set_sleeping(false));
            }
            self.make_active(id);
        }
    }

    /// Removes the links that have been deactivated.
    fn drop_idle(&mut self) {
        let links = &self.links;
        self.active
            .retain(|id| links.get(*id).is_some_and(Entry::is_active));
    }

    /// Adds a link to the active ones; if there are too many, the longest idle retire.
    pub(super) fn make_active(&mut self, id: LinkId) {
        if self.active.len() >= ACTIVE_MAX {
            self.retire(0);
        }
        self.active.push(id);
    }

    /// Deactivates links that have been idle for `idle` polls, longest first, down to the number that stay active
    /// anyway. Links with something to do stay active.
    fn retire(&mut self, idle: u32) {
        let mut idlest: SmallVec<[(u32, LinkId); ACTIVE_MAX]> = SmallVec::new();
        for id in &self.active {
            if let Some(Entry {
                blocked: false,
                state: State::Up(link),
                ..
            }) = self.links.get(*id)
                && link.idle >= idle
            {
                idlest.push((link.idle, *id));
            }
        }
        idlest.sort_unstable_by_key(|(idle, _)| std::cmp::Reverse(*idle));
        idlest.truncate(self.active.len().saturating_sub(ACTIVE_KEPT));
        for (_, id) in &idlest {
            if let Some(entry) = self.links.get_mut(*id) {
                entry.set_asleep(true);
            }
        }
        // A single barrier for all links, because it is expensive.
        barrier::heavy();
        for (_, id) in idlest {
            let Some(entry) = self.links.get_mut(id) else {
                continue;
            };
            if entry.wants_poll() {
                entry.set_asleep(self.armed);
            } else {
                entry.deactivate();
            }
        }
        self.drop_idle();
    }

    pub(super) fn set_active_asleep(&mut self, asleep: bool) {
        for id in &self.active {
            if let Some(entry) = self.links.get_mut(*id) {
                entry.set_asleep(asleep);
            }
        }
    }
}
