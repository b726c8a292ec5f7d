//! Links that others began and that the endpoint has not bound.
//!
//! ```text
//!   accept --> [ oldest | ... | newest ] -- bound ----------------------> counts as its source's share
//!                                       |-- 5 s after it was accepted --> dropped
//!                                       `-- its place is needed --------> dropped: the oldest one of the
//!                                                                         source that has the most
//! ```
//!
//! Owns: their order and how many each source has. A link that is a stranger no more is recognised
//! by its count and left out when its turn comes.
//! Knows nothing of: sockets, bytes.
//! Cost: a queue entry a stranger; evicting one reads the queue until it is found.

use mx_proto::origin::Source;
use mx_proto::{Instant, LinkId};
use std::collections::{HashMap, VecDeque};

/// One that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: LinkId,
    source: Source,
    until: Instant,
    /// The poll that accepted it.
    round: u32,
}

/// All strangers of a port.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    queue: VecDeque<Waiting>,
    by_source: HashMap<Source, usize>,
    count: usize,
}

impl Strangers {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Somebody has come, and stays until then. Times never go back.
    pub(super) fn add(&mut self, id: LinkId, source: Source, until: Instant, round: u32) {
        self.count += 1;
        *self.by_source.entry(source).or_default() += 1;
        self.queue.push_back(Waiting {
            id,
            source,
            until,
            round,
        });
    }

    /// One of this source is a stranger no more. `is_one` says who still is.
    pub(super) fn leave(&mut self, source: Source, is_one: impl Fn(LinkId) -> bool) {
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
        // Those behind an old one do not pile up while it waits.
        if self.queue.len() > 2 * self.count + 64 {
            self.queue.retain(|waiting| is_one(waiting.id));
        }
        if self.queue.capacity() > 4 * self.queue.len() + 256 {
            self.queue.shrink_to(2 * self.queue.len());
            self.by_source.shrink_to(2 * self.by_source.len());
        }
    }

    /// When the oldest one's time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.queue.front().map(|first| first.until)
    }

    /// The oldest one, when its time is over.
    pub(super) fn due(&self, now: Instant) -> Option<LinkId> {
        let first = self.queue.front()?;
        (first.until <= now).then_some(first.id)
    }

    /// Whose place is given to another one: the oldest of the source that has the most, one that has
    /// been silent first. Nobody who came with this poll: it has had no turn. `said` tells of a
    /// stranger whether a packet of it has come; `None`: it is none any more.
    pub(super) fn victim(
        &self,
        round: u32,
        said: impl Fn(LinkId) -> Option<bool>,
    ) -> Option<LinkId> {
        let most = self.by_source.values().copied().max()?;
        let mut spoke = None;
        for waiting in &self.queue {
            if waiting.round == round || self.by_source.get(&waiting.source) != Some(&most) {
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

    #[test]
    fn the_oldest_of_the_greediest_source_makes_room_and_a_silent_one_first() {
        let mut strangers = Strangers::default();
        strangers.add(id(0), Source(7), Instant(5), 1);
        for index in 1..4 {
            strangers.add(id(index), Source(9), Instant(6), 1);
        }
        assert_eq!(strangers.victim(2, |_| Some(false)), Some(id(1)));
        assert_eq!(strangers.victim(2, |at| Some(at == id(1))), Some(id(2)));
        assert_eq!(strangers.victim(2, |_| Some(true)), Some(id(1)));
        assert_eq!(strangers.victim(1, |_| Some(false)), None, "no turn yet");
        assert_eq!(strangers.due(Instant(4)), None);
        assert_eq!(strangers.due(Instant(5)), Some(id(0)));
        for index in 1..4 {
            strangers.leave(Source(9), |at| at == id(0) || at.index() > index);
        }
        assert_eq!((strangers.len(), strangers.queue.len()), (1, 4));
        strangers.leave(Source(7), |_| false);
        assert_eq!((strangers.len(), strangers.deadline()), (0, None));
        assert!(strangers.by_source.is_empty());
    }

    #[test]
    fn who_comes_and_is_let_in_leaves_nothing_behind_an_old_one() {
        let mut strangers = Strangers::default();
        strangers.add(id(0), Source(1), Instant(5), 0);
        for index in 1..10_000 {
            strangers.add(id(index), Source(2), Instant(5), 0);
            strangers.leave(Source(2), |at| at == id(0));
        }
        assert!(strangers.queue.len() < 100 && strangers.len() == 1);
    }
}
