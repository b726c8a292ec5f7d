//! Posted operations.
//!
//! ```text
//!   blocks.rs   their storage: memory that the host may read, never unmapped
//!   data.rs     the method's part of an operation; the other is the endpoint's record
//!   post.rs     the rules for accepting a send or a receive
//! ```

pub mod blocks;
pub mod data;
pub mod post;
