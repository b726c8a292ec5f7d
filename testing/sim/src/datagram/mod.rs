//! An unreliable datagram service with two channels, between nodes on faulty links.
//!
//! ```text
//!   SimDatagrams of a -- command --> Link a->b, Link a->b --> [Bottleneck] --> Mailbox --> poll of b
//!                     -- data -----> (or both over one)       of all that      drop-tail   GSO batches
//!                        GSO batches                               send to b
//! ```
//!
//! Everything that the contract of [`mx_proto::reliability::DatagramPort`] leaves open is a choice
//! in [`Terms`]. A test that decides itself sees all datagrams sent ([`DatagramNet::set_gate`]),
//! and delivers others ([`DatagramNet::inject`]), which it builds with [`header`].

mod address;
pub mod header;
mod mailbox;
mod net;
mod port;
mod terms;

pub use address::SimAddress;
pub use net::{DatagramNet, Gate, Passage, Script, Traffic};
pub use port::SimDatagrams;
pub use terms::{Oversize, Terms};
