//! Lists of records, linked through the records themselves.
//!
//! ```text
//!   List: first, last, len        #4 <-> #7 <-> #2        #n: places
//! ```
//!
//! A record has links for two lists at a time ([`ListKind`]): that of its state, and its kin, all
//! operations with the same remote. Inserting and removing are O(1) and allocate nothing.
//!
//! The caller passes the list's head to the table's functions; the record must not be in another
//! list.

/// A list: its ends, and its length. The user of the list keeps it; the table
/// ([`Ops`](super::Ops)) changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) len: u32,
}

impl List {
    /// A list with nothing in it.
    pub const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        len: 0,
    };

    /// The length.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when there is none.
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

/// The neighbours of a record in one list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Links {
    pub(crate) before: u32,
    pub(crate) behind: u32,
}

impl Links {
    /// Links of a record that is in no list, or alone in one.
    pub(crate) const ALONE: Self = Self {
        before: NONE,
        behind: NONE,
    };
}

/// A pair of a record's links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListKind {
    /// Links of the list that the state of the record names.
    State,
    /// Links of the list of all operations with the record's remote.
    Remote,
}

/// No place: there are never so many.
pub(crate) const NONE: u32 = u32::MAX;
