//! Links falling asleep.
//!
//! ```text
//!     A                                                   B
//!     idle for long: asks in the shared word, rings --->  nothing in the rings: agrees there,
//!     gives the memory back                 <--- rings    gives the memory back
//! ```
//!
//! The word is the agreement ([`rest`](super::rest)), doorbells only draw attention to it. Nobody waits
//! for an answer to a question: who wants to send after all takes it back.
//!
//! Links that may fall asleep are looked at several times in the time they must be idle for.
//! Sleeping ones cost no look and no time, only an [`Entry`] and the kernel's socket.
//!
//! Owns: when links sleep.
//! Knows nothing of: how they wake up.

use super::calling::Missing;
use super::layout::Geometry;
use super::link::{Entry, State};
use super::rest::Rest;
use super::ring::Corrupt;
use super::{LocalPort, barrier, ring_doorbell};
use mx_proto::{Clock, Instant, LinkId};
use std::time::Duration;

impl LocalPort {
    /// Looks after links that are idle, and those that want memory.
    pub(super) fn tend(&mut self, clock: &dyn Clock) {
        let handed_over = self.serve();
        let missing = self.missing();
        if missing.is_none() {
            self.let_go();
        }
        if self.awake.is_empty() && self.wanting.is_empty() {
            self.next_look = None;
            return;
        }
        let Some(idle_timeout) = self.budget.idle_timeout(missing.is_some()) else {
            return;
        };
        let now = clock.now();
        let pause = (idle_timeout / 4).max(LEAST_PAUSE);
        if self.next_look.is_some_and(|at| at <= now) {
            self.look_for_idle(now, missing);
            self.next_look = Some(now.after(pause));
        }
        if !handed_over {
            // No descriptor: nobody says when there is one again.
            self.next_look = Some(now.after(STARVED_PAUSE));
            return;
        }
        let latest = now.after(pause);
        self.next_look = Some(self.next_look.map_or(latest, |at| at.min(latest)));
    }

    /// Asks the peers of links that have been idle for `idle_timeout`, and calls in more memory if that
    /// is not enough.
    fn look_for_idle(&mut self, now: Instant, missing: Option<Missing>) {
        let idle_timeout = |wanted| self.budget.idle_timeout(wanted).unwrap_or(Duration::MAX);
        let (calm, hurried) = (idle_timeout(false), idle_timeout(true));
        let mut idle = Vec::new();
        let mut asked = Vec::new();
        for id in &self.awake {
            let Some(entry) = self.links.get_mut(*id) else {
                continue;
            };
            entry.held_since.get_or_insert(now);
            let (blocked, called) = (entry.blocked, entry.called.is_some());
            let wanted = missing.as_ref().is_some_and(|it| it.concerns(entry.source));
            let idle_timeout = if wanted { hurried } else { calm };
            match &mut entry.state {
                State::Up(link) => {
                    let counts = link.counts();
                    match link.seen {
                        Some((seen, since)) if seen == counts && !blocked => {
                            if !matches!(link.rest(), Rest::Awake) {
                                asked.push(*id);
                            } else if !called && now.since(since) >= idle_timeout {
                                idle.push((since, *id));
                            }
                        }
                        _ => link.seen = Some((counts, now)),
                    }
                }
                // A refusal does not ring.
                State::Asking(_) => asked.push(*id),
                _ => {}
            }
        }
        for id in asked {
            self.attend(id);
        }
        let Some(mut missing) = missing else {
            return self.ask(&idle, now);
        };
        // As many as it takes, those that have been idle for longest.
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle.retain(|(since, id)| {
            let Some(entry) = self.links.get(*id) else {
                return false;
            };
            // Nobody waits for those of a source that has its share but its own.
            missing.take(entry.source, entry.state.bytes())
                || !missing.concerns(entry.source) && now.since(*since) >= calm
        });
        self.ask(&idle, now);
        self.call_in(now, missing);
    }

    pub(super) fn ask(&mut self, idle: &[(Instant, LinkId)], now: Instant) {
        if idle.is_empty() {
            return;
        }
        for (_, id) in idle {
            if let Some(entry) = self.links.get_mut(*id) {
                entry.set_asleep(true);
            }
        }
        // One for all of them: it is the dear part.
        barrier::heavy();
        for (_, id) in idle {
            let Some(entry) = self.links.get_mut(*id) else {
                continue;
            };
            if entry.wants_poll() {
                let asleep = self.armed || entry.idle;
                entry.set_asleep(asleep);
                continue;
            }
            self.deactivate(*id);
            // Sleeping, it leaves nothing in the kernel.
            self.hear(*id);
            if let Some(entry) = self.links.get_mut(*id)
                && let State::Up(link) = &mut entry.state
            {
                link.seen = Some((link.counts(), now));
                if link.ask() {
                    ring_doorbell(&entry.socket);
                    self.turn(*id, |state| match state {
                        State::Up(link) => State::Asking(link),
                        other => other,
                    });
                }
            }
        }
        self.drop_idle();
    }

    /// A link's doorbell has rung, or it is time to look at it: packets, a question, an answer.
    pub(super) fn attend(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        match &entry.state {
            State::Up(link) => match link.rest() {
                Rest::Awake => self.warm(id),
                Rest::AskedByThem { .. } => {
                    self.hear(id);
                    self.answer(id);
                }
                Rest::AskedByUs | Rest::Asleep => self.fail(id),
            },
            State::Asking(link) => match link.rest() {
                Rest::Asleep => self.fall_asleep(id),
                Rest::AskedByUs if !link.consumer.is_ready() => {}
                Rest::AskedByUs | Rest::Awake => {
                    self.stay_up(id);
                    self.warm(id);
                }
                // Refused before we looked; now they ask.
                Rest::AskedByThem { .. } => {
                    self.stay_up(id);
                    self.attend(id);
                }
            },
            _ => {}
        }
    }

    /// Agrees to the peer's question, or refuses.
    fn answer(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let State::Up(link) = &entry.state else {
            return;
        };
        let Rest::AskedByThem { even } = link.rest() else {
            return self.warm(id);
        };
        let fit = even && !link.failed && entry.socket.is_some();
        if fit && link.agree() {
            ring_doorbell(&entry.socket);
            self.fall_asleep(id);
        } else {
            link.refuse();
            self.warm(id);
        }
    }

    /// Takes the question back, if it has not been agreed to. Then the link is up again, else it
    /// sleeps.
    pub(super) fn stay_up(&mut self, id: LinkId) {
        let Some(Entry {
            state: State::Asking(link),
            ..
        }) = self.links.get(id)
        else {
            return;
        };
        let back = link.take_back();
        if back == Ok(false) {
            return self.fall_asleep(id);
        }
        let held = link.is_held();
        if !held && let Some(entry) = self.links.get_mut(id) {
            entry.called = None;
        }
        self.turn(id, |state| match state {
            State::Asking(mut link) => {
                link.failed |= back == Err(Corrupt);
                link.seen = None;
                State::Up(link)
            }
            other => other,
        });
    }

    /// Both sides have agreed: the memory goes.
    fn fall_asleep(&mut self, id: LinkId) {
        self.deactivate(id);
        self.turn(id, |_| State::Asleep);
        self.drop_idle();
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let blocked = entry.blocked;
        self.stats.slept += 1;
        if blocked {
            self.want(id);
        }
        if !self.wanting.is_empty() {
            self.control_wanted = true;
        }
    }
}

/// How long it takes until memory that could not be handed over is offered again.
const STARVED_PAUSE: Duration = Duration::from_millis(100);

/// Idle links are not looked for more often.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// What one link that wants memory gets at least.
pub(super) const LEAST_BYTES: usize = Geometry::SMALLEST.total();
