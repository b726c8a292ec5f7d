//! Memory of others that come, each from a source, bounded by a fixed number.
//!
//! ```text
//!   insert --> [ all ]     full: the oldest one of the source that has the most is forgotten
//! ```
//!
//! So one source, with however many addresses, displaces what others have brought only while it has less of it
//! than they.
//!
//! Cost: O(1); O(sources) when it is full, O(those of a source) to remove one.

use mx_proto::origin::Source;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A bounded map.
#[derive(Debug)]
pub struct BoundedMap<K, V> {
    most: usize,
    all: HashMap<K, (V, Source)>,
    /// The keys of each, oldest first.
    by_source: HashMap<Source, VecDeque<K>>,
}

impl<K: Eq + Hash + Copy, V> BoundedMap<K, V> {
    /// For so many at most.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            all: HashMap::new(),
            by_source: HashMap::new(),
        }
    }

    /// The value inserted last under this key, unless it was forgotten.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.all.get(key).map(|(value, _)| value)
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Remembers a value that comes from a source.
    pub fn insert(&mut self, key: K, value: V, source: Source) {
        self.remove(&key);
        if self.all.len() >= self.most {
            self.make_room();
        }
        self.all.insert(key, (value, source));
        self.by_source.entry(source).or_default().push_back(key);
    }

    /// Forgets it.
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
        // One that is there makes no room.
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
