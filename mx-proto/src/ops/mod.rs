//! Operations of an endpoint: one record each, in one table.
//!
//! ```text
//!   storage   records, provided by the owner           record    states of one operation
//!   table     records in use, and how they end         list      lists of records, linked through them
//!   parts     parts of a message that is being pulled
//! ```
//!
//! Out of scope: ports.

mod list;
mod parts;
mod record;
mod storage;
mod table;

pub use list::List;
pub(crate) use list::{Links, ListKind, NONE};
pub(crate) use parts::{NO_LINK, Part, Parts};
pub use record::Record;
pub(crate) use record::{
    BucketHead, Fetch, Form, NO_REMOTE, Position, Pulling, REGION, STREAMED, State,
};
pub use storage::{ChunkedStorage, OpStorage};
pub use table::Ops;

#[cfg(test)]
mod tests;
