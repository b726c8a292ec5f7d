//! Two `HostPorts` in one process find each other over TCP, for a fabric that only exists here.

use super::host::HostPorts;
use super::host_port::HostPort;
use super::lazy::Lazy;
use crate::nic;
use mx_port_base::clock::MonotonicClock;
use mx_port_base::endpoint_port::PortMap;
use mx_port_base::origin::Origin;
use mx_port_base::ports::{RDM, ROUTE_RDM, ROUTE_TCP, TCP};
use mx_port_fabric::Addresses;
use mx_port_fabric::endpoint_address::{ANSWER_MAX, Answer, EndpointAddress, Refusal};
use mx_port_tcp::{TcpOptions, TcpPort};
use mx_proto::origin::Source;
use mx_proto::port::{
    Body, Close, ConnectError, HEADER_LEN, HeaderBytes, Limits, LinkControl, LinkDown, Place, Port,
    SendError, Sent, WakeDescriptors,
};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::secret::Secret;
use mx_proto::{
    Clock, EndpointId, Identity, Instant, LinkId, Memory, NicId, Route, SessionId, Target,
};
use mx_sim::Polled;
use mx_sim::recorder::{Recorder, Seen, header_of};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Reaching it means that something hangs.
const LONG: Duration = Duration::from_secs(20);

/// An unknown interface.
const NOWHERE: NicId = NicId(5);

/// A fabric on which every peer is heard at once, and nothing else is.
#[derive(Debug, Default)]
pub(super) struct Double {
    provider: &'static str,
    made: u32,
    open: Vec<LinkId>,
    ups: Vec<LinkId>,
    downs: Vec<(LinkId, LinkDown)>,
    answered: Vec<EndpointAddress>,
    greeted: Vec<(LinkId, EndpointAddress)>,
    from: HashMap<LinkId, SocketAddr>,
    doubted: Vec<LinkId>,
    /// Something has happened in the round.
    any: bool,
    /// It takes no more links.
    pub(super) full: bool,
    /// Links closed by the endpoint of which something is left.
    leaving: Vec<LinkId>,
    /// The time at which anything last came over any link.
    heard_at: Option<Instant>,
}

impl Double {
    pub(super) fn new(provider: &'static str) -> Self {
        Self {
            provider,
            ..Self::default()
        }
    }

    fn make(&mut self) -> LinkId {
        self.made += 1;
        let link = LinkId::new(self.made, 0).at_port(RDM);
        self.open.push(link);
        link
    }
}

impl Addresses for Double {
    fn provider(&self) -> &str {
        self.provider
    }

    fn endpoint_address(&self, link: LinkId) -> Option<EndpointAddress> {
        self.open.contains(&link).then(|| EndpointAddress {
            provider: self.provider.to_owned(),
            format: 2,
            address: vec![9; 16],
            incarnation: 5,
            link: link.index(),
            cookie: 7,
            watched: false,
        })
    }

    fn answer(
        &mut self,
        theirs: &EndpointAddress,
        from: SocketAddr,
        _: Instant,
    ) -> Result<(Option<LinkId>, EndpointAddress), Refusal> {
        if theirs.provider != self.provider {
            return Err(Refusal::Provider);
        }
        if self.full {
            return Err(Refusal::Full);
        }
        self.answered.push(theirs.clone());
        let link = self.make();
        self.from.insert(link, from);
        let ours = self.endpoint_address(link).ok_or(Refusal::Failed)?;
        Ok((Some(link), ours))
    }

    fn greet(
        &mut self,
        (link, _): (LinkId, Target),
        theirs: &EndpointAddress,
        from: SocketAddr,
        _: Instant,
    ) {
        self.from.insert(link, from);
        self.greeted.push((link, theirs.clone()));
        self.ups.push(link);
    }

    fn give_up(&mut self, (link, _): (LinkId, Target), reason: LinkDown) {
        if self.open.contains(&link) {
            self.open.retain(|open| *open != link);
            self.downs.push((link, reason));
        }
    }

    fn has(&self, link: LinkId) -> bool {
        self.open.contains(&link) || self.leaving.contains(&link)
    }

    fn doubt(&mut self, link: LinkId, _: Instant) {
        self.doubted.push(link);
    }
}

impl<M: Memory> HostPort<M> for Double {
    fn call(&mut self, _: Target, _: Option<Route>, _: Instant) -> Result<LinkId, ConnectError> {
        if self.full {
            Err(ConnectError::NoResources)
        } else {
            Ok(self.make())
        }
    }

    fn addresses(&mut self) -> Option<&mut dyn Addresses> {
        Some(self)
    }

    fn origin(&self, link: LinkId) -> Origin {
        let from = self.from.get(&link).copied();
        from.map_or(Origin::Unknown, Origin::Address)
    }

    fn bytes(&self) -> &[u8] {
        &[]
    }
}

impl LinkControl for Double {
    fn limits(&self, _: LinkId) -> Limits {
        Limits {
            packet_max: 4096,
            streamed_max: 0,
            data_max: 4096,
            pull_block: 4096,
            remote_read: true,
            refusal_ends_link: false,
            data_links: 0,
        }
    }

    fn connect(&mut self, _: Target, _: Instant) -> Result<LinkId, ConnectError> {
        Err(ConnectError::NoRoute)
    }

    fn close(&mut self, link: LinkId, _: Close) {
        self.open.retain(|open| *open != link);
        self.from.remove(&link);
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }

    fn link_count(&self) -> usize {
        self.open.len() + self.downs.len()
    }

    fn heard_at(&self, _: LinkId) -> Option<Instant> {
        self.heard_at
    }
}

impl<M: Memory> Port<M> for Double {
    fn send(&mut self, _: LinkId, _: &HeaderBytes, _: Body<'_, M>) -> Result<Sent, SendError> {
        Err(SendError::Down)
    }

    fn resume(&mut self, _: LinkId, _: &M, _: usize, _: usize) -> Result<Sent, SendError> {
        Err(SendError::Down)
    }

    fn detach(&mut self, _: LinkId, _: &M, _: usize, _: usize) {}
}

impl<M: Memory> Rounds<M> for Double {
    type Lent<'a> = &'a [u8];

    fn begin(&mut self, _: Instant, _: usize) {
        self.any = !self.ups.is_empty() || !self.downs.is_empty();
    }

    fn next(&mut self) -> Next {
        if !self.ups.is_empty() {
            return Next::Event(PortEvent::Up(self.ups.remove(0)));
        }
        if !self.downs.is_empty() {
            let (link, reason) = self.downs.remove(0);
            return Next::Event(PortEvent::Down(link, reason));
        }
        Next::End { any: self.any }
    }

    fn body(&self) -> &[u8] {
        &[]
    }

    fn read(&mut self, _: Place<'_, M>) {}

    fn skip(&mut self) {}
}

/// The real clock, which can be put forward.
#[derive(Default)]
struct Hasty(Cell<Duration>);

impl Clock for Hasty {
    fn now(&self) -> Instant {
        MonotonicClock.now().after(self.0.get())
    }
}

pub(super) fn listening() -> TcpPort {
    listening_for(usize::MAX)
}

fn listening_for(max_links: usize) -> TcpPort {
    let listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    let options = TcpOptions::new(listen, Box::new(resolve));
    TcpPort::open(TcpOptions {
        max_links: max_links.min(options.max_links),
        ..options
    })
    .unwrap()
}

/// A resolver for which every machine but [`NOWHERE`] is this one.
pub(super) fn resolve(target: Target) -> Result<SmallVec<[SocketAddr; 2]>, ConnectError> {
    if target.nic == NOWHERE {
        return Err(ConnectError::UnknownNic);
    }
    let port = PortMap::default().port(target.endpoint);
    let port = port.map_err(|_| ConnectError::BadEndpoint)?;
    Ok([SocketAddr::from((Ipv4Addr::LOCALHOST, port))]
        .into_iter()
        .collect())
}

fn target_of(port: u16, route: Route) -> Target {
    Target {
        nic: nic::own_nic(None).unwrap(),
        endpoint: PortMap::default().endpoint(port).unwrap(),
        route,
    }
}

struct Side {
    ports: HostPorts<Vec<u8>>,
    sink: Recorder,
    clock: Hasty,
}

impl Side {
    fn new(policy: Route, fabric: Option<Double>) -> Self {
        Self::with(policy, fabric.map_or_else(Lazy::never, Lazy::open))
    }

    fn with(policy: Route, rdm: Lazy<Vec<u8>>) -> Self {
        Self::over(listening(), policy, rdm)
    }

    fn over(tcp: TcpPort, policy: Route, rdm: Lazy<Vec<u8>>) -> Self {
        let own = Identity {
            nic: nic::own_nic(None).unwrap(),
            endpoint: PortMap::default().endpoint(tcp.local_port()).unwrap(),
            session: SessionId(1),
        };
        let ports = HostPorts::new(own, policy, PortMap::default(), None, tcp, [rdm]);
        Self {
            ports: ports.unwrap(),
            sink: Recorder::default(),
            clock: Hasty::default(),
        }
    }

    fn knowing(mut self, secret: Option<&str>) -> Self {
        if let Some(secret) = secret {
            let bytes = zeroize::Zeroizing::new(secret.as_bytes().to_vec());
            self.ports.keep(Secret::new(bytes)).unwrap();
        }
        self
    }

    fn target(&self, route: Route) -> Target {
        target_of(self.ports.tcp_port(), route)
    }

    fn connect(&mut self, target: Target) -> Result<LinkId, ConnectError> {
        self.ports.connect(target, self.clock.now())
    }

    fn poll(&mut self) -> bool {
        self.ports.note_control();
        self.ports.poll(self.clock.now(), 64, &mut self.sink)
    }

    fn fabric(&self) -> &Double {
        self.ports.port_of().unwrap()
    }

    fn fabric_mut(&mut self) -> &mut Double {
        let port: &mut dyn Any = self.ports.ports.get_mut(RDM).unwrap();
        port.downcast_mut().unwrap()
    }

    fn tcp_links(&self) -> usize {
        self.ports.port_of::<TcpPort>().unwrap().link_count()
    }

    /// The interface of a link's peer, which says that it has another one.
    fn seen(&self, link: LinkId) -> Option<NicId> {
        let claimed = Identity {
            nic: NicId(0x1234),
            ..self.ports.identity()
        };
        self.ports.seen(link, &claimed).nic
    }

    /// Events since the last time, but for ends of links that the endpoint never knew.
    fn heard(&mut self) -> Vec<Seen> {
        let strangers = |seen: &Seen| matches!(seen, Seen::Down(_, LinkDown::Closed));
        let mut seen = self.sink.take();
        seen.retain(|seen| !strangers(seen));
        seen
    }
}

fn tcp() -> Option<Double> {
    Some(Double::new("tcp"))
}

fn sides() -> [Side; 2] {
    [(); 2].map(|()| Side::new(ROUTE_RDM, tcp()))
}

/// The bytes of an endpoint address.
fn address(watched: bool) -> Vec<u8> {
    let link = LinkId::new(3, 0);
    let good = Double {
        open: vec![link],
        ..Double::new("tcp")
    };
    let address = good.endpoint_address(link).unwrap();
    EndpointAddress { watched, ..address }.emit()
}

fn until(mut done: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed() < LONG, "it never happens");
        std::thread::yield_now();
    }
}

/// Polls both until `a` has been told something, and returns that.
fn told(a: &mut Side, mut other: impl FnMut()) -> Vec<Seen> {
    until(|| {
        other();
        a.poll();
        !a.sink.seen.is_empty()
    });
    a.sink.take()
}

/// Polls both until they have so many links over TCP.
fn settle(a: &mut Side, b: &mut Side, links: (usize, usize)) {
    until(|| {
        a.poll();
        b.poll();
        (a.tcp_links(), b.tcp_links()) == links
    });
}

fn both(a: &mut Side, b: &mut Side) -> Vec<Seen> {
    told(a, || {
        b.poll();
    })
}

#[test]
fn a_link_comes_up_when_each_side_has_the_others_endpoint_address_and_tcp_watches_over_it() {
    for secret in [None, Some(KNOWN)] {
        let [mut a, mut b] = sides().map(|side| side.knowing(secret));
        for route in [Route::AUTO, ROUTE_RDM] {
            let link = a.connect(b.target(route)).unwrap();
            assert_eq!(link.port(), RDM);
            assert_eq!(both(&mut a, &mut b), [Seen::Up(link)]);
            assert_eq!(HostPorts::port_name(link), "rdm");
        }
        let index = |side: &Side| Vec::from_iter(side.fabric().open.iter().map(|it| it.index()));
        let asked = b.fabric().answered.iter().map(|address| address.link);
        let greeted = a.fabric().greeted.iter().map(|(_, address)| address.link);
        assert_eq!(index(&a), Vec::from_iter(asked));
        assert_eq!(index(&b), Vec::from_iter(greeted));
        assert_eq!((a.tcp_links(), b.tcp_links()), (2, 2));
        assert_eq!(b.heard(), []);
        assert_eq!((a.ports.link_count(), b.ports.link_count()), (2, 2));
    }
}

/// Links between two sides, all bound, and the ids that both sides have for them.
fn linked(a: &mut Side, b: &mut Side, count: usize) -> Vec<(LinkId, LinkId)> {
    let mut links = Vec::new();
    for _ in 0..count {
        let link = a.connect(b.target(ROUTE_RDM)).unwrap();
        assert_eq!(both(a, b), [Seen::Up(link)]);
        let theirs = *b.fabric().open.last().unwrap();
        a.ports.accept(link);
        a.ports.accept(link);
        b.ports.accept(theirs);
        b.ports.accept(theirs);
        links.push((link, theirs));
    }
    b.heard();
    links
}

#[test]
fn a_peer_whose_process_is_gone_is_doubted_at_once_by_either_side_and_no_other() {
    for asker_dies in [true, false] {
        let ([mut a, mut b], [mut other, _]) = (sides(), sides());
        let (ours, theirs) = linked(&mut a, &mut b, 1)[0];
        let (mut left, link, survives) = if asker_dies {
            let (_, survives) = linked(&mut other, &mut b, 1)[0];
            drop(a);
            (b, theirs, survives)
        } else {
            let (survives, _) = linked(&mut a, &mut other, 1)[0];
            drop(b);
            (a, ours, survives)
        };
        until(|| {
            left.poll();
            !left.fabric().doubted.is_empty()
        });
        // The fabric has the last word: the link is neither down nor closed.
        assert_eq!(left.fabric().doubted, [link]);
        assert_eq!(left.fabric().open.len(), 2);
        assert_eq!((left.heard(), left.tcp_links()), (vec![], 1));
        assert!(left.fabric().has(survives));
    }
}

#[test]
fn a_watch_ends_with_its_link_and_not_before_the_last_frame_has_left() {
    let [mut a, mut b] = sides();
    let links = linked(&mut a, &mut b, 3);
    // Closed by the endpoint; the other side is told over the fabric, and asks there.
    a.ports.close(links[0].0, Close::Now);
    settle(&mut a, &mut b, (2, 2));
    assert_eq!(b.fabric().doubted, [links[0].1]);
    // Down over the fabric.
    let lost = (links[1].1, a.target(ROUTE_RDM));
    b.fabric_mut().give_up(lost, LinkDown::Reset);
    settle(&mut a, &mut b, (1, 1));
    assert_eq!(a.fabric().doubted, [links[1].0]);
    // What the endpoint has closed is still leaving.
    a.fabric_mut().leaving = vec![links[2].0];
    a.ports.close(links[2].0, Close::Flush);
    for _ in 0..100 {
        a.poll();
        b.poll();
    }
    assert_eq!((a.tcp_links(), b.tcp_links()), (1, 1));
    a.fabric_mut().leaving.clear();
    settle(&mut a, &mut b, (0, 0));
    assert_eq!(a.fabric().doubted, [links[1].0]);
}

#[test]
fn a_quarter_of_the_tcp_links_may_watch_and_the_others_end_with_the_answer() {
    for small_asks in [true, false] {
        let small = Side::over(listening_for(16), ROUTE_RDM, Lazy::open(Double::new("tcp")));
        let large = Side::new(ROUTE_RDM, tcp());
        let (mut a, mut b) = if small_asks {
            (small, large)
        } else {
            (large, small)
        };
        // One source has half of the four.
        let count = if small_asks { 4 } else { 2 };
        linked(&mut a, &mut b, 5);
        settle(&mut a, &mut b, (count, count));
        assert_eq!((a.fabric().open.len(), b.fabric().open.len()), (5, 5));
        assert!(a.fabric().doubted.is_empty() && b.fabric().doubted.is_empty());
    }
}

#[test]
fn a_stranger_is_watched_no_longer_than_it_may_stay() {
    let [mut a, mut b] = sides();
    let [bound, stranger] = [(); 2].map(|()| {
        let link = a.connect(b.target(ROUTE_RDM)).unwrap();
        assert_eq!(both(&mut a, &mut b), [Seen::Up(link)]);
        *b.fabric().open.last().unwrap()
    });
    b.ports.accept(bound);
    b.clock.0.set(Duration::from_secs(6));
    settle(&mut a, &mut b, (1, 1));
    assert_eq!(b.fabric().doubted, []);
    assert!(b.fabric().has(stranger));
}

#[test]
fn what_comes_on_a_link_that_watches_is_not_for_the_endpoint() {
    let mut b = Side::new(ROUTE_RDM, tcp());
    let ours = address(true);
    let mut stream = TcpStream::connect(("127.0.0.1", b.ports.tcp_port())).unwrap();
    stream.write_all(b"\x93MXTCP\x01\x00").unwrap();
    stream.write_all(&question(&ours)).unwrap();
    until(|| {
        b.poll();
        b.fabric().answered.len() == 1
    });
    let link = b.fabric().open[0];
    b.ports.accept(link);
    // An introduction, another question, a large packet.
    let large = [header_of(3, 100_000).to_vec(), vec![7; 100_000]].concat();
    for bytes in [header_of(3, 0).to_vec(), question(&ours), large] {
        stream.write_all(&bytes).unwrap();
        for _ in 0..100 {
            b.poll();
        }
    }
    drop(stream);
    until(|| {
        b.poll();
        b.tcp_links() == 0
    });
    assert_eq!((b.heard(), b.fabric().answered.len()), (vec![], 1));
    assert_eq!(b.fabric().doubted, [link]);
}

#[test]
fn a_peer_without_our_fabric_is_reached_over_tcp_unless_its_address_forbids() {
    let full = Double {
        full: true,
        ..Double::new("tcp")
    };
    for fabric in [None, Some(Double::new("verbs;ofi_rxm")), Some(full)] {
        let mut a = Side::new(ROUTE_RDM, tcp());
        let mut b = Side::new(ROUTE_TCP, fabric);
        let link = a.connect(b.target(Route::AUTO)).unwrap();
        let elsewhere = LinkDown::Elsewhere(ROUTE_TCP);
        assert_eq!(both(&mut a, &mut b), [Seen::Down(link, elsewhere)]);
        let link = a.connect(b.target(ROUTE_RDM)).unwrap();
        let unreachable = LinkDown::Unreachable;
        assert_eq!(both(&mut a, &mut b), [Seen::Down(link, unreachable)]);
        // As the endpoint does then.
        let link = a.connect(b.target(ROUTE_TCP)).unwrap();
        assert_eq!(both(&mut a, &mut b), [Seen::Up(link)]);
        assert_eq!(link.port(), TCP);
        assert_eq!(a.fabric().link_count(), 0);
        assert_eq!(b.heard(), []);
    }
}

/// As a version without the address exchange does, which takes the question for a violation; or one that is odd.
#[test]
fn a_peer_that_closes_the_link_or_answers_nonsense_is_reached_over_tcp() {
    let nonsense = [&b"\x01nonsense"[..], b"", &[0; ANSWER_MAX + 1]].map(Some);
    for answer in nonsense.into_iter().chain([None]) {
        let mut a = Side::new(ROUTE_RDM, tcp());
        let mut peer = listening();
        let link = a
            .connect(target_of(peer.local_port(), Route::AUTO))
            .unwrap();
        let mut sink = Recorder::default();
        let seen = told(&mut a, || {
            peer.note_control();
            peer.poll(MonotonicClock.now(), 64, &mut sink);
            for seen in sink.take() {
                let Seen::Packet {
                    link, mut header, ..
                } = seen
                else {
                    continue;
                };
                let Some(body) = answer else {
                    peer.close(link, Close::Now);
                    continue;
                };
                header[1] = 2;
                header[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
                let body = Body::Bytes(body);
                Port::<Vec<u8>>::send(&mut peer, link, &header, body).unwrap();
            }
        });
        assert_eq!(seen, [Seen::Down(link, LinkDown::Elsewhere(ROUTE_TCP))]);
        assert!(answer.is_some() || a.tcp_links() == 0);
    }
}

#[test]
fn a_peer_that_says_nothing_is_given_five_seconds() {
    let mut a = Side::new(ROUTE_RDM, tcp());
    let mut silent = listening();
    let link = a
        .connect(target_of(silent.local_port(), Route::AUTO))
        .unwrap();
    let mut sink = Recorder::default();
    until(|| {
        a.poll();
        silent.note_control();
        silent.poll(MonotonicClock.now(), 64, &mut sink);
        !sink.seen.is_empty()
    });
    assert_eq!(a.sink.take(), []);
    let due = a.ports.deadline().unwrap();
    let left = due.since(a.clock.now());
    assert!(left <= Duration::from_secs(5), "{left:?}");
    // A jump of the clock is no silence of the peer.
    a.clock.0.set(Duration::from_secs(60));
    a.poll();
    assert_eq!(a.sink.take(), []);
    let due = a.ports.deadline().unwrap();
    let left = due.since(a.clock.now()) + Duration::from_millis(1);
    a.clock.0.set(Duration::from_secs(60) + left);
    let seen = told(&mut a, || {});
    assert_eq!(seen, [Seen::Down(link, LinkDown::Elsewhere(ROUTE_TCP))]);
    assert_eq!(a.tcp_links(), 0);
}

#[test]
fn without_a_listener_the_link_fails_as_over_tcp() {
    let mut a = Side::new(ROUTE_RDM, tcp());
    let port = listening().local_port();
    for route in [Route::AUTO, ROUTE_RDM] {
        let link = a.connect(target_of(port, route)).unwrap();
        let seen = told(&mut a, || {});
        assert_eq!(seen, [Seen::Down(link, LinkDown::Refused)]);
    }
    let nowhere = Target {
        nic: NOWHERE,
        endpoint: EndpointId(3),
        route: ROUTE_RDM,
    };
    assert_eq!(a.connect(nowhere), Err(ConnectError::UnknownNic));
    assert_eq!(a.fabric().link_count() + a.tcp_links(), 0);
}

#[test]
fn a_link_closed_while_its_peer_is_looked_for_takes_the_search_with_it() {
    let [mut a, mut b] = sides();
    let link = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.tcp_links(), 1);
    a.ports.close(link, Close::Now);
    assert_eq!((a.tcp_links(), a.fabric().link_count()), (0, 0));
    for _ in 0..1000 {
        a.poll();
        b.poll();
    }
    assert_eq!((a.sink.take(), b.sink.take()), (vec![], vec![]));
}

#[test]
fn the_port_is_opened_for_the_first_address_that_asks_and_not_for_others() {
    let open = || Ok::<_, String>(Double::new("tcp"));
    let later = Lazy::later("rdm", open, |double: &Double| double.provider);
    let mut a = Side::with(Route::AUTO, later);
    let mut b = Side::new(ROUTE_RDM, tcp());
    let link = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(link.port(), TCP);
    assert!(a.ports.port_of::<Double>().is_none());
    assert_eq!(both(&mut a, &mut b), [Seen::Up(link)]);
    let link = a.connect(b.target(ROUTE_RDM)).unwrap();
    assert_eq!(both(&mut a, &mut b), [Seen::Up(link)]);
    assert_eq!(link.port(), RDM);
    // It still carries only what asks for it.
    let link = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(link.port(), TCP);

    // One that is full leaves the peer to TCP.
    let [mut full, _] = sides();
    full.fabric_mut().full = true;
    let link = full.connect(b.target(Route::AUTO));
    assert_eq!(link.map(LinkId::port), Ok(TCP));
    let refused = full.connect(b.target(ROUTE_RDM));
    assert_eq!(refused, Err(ConnectError::NoResources));

    let mut a = Side::with(
        Route::AUTO,
        Lazy::later("rdm", || Err("none"), |double: &Double| double.provider),
    );
    for _ in 0..2 {
        let refused = a.connect(b.target(ROUTE_RDM));
        assert_eq!(refused, Err(ConnectError::NoRoute));
    }
}

/// The bytes of a question with this body.
fn question(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes[..4].copy_from_slice(b"L\x01mx");
    bytes[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    bytes[8] = 1;
    bytes.extend_from_slice(body);
    bytes
}

/// The answer of `b` to a stranger that sends `bytes`, until it closes the connection.
fn stranger(b: &mut Side, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", b.ports.tcp_port())).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream.write_all(b"\x93MXTCP\x01\x00").unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    until(|| {
        b.poll();
        match stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(n) => {
                said.extend_from_slice(&buffer[..n]);
                false
            }
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    });
    drop(stream);
    until(|| {
        b.poll();
        b.tcp_links() == 0
    });
    said.split_off(said.len().min(8))
}

#[test]
fn strangers_get_one_answer_whatever_they_say_and_leave_nothing_behind() {
    let mut b = Side::new(ROUTE_RDM, tcp());
    let endpoint_address = address(false);
    let not_understood = Answer::None {
        why: Refusal::NotUnderstood,
        provider: "tcp".to_owned(),
    };
    let mut other_version = question(&endpoint_address);
    other_version[8] = 2;
    let mut cases = vec![
        question(b""),
        question(&[0xff; 300]),
        question(&endpoint_address[1..]),
        other_version,
    ];
    let mut state = 1u64;
    for len in 0..64usize {
        let mut bytes = endpoint_address.clone();
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(len as u64 | 1);
        // Its head decides about everything behind it.
        bytes[(state >> 33) as usize % 12] ^= (state >> 56) as u8 | 1;
        bytes.truncate(endpoint_address.len().saturating_sub(len % 7));
        if EndpointAddress::parse(&bytes).is_none() {
            cases.push(question(&bytes));
        }
    }
    for case in &cases {
        let said = stranger(&mut b, case);
        let (header, body) = said.split_at(HEADER_LEN);
        assert_eq!(header[..4], *b"L\x02mx");
        assert_eq!(Answer::parse(body), Some(not_understood.clone()));
    }
    // More than any question has is not even taken in.
    assert_eq!(stranger(&mut b, &question(&vec![0; 40_000])), []);
    let seen = b.heard();
    assert!(matches!(seen[..], [Seen::Down(_, LinkDown::Protocol)]));
    assert!(b.fabric().answered.is_empty());
    assert_eq!(b.fabric().link_count(), 0);

    // No peer asks twice, or introduces itself after that.
    let twice = [
        question(&endpoint_address),
        question(&endpoint_address),
        header_of(3, 0).to_vec(),
    ]
    .concat();
    let said = stranger(&mut b, &twice);
    assert!(matches!(
        Answer::parse(&said[HEADER_LEN..]),
        Some(Answer::EndpointAddress(_))
    ));
    assert_eq!(b.fabric().answered.len(), 1);
    assert_eq!(b.heard(), []);
}

#[test]
fn an_introduction_that_waits_ends_with_the_question_behind_it_whenever_that_comes() {
    let endpoint_address = address(false);
    let mut hail = [0; HEADER_LEN];
    hail.copy_from_slice(&question(b""));
    hail[1] = 4;
    // Without a secret a peer that hails is sent away like one that asks.
    for last in [
        question(&endpoint_address),
        question(b"no endpoint address"),
        hail.to_vec(),
    ] {
        for at_once in [true, false] {
            let mut b = Side::new(ROUTE_RDM, tcp());
            let mut stream = TcpStream::connect(("127.0.0.1", b.ports.tcp_port())).unwrap();
            stream.write_all(b"\x93MXTCP\x01\x00").unwrap();
            stream.write_all(&header_of(3, 0)).unwrap();
            if !at_once {
                // The endpoint does not bind the link yet: it asks about the claim.
                until(|| {
                    b.poll();
                    !b.sink.seen.is_empty()
                });
            }
            stream.write_all(&last).unwrap();
            until(|| {
                b.poll();
                b.tcp_links() == 0
            });
            match &b.sink.take()[..] {
                [
                    Seen::Packet { link, .. },
                    Seen::Down(down, LinkDown::Closed),
                ] => {
                    assert_eq!((link, link.port()), (down, TCP));
                }
                seen => panic!("{seen:?}, at once: {at_once}"),
            }
        }
    }
}

#[test]
fn a_peer_over_the_fabric_is_named_by_the_address_the_endpoint_addresses_went_to() {
    let [mut a, mut b] = sides();
    let ours = a.connect(b.target(ROUTE_RDM)).unwrap();
    assert_eq!(a.seen(ours), None, "not exchanged yet");
    assert_eq!(both(&mut a, &mut b), [Seen::Up(ours)]);
    let theirs = b.fabric().open[0];
    for (side, link, other) in [(&a, ours, &b), (&b, theirs, &a)] {
        assert_eq!(side.seen(link), Some(other.ports.identity().nic));
        let seen = side.ports.seen(link, &other.ports.identity());
        assert_ne!(seen.source, Source::TRUSTED);
    }
    // A link that is no more, or never was, tells nothing.
    a.ports.close(ours, Close::Now);
    for link in [ours, LinkId::new(7, 7).at_port(RDM)] {
        assert_eq!(a.seen(link), None);
    }
}

#[test]
fn a_question_on_a_link_of_a_remote_is_a_packet_like_any_other() {
    let mut a = Side::new(ROUTE_TCP, None);
    let mut b = Side::new(ROUTE_RDM, tcp());
    let link = a.connect(b.target(ROUTE_TCP)).unwrap();
    assert_eq!(both(&mut a, &mut b), [Seen::Up(link)]);
    let send = |a: &mut Side, header: HeaderBytes| {
        Port::<Vec<u8>>::send(&mut a.ports, link, &header, Body::EMPTY).unwrap()
    };
    send(&mut a, header_of(3, 0));
    let Seen::Packet { link: theirs, .. } = both(&mut b, &mut a)[0] else {
        panic!("no packet");
    };
    b.ports.accept(theirs);
    let mut header = [0; HEADER_LEN];
    header.copy_from_slice(&question(b""));
    send(&mut a, header);
    let seen = both(&mut b, &mut a);
    assert!(matches!(seen[..], [Seen::Packet { .. }]), "{seen:?}");
    assert_eq!(theirs.port(), TCP);
    assert_eq!(b.tcp_links(), 1);
}

const KNOWN: &str = "0123456789abcdef";

#[test]
fn without_the_secret_nothing_is_made_and_the_link_ends_at_once() {
    let other = "0123456789abcdeF";
    for (ours, theirs) in [
        (None, Some(KNOWN)),
        (Some(KNOWN), None),
        (Some(KNOWN), Some(other)),
    ] {
        let [a, b] = sides();
        let (mut a, mut b) = (a.knowing(ours), b.knowing(theirs));
        let link = a.connect(b.target(ROUTE_RDM)).unwrap();
        let seen = both(&mut a, &mut b);
        assert_eq!(seen, [Seen::Down(link, LinkDown::Unreachable)]);
        assert!(b.fabric().answered.is_empty() && a.fabric().greeted.is_empty());
        assert_eq!(b.fabric().link_count(), 0, "{ours:?} {theirs:?}");
        settle(&mut a, &mut b, (0, 0));
    }
}

#[test]
fn a_question_without_a_proof_or_with_one_of_yesterday_is_refused() {
    let mut b = Side::new(ROUTE_RDM, tcp()).knowing(Some(KNOWN));
    let refused = Answer::None {
        why: Refusal::Secret,
        provider: "tcp".to_owned(),
    };
    let endpoint_address = address(false);
    // A proof that is right in itself, for another link's nonce.
    let bytes = zeroize::Zeroizing::new(KNOWN.as_bytes().to_vec());
    let former = super::address_exchange::question_for_tests(Secret::new(bytes), &endpoint_address);
    for body in [
        endpoint_address.clone(),
        Vec::new(),
        former.clone(),
        former[..47].to_vec(),
        [vec![0; 48], endpoint_address.clone()].concat(),
        vec![0xff; 900],
    ] {
        let said = stranger(&mut b, &question(&body));
        assert_eq!(Answer::parse(&said[HEADER_LEN..]), Some(refused.clone()));
    }
    assert!(b.fabric().answered.is_empty());
    assert_eq!(b.fabric().link_count(), 0);
}

#[test]
fn the_port_of_a_link_says_when_its_peer_was_last_heard() {
    let fabric = Double {
        heard_at: Some(Instant(7)),
        ..Double::new("tcp")
    };
    let side = Side::new(ROUTE_RDM, Some(fabric));
    let link = |port| LinkId::new(1, 0).at_port(port);
    assert_eq!(side.ports.heard_at(link(RDM)), Some(Instant(7)));
    assert_eq!(side.ports.heard_at(link(TCP)), None);
}
