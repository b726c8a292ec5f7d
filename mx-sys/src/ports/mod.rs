//! What carries packets on a real machine.
//!
//! ```text
//!                    HostPorts  (host: chooses one per link)
//!          .-------------|--------------+---------------.---------------.
//!      loopback        local           tcp <--locator-- rdm            dgram
//!      this endpoint   this host       everywhere       a fabric       asked for
//!      (a queue)       (shared memory) (kernel sockets) (libfabric)    (UDP, libfabric)
//! ```
//!
//! Each of them is an [`mx_proto::port::Port`] of its own and knows nothing of the others. What opens
//! libfabric's objects is shared by those that use it (`fabric`).

mod detour;
pub mod dgram;
mod fabric;
pub mod host;
pub mod local;
mod locator;
#[cfg(test)]
mod locator_tests;
pub mod loopback;
mod nest;
pub mod open;
mod origin;
mod owner;
pub mod rdm;
#[cfg(test)]
mod recorder;
mod relay;
mod scout;
mod strangers;
pub mod tcp;
