//! Lists of records, linked through the records themselves.
//!
//! ```text
//!   List: first, last, len        #4 <-> #7 <-> #2        #n: slots
//! ```
//!
//! A record has links for two lists at a time ([`ListKind`]): the list of its state, and the list of all operations
//! with the same remote. Inserting and removing are O(1) and allocate nothing.
//!
//! The caller passes the list's head to the table's functions. The record must not be in another list of that kind.

/// Head of a linked list of operations. Its user stores it and passes it to the functions of [`Ops`](super::Ops), which
/// change it; the links are in the operations' records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) len: u32,
}

impl List {
    /// An empty list.
    pub const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        len: 0,
    };

    /// Returns the number of operations in the list.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if no operation is in the list.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for List {
    fn default() -> Self {
        Self::EMPTY
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Links {
    pub(crate) before: u32,
    pub(crate) behind: u32,
}

impl Links {
    /// Links of a record that is in no list, or the only one in its list.
    pub(crate) const ALONE: Self = Self {
        before: NONE,
        behind: NONE,
    };
}

/// Kind of a list, and so one pair of a record's links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListKind {
    /// List that the record's state belongs to.
    State,
    /// List of all operations with the record's remote.
    Remote,
}

/// Stands for no slot; no table grows this large.
pub(crate) const NONE: u32 = u32::MAX;
