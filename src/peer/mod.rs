//! The other ends: who they are and how far we are with them.
//!
//! ```text
//!   state.rs      INIT / WAIT / READY / DISCONNECT and the transitions between them
//!   conversation.rs   UNOPENED / OPEN / CUT: what expected operations belong to
//!   table.rs      peers by id, by address object, by network name
//!   handshake.rs  CONN_REQ and CONN_ACK as bytes and verdicts
//! ```

pub mod conversation;
pub mod handshake;
pub mod state;
pub mod table;
