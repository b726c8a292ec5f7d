//! Limits repeated log lines.
//!
//! Owns: the number of occurrences of each event.
//! Cost: one hash for each event; at most `ENTRIES_MAX` events are remembered.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::Hash;

/// Events that have been logged, and their numbers.
#[derive(Debug)]
pub struct LogLimit<K>(HashMap<K, u64, RandomState>);

/// The maximum number of remembered events. Beyond it all are forgotten and logged again.
const ENTRIES_MAX: usize = 4096;

impl<K> Default for LogLimit<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash> LogLimit<K> {
    /// Whether the event happens for the first time.
    pub fn is_first(&mut self, what: K) -> bool {
        self.count(what) == 1
    }

    /// Returns the count of an event that happens for the first time, the second, the fourth, and so on.
    pub fn again(&mut self, what: K) -> Option<u64> {
        Some(self.count(what)).filter(|times| times.is_power_of_two())
    }

    /// Whether the event has happened at most `few` times, or for the 2^n-th time.
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
        // Full: it begins again.
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
