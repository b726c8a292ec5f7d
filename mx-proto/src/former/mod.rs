//! A reliable, ordered [`crate::port::Port`] made out of datagrams that get lost, doubled, overtaken
//! and damaged.
//!
//! ```text
//!   Endpoint
//!      |  Port: packets                 links, fragments, reassembly      port
//!      v
//!   Channel, one a link                 session cookies, timers           channel
//!      |- SendWindow  what is not acknowledged                            send_window
//!      |- RecvWindow  what came early                                     recv_window
//!      |- Rtt, Congestion, AckPolicy    how long, how much, when
//!      v
//!   Datagram: header, checksum, payload                                   packet
//!      v
//!   DatagramPort                        UDP, FI_EP_DGRAM, the simulator   service
//! ```
//!
//! Pure: time comes from the [`DatagramPort`], chance from a seed. Nothing that arrives is trusted:
//! every field is checked against the window or table it is about, and what does not fit is
//! counted and dropped.

mod ack_policy;
mod channel;
mod checksum;
mod config;
mod congestion;
mod links;
mod packet;
mod port;
mod reassembly;
mod recv_window;
mod rtt;
mod send_window;
mod seq;
mod service;
mod stats;

pub use config::ReliableConfig;
pub use packet::describe;
pub use port::Reliable;
pub use service::{DatagramError, DatagramPort, Incoming};
pub use stats::ReliableStats;
