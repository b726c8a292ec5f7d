//! An endpoint's ports on a machine whose interfaces change. The test has a process of its own, to
//! which the list of interfaces belongs, and a network namespace, if the machine allows one.

use crate::own_network::{have_own_network, ip};
use crate::own_process::in_own_process;
use crate::tcp_common::{Pieces, Recorder, frame, preamble};
use mx_port_rdm::{Device, RdmOptions, RdmPort};
use mx_proto::Clock;
use mx_proto::port::{LinkControl, LinkDown};
use mx_proto::round::{Begun, Rounds};
use mx_sim::tell_all;
use mx_sys::{EndpointChoice, HostPorts, MonotonicClock, OpenOptions, ROUTE_RDM, ROUTE_TCP, nic};
use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ip_all(all: &[&str]) {
    all.iter().for_each(|one| assert!(ip(one), "ip {one}"));
}

/// An endpoint with one thread, which sleeps when an application's thread would.
struct Node {
    ports: HostPorts<Pieces>,
    sink: Recorder,
}

impl Node {
    fn open(options: OpenOptions) -> Self {
        let (ports, _) = HostPorts::open(OpenOptions {
            policy: ROUTE_TCP,
            ..options
        })
        .unwrap();
        let (ports, sink) = (*ports, Recorder::default());
        Self { ports, sink }
    }

    /// Polls as an endpoint does.
    fn poll(&mut self) {
        match Rounds::<Pieces>::begin_active(&mut self.ports, 64) {
            Begun::Nothing => return,
            Begun::Active => {}
            Begun::Elsewhere => Rounds::<Pieces>::begin(&mut self.ports, MonotonicClock.now(), 64),
        }
        tell_all::<Pieces, _, _>(&mut self.ports, &mut self.sink);
    }

    /// Polls until `done`, and sleeps when there is nothing to do. Returns the time.
    fn run(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) -> Duration {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
            if self.ports.arm() {
                let due = self.ports.deadline();
                let mut set = libc::pollfd {
                    fd: self.ports.set().0,
                    events: libc::POLLIN,
                    revents: 0,
                };
                let timeout = if due.is_some() { 10 } else { 5000 };
                // SAFETY: one descriptor, which lives that long.
                unsafe { libc::poll(&raw mut set, 1, timeout) };
                self.ports.disarm();
                self.ports.note_control();
            }
            self.poll();
        }
        begin.elapsed()
    }

    /// Calls the node at one of its addresses.
    fn called_at(&mut self, address: &str) -> TcpStream {
        let mut caller = TcpStream::connect((address, self.ports.tcp_port())).unwrap();
        let said = [preamble(), frame(1, b"hello")].concat();
        caller.write_all(&said).unwrap();
        let before = self.sink.packet_count();
        self.run("a packet", |node| node.sink.packet_count() > before);
        caller
    }
}

#[test]
fn sleeping_endpoint_follows_interfaces_and_drops_addresses() {
    in_own_process!();
    if !have_own_network() {
        eprintln!("no network of its own: not tried");
        return;
    }
    let mut node = Node::open(OpenOptions::new(EndpointChoice::Any));
    let new = nic::id_of_address(address("10.77.0.1"));
    let begin = Instant::now();
    node.run("nothing more to do", |_| {
        begin.elapsed() > Duration::from_millis(50)
    });
    assert!(!nic::is_local(new));
    ip_all(&["addr add 10.77.0.1/32 dev lo"]);
    let took = node.run("word of an address", |_| nic::is_local(new));
    assert!(took < Duration::from_secs(2), "{took:?}");
    let _loopback = node.called_at("127.0.0.1");
    let _caller = node.called_at("10.77.0.1");
    // An address that comes back at once changes nothing.
    ip_all(&["addr del 10.77.0.1/32 dev lo"]);
    node.run("word that it is gone", |_| !nic::is_local(new));
    ip_all(&["addr add 10.77.0.1/32 dev lo"]);
    let begin = Instant::now();
    node.run("some time", |_| {
        begin.elapsed() > Duration::from_millis(1300)
    });
    assert_eq!(node.sink.downs(), []);
    ip_all(&["addr del 10.77.0.1/32 dev lo"]);
    let took = node.run("the end of one link", |node| !node.sink.downs().is_empty());
    let expected = Duration::from_millis(900)..Duration::from_secs(2);
    assert!(expected.contains(&took), "{took:?}");
    let begin = Instant::now();
    node.run("some time", |_| {
        begin.elapsed() > Duration::from_millis(300)
    });
    assert_eq!(node.sink.downs(), [LinkDown::Reset]);
}

#[test]
fn rdm_device_moves_to_the_requested_interface() {
    in_own_process!();
    if !have_own_network() {
        eprintln!("no network of its own: not tried");
        return;
    }
    let source = |port: &RdmPort| port.device_address().map(|address| address.to_string());
    let unfit = |options: &RdmOptions| {
        let error = RdmPort::open(options.clone()).err();
        error.map(|error| eprintln!("not tried: {error}")).is_some()
    };
    if unfit(&RdmOptions::default()) {
        return;
    }
    let open = |name: Option<&str>| {
        Node::open(OpenOptions {
            required: ROUTE_RDM,
            address: name.map(address),
            board: name.map(|_| 0),
            ..OpenOptions::new(EndpointChoice::Any)
        })
    };
    let at = |node: &Node| node.ports.port_of().and_then(source);
    let (mut any, mut named) = (open(None), open(Some("10.78.0.1")));
    assert_eq!(
        [at(&any), at(&named)],
        [(); 2].map(|()| Some("127.0.0.1".to_owned()))
    );
    if !ip("link add eth0 type veth peer name far") {
        eprintln!("no virtual cards in this kernel: not tried further");
        return;
    }
    ip_all(&[
        "link set eth0 addrgenmode none",
        "link set far addrgenmode none up",
        "addr add 10.77.0.1/24 dev eth0",
        "link set eth0 up",
    ]);
    let moved = |to: &'static str| move |node: &Node| at(node).as_deref() == Some(to);
    any.run("the first interface", moved("10.77.0.1"));
    named.run("board 0", moved("10.77.0.1"));
    ip_all(&["addr add 10.78.0.1/24 dev eth0"]);
    named.run("the address", moved("10.78.0.1"));
    ip_all(&["addr del 10.77.0.1/24 dev eth0"]);
    any.run("what is left", moved("10.78.0.1"));
    assert_eq!(at(&open(Some("10.78.0.1"))).as_deref(), Some("10.78.0.1"));
    let only = RdmPort::open(RdmOptions {
        device: Device::only(address("127.0.0.1")),
        ..RdmOptions::default()
    });
    assert_eq!(source(&only.unwrap()).as_deref(), Some("127.0.0.1"));
}
