//! A reliable, ordered [`crate::port::Port`] made out of datagrams that get lost, doubled, overtaken
//! and damaged.

mod config;
mod seq;
mod service;

pub use config::ReliableConfig;
pub use service::{
    Capacity, Channel, DATA_NAME_MAX, DatagramError, DatagramPort, Incoming, Train,
};
