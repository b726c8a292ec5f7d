//! The tcp port by itself, and strangers that speak to it.

#[path = "../tcp_common/mod.rs"]
mod tcp_common;

mod large;
mod links;
mod packets;
mod parts;
mod strangers;
