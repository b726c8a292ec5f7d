//! Guarantees for a node that hostile ones attack.
//!
//! ```text
//!   an operation with an honest peer      succeeds, a connect soon
//!   an honest peer                        is never down
//!   a message of a hostile node           comes from a name at an address of its own machine,
//!                                         and not at all where there is a secret
//! ```

use super::{Node, home};
use crate::buffer::Buffer;
use crate::hostile::MARK;
use crate::world::{NodeId, World};
use mx_proto::port::Port;
use mx_proto::{EndpointId, Identity, MatchBits, NicId, Status};
use std::time::Duration;

/// The attackers.
#[derive(Clone, Debug)]
pub struct Siege {
    /// Nodes below this number are honest; only they have a life in the book.
    honest: usize,
    /// The addresses of the others.
    hostile: Vec<NicId>,
    /// They do not know the site's secret, and there is one.
    secret: bool,
    /// Receives have been called off, which ends sends.
    over: bool,
    /// Limit of the time for a connect of an honest node to another.
    patient: Duration,
}

impl Siege {
    /// Of `nodes` those from `honest` on attack.
    pub fn new(world: &World, honest: usize, nodes: usize, secret: bool) -> Self {
        let hostile = (honest..nodes).flat_map(|id| world.addresses(id)).collect();
        Self {
            honest,
            hostile,
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
        assert!(
            self.hostile.is_empty() || self.hostile.contains(&name.nic),
            "a hostile node is known as {name:?}"
        );
    }

    /// That node does as it likes.
    pub(super) fn doubts(&self, node: NodeId) -> bool {
        node >= self.honest
    }

    pub(super) fn check_connect(&self, to: NodeId, status: Status, took: Duration) {
        if self.doubts(to) {
            assert!(
                !(self.secret && status == Status::Success),
                "n{to} is connected to without the secret"
            );
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
    /// Others attack it from now on.
    pub fn besiege(&mut self, siege: &Siege) {
        self.endpoint.owner_mut().siege = Some(siege.clone());
    }

    /// The attack is over: receives are called off from now on.
    pub fn shed(&mut self) {
        if let Some(siege) = &mut self.endpoint.owner_mut().siege {
            siege.over = true;
        }
    }

    /// It is connected to that node.
    pub fn knows(&self, node: NodeId) -> bool {
        let name = (home(&self.world, node), EndpointId(node as u32));
        let known = self.endpoint.remote_of(name.0, name.1);
        let known = known.filter(|known| self.peers.contains(known));
        let identity = known.and_then(|known| self.endpoint.remote_identity(known));
        identity.is_some_and(|identity| self.is_honest(&identity))
    }

    /// That is what an honest node calls itself.
    pub(super) fn is_honest(&self, identity: &Identity) -> bool {
        let book = self.endpoint.owner().book.borrow();
        let life = book.life_of(identity.session);
        life.is_some_and(|life| {
            let node = book.lives()[life].node;
            let name = (home(&self.world, node), EndpointId(node as u32));
            (identity.nic, identity.endpoint) == name
        })
    }
}
