//! Two ports on a net in memory whose every datagram a test can see, hold and drop.
//!
//! ```text
//!   Reliable<End 0> --- Net: two channels each way, in order, no time of its own --- Reliable<End 1>
//! ```
//!
//! Faulty networks are tried at length with the simulator (`tests/sim/ports`).

use super::packet::{DatagramKind, Header};
use super::*;
use crate::ids::{EndpointId, LinkId, NicId, Route, Target};
use crate::memory::Source;
use crate::port::{
    Body, Close, ConnectError, Destination, HEADER_LEN, HeaderBytes, LinkControl, LinkDown, Place,
    Port, RemoteUse, SendError, Sent, Sink,
};
use crate::time::Instant;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// An end and its channel.
type Address = (usize, u8);

/// Datagrams in flight to one channel of one end, and their senders.
type Queue = VecDeque<(Address, Vec<u8>)>;

#[derive(Debug)]
struct Net {
    now: Instant,
    queues: [[Queue; 2]; 2],
    mtu: usize,
    /// The service knows the MTU, and cuts nothing.
    refuses: bool,
    /// So often it said so.
    refused: usize,
    /// Datagrams whose source address does not matter.
    express: usize,
    /// Every datagram sent: from which end, on which channel, its bytes.
    log: Vec<(usize, Channel, Vec<u8>)>,
    /// Of datagrams with these numbers in the log nothing arrives.
    lose: Vec<usize>,
    /// A discovery, once: an old address of an end, and its new one.
    found: Option<(Address, Address)>,
    /// Polls leave out the data channel.
    glances: bool,
    /// Nothing comes from this end any more, and no word of it.
    cut_off: Option<usize>,
}

#[derive(Clone, Debug)]
struct End {
    net: Rc<RefCell<Net>>,
    own: usize,
}

impl End {
    fn take(
        &mut self,
        channel: Channel,
        budget: usize,
        receive: &mut impl FnMut(Incoming<'_, Address>),
    ) -> usize {
        for count in 0..budget {
            let next = self.net.borrow_mut().queues[self.own][channel as usize].pop_front();
            let Some((from, bytes)) = next else {
                return count;
            };
            receive(Incoming::Datagrams {
                channel,
                from,
                bytes: &bytes,
                segment: bytes.len(),
            });
        }
        budget
    }
}

impl DatagramPort for End {
    type Address = Address;

    fn resolve(&mut self, target: Target) -> Result<Address, ConnectError> {
        Ok((target.endpoint.0 as usize, 0))
    }

    fn data_name(&self) -> &[u8] {
        b"data"
    }

    fn data_address(&mut self, command: Address, name: &[u8]) -> Option<Address> {
        (name == b"data").then_some((command.0, 1))
    }

    fn is_safe(&self, _: Address) -> bool {
        false
    }

    fn is_cut_off(&self, address: Address) -> bool {
        self.net.borrow().cut_off == Some(address.0)
    }

    fn capacity(&self, _: Channel) -> Capacity {
        Capacity {
            datagram_max: 9000,
            batch_max: 64,
            batch_bytes: 60_000,
        }
    }

    fn receive_buffer(&self) -> usize {
        4 << 20
    }

    fn now(&self) -> Instant {
        self.net.borrow().now
    }

    fn send(
        &mut self,
        channel: Channel,
        to: Address,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        let mut net = self.net.borrow_mut();
        if to.0 > 1 {
            return Err(DatagramError::Unreachable);
        }
        if net.refuses && batch.segment > net.mtu {
            net.refused += 1;
            return Err(DatagramError::TooLarge(net.mtu));
        }
        net.express += usize::from(batch.express);
        for datagram in batch.bytes.chunks(batch.segment) {
            net.log.push((self.own, channel, datagram.to_vec()));
            let lost = net.lose.contains(&(net.log.len() - 1))
                || (datagram.len() > net.mtu && !batch.may_fragment);
            if !lost {
                let from = (self.own, channel as u8);
                net.queues[to.0][usize::from(to.1)].push_back((from, datagram.to_vec()));
            }
        }
        Ok(())
    }

    fn poll(&mut self, budget: usize, mut receive: impl FnMut(Incoming<'_, Address>)) -> bool {
        let mut any = false;
        if self.own == 0
            && let Some((at, is)) = self.net.borrow_mut().found.take()
        {
            receive(Incoming::Found { at, is });
        }
        any |= self.take(Channel::Command, budget, &mut receive) > 0;
        if !self.net.borrow().glances {
            any |= self.take(Channel::Data, budget, &mut receive) > 0;
        }
        any
    }

    fn drain_data(
        &mut self,
        budget: usize,
        mut receive: impl FnMut(Incoming<'_, Address>),
    ) -> bool {
        self.take(Channel::Data, budget, &mut receive) < budget
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

/// A user of one end: keeps what arrives. Packets whose body is larger than 32 KiB are placed.
#[derive(Debug, Default)]
struct User {
    up: Vec<LinkId>,
    down: Vec<LinkDown>,
    /// Calls of `on_writable`.
    writable: usize,
    from: Option<LinkId>,
    packets: Vec<(u8, Vec<u8>)>,
    /// Where placed bodies go, by mark.
    rooms: HashMap<u8, Vec<u8>>,
}

impl Sink<Vec<u8>> for User {
    fn on_up(&mut self, link: LinkId, _: u64) {
        self.up.push(link);
    }

    fn on_down(&mut self, _: LinkId, _: u64, reason: LinkDown) {
        self.down.push(reason);
    }

    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        _: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        self.from = Some(link);
        self.packets.push((header[0], body.to_vec()));
    }

    fn place(
        &mut self,
        _: LinkId,
        _: u64,
        header: &HeaderBytes,
        _: bool,
    ) -> Option<Place<'_, Vec<u8>>> {
        let len = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        if len <= 32 << 10 {
            return None;
        }
        let memory = self.rooms.entry(header[0]).or_insert_with(|| vec![0; len]);
        Some(Place {
            memory: Destination::Memory(memory),
            offset: 0,
        })
    }

    fn on_placed(&mut self, link: LinkId, _: u64, header: &HeaderBytes) {
        self.from = Some(link);
        let body = self.rooms.remove(&header[0]).expect("a place");
        self.packets.push((header[0], body));
    }

    fn on_writable(&mut self, _: LinkId, _: u64) {
        self.writable += 1;
    }

    fn on_remote_activity(&mut self, _: LinkId, _: u64, _: RemoteUse) {}

    fn on_remote_read(&mut self, _: LinkId, _: u64, _: u64, _: bool) {}
}

struct Pair {
    net: Rc<RefCell<Net>>,
    ports: [Reliable<End>; 2],
    users: [User; 2],
    /// An incoming link is bound at once.
    binds: bool,
}

impl Pair {
    fn new(config: ReliableConfig) -> Self {
        let net = Rc::new(RefCell::new(Net {
            now: Instant(1_000_000_000),
            queues: Default::default(),
            mtu: 9000,
            refuses: false,
            refused: 0,
            express: 0,
            log: Vec::new(),
            lose: Vec::new(),
            found: None,
            glances: false,
            cut_off: None,
        }));
        let port = |own| {
            let net = Rc::clone(&net);
            Reliable::new(End { net, own }, config, [own as u8 + 1; 16])
        };
        Self {
            ports: [port(0), port(1)],
            users: Default::default(),
            net,
            binds: true,
        }
    }

    /// Two ends with a link that is not bound at the called end.
    fn strange(config: ReliableConfig) -> (Self, LinkId) {
        let mut pair = Self::new(config);
        pair.binds = false;
        let link = pair.connect();
        pair.run(Duration::from_millis(50));
        (pair, link)
    }

    /// Two ends with a link, and everything that follows from that done.
    fn connected(config: ReliableConfig) -> (Self, LinkId) {
        let mut pair = Self::new(config);
        let link = pair.connect();
        pair.run(Duration::from_millis(50));
        assert_eq!(pair.users[0].up, [link]);
        (pair, link)
    }

    fn connect(&mut self) -> LinkId {
        self.call(1)
    }

    fn call(&mut self, endpoint: u32) -> LinkId {
        let target = Target {
            nic: NicId(1),
            endpoint: EndpointId(endpoint),
            route: Route::AUTO,
        };
        let now = self.now();
        self.ports[0].connect(target, now).unwrap()
    }

    fn now(&self) -> Instant {
        self.net.borrow().now
    }

    fn poll(&mut self, end: usize) -> bool {
        let now = self.now();
        let busy = self.ports[end].poll(now, 1000, &mut self.users[end]);
        if self.binds {
            self.bind(end);
        }
        busy
    }

    fn bind(&mut self, end: usize) {
        let links = &mut self.ports[end].links;
        if links.trials.used() == 0 {
            return;
        }
        let all: Vec<LinkId> = links.table.addresses().map(|(id, _)| id).collect();
        let is_new = |id: &LinkId| links.is_on_trial(*id);
        for id in all.into_iter().filter(is_new).collect::<Vec<_>>() {
            links.bind(id, 7);
        }
    }

    /// Lets 20 us pass again and again.
    fn run(&mut self, span: Duration) {
        let end = self.now().after(span);
        while self.now() < end {
            (0..2).for_each(|end| {
                self.poll(end);
            });
            self.pass(Duration::from_micros(20));
        }
    }

    fn pass(&self, span: Duration) {
        let mut net = self.net.borrow_mut();
        net.now = net.now.after(span);
    }

    fn send(&mut self, end: usize, link: LinkId, mark: u8, body: &[u8]) -> Result<(), SendError> {
        let mut header = [0; HEADER_LEN];
        header[0] = mark;
        header[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        let body: Body<'_, Vec<u8>> = Body::Bytes(body);
        self.ports[end].send(link, &header, body).map(|_| ())
    }

    /// The first end sends a message from `memory`, from `at` on the rest of one.
    fn bring(
        &mut self,
        link: LinkId,
        mark: u8,
        memory: &Vec<u8>,
        at: usize,
    ) -> Result<Sent, SendError> {
        let len = memory.len() - at;
        if at > 0 {
            return self.ports[0].resume(link, memory, at, len);
        }
        let mut header = [0; HEADER_LEN];
        header[0] = mark;
        header[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        let body = Body::Memory {
            memory,
            offset: 0,
            len,
        };
        self.ports[0].send(link, &header, body)
    }

    fn sent_since(&self, from: usize) -> Vec<(usize, Channel, DatagramKind)> {
        let net = self.net.borrow();
        let parsed = net.log[from..].iter().map(|(end, channel, bytes)| {
            let (header, _) = Header::parse(bytes).expect("we sent it");
            (*end, *channel, header.kind)
        });
        parsed.collect()
    }

    fn logged(&self) -> usize {
        self.net.borrow().log.len()
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn a_peer_that_has_to_be_looked_for_is_called_as_soon_as_it_is_found() {
    let mut pair = Pair::new(ReliableConfig::default());
    let link = pair.call(7);
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.sent_since(0), []);
    pair.net.borrow_mut().found = Some(((7, 0), (1, 0)));
    pair.poll(0);
    assert_eq!(
        pair.sent_since(0),
        [(0, Channel::Command, DatagramKind::Hello)]
    );
    pair.poll(1);
    pair.poll(0);
    assert_eq!(pair.users[0].up, [link]);
    // A peer that answers keeps its address, whatever is found later.
    pair.net.borrow_mut().found = Some(((1, 0), (9, 0)));
    pair.poll(0);
    pair.send(0, link, 1, b"hello").unwrap();
    pair.poll(1);
    assert_eq!(pair.users[1].packets, [(1, b"hello".to_vec())]);
}

#[test]
fn the_time_of_a_search_for_a_peer_is_no_sample_of_the_path() {
    let mut pair = Pair::new(ReliableConfig::default());
    let link = pair.call(7);
    pair.run(Duration::from_millis(50));
    pair.net.borrow_mut().found = Some(((7, 0), (1, 0)));
    pair.run(Duration::from_micros(100));
    assert_eq!(pair.users[0].up, [link]);
    let session = &pair.ports[0].links.of_mut(link).unwrap().session;
    let first = session.rtt.srtt().expect("a first sample");
    assert!(first <= Duration::from_micros(100), "{first:?}");
}

#[test]
fn tiny_packets_take_the_command_channel_and_others_the_data_channel_in_batches() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let before = pair.logged();
    pair.send(0, link, 1, &bytes(700)).unwrap();
    assert_eq!(
        pair.sent_since(before),
        [(0, Channel::Command, DatagramKind::Data)]
    );
    let batches = pair.ports[0].stats().gso_batches_out;
    let before = pair.logged();
    pair.send(0, link, 2, &bytes(30_000)).unwrap();
    let sent = pair.sent_since(before);
    assert!(sent.len() >= 4, "{sent:?}");
    assert!(
        sent.iter()
            .all(|sent| *sent == (0, Channel::Data, DatagramKind::Data))
    );
    assert_eq!(pair.ports[0].stats().gso_batches_out, batches + 1);
    pair.run(Duration::from_millis(1));
    let expected = [(1, bytes(700)), (2, bytes(30_000))];
    assert_eq!(pair.users[1].packets, expected);
}

#[test]
fn the_source_of_a_datagram_matters_until_the_data_channel_is_proven() {
    // Not even the smallest probe passes, or all do.
    for (mtu, proven) in [(500, false), (9000, true)] {
        let mut pair = Pair::new(ReliableConfig::default());
        pair.net.borrow_mut().mtu = mtu;
        let link = pair.connect();
        pair.run(Duration::from_millis(50));
        pair.send(0, link, 1, b"tiny").unwrap();
        pair.run(Duration::from_millis(1));
        assert_eq!(pair.users[1].packets, [(1, b"tiny".to_vec())]);
        assert_eq!(pair.net.borrow().express > 0, proven, "{mtu}");
    }
}

#[test]
fn a_quote_names_the_link_if_its_datagram_went_to_an_address_of_that() {
    let (mut pair, _) = Pair::connected(ReliableConfig::default());
    let sent = pair.net.borrow().log.clone();
    let sent = sent.iter().rfind(|(end, _, _)| *end == 0).unwrap();
    let quote = Quote::read(&sent.2);
    let links = &mut pair.ports[0].links;
    for (to, quote, known) in [
        ((1, Channel::Command as u8), quote, true),
        ((1, Channel::Data as u8), quote, true),
        ((0, Channel::Data as u8), quote, false),
        ((1, Channel::Data as u8), None, false),
    ] {
        let before = links.stats.old_session;
        assert_eq!(links.whose((to, quote)).is_some(), known, "{to:?}");
        assert_eq!(links.stats.old_session - before, u64::from(!known));
    }
}

#[test]
fn what_is_kept_behind_a_gap_is_counted_until_it_is_given_out() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let first = pair.logged();
    pair.net.borrow_mut().lose = vec![first];
    for mark in 0..20 {
        pair.send(0, link, mark, &bytes(2_000)).unwrap();
    }
    pair.poll(0);
    pair.poll(1);
    assert!(pair.ports[1].early_bytes() > 20_000 && pair.users[1].packets.is_empty());
    // Three at a time.
    let end = pair.now().after(Duration::from_millis(50));
    while pair.now() < end {
        pair.poll(0);
        let now = pair.now();
        pair.ports[1].poll(now, 3, &mut pair.users[1]);
        let links = &mut pair.ports[1].links;
        let id = links.table.addresses().next().unwrap().0;
        let kept = links.of_mut(id).unwrap().reassembly.kept_bytes();
        assert_eq!(links.early_bytes, links::shared(kept));
        pair.pass(Duration::from_micros(20));
    }
    assert_eq!(
        (pair.users[1].packets.len(), pair.ports[1].early_bytes()),
        (20, 0)
    );
}

#[test]
fn after_a_loss_the_last_segment_is_asked_for_at_once() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    for lossy in [false, true] {
        let before = pair.logged();
        pair.send(0, link, 1, &bytes(2_000)).unwrap();
        pair.poll(0);
        let sent = pair.sent_since(before);
        let asked = sent.iter().any(|(_, _, kind)| *kind == DatagramKind::Ping);
        assert_eq!(asked, lossy, "{sent:?}");
        let next = pair.logged();
        pair.net.borrow_mut().lose = vec![next];
        (2..5).for_each(|mark| pair.send(0, link, mark, &bytes(2_000)).unwrap());
        pair.run(Duration::from_millis(100));
    }
}

#[test]
fn one_segment_of_a_large_window_asks_for_no_acknowledgement() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let before = pair.logged();
    pair.send(0, link, 1, &bytes(2_000)).unwrap();
    pair.poll(0);
    let sent = &pair.net.borrow().log[before..];
    let flags = sent
        .iter()
        .map(|(_, _, it)| Header::parse(it).unwrap().0.flags & packet::ASK);
    assert_eq!(flags.collect::<Vec<_>>(), [0]);
}

#[test]
fn whatever_single_datagram_is_lost_everything_arrives_once_and_in_order() {
    for lost in 0..60 {
        let mut pair = Pair::new(ReliableConfig::default());
        pair.net.borrow_mut().lose = vec![lost];
        let link = pair.connect();
        pair.run(Duration::from_millis(100));
        for mark in 0..6 {
            let len = [10, 40_000, 900][usize::from(mark) % 3];
            pair.send(0, link, mark, &bytes(len)).unwrap();
        }
        pair.run(Duration::from_millis(100));
        let arrived = &pair.users[1].packets;
        let marks: Vec<u8> = arrived.iter().map(|(mark, _)| *mark).collect();
        assert_eq!(marks, [0, 1, 2, 3, 4, 5], "datagram {lost} was lost");
        assert!(arrived.iter().all(|(_, body)| *body == bytes(body.len())));
    }
}

#[test]
fn a_close_delivers_what_was_accepted_and_leaves_nothing_at_either_end() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.send(0, link, 1, &bytes(200_000)).unwrap();
    pair.ports[0].close(link, Close::Flush);
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.users[1].packets, [(1, bytes(200_000))]);
    assert_eq!(pair.users[1].down, [LinkDown::Closed]);
    assert_eq!(pair.ports[0].sessions() + pair.ports[1].sessions(), 0);
}

#[test]
fn what_came_before_a_close_and_was_not_given_out_is_not_given_out_after_it() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    // All but the first have come when that does.
    let first = pair.logged();
    pair.net.borrow_mut().lose.push(first);
    for (mark, len) in [(0, 1), (1, 1), (2, 60_000)] {
        pair.send(0, link, mark, &bytes(len)).unwrap();
    }
    pair.ports[0].close(link, Close::Flush);
    while pair.users[1].packets.is_empty() {
        pair.poll(0);
        let now = pair.now();
        pair.ports[1].poll(now, 1, &mut pair.users[1]);
        pair.pass(Duration::from_micros(20));
    }
    assert_eq!(pair.users[1].packets.len(), 1);
    let called = pair.users[1].from.expect("a packet came");
    pair.send(1, called, 3, b"no").unwrap();
    pair.ports[1].close(called, Close::Flush);
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.users[1].packets.len(), 1);
    assert_eq!(pair.users[1].down, []);
    assert_eq!(pair.ports[0].sessions() + pair.ports[1].sessions(), 0);
}

#[test]
fn the_first_packet_of_a_poll_is_delivered_before_its_bookkeeping_but_not_twice_running() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    (0..3).for_each(|mark| pair.send(0, link, mark, b"x").unwrap());
    pair.poll(1);
    assert_eq!(pair.ports[1].stats().fast_receives, 1);
    assert_eq!(pair.users[1].packets.len(), 3);
    pair.send(0, link, 3, b"x").unwrap();
    pair.poll(1);
    assert_eq!(pair.users[1].packets.len(), 4);
    pair.run(Duration::from_millis(5));
    assert_eq!(pair.ports[0].stats().resent, 0);
}

#[test]
fn an_answer_to_a_ping_names_what_the_service_had_not_handed_out_yet() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.net.borrow_mut().glances = true;
    pair.send(0, link, 1, &bytes(60_000)).unwrap();
    pair.run(Duration::from_millis(20));
    assert_eq!(pair.users[1].packets, [(1, bytes(60_000))]);
    let stats = pair.ports[0].stats();
    assert_eq!((stats.asked_losses, stats.resent), (0, 0));
}

#[test]
fn a_ping_is_not_answered_while_more_is_left_than_one_poll_takes() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    // Its acknowledgement answers what was asked before.
    pair.send(0, link, 0, b"first").unwrap();
    pair.run(Duration::from_millis(5));
    pair.net.borrow_mut().glances = true;
    pair.send(0, link, 1, &bytes(60_000)).unwrap();
    // It is asked before it has taken in anything.
    let asked = loop {
        pair.pass(Duration::from_micros(100));
        let net = pair.net.borrow();
        let said = net.queues[1][0].front();
        let said = said.map(|(_, bytes)| Header::parse(bytes).expect("we sent it").0);
        if let Some(ping) = said {
            assert_eq!(ping.kind, DatagramKind::Ping);
            break ping.seq;
        }
        drop(net);
        pair.poll(0);
    };
    let (waiting, before) = (pair.net.borrow().queues[1][1].len(), pair.logged());
    assert!(waiting > 4, "{waiting}");
    let now = pair.now();
    let answered = |pair: &Pair| {
        let net = pair.net.borrow();
        let mut said = net.log[before..]
            .iter()
            .map(|(_, _, bytes)| Header::parse(bytes).unwrap().0);
        said.any(|header| header.kind == DatagramKind::Ack && header.seq == asked)
    };
    for left in (0..waiting).rev() {
        pair.ports[1].poll(now, 1, &mut pair.users[1]);
        assert_eq!(pair.net.borrow().queues[1][1].len(), left);
        assert!(!answered(&pair), "{left} left");
    }
    pair.ports[1].poll(now, 1, &mut pair.users[1]);
    assert!(answered(&pair));
    pair.run(Duration::from_millis(20));
    assert_eq!(pair.users[1].packets[1..], [(1, bytes(60_000))]);
    assert_eq!(pair.ports[0].stats().resent, 0);
}

#[test]
fn memory_of_an_idle_link_is_small() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.send(0, link, 1, &bytes(200_000)).unwrap();
    pair.run(Duration::from_millis(500));
    assert_eq!([0, 1].map(|end| pair.ports[end].suspended()), [0, 0]);
    pair.run(Duration::from_secs(12));
    let size = size_of::<link::Link<Address>>();
    assert!(size <= 1536, "a link takes {size} bytes");
    // And a sixth of that when suspended, see `roster`.
    let suspended = [0, 1].map(|end| pair.ports[end].suspended());
    assert_eq!(suspended, [1, 1]);
    let links = &mut pair.ports[1].links;
    assert_ne!(links.deadline(), Some(Instant(0)));
    let id = pair.users[1].from.unwrap();
    assert_eq!(links.of_mut(id).unwrap().cookie, 7);
    assert_eq!(pair.users[1].packets.len(), 1);
}

#[test]
fn a_peer_that_takes_nothing_in_but_says_so_is_not_given_up() {
    let config = ReliableConfig {
        give_up: Duration::from_secs(2),
        ..ReliableConfig::default()
    };
    let (mut pair, link) = Pair::connected(config);
    pair.send(0, link, 1, &bytes(5_000)).unwrap();
    // Only one end is polled; the other does what is due instead.
    let end = pair.now().after(Duration::from_secs(10));
    while pair.now() < end {
        pair.poll(0);
        let now = pair.now();
        let due = pair.ports[1].keep_alive_due();
        if due.is_some_and(|due| due <= pair.now()) {
            pair.ports[1].keep_alive(now);
        }
        pair.pass(Duration::from_micros(100));
    }
    assert_eq!(pair.users[0].down, []);
    let heard = |pair: &Pair| pair.ports[0].heard_at(link).unwrap();
    assert!(pair.now().since(heard(&pair)) < config.give_up);
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.users[1].packets, [(1, bytes(5_000))]);
    // One that says nothing is.
    pair.send(0, link, 2, &bytes(5_000)).unwrap();
    let end = pair.now().after(Duration::from_secs(10));
    while pair.now() < end {
        pair.poll(0);
        pair.pass(Duration::from_micros(100));
    }
    assert_eq!(pair.users[0].down, [LinkDown::TimedOut]);
}

#[test]
fn a_service_that_takes_less_than_the_least_ends_the_link_after_the_give_up_time() {
    for passed_before in [false, true] {
        let config = ReliableConfig {
            give_up: Duration::from_secs(2),
            ..ReliableConfig::default()
        };
        let mut pair = Pair::new(config);
        let narrow = |pair: &Pair| {
            let mut net = pair.net.borrow_mut();
            (net.mtu, net.refuses) = (500, true);
        };
        if !passed_before {
            narrow(&pair);
        }
        let link = pair.connect();
        pair.run(Duration::from_millis(50));
        narrow(&pair);
        pair.send(0, link, 1, &bytes(20_000)).unwrap();
        pair.run(Duration::from_secs(1));
        // Not at every poll, of which there were 50 000.
        let refused = pair.net.borrow().refused;
        assert!(refused < 5_000, "{refused} times");
        assert_eq!(pair.users[0].down, []);
        pair.run(Duration::from_secs(5));
        assert_eq!(pair.users[0].down, [LinkDown::TimedOut]);
    }
}

#[test]
fn a_caller_that_is_not_bound_in_time_is_forgotten_whatever_it_brings() {
    let (mut pair, link) = Pair::strange(ReliableConfig::default());
    pair.send(0, link, 1, b"my hello").unwrap();
    pair.run(Duration::from_millis(4900));
    assert_eq!(pair.ports[1].sessions(), 1);
    pair.run(Duration::from_millis(200));
    assert_eq!(pair.ports[1].sessions(), 0);
    assert_eq!(pair.ports[1].stats().unbound, 1);
    assert_eq!(pair.users[1].packets.len(), 1);
    // It had brought a packet, so those above know of it.
    assert_eq!(pair.users[1].down, [LinkDown::TimedOut]);
    assert_eq!(pair.users[0].down, [LinkDown::Reset]);
}

#[test]
fn of_a_caller_that_is_not_bound_nothing_larger_than_an_introduction_is_kept() {
    let (mut pair, link) = Pair::strange(ReliableConfig::default());
    for (mark, len) in [(1, 100), (2, 20_000), (3, 2_000), (4, 100)] {
        pair.send(0, link, mark, &bytes(len)).unwrap();
    }
    pair.run(Duration::from_secs(1));
    let theirs = pair.ports[1]
        .links
        .table
        .addresses()
        .next()
        .expect("it is there")
        .0;
    let kept = pair.ports[1]
        .links
        .of_mut(theirs)
        .map(|it| it.reassembly.kept_bytes());
    assert_eq!(kept, Some(0));
    assert_eq!(pair.users[1].packets, [(1, bytes(100))]);
    pair.bind(1);
    pair.run(Duration::from_secs(2));
    let lengths: Vec<usize> = pair.users[1].packets.iter().map(|it| it.1.len()).collect();
    assert_eq!(lengths, [100, 20_000, 2_000, 100]);
}

#[test]
fn a_caller_that_is_not_bound_takes_no_place_of_our_own_calls() {
    let config = ReliableConfig {
        max_links: 1,
        ..ReliableConfig::default()
    };
    let (mut pair, link) = Pair::strange(config);
    let call = |pair: &mut Pair| {
        let target = Target {
            nic: NicId(1),
            endpoint: EndpointId(0),
            route: Route::AUTO,
        };
        let now = pair.now();
        pair.ports[1].connect(target, now)
    };
    let ours = call(&mut pair).expect("a place");
    assert_eq!(call(&mut pair), Err(ConnectError::NoResources));
    assert_eq!(pair.ports[1].stats().refused, 1);
    pair.ports[1].close(ours, Close::Now);
    pair.bind(1);
    pair.send(0, link, 1, &bytes(20_000)).unwrap();
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.users[1].packets.len(), 1);
    assert_eq!(call(&mut pair), Err(ConnectError::NoResources));
    pair.ports[0].close(link, Close::Flush);
    pair.run(Duration::from_millis(50));
    call(&mut pair).expect("the place of the one that is over");
}

#[test]
fn what_waited_for_a_ping_or_a_time_out_because_its_acknowledgement_was_lost_is_no_sample() {
    // The lost answers: the acknowledgement; the answer to the Ping as well.
    for lost in [1, 2] {
        let (mut pair, link) = Pair::connected(ReliableConfig::default());
        for mark in 0..20 {
            let before = pair.logged();
            pair.send(0, link, mark, b"hello").unwrap();
            let mut answers = 0;
            for _ in 0..500 {
                pair.run(Duration::from_micros(20));
                let sent = pair.sent_since(before);
                let acks = sent.iter().filter(|(end, _, _)| *end == 1).count();
                if acks > answers && answers < lost {
                    // It is still in the queue of the first.
                    let mut net = pair.net.borrow_mut();
                    net.queues[0].iter_mut().for_each(VecDeque::clear);
                }
                answers = acks;
            }
            assert!(answers > lost, "nothing was asked for");
        }
        assert_eq!(pair.users[1].packets.len(), 20);
        let session = &pair.ports[0].links.of_mut(link).expect("it is up").session;
        let smoothed = session.rtt.srtt().expect("the Pings were samples");
        assert!(smoothed < Duration::from_micros(600), "{smoothed:?}");
        let rto = session.rtt.rto_without_backoff();
        assert!(rto <= Duration::from_millis(1), "{rto:?}");
    }
}

#[test]
fn a_peer_that_is_silent_on_an_idle_link_is_given_up_in_time() {
    let config = ReliableConfig {
        give_up: Duration::from_secs(2),
        ..ReliableConfig::default()
    };
    let (mut pair, _) = Pair::connected(config);
    let mut alone = |span: Duration| {
        let end = pair.now().after(span);
        while pair.now() < end {
            pair.poll(0);
            pair.pass(Duration::from_micros(100));
        }
        pair.users[0].down.clone()
    };
    assert_eq!(alone(Duration::from_millis(1900)), []);
    assert_eq!(alone(Duration::from_millis(400)), [LinkDown::TimedOut]);
}

#[test]
fn a_link_takes_what_its_segments_and_its_bytes_allow_and_says_when_it_takes_more() {
    for len in [1, 40_000] {
        let (mut pair, link) = Pair::connected(ReliableConfig::default());
        pair.send(0, link, 0, b"hello").unwrap();
        pair.run(Duration::from_millis(50));
        let back = pair.users[1].from.unwrap();
        let config = pair.ports[0].links.config;
        let room = |pair: &mut Pair| {
            let send = &pair.ports[0].links.of_mut(link).unwrap().session.send;
            (send.free(), send.queued_bytes())
        };
        // Nothing arrives there, and so nothing is acknowledged.
        let next = pair.logged();
        pair.net.borrow_mut().lose = (next..next + 10_000).collect();
        while pair.send(0, link, 1, &bytes(len)).is_ok() {}
        pair.poll(0);
        let (free, queued) = room(&mut pair);
        assert!(queued <= config.send_bytes as u64, "{len}: {queued}");
        assert_eq!(free == 0, len == 1, "{free}");
        pair.net.borrow_mut().lose.clear();
        pair.send(1, back, 0, b"hello").unwrap();
        pair.poll(1);
        pair.poll(0);
        pair.poll(0);
        assert_eq!(pair.users[0].packets.len(), 1);
        assert_eq!(pair.users[0].writable, 0, "{len}");
        pair.run(Duration::from_millis(50));
        assert_eq!(pair.users[0].writable, 1, "{len}");
        pair.send(0, link, 1, &bytes(len)).unwrap();
    }
}

/// A window in which a message of [`LONG`] bytes has no room.
fn narrow() -> ReliableConfig {
    ReliableConfig {
        window: 32,
        ..ReliableConfig::default()
    }
}

const LONG: usize = 500_000;

#[test]
fn a_message_whose_memory_goes_is_sent_to_its_end_also_when_the_link_is_closed() {
    for closed in [false, true] {
        let (mut pair, link) = Pair::connected(narrow());
        pair.send(0, link, 0, b"hello").unwrap();
        let mut memory = bytes(LONG);
        let Ok(Sent::Part(taken)) = pair.bring(link, 1, &memory, 0) else {
            panic!("there is no room for all of it");
        };
        pair.ports[0].detach(link, &memory, taken, LONG - taken);
        memory.fill(0);
        if closed {
            pair.ports[0].close(link, Close::Flush);
        } else {
            assert_eq!(pair.send(0, link, 2, b"no"), Err(SendError::WouldBlock));
        }
        pair.run(Duration::from_millis(100));
        let got = std::mem::take(&mut pair.users[1].packets);
        assert!(
            got == [(0, b"hello".to_vec()), (1, bytes(LONG))],
            "{closed}"
        );
        assert_eq!(pair.users[0].writable, usize::from(!closed), "{closed}");
        if !closed {
            pair.send(0, link, 3, b"after").unwrap();
        }
        pair.run(Duration::from_millis(50));
        assert_eq!(pair.users[1].packets.len(), usize::from(!closed));
        assert_eq!(
            pair.users[1].down,
            vec![LinkDown::Closed; usize::from(closed)]
        );
    }
}

#[test]
fn a_link_that_is_closed_between_the_parts_of_a_message_is_reset() {
    let (mut pair, link) = Pair::connected(narrow());
    pair.send(0, link, 0, b"hello").unwrap();
    assert!(matches!(
        pair.bring(link, 1, &bytes(LONG), 0),
        Ok(Sent::Part(_))
    ));
    pair.ports[0].close(link, Close::Flush);
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.users[1].packets.len(), 1);
    assert_eq!(pair.users[1].down, [LinkDown::Reset]);
}

#[test]
fn a_segment_beyond_the_window_or_of_another_session_is_counted_and_dropped() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.send(0, link, 1, b"one").unwrap();
    pair.poll(0);
    let mut net = pair.net.borrow_mut();
    let channels = net.queues[1].iter_mut();
    let (from, bytes) = channels.filter_map(|it| it.pop_front()).last().unwrap();
    let (header, payload) = Header::parse(&bytes).unwrap();
    let beyond = seq::Seq(header.seq.0.wrapping_add(100_000));
    let another = header.from ^ 1;
    for forged in [
        Header {
            seq: beyond,
            ..header
        },
        Header {
            from: another,
            ..header
        },
    ] {
        let mut bytes = Vec::new();
        forged.emit(payload, &mut bytes);
        net.queues[1][0].push_back((from, bytes));
    }
    drop(net);
    pair.poll(1);
    let stats = pair.ports[1].stats();
    assert_eq!((stats.outside_window, stats.old_session), (1, 1));
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.users[1].packets, [(1, b"one".to_vec())]);
}

#[test]
fn a_pacing_pause_ends_at_its_time_and_is_not_due_again() {
    let (config, mut stats) = (ReliableConfig::default(), ReliableStats::default());
    let (cookie, first) = (2, seq::Seq(1));
    let caller = Some(session::Caller { cookie, first });
    let mut session = session::Session::new(Instant(1), 1, first, caller, 1400, &config);
    session.paced_until = Some(Instant(10));
    for (now, due) in [(9, true), (10, false)] {
        assert_eq!(session.on_timer(Instant(now), &config, &mut stats), None);
        assert_eq!(session.deadline(&config) == Instant(10), due, "{now}");
    }
    assert!(session.deadline(&config) > Instant(10));
}

#[test]
fn links_that_are_cut_off_end_in_the_next_poll_and_others_stay() {
    for (cut_off, end) in [(Some(1), vec![LinkDown::Reset]), (Some(0), vec![])] {
        let (mut pair, link) = Pair::connected(ReliableConfig::default());
        pair.net.borrow_mut().cut_off = cut_off;
        pair.ports[0].leave_old_addresses();
        assert_eq!(pair.ports[0].arm(), end.is_empty());
        pair.poll(0);
        assert_eq!(pair.users[0].down, end);
        assert_eq!(pair.ports[0].address(link).is_none(), !end.is_empty());
    }
}

/// A session at time 1 in which we call.
fn calling(config: &ReliableConfig) -> session::Session {
    session::Session::new(Instant(1), 1, seq::Seq(1), None, 1400, config)
}

/// The same when a peer with cookie 2 has answered.
fn opened(config: &ReliableConfig) -> session::Session {
    let mut session = calling(config);
    assert!(session.on_welcome(Instant(1), &Header::new(DatagramKind::Welcome, 1, 2)));
    session
}

#[test]
fn a_forgotten_session_is_opened_again_after_pauses_that_double() {
    let config = ReliableConfig::default();
    let mut session = opened(&config);
    let mut pauses = Vec::new();
    while session.call_again(Instant(1), &config) {
        pauses.push(session.deadline(&config).since(Instant(1)));
        session.on_welcome(Instant(1), &Header::new(DatagramKind::Welcome, 1, 2));
    }
    let doubled = |n: usize| config.first_rto * (2 << n);
    assert!(pauses.len() > 1);
    assert_eq!(pauses, (0..pauses.len()).map(doubled).collect::<Vec<_>>());
}

#[test]
fn a_segment_that_is_asked_for_is_acknowledged_first_and_one_in_order_last() {
    let config = ReliableConfig::default();
    let now = Instant(1_000_000);
    let due = [
        (recv_window::Verdict::Next, packet::ASK),
        (recv_window::Verdict::Early, 0),
        (recv_window::Verdict::Next, 0),
    ]
    .map(|(verdict, flags)| {
        let mut session = opened(&config);
        session.acks.on_acked();
        let mut header = Header::new(DatagramKind::Data, 1, 2);
        header.flags = flags;
        session.on_segment(now, &header, verdict);
        session.acks.due().unwrap()
    });
    assert!(due[0] == now && now < due[1] && due[1] < due[2], "{due:?}");
}

#[test]
fn a_peer_without_a_socket_is_dead_at_once_while_connecting_and_after_some_reports_later() {
    let config = ReliableConfig::default();
    assert!(calling(&config).on_refused());
    let mut session = opened(&config);
    assert!(!session.on_refused());
    assert!((0..100).any(|_| session.on_refused()));
}

#[test]
fn a_session_is_quiet_when_nothing_was_heard_for_a_time() {
    let mut session = opened(&ReliableConfig::default());
    session.acks.on_acked();
    let quiet = |after| session.is_quiet(Instant(1).after(after), Duration::from_secs(1));
    assert!(!quiet(Duration::from_millis(999)) && quiet(Duration::from_secs(1)));
}

#[test]
fn a_peer_that_was_told_of_less_than_a_quarter_hears_at_once_that_half_is_free() {
    for (told, free, at_once) in [(249, 500, true), (250, 500, false), (249, 499, false)] {
        let (now, config) = (Instant(1), ReliableConfig::default());
        let mut session = calling(&config);
        session.on_acknowledged(told);
        session.on_drained(now, free, 1000);
        assert_eq!(session.acks.due().is_some(), at_once, "{told} {free}");
    }
}
