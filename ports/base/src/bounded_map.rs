//! Map of bounded size, whose entries each come from a source.
//!
//! ```text
//!   insert --> [ all ]     full: the oldest entry of the source with the most is evicted
//! ```
//!
//! A source, however many addresses it has, evicts entries of other sources only while it has fewer than they.
//!
//! Cost: O(1); when full, O(sources) to insert; O(entries of the source) to remove one.

use mx_proto::origin::Source;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Map with a maximum number of entries, each of which counts against a source. When full, it evicts the oldest entry
/// of the source that has the most.
#[derive(Debug)]
pub struct BoundedMap<K, V> {
    most: usize,
    all: HashMap<K, (V, Source)>,
    /// Keys of each source, oldest first.
    by_source: HashMap<Source, VecDeque<K>>,
}

impl<K: Eq + Hash + Copy, V> BoundedMap<K, V> {
    /// Creates a map of at most `most` entries.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            all: HashMap::new(),
            by_source: HashMap::new(),
        }
    }

    /// Returns the latest value of this key; `None` if there is none or it was evicted.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.all.get(key).map(|(value, _)| value)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Inserts or replaces the value of a key, as the newest entry of its source. Replacing evicts nothing; a new key
    /// evicts an entry if the map is full.
    pub fn insert(&mut self, key: K, value: V, source: Source) {
        self.remove(&key);
        if self.all.len() >= self.most {
            self.make_room();
        }
        self.all.insert(key, (value, source));
        self.by_source.entry(source).or_default().push_back(key);
    }

    /// Removes an entry, if present.
    pub fn remove(&mut self, key: &K) {
        let Some((_, source)) = self.all.remove(key) else {
            return;
        };
        if let Some(keys) = self.by_source.get_mut(&source) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }

    #[cold]
    fn make_room(&mut self) {
        let by_source = self.by_source.iter_mut();
        let Some((&source, keys)) = by_source.max_by_key(|(_, keys)| keys.len()) else {
            return;
        };
        if let Some(oldest) = keys.pop_front() {
            self.all.remove(&oldest);
        }
        if keys.is_empty() {
            self.by_source.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_that_has_the_most_makes_room() {
        let mut all = BoundedMap::new(4);
        let (few, many) = (Source(1), Source(2));
        all.insert('f', 0, few);
        for (number, key) in ['a', 'b', 'c', 'd', 'e'].into_iter().enumerate() {
            all.insert(key, number, many);
        }
        assert_eq!((all.len(), all.get(&'f')), (4, Some(&0)));
        assert_eq!((all.get(&'b'), all.get(&'c')), (None, Some(&2)));
        all.insert('g', 7, few);
        assert_eq!(
            (all.get(&'c'), all.get(&'f'), all.get(&'g')),
            (None, Some(&0), Some(&7))
        );
        // Replacing a present key evicts nothing.
        all.insert('d', 9, few);
        assert_eq!(
            (all.len(), all.get(&'e'), all.get(&'d')),
            (4, Some(&4), Some(&9))
        );
        for key in ['f', 'g', 'd', 'e', 'e'] {
            all.remove(&key);
        }
        assert!(all.is_empty() && all.by_source.is_empty());
    }
}
