//! Posted operations.
//!
//! ```text
//!   places.rs   their storage: memory the host may read, never unmapped
//!   word.rs     the method's part of one; the other is the endpoint's record
//!   post.rs     the rules for accepting a send or a receive
//! ```

pub mod blocks;
pub mod data;
pub mod post;
