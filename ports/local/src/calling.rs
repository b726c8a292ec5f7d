//! Calling memory in for those that wait for it.
//!
//! ```text
//!   while somebody waits and there is no memory
//!
//!   has had it for TURN --> called: nothing is sent, no room is given back,  --agreed--> Asleep
//!                           so it comes to rest; asked at every look
//!                             |                       `-- nobody waits any more: goes on
//!                             `-- 5 s without agreeing, and still needed: down
//! ```
//!
//! Idle links are asked by `slumber`, and that does in most cases. What is left is busy or does not
//! answer. A busy peer of ours fills its ring at most, finds the question, and agrees once we have
//! taken everything: a matter of milliseconds, after which its link waits in its turn. It answers from
//! whichever thread polls, also when the application computes. So who has not agreed within seconds
//! is stopped, or no peer of ours.
//!
//! A called link that does not answer at once keeps nobody: more are called, and as soon as
//! one gives its memory back the others go on. Only where none does is the first one cut off.
//!
//! Owns: which links are called, and for how long they may stay silent.
//! Knows nothing of: idle links, who gets the memory.

use super::link::{Entry, Link, State};
use super::rest::Rest;
use super::slumber::LEAST_BYTES;
use super::{LocalPort, ring_doorbell};
use mx_proto::origin::Source;
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId};
use std::time::Duration;

impl LocalPort {
    /// Somebody waits, and there is no memory for it.
    pub(super) fn missing(&self) -> Option<Missing> {
        let mut missing = Missing::default();
        for id in &self.wanting {
            let Some(entry) = self.links.get(*id) else {
                continue;
            };
            let source = entry.source;
            if !matches!(entry.state, State::Wanted) || self.budget.choose(source).is_some() {
                continue;
            }
            if !self.budget.is_greedy(source) {
                missing.of_all += LEAST_BYTES;
                continue;
            }
            missing.of_greedy += LEAST_BYTES;
            if !missing.greedy.contains(&source) {
                missing.greedy.push(source);
            }
        }
        (missing.of_all + missing.of_greedy > 0).then_some(missing)
    }

    /// Calls links in until `missing` bytes are to be expected, and ends those that have been called
    /// for too long.
    pub(super) fn call_in(&mut self, now: Instant, mut missing: Missing) {
        let mut called = std::mem::take(&mut self.called);
        called.retain(|id| {
            self.links
                .get(*id)
                .is_some_and(|entry| entry.called.is_some())
        });
        self.cut_off(&mut called, now);
        let expected = called.iter().filter_map(|id| self.links.get(*id));
        for entry in expected.filter(|entry| entry.called_for(now) < Some(ANSWERS_WITHIN)) {
            missing.take(entry.source, entry.state.bytes());
        }
        self.call_more(&mut called, now, missing);
        for id in &called {
            let Some(link) = self.links.get_mut(*id).and_then(Entry::rings) else {
                continue;
            };
            link.hold();
            if !matches!(link.rest(), Rest::Awake) {
                self.attend(*id);
            }
        }
        let asked: Vec<(Instant, LinkId)> = called.iter().map(|id| (now, *id)).collect();
        self.called = called;
        self.ask(&asked, now);
    }

    /// Ends links that have been called for too long, as many as it takes.
    fn cut_off(&mut self, called: &mut Vec<LinkId>, now: Instant) {
        let mut missing = self.missing().unwrap_or_default();
        called.retain(|id| {
            let Some(entry) = self.links.get(*id) else {
                return false;
            };
            let cut = entry.called_for(now) >= Some(AGREES_WITHIN)
                && missing.take(entry.source, entry.state.bytes());
            if cut {
                log::info!(
                    "{:?}: {id:?} does not give memory back that others wait for",
                    self.name
                );
                self.doom(*id, LinkDown::TimedOut);
            }
            !cut
        });
    }

    /// Calls links that have had memory for long: strangers that have never said anything, then
    /// those that have had it for longest.
    fn call_more(&mut self, called: &mut Vec<LinkId>, now: Instant, mut missing: Missing) {
        if missing.is_over() {
            return;
        }
        let mut callable = Vec::new();
        for id in &self.awake {
            if let Some(entry) = self.links.get(*id)
                && entry.called.is_none()
                && let Some(since) = entry.held_since
                && now.since(since) >= TURN
            {
                callable.push((entry.known, since, *id));
            }
        }
        callable.sort_unstable_by_key(|(known, since, _)| (*known, *since));
        for (_, _, id) in callable {
            if let Some(entry) = self.links.get_mut(id)
                && missing.take(entry.source, entry.state.bytes())
            {
                entry.called = Some(now);
                called.push(id);
            }
        }
    }

    /// Nobody waits any more: links that are called go on. The time of those that have not answered
    /// yet runs on, for when somebody waits again.
    pub(super) fn let_go(&mut self) {
        let mut called = std::mem::take(&mut self.called);
        called.retain(|id| {
            let Some(entry) = self.links.get_mut(*id) else {
                return false;
            };
            if let Some(link) = entry.rings()
                && link.let_go()
            {
                ring_doorbell(&entry.socket);
            }
            if entry.blocked && !matches!(entry.state, State::Waking(_)) {
                self.stay_up(*id);
                self.warm(*id);
            }
            match self.links.get_mut(*id) {
                Some(entry) if matches!(entry.state, State::Asking(_) | State::Waking(_)) => {
                    entry.called.is_some()
                }
                Some(entry) => {
                    entry.called = None;
                    false
                }
                None => false,
            }
        });
        self.called = called;
    }
}

/// Bytes that links wait for.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Whoever has memory may have to give some.
    of_all: usize,
    /// These have their share: only theirs.
    of_greedy: usize,
    greedy: Vec<Source>,
}

impl Missing {
    /// Links of `source` may have to give theirs.
    pub(super) fn concerns(&self, source: Source) -> bool {
        self.of_all > 0 || self.greedy.contains(&source)
    }

    /// A link of `source` gives so much, if any is missing still that it may have to give.
    pub(super) fn take(&mut self, source: Source, bytes: usize) -> bool {
        let missing = match self.greedy.contains(&source) && self.of_greedy > 0 {
            true => &mut self.of_greedy,
            false => &mut self.of_all,
        };
        let some = *missing > 0;
        *missing = missing.saturating_sub(bytes);
        some
    }

    fn is_over(&self) -> bool {
        self.of_all + self.of_greedy == 0
    }
}

impl Entry {
    /// The rings, if the link has some.
    fn rings(&mut self) -> Option<&mut Link> {
        match &mut self.state {
            State::Up(link) | State::Asking(link) => Some(link),
            _ => None,
        }
    }

    fn called_for(&self, now: Instant) -> Option<Duration> {
        self.called.map(|at| now.since(at))
    }
}

/// Who gets memory has it for so long, however many wait: a sleep and a wake-up cost a small part
/// of it.
const TURN: Duration = Duration::from_millis(100);

/// A peer that polls has agreed by then. If not, others are called as well.
const ANSWERS_WITHIN: Duration = Duration::from_millis(20);

/// A peer that has not agreed by then is stopped, or not one of ours. What waits meanwhile has
/// operations that may time out (`BMI_MX_PEER_TIMEOUT_MS`, 20 s).
const AGREES_WITHIN: Duration = Duration::from_secs(5);
