//! Strangers: incoming links that the endpoint has not yet bound to a remote.
//!
//! ```text
//!   accept --> [ oldest | ... | newest ] -- bound ----------------------> counts as its source's share
//!                                       |-- timed out ------------------> dropped
//!                                       `-- evicted for a newer link ---> dropped: the oldest of the source
//!                                                                         that has the most strangers
//! ```
//!
//! Owns: the order of strangers and their number per source. The caller recognises and skips links that have been bound
//! or closed meanwhile.
//! Out of scope: ports, sockets, bytes.
//! Cost: a queue entry per stranger; an eviction scans the queue.

use mx_proto::origin::Source;
use mx_proto::time::LATE;
use mx_proto::{Instant, LinkId};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Extra time for strangers after a late check of the port, in which it can read what they have sent meanwhile.
const GRACE: Duration = Duration::from_millis(250);

/// Queue entry of a stranger.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: LinkId,
    source: Source,
    until: Instant,
    /// Round in which the link was accepted.
    round: u32,
}

/// Incoming links of a port that the endpoint has not bound yet (strangers), the oldest first, with their deadlines and
/// their number per source. Links are closed by the caller.
#[derive(Debug)]
pub struct Strangers {
    /// Time within which each stranger has to be bound.
    within: Duration,
    queue: VecDeque<Waiting>,
    by_source: HashMap<Source, usize>,
    count: usize,
    round: u32,
    /// Time of the port's last check, and the time up to which deadlines count as passed.
    looked: Instant,
    looking: Instant,
    /// End of [`GRACE`] after a late check; no stranger expires before.
    resumes: Instant,
}

impl Strangers {
    /// Creates an empty list; each stranger has to be bound within this time.
    pub fn new(within: Duration) -> Self {
        Self {
            within,
            queue: VecDeque::new(),
            by_source: HashMap::new(),
            count: 0,
            round: 0,
            looked: Instant(0),
            looking: Instant(0),
            resumes: Instant(0),
        }
    }

    /// Returns true if there are no strangers.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of strangers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Begins a round of polling. From now on all strangers added before may be evicted, because they have been polled
    /// once.
    pub fn next_round(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Adds a link that was accepted at `now`, of this source.
    pub fn add(&mut self, id: LinkId, source: Source, now: Instant) {
        if self.count == 0 {
            (self.looked, self.looking, self.resumes) = (now, now, now);
        }
        self.count += 1;
        *self.by_source.entry(source).or_default() += 1;
        self.queue.push_back(Waiting {
            id,
            source,
            until: now.after(self.within),
            round: self.round,
        });
    }

    /// Removes a stranger of this source that has been bound or closed. `is_one` returns whether a link is still a
    /// stranger, which is false for this one.
    pub fn leave(&mut self, source: Source, is_one: impl Fn(LinkId) -> bool) {
        self.count = self.count.saturating_sub(1);
        if let Some(of_source) = self.by_source.get_mut(&source) {
            *of_source -= 1;
            if *of_source == 0 {
                self.by_source.remove(&source);
            }
        }
        while self.queue.front().is_some_and(|first| !is_one(first.id)) {
            self.queue.pop_front();
        }
        // Drop entries of closed links, which would accumulate behind an old stranger.
        if self.queue.len() > 2 * self.count + 64 {
            self.queue.retain(|waiting| is_one(waiting.id));
        }
        if self.queue.capacity() > 4 * self.queue.len() + 256 {
            self.queue.shrink_to(2 * self.queue.len());
            self.by_source.shrink_to(2 * self.by_source.len());
        }
    }

    /// Returns the time at which the oldest stranger expires; `None` if there are no strangers.
    pub fn deadline(&self) -> Option<Instant> {
        self.queue
            .front()
            .map(|first| first.until.max(self.resumes))
    }

    /// Returns the oldest stranger if it has expired; the caller closes it. If the port is checked late, because this
    /// process was stopped, strangers get a quarter of a second more: their introduction may be waiting unread in the
    /// socket, and one round reads only part of it.
    pub fn due(&mut self, now: Instant) -> Option<LinkId> {
        if now.since(self.looked) > LATE {
            (self.looking, self.resumes) = (self.looked, now.after(GRACE));
        } else if now >= self.resumes {
            self.looking = now;
        }
        self.looked = now;
        let first = self.queue.front()?;
        (first.until <= self.looking).then_some(first.id)
    }

    /// Returns the stranger to evict: the oldest of the source with the most strangers, silent ones first, but none
    /// accepted in this round, which has not been polled yet. `said` returns whether a stranger has sent anything;
    /// `None` if the link is no longer a stranger.
    pub fn victim(&self, said: impl Fn(LinkId) -> Option<bool>) -> Option<LinkId> {
        let most = self.by_source.values().copied().max()?;
        let mut spoke = None;
        for waiting in &self.queue {
            if waiting.round == self.round || self.by_source.get(&waiting.source) != Some(&most) {
                continue;
            }
            match said(waiting.id) {
                Some(false) => return Some(waiting.id),
                Some(true) => spoke = spoke.or(Some(waiting.id)),
                None => {}
            }
        }
        spoke
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> LinkId {
        LinkId::new(index, 0)
    }

    fn strangers() -> Strangers {
        Strangers::new(Duration::from_nanos(5))
    }

    #[test]
    fn oldest_of_the_greediest_source_is_evicted() {
        let mut strangers = strangers();
        strangers.add(id(0), Source(7), Instant(1));
        for index in 1..4 {
            strangers.add(id(index), Source(9), Instant(2));
        }
        assert_eq!(strangers.victim(|_| Some(false)), None, "no turn yet");
        strangers.next_round();
        assert_eq!(strangers.victim(|_| Some(false)), Some(id(1)));
        assert_eq!(strangers.victim(|at| Some(at == id(1))), Some(id(2)));
        assert_eq!(strangers.victim(|_| Some(true)), Some(id(1)));
        assert_eq!(strangers.due(Instant(5)), None);
        assert_eq!(strangers.due(Instant(6)), Some(id(0)));
        for index in 1..4 {
            strangers.leave(Source(9), |at| at == id(0) || at.index() > index);
        }
        assert_eq!((strangers.len(), strangers.queue.len()), (1, 4));
        strangers.leave(Source(7), |_| false);
        assert_eq!((strangers.len(), strangers.deadline()), (0, None));
        assert!(strangers.by_source.is_empty());
    }

    #[test]
    fn a_port_that_looks_late_has_time_to_read() {
        let mut strangers = strangers();
        strangers.add(id(0), Source(1), Instant(0));
        let late = Instant(0).after(LATE + Duration::from_nanos(1));
        assert_eq!(strangers.due(late), None);
        assert_eq!(strangers.due(late.after(GRACE / 2)), None);
        assert_eq!(strangers.deadline(), Some(late.after(GRACE)));
        assert_eq!(strangers.due(late.after(GRACE)), Some(id(0)));
        strangers.leave(Source(1), |_| false);
        strangers.add(id(0), Source(1), Instant(0).after(4 * LATE));
        assert_eq!(strangers.due(late.after(5 * LATE)), None);
        let again = late.after(7 * LATE);
        assert_eq!(strangers.due(again), Some(id(0)), "late again");
        strangers.leave(Source(1), |_| false);
        // Without strangers no check is needed, so none is late.
        strangers.add(id(1), Source(1), Instant(0).after(9 * LATE));
        assert_eq!(
            strangers.due(Instant(5).after(9 * LATE)),
            Some(id(1)),
            "that was in time"
        );
    }

    #[test]
    fn who_comes_and_is_let_in_leaves_nothing_behind_an_old_one() {
        let mut strangers = strangers();
        strangers.add(id(0), Source(1), Instant(5));
        for index in 1..10_000 {
            strangers.add(id(index), Source(2), Instant(5));
            strangers.leave(Source(2), |at| at == id(0));
        }
        assert!(strangers.queue.len() < 100 && strangers.len() == 1);
    }
}
