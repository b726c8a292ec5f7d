//! The active links, which every poll looks at, and preparing them for a sleep.
//!
//! ```text
//!                     a packet, a doorbell, a send
//!     idle  ------------------------------------------>  active: every poll takes packets from it
//!   prepared for sleeping: the peer rings   <------------  idle for some thousand polls, and more are
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
    /// [`mx_proto::port::LinkControl::arm`].
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

    /// [`mx_proto::port::LinkControl::disarm`].
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
            // One that has rung since will not ring again until it is armed anew; nor does one for what had come
            // when another thread armed it again (`take_doorbells`) and had no budget left to take it.
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

    /// Rare events of a visit: room again, the end, retirement, a stream.
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

    /// Notes that a link is in use. An idle one becomes active: every poll looks at it, and it need not ring.
    pub(super) fn keep_active(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let State::Up(link) = &mut entry.state else {
            return;
        };
        link.idle = 0;
        if !std::mem::replace(&mut link.active, true) {
            // While this side sleeps, the link keeps ringing.
            if !self.armed {
                entry.unread += u8::from(link.consumer.set_sleeping(false));
            }
            self.make_active(id);
        }
    }

    /// Takes those out that have been made idle.
    fn drop_idle(&mut self) {
        let links = &self.links;
        self.active
            .retain(|id| links.get(*id).is_some_and(Entry::is_active));
    }

    /// Puts a link among the active ones; when there are too many, the idlest retire.
    pub(super) fn make_active(&mut self, id: LinkId) {
        if self.active.len() >= ACTIVE_MAX {
            self.retire(0);
        }
        self.active.push(id);
    }

    /// Makes active links idle that have been idle for `idle` polls, the idlest first, until there are
    /// only as many left as stay active anyway. Links with something to do stay active.
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
        // One barrier for all of them: it is the expensive part.
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
