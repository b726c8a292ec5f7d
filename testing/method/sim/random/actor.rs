//! One node and what its application knows: the promises of a single node.
//!
//! ```text
//!   post --> Posted: place among its kind, what may come in --> completion --> Book of this life
//! ```
//!
//! Owns: the book of the node's present life.
//! Not here: steps, the network.

use crate::rig::{Ended, Got, Host, NIC};
use bmi_method::abi::constants::{BMI_ECANCEL, BMI_EMSGSIZE, BMI_ETIMEDOUT};
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::method::PostKind;
use bmi_mx_torture::{Book, Header, Stream, Verb, pieces};
use mx_proto::Instant;
use mx_sim::NodeId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ptr::NonNull;

/// The common state of all nodes.
#[derive(Default)]
pub struct World {
    /// Every message with a name, and which age its receiver had when the send completed.
    pub sent: HashMap<Header, Option<u32>>,
    /// Streams in which a send was called off or given up.
    pub loose: HashSet<Stream>,
    /// Of every node, by number: even while it lives, odd while it does not.
    pub ages: Vec<u32>,
    /// Operations that ended well, and in another way.
    pub ended: [u64; 2],
}

/// An operation under way.
struct Posted {
    verb: Verb,
    other: NodeId,
    tag: i32,
    /// Its place among all operations of this life.
    place: u64,
    /// A send's message.
    header: Option<Header>,
    /// Messages of the other's earlier lives must not come in any more.
    life: u32,
}

/// A node's application.
pub struct Actor {
    pub me: NodeId,
    pub book: Book,
    posted: BTreeMap<u64, Posted>,
    /// Address objects and whose they are, oldest first.
    addrs: Vec<(NonNull<bmi_method_addr>, NodeId)>,
    /// The latest life of each node that something came from.
    lives: HashMap<NodeId, u32>,
    /// The same for unexpected messages only.
    unexpected_lives: HashMap<NodeId, u32>,
    places: u64,
    handed: u64,
    /// It uses one address object for each node.
    pub one_address: bool,
    pub frozen_until: Instant,
    pub finalized: bool,
}

impl Actor {
    pub fn new(me: NodeId, life: u32) -> Self {
        Self {
            me,
            book: Book::new(me, life),
            posted: BTreeMap::new(),
            addrs: Vec::new(),
            lives: HashMap::new(),
            unexpected_lives: HashMap::new(),
            places: 0,
            handed: 0,
            one_address: false,
            frozen_until: Instant::default(),
            finalized: false,
        }
    }

    /// One of its address objects for a node: another one each time, or always the first.
    fn addr(&mut self, host: &mut Host, to: NodeId) -> NonNull<bmi_method_addr> {
        let known: Vec<_> = self.addrs_of(to);
        if known.is_empty() {
            let addr = host.look_up(to, NIC);
            self.addrs.push((addr, to));
            return addr;
        }
        let turn = if self.one_address { 0 } else { self.places };
        known[turn as usize % known.len()]
    }

    pub fn look_up(&mut self, host: &mut Host, to: NodeId, nic: mx_proto::NicId) {
        let addr = host.look_up(to, nic);
        self.addrs.push((addr, to));
    }

    fn addrs_of(&self, to: NodeId) -> Vec<NonNull<bmi_method_addr>> {
        let of = self.addrs.iter().filter(|(_, of)| *of == to);
        of.map(|(addr, _)| *addr).collect()
    }

    /// Posts an operation. A refusal is an answer too; nothing may follow it.
    pub fn post(
        &mut self,
        world: &mut World,
        host: &mut Host,
        what: (Verb, NodeId, i32),
        (len, parts): (usize, u8),
    ) -> Option<u64> {
        let (verb, other, tag) = what;
        let addr = self.addr(host, other);
        let (kind, buffer) = match verb {
            Verb::Send => (PostKind::Send, self.book.compose(other, tag, len)),
            Verb::SendUnexpected => (PostKind::SendUnexpected, self.book.compose(other, tag, len)),
            Verb::Recv => (PostKind::Recv, vec![0xee; len]),
        };
        let header = match verb {
            Verb::Recv => None,
            _ => Header::parse(&buffer),
        };
        self.places += 1;
        let posted = Posted {
            verb,
            other,
            tag,
            place: self.places,
            header,
            life: self.lives.get(&other).copied().unwrap_or(0),
        };
        let lens = pieces(len, parts);
        let label = host.post_list(kind, addr, tag, buffer.into(), &lens).ok()?;
        if let Some(header) = header {
            world.sent.insert(header, None);
        }
        self.posted.insert(label, posted);
        Some(label)
    }

    /// Calls one off. Its completion is there at once.
    pub fn cancel(&mut self, world: &mut World, host: &mut Host, label: u64) {
        if let Some(posted) = self.posted.get(&label)
            && posted.verb != Verb::Recv
        {
            world.loose.insert(self.stream_to(posted));
        }
        host.cancel(label);
        host.reap();
        assert!(
            host.error(label).is_some(),
            "n{}: operation {label} goes on after it was called off",
            self.me
        );
    }

    /// Drops all its addresses of a node.
    pub fn drop_addrs(&mut self, world: &mut World, host: &mut Host, to: NodeId) {
        // Among what has been handed out may be one.
        self.collect(world, host);
        for addr in self.addrs_of(to) {
            host.drop_addr(addr);
        }
        self.addrs.retain(|(_, of)| *of != to);
    }

    /// Drops the objects of peers the host was told are dead, if it may.
    pub fn forget(&mut self, host: &mut Host) {
        for name in std::mem::take(&mut host.forgotten) {
            let Some(addr) = NonNull::new(host.registered[name as usize - 1] as *mut _) else {
                panic!("n{}: told of name {name}, which it has dropped", self.me);
            };
            if host.method.may_drop(addr.as_ptr()) {
                host.drop_addr(addr);
                self.addrs.retain(|(known, _)| *known != addr);
            }
        }
    }

    fn stream_to(&self, posted: &Posted) -> Stream {
        Stream {
            from: self.me,
            to: posted.other,
            tag: posted.tag,
        }
    }

    /// Takes in everything that has ended or come.
    pub fn collect(&mut self, world: &mut World, host: &mut Host) {
        for (label, ended) in std::mem::take(&mut host.ended) {
            let posted = self.posted.remove(&label);
            let posted = posted.unwrap_or_else(|| panic!("operation {label} ended twice"));
            world.ended[usize::from(ended.error != 0)] += 1;
            match posted.verb {
                Verb::Recv => self.on_receive(world, &posted, &ended),
                _ => self.on_sent(world, &posted, &ended),
            }
        }
        for got in std::mem::take(&mut host.got) {
            self.on_unexpected(world, &got);
        }
    }

    fn on_sent(&self, world: &mut World, posted: &Posted, ended: &Ended) {
        if let Some(header) = posted.header {
            let age = world.ages[posted.other];
            world.sent.insert(header, Some(age));
        }
        if [-BMI_ECANCEL, -BMI_ETIMEDOUT].contains(&ended.error) {
            world.loose.insert(self.stream_to(posted));
        }
    }

    fn on_receive(&mut self, world: &World, posted: &Posted, ended: &Ended) {
        let cut = ended.error == -BMI_EMSGSIZE;
        if ended.error != 0 && !cut {
            return;
        }
        let from = Some(posted.other);
        let got = self
            .book
            .received(posted.place, from, posted.tag, &ended.bytes, cut);
        let me = self.me;
        let header = got.unwrap_or_else(|fault| panic!("n{me}: {fault}"));
        let Some(header) = header else { return };
        self.check_age(world, &header);
        assert!(
            header.life >= posted.life,
            "n{me}: {header:?} came after life {} of its sender was heard",
            posted.life
        );
        let life = self.lives.entry(posted.other).or_default();
        *life = header.life.max(*life);
    }

    fn on_unexpected(&mut self, world: &World, got: &Got) {
        self.handed += 1;
        let addr = got.addr();
        let known = self.addrs.iter().find(|(known, _)| *known == addr);
        let from = known.map(|(_, from)| *from);
        let said = self
            .book
            .received(self.handed, from, got.tag, &got.bytes, false);
        let me = self.me;
        let header = said.unwrap_or_else(|fault| panic!("n{me}: {fault}"));
        let Some(header) = header else { return };
        let from = header.from as NodeId;
        if known.is_none() {
            self.addrs.push((addr, from));
        }
        self.check_age(world, &header);
        let life = self.unexpected_lives.entry(from).or_default();
        assert!(header.life >= *life, "n{me}: {header:?} after life {life}");
        *life = header.life;
        let life = self.lives.entry(from).or_default();
        *life = header.life.max(*life);
    }

    /// A message that was on its way to an earlier life of ours is not for this one.
    fn check_age(&self, world: &World, header: &Header) {
        let me = self.me;
        let Some(sent) = world.sent.get(header) else {
            panic!("n{me}: {header:?} was never posted");
        };
        assert!(
            sent.is_none_or(|age| age >= world.ages[me]),
            "n{me}: {header:?} was sent to an earlier life"
        );
    }

    /// Other nodes, tags and verbs of everything under way.
    pub fn outstanding(&self) -> impl Iterator<Item = (u64, Verb, NodeId, i32)> {
        let each =
            |(label, posted): (&u64, &Posted)| (*label, posted.verb, posted.other, posted.tag);
        self.posted.iter().map(each)
    }
}
