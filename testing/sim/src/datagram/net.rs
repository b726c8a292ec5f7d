//! Network between services: links, shared bottlenecks, and mailboxes.
//!
//! ```text
//!   GSO batch --> each datagram: script --> Link of (from, to, channel) --> [Bottleneck of `to`] --> Mailbox
//!                                                                        in the order of time
//! ```
//!
//! An address is a name; a datagram belongs to the node that has the name open when it arrives: a
//! restarted node receives datagrams for its former life, as with UDP.
//!
//! Owns: all links and all mailboxes.

use super::address::SimAddress;
use super::mailbox::{Letter, Mailbox};
use super::terms::{Oversize, Terms};
use crate::aside::aside;
use crate::link::{Fate, Faults, Link};
use crate::queue::Bottleneck;
use crate::rng::Rng;
use crate::trace::{Entry, HEAD};
use crate::world::{NodeId, World};
use mx_proto::Instant;
use mx_proto::reliability::{Channel, DatagramError, GsoBatch, Quote};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Decides the fate of a datagram on a channel.
pub type Script = Box<dyn FnMut(Channel, &[u8]) -> Fate>;

/// Decides about a GSO batch from one address to another.
pub type Gate = Box<dyn FnMut(SimAddress, SimAddress, GsoBatch<'_>) -> Passage>;

/// Decision of a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    /// The network carries it.
    Sent,
    /// Nothing of it arrives, unless the test [injects](DatagramNet::inject) it.
    Taken,
    /// The send fails with this error.
    Failed(DatagramError),
}

/// Counts of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of those datagrams.
    pub sent_bytes: u64,
    /// GSO batches of more than one datagram that were sent.
    pub batches: u64,
    /// Datagrams lost because a queue was full.
    pub queue_full: u64,
    /// Datagrams lost because a receiver's buffer was full.
    pub overrun: u64,
    /// Datagrams larger than the path allows.
    pub too_large: u64,
    /// Datagrams that had to be fragmented.
    pub cut_up: u64,
}

/// Handle of the network; clones refer to the same network.
#[derive(Clone)]
pub struct DatagramNet {
    pub(super) inner: Rc<RefCell<Inner>>,
}

pub(super) struct Inner {
    pub(super) world: World,
    pub(super) rng: Rng,
    pub(super) terms: Terms,
    gate: Option<Gate>,
    links: BTreeMap<(NodeId, NodeId, bool), Link>,
    scripts: BTreeMap<(NodeId, NodeId), Script>,
    bottlenecks: BTreeMap<NodeId, Bottleneck>,
    queueing: BinaryHeap<Reverse<Queueing>>,
    pub(super) boxes: BTreeMap<SimAddress, Mailbox>,
    bytes_to: BTreeMap<SimAddress, u64>,
    traffic: Traffic,
    order: u64,
    /// Number of data channels opened so far.
    pub(super) drawn: u32,
    /// Address from which no datagram can come any more.
    pub(super) cut_off: Option<SimAddress>,
}

/// A letter in flight to a bottleneck; fields are ordered by time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Queueing {
    at: Instant,
    order: u64,
    receiver: NodeId,
    to: SimAddress,
    letter: Letter,
}

impl fmt::Debug for DatagramNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatagramNet")
    }
}

impl DatagramNet {
    /// Makes a network.
    pub fn new(world: &World, terms: Terms) -> Self {
        let inner = Inner {
            world: world.clone(),
            rng: world.fork_rng(),
            terms,
            gate: None,
            links: BTreeMap::new(),
            scripts: BTreeMap::new(),
            bottlenecks: BTreeMap::new(),
            queueing: BinaryHeap::new(),
            boxes: BTreeMap::new(),
            bytes_to: BTreeMap::new(),
            traffic: Traffic::default(),
            order: 0,
            drawn: 0,
            cut_off: None,
        };
        Self {
            inner: Rc::new(RefCell::new(inner)),
        }
    }

    /// Changes the terms, except faults and MTU of links in use.
    pub fn change(&self, change: impl FnOnce(&mut Terms)) {
        change(&mut self.inner.borrow_mut().terms);
    }

    /// Changes the faults of all links, present and future.
    pub fn set_faults(&self, faults: Faults) {
        let mut inner = self.inner.borrow_mut();
        inner.terms.faults = faults;
        let links = inner.links.values_mut();
        links.for_each(|link| link.set_faults(faults));
    }

    /// Changes the faults from one node to another.
    pub fn set_faults_of(&self, from: NodeId, to: NodeId, faults: Faults) {
        let mut inner = self.inner.borrow_mut();
        inner.both_links(from, to, |link| link.set_faults(faults));
    }

    /// Changes the route from one node to another: datagrams of at most `mtu` bytes pass in one
    /// piece.
    pub fn set_mtu_of(&self, from: NodeId, to: NodeId, mtu: usize) {
        let mut inner = self.inner.borrow_mut();
        inner.both_links(from, to, |link| link.set_mtu(mtu));
    }

    /// Makes all traffic to a node share one link: `rate` bytes a second, with at most `limit`
    /// waiting bytes.
    pub fn set_bottleneck(&self, to: NodeId, rate: u64, limit: usize) {
        let mut inner = self.inner.borrow_mut();
        inner.bottlenecks.insert(to, Bottleneck::new(rate, limit));
    }

    /// Lets `script` decide about everything that `from` sends to `to`.
    pub fn set_script(&self, from: NodeId, to: NodeId, script: Option<Script>) {
        let scripts = &mut self.inner.borrow_mut().scripts;
        match script {
            Some(script) => scripts.insert((from, to), script),
            None => scripts.remove(&(from, to)),
        };
    }

    /// Lets `gate` decide about everything sent, before the network handles it.
    pub fn set_gate(&self, gate: Gate) {
        self.inner.borrow_mut().gate = Some(gate);
    }

    /// Delivers a datagram now, as if `from` had sent it.
    pub fn inject(&self, from: SimAddress, to: SimAddress, bytes: &[u8]) {
        self.post_now(to, || Letter::Datagram(from, bytes.to_vec()));
    }

    /// Delivers a GSO batch now that is cut every `segment` bytes, which is not 0.
    pub fn inject_batch(&self, from: SimAddress, to: SimAddress, bytes: &[u8], segment: usize) {
        self.post_now(to, || Letter::Batch(from, bytes.to_vec(), segment));
    }

    fn post_now(&self, to: SimAddress, letter: impl FnOnce() -> Letter) {
        aside(|| {
            let mut inner = self.inner.borrow_mut();
            let now = inner.world.now();
            inner.post(to, now, letter());
        });
    }

    /// Returns the number of datagrams and errors that have arrived at an address and were not
    /// polled.
    pub fn waiting(&self, address: SimAddress) -> usize {
        aside(|| {
            let mut inner = self.inner.borrow_mut();
            inner
                .up_to_date(address)
                .map_or(0, |mailbox| mailbox.waiting())
        })
    }

    /// Drops everything in flight to a node.
    pub fn discard(&self, node: NodeId) {
        let mut inner = self.inner.borrow_mut();
        let boxes = inner.boxes.values_mut();
        boxes.filter(|it| it.node == node).for_each(Mailbox::clear);
    }

    /// Declares that nothing can come from an address any more, which every service knows.
    pub fn cut_off(&self, address: SimAddress) {
        self.inner.borrow_mut().cut_off = Some(address);
    }

    pub(super) fn wake_after(&self, span: Duration, node: NodeId) {
        aside(|| self.inner.borrow().world.wake_after(span, node));
    }

    /// Reports to `from` now, as any machine can, that a datagram to `to` was rejected, or, with
    /// `most`, that it was larger than that.
    pub fn inject_error(
        &self,
        from: SimAddress,
        to: SimAddress,
        most: Option<usize>,
        quote: Option<Quote>,
    ) {
        self.post_now(from, || match most {
            Some(most) => Letter::TooLarge(to, most, quote),
            None => Letter::Refused(to, quote),
        });
    }

    /// Stops all traffic between two nodes, or lets it pass again.
    pub fn set_cut(&self, a: NodeId, b: NodeId, cut: bool) {
        let mut inner = self.inner.borrow_mut();
        inner.both_links(a, b, |link| link.set_cut(cut));
        inner.both_links(b, a, |link| link.set_cut(cut));
    }

    /// Returns the data channel that `node` has now.
    pub fn data_address(&self, node: NodeId) -> Option<SimAddress> {
        let inner = self.inner.borrow();
        let mut boxes = inner.boxes.iter();
        let of_node = boxes.find(|(address, mailbox)| {
            address.channel() == Channel::Data && mailbox.node == node && mailbox.open
        });
        of_node.map(|(address, _)| *address)
    }

    /// Returns the bytes sent to an address so far, whether they arrived or not.
    pub fn bytes_to(&self, address: SimAddress) -> u64 {
        let inner = self.inner.borrow();
        inner.bytes_to.get(&address).copied().unwrap_or(0)
    }

    /// Returns the counts so far.
    pub fn traffic(&self) -> Traffic {
        self.inner.borrow().traffic
    }
}

impl Inner {
    fn link(&mut self, from: NodeId, to: NodeId, channel: Channel) -> &mut Link {
        let (terms, rng) = (&self.terms, &mut self.rng);
        let own_link = channel == Channel::Command && !terms.one_queue;
        let new = || Link::new(terms.faults, terms.mtu, rng.fork());
        self.links.entry((from, to, own_link)).or_insert_with(new)
    }

    fn both_links(&mut self, from: NodeId, to: NodeId, change: impl Fn(&mut Link)) {
        for channel in [Channel::Command, Channel::Data] {
            change(self.link(from, to, channel));
        }
    }

    /// Sends a GSO batch, or returns an error.
    pub(super) fn send(
        &mut self,
        (node, from): (NodeId, SimAddress),
        to: SimAddress,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        match self.gate.as_mut().map(|gate| gate(from, to, batch)) {
            None | Some(Passage::Sent) => {}
            Some(Passage::Taken) => return Ok(()),
            Some(Passage::Failed(error)) => return Err(error),
        }
        let may_cut = batch.may_fragment && self.terms.oversize != Oversize::IsSwallowed;
        let refuse = self.terms.refuse;
        if self.rng.chance(refuse) {
            return Err(DatagramError::WouldBlock);
        }
        let now = self.world.now();
        *self.bytes_to.entry(to).or_default() += batch.bytes.len() as u64;
        let open = self.boxes.get(&to).filter(|mailbox| mailbox.open);
        let Some(receiver) = open.map(|mailbox| mailbox.node) else {
            if self.terms.answers_refused {
                let at = now.after(self.terms.faults.latency * 2);
                self.post(from, at, Letter::Refused(to, Quote::read(batch.bytes)));
            }
            return Ok(());
        };
        let link = self.link(node, receiver, from.channel());
        let (mtu, is_cut) = (link.mtu(), link.is_cut());
        if is_cut && self.terms.answers_cut {
            return Err(DatagramError::Unreachable);
        }
        let largest = batch.segment.min(batch.bytes.len());
        if largest > mtu && !may_cut && !is_cut {
            match self.terms.oversize {
                Oversize::Vanishes | Oversize::IsSwallowed => {}
                Oversize::IsReported => {
                    let at = now.after(self.terms.faults.latency * 2);
                    let quote = Quote::read(batch.bytes);
                    self.post(from, at, Letter::TooLarge(to, mtu, quote));
                }
                Oversize::IsRefused => return Err(DatagramError::TooLarge(mtu)),
            }
        }
        self.traffic.batches += u64::from(batch.bytes.len() > batch.segment);
        for bytes in batch.bytes.chunks(batch.segment) {
            self.carry((node, from), (receiver, to), bytes, may_cut);
        }
        Ok(())
    }

    /// Carries a datagram over its link.
    fn carry(
        &mut self,
        (node, from): (NodeId, SimAddress),
        (receiver, to): (NodeId, SimAddress),
        bytes: &[u8],
        may_cut: bool,
    ) {
        let now = self.world.now();
        let channel = from.channel();
        let script = self.scripts.get_mut(&(node, receiver));
        let wanted = script.map_or(Fate::Chance, |script| script(channel, bytes));
        let link = self.link(node, receiver, channel);
        let mtu = link.mtu();
        let offered = link.offer(now, bytes, wanted, may_cut);
        self.traffic.sent += 1;
        self.traffic.sent_bytes += bytes.len() as u64;
        self.traffic.queue_full += u64::from(offered.fate == "queue full");
        self.traffic.too_large += u64::from(bytes.len() > mtu && !may_cut);
        self.traffic.cut_up += u64::from(bytes.len() > mtu && may_cut);
        let mut head = [0; HEAD];
        let kept = HEAD.min(bytes.len());
        head[..kept].copy_from_slice(&bytes[..kept]);
        self.world.log(Entry::Datagram {
            from: node,
            to: receiver,
            channel,
            head,
            len: bytes.len(),
            fate: offered.fate,
        });
        let shared = self.bottlenecks.contains_key(&receiver);
        for (at, bytes) in offered.arrivals {
            let letter = Letter::Datagram(from, bytes);
            if shared {
                self.order += 1;
                self.queueing.push(Reverse(Queueing {
                    at,
                    order: self.order,
                    receiver,
                    to,
                    letter,
                }));
                // The receiver, which has nothing yet, must look at the queue.
                self.world.wake(at, receiver);
            } else {
                self.post(to, at, letter);
            }
        }
    }

    /// Moves datagrams that have reached a bottleneck by now past it, in order of arrival.
    fn pass_bottlenecks(&mut self) {
        let now = self.world.now();
        while let Some(Reverse(first)) = self.queueing.peek()
            && first.at <= now
        {
            let Some(Reverse(first)) = self.queueing.pop() else {
                return;
            };
            let Queueing {
                at,
                receiver,
                to,
                letter,
                ..
            } = first;
            let bottleneck = self.bottlenecks.get_mut(&receiver);
            let left_at = match bottleneck {
                Some(bottleneck) => bottleneck.pass(at, letter.len()),
                None => Some(at),
            };
            match left_at {
                Some(left_at) => self.post(to, left_at, letter),
                None => self.traffic.queue_full += 1,
            }
        }
    }

    fn post(&mut self, to: SimAddress, at: Instant, letter: Letter) {
        self.order += 1;
        let grid = self.terms.moderation.as_nanos().max(1) as u64;
        let at = Instant(at.0.next_multiple_of(grid));
        if let Some(mailbox) = self.boxes.get_mut(&to)
            && mailbox.post(at, self.order, letter)
        {
            self.world.wake(at, mailbox.node);
        }
    }

    /// Returns a mailbox after moving letters that are due.
    pub(super) fn up_to_date(&mut self, address: SimAddress) -> Option<&mut Mailbox> {
        self.pass_bottlenecks();
        let now = self.world.now();
        let mailbox = self.boxes.get_mut(&address)?;
        self.traffic.overrun += mailbox.receive_due(now);
        Some(mailbox)
    }
}
