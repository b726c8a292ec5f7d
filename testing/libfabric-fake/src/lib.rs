//! A fake libfabric provider in memory, for tests: every fault on demand, every misuse recorded.
//!
//! ```text
//!   code under test ---> libfabric_sys::Library ---> the fake's own fi_getinfo, fi_fabric, ...
//!                                                          |
//!   test ---> Fake: shape, faults, kill, step              v   fid_*, operation tables, as C
//!        <--- violations, stats, lent memory         State, behind one lock
//!
//!   slots      selects the fabric of a call without an object
//!   info       fi_getinfo and related calls       fabric    fabrics and domains
//!   endpoint   endpoints                          vector    address vectors
//!   memory     registrations                      queue     completion queues
//!   messages   posting, the C calls               posting, remote   its rules
//!   progress, matching, landing, finishing   how messages move; returning, loss, division   how they fail
//!   datagram   unreliable messages
//!   checker    counters, stretches of memory      completions   reading queues, the C calls
//! ```
//!
//! The fake has one process, no threads, no sockets, no clock: time is the number of polls. All randomness comes
//! The fake has one process, no threads, no sockets, no clock: time is the number of polls. All
//! randomness comes from one seed. Everything is as late and as awkward as the interface allows: a
//! send's memory is read when the receiver takes the message, a receive's is written some polls
//! later, unused fields hold garbage, contexts and prefixes are overwritten, places in address
//! vectors are soon reused.
//!
//! Only for tests: no shipped library depends on it.

// Argument lists are libfabric's.
#![allow(clippy::too_many_arguments)]

mod bytes;
mod checker;
mod completions;
mod datagram;
mod division;
mod endpoint;
mod fabric;
mod fake;
mod faults;
mod finishing;
mod hints;
mod info;
mod landing;
mod loss;
mod matching;
mod memory;
mod messages;
mod objects;
mod posting;
mod progress;
mod queue;
mod remote;
mod returning;
mod rng;
mod shape;
mod slots;
mod state;
mod tables;
mod vector;

pub use checker::Stats;
pub use fake::{Fake, Machine};
pub use faults::{Call, Death, Faults};
pub use shape::{Release, Shape, Wait};
