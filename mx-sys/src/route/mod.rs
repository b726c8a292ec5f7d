//! The choice of a port for each link, and fallbacks.
//!
//! ```text
//!                    HostPorts  (host: chooses one per link)
//!          .-------------|--------------+---------------.---------------.
//!      loopback        local           tcp ---moves to-- rdm            dgram
//!      this endpoint   this machine    everywhere       a fabric       asked for
//!      (a queue)       (shared memory) (kernel sockets) (libfabric)    (UDP, libfabric)
//! ```
//!
//! Each of them is an [`mx_proto::port::Port`], and, except the loopback, an independent crate (`ports/`).

mod choice;
mod fabrics;
#[cfg(test)]
mod fabrics_tests;
pub mod host;
pub(crate) mod host_port;
mod interface;
mod lazy;
pub(crate) mod link_origin;
pub mod loopback;
pub mod open;
pub mod reopen;
mod round;
#[cfg(test)]
mod round_tests;
