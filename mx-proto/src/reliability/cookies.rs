//! Session cookies that cannot be guessed, and a stateless answer to callers (like SYN cookies).
//!
//! ```text
//!   draw                               SipHash(key, 0, counter)
//!   Hello -> of_caller                 SipHash(key, 1, generation, epoch, address, caller, first)
//!      |      cookie, first number        |     not kept: computed again when the caller confirms
//!      v                                  v
//!   Welcome ----------> caller ----> OPENING datagram: equal for this epoch or the previous one?
//!
//!   epochs of 10 s:   | used before  | used now  |     closed sessions, so that a replay opens none
//! ```
//!
//! SipHash-2-4 under a key from the operating system is a pseudo-random function: the next cookie cannot be computed
//! from any number of earlier ones.
//!
//! Owns: the key, the counter, the used-up cookies of callers.
//! Out of scope: sessions, addresses, packets.

use super::seq::Seq;
use crate::origin::Source;
use crate::shares::Shares;
use crate::time::Instant;
use foldhash::fast::RandomState;
use siphasher::sip::SipHasher24;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// Cookies of one port.
#[derive(Debug)]
pub(super) struct Cookies {
    hasher: SipHasher24,
    drawn: u64,
    /// Input of every caller's cookie. Changes when too many cookies have been used up, which invalidates all callers'
    /// cookies given out before.
    generation: u64,
    /// Generation of the cookies of each source that has used up its share; in the present epoch and the previous one.
    void: [HashMap<Source, u64, RandomState>; 2],
    share: u8,
    /// Last generation used.
    voided: u64,
    /// Cookies of closed sessions, of the epoch of the last closing and of the one before.
    spent: [UsedCookies; 2],
    /// Epoch of the last closing.
    noted: u64,
}

/// Cookies of sessions closed in one epoch.
#[derive(Debug)]
struct UsedCookies {
    of: HashMap<u64, Source, RandomState>,
    shares: Shares,
}

impl UsedCookies {
    fn new(share: u8) -> Self {
        Self {
            of: HashMap::default(),
            shares: Shares::new(SPENT_MAX, share),
        }
    }

    fn forget(&mut self, source: Source) {
        self.of.retain(|_, of| *of != source);
        self.shares.give_back(source, self.shares.of(source));
    }
}

/// Purposes of a hash, so that no two uses have the same input.
const DRAWN: u8 = 0;
const COOKIE: u8 = 1;
const FIRST: u8 = 2;
const PROOF: u8 = 3;

/// Minimum time for a caller to confirm: as long as a connect may take.
const EPOCH: Duration = Duration::from_secs(10);

/// Number of sessions that may be accepted and closed in an epoch before connecting callers have to begin again: 16 Ki,
/// at most 2 MiB for both epochs.
const SPENT_MAX: usize = 16 << 10;

/// Number that any source may use up while there is room; it spreads the cost of forgetting a source's cookies.
const SPENT_LEAST: usize = 256;

impl Cookies {
    /// Makes the cookies of a port. `key` is secret and differs in every life of the port.
    pub(super) fn new(key: [u8; 16], share: u8) -> Self {
        Self {
            hasher: SipHasher24::new_with_key(&key),
            drawn: 0,
            generation: 0,
            void: [HashMap::default(), HashMap::default()],
            share,
            voided: 0,
            spent: [UsedCookies::new(share), UsedCookies::new(share)],
            noted: 0,
        }
    }

    pub(super) fn draw(&mut self) -> u64 {
        loop {
            self.drawn += 1;
            let cookie = self.hash(DRAWN, self.drawn);
            if cookie != 0 {
                return cookie;
            }
        }
    }

    /// Returns our cookie for the session that `caller` at `address` begins with its number `first`, and our first
    /// number; always the same within an epoch. The cookie is not 0.
    pub(super) fn of_caller<A: Hash>(
        &self,
        (address, source): (&A, Source),
        caller: u64,
        first: Seq,
        epoch: u64,
    ) -> (u64, Seq) {
        let generation = self.generation_of(source);
        let what = (generation, epoch, address, caller, first);
        let cookie = self.hash(COOKIE, what).max(1);
        // The low half of a pseudo-random function's value is pseudo-random, too.
        (cookie, Seq(self.hash(FIRST, what) as u32))
    }

    /// Returns a value known only to a peer that receives datagrams sent to `address` in the session `ours`.
    pub(super) fn proof<A: Hash>(&self, address: &A, ours: u64) -> u64 {
        self.hash(PROOF, (address, ours))
    }

    /// Returns the epoch of `now`. Cookies of the previous epoch are valid, too.
    pub(super) fn epoch(now: Instant) -> u64 {
        now.0 / EPOCH.as_nanos() as u64
    }

    /// Returns the generation from which cookies of this source are valid.
    fn generation_of(&self, source: Source) -> u64 {
        let void = self.void.iter().find_map(|void| void.get(&source));
        void.copied().unwrap_or(0).max(self.generation)
    }

    /// Records that an accepted session from `source` with this cookie is closed, so that it cannot be opened again. A
    /// source that closes more than its share invalidates only its own cookies.
    pub(super) fn remember(&mut self, cookie: u64, source: Source, now: Instant) {
        let epoch = Self::epoch(now);
        if epoch > self.noted {
            self.spent.swap(0, 1);
            self.void.swap(0, 1);
            if epoch > self.noted + 1 {
                self.spent[1] = UsedCookies::new(self.share);
                self.void[1] = HashMap::default();
            }
            // Not `clear`: new maps free the memory of a peak.
            self.spent[0] = UsedCookies::new(self.share);
            self.void[0] = HashMap::default();
            self.noted = epoch;
        }
        let own = self.spent[0].shares.of(source);
        let all = self.spent[0].of.len();
        let is_over = !self.spent[0].shares.may_take(source, 1) && own >= SPENT_LEAST;
        if all < SPENT_MAX && !is_over {
            if self.spent[0].of.insert(cookie, source).is_none() {
                self.spent[0].shares.take(source, 1);
            }
            return;
        }
        self.voided += 1;
        if is_over && self.void[0].len() < SPENT_MAX {
            self.spent.iter_mut().for_each(|spent| spent.forget(source));
            self.void[0].insert(source, self.voided);
            return;
        }
        self.generation = self.voided;
        self.spent = [UsedCookies::new(self.share), UsedCookies::new(self.share)];
        self.void = [HashMap::default(), HashMap::default()];
    }

    /// Returns whether the session of this cookie was closed less than two epochs ago; may stay true for longer.
    pub(super) fn is_spent(&self, cookie: u64, now: Instant) -> bool {
        Self::epoch(now) <= self.noted + 1
            && self
                .spent
                .iter()
                .any(|spent| spent.of.contains_key(&cookie))
    }

    fn hash(&self, purpose: u8, what: impl Hash) -> u64 {
        let mut hasher = self.hasher;
        hasher.write_u8(purpose);
        what.hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const HERE: Source = Source(7);

    fn cookies() -> Cookies {
        Cookies::new(*b"sixteen letters.", 50)
    }

    #[test]
    fn a_proof_is_of_one_address_in_one_session() {
        let cookies = cookies();
        let proof = cookies.proof(&1u16, 7);
        assert_eq!(proof, cookies.proof(&1u16, 7));
        assert_ne!(proof, cookies.proof(&2u16, 7));
        assert_ne!(proof, cookies.proof(&1u16, 8));
    }

    fn at(epoch: u64) -> Instant {
        Instant(epoch * 10_000_000_000)
    }

    #[test]
    fn drawn_cookies_differ_and_are_not_zero() {
        let (mut cookies, mut others) = (cookies(), Cookies::new([0; 16], 50));
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            for cookie in [cookies.draw(), others.draw()] {
                assert!(cookie != 0 && seen.insert(cookie));
            }
        }
    }

    #[test]
    fn the_hash_is_siphash_2_4() {
        // The key and message of the reference implementation's vectors, 15 bytes.
        let key: [u8; 16] = std::array::from_fn(|n| n as u8);
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&std::array::from_fn::<u8, 15, _>(|n| n as u8));
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn caller_gets_one_cookie_per_epoch_that_depends_on_all_input() {
        let mut cookies = cookies();
        let told = cookies.of_caller((&"here", HERE), 5, Seq(9), 3);
        // Other callers, and cookies that we draw ourselves, change nothing.
        cookies.draw();
        cookies.remember(77, Source(77), at(3));
        assert_eq!(cookies.of_caller((&"here", HERE), 5, Seq(9), 3), told);
        let others = [
            cookies.of_caller((&"there", HERE), 5, Seq(9), 3),
            cookies.of_caller((&"here", HERE), 6, Seq(9), 3),
            cookies.of_caller((&"here", HERE), 5, Seq(10), 3),
            cookies.of_caller((&"here", HERE), 5, Seq(9), 4),
            Cookies::new([1; 16], 50).of_caller((&"here", HERE), 5, Seq(9), 3),
        ];
        for other in others {
            assert!(other.0 != 0 && other.0 != told.0 && other.1 != told.1);
        }
    }

    #[test]
    fn epochs_are_ten_seconds() {
        assert_eq!(Cookies::epoch(Instant(9_999_999_999)), 0);
        assert_eq!(Cookies::epoch(Instant(10_000_000_000)), 1);
        assert_eq!(Cookies::epoch(Instant(20_000_000_001)), 2);
    }

    #[test]
    fn a_spent_cookie_is_known_as_long_as_it_would_be_taken() {
        for start in [0, 1, 7] {
            let mut cookies = cookies();
            cookies.remember(5, Source(5), at(start));
            assert!(cookies.is_spent(5, at(start)));
            assert!(!cookies.is_spent(6, at(start)));
            assert!(cookies.is_spent(5, at(start + 1)));
            cookies.remember(6, Source(6), at(start + 1));
            assert!(cookies.is_spent(5, at(start + 1)));
            cookies.remember(7, Source(7), at(start + 2));
            assert!(!cookies.is_spent(5, at(start + 2)));
            assert!(cookies.is_spent(6, at(start + 2)));
            assert!(!cookies.is_spent(6, at(start + 5)));
            cookies.remember(8, Source(8), at(start + 9));
            assert!(!cookies.is_spent(6, at(start + 9)));
            assert!(cookies.is_spent(8, at(start + 9)));
        }
    }

    #[test]
    fn too_many_spent_cookies_make_all_of_them_void() {
        let mut cookies = cookies();
        let told = cookies.of_caller((&1, HERE), 5, Seq(9), 0);
        for cookie in 0..SPENT_MAX as u64 {
            cookies.remember(cookie, Source(cookie % 100), at(0));
        }
        assert_eq!(cookies.of_caller((&1, HERE), 5, Seq(9), 0), told);
        assert!(cookies.is_spent(0, at(0)));
        cookies.remember(u64::MAX, Source(u64::MAX % 100), at(0));
        // The cookie is not recorded, and all are invalid.
        assert_ne!(cookies.of_caller((&1, HERE), 5, Seq(9), 0), told);
        assert!(cookies.spent.iter().all(|spent| spent.of.is_empty()));
    }

    #[test]
    fn one_source_that_spends_too_many_makes_only_its_own_void() {
        let mut cookies = cookies();
        let greedy = Source(1);
        let told = cookies.of_caller((&1, HERE), 5, Seq(9), 0);
        let own = cookies.of_caller((&1, greedy), 5, Seq(9), 0);
        cookies.remember(u64::MAX, HERE, at(0));
        for cookie in 0..2 * SPENT_MAX as u64 {
            cookies.remember(cookie, greedy, at(0));
            assert!(cookies.spent[0].of.len() <= SPENT_MAX / 2 + 1);
        }
        assert_eq!(cookies.of_caller((&1, HERE), 5, Seq(9), 0), told);
        assert_ne!(cookies.of_caller((&1, greedy), 5, Seq(9), 0), own);
        assert!(cookies.is_spent(u64::MAX, at(0)));
        // The invalidation lasts as long as earlier cookies would be accepted.
        cookies.remember(u64::MAX - 1, HERE, at(1));
        assert_ne!(cookies.of_caller((&1, greedy), 5, Seq(9), 0), own);
    }
}
