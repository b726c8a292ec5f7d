//! A libfabric provider made up in memory, for tests: every fault on demand, every misuse noted.
//!
//! ```text
//!   code under test ---> libfabric_sys::Library ---> the fake's own fi_getinfo, fi_fabric, ...
//!                                                          |
//!   test ---> Fake: shape, faults, kill, step              v   fid_*, operation tables, as C
//!        <--- violations, stats, what is lent        State, behind one lock
//!
//!   slots      which fabric a call without an object belongs to
//!   info       fi_getinfo and its kin             fabric    fabrics and domains
//!   endpoint   endpoints                          vector    address vectors
//!   memory     registrations                      queue     completion queues
//!   messages   posting, as C calls it             posting, remote   the rules of it
//!   progress, matching, landing, finishing   how messages move; returning, loss, division   how they do not
//!   datagram   how those move that nobody waits for
//!   checker    counters, stretches of memory      completions   reading queues, as C calls it
//! ```
//!
//! One process, no threads, no sockets, no clock: time is the number of polls. All chance comes
//! from one seed. Everything is as late and as awkward as the interface allows: a send's memory is
//! read when the receiver takes the message, a receive's is written some polls after that, fields
//! without meaning hold rubbish, contexts and prefixes are scribbled over, places in address
//! vectors come again soon.
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
