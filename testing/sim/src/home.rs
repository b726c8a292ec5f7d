//! Places of nodes in the network: addresses, translators of addresses, numbers.
//!
//! ```text
//!   addresses   of the node's machine: any of them reaches it, and its links leave from one
//!   translator  its links come from there instead, and it cannot be called
//! ```
//!
//! Owns: all addresses that nodes have ever had.

use crate::world::NodeId;
use mx_proto::{EndpointId, NicId};
use std::collections::{BTreeMap, BTreeSet};

/// Place of a node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Home {
    /// Addresses of its machine; it calls itself by the first one. Empty if all nodes are on one
    /// machine without addresses.
    pub addresses: Vec<NicId>,
    /// Address of the translator in front of it.
    pub translator: Option<NicId>,
    /// Endpoint number, if it differs from the node's number.
    pub number: Option<EndpointId>,
}

/// Places of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    now: BTreeMap<NodeId, Home>,
    /// Addresses from which links of each node have come, or at which it could be called.
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

    /// Returns whether a peer may know the node under that address, now or from before.
    pub(crate) fn proves(&self, node: NodeId, nic: NicId) -> bool {
        let ever = self.ever.get(&node).filter(|ever| !ever.is_empty());
        ever.is_none_or(|ever| ever.contains(&nic))
    }
}
