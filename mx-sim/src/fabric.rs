//! A reliable network: links between ports that keep order, fill up, break and come back.
//!
//! ```text
//!   host A                                                     host B
//!    links: End ---- pipe: bytes under way, last arrival ----> inbox (time, order) --> SimPort::poll
//!           End <--- room comes back when B has taken a piece --- End
//! ```
//!
//! Owns: who is reachable under which name, both ends of every link, everything under way.
//! Knows nothing of: what packets mean. [`crate::SimPort`] is the view one node has of it.

use crate::profile::Profile;
use crate::rng::Rng;
use crate::trace::Entry;
use crate::world::{NodeId, World};
use mx_proto::port::{ConnectError, HEADER_LEN, HeaderBytes, LinkDown, RemoteKey};
use mx_proto::{EndpointId, Instant, LinkId, Memory, NicId, Target};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

/// The network; clones are the same one.
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

/// Makes a second handle of the same memory, so that a port can read it later.
pub type Share<M> = fn(&M) -> M;

pub(crate) struct Inner<M> {
    pub(crate) world: World,
    pub(crate) rng: Rng,
    pub(crate) share: Option<Share<M>>,
    pub(crate) hosts: Vec<Host<M>>,
    names: HashMap<(NicId, EndpointId), HostId>,
    exposed: HashMap<u64, (HostId, M)>,
    /// Reads of exposed memory that have been asked for: by host, link and token.
    pub(crate) reads: HashMap<(HostId, LinkId, u64), Read<M>>,
    /// Pairs of nodes that cannot reach each other, the smaller number first.
    cuts: HashSet<(NodeId, NodeId)>,
    /// The number of the next arrival, token or key.
    serial: u64,
}

/// Number of a port since the network was made; never reused.
pub(crate) type HostId = usize;

/// One open port.
pub(crate) struct Host<M> {
    pub(crate) node: NodeId,
    pub(crate) profile: Profile,
    /// False: the port has been dropped or its host is gone.
    pub(crate) open: bool,
    inbox: BinaryHeap<Timed<M>>,
    ends: Vec<Option<End>>,
    generations: Vec<u32>,
}

/// One host's end of a link.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) cookie: u64,
    pub(crate) up: bool,
    /// Nothing gets through any more, and nobody has noticed yet.
    dark: bool,
    peer: Option<(HostId, LinkId)>,
    /// Bytes sent and not taken in by the peer.
    pub(crate) under_way: usize,
    /// When the last piece sent will be there: nothing may overtake it.
    last_arrival: Instant,
    busy_until: Instant,
    /// "No room" has been said and "writable" has not.
    pub(crate) blocked: bool,
    /// Bytes of a packet taken in part that are still to come.
    pub(crate) partial: Option<usize>,
    /// Tokens of memory that is still to be read.
    pub(crate) held: Vec<u64>,
    /// The packet that is arriving.
    pub(crate) assembly: Option<Assembly>,
}

/// A packet of which not all has arrived.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) header: HeaderBytes,
    pub(crate) len: usize,
    pub(crate) got: usize,
    pub(crate) into: Into,
}

/// Where the body of an arriving packet goes.
#[derive(Debug)]
pub(crate) enum Into {
    Undecided,
    Placed,
    Kept(Vec<u8>),
    Nowhere,
}

/// Something that reaches a host.
pub(crate) struct Timed<M> {
    at: Instant,
    order: u64,
    pub(crate) link: LinkId,
    pub(crate) what: What<M>,
}

pub(crate) enum What<M> {
    Up,
    Down(LinkDown),
    /// The beginning of a packet, or more of it.
    Piece {
        header: Option<HeaderBytes>,
        bytes: Bytes<M>,
    },
    Writable,
    Released(u64),
    RemoteRead {
        token: u64,
    },
}

/// A read of memory that a peer exposed.
pub(crate) struct Read<M> {
    pub(crate) key: RemoteKey,
    pub(crate) from: usize,
    pub(crate) into: M,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// The bytes of a piece.
pub(crate) enum Bytes<M> {
    Copied(Vec<u8>),
    /// Still in the sender's memory, to be read as late as can be.
    Shared {
        memory: M,
        offset: usize,
        len: usize,
        token: u64,
        from: (HostId, LinkId),
        last: bool,
    },
}

impl<M> Bytes<M> {
    fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Shared { len, .. } => *len,
        }
    }
}

impl<M> PartialEq for Timed<M> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<M> Eq for Timed<M> {}

impl<M> PartialOrd for Timed<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Timed<M> {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<M: Memory> Fabric<M> {
    /// An empty network. With `share`, ports read bodies they hold as late as they may, straight
    /// from the sender's memory, and can read peers' memory; without, they copy at once.
    pub fn new(world: &World, share: Option<Share<M>>) -> Self {
        let inner = Inner {
            world: world.clone(),
            rng: world.fork_rng(),
            share,
            hosts: Vec::new(),
            names: HashMap::new(),
            exposed: HashMap::new(),
            reads: HashMap::new(),
            cuts: HashSet::new(),
            serial: 0,
        };
        Self {
            inner: Rc::new(RefCell::new(inner)),
        }
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
        let mut inner = self.inner.borrow_mut();
        for (host, link) in inner.links_between(|x, y| x == a && y == b) {
            inner.reset(host, link);
        }
    }

    /// The node's power fails: its ports are gone and nobody is told. Peers notice by silence.
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
    /// Opens a port. `None` when the name is taken.
    pub(crate) fn open(
        &mut self,
        node: NodeId,
        nic: NicId,
        endpoint: EndpointId,
        profile: Profile,
    ) -> Option<HostId> {
        if self.names.contains_key(&(nic, endpoint)) {
            return None;
        }
        let host = self.hosts.len();
        self.hosts.push(Host {
            node,
            profile,
            open: true,
            inbox: BinaryHeap::new(),
            ends: Vec::new(),
            generations: Vec::new(),
        });
        self.names.insert((nic, endpoint), host);
        Some(host)
    }

    /// A port is gone: its name is free, its links break.
    pub(crate) fn shut(&mut self, host: HostId, tell: bool) {
        if !std::mem::replace(&mut self.hosts[host].open, false) {
            return;
        }
        self.names.retain(|_, owner| *owner != host);
        self.exposed.retain(|_, (owner, _)| *owner != host);
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
            cookie: 0,
            up,
            dark: false,
            peer: None,
            under_way: 0,
            last_arrival: now,
            busy_until: now,
            blocked: false,
            partial: None,
            held: Vec::new(),
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

    /// Starts a link.
    pub(crate) fn connect(&mut self, host: HostId, to: Target) -> Result<LinkId, ConnectError> {
        let now = self.world.now();
        let link = self.add_end(host, false, now);
        let profile = self.hosts[host].profile;
        let (there, back) = (self.travel(host), self.travel(host));
        let round = there + back;
        let Some(&peer) = self.names.get(&(to.nic, to.endpoint)) else {
            self.put(now.after(round), host, link, What::Down(LinkDown::Refused));
            return Ok(link);
        };
        let (a, b) = (self.hosts[host].node, self.hosts[peer].node);
        if self.cuts.contains(&(a.min(b), a.max(b))) {
            let reason = self.rng.pick(&[LinkDown::TimedOut, LinkDown::Unreachable]);
            self.put(now.after(profile.keepalive), host, link, What::Down(reason));
            return Ok(link);
        }
        let other = self.add_end(peer, true, now.after(there));
        for (end, with) in [((host, link), (peer, other)), ((peer, other), (host, link))] {
            if let Some(end) = self.end_mut(end.0, end.1) {
                end.peer = Some(with);
                end.last_arrival = now.after(round);
            }
        }
        self.put(now.after(round), host, link, What::Up);
        Ok(link)
    }

    fn travel(&mut self, host: HostId) -> Duration {
        let profile = &self.hosts[host].profile;
        profile.latency + self.rng.span(profile.jitter)
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Something will reach `host` at `at`.
    pub(crate) fn put(&mut self, at: Instant, host: HostId, link: LinkId, what: What<M>) {
        if !self.hosts[host].open {
            return;
        }
        let order = self.serial();
        self.hosts[host].inbox.push(Timed {
            at,
            order,
            link,
            what,
        });
        self.world.wake(at, self.hosts[host].node);
    }

    /// What has reached `host` by now, oldest first.
    pub(crate) fn take(&mut self, host: HostId) -> Option<Timed<M>> {
        let now = self.world.now();
        let inbox = &mut self.hosts[host].inbox;
        if inbox.peek()?.at > now {
            None
        } else {
            inbox.pop()
        }
    }

    pub(crate) fn anything_due(&self, host: HostId) -> bool {
        let now = self.world.now();
        self.hosts[host]
            .inbox
            .peek()
            .is_some_and(|next| next.at <= now)
    }

    /// Sends bytes on their way, in pieces. The caller has checked that there is room.
    pub(crate) fn ship(
        &mut self,
        host: HostId,
        link: LinkId,
        mut header: Option<HeaderBytes>,
        bytes: Bytes<M>,
    ) {
        let piece = self.hosts[host].profile.piece.max(1);
        let pieces = match bytes {
            Bytes::Copied(bytes) if bytes.len() <= piece => vec![Bytes::Copied(bytes)],
            Bytes::Copied(bytes) => bytes
                .chunks(piece)
                .map(|part| Bytes::Copied(part.to_vec()))
                .collect(),
            shared @ Bytes::Shared { .. } => vec![shared],
        };
        for bytes in pieces {
            let len = bytes.len() + if header.is_some() { HEADER_LEN } else { 0 };
            let Some(at) = self.schedule(host, link, len) else {
                return;
            };
            let peer = self.end(host, link).and_then(|end| end.peer);
            let Some((peer, peer_link)) = peer else {
                return;
            };
            if let Some(end) = self.end_mut(host, link) {
                end.under_way += len;
            }
            self.put(
                at,
                peer,
                peer_link,
                What::Piece {
                    header: header.take(),
                    bytes,
                },
            );
        }
    }

    /// When `len` more bytes will be at the other side. `None`: never.
    fn schedule(&mut self, host: HostId, link: LinkId, len: usize) -> Option<Instant> {
        let now = self.world.now();
        let travel = self.travel(host);
        let bandwidth = self.hosts[host].profile.bandwidth;
        let end = self.end_mut(host, link)?;
        if end.dark {
            return None;
        }
        let mut left = now;
        if let Some(bandwidth) = bandwidth {
            let nanos = (len as u64).saturating_mul(1_000_000_000) / bandwidth.max(1);
            end.busy_until = end.busy_until.max(now).after(Duration::from_nanos(nanos));
            left = end.busy_until;
        }
        end.last_arrival = end.last_arrival.max(left.after(travel));
        Some(end.last_arrival)
    }

    /// `host` has taken in `len` bytes of `link`: the sender has room again.
    pub(crate) fn taken(&mut self, host: HostId, link: LinkId, len: usize) {
        let now = self.world.now();
        let back = self.travel(host);
        let Some(end) = self.end(host, link) else {
            return;
        };
        if end.dark {
            return;
        }
        let Some((peer, peer_link)) = end.peer else {
            return;
        };
        let room = self.hosts[peer].profile.room;
        let Some(sender) = self.end_mut(peer, peer_link) else {
            return;
        };
        sender.under_way = sender.under_way.saturating_sub(len);
        if sender.blocked && sender.under_way < room {
            sender.blocked = false;
            self.put(now.after(back), peer, peer_link, What::Writable);
        }
    }

    /// Reads a piece's bytes at last. `None` when they cannot be had any more.
    pub(crate) fn read(&mut self, bytes: Bytes<M>) -> Option<Vec<u8>> {
        let (memory, offset, len, token, (from, link), last) = match bytes {
            Bytes::Copied(bytes) => return Some(bytes),
            Bytes::Shared {
                memory,
                offset,
                len,
                token,
                from,
                last,
            } => (memory, offset, len, token, from, last),
        };
        if !self.end(from, link)?.held.contains(&token) {
            return None;
        }
        let mut copy = Vec::with_capacity(len);
        memory.visit(offset, len, |part| copy.extend_from_slice(part));
        if last {
            let at = self.world.now().after(self.travel(from));
            self.put(at, from, link, What::Released(token));
        }
        (copy.len() == len).then_some(copy)
    }

    /// Lets the other side know that the link is over; what is under way comes first if `flush`.
    pub(crate) fn tell_peer_down(
        &mut self,
        host: HostId,
        link: LinkId,
        reason: LinkDown,
        flush: bool,
    ) {
        let now = self.world.now();
        let travel = self.travel(host);
        let Some(end) = self.end(host, link) else {
            return;
        };
        if end.dark {
            return;
        }
        let Some((peer, peer_link)) = end.peer else {
            return;
        };
        let mut at = now.after(travel);
        if flush {
            at = at.max(end.last_arrival);
        }
        self.put(at, peer, peer_link, What::Down(reason));
    }

    /// The link breaks for both sides; each hears of it from its own port.
    pub(crate) fn reset(&mut self, host: HostId, link: LinkId) {
        self.tell_peer_down(host, link, LinkDown::Reset, false);
        let now = self.world.now();
        self.put(now, host, link, What::Down(LinkDown::Reset));
        if let Some(end) = self.end_mut(host, link) {
            end.dark = true;
        }
    }

    /// Silence on all links between nodes that `wanted` says yes to.
    fn darken(&mut self, wanted: impl Fn(NodeId, NodeId) -> bool) {
        let now = self.world.now();
        for (host, link) in self.links_between(wanted) {
            let keepalive = self.hosts[host].profile.keepalive;
            let Some(end) = self.end_mut(host, link) else {
                continue;
            };
            if std::mem::replace(&mut end.dark, true) {
                continue;
            }
            // What is under way this way is lost as well, except "down" itself.
            let inbox = std::mem::take(&mut self.hosts[host].inbox);
            let keep = |timed: &Timed<M>| {
                timed.link != link || timed.at <= now || matches!(timed.what, What::Down(_))
            };
            self.hosts[host].inbox = inbox.into_iter().filter(keep).collect();
            self.put(
                now.after(keepalive),
                host,
                link,
                What::Down(LinkDown::TimedOut),
            );
        }
    }

    pub(crate) fn expose(&mut self, host: HostId, memory: &M) -> Option<RemoteKey> {
        let share = self.share?;
        if !self.hosts[host].profile.remote_read || self.rng.chance(0.1) {
            return None;
        }
        let key = self.serial();
        self.exposed.insert(key, (host, share(memory)));
        Some(RemoteKey {
            address: host as u64,
            key,
        })
    }

    pub(crate) fn conceal(&mut self, host: HostId, key: RemoteKey) {
        if self
            .exposed
            .get(&key.key)
            .is_some_and(|(owner, _)| *owner == host)
        {
            self.exposed.remove(&key.key);
        }
    }

    /// Carries a read out, as late as it may be. `None`: it was recalled.
    pub(crate) fn finish_read(&mut self, host: HostId, link: LinkId, token: u64) -> Option<bool> {
        let Read {
            key,
            from,
            mut into,
            at,
            len,
        } = self.reads.remove(&(host, link, token))?;
        let end = self.end(host, link)?;
        let Some((owner, memory)) = self.exposed.get(&key.key) else {
            return Some(false);
        };
        if end.dark || end.peer.map(|(peer, _)| peer) != Some(*owner) {
            return Some(false);
        }
        let mut copy = Vec::with_capacity(len);
        memory.visit(from, len, |part| copy.extend_from_slice(part));
        Some(copy.len() == len && into.fill(at, len, &copy[..], 0) == len)
    }

    pub(crate) fn log_sent(
        &self,
        host: HostId,
        link: LinkId,
        header: &HeaderBytes,
        taken: usize,
        how: &'static str,
    ) {
        let peer = self.end(host, link).and_then(|end| end.peer);
        let from = self.hosts[host].node;
        let to = peer.map_or(from, |(peer, _)| self.hosts[peer].node);
        self.world.log(Entry::Sent {
            from,
            to,
            header: *header,
            taken,
            how,
        });
    }
}
