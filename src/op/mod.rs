//! Posted operations.
//!
//! ```text
//!   places.rs   where they lie: memory the host may look at, never unmapped
//!   word.rs     the method's part of one; the other is the endpoint's record
//!   list.rs     a peer's operations in lists
//!   post.rs     the rules for accepting a send or a receive
//! ```

pub mod list;
pub mod places;
pub mod post;
pub mod word;
