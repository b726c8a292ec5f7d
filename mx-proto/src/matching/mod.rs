//! Matching of messages and receives.
//!
//! ```text
//!   arriving message --- posted.take(bits) ------> the oldest posted receive that accepts it
//!   new receive -------- unexpected.take(..) ----> the oldest waiting message it accepts
//! ```
//!
//! A receive accepts a message when `message & mask == receive & mask`. Receives with the same
//! mask form a *class*; BMI uses one mask, so matching is one look-up however many receives are
//! posted. Between classes the posting order decides.
//!
//! Not here: payload, remotes' states, the wire.

mod deferred;
mod index;
mod posted;
mod unexpected;

pub use crate::ids::EntryId;
pub(crate) use deferred::Undecided;
pub use index::MatchIndex;
pub(crate) use index::{Chains, Ends};
pub(crate) use posted::Posted;
pub(crate) use unexpected::{Offered, Payload, Unexpected, Waiting};
