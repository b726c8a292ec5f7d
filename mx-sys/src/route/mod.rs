//! Which port a link takes: chosen, resolved, and fallen back from.
//!
//! ```text
//!                    HostPorts  (host: chooses one per link)
//!          .-------------|--------------+---------------.---------------.
//!      loopback        local           tcp <--exchange-- rdm            dgram
//!      this endpoint   this host       everywhere       a fabric       asked for
//!      (a queue)       (shared memory) (kernel sockets) (libfabric)    (UDP, libfabric)
//! ```
//!
//! Each of them is an [`mx_proto::port::Port`] and a crate of its own (`ports/`), but the loopback, and
//! knows nothing of the others.

mod address_exchange;
#[cfg(test)]
mod address_exchange_tests;
mod dgram;
mod filter;
pub mod host;
pub mod loopback;
pub mod open;
pub(crate) mod proof;
