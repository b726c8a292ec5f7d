//! A network that delivers nothing unless it is told to, for a search through all orders.
//!
//! ```text
//!   put --> inbox, never due --> under_way(): the oldest on each link --> deliver(): due now
//! ```
//!
//! Packets over a link in one direction keep their order, including the link's end. There is no
//! latency, and nothing depends on time.

use super::{Fabric, HostId, Inner, What};
use crate::world::NodeId;
use mx_proto::{Instant, LinkId, Memory};
use std::hash::{Hash, Hasher};

/// The oldest event in flight on one link, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnderWay {
    /// Position of its sending among all events.
    pub order: u64,
    /// Sender; the receiver itself for an event of its own port.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Receiver's end of the link.
    pub link: LinkId,
}

/// Arrival time of an event that is not delivered.
pub(super) const NEVER: Instant = Instant(u64::MAX);

impl<M: Memory> Fabric<M> {
    /// Delivers only what [`Self::deliver`] names from now on. Called before any port is opened.
    pub fn by_hand(&self) {
        self.inner.borrow_mut().by_hand = true;
    }

    /// Returns the next event on each link in each direction, in order of sending.
    pub fn under_way(&self) -> Vec<UnderWay> {
        let inner = self.inner.borrow();
        let mut oldest: Vec<UnderWay> = Vec::new();
        for (id, host) in inner.hosts.iter().enumerate().filter(|(_, host)| host.open) {
            for timed in host.inbox.iter().filter(|timed| timed.at == NEVER) {
                let next = UnderWay {
                    order: timed.order,
                    from: inner.peer_node(id, timed.link).unwrap_or(host.node),
                    to: host.node,
                    link: timed.link,
                };
                let same = oldest
                    .iter_mut()
                    .find(|known| (known.to, known.link) == (next.to, next.link));
                match same {
                    Some(known) if known.order < next.order => {}
                    Some(known) => *known = next,
                    None => oldest.push(next),
                }
            }
        }
        oldest.sort_unstable_by_key(|next| next.order);
        oldest
    }

    /// Delivers an event: the receiver's port finds it in its next poll.
    pub fn deliver(&self, what: UnderWay) {
        let mut inner = self.inner.borrow_mut();
        let now = inner.world.now();
        let Some(host) = inner.open_host(what.to) else {
            return;
        };
        let inbox = std::mem::take(&mut inner.hosts[host].inbox);
        let inbox = inbox.into_iter().map(|mut timed| {
            if timed.order == what.order {
                timed.at = now;
            }
            timed
        });
        inner.hosts[host].inbox = inbox.collect();
    }

    /// Hashes an event in flight: events with equal hashes have the same effect on their receiver.
    pub fn describe(&self, what: UnderWay, into: &mut impl Hasher) {
        let inner = self.inner.borrow();
        let host = inner.open_host(what.to);
        let inbox = host.map(|host| &inner.hosts[host].inbox);
        let timed = inbox.and_then(|inbox| inbox.iter().find(|timed| timed.order == what.order));
        if let Some(timed) = timed {
            timed.link.hash(into);
            timed.what.describe(into);
        }
    }

    /// Hashes all links and all events in flight on them.
    pub fn describe_all(&self, into: &mut impl Hasher) {
        let inner = self.inner.borrow();
        for (id, host) in inner.hosts.iter().enumerate().filter(|(_, host)| host.open) {
            host.node.hash(into);
            for link in inner.links_of(id) {
                let Some(end) = inner.end(id, link) else {
                    continue;
                };
                let peer = end.peer.map(|(peer, link)| {
                    let peer = &inner.hosts[peer];
                    (peer.node, peer.open, link)
                });
                (link, end.up, end.dark, end.added, end.from, peer).hash(into);
                let mut inbox: Vec<_> = host.inbox.iter().filter(|t| t.link == link).collect();
                inbox.sort_unstable_by_key(|timed| timed.order);
                inbox.iter().for_each(|timed| timed.what.describe(into));
            }
        }
    }
}

impl<M: Memory> Inner<M> {
    fn open_host(&self, node: NodeId) -> Option<HostId> {
        let mut hosts = self.hosts.iter();
        hosts.position(|host| host.open && host.node == node)
    }

    fn peer_node(&self, host: HostId, link: LinkId) -> Option<NodeId> {
        let (peer, _) = self.end(host, link)?.peer?;
        Some(self.hosts[peer].node)
    }
}

impl What {
    /// Bodies are hashed by their length: an endpoint does not depend on their contents.
    fn describe(&self, into: &mut impl Hasher) {
        std::mem::discriminant(self).hash(into);
        match self {
            Self::Up | Self::Writable | Self::RemoteRead { .. } | Self::Unbound => {}
            Self::Down(reason) => std::mem::discriminant(reason).hash(into),
            Self::Piece { header, bytes } => {
                header.hash(into);
                match bytes {
                    // These bodies contain sessions, names and keys, and the handshakes of layers
                    // above.
                    bytes if bytes.len() <= SMALL => bytes.hash(into),
                    bytes => bytes.len().hash(into),
                }
            }
        }
    }
}

/// Maximum length of bodies that are hashed byte by byte.
const SMALL: usize = 256;
