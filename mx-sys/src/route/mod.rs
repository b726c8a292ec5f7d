//! Which port a link takes: chosen, resolved, and fallen back from.
//!
//! ```text
//!                    HostPorts  (host: chooses one per link)
//!          .-------------|--------------+---------------.---------------.
//!      loopback        local           tcp <--locator-- rdm            dgram
//!      this endpoint   this host       everywhere       a fabric       asked for
//!      (a queue)       (shared memory) (kernel sockets) (libfabric)    (UDP, libfabric)
//! ```
//!
//! Each of them is an [`mx_proto::port::Port`] and a crate of its own (`ports/`), but the loopback, and
//! knows nothing of the others.

mod dgram;
pub mod host;
mod locator;
#[cfg(test)]
mod locator_tests;
pub mod loopback;
pub mod open;
pub(crate) mod proof;
mod watch;
