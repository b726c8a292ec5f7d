//! Posted operations.
//!
//! ```text
//!   places.rs   where they lie: memory the host may look at, never unmapped
//!   word.rs     the method's part of one; the other is the endpoint's record
//!   post.rs     the rules for accepting a send or a receive
//! ```

pub mod places;
pub mod post;
pub mod word;
