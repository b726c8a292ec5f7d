//! Guarantees for a node that hostile ones attack.
//!
//! ```text
//!   an operation with an honest peer      succeeds, a connect soon, and with that life under a name that
//!                                         the network proves
//!   an honest peer that it knows          is never down
//!   a call of a hostile node              gets to it, or, passed on, to an honest one under its own name
//!   a message of a hostile node           comes from a name at an address of its own,
//!                                         and not at all where there is a secret
//! ```

use super::Node;
use crate::buffer::Buffer;
use crate::hostile::MARK;
use crate::world::{NodeId, World};
use mx_proto::port::Port;
use mx_proto::{Identity, MatchBits, RemoteId, Status};
use std::time::Duration;

/// The attackers.
#[derive(Clone, Debug)]
pub struct Siege {
    /// Nodes below this number are honest; only they have a life in the book.
    honest: usize,
    /// All nodes.
    nodes: usize,
    world: World,
    /// The attackers do not know the site's secret, and there is one.
    secret: bool,
    /// Receives have been called off, which ends sends.
    over: bool,
    /// Limit of the time for a connect of an honest node to another.
    patient: Duration,
}

impl Siege {
    /// A siege in which those of `nodes` from `honest` on attack.
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

    /// Messages with these bits are from hostile nodes.
    pub(super) fn is_hostile(bits: MatchBits) -> bool {
        bits.0 & MARK == MARK
    }

    /// A hostile node has got in under this name.
    pub(super) fn judge(&self, name: &Identity) {
        assert!(!self.secret, "{name:?} got in without the secret");
        let mut hostile = self.honest..self.nodes;
        assert!(
            hostile.any(|id| self.world.proves(id, name.nic)),
            "a hostile node is known as {name:?}"
        );
    }

    /// Whether a node does as it likes.
    pub(super) fn doubts(&self, node: NodeId) -> bool {
        node >= self.honest
    }

    /// Whether a node has the address of a hostile one, whose share of places is its own.
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
    /// Has others attack the node from now on.
    pub fn besiege(&mut self, siege: &Siege) {
        self.endpoint.owner_mut().siege = Some(siege.clone());
    }

    /// The attack is over: receives are called off from now on.
    pub fn shed(&mut self) {
        if let Some(siege) = &mut self.endpoint.owner_mut().siege {
            siege.over = true;
        }
    }

    /// Whether the node is connected to the present life of that node.
    pub fn knows(&self, node: NodeId) -> bool {
        let known = |remote: &RemoteId| {
            let identity = self.endpoint.remote_identity(*remote);
            identity.is_some_and(|of| self.honest(&of) == Some(node))
        };
        self.peers.iter().any(known)
    }

    /// The node that has that session, if the name is one of its own.
    pub(super) fn honest(&self, identity: &Identity) -> Option<NodeId> {
        let book = self.endpoint.owner().book.borrow();
        let node = book.lives()[book.life_of(identity.session)?].node;
        let named = self.world.number(node) == identity.endpoint;
        (named && self.world.proves(node, identity.nic)).then_some(node)
    }
}
