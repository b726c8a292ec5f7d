//! What carries packets on a real machine.
//!
//! ```text
//!                    HostPorts  (host: chooses one per link)
//!          .-------------|--------------+---------------.
//!      loopback        local           tcp             rdm
//!      this endpoint   this host       everywhere      fabrics
//!      (a queue)       (shared memory) (kernel sockets) (libfabric)
//! ```
//!
//! Each of them is an [`mx_proto::port::Port`] of its own and knows nothing of the others.

pub mod host;
pub mod local;
pub mod loopback;
mod nest;
pub mod open;
pub mod rdm;
#[cfg(test)]
mod recorder;
pub mod tcp;
