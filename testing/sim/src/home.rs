//! The places of nodes in the network: addresses, translators of addresses, numbers.
//!
//! ```text
//!   addresses   of the node's machine: it is called at any of them, and its links leave from one
//!   translator  its links come from there instead, and it cannot be called
//! ```
//!
//! Owns: all addresses that a node has ever had.

use crate::world::NodeId;
use mx_proto::{EndpointId, NicId};
use std::collections::{BTreeMap, BTreeSet};

/// The place of a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Home {
    /// The addresses of its machine, by the first of which it calls itself; none where all nodes are on
    /// one machine without addresses.
    pub addresses: Vec<NicId>,
    /// The address of the translator that it is behind.
    pub translator: Option<NicId>,
    /// Its endpoint number, if that is not the node's.
    pub number: Option<EndpointId>,
}

/// The places of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    now: BTreeMap<NodeId, Home>,
    /// Where links of each have come from, and where it could be called.
    ever: BTreeMap<NodeId, BTreeSet<NicId>>,
}

impl Homes {
    pub(crate) fn set(&mut self, node: NodeId, home: Home) {
        let ever = self.ever.entry(node).or_default();
        ever.extend(home.translator);
        if home.translator.is_none() {
            ever.extend(&home.addresses);
        }
        self.now.insert(node, home);
    }

    pub(crate) fn of(&self, node: NodeId) -> Home {
        self.now.get(&node).cloned().unwrap_or_default()
    }

    /// Whether a peer may know the node under that address, now or from before.
    pub(crate) fn proves(&self, node: NodeId, nic: NicId) -> bool {
        let ever = self.ever.get(&node).filter(|ever| !ever.is_empty());
        ever.is_none_or(|ever| ever.contains(&nic))
    }
}
