#![forbid(unsafe_code)]
//! The MX protocol as pure state machines.
//!
//! ```text
//!   send / recv / cancel / connect / progress          completions, events
//!        |                                                   ^
//!        v                                                   |
//!  +-- endpoint ------------------------------------------------------+
//!  |  partners (sessions, credits, pending queue)   requests          |
//!  |  matching (posted, unexpected)                 timers            |
//!  +-----------------------------|------------------------------------+
//!                                v  wire
//!                           trait Port  (local, tcp, simulator, ...)
//! ```
//!
//! No sockets, no clock, no threads, no locks, no pointers, no C: time comes from a [`Clock`],
//! bytes from a [`Memory`], packets go through a [`Port`]. Two endpoints with equal inputs give
//! equal outputs.

pub mod ids;
pub mod memory;
pub mod port;
pub mod time;

pub use ids::{
    EndpointId, LinkId, MatchBits, MatchMask, NicId, PartnerId, RequestId, Route, SessionId, Target,
};
pub use memory::{Memory, Source};
pub use time::{Clock, Instant};
