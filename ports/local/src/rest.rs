//! The word in which both sides of a link agree that it sleeps.
//!
//! ```text
//!               ask (either side)            the other side agrees
//!     Awake --------------------> Asked by 0 ----------------------> Asleep, for ever:
//!       ^                         or by 1                            the next memory has a
//!       `-----------------------------'                              word of its own
//!          refused, or taken back
//! ```
//!
//! Every move is one compare-and-swap, so the two sides always agree on what it was. The word says
//! how many packets the asker has sent and taken: who agrees has taken the former and sent the
//! latter, so nothing is in the rings. An asker that wants to send after all first takes the
//! question back; if that fails the link sleeps, and it sends through the next memory. Thus nobody
//! ever waits for an answer.
//!
//! ```text
//!   bits   63 ............ 33 32 ............. 2  1 0
//!          packets sent       packets taken       0 awake, 1 asked by 0, 2 asked by 1, 3 asleep
//! ```
//!
//! The counts are the low 31 bits. That is enough: who agrees has all packets before those in the
//! ring behind it, and a ring has at most 4096.
//!
//! The other side is another process and may write anything. All it can do is to make its own link
//! sleep, or fail.
//!
//! Owns: the encoding, and the moves.
//! Knows nothing of: rings, memory.

use super::ring::Corrupt;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many packets a side has sent and taken since the memory was new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) taken: u64,
}

/// What the word says, as one of the two sides sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// Nobody has asked.
    Awake,
    /// We have.
    AskedByUs,
    /// They have, and this agrees with what we have sent and taken, or not.
    AskedByThem { even: bool },
    /// Nothing goes through this memory any more.
    Asleep,
}

/// What the word says to `side` (0 or 1), which has got as far as `own`.
pub(super) fn look(word: &AtomicU64, side: usize, own: Counts) -> Rest {
    let value = word.load(Ordering::Acquire);
    match value & STATE {
        AWAKE => Rest::Awake,
        ASLEEP => Rest::Asleep,
        asked if asked == 1 + side as u64 => Rest::AskedByUs,
        _ => Rest::AskedByThem {
            even: value == by_the_other(side, own),
        },
    }
}

/// Asks. False: the word has not said [`Rest::Awake`].
pub(super) fn ask(word: &AtomicU64, side: usize, own: Counts) -> bool {
    swap(word, AWAKE, asked(side, own))
}

/// Takes our question back. False: the link sleeps. The packets we have sent meanwhile would not
/// be those of the question, so `own` has to be what it was.
pub(super) fn take_back(word: &AtomicU64, side: usize, own: Counts) -> Result<bool, Corrupt> {
    if swap(word, asked(side, own), AWAKE) {
        return Ok(true);
    }
    match word.load(Ordering::Acquire) & STATE {
        ASLEEP => Ok(false),
        // Ours, but not what we have asked.
        own if own == 1 + side as u64 => Err(Corrupt),
        // Refused meanwhile, and perhaps asked.
        _ => Ok(true),
    }
}

/// Agrees to the other side's question. False: it has taken it back, or changed it.
pub(super) fn agree(word: &AtomicU64, side: usize, own: Counts) -> bool {
    swap(word, by_the_other(side, own), ASLEEP)
}

/// Refuses whatever the other side has asked.
pub(super) fn refuse(word: &AtomicU64, side: usize) {
    let value = word.load(Ordering::Acquire);
    if value & STATE == 2 - side as u64 {
        // It has been taken back if this fails, which is as good.
        swap(word, value, AWAKE);
    }
}

fn swap(word: &AtomicU64, from: u64, to: u64) -> bool {
    let order = (Ordering::AcqRel, Ordering::Acquire);
    word.compare_exchange(from, to, order.0, order.1).is_ok()
}

fn asked(side: usize, by: Counts) -> u64 {
    (1 + side as u64) | (by.taken & COUNT) << 2 | (by.sent & COUNT) << 33
}

/// What the other side's question says when it has taken what we have sent, and the reverse.
fn by_the_other(side: usize, own: Counts) -> u64 {
    let theirs = Counts {
        sent: own.taken,
        taken: own.sent,
    };
    asked(1 - side, theirs)
}

const STATE: u64 = 3;
const AWAKE: u64 = 0;
const ASLEEP: u64 = 3;
const COUNT: u64 = (1 << 31) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sent: u64, taken: u64) -> Counts {
        Counts { sent, taken }
    }

    #[test]
    fn a_question_is_agreed_to_when_nothing_is_in_the_rings() {
        for (sent, taken) in [(0, 0), (5, 7), (1 << 31, 0), (u64::MAX, (1 << 31) - 1)] {
            for side in [0, 1] {
                let word = AtomicU64::new(0);
                let (own, theirs) = (counts(sent, taken), counts(taken, sent));
                assert_eq!(look(&word, side, own), Rest::Awake);
                assert!(ask(&word, side, own));
                assert!(!ask(&word, 1 - side, theirs));
                assert_eq!(look(&word, side, own), Rest::AskedByUs);
                let seen = look(&word, 1 - side, theirs);
                assert_eq!(seen, Rest::AskedByThem { even: true });
                assert!(agree(&word, 1 - side, theirs));
                assert_eq!(look(&word, side, own), Rest::Asleep);
                assert_eq!(take_back(&word, side, own), Ok(false));
            }
        }
    }

    #[test]
    fn a_packet_on_its_way_in_either_direction_is_no_agreement() {
        for own in [counts(4, 7), counts(6, 7), counts(5, 6), counts(5, 8)] {
            let word = AtomicU64::new(0);
            assert!(ask(&word, 1, counts(7, 5)));
            assert_eq!(look(&word, 0, own), Rest::AskedByThem { even: false });
            assert!(!agree(&word, 0, own));
            refuse(&word, 1);
            assert_eq!(look(&word, 1, counts(7, 5)), Rest::AskedByUs);
            refuse(&word, 0);
            assert_eq!(look(&word, 1, counts(7, 5)), Rest::Awake);
            assert_eq!(take_back(&word, 1, counts(7, 5)), Ok(true));
        }
    }

    #[test]
    fn who_was_refused_may_be_asked() {
        let word = AtomicU64::new(0);
        assert!(ask(&word, 0, counts(5, 7)));
        refuse(&word, 1);
        assert!(ask(&word, 1, counts(7, 5)));
        let seen = look(&word, 0, counts(5, 7));
        assert_eq!(seen, Rest::AskedByThem { even: true });
        assert_eq!(take_back(&word, 0, counts(5, 7)), Ok(true));
        assert!(agree(&word, 0, counts(5, 7)));
    }

    #[test]
    fn a_question_taken_back_cannot_be_agreed_to() {
        let word = AtomicU64::new(0);
        assert!(ask(&word, 0, counts(5, 7)));
        assert_eq!(take_back(&word, 0, counts(5, 7)), Ok(true));
        assert!(!agree(&word, 1, counts(7, 5)));
        // Asked again after another packet: the old opinion does not do.
        assert!(ask(&word, 0, counts(6, 7)));
        assert!(!agree(&word, 1, counts(7, 5)));
        assert!(agree(&word, 1, counts(7, 6)));
    }

    #[test]
    fn what_nobody_writes_is_corrupt_and_nothing_worse() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        for _ in 0..10_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let word = AtomicU64::new(seed);
            let own = counts(seed >> 40, seed & 0xffff);
            for side in [0, 1] {
                let seen = look(&word, side, own);
                refuse(&word, side);
                let back = take_back(&word, side, own);
                assert_eq!(back == Ok(false), seen == Rest::Asleep);
                word.store(seed, Ordering::Relaxed);
            }
        }
        let word = AtomicU64::new(asked(0, counts(1, 1)));
        assert_eq!(take_back(&word, 0, counts(1, 2)), Err(Corrupt));
    }

    /// One side asks and takes back, the other agrees and refuses; both always know which it was.
    #[test]
    fn two_threads_always_agree() {
        for round in 0..300u64 {
            let word = AtomicU64::new(0);
            let asker = || {
                for sent in 0..1_000 {
                    let own = counts(sent, 0);
                    assert!(ask(&word, 0, own));
                    if (sent ^ round) % 3 == 0 {
                        std::thread::yield_now();
                    }
                    if take_back(&word, 0, own) == Ok(false) {
                        return Some(sent);
                    }
                }
                None
            };
            let slept_at = std::thread::scope(|scope| {
                let asking = scope.spawn(asker);
                let agreed = (0..1_000)
                    .cycle()
                    .take_while(|_| !asking.is_finished())
                    .find(|taken| {
                        // Only some of the questions are agreed to.
                        taken % 7 == round % 7 && agree(&word, 1, counts(0, *taken))
                    });
                (asking.join().unwrap(), agreed)
            });
            assert_eq!(slept_at.0, slept_at.1);
        }
    }
}
