//! Peers and their states.
//!
//! ```text
//!   state.rs      INIT / WAIT / READY / DISCONNECT and the transitions between them
//!   attempts.rs   the attempts to connect to a peer at its addresses
//!   conversation.rs   UNOPENED / OPEN / CUT: whether expected operations have a counterpart
//!   table.rs      peers by id, by address object, by network name
//!   handshake.rs  encoding of greetings, CONN_REQ and CONN_ACK
//! ```

pub mod attempts;
pub mod conversation;
pub mod handshake;
pub mod state;
pub mod table;
