//! Limits on repeated log lines.
//!
//! Owns: the count of each event.
//! Cost: one hash for each event; at most `ENTRIES_MAX` events are remembered.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::Hash;

/// Counts of events by kind `K`, to log an event that repeats only sometimes. Remembers 4096 kinds; another one resets
/// all counts.
#[derive(Debug)]
pub struct LogLimit<K>(HashMap<K, u64, RandomState>);

/// Maximum number of remembered events. Beyond it all counts are dropped, and the events are logged again.
const ENTRIES_MAX: usize = 4096;

impl<K> Default for LogLimit<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash> LogLimit<K> {
    /// Counts an event of kind `what`. Returns whether it is the first of its kind, and is to be logged.
    pub fn is_first(&mut self, what: K) -> bool {
        self.count(what) == 1
    }

    /// Counts an event of kind `what`. Returns the number of events of that kind so far if it is a power of two, so
    /// that the caller logs it; `None` otherwise.
    pub fn again(&mut self, what: K) -> Option<u64> {
        Some(self.count(what)).filter(|times| times.is_power_of_two())
    }

    /// Counts an event of kind `what`. Returns whether to log it: it is one of the first `few` of its kind, or their
    /// number is a power of two.
    pub fn is_rare(&mut self, what: K, few: u64) -> bool {
        let times = self.count(what);
        times <= few || times.is_power_of_two()
    }

    fn count(&mut self, what: K) -> u64 {
        if self.0.len() >= ENTRIES_MAX && !self.0.contains_key(&what) {
            self.0.clear();
        }
        let times = self.0.entry(what).or_insert(0);
        *times = times.saturating_add(1);
        *times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_first_once_until_there_is_too_much_of_it() {
        let mut logged = LogLimit::default();
        for what in 0..ENTRIES_MAX {
            assert!(logged.is_first(what));
            assert!(!logged.is_first(what));
        }
        // The table is full and starts over.
        assert!(logged.is_first(ENTRIES_MAX));
        assert!(logged.is_first(0));
        assert_eq!(logged.0.len(), 2);
    }

    #[test]
    fn what_goes_on_is_told_ever_more_rarely() {
        let mut logged = LogLimit::default();
        let times: Vec<u64> = (0..1000).filter_map(|_| logged.again("flood")).collect();
        assert_eq!(times, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(logged.again("another"), Some(1));
    }
}
