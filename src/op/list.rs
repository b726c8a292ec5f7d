//! A peer's operations in lists, linked through their words.
//!
//! An operation stands in at most one of them, so nothing is ever allocated for a list.
//!
//! Knows nothing of: what the lists are for.

use super::word::Word;
use crate::method::Host;
use mx_proto::RequestId;
use mx_proto::ops::Ops;

/// A list of operations, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct OpList {
    first: u32,
    last: u32,
    len: u32,
}

/// The neighbours of an operation in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    behind: u32,
}

/// No place: there are never so many.
const NONE: u32 = u32::MAX;

impl Links {
    pub(super) const NONE: Self = Self {
        before: NONE,
        behind: NONE,
    };
}

impl Default for OpList {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl OpList {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest.
    #[inline]
    pub fn first(&self, ops: &Ops<Host>) -> Option<RequestId> {
        ops.at(self.first)
    }

    /// Appends an operation that is in no list.
    #[inline]
    pub fn push_back(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        let Some(word) = ops.word_mut(op) else {
            return;
        };
        word.links = Links {
            before: self.last,
            behind: NONE,
        };
        match word_at(ops, self.last) {
            None => self.first = op.index(),
            Some(last) => last.links.behind = op.index(),
        }
        self.last = op.index();
        self.len += 1;
    }

    /// Takes an operation out, which must be in it.
    #[inline]
    pub fn remove(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        let Some(word) = ops.word_mut(op) else {
            return;
        };
        let Links { before, behind } = std::mem::replace(&mut word.links, Links::NONE);
        match word_at(ops, before) {
            None => self.first = behind,
            Some(word) => word.links.behind = behind,
        }
        match word_at(ops, behind) {
            None => self.last = before,
            Some(word) => word.links.before = before,
        }
        self.len -= 1;
    }

    /// Takes out the oldest.
    #[inline]
    pub fn pop_front(&mut self, ops: &mut Ops<Host>) -> Option<RequestId> {
        let first = self.first(ops)?;
        self.remove(ops, first);
        Some(first)
    }

    /// All operations, oldest first.
    pub fn all(&self, ops: &Ops<Host>) -> Vec<RequestId> {
        let mut all = Vec::with_capacity(self.len());
        let mut next = self.first;
        while let Some(op) = ops.at(next) {
            all.push(op);
            next = ops.word(op).map_or(NONE, |word| word.links.behind);
        }
        all
    }
}

#[inline]
fn word_at(ops: &mut Ops<Host>, place: u32) -> Option<&mut Word> {
    let op = ops.at(place)?;
    ops.word_mut(op)
}
