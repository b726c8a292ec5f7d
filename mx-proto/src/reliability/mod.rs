//! Reliability: a reliable, ordered [`crate::port::Port`] made out of datagrams that may be lost, duplicated, reordered
//! and damaged.
//!
//! ```text
//!   Endpoint
//!      |  Port: packets                                                      port
//!      v
//!   Links: all sessions                    one timer each, turns             links, link, senders
//!      |        |                          active or suspended               roster
//!      |        |                          demultiplexing                    receive, opening
//!      |        |                          one event after the other         round
//!      |        `- Cookies                 ids that cannot be guessed        cookies
//!      v
//!   Session, one a link                    state, deadlines, sending         session, timers, transmit
//!      |- Recovery                         losses, retransmission            recovery
//!      |    |- SendWindow, SendBuffer      unacknowledged segments           send_window, send_buffer, parts
//!      |    `- Rtt, Reordering, Congestion RTO, reordering wait, window
//!      |- KeepAlive, Answers               silent peers; answers to Pings    keep_alive, answers
//!      |- RecvWindow, Reassembly           early segments; packets           recv_window, reassembly
//!      |- Pacer, Pmtu, AckPolicy           rate, size, ACK delay
//!      v
//!   Datagram: header, checksums, payload                                     packet, quote
//!      v
//!   DatagramPort: two channels             UDP, FI_EP_DGRAM, the simulator   service
//! ```
//!
//! A packet of the layer above is a *fragment*. The part of it in one datagram is a *segment*, and if the fragment has
//! several, a *chunk* of it (the words of the usnic BTL's notes).
//!
//! Pure: time comes from the [`DatagramPort`], random numbers come from a key. Every field from the wire is checked
//! against the window or table it refers to; a mismatch is counted and dropped.

mod ack_policy;
mod answers;
mod checksum;
mod congestion;
mod cookies;
mod keep_alive;
mod link;
mod links;
mod opening;
mod pacer;
mod packet;
mod partial;
mod parts;
mod pmtu;
mod quote;
mod reassembly;
mod receive;
mod recovery;
mod recv_window;
mod reliable;
mod reliable_config;
mod reordering;
mod roster;
mod round;
mod rtt;
mod send_buffer;
mod send_window;
mod senders;
mod seq;
mod service;
mod session;
mod timers;
mod transmit;

pub use crate::stats::ReliableStats;
pub use packet::describe;
pub use quote::Quote;
pub use reliable::Reliable;
pub use reliable_config::ReliableConfig;
pub use service::{
    Capacity, Channel, DATA_NAME_MAX, DatagramError, DatagramPort, GsoBatch, Incoming, Received,
};
