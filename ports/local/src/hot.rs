//! The links that every poll looks at, and going to sleep with them.
//!
//! ```text
//!                     a packet, a doorbell, a send
//!     cold  ------------------------------------------>  hot: every poll takes packets from it
//!   prepared for sleeping: the peer rings   <------------  idle for some thousand polls, and more
//!   its doorbells are looked at now and then       cool         of them are hot than stay so anyway
//! ```
//!
//! Owns: which links are hot.
//! Knows nothing of: descriptors, links that are not up.

use super::link::{Entry, State};
use super::{COOL_AFTER, HOT_KEPT, HOT_MAX, LocalPort, barrier, ring, ring_doorbell};
use mx_proto::port::Sink;
use mx_proto::{LinkId, Memory, Source};
use smallvec::SmallVec;

/// What is left when a packet has been taken.
#[derive(Clone, Copy)]
struct After {
    /// There is another one.
    more: bool,
    /// Something is to be seen to that is not in the ring.
    odd: bool,
}

impl After {
    const NOTHING: Self = Self {
        more: false,
        odd: false,
    };
}

impl LocalPort {
    /// [`mx_proto::port::Port::arm`].
    pub fn arm(&mut self) -> bool {
        if self.control_wanted {
            return false;
        }
        self.set_hot_asleep(true);
        barrier::heavy();
        for at in 0..self.hot.len() {
            if self
                .links
                .get_mut(self.hot[at])
                .is_some_and(Entry::wants_poll)
            {
                self.set_hot_asleep(false);
                return false;
            }
        }
        self.armed = true;
        true
    }

    /// [`mx_proto::port::Port::disarm`].
    pub fn disarm(&mut self) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        self.slept = true;
        // Links beyond the few that are cheap to look at stay prepared for sleeping.
        let mut kept = 0;
        let mut at = 0;
        while let Some(id) = self.hot.get(at).copied() {
            let Some(entry) = self.links.get_mut(id) else {
                self.hot.swap_remove(at);
                continue;
            };
            // One that has rung meanwhile will not ring again until it is prepared anew.
            if kept < HOT_KEPT || entry.blocked || !entry.is_asleep() {
                kept += 1;
                at += 1;
                entry.set_asleep(false);
            } else {
                self.hot.swap_remove(at);
                self.chill(id);
            }
        }
    }

    /// Takes packets from the hot links. `all`: also looks for what is not in their rings.
    #[inline(always)]
    pub(super) fn poll_hot<M: Memory, S: Sink<M>>(
        &mut self,
        budget: usize,
        sink: &mut S,
        all: bool,
    ) -> bool {
        let mut links = self.hot.len();
        let mut left = budget;
        while links != 0 && left != 0 {
            links -= 1;
            let next = self.turn + 1;
            self.turn = if next < self.hot.len() { next } else { 0 };
            let Some(id) = self.hot.get(self.turn).copied() else {
                break;
            };
            let Some(entry) = self.links.get_mut(id) else {
                continue;
            };
            let State::Up(link) = &mut entry.state else {
                continue;
            };
            let mut odd = false;
            if link.consumer.is_ready() {
                let quota = match self.hot.len() {
                    1 => left,
                    _ => (budget / 4).clamp(1, left),
                };
                for _ in 0..quota {
                    left -= 1;
                    let after = self.take(id, sink);
                    odd |= after.odd;
                    if !after.more {
                        break;
                    }
                }
            } else if all {
                link.idle = link.idle.saturating_add(1);
                // For room the peer's line is pulled over: not while it is busy and has nothing for us.
                let cooling = link.idle >= COOL_AFTER && self.hot.len() > HOT_KEPT;
                odd = cooling || entry.is_odd();
            }
            if odd {
                left = left.saturating_sub(self.visit_oddity(id, sink));
            }
        }
        left != budget
    }

    /// Takes the packet that is next on a link.
    #[inline(never)]
    fn take<M: Memory, S: Sink<M>>(&mut self, id: LinkId, sink: &mut S) -> After {
        let Some(entry) = self.links.get_mut(id) else {
            return After::NOTHING;
        };
        let State::Up(link) = &mut entry.state else {
            return After::NOTHING;
        };
        match link.consumer.peek() {
            Ok(Some(packet)) => {
                entry.known = true;
                link.idle = 0;
                sink.on_packet(id, entry.cookie, &packet.header, &packet.body);
                if link.consumer.release(packet.body.len()) {
                    ring_doorbell(&entry.socket);
                }
                After {
                    more: link.consumer.is_ready(),
                    odd: entry.blocked | entry.socket.is_none(),
                }
            }
            Ok(None) => After::NOTHING,
            Err(ring::Corrupt) => {
                link.failed = true;
                After {
                    more: false,
                    odd: true,
                }
            }
        }
    }

    /// What is not an everyday matter in a visit: room again, the end, cooling down.
    #[cold]
    #[inline(never)]
    fn visit_oddity<M: Memory, S: Sink<M>>(&mut self, id: LinkId, sink: &mut S) -> usize {
        let Some(entry) = self.links.get_mut(id) else {
            return 0;
        };
        let (cookie, blocked) = (entry.cookie, entry.blocked);
        let Some(link) = entry.up() else { return 0 };
        let room = if blocked {
            link.producer.has_room()
        } else {
            Ok(false)
        };
        link.failed |= room.is_err();
        let cooling = link.idle >= COOL_AFTER && !blocked;
        if let Some(reason) = entry.verdict() {
            self.end(id, reason, sink);
            return 1;
        }
        if room == Ok(true) && entry.socket.is_some() {
            entry.blocked = false;
            sink.on_writable(id, cookie);
            return 1;
        }
        if cooling && self.hot.len() > HOT_KEPT {
            self.cool(COOL_AFTER);
        }
        0
    }

    /// Makes a cold link hot: it is looked at in every poll and need not ring.
    pub(super) fn warm(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let State::Up(link) = &mut entry.state else {
            return;
        };
        link.idle = 0;
        if entry.cold {
            entry.cold = false;
            // While we sleep it goes on ringing.
            if !self.armed {
                entry.unread += u8::from(link.consumer.set_sleeping(false));
            }
            self.cold -= 1;
            self.make_hot(id);
        }
    }

    /// No poll looks at this link from now on. It is not among the hot ones any more, or about to
    /// be taken out.
    pub(super) fn chill(&mut self, id: LinkId) {
        if let Some(entry) = self.links.get_mut(id)
            && !entry.cold
        {
            entry.cold = true;
            self.cold += 1;
        }
    }

    /// Takes those out that have been made cold.
    pub(super) fn drop_cold(&mut self) {
        let links = &self.links;
        let hot = |id: &LinkId| {
            links
                .get(*id)
                .is_some_and(|entry| matches!(entry.state, State::Up(_)) && !entry.cold)
        };
        self.hot.retain(hot);
    }

    /// Puts a link among the hot ones; when there are too many, the idlest cool down.
    pub(super) fn make_hot(&mut self, id: LinkId) {
        if self.hot.len() >= HOT_MAX {
            self.cool(0);
        }
        self.hot.push(id);
    }

    /// Makes hot links cold that have been idle for `idle` polls, the idlest first, until there are
    /// only as many left as stay hot anyway. Links with something to do stay hot.
    fn cool(&mut self, idle: u32) {
        let mut idlest: SmallVec<[(u32, LinkId); HOT_MAX]> = SmallVec::new();
        for id in &self.hot {
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
        idlest.truncate(self.hot.len().saturating_sub(HOT_KEPT));
        for (_, id) in &idlest {
            if let Some(entry) = self.links.get_mut(*id) {
                entry.set_asleep(true);
            }
        }
        // One for all of them: it is the dear part.
        barrier::heavy();
        for (_, id) in idlest {
            let Some(entry) = self.links.get_mut(id) else {
                continue;
            };
            if entry.wants_poll() {
                entry.set_asleep(self.armed);
            } else {
                self.chill(id);
            }
        }
        self.drop_cold();
    }

    pub(super) fn set_hot_asleep(&mut self, asleep: bool) {
        for id in &self.hot {
            if let Some(entry) = self.links.get_mut(*id) {
                entry.set_asleep(asleep);
            }
        }
    }
}
