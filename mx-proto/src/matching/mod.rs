//! Matching of messages with receives.
//!
//! ```text
//!   arriving message --- posted.take(bits) ------> the oldest posted receive that accepts it
//!   new receive -------- unexpected.front(..) --> the oldest unexpected message it accepts (MatchTable)
//! ```
//!
//! A receive accepts a message when `message & mask == receive & mask`. Receives with the same
//! mask form a *class*; BMI uses one mask, so matching is one look-up however many receives are
//! posted. Between classes the posting order decides.
//!
//! Out of scope: payload, remotes' states, the wire.

mod index;
mod posted;

pub use crate::ids::EntryId;
pub use index::MatchIndex;
pub(crate) use index::{ChainEnds, Chains, KEPT_MAX, MatchTable};
pub(crate) use posted::PostedReceives;
