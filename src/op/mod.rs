//! Posted operations.
//!
//! ```text
//!   block.rs   where they live: memory the host may look at, never unmapped
//!   table.rs   id -> operation, lists of operations, stale ids refused
//!   post.rs    the rules for accepting a send or a receive
//! ```

pub mod block;
pub mod post;
pub mod table;
