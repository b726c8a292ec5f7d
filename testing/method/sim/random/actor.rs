//! A node with its application's knowledge: the promises of a single node.
//!
//! ```text
//!   post --> Posted: position among its kind, valid messages --> completion --> Book
//! ```
//!
//! A peer stands for everything that a node gets by equal names of another one, or by one object of
//! a caller. The tag of each message tells under which name the caller of its session had looked
//! the other up, so that a stream is one direction of one session, and of later ones.
//!
//! Owns: messages sent and received in the node's present life.
//! Out of scope: steps, the network.

use crate::rig::{Addr, Ended, Got, Host, NIC, OTHER_NIC};
use bmi_method::abi::constants::{BMI_ECANCEL, BMI_EMSGSIZE, BMI_ENETRESET, BMI_ETIMEDOUT};
use bmi_method::address;
use bmi_method::method::PostKind;
use bmi_method::peer::state::{Ready, State};
use bmi_method::peer_name;
use bmi_mx_torture::program::UNEXPECTED_TAG;
use bmi_mx_torture::{Book, Header, Peer, Side, Stream, Verb, pieces};
use mx_proto::Instant;
use mx_sim::NodeId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CStr;

/// Added to the tags of messages in sessions whose caller has looked the other up under its second
/// name.
const SECOND_NAME: i32 = 1 << 24;

/// A message with a name, at its sender.
#[derive(Default)]
struct Sent {
    /// Age of its receiver when the send completed.
    age: Option<u32>,
    /// Whether the message has arrived.
    arrived: bool,
}

/// State common to all nodes.
#[derive(Default)]
pub struct World {
    /// All messages with a name.
    sent: HashMap<Header, Sent>,
    /// Streams in which a send was cancelled or failed.
    pub loose: HashSet<Stream>,
    /// Ages of the nodes, by number: even while a node lives, odd while it does not.
    pub ages: Vec<u32>,
    /// Numbers of operations that succeeded, and of the others.
    pub ended: [u64; 2],
}

/// An address object that a node knows.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub addr: Addr,
    pub peer: Peer,
    second_name: bool,
}

impl Known {
    pub fn is_caller(&self) -> bool {
        self.peer.side == Side::Caller
    }

    /// Returns the tag of messages that the node sends and receives by this object.
    pub fn tag(&self, tag: i32) -> i32 {
        tag | if self.second_name { SECOND_NAME } else { 0 }
    }
}

/// Returns a node that is called under its first or second name.
pub fn called(node: NodeId, second_name: bool) -> Peer {
    Peer {
        node,
        side: Side::Called,
        number: second_name.into(),
    }
}

/// A session with both sides' numbers, the caller's first.
pub type Session = [(NodeId, u32); 2];

/// An operation under way.
pub struct Posted {
    pub verb: Verb,
    pub known: Known,
    /// Tag, with the mark of the stream's name.
    pub tag: i32,
    /// Position among all operations of this life.
    place: u64,
    /// Header of a send's message.
    header: Option<Header>,
    /// Life of the other node at the post: messages of earlier lives must not be received.
    life: u32,
}

/// Latest life of the other node from which a message has come.
#[derive(Clone, Copy, Default)]
struct Lives {
    any: u32,
    unexpected: u32,
}

/// Application of a node.
pub struct Actor {
    pub me: NodeId,
    book: Book,
    posted: BTreeMap<u64, Posted>,
    /// Address objects, oldest first.
    known: Vec<Known>,
    lives: HashMap<Peer, Lives>,
    /// Number of callers reported to the host.
    callers: u32,
    /// Names of callers whose end was reported to the host.
    ended: HashSet<i64>,
    places: u64,
    handed: u64,
    pub frozen_until: Instant,
    pub finalized: bool,
}

impl Actor {
    pub fn new(me: NodeId, life: u32) -> Self {
        Self {
            me,
            book: Book::new(me, life),
            posted: BTreeMap::new(),
            known: Vec::new(),
            lives: HashMap::new(),
            callers: 0,
            ended: HashSet::new(),
            places: 0,
            handed: 0,
            frozen_until: Instant::default(),
            finalized: false,
        }
    }

    /// Picks an address object for a node, a different one each time.
    fn pick(&mut self, host: &mut Host, to: NodeId) -> Known {
        let of: Vec<_> = self.known.iter().filter(|it| it.peer.node == to).collect();
        match of[..] {
            [] => self.look_up(host, to, false),
            _ => *of[self.places as usize % of.len()],
        }
    }

    pub fn look_up(&mut self, host: &mut Host, to: NodeId, second_name: bool) -> Known {
        // Two addresses, in the order of the name.
        let mut nics = [NIC, OTHER_NIC];
        if second_name {
            nics.reverse();
        }
        let known = Known {
            addr: host.look_up_at(to, &nics),
            peer: called(to, second_name),
            second_name,
        };
        self.known.push(known);
        known
    }

    /// Returns every peer with one of its objects.
    pub fn peers(&self) -> BTreeMap<Peer, Known> {
        self.known.iter().map(|it| (it.peer, *it)).collect()
    }

    /// Returns the objects by which messages with that tag have come since the last
    /// [`Self::collect`].
    pub fn asked(&mut self, host: &Host, tag: i32) -> Vec<Known> {
        let of = |got: &&Got| got.tag & !SECOND_NAME == tag;
        let asked = host.got.iter().filter(of);
        asked.map(|got| self.known_by(got)).collect()
    }

    /// Posts an operation by one of the objects for a node. An expected send that begins a session
    /// mostly follows an unexpected one, because the other node cannot receive it before.
    pub fn post(
        &mut self,
        world: &mut World,
        host: &mut Host,
        (verb, other, tag): (Verb, NodeId, i32),
        size: (usize, u8),
    ) {
        let known = self.pick(host, other);
        let begins = !known.is_caller() && host.state(known.addr) == State::Init;
        if verb == Verb::Send && begins && self.places % 4 != 0 {
            self.greet(world, host, known);
        }
        self.post_to(world, host, (verb, known, tag), size);
    }

    /// Sends an unexpected message, so that the other node learns of the session.
    pub fn greet(&mut self, world: &mut World, host: &mut Host, known: Known) -> Option<u64> {
        let what = (Verb::SendUnexpected, known, UNEXPECTED_TAG);
        self.post_to(world, host, what, (40, 1))
    }

    /// Posts an operation. A rejected post is a valid result; no completion may follow it.
    pub fn post_to(
        &mut self,
        world: &mut World,
        host: &mut Host,
        (verb, known, tag): (Verb, Known, i32),
        (len, parts): (usize, u8),
    ) -> Option<u64> {
        let (to, tag) = (&known.peer, known.tag(tag));
        let (kind, buffer) = match verb {
            Verb::Send => (PostKind::Send, self.book.compose(to, tag, len)),
            Verb::SendUnexpected => (PostKind::SendUnexpected, self.book.compose(to, tag, len)),
            Verb::Recv => (PostKind::Recv, vec![0xee; len]),
        };
        let header = match verb {
            Verb::Recv => None,
            _ => Header::parse(&buffer),
        };
        self.places += 1;
        let posted = Posted {
            verb,
            known,
            tag,
            place: self.places,
            header,
            life: self.lives.get(&known.peer).map_or(0, |it| it.any),
        };
        let is_over = known.is_caller() && host.state(known.addr) == State::Init;
        if is_over {
            host.reap();
        }
        let lens = pieces(len, parts);
        let label = host.post_list(kind, known.addr, tag, buffer.into(), &lens);
        let label = label.ok()?;
        if is_over {
            host.reap();
            let error = host.error(label);
            let me = self.me;
            assert_eq!(
                error,
                Some(-BMI_ENETRESET),
                "n{me}: {verb:?} for {known:?}, which has gone"
            );
        }
        if let Some(header) = header {
            world.sent.insert(header, Sent::default());
        }
        self.posted.insert(label, posted);
        Some(label)
    }

    /// Cancels an operation, which completes at once.
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

    /// Drops the `wanted` addresses of a node.
    pub fn drop_addrs(
        &mut self,
        world: &mut World,
        host: &mut Host,
        to: NodeId,
        wanted: impl Fn(&Known) -> bool,
    ) {
        // One may be among the reported messages.
        self.collect(world, host);
        self.known.retain(|known| {
            let drops = known.peer.node == to && wanted(known);
            if drops {
                host.drop_addr(known.addr);
            }
            !drops
        });
    }

    /// Drops the objects of peers that were reported dead, if that is allowed.
    pub fn forget(&mut self, host: &mut Host) {
        let me = self.me;
        for name in std::mem::take(&mut host.forgotten) {
            assert!(self.ended.insert(name), "n{me}: told twice of {name}");
            let Some(addr) = Addr::new(host.registered[name as usize - 1] as *mut _) else {
                panic!("n{me}: told of name {name}, which it has dropped");
            };
            assert_eq!(host.state(addr), State::Init, "n{me}: told of {name}");
            if host.method.may_drop(addr.as_ptr()) {
                host.drop_addr(addr);
                self.known.retain(|known| known.addr != addr);
            }
        }
    }

    /// Returns callers that have left and were not reported to the host.
    pub fn untold(&self, host: &Host) -> Vec<Known> {
        let is_untold = |known: &Known| {
            let addr = known.addr.as_ptr() as usize;
            let name = host.registered.iter().position(|of| *of == addr);
            known.is_caller()
                && host.state(known.addr) == State::Init
                && !name.is_some_and(|name| self.ended.contains(&(name as i64 + 1)))
        };
        let untold = self.known.iter().filter(|known| is_untold(known));
        untold.copied().collect()
    }

    /// Returns the session that an object uses now.
    pub fn session(&self, host: &Host, known: &Known) -> Option<Session> {
        let State::Ready(Ready { tx_id, .. }) = host.state(known.addr) else {
            return None;
        };
        let key = host.method.peers().of_addr(known.addr.as_ptr())?;
        let mut ends = [(self.me, key.id()), (known.peer.node, tx_id)];
        if known.is_caller() {
            ends.reverse();
        }
        Some(ends)
    }

    fn stream_to(&self, posted: &Posted) -> Stream {
        Stream::to(self.me, &posted.known.peer, posted.tag)
    }

    /// Handles all completions and messages.
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
            let age = world.ages[posted.known.peer.node];
            world.sent.entry(header).or_default().age = Some(age);
        }
        if [-BMI_ECANCEL, -BMI_ETIMEDOUT].contains(&ended.error) {
            world.loose.insert(self.stream_to(posted));
        }
    }

    fn on_receive(&mut self, world: &mut World, posted: &Posted, ended: &Ended) {
        let cut = ended.error == -BMI_EMSGSIZE;
        if ended.error != 0 && !cut {
            return;
        }
        let place = posted.place;
        let header = self.received(&posted.known, place, posted.tag, &ended.bytes, cut);
        let Some(header) = header else { return };
        self.check_arrival(world, &header);
        let me = self.me;
        assert!(
            header.life >= posted.life,
            "n{me}: {header:?} came after life {} of its sender was heard",
            posted.life
        );
        let lives = self.lives.entry(posted.known.peer).or_default();
        lives.any = header.life.max(lives.any);
    }

    /// Enters a message in the book.
    fn received(
        &mut self,
        by: &Known,
        place: u64,
        tag: i32,
        bytes: &[u8],
        cut: bool,
    ) -> Option<Header> {
        let got = self.book.received(place, &by.peer, tag, bytes, cut);
        got.unwrap_or_else(|fault| panic!("n{}: {fault}", self.me))
    }

    fn on_unexpected(&mut self, world: &mut World, got: &Got) {
        self.handed += 1;
        let me = self.me;
        let known = self.known_by(got);
        assert_eq!(got.tag & SECOND_NAME, known.tag(0), "n{me}: by {known:?}");
        let header = self.received(&known, self.handed, got.tag, &got.bytes, false);
        let Some(header) = header else { return };
        self.check_arrival(world, &header);
        let lives = self.lives.entry(known.peer).or_default();
        let life = lives.unexpected;
        assert!(header.life >= life, "n{me}: {header:?} after life {life}");
        lives.unexpected = header.life;
        lives.any = header.life.max(lives.any);
    }

    /// Returns the object by which a message has come; a caller's first message names it.
    fn known_by(&mut self, got: &Got) -> Known {
        let addr = got.addr();
        if let Some(known) = self.known.iter().find(|known| known.addr == addr) {
            return *known;
        }
        // SAFETY: a live object's text.
        let text = unsafe { CStr::from_ptr(address::text(addr.as_ptr())) };
        let name = peer_name::parse(text.to_str().unwrap()).unwrap().unwrap();
        let node = name.endpoint.expect("a caller's name has one");
        let known = Known {
            addr,
            peer: Peer {
                node: node as NodeId,
                side: Side::Caller,
                number: self.callers,
            },
            second_name: got.tag & SECOND_NAME != 0,
        };
        self.callers += 1;
        self.known.push(known);
        known
    }

    /// Checks that a message comes once, and was not meant for an earlier life of this node.
    fn check_arrival(&self, world: &mut World, header: &Header) {
        let me = self.me;
        let Some(sent) = world.sent.get_mut(header) else {
            panic!("n{me}: {header:?} was never posted");
        };
        assert!(
            !std::mem::replace(&mut sent.arrived, true),
            "n{me}: {header:?} has come before"
        );
        assert!(
            sent.age.is_none_or(|age| age >= world.ages[me]),
            "n{me}: {header:?} was sent to an earlier life"
        );
    }

    /// Returns the number of messages received.
    pub fn count(&self) -> u64 {
        self.book.count()
    }

    /// Checks the order of the received messages.
    pub fn check_order(&self, loose: &HashSet<Stream>) {
        let order = self.book.check_order(|stream| loose.contains(stream));
        order.unwrap_or_else(|fault| panic!("n{}: {fault}", self.me));
    }

    /// Returns all pending operations.
    pub fn outstanding(&self) -> impl Iterator<Item = (u64, &Posted)> {
        self.posted.iter().map(|(label, posted)| (*label, posted))
    }
}
