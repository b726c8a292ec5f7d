//! A reliable, ordered [`crate::port::Port`] made out of datagrams that get lost, doubled, overtaken
//! and damaged.

#[allow(dead_code)]
mod ack_policy;
#[allow(dead_code)]
mod checksum;
mod config;
#[allow(dead_code)]
mod cookies;
#[allow(dead_code)]
mod rtt;
mod seq;
mod service;

pub use config::ReliableConfig;
pub use service::{
    Capacity, Channel, DATA_NAME_MAX, DatagramError, DatagramPort, Incoming, Train,
};
