//! What carries packets on a real machine.
//!
//! ```text
//!                    HostPorts  (host: chooses one per link)
//!          .-------------|--------------.
//!      loopback        local           tcp
//!      this endpoint   this host       everywhere
//!      (a queue)       (shared memory) (kernel sockets)
//! ```
//!
//! Each of them is an [`mx_proto::port::Port`] of its own and knows nothing of the others.

pub mod host;
pub mod local;
pub mod loopback;
mod nest;
pub mod open;
#[cfg(test)]
mod recorder;
pub mod tcp;
