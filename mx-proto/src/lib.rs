#![forbid(unsafe_code)]
//! The MX protocol as pure state machines.
//!
//! ```text
//!   send / recv / end / connect / progress             Owner: completed, down, arrived
//!        |                                                   ^
//!        v                                                   |
//!  +-- endpoint ------------------------------------------------------+
//!  |  remotes (sessions, credits, pending queue)   ops                |
//!  |  matching (posted)   unexpected messages         timers            |
//!  +-----------------------------|------------------------------------+
//!                                v  wire
//!                           trait Port  (local, tcp, simulator, ...)
//! ```
//!
//! No sockets, clock, threads, locks, pointers or C: time comes from a [`Clock`], bytes come from a [`Memory`], and
//! packets go through a [`Port`](port::Port). Two endpoints with equal inputs give equal outputs.

mod target_check;

mod config;
mod counters;
mod data_link;
mod endpoint;
mod event;
pub mod flow;
pub mod ids;
pub mod log_limit;
mod matching;
pub mod memory;
pub mod op_states;
pub mod ops;
pub mod origin;
pub mod owner;
pub mod port;
mod queues;
mod regions;
pub mod reliability;
mod remote;
mod remote_lists;
pub mod round;
pub mod secret;
pub mod shares;
mod stats;
mod status;
pub mod supply;
pub mod table;
pub mod time;
mod timeouts;
mod timer;
pub mod transitions;
mod unexpected;
pub mod wire;

pub use config::{Config, Key, NetworkId};
pub use counters::{Counter, CounterKind};
pub use endpoint::{
    Account, Endpoint, PREVIEW_MAX, Phase, PostError, ReceivePosted, Reminder, RemoteView,
    SendMode, SendPosted,
};
pub use event::{Arrival, Decision, Deferred, Down, Event, Identity, Message, Outcome, Verdict};
pub use ids::{
    EndpointId, LinkId, MatchBits, MatchMask, NicId, RemoteId, RequestId, Route, SessionId, Target,
};
pub use matching::{EntryId, MatchIndex};
pub use memory::{Memory, Source};
pub use owner::{Events, GreetingRole, Owner, Posting};
pub use regions::{RegionKey, Rights};
pub use stats::{InboxStats, Stats};
pub use status::{DownReason, OpKind, Status, Violation};
pub use time::{Clock, Instant};
