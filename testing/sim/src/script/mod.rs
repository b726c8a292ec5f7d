//! A network of which a test has every packet in its hands, and on which it may play any peer.
//!
//! ```text
//!   Endpoint -- ScriptedPort --[ end 0 ===== cable ===== end 1 ]-- ScriptedPort -- Endpoint
//!                                  |  events wait here    |
//!                                 tell, inject        or the test: Script::on_sent
//! ```
//!
//! A [`LinkId`]'s index is the number of its cable, its generation the end: 0 began it. An end belongs to a
//! node's port or to the test. A port takes in events in the order in which they came.
//!
//! Owns: the cables, the events that wait at their ends, the memory that a port reads for its peer.
//! Knows nothing of: what packets mean, clocks.
//! Cost: that of an event does not grow with the number of cables.

mod port;

pub use port::ScriptedPort;

use mx_proto::origin::{Address, Seen};
use mx_proto::port::{
    ConnectError, HeaderBytes, Limits, LinkDown, RemoteKey, RemoteUse, SendError, Sent,
};
use mx_proto::secret::Binding;
use mx_proto::{Identity, LinkId, Memory, NicId, Target};
use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::rc::Rc;

/// The two ends of a cable: the number of a node, or `None` for the test.
pub type Ends = [Option<usize>; 2];

/// A test's settings of its ports, and its view of what they send.
pub trait Script: Sized + fmt::Debug {
    /// The memory of operations.
    type Memory: Memory + fmt::Debug;

    /// Runs work of a port or the network. A test that counts memory does not count that of the work.
    fn aside<T>(work: impl FnOnce() -> T) -> T {
        work()
    }

    /// The limits of every link.
    fn limits(&self) -> Limits;

    /// The far end of a link that `node` starts, and the first event at its own.
    fn connect(
        &mut self,
        _node: usize,
        _target: Target,
    ) -> Result<(Option<usize>, Option<Event>), ConnectError> {
        Err(ConnectError::NoResources)
    }

    /// The answer to [`mx_proto::port::LinkControl::seen`].
    fn seen(&self, _link: LinkId, _ends: Ends, claimed: &Identity) -> Seen {
        Seen::trusted(claimed)
    }

    /// Whether an address is one of a node's.
    fn has_address(&self, _node: usize, _address: Address) -> bool {
        true
    }

    /// Whether an interface is one of a node's.
    fn has_interface(&self, _node: usize, _nic: NicId) -> bool {
        true
    }

    /// The answer to [`mx_proto::port::LinkControl::binding`].
    fn binding(&self, _link: LinkId) -> Binding {
        [0; 2]
    }

    /// Whether a link has no room for a packet, or for the rest of one, although the peer reads.
    fn refuses(&mut self, _link: LinkId, _header: &HeaderBytes) -> bool {
        false
    }

    /// Number of bytes that a port takes at once of a body in memory that is larger than
    /// [`Limits::packet_max`], or (not `first`) of the rest of one.
    fn part(&self, len: usize, _first: bool) -> usize {
        len
    }

    /// The way in which a port hands over a body of `len` bytes.
    fn delivery(&self, _len: usize) -> Delivery {
        Delivery::Whole
    }

    /// Records a packet that a port has accepted, or the first part of it.
    fn on_sent(&mut self, link: LinkId, header: &HeaderBytes, body: &[u8]);

    /// Returns a second handle of memory that a peer's memory is read into. `None`: ports read none.
    fn share(_memory: &Self::Memory) -> Option<Self::Memory> {
        None
    }

    /// Checks the port's handle of memory that the endpoint takes back from a read.
    fn on_recalled(&self, _memory: &Self::Memory) {}
}

/// The way in which a port hands over a packet's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The sink is not asked for a place.
    Whole,
    /// The body is written at once where the sink says.
    Placed {
        /// The sink is told that the packet begins.
        begin: bool,
    },
    /// The sink is asked when the packet begins, and again for the second half ([`Rest`]).
    Halves,
}

/// The time at which the second half of a body follows the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rest {
    /// As the next event.
    #[default]
    AtOnce,
    /// With the next event of the link, unless the link goes down.
    WithNext,
    /// Nothing follows a half until the link goes down.
    Never,
}

/// An event that waits at a port's end.
#[derive(Clone, Debug)]
pub enum Event {
    /// The link can carry packets.
    Up,
    /// The link has room again.
    Writable,
    /// A packet has arrived.
    Packet(HeaderBytes, Vec<u8>, Delivery),
    /// Bytes of a remote read are moving.
    Activity(RemoteUse),
    /// A remote read with this token has ended, well or not.
    Read(u64, bool),
    /// The link is gone. Events behind it are dropped.
    Down(LinkDown),
}

impl Event {
    fn is_down(&self) -> bool {
        matches!(self, Self::Down(_))
    }
}

#[derive(Debug)]
struct End {
    /// `None`: the test.
    node: Option<usize>,
    cookie: u64,
    /// The port has closed the link, or has been told that it is down.
    closed: bool,
    /// The port has found no room, and is told when there is some.
    blocked: bool,
    /// Half of the first event, a packet, has been handed over.
    begun: bool,
    inbox: VecDeque<Event>,
    /// A packet of which the port brings more.
    open: Option<Box<Open>>,
}

/// A packet that a port has accepted in part.
#[derive(Debug)]
struct Open {
    header: HeaderBytes,
    bytes: Vec<u8>,
    /// Bytes of the whole body.
    len: usize,
}

impl End {
    fn new(node: Option<usize>) -> Self {
        Self {
            node,
            cookie: 0,
            closed: false,
            blocked: false,
            begun: false,
            inbox: VecDeque::new(),
            open: None,
        }
    }

    fn close(&mut self) {
        (self.closed, self.begun) = (true, false);
        self.inbox = VecDeque::new();
        self.open = None;
    }
}

/// An event that is handed over, behind the rest of a packet if that was due.
#[derive(Debug)]
struct Step {
    link: LinkId,
    cookie: u64,
    rest: Option<(HeaderBytes, Vec<u8>)>,
    event: Option<Event>,
}

/// The state of a scripted network.
#[derive(Debug)]
pub struct Net<S: Script> {
    /// The test's part.
    pub script: S,
    /// Number of events that may wait at a port's end; with more its peer has no room.
    pub room: usize,
    /// Ports know about room when they are asked.
    pub tells_of_room: bool,
    /// Cables, also future ones, from which nothing is taken out.
    pub held: HashSet<u32>,
    /// Ports look at their newest cable first.
    pub newest_first: bool,
    /// The second half of a body.
    pub rest: Rest,
    /// Tokens of reads that need not go on.
    pub stopped: Vec<u64>,
    /// Keys that have been valid, in the order of [`mx_proto::port::RemoteMemory::deregister`].
    pub deregistered: Vec<RemoteKey>,
    /// The last read: its token and where it goes.
    reading: Option<(u64, S::Memory)>,
    cables: Vec<[End; 2]>,
    /// By node: an entry for each event, also for those that have been dropped with their link.
    ready: Vec<VecDeque<LinkId>>,
}

impl<S: Script> Net<S> {
    /// Adds a cable and returns its number.
    pub fn lay(&mut self, ends: Ends) -> u32 {
        self.cables.push(ends.map(End::new));
        self.cables.len() as u32 - 1
    }

    /// Number of cables that there have been.
    pub fn cables(&self) -> u32 {
        self.cables.len() as u32
    }

    /// Links of a node that have not ended, oldest first.
    pub fn links(&self, node: usize) -> impl Iterator<Item = LinkId> {
        self.all().filter(move |link| {
            let end = self.end(*link);
            end.node == Some(node) && !end.closed
        })
    }

    /// Lets an event wait at a port's end, one of a remote read before all others. Events at ends that are
    /// closed or the test's are dropped.
    pub fn tell(&mut self, link: LinkId, event: Event) {
        let end = self.end_mut(link);
        if let Some(node) = end.node
            && !end.closed
        {
            if let Event::Activity(_) | Event::Read(..) = event {
                end.inbox.insert(usize::from(end.begun), event);
                self.ready[node].push_front(link);
            } else {
                end.inbox.push_back(event);
                self.ready[node].push_back(link);
            }
        }
    }

    /// Lets a packet arrive at a port's end, from its peer or from the test.
    pub fn inject(&mut self, link: LinkId, header: HeaderBytes, body: Vec<u8>) {
        let delivery = self.script.delivery(body.len());
        self.tell(link, Event::Packet(header, body, delivery));
    }

    /// Lets every link end for a reason.
    pub fn cut(&mut self, reason: LinkDown) {
        for link in self.all() {
            self.tell(link, Event::Down(reason));
        }
    }

    /// Ends the links of a node's last port; their peers are not told.
    pub fn forget(&mut self, node: usize) {
        let ends = self.cables.iter_mut().flatten();
        ends.filter(|end| end.node == Some(node))
            .for_each(End::close);
    }

    /// Whether a port has closed its end, or has been told that the link is down.
    pub fn is_closed(&self, link: LinkId) -> bool {
        self.end(link).closed
    }

    /// The word that a port's endpoint has bound to a link.
    pub fn cookie(&self, link: LinkId) -> u64 {
        self.end(link).cookie
    }

    /// Whether an event waits for a node.
    pub fn is_due(&self, node: usize) -> bool {
        let mut links = self.ready[node].iter();
        links.any(|link| !self.end(*link).inbox.is_empty())
    }

    /// The packet that is first at a port's end.
    pub fn first(&self, link: LinkId) -> Option<(HeaderBytes, Vec<u8>)> {
        match self.end(link).inbox.front()? {
            Event::Packet(header, body, _) => Some((*header, body.clone())),
            _ => None,
        }
    }

    /// Number of packets of which half has been handed over.
    pub fn begun(&self) -> usize {
        self.cables.iter().flatten().filter(|end| end.begun).count()
    }

    /// Tells ports that have found no room that there is some: [`Script::refuses`] may answer differently now.
    pub fn wake_senders(&mut self) {
        for link in self.all() {
            self.wake_sender(link);
        }
    }

    /// The token of the last remote read.
    pub fn reading(&self) -> Option<u64> {
        self.reading.as_ref().map(|(token, _)| *token)
    }

    fn all(&self) -> impl Iterator<Item = LinkId> + use<S> {
        let cables = 0..self.cables.len() as u32;
        cables.flat_map(|cable| [0, 1].map(|end| LinkId::new(cable, end)))
    }

    fn end(&self, link: LinkId) -> &End {
        &self.cables[link.index() as usize][link.generation() as usize]
    }

    fn end_mut(&mut self, link: LinkId) -> &mut End {
        &mut self.cables[link.index() as usize][link.generation() as usize]
    }

    fn has_room(&self, link: LinkId) -> bool {
        let end = self.end(link);
        end.open.is_none() && self.end(peer(link)).inbox.len() < self.room
    }

    /// Tells a port that has found no room that there is some, when its peer's queue is half empty.
    fn wake_sender(&mut self, link: LinkId) {
        let reader = self.end(peer(link));
        let is_low = reader.node.is_some() && reader.inbox.len() < self.room / 2;
        let end = self.end_mut(link);
        if is_low && std::mem::take(&mut end.blocked) {
            self.tell(link, Event::Writable);
        }
    }

    /// Whether a port may send a packet now, or (`rest`) the rest of one.
    fn may_send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        rest: bool,
    ) -> Result<(), SendError> {
        if self.end(link).closed || self.end(peer(link)).closed {
            return Err(SendError::Down);
        }
        if self.script.refuses(link, header) {
            self.end_mut(link).blocked = true;
            return Err(SendError::WouldBlock);
        }
        if !rest && !self.has_room(link) {
            self.end_mut(link).blocked = true;
            self.wake_sender(link);
            return Err(SendError::WouldBlock);
        }
        Ok(())
    }

    /// Takes a packet, or what there is of it, with `part` bytes that are new.
    fn accept(&mut self, link: LinkId, packet: Open, part: usize) -> Sent {
        if packet.bytes.len() == packet.len {
            self.inject(peer(link), packet.header, packet.bytes);
            return Sent::Whole;
        }
        let end = self.end_mut(link);
        (end.open, end.blocked) = (Some(Box::new(packet)), true);
        self.wake_sender(link);
        Sent::Part(part)
    }

    /// Takes `part` bytes of the rest of a packet, whose length is checked. `None`: there is no such packet.
    fn go_on(
        &mut self,
        link: LinkId,
        memory: &S::Memory,
        (offset, len): (usize, usize),
        part: usize,
    ) -> Option<Sent> {
        let mut packet = self.end_mut(link).open.take()?;
        assert_eq!(packet.bytes.len() + len, packet.len, "not the rest");
        copy(&mut packet.bytes, memory, offset, part);
        Some(self.accept(link, *packet, part))
    }

    fn close(&mut self, link: LinkId) {
        self.end_mut(link).close();
        self.tell(peer(link), Event::Down(LinkDown::Closed));
    }

    fn ends(&self, link: LinkId) -> Ends {
        let ends = &self.cables[link.index() as usize];
        ends.each_ref().map(|end| end.node)
    }

    /// Takes out the next event for a node.
    fn next(&mut self, node: usize) -> Option<Step> {
        loop {
            let at = self.next_ready(node)?;
            let link = self.ready[node].remove(at)?;
            let when = self.rest;
            let end = self.end_mut(link);
            let mut step = Step {
                link,
                cookie: end.cookie,
                rest: None,
                event: None,
            };
            if std::mem::take(&mut end.begun) {
                let Some(Event::Packet(header, body, _)) = end.inbox.pop_front() else {
                    continue;
                };
                match when {
                    Rest::AtOnce => {}
                    Rest::WithNext => step.event = end.inbox.pop_front(),
                    Rest::Never => step.event = end.inbox.drain(..).find(Event::is_down),
                }
                if !step.event.as_ref().is_some_and(Event::is_down) {
                    step.rest = Some((header, body));
                }
            } else if let Some(event) = end.inbox.pop_front() {
                step.event = Some(event);
            } else {
                // Its link has ended.
                continue;
            }
            if step.event.as_ref().is_some_and(Event::is_down) {
                end.close();
            }
            self.wake_sender(peer(link));
            return Some(step);
        }
    }

    /// The entry of the next event for a node that is not held.
    fn next_ready(&self, node: usize) -> Option<usize> {
        let mut free = self.ready[node].iter().enumerate().filter(|(_, link)| {
            let end = self.end(**link);
            let is_stuck =
                self.rest == Rest::Never && end.begun && !end.inbox.iter().any(Event::is_down);
            !is_stuck && !self.held.contains(&link.index())
        });
        let next = if self.newest_first {
            free.max_by_key(|(_, link)| link.index())
        } else {
            free.next()
        };
        next.map(|(at, _)| at)
    }

    /// Half of a packet has been handed over.
    fn put_back(&mut self, link: LinkId, header: HeaderBytes, body: Vec<u8>) {
        let end = self.end_mut(link);
        end.begun = true;
        let packet = Event::Packet(header, body, Delivery::Halves);
        end.inbox.push_front(packet);
        if let Some(node) = end.node.filter(|_| self.rest != Rest::WithNext) {
            self.ready[node].push_front(link);
        }
    }
}

/// Adds bytes of memory to a packet.
fn copy(into: &mut Vec<u8>, memory: &impl Memory, offset: usize, len: usize) {
    let before = into.len();
    memory.visit(offset, len, |piece| into.extend_from_slice(piece));
    assert_eq!(into.len() - before, len, "more than there is");
}

/// The other end of a cable.
fn peer(link: LinkId) -> LinkId {
    LinkId::new(link.index(), 1 - link.generation())
}

/// A handle of a scripted network.
#[derive(Debug)]
pub struct ScriptedNet<S: Script>(Rc<RefCell<Net<S>>>);

impl<S: Script> Clone for ScriptedNet<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: Script> ScriptedNet<S> {
    /// A network without cables, on which there is always room.
    pub fn new(script: S) -> Self {
        let net = || Net {
            script,
            room: usize::MAX,
            tells_of_room: false,
            held: HashSet::new(),
            newest_first: false,
            rest: Rest::default(),
            stopped: Vec::new(),
            deregistered: Vec::new(),
            reading: None,
            cables: Vec::new(),
            ready: Vec::new(),
        };
        Self(S::aside(|| Rc::new(RefCell::new(net()))))
    }

    /// Opens a port of a node. All ports of a node have the same links.
    pub fn port(&self, node: usize) -> ScriptedPort<S> {
        self.with(|net| {
            let nodes = net.ready.len().max(node + 1);
            net.ready.resize(nodes, VecDeque::new());
        });
        ScriptedPort::new(self.clone(), node)
    }

    /// Looks at the network, or changes it.
    pub fn with<T>(&self, work: impl FnOnce(&mut Net<S>) -> T) -> T {
        S::aside(|| work(&mut self.0.borrow_mut()))
    }
}
