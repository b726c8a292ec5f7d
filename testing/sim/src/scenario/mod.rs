//! Runs of nodes, on any network.
//!
//! ```text
//!   chaos         Run: random operations, random faults
//!   interrupted   one transfer, disturbed after every single step
//!   besieged      random operations, while hostile nodes attack how all get to know each other
//!   roaming       random operations, while addresses change
//!        |
//!        v
//!   Network <-- networks: SimPorts on a Fabric, Reliable over a DatagramNet
//!           <-- other crates' ports that can live in virtual time
//! ```
//!
//! Owns: a scenario's view of a network.

mod besieged;
mod chaos;
mod interrupted;
mod networks;
mod roaming;
mod stage;

pub use besieged::{Besieged, Ground, Secrets};
pub use chaos::{Run, check_tally};
pub use interrupted::{Transfer, interrupt_everywhere, interrupt_somewhere};
pub use networks::{Reliably, Unreliably, key};
pub use roaming::Roaming;
pub use stage::Stage;

use crate::{Buffer, NodeId};
use mx_proto::port::Port;
use std::collections::BTreeMap;

/// The counts of all runs of a test.
pub type Tally = BTreeMap<String, u64>;

/// A network, as far as chaos is concerned.
pub trait Network {
    /// The ports of its nodes.
    type Port: Port<Buffer>;

    /// Opens a node's port, for a new life of that node.
    fn open(&mut self, node: NodeId) -> Self::Port;

    /// From now on nothing gets from one to the other.
    fn cut(&self, a: NodeId, b: NodeId);

    /// The opposite.
    fn heal(&self, a: NodeId, b: NodeId);

    /// Breaks what connects the two, once.
    fn reset(&self, a: NodeId, b: NodeId);

    /// The node's power fails; its port is dropped right after.
    fn power_off(&self, node: NodeId);

    /// From now on nothing goes wrong any more.
    fn calm(&self);
}
