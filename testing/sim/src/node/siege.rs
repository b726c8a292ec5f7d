//! Guarantees for a node that hostile nodes attack.
//!
//! ```text
//!   an operation with an honest peer      succeeds, a connect soon, and with that life under a name that
//!                                         the network proves
//!   a connected honest peer               is never down
//!   a call of a hostile node              reaches it, or, relayed, an honest node under that one's own name
//!   a message of a hostile node           comes from a name at an address of its own,
//!                                         and not at all if there is a secret
//! ```

use super::Node;
use crate::buffer::Buffer;
use crate::hostile::MARK;
use crate::world::{NodeId, World};
use mx_proto::port::Port;
use mx_proto::{Identity, MatchBits, RemoteId, Status};
use std::time::Duration;

/// Attackers of a node.
#[derive(Clone, Debug)]
pub struct Siege {
    /// First number of the hostile nodes; only the nodes below have a life in the book.
    honest: usize,
    /// Number of all nodes.
    nodes: usize,
    world: World,
    /// Whether there is a site's secret, which the attackers do not know.
    secret: bool,
    /// Whether receives have been cancelled, which ends sends.
    over: bool,
    /// Maximum time for a connect between honest nodes.
    patient: Duration,
}

impl Siege {
    /// Makes a siege in which those of `nodes` from `honest` on attack.
    pub fn new(world: &World, honest: usize, nodes: usize, secret: bool) -> Self {
        Self {
            honest,
            nodes,
            world: world.clone(),
            secret,
            over: false,
            patient: Duration::from_secs(4),
        }
    }

    /// Returns whether messages with these bits are from hostile nodes.
    pub(super) fn is_hostile(bits: MatchBits) -> bool {
        bits.0 & MARK == MARK
    }

    /// Checks a name under which a hostile node was accepted.
    pub(super) fn judge(&self, name: &Identity) {
        assert!(!self.secret, "{name:?} got in without the secret");
        let mut hostile = self.honest..self.nodes;
        assert!(
            hostile.any(|id| self.world.proves(id, name.nic)),
            "a hostile node is known as {name:?}"
        );
    }

    /// Returns whether a node is hostile.
    pub(super) fn doubts(&self, node: NodeId) -> bool {
        node >= self.honest
    }

    /// Returns whether a node shares the address of a hostile one, and with it the share of places.
    pub fn is_crowded(&self, node: NodeId) -> bool {
        let translator = |id| self.world.home(id).translator;
        let at = translator(node);
        at.is_some() && (self.honest..self.nodes).any(|id| translator(id) == at)
    }

    pub(super) fn check_connect(
        &self,
        (from, to): (NodeId, NodeId),
        status: Status,
        took: Duration,
    ) {
        if self.doubts(to) {
            assert!(
                !(self.secret && status == Status::Success),
                "n{to} is connected to without the secret"
            );
            return;
        }
        if status == Status::NoResources && self.is_crowded(from) {
            return;
        }
        assert_eq!(status, Status::Success, "the connect to n{to} has failed");
        assert!(took <= self.patient, "the connect to n{to} took {took:?}");
    }

    pub(super) fn check_send(&self, status: Status) {
        let good = matches!(status, Status::Success | Status::Truncated)
            || self.over && status == Status::Aborted;
        assert!(good, "a send to an honest node ended as {status:?}");
    }
}

impl<P: Port<Buffer>> Node<P> {
    /// Starts an attack on the node.
    pub fn besiege(&mut self, siege: &Siege) {
        self.endpoint.owner_mut().siege = Some(siege.clone());
    }

    /// Ends the attack: receives are cancelled from now on.
    pub fn shed(&mut self) {
        if let Some(siege) = &mut self.endpoint.owner_mut().siege {
            siege.over = true;
        }
    }

    /// Returns whether the node is connected to the present life of that node.
    pub fn knows(&self, node: NodeId) -> bool {
        let known = |remote: &RemoteId| {
            let identity = self.endpoint.remote_identity(*remote);
            identity.is_some_and(|of| self.honest(&of) == Some(node))
        };
        self.peers.iter().any(known)
    }

    /// Returns the node with that session, if the name is one of its own.
    pub(super) fn honest(&self, identity: &Identity) -> Option<NodeId> {
        let book = self.endpoint.owner().book.borrow();
        let node = book.lives()[book.life_of(identity.session)?].node;
        let named = self.world.number(node) == identity.endpoint;
        (named && self.world.proves(node, identity.nic)).then_some(node)
    }
}
