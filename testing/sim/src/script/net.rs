//! The cables of a scripted network, and the events that wait at their ends.

use super::{Delivery, Ends, Event, Script, ScriptedPort};
use crate::aside::aside;
use mx_proto::port::{HeaderBytes, LinkDown, SendError, Sent};
use mx_proto::{LinkId, Memory};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// An end of a cable.
#[derive(Default, Debug)]
pub struct End {
    /// Number of the node that has it; `None` for the test.
    node: Option<usize>,
    /// The node's endpoint has accepted the link.
    pub accepted: bool,
    /// The port has closed the link, or has been told that it is down.
    pub closed: bool,
    /// Half of the first event, a packet, has been handed over.
    pub begun: bool,
    /// Events that wait for the port.
    pub inbox: VecDeque<Event>,
    /// The port has found no room, and is told when there is some.
    blocked: bool,
    /// A packet of which the port brings more.
    pub(super) open: Option<Box<Open>>,
}

/// A packet that a port has accepted in part.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) header: HeaderBytes,
    pub(super) bytes: Vec<u8>,
    /// Bytes of the whole body.
    pub(super) len: usize,
}

impl End {
    fn new(node: Option<usize>) -> Self {
        Self {
            node,
            ..Self::default()
        }
    }

    fn close(&mut self) {
        *self = Self::new(self.node);
        self.closed = true;
    }
}

/// An event that is handed over, behind the rest of a packet if that was due.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) link: LinkId,
    pub(super) rest: Option<Event>,
    pub(super) event: Event,
}

/// The state of a scripted network.
#[derive(Default, Debug)]
pub struct Net<S: Script> {
    /// The test's part.
    pub script: S,
    /// Number of events at a port's end with which its peer has no room; `None`: there is always some.
    pub room: Option<usize>,
    /// Ports know about room when they are asked.
    pub tells_of_room: bool,
    /// Cables, also future ones, from which nothing is taken out.
    pub held: BTreeSet<u32>,
    /// Ports look at their newest cable first.
    pub newest_first: bool,
    /// The second half of a body comes with the next event of its link, unless that is its end; not at once.
    pub halts: bool,
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

    /// Returns the number of cables that there have been.
    pub fn cables(&self) -> u32 {
        self.cables.len() as u32
    }

    /// Returns the links of a node that have not ended, oldest first.
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

    /// Returns whether an event waits for a node.
    pub fn is_due(&self, node: usize) -> bool {
        let mut links = self.ready[node].iter();
        links.any(|link| !self.end(*link).inbox.is_empty())
    }

    /// Tells ports that have found no room that there is some: [`Script::refuses`] may answer differently now.
    pub fn wake_senders(&mut self) {
        for link in self.all() {
            self.wake_sender(link);
        }
    }

    /// Returns one end of a cable.
    pub fn end(&self, link: LinkId) -> &End {
        &self.cables[link.index() as usize][link.generation() as usize]
    }

    fn all(&self) -> impl Iterator<Item = LinkId> + use<S> {
        let cables = 0..self.cables.len() as u32;
        cables.flat_map(|cable| [0, 1].map(|end| link(cable, end)))
    }

    pub(super) fn end_mut(&mut self, link: LinkId) -> &mut End {
        &mut self.cables[link.index() as usize][link.generation() as usize]
    }

    pub(super) fn has_room(&self, link: LinkId) -> bool {
        let waiting = self.end(peer(link)).inbox.len();
        self.end(link).open.is_none() && self.room.is_none_or(|room| waiting < room)
    }

    /// Tells a port that has found no room that there is some, when its peer's queue is half empty.
    fn wake_sender(&mut self, link: LinkId) {
        let reader = self.end(peer(link));
        let is_low = self.room.is_none_or(|room| reader.inbox.len() < room / 2);
        let is_low = is_low && reader.node.is_some();
        let end = self.end_mut(link);
        if is_low && std::mem::take(&mut end.blocked) {
            self.tell(link, Event::Writable);
        }
    }

    /// Whether a port may send a packet now, or (`rest`) the rest of one.
    pub(super) fn may_send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        rest: bool,
    ) -> Result<(), SendError> {
        if self.end(link).closed || self.end(peer(link)).closed {
            return Err(SendError::Down);
        }
        let refused = self.script.refuses(link, header);
        if !refused && (rest || self.has_room(link)) {
            return Ok(());
        }
        self.end_mut(link).blocked = true;
        if !refused {
            self.wake_sender(link);
        }
        Err(SendError::WouldBlock)
    }

    /// Takes a packet, or what there is of it, with `part` bytes that are new.
    pub(super) fn accept(&mut self, link: LinkId, packet: Open, part: usize) -> Sent {
        if packet.bytes.len() == packet.len {
            self.inject(peer(link), packet.header, packet.bytes);
            return Sent::Whole;
        }
        let end = self.end_mut(link);
        (end.open, end.blocked) = (Some(Box::new(packet)), true);
        self.wake_sender(link);
        Sent::Part(part)
    }

    /// Takes `part` bytes of the rest of a packet, which is `len` bytes.
    pub(super) fn go_on(
        &mut self,
        link: LinkId,
        memory: &S::Memory,
        (offset, len): (usize, usize),
        part: usize,
    ) -> Sent {
        let open = self.end_mut(link).open.take();
        let mut packet = open.expect("a packet is open");
        assert_eq!(packet.bytes.len() + len, packet.len, "not the rest");
        copy(&mut packet.bytes, memory, offset, part);
        self.accept(link, *packet, part)
    }

    pub(super) fn close(&mut self, link: LinkId) {
        self.end_mut(link).close();
        self.tell(peer(link), Event::Down(LinkDown::Closed));
    }

    pub(super) fn ends(&self, link: LinkId) -> Ends {
        let ends = &self.cables[link.index() as usize];
        ends.each_ref().map(|end| end.node)
    }

    /// Takes out the next event for a node.
    pub(super) fn next(&mut self, node: usize) -> Option<Step> {
        loop {
            let at = self.next_ready(node)?;
            let link = self.ready[node].remove(at)?;
            let end = self.end_mut(link);
            let is_begun = std::mem::take(&mut end.begun);
            let rest = is_begun.then(|| end.inbox.pop_front()).flatten();
            let Some(event) = end.inbox.pop_front() else {
                // Its link has ended.
                continue;
            };
            let is_down = matches!(event, Event::Down(_));
            if is_down {
                end.close();
            }
            self.wake_sender(peer(link));
            return Some(Step {
                link,
                rest: rest.filter(|_| !is_down),
                event,
            });
        }
    }

    /// The entry of the next event for a node that is not held.
    fn next_ready(&self, node: usize) -> Option<usize> {
        let entries = self.ready[node].iter().enumerate();
        let mut free = entries.filter(|(_, link)| !self.held.contains(&link.index()));
        let next = if self.newest_first {
            free.max_by_key(|(_, link)| link.index())
        } else {
            free.next()
        };
        next.map(|(at, _)| at)
    }

    /// Keeps a packet of which half has been handed over.
    pub(super) fn put_back(&mut self, link: LinkId, header: HeaderBytes, body: Vec<u8>) {
        let end = self.end_mut(link);
        end.begun = true;
        let packet = Event::Packet(header, body, Delivery::Halves);
        end.inbox.push_front(packet);
    }
}

/// Adds bytes of memory to a packet.
pub(super) fn copy(into: &mut Vec<u8>, memory: &impl Memory, offset: usize, len: usize) {
    let before = into.len();
    memory.visit(offset, len, |piece| into.extend_from_slice(piece));
    assert_eq!(into.len() - before, len, "more than there is");
}

/// The link at end 0 or 1 of a cable. A node may have both, so they are of two ports.
pub fn link(cable: u32, end: u32) -> LinkId {
    LinkId::new(cable, end).at_port(end as u8)
}

/// The other end of a cable.
fn peer(end: LinkId) -> LinkId {
    link(end.index(), 1 - end.generation())
}

/// A handle of a scripted network, which has no cables to begin with.
#[derive(Debug)]
pub struct ScriptedNet<S: Script>(Rc<RefCell<Net<S>>>);

impl<S: Script> Default for ScriptedNet<S> {
    fn default() -> Self {
        Self(aside(Rc::default))
    }
}

impl<S: Script> Clone for ScriptedNet<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S: Script> ScriptedNet<S> {
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
        aside(|| work(&mut self.0.borrow_mut()))
    }
}
