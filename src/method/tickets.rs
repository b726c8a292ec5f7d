//! Tickets for the sends that the endpoint has and that have not gone yet.
//!
//! ```text
//!   take --> out --it has gone, or is over--> free
//!   a peer that may have no further one --wait--> short: fewest tickets first, then who waits longest
//!                                                   `-- admit: the first, once it may have another
//! ```
//!
//! A peer may have as many as are still free, and always one: whoever takes nothing leaves room for the
//! others, however many such peers there are.
//!
//! Owns: who has which ticket, and who waits for one. Knows nothing of: what is sent, credits.
//! Cost: O(1) for what finds a ticket, O(log n) for one of n peers that wait, nothing while they do.

use crate::peer::table::PeerKey;
use foldhash::fast::RandomState;
use mx_proto::RequestId;
use std::collections::{BTreeMap, HashMap};

/// See the module.
#[derive(Debug)]
pub(crate) struct Tickets {
    limit: usize,
    out: HashMap<RequestId, PeerKey, RandomState>,
    short: BTreeMap<Place, PeerKey>,
    places: HashMap<PeerKey, Place, RandomState>,
    next_turn: u64,
}

/// The tickets a peer has, and when it began to wait for another.
type Place = (u32, u64);

impl Tickets {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            out: HashMap::default(),
            short: BTreeMap::new(),
            places: HashMap::default(),
            next_turn: 0,
        }
    }

    /// Tickets in use, and all there are.
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.out.len(), self.limit)
    }

    /// Peers that wait for one.
    pub(super) fn waiting(&self) -> usize {
        self.short.len()
    }

    /// May a peer that has `sends` have another one?
    #[inline]
    pub(crate) fn allow(&self, sends: u32) -> bool {
        sends == 0 || (sends as usize) < self.limit.saturating_sub(self.out.len())
    }

    /// A send of a peer's takes one.
    pub(super) fn take(&mut self, request: RequestId, key: PeerKey) {
        self.out.insert(request, key);
    }

    /// A send has gone. Gives whose ticket is free now, if it had one.
    pub(super) fn give_back(&mut self, request: RequestId) -> Option<PeerKey> {
        self.out.remove(&request)
    }

    /// A peer that has `sends` and does not wait yet waits for another one.
    pub(super) fn wait(&mut self, key: PeerKey, sends: u32) {
        let place = (sends, self.next_turn);
        self.next_turn += 1;
        self.put(key, place);
    }

    /// A peer has `sends` now.
    pub(super) fn move_up(&mut self, key: PeerKey, sends: u32) {
        if let Some((before, turn)) = self.places.remove(&key) {
            self.short.remove(&(before, turn));
            self.put(key, (sends, turn));
        }
    }

    fn put(&mut self, key: PeerKey, place: Place) {
        self.short.insert(place, key);
        self.places.insert(key, place);
    }

    /// May one of those that wait have one?
    #[inline]
    pub(super) fn admits(&self) -> bool {
        let first = self.short.first_key_value();
        first.is_some_and(|((sends, _), _)| self.allow(*sends))
    }

    /// The first of those that wait, if it may have one. It waits no longer.
    pub(super) fn admit(&mut self) -> Option<PeerKey> {
        if !self.admits() {
            return None;
        }
        let (_, key) = self.short.pop_first()?;
        self.places.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u64) -> PeerKey {
        PeerKey::from_word(1 << 32 | id)
    }

    fn request(n: u32) -> RequestId {
        RequestId::new(n, 1)
    }

    #[test]
    fn a_peer_has_one_always_and_others_while_more_are_free() {
        let mut tickets = Tickets::new(4);
        assert!(tickets.allow(0) && tickets.allow(3) && !tickets.allow(4));
        for n in 0..6 {
            tickets.take(request(n), peer(n.into()));
        }
        assert_eq!(tickets.usage(), (6, 4));
        assert!(tickets.allow(0) && !tickets.allow(1));
        for n in 0..4 {
            assert_eq!(tickets.give_back(request(n)), Some(peer(n.into())));
            assert_eq!(tickets.give_back(request(n)), None);
        }
        assert!(tickets.allow(1) && !tickets.allow(2));
    }

    #[test]
    fn of_those_that_wait_as_many_are_admitted_as_tickets_are_free() {
        const STUCK: u32 = 10_000;
        let mut tickets = Tickets::new(STUCK);
        for n in 0..STUCK {
            tickets.take(request(n), peer(n.into()));
            tickets.wait(peer(n.into()), 1);
        }
        assert_eq!(tickets.admit(), None);
        // One of theirs goes: it may have another.
        assert_eq!(tickets.give_back(request(70)), Some(peer(70)));
        tickets.move_up(peer(70), 0);
        assert_eq!(tickets.admit(), Some(peer(70)));
        assert_eq!(tickets.admit(), None);
        // Three of somebody's who does not wait go: with the one before, two have room.
        for n in 1..3 {
            tickets.give_back(request(n));
        }
        for admitted in [0, 1] {
            assert_eq!(tickets.admit(), Some(peer(admitted)), "oldest first");
            tickets.take(request(STUCK + admitted as u32), peer(admitted));
        }
        assert_eq!(tickets.admit(), None);
        assert_eq!(tickets.waiting(), STUCK as usize - 3);
    }

    #[test]
    fn who_has_fewest_is_first_and_a_larger_share_waits_for_more_room() {
        let mut tickets = Tickets::new(8);
        for n in 0..7 {
            tickets.take(request(n), peer(1));
        }
        tickets.wait(peer(1), 5);
        tickets.wait(peer(2), 1);
        tickets.wait(peer(3), 1);
        assert_eq!(tickets.admit(), None);
        tickets.give_back(request(0));
        assert_eq!(
            [tickets.admit(), tickets.admit()],
            [Some(peer(2)), Some(peer(3))]
        );
        assert_eq!(tickets.admit(), None);
        for n in 1..5 {
            tickets.give_back(request(n));
        }
        assert_eq!(tickets.admit(), Some(peer(1)));
        assert!(tickets.places.is_empty());
    }
}
