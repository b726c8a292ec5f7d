//! Timed work: alarms, silent strangers, and peers with unacknowledged data.
//!
//! ```text
//!   send --> list of links --every dead_after / 4--> ask the kernel
//!                  ^                                     |
//!                  `--- unacknowledged data is left -----'
//! ```
//!
//! Owns: the times of checks; only links that have sent something are checked.
//! Out of scope: epoll.
//! Cost: nothing for an idle link.

use super::alarms::Alarm;
use super::link::Phase;
use super::options::is_worth_a_line;
use super::{TcpPort, sys};
use mx_proto::origin::Source;
use mx_proto::port::LinkDown;
use mx_proto::time::PeerDeadline;
use mx_proto::{Instant, LinkId};

impl TcpPort {
    /// Sets the alarms of events that had no clock.
    #[cold]
    pub(super) fn do_chores(&mut self, now: Instant) {
        self.chores = false;
        for id in std::mem::take(&mut self.closing) {
            self.alarms
                .set(now.after(self.options.linger), Alarm::Linger(id));
        }
        if !self.doubted.is_empty() && !self.vitals_set {
            self.vitals_set = true;
            self.alarms
                .set(now.after(self.options.dead_after / 4), Alarm::Health);
        }
    }

    #[inline]
    pub(super) fn ring_alarms(&mut self, now: Instant) -> bool {
        if self.alarms.next().is_none() && self.strangers.deadline().is_none() {
            return false;
        }
        let mut did = false;
        while let Some(id) = self.strangers.due(now) {
            did = true;
            self.drop_unbound(id);
        }
        while let Some(alarm) = self.alarms.ring(now) {
            did = true;
            match alarm {
                Alarm::Accept => self.accept_again(),
                Alarm::Health => self.look_after_links(now),
                Alarm::Linger(id) => {
                    self.drop_link(id);
                }
                Alarm::Dial { link, attempt } => {
                    let phase = self.links.get_mut(link).map(|link| &mut link.phase);
                    let Some(Phase::Dialling(dial)) = phase else {
                        continue;
                    };
                    if dial.attempt != attempt {
                        continue;
                    }
                    if dial.until.is_over(now) {
                        self.dialled(link, Some(LinkDown::TimedOut), now);
                    } else {
                        self.alarms.set(dial.until.at(), alarm);
                    }
                }
            }
        }
        did
    }

    /// Drops a stranger that has timed out.
    fn drop_unbound(&mut self, id: LinkId) {
        let Some(link) = self.links.get(id) else {
            return;
        };
        self.stats.silent += 1;
        let (peer, count) = (link.peer, self.stats.silent);
        if is_worth_a_line(count) {
            log::warn!("tcp: {peer} dropped: it did not introduce itself ({count} so far)");
        }
        self.announce_down(id, LinkDown::TimedOut);
    }

    /// Evicts a stranger. Returns false if none can be evicted.
    pub(super) fn evict(&mut self) -> bool {
        let links = &self.links;
        let said = |id| {
            links
                .get(id)
                .filter(|link| link.stranger)
                .map(|link| link.known || link.queued)
        };
        let Some(id) = self.strangers.victim(said) else {
            return false;
        };
        self.stats.evicted += 1;
        let count = self.stats.evicted;
        if is_worth_a_line(count)
            && let Some(link) = self.links.get(id)
        {
            let peer = link.peer;
            log::warn!("tcp: {peer} dropped to make room for others ({count} so far)");
        }
        self.announce_down(id, LinkDown::TimedOut);
        true
    }

    /// Removes a link from the strangers, because it has been bound or closed.
    pub(super) fn unlist_stranger(&mut self, source: Source) {
        let links = &self.links;
        self.strangers
            .leave(source, |id| links.get(id).is_some_and(|link| link.stranger));
    }

    /// Frees memory that many links needed which have ended.
    pub(super) fn give_back_memory(&mut self) {
        self.poll_set.shrink();
        self.pool.shrink();
        self.closing.shrink_to(2 * self.closing.len());
        self.doubted.shrink_to(2 * self.doubted.len());
        self.events.shrink_to(2 * self.events.len());
    }

    /// Takes down links whose peer's acknowledgement is overdue.
    fn look_after_links(&mut self, now: Instant) {
        let timeout = self.options.dead_after / 2;
        let mut dead = Vec::new();
        let Self {
            links,
            doubted,
            options,
            ..
        } = self;
        doubted.retain(|&id| {
            let Some(link) = links.get_mut(id) else {
                return false;
            };
            let owes = match link.phase {
                Phase::Open => sys::vitals(&link.fd).ok().flatten(),
                _ => None,
            };
            let Some(vitals) = owes else {
                link.owes_until = None;
                link.doubted = false;
                return false;
            };
            if vitals.silent < timeout || !vitals.unanswered {
                // The peer is slow, not dead: it has answered every probe.
                link.owes_until = None;
                return true;
            }
            let span = options.dead_after / 4;
            let fresh = || PeerDeadline::new(now.after(span));
            if link.owes_until.get_or_insert_with(fresh).is_over(now) {
                dead.push(id);
            }
            true
        });
        // Frees the memory of a busy time.
        doubted.shrink_to(2 * doubted.len());
        for id in dead {
            self.announce_down(id, LinkDown::TimedOut);
        }
        self.vitals_set = !self.doubted.is_empty();
        if self.vitals_set {
            self.alarms
                .set(now.after(self.options.dead_after / 4), Alarm::Health);
        }
    }
}
