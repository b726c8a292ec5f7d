//! A reliable network: links between ports that keep order, fill up, break and are made again.
//!
//! ```text
//!   host A                                                     host B
//!    links: End ---- pipe: bytes in flight, last arrival ---> inbox (time, order) --> SimPort::poll
//!           End <--- room returns when B has read a piece ----- End
//! ```
//!
//! Owns: the open names, both ends of every link, everything in flight.

mod added;
mod by_hand;
mod places;
mod traffic;

pub use by_hand::UnderWay;

use crate::profile::Profile;
use crate::rng::Rng;
use crate::world::{NodeId, World};
use mx_proto::port::{HeaderBytes, LinkDown, RemoteKey};
use mx_proto::{EndpointId, Instant, LinkId, Memory, NicId, Target};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// Handle of the network; clones refer to the same network.
pub struct Fabric<M> {
    pub(crate) inner: Rc<RefCell<Inner<M>>>,
}

impl<M> Clone for Fabric<M> {
    fn clone(&self) -> Self {
        Self {
            inner: Rc::clone(&self.inner),
        }
    }
}

impl<M> std::fmt::Debug for Fabric<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fabric")
    }
}

/// Function that makes a second handle of the same memory, so that a port can read it later.
pub type Share<M> = fn(&M) -> M;

pub(crate) struct Inner<M> {
    pub(crate) world: World,
    pub(crate) rng: Rng,
    pub(crate) share: Option<Share<M>>,
    pub(crate) hosts: Vec<Host>,
    names: HashMap<(NicId, EndpointId), HostId>,
    registered: HashMap<u64, (HostId, M)>,
    /// Pending reads of registered memory, by host, link and token.
    pub(crate) reads: HashMap<(HostId, LinkId, u64), Read<M>>,
    /// Pairs of nodes that cannot reach each other, the smaller number first.
    cuts: HashSet<(NodeId, NodeId)>,
    /// Number of the next arrival, token or key.
    serial: u64,
    /// Maps other names of ports to their own.
    pub(crate) rename: fn(Target) -> Target,
    /// Whether nothing arrives by itself.
    by_hand: bool,
    /// Listener to packets that are sent whole.
    tap: Option<Tap>,
    /// Node that answers at all addresses of the fabric.
    impostor: Option<NodeId>,
    /// Whether no node answers there.
    mute: bool,
}

/// Listener to all packets that are sent whole.
pub type Tap = Box<dyn FnMut(&HeaderBytes, &[u8])>;

/// Number of a port since the network was made; never reused.
pub(crate) type HostId = usize;

/// An open port.
pub(crate) struct Host {
    pub(crate) node: NodeId,
    /// Interface of the host, if machines have no addresses.
    nic: NicId,
    name: EndpointId,
    pub(crate) profile: Profile,
    /// False once the port was dropped or its host has died.
    pub(crate) open: bool,
    inbox: BinaryHeap<Timed>,
    ends: Vec<Option<End>>,
    generations: Vec<u32>,
}

/// A host's end of a link.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) accepted: bool,
    pub(crate) up: bool,
    /// Whether nothing gets through any more, and the ends have not noticed yet.
    dark: bool,
    pub(crate) peer: Option<(HostId, LinkId)>,
    /// Whether the link was made beside another one.
    pub(crate) beside: bool,
    /// Whether the link is of a fabric, to which a session may move.
    pub(crate) added: bool,
    /// Address from which it comes, or to which it leads, if nodes have addresses.
    pub(crate) from: Option<NicId>,
    /// Bytes sent and not read by the peer.
    pub(crate) under_way: usize,
    /// Arrival time of the last piece sent: no later piece may overtake it.
    last_arrival: Instant,
    busy_until: Instant,
    /// Whether a send was rejected and "writable" has not been reported since.
    pub(crate) blocked: bool,
    /// Bytes of a partly accepted packet that are still to come.
    pub(crate) partial: Option<usize>,
    /// Packet that is arriving.
    pub(crate) assembly: Option<Assembly>,
}

/// A packet that has not arrived completely.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) header: HeaderBytes,
    pub(crate) len: usize,
    pub(crate) got: usize,
    pub(crate) into: Into,
}

/// Destination of an arriving packet's body.
#[derive(Debug)]
pub(crate) enum Into {
    Undecided,
    Placed,
    Kept(Vec<u8>),
    Nowhere,
}

/// An event that reaches a host.
pub(crate) struct Timed {
    at: Instant,
    order: u64,
    pub(crate) link: LinkId,
    pub(crate) what: What,
}

pub(crate) enum What {
    Up,
    Down(LinkDown),
    /// The beginning of a packet, or more of it.
    Piece {
        header: Option<HeaderBytes>,
        bytes: Vec<u8>,
    },
    Writable,
    RemoteRead {
        token: u64,
    },
    /// Time-out of a link that has not been bound.
    Unbound,
}

/// A read of memory that a peer registered.
pub(crate) struct Read<M> {
    pub(crate) key: RemoteKey,
    pub(crate) from: usize,
    pub(crate) into: M,
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Whether the read has been stopped.
    pub(crate) stopped: bool,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    /// A heap's greatest element comes first, so the order is reversed.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<M: Memory> Fabric<M> {
    /// Makes an empty network. With `share`, ports read held bodies as late as they may, straight
    /// from the sender's memory, and can read peers' memory; without it they copy at once.
    pub fn new(world: &World, share: Option<Share<M>>) -> Self {
        let inner = Inner {
            world: world.clone(),
            rng: world.fork_rng(),
            share,
            hosts: Vec::new(),
            names: HashMap::new(),
            registered: HashMap::new(),
            reads: HashMap::new(),
            cuts: HashSet::new(),
            serial: 0,
            rename: |target| target,
            by_hand: false,
            tap: None,
            impostor: None,
            mute: false,
        };
        Self {
            inner: Rc::new(RefCell::new(inner)),
        }
    }

    /// Lets ports be called by other names as well, which `rename` maps to their own.
    pub fn rename(&self, rename: fn(Target) -> Target) {
        self.inner.borrow_mut().rename = rename;
    }

    /// Returns the world of the network.
    pub fn world(&self) -> World {
        self.inner.borrow().world.clone()
    }

    /// Passes all packets that are sent whole from now on to `tap`.
    pub fn set_tap(&self, tap: Tap) {
        self.inner.borrow_mut().tap = Some(tap);
    }

    /// Stops everything between two nodes; both notice after their keep-alive time.
    pub fn cut(&self, a: NodeId, b: NodeId) {
        let mut inner = self.inner.borrow_mut();
        inner.cuts.insert((a.min(b), a.max(b)));
        inner.darken(|x, y| (x == a && y == b) || (x == b && y == a));
    }

    /// Lets the two nodes connect again.
    pub fn heal(&self, a: NodeId, b: NodeId) {
        self.inner.borrow_mut().cuts.remove(&(a.min(b), a.max(b)));
    }

    /// Breaks every link between two nodes now; they can connect again at once.
    pub fn reset_links(&self, a: NodeId, b: NodeId) {
        self.break_links(a, b, LinkDown::Reset);
    }

    /// Breaks every link between two nodes now, for a reason that both are told.
    pub fn break_links(&self, a: NodeId, b: NodeId, reason: LinkDown) {
        let mut inner = self.inner.borrow_mut();
        for (host, link) in inner.links_between(|x, y| x == a && y == b) {
            inner.break_link(host, link, reason);
        }
    }

    /// Delays everything in flight on one of a node's links beside others, and packets sent there
    /// next.
    pub fn delay_beside(&self, node: NodeId, nth: usize, span: Duration) {
        let mut inner = self.inner.borrow_mut();
        let beside = inner.links_beside(node);
        inner.delay(beside[nth % beside.len()], span);
    }

    /// Returns whether a node has links beside others.
    pub fn has_beside(&self, node: NodeId) -> bool {
        !self.inner.borrow().links_beside(node).is_empty()
    }

    /// Returns the number of a node's links that are not beside others.
    pub fn links_met(&self, node: NodeId) -> usize {
        let inner = self.inner.borrow();
        let mut links = inner.links_between(|x, _| x == node);
        links.retain(|(host, link)| inner.end(*host, *link).is_some_and(|end| !end.beside));
        links.len()
    }

    /// Breaks the links of a node that are not beside others.
    pub fn break_met(&self, node: NodeId) {
        let mut inner = self.inner.borrow_mut();
        for (host, link) in inner.links_between(|x, _| x == node) {
            if inner.end(host, link).is_some_and(|end| !end.beside) {
                inner.break_link(host, link, LinkDown::Reset);
            }
        }
    }

    /// Breaks one of a node's links beside others.
    pub fn break_beside(&self, node: NodeId, nth: usize) {
        let mut inner = self.inner.borrow_mut();
        let beside = inner.links_beside(node);
        let (host, link) = beside[nth % beside.len()];
        inner.break_link(host, link, LinkDown::Reset);
    }

    /// Fails the node's power: its ports disappear without a notice. Peers notice by silence.
    pub fn power_off(&self, node: NodeId) {
        let mut inner = self.inner.borrow_mut();
        inner.darken(|x, y| x == node || y == node);
        for host in 0..inner.hosts.len() {
            if inner.hosts[host].node == node {
                inner.shut(host, false);
            }
        }
    }
}

impl<M: Memory> Inner<M> {
    /// Opens a port. `None` if the name is in use.
    pub(crate) fn open(
        &mut self,
        node: NodeId,
        nic: NicId,
        endpoint: EndpointId,
        profile: Profile,
    ) -> Option<HostId> {
        let host = self.hosts.len();
        let names = self.names_of(node, nic, endpoint);
        if names.iter().any(|name| self.names.contains_key(name)) {
            return None;
        }
        self.hosts.push(Host {
            node,
            nic,
            name: endpoint,
            profile,
            open: true,
            inbox: BinaryHeap::new(),
            ends: Vec::new(),
            generations: Vec::new(),
        });
        self.names
            .extend(names.into_iter().map(|name| (name, host)));
        Some(host)
    }

    /// Closes a port: its name is free, its links break.
    pub(crate) fn shut(&mut self, host: HostId, tell: bool) {
        if !std::mem::replace(&mut self.hosts[host].open, false) {
            return;
        }
        self.names.retain(|_, owner| *owner != host);
        self.registered.retain(|_, (owner, _)| *owner != host);
        self.reads.retain(|(reader, _, _), _| *reader != host);
        for link in self.links_of(host) {
            if tell {
                self.tell_peer_down(host, link, LinkDown::Reset, false);
            }
            self.remove(host, link);
        }
        self.hosts[host].inbox.clear();
    }

    pub(crate) fn end(&self, host: HostId, link: LinkId) -> Option<&End> {
        let host = &self.hosts[host];
        let index = link.index() as usize;
        if host.generations.get(index) != Some(&link.generation()) {
            return None;
        }
        host.ends.get(index)?.as_ref()
    }

    pub(crate) fn end_mut(&mut self, host: HostId, link: LinkId) -> Option<&mut End> {
        let host = &mut self.hosts[host];
        let index = link.index() as usize;
        if host.generations.get(index) != Some(&link.generation()) {
            return None;
        }
        host.ends.get_mut(index)?.as_mut()
    }

    fn add_end(&mut self, host: HostId, up: bool, now: Instant) -> LinkId {
        let end = End {
            accepted: false,
            up,
            dark: false,
            peer: None,
            beside: false,
            added: false,
            from: None,
            under_way: 0,
            last_arrival: now,
            busy_until: now,
            blocked: false,
            partial: None,
            assembly: None,
        };
        let host = &mut self.hosts[host];
        let index = host
            .ends
            .iter()
            .position(Option::is_none)
            .unwrap_or(host.ends.len());
        if index == host.ends.len() {
            host.ends.push(None);
            host.generations.push(0);
        }
        host.generations[index] += 1;
        host.ends[index] = Some(end);
        LinkId::new(index as u32, host.generations[index])
    }

    pub(crate) fn remove(&mut self, host: HostId, link: LinkId) {
        if self.end(host, link).is_some() {
            self.reads
                .retain(|(reader, at, _), _| (*reader, *at) != (host, link));
            self.hosts[host].ends[link.index() as usize] = None;
        }
    }

    pub(crate) fn links_of(&self, host: HostId) -> Vec<LinkId> {
        let host = &self.hosts[host];
        (0..host.ends.len())
            .filter(|index| host.ends[*index].is_some())
            .map(|index| LinkId::new(index as u32, host.generations[index]))
            .collect()
    }

    /// Returns the links that a node has beside others.
    fn links_beside(&self, node: NodeId) -> Vec<(HostId, LinkId)> {
        let mut all = self.links_between(|x, _| x == node);
        all.retain(|(host, link)| {
            self.end(*host, *link)
                .is_some_and(|end| end.beside && !end.dark)
        });
        all
    }

    fn links_between(&self, wanted: impl Fn(NodeId, NodeId) -> bool) -> Vec<(HostId, LinkId)> {
        let mut found = Vec::new();
        for host in 0..self.hosts.len() {
            for link in self.links_of(host) {
                let peer = self.end(host, link).and_then(|end| end.peer);
                if let Some((peer, _)) = peer
                    && wanted(self.hosts[host].node, self.hosts[peer].node)
                {
                    found.push((host, link));
                }
            }
        }
        found
    }
}
