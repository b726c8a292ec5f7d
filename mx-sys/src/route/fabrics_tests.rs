//! Connections of `HostPorts` over a fabric that exists only in this test.

use super::host::HostPorts;
use super::host_port::HostPort;
use super::lazy::Lazy;
use crate::nic;
use mx_port_base::clock::MonotonicClock;
use mx_port_base::endpoint_port::PortMap;
use mx_port_base::origin::Origin;
use mx_port_base::ports::{RDM, ROUTE_RDM, ROUTE_TCP, TCP};
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_port_tcp::{TcpOptions, TcpPort};
use mx_proto::port::{
    Body, Close, ConnectError, FABRIC_RDM, HeaderBytes, Limits, LinkControl, LinkDown, MoveRefusal,
    Place, Port, SendError, Sent, WakeDescriptors,
};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::{
    Clock, EndpointId, Identity, Instant, LinkId, Memory, NicId, Route, SessionId, Target,
};
use mx_sim::Polled;
use mx_sim::recorder::{Recorder, SinkCall};
use smallvec::SmallVec;
use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Limit that is reached only if something hangs.
const LONG: Duration = Duration::from_secs(20);

/// An unknown interface.
const NOWHERE: NicId = NicId(5);

/// A fabric on which every peer answers at once, and nothing else arrives.
#[derive(Debug, Default)]
pub(super) struct Double {
    provider: &'static str,
    made: u32,
    open: Vec<LinkId>,
    ups: Vec<LinkId>,
    asked: Vec<LinkId>,
    /// Whether anything has happened in the round.
    any: bool,
    /// Whether the port rejects new links.
    pub(super) full: bool,
    /// Time at which anything last arrived on any link.
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

impl<M: Memory> HostPort<M> for Double {
    fn fabric(&self) -> Option<&str> {
        Some(self.provider)
    }

    fn may_move(&mut self, _: Target, _: Instant) -> bool {
        !self.full
    }

    fn offer_link(
        &mut self,
        _: Origin,
        _: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        if self.full {
            return Err(MoveRefusal::Full);
        }
        let link = self.make();
        let address = EndpointAddress {
            provider: self.provider.to_owned(),
            format: 2,
            address: vec![9; 16],
            link: link.index(),
            cookie: 7,
        };
        Ok((Some(link), address.emit()))
    }

    fn call_offered(&mut self, address: &[u8], _: Instant) -> Result<LinkId, MoveRefusal> {
        let theirs = EndpointAddress::parse(address).ok_or(MoveRefusal::Differs)?;
        if theirs.provider != self.provider {
            return Err(MoveRefusal::Differs);
        }
        let link = self.make();
        self.ups.push(link);
        Ok(link)
    }

    fn origin(&self, _: LinkId) -> Origin {
        Origin::Unknown
    }

    fn bytes(&self) -> &[u8] {
        &[]
    }
}

impl LinkControl for Double {
    fn probe_peer(&mut self, link: LinkId, _: Instant) -> bool {
        self.asked.push(link);
        true
    }

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
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }

    fn link_count(&self) -> usize {
        self.open.len()
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
        self.any = !self.ups.is_empty();
    }

    fn next(&mut self) -> Next {
        if !self.ups.is_empty() {
            return Next::Event(PortEvent::Up(self.ups.remove(0)));
        }
        Next::End { any: self.any }
    }

    fn body(&self) -> &[u8] {
        &[]
    }

    fn read(&mut self, _: Place<'_, M>) {}

    fn skip(&mut self) {}
}

pub(super) fn listening() -> TcpPort {
    let listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    TcpPort::open(TcpOptions::new(listen, Box::new(resolve))).unwrap()
}

/// Resolves every machine but [`NOWHERE`] to this one.
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
}

impl Side {
    fn new(policy: Route, fabric: Option<Double>) -> Self {
        Self::with(policy, fabric.map_or_else(Lazy::never, Lazy::open))
    }

    fn with(policy: Route, rdm: Lazy<Vec<u8>>) -> Self {
        let tcp = listening();
        let own = Identity {
            nic: nic::own_nic(None).unwrap(),
            endpoint: PortMap::default().endpoint(tcp.local_port()).unwrap(),
            session: SessionId(1),
        };
        let ports = HostPorts::new(own, policy, PortMap::default(), None, tcp, [rdm]);
        Self {
            ports: ports.unwrap(),
            sink: Recorder::default(),
        }
    }

    fn target(&self, route: Route) -> Target {
        target_of(self.ports.tcp_port(), route)
    }

    fn connect(&mut self, target: Target) -> Result<LinkId, ConnectError> {
        self.ports.connect(target, MonotonicClock.now())
    }

    fn poll(&mut self) {
        self.ports.note_control();
        self.ports.poll(MonotonicClock.now(), 64, &mut self.sink);
    }

    fn fabric_mut(&mut self) -> &mut Double {
        let port: &mut dyn Any = self.ports.ports.get_mut(RDM).unwrap();
        port.downcast_mut().unwrap()
    }

    fn links(&self) -> (usize, usize) {
        let fabric = self.ports.port_of::<Double>();
        let fabric = fabric.map_or(0, LinkControl::link_count);
        (
            self.ports.port_of::<TcpPort>().unwrap().link_count(),
            fabric,
        )
    }

    /// Returns the fabric that a connection is to move to, and whether it must.
    fn asks(&self, link: LinkId) -> (u32, bool) {
        (self.ports.fabrics(link, true), self.ports.must_move(link))
    }
}

/// Polls both sides until `a` has received events, and returns them.
fn told(a: &mut Side, mut b: Option<&mut Side>) -> Vec<SinkCall> {
    let begin = std::time::Instant::now();
    while a.sink.seen.is_empty() {
        assert!(begin.elapsed() < LONG, "it never happens");
        if let Some(b) = &mut b {
            b.poll();
        }
        a.poll();
    }
    a.sink.take()
}

fn tcp() -> Option<Double> {
    Some(Double::new("tcp"))
}

#[test]
fn a_call_begins_over_tcp_and_asks_for_the_fabric() {
    let now = MonotonicClock.now();
    let [mut a, mut b] = [(); 2].map(|()| Side::new(ROUTE_RDM, tcp()));
    for (route, asks) in [
        (Route::AUTO, (FABRIC_RDM, false)),
        (ROUTE_RDM, (FABRIC_RDM, true)),
        (ROUTE_TCP, (0, false)),
    ] {
        let link = a.connect(b.target(route)).unwrap();
        assert_eq!((link.port(), a.asks(link)), (TCP, asks));
        assert_eq!(told(&mut a, Some(&mut b)), [SinkCall::Up(link)]);
        a.ports.close(link, Close::Now);
        assert_eq!(a.asks(link), (0, false));
    }
    let link = a.connect(b.target(ROUTE_RDM)).unwrap();
    let (offered, address) = b.ports.offer(link, FABRIC_RDM, now).unwrap();
    let called = a.ports.call(link, FABRIC_RDM, &address, now).unwrap();
    let mut up = told(&mut a, None);
    while up.len() < 2 {
        up.extend(told(&mut a, None));
    }
    assert!(up.contains(&SinkCall::Up(link)) && up.contains(&SinkCall::Up(called)));
    assert!(b.ports.probe_peer(offered.unwrap(), now));
    assert_eq!(b.fabric_mut().asked, [offered.unwrap()]);
    // Incoming connections may be offered only what is open.
    let without = Side::new(ROUTE_TCP, None);
    let stranger = LinkId::new(9, 0).at_port(TCP);
    assert_eq!(b.ports.fabrics(stranger, false), FABRIC_RDM);
    assert_eq!(without.ports.fabrics(stranger, false), 0);
    assert_eq!(b.ports.fabrics(LinkId::new(9, 0).at_port(RDM), false), 0);
}

#[test]
fn an_address_of_another_fabric_and_a_full_one_are_no_links() {
    let now = MonotonicClock.now();
    let mut a = Side::new(ROUTE_RDM, tcp());
    let mut b = Side::new(ROUTE_RDM, Some(Double::new("verbs;ofi_rxm")));
    for strict in [Route::AUTO, ROUTE_RDM] {
        let link = a.connect(b.target(strict)).unwrap();
        let (_, address) = b.ports.offer(link, FABRIC_RDM, now).unwrap();
        for bytes in [&address[..], &address[1..], &[]] {
            let called = a.ports.call(link, FABRIC_RDM, bytes, now);
            assert_eq!(called, Err(MoveRefusal::Differs));
        }
        a.ports.decline_move(link, MoveRefusal::Differs);
        assert_eq!(a.asks(link), (0, false), "it is over");
    }
    b.fabric_mut().full = true;
    let offered = b.ports.offer(LinkId::new(1, 0), FABRIC_RDM, now);
    assert_eq!(offered, Err(MoveRefusal::Full));
    let mut without = Side::new(ROUTE_TCP, None);
    let offered = without.ports.offer(LinkId::new(1, 0), FABRIC_RDM, now);
    assert_eq!(offered, Err(MoveRefusal::Failed));
}

#[test]
fn without_a_listener_the_link_fails_as_over_tcp() {
    let mut a = Side::new(ROUTE_RDM, tcp());
    let port = listening().local_port();
    for route in [Route::AUTO, ROUTE_RDM] {
        let link = a.connect(target_of(port, route)).unwrap();
        let seen = told(&mut a, None);
        assert_eq!(seen, [SinkCall::Down(link, LinkDown::Refused)]);
    }
    let nowhere = Target {
        nic: NOWHERE,
        endpoint: EndpointId(3),
        route: ROUTE_RDM,
    };
    assert_eq!(a.connect(nowhere), Err(ConnectError::UnknownNic));
    assert_eq!(a.links(), (0, 0));
}

#[test]
fn lazy_port_opens_for_the_first_address_that_needs_it() {
    let open = || Ok::<_, String>(Double::new("tcp"));
    let later = Lazy::later("rdm", open, |double: &Double| double.provider);
    let mut a = Side::with(Route::AUTO, later);
    let b = Side::new(ROUTE_RDM, tcp());
    let link = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.asks(link), (0, false));
    assert!(a.ports.port_of::<Double>().is_none());
    let link = a.connect(b.target(ROUTE_RDM)).unwrap();
    assert_eq!(a.asks(link), (FABRIC_RDM, true));
    assert!(a.ports.port_of::<Double>().is_some());
    // The fabric still carries only what asks for it.
    let link = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.asks(link), (0, false));

    // A full fabric leaves the peer to TCP.
    let mut full = Side::new(ROUTE_RDM, tcp());
    full.fabric_mut().full = true;
    let link = full.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(full.asks(link), (0, false));
    let refused = full.connect(b.target(ROUTE_RDM));
    assert_eq!(refused, Err(ConnectError::NoRoute));

    let mut a = Side::with(
        Route::AUTO,
        Lazy::later("rdm", || Err("none"), |double: &Double| double.provider),
    );
    for _ in 0..2 {
        let refused = a.connect(b.target(ROUTE_RDM));
        assert_eq!(refused, Err(ConnectError::NoRoute));
    }
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
