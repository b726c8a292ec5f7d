//! An unreliable datagram service: every pair of nodes has a faulty [`Link`] in each direction.
//!
//! ```text
//!   SimDatagrams of a --> Link a->b (loses, doubles, reorders, corrupts) --> inbox of b --> poll
//! ```
//!
//! An address is a name; whoever has the name open when a datagram arrives gets it: a restarted
//! node hears what was meant for its former life, as with UDP.

use crate::link::{Faults, Link, Script};
use crate::rng::Rng;
use crate::trace::{Entry, HEAD};
use crate::world::{NodeId, World};
use mx_proto::port::ConnectError;
use mx_proto::former::{DatagramError, DatagramPort, Incoming};
use mx_proto::{EndpointId, Instant, NicId, Target};
use std::cell::RefCell;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

/// Where datagrams go.
pub type SimAddress = (NicId, EndpointId);

/// The network; clones are the same one.
#[derive(Clone)]
pub struct DatagramNet {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    world: World,
    rng: Rng,
    mtu: usize,
    faults: Faults,
    /// How likely a send finds no room.
    refuse: f64,
    /// Tell senders when nobody has the name.
    answer_refused: bool,
    links: BTreeMap<(NodeId, NodeId), Link>,
    boxes: BTreeMap<SimAddress, Mailbox>,
    order: u64,
}

struct Mailbox {
    node: NodeId,
    /// Somebody has the name open.
    open: bool,
    /// What is under way to it, whoever will have it open then.
    heap: BinaryHeap<Mail>,
}

#[derive(PartialEq, Eq)]
struct Mail {
    at: Instant,
    order: u64,
    from: SimAddress,
    /// `None`: nobody has the name `from`, to which something was sent.
    bytes: Option<Vec<u8>>,
}

impl Ord for Mail {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Mail {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Debug for DatagramNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatagramNet")
    }
}

impl DatagramNet {
    /// A network whose links all have `faults` to begin with.
    pub fn new(world: &World, mtu: usize, faults: Faults) -> Self {
        let inner = Inner {
            world: world.clone(),
            rng: world.fork_rng(),
            mtu,
            faults,
            refuse: 0.0,
            answer_refused: true,
            links: BTreeMap::new(),
            boxes: BTreeMap::new(),
            order: 0,
        };
        Self {
            inner: Rc::new(RefCell::new(inner)),
        }
    }

    /// How likely a send finds no room from now on.
    pub fn set_refuse(&self, probability: f64) {
        self.inner.borrow_mut().refuse = probability;
    }

    /// Whether senders are told that nobody has a name open. Not all networks do.
    pub fn set_answer_refused(&self, answer: bool) {
        self.inner.borrow_mut().answer_refused = answer;
    }

    /// Changes the faults of all links, present and future.
    pub fn set_faults(&self, faults: Faults) {
        let mut inner = self.inner.borrow_mut();
        inner.faults = faults;
        inner
            .links
            .values_mut()
            .for_each(|link| link.set_faults(faults));
    }

    /// Asks `script` about everything `from` sends to `to`.
    pub fn set_script(&self, from: NodeId, to: NodeId, script: Option<Script>) {
        self.inner.borrow_mut().link(from, to).set_script(script);
    }

    /// Lets a datagram arrive now, as if `from` had sent it.
    pub fn inject(&self, from: SimAddress, to: SimAddress, bytes: Vec<u8>) {
        let mut inner = self.inner.borrow_mut();
        let now = inner.world.now();
        inner.post(to, now, from, Some(bytes));
    }

    /// Stops everything between two nodes, or lets it through again.
    pub fn set_cut(&self, a: NodeId, b: NodeId, cut: bool) {
        let mut inner = self.inner.borrow_mut();
        inner.link(a, b).set_cut(cut);
        inner.link(b, a).set_cut(cut);
    }
}

impl Inner {
    fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        let (faults, rng) = (self.faults, &mut self.rng);
        self.links
            .entry((from, to))
            .or_insert_with(|| Link::new(faults, rng.fork()))
    }

    fn post(&mut self, to: SimAddress, at: Instant, from: SimAddress, bytes: Option<Vec<u8>>) {
        self.order += 1;
        let order = self.order;
        if let Some(mailbox) = self.boxes.get_mut(&to) {
            mailbox.heap.push(Mail {
                at,
                order,
                from,
                bytes,
            });
            self.world.wake(at, mailbox.node);
        }
    }
}

/// One node's end of the service. Dropping it frees its name.
#[derive(Debug)]
pub struct SimDatagrams {
    net: DatagramNet,
    node: NodeId,
    name: SimAddress,
}

impl SimDatagrams {
    /// Opens a name for `node`. `None` when somebody else has it.
    pub fn open(net: &DatagramNet, node: NodeId, nic: NicId, endpoint: EndpointId) -> Option<Self> {
        let mut inner = net.inner.borrow_mut();
        let (name, now) = ((nic, endpoint), inner.world.now());
        let new = Mailbox {
            node,
            open: false,
            heap: BinaryHeap::new(),
        };
        let mailbox = inner.boxes.entry(name).or_insert(new);
        if std::mem::replace(&mut mailbox.open, true) {
            return None;
        }
        // What arrived while nobody was there is lost.
        mailbox.node = node;
        mailbox.heap.retain(|mail| mail.at > now);
        let wakes: Vec<Instant> = mailbox.heap.iter().map(|mail| mail.at).collect();
        wakes.into_iter().for_each(|at| inner.world.wake(at, node));
        Some(Self {
            net: net.clone(),
            node,
            name,
        })
    }
}

impl Drop for SimDatagrams {
    fn drop(&mut self) {
        let mut inner = self.net.inner.borrow_mut();
        if let Some(mailbox) = inner.boxes.get_mut(&self.name) {
            mailbox.open = false;
        }
    }
}

impl DatagramPort for SimDatagrams {
    type Address = SimAddress;

    fn resolve(&self, target: Target) -> Result<SimAddress, ConnectError> {
        Ok((target.nic, target.endpoint))
    }

    fn mtu(&self) -> usize {
        self.net.inner.borrow().mtu
    }

    fn now(&self) -> Instant {
        self.net.inner.borrow().world.now()
    }

    fn send(&mut self, to: SimAddress, datagram: &[u8]) -> Result<(), DatagramError> {
        let mut inner = self.net.inner.borrow_mut();
        assert!(
            datagram.len() <= inner.mtu,
            "a datagram larger than the mtu"
        );
        let refuse = inner.refuse;
        if inner.rng.chance(refuse) {
            return Err(DatagramError::WouldBlock);
        }
        let now = inner.world.now();
        let open = inner.boxes.get(&to).filter(|mailbox| mailbox.open);
        let Some(node) = open.map(|mailbox| mailbox.node) else {
            if inner.answer_refused {
                let at = now.after(inner.faults.latency * 2);
                let name = self.name;
                inner.post(name, at, to, None);
            }
            return Ok(());
        };
        let offered = inner.link(self.node, node).offer(now, datagram);
        let mut head = [0; HEAD];
        let kept = HEAD.min(datagram.len());
        head[..kept].copy_from_slice(&datagram[..kept]);
        inner.world.log(Entry::Datagram {
            from: self.node,
            to: node,
            head,
            len: datagram.len(),
            fate: offered.fate,
        });
        for (at, bytes) in offered.arrivals {
            inner.post(to, at, self.name, Some(bytes));
        }
        Ok(())
    }

    fn poll(&mut self, budget: usize, mut receive: impl FnMut(Incoming<'_, SimAddress>)) -> bool {
        let mut busy = false;
        for _ in 0..budget {
            let mail = {
                let mut inner = self.net.inner.borrow_mut();
                let now = inner.world.now();
                let Some(mailbox) = inner.boxes.get_mut(&self.name) else {
                    return busy;
                };
                if mailbox.heap.peek().is_none_or(|mail| mail.at > now) {
                    return busy;
                }
                mailbox.heap.pop()
            };
            let Some(mail) = mail else { return busy };
            busy = true;
            match &mail.bytes {
                Some(bytes) => receive(Incoming::Datagram {
                    from: mail.from,
                    bytes,
                }),
                None => receive(Incoming::Refused { to: mail.from }),
            }
        }
        self.net.inner.borrow().world.wake(self.now(), self.node);
        busy
    }

    fn arm(&mut self) -> bool {
        let inner = self.net.inner.borrow();
        let now = inner.world.now();
        let mailbox = inner.boxes.get(&self.name);
        mailbox
            .and_then(|mailbox| mailbox.heap.peek())
            .is_none_or(|mail| mail.at > now)
    }

    fn disarm(&mut self) {}
}
