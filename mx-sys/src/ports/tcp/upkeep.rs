//! What the port does when a time has come: alarms, strangers that stay silent, peers that owe an
//! answer.
//!
//! ```text
//!   send --> doubted links --every quarter of the time a peer may be silent--> ask the kernel
//!                  ^                                                             |
//!                  `--- it has not acknowledged everything ----------------------'
//! ```
//!
//! Owns: when links are looked after; only those with which something was sent are.
//! Knows nothing of: epoll, how bytes become packets.
//! Cost: nothing for a link that is idle.

use super::alarms::Alarm;
use super::link::Phase;
use super::options::is_worth_a_line;
use super::{TcpPort, sys};
use mx_proto::port::{LinkDown, Sink};
use mx_proto::{Clock, Instant, LinkId, Memory};

impl TcpPort {
    /// What needs a clock and had none.
    #[cold]
    pub(super) fn do_chores(&mut self, now: Instant) {
        self.chores = false;
        for id in std::mem::take(&mut self.closing) {
            self.alarms
                .set(now.after(self.timing.linger), Alarm::Linger(id));
        }
        if !self.doubted.is_empty() && !self.vitals_set {
            self.vitals_set = true;
            self.alarms
                .set(now.after(self.timing.dead_after / 4), Alarm::Vitals);
        }
    }

    #[inline]
    pub(super) fn ring_alarms<M: Memory, S: Sink<M>>(
        &mut self,
        clock: &dyn Clock,
        sink: &mut S,
    ) -> bool {
        if self.alarms.next().is_none() {
            return false;
        }
        let now = clock.now();
        let mut did = false;
        while let Some(alarm) = self.alarms.ring(now) {
            did = true;
            match alarm {
                Alarm::Accept => self.accept_again(),
                Alarm::Vitals => self.look_after_links(now, sink),
                Alarm::Linger(id) => {
                    self.drop_link(id);
                }
                Alarm::Dial { link, attempt } => {
                    let phase = self.links.get(link).map(|link| &link.phase);
                    if matches!(phase, Some(Phase::Dialling(dial)) if dial.attempt == attempt) {
                        self.dialled(link, Some(LinkDown::TimedOut), clock, sink);
                    }
                }
                Alarm::Silence(id) => {
                    let phase = self.links.get(id).map(|link| &link.phase);
                    if matches!(phase, Some(Phase::Greeting)) {
                        self.drop_silent(id);
                    }
                }
            }
        }
        did
    }

    fn drop_silent(&mut self, id: LinkId) {
        let Some(link) = self.drop_link(id) else {
            return;
        };
        self.stats.silent += 1;
        let (peer, count) = (link.peer, self.stats.silent);
        if is_worth_a_line(count) {
            log::warn!("tcp: {peer} dropped: it did not introduce itself ({count} so far)");
        }
    }

    /// Takes down links whose peer owes an acknowledgement for too long.
    fn look_after_links<M: Memory, S: Sink<M>>(&mut self, now: Instant, sink: &mut S) {
        let patience = self.timing.dead_after / 2;
        let mut dead = Vec::new();
        let Self {
            links,
            doubted,
            timing,
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
                link.owes_since = None;
                link.doubted = false;
                return false;
            };
            if vitals.silent < patience || !vitals.unanswered {
                // It is slow, not gone: whatever it was asked it has answered.
                link.owes_since = None;
                return true;
            }
            let since = *link.owes_since.get_or_insert(now);
            if now.since(since) >= timing.dead_after / 4 {
                dead.push(id);
            }
            true
        });
        // A peer that was busy once need not have a place here for ever.
        doubted.shrink_to(2 * doubted.len());
        for id in dead {
            self.announce_down(id, LinkDown::TimedOut, sink);
        }
        self.vitals_set = !self.doubted.is_empty();
        if self.vitals_set {
            self.alarms
                .set(now.after(self.timing.dead_after / 4), Alarm::Vitals);
        }
    }
}
