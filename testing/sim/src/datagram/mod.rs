//! An unreliable datagram service with two channels, between nodes whose links are faulty.
//!
//! ```text
//!   SimDatagrams of a -- command --> Link a->b, Link a->b --> [Bottleneck] --> Mailbox --> poll of b
//!                     -- data -----> (or both over one)       of all that      drop-tail   GSO batches
//!                        GSO batches                               send to b
//! ```
//!
//! Whatever the contract of [`mx_proto::reliability::DatagramPort`] leaves open is a choice in
//! [`Terms`]. A test that decides by itself sees all that is sent ([`DatagramNet::set_gate`]), and lets
//! arrive what it likes ([`DatagramNet::inject`]), which it builds with [`header`].

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
