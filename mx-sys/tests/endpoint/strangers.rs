//! Strangers of an endpoint with a simulated fabric: which names they get, which packets are
//! accepted, and how long they may remain.
//!
//! ```text
//!   Stranger --- HostPorts, no endpoint ---- packets of its own over TCP, where sessions begin ---> Node
//! ```
use crate::node::{KEY, LONG, Node};
use libfabric_fake::{Fake, Shape};
use libfabric_sys::Library;
use mx_port_rdm::RdmPort;
use mx_proto::port::{Body, Close, HeaderBytes, LinkControl, LinkDown, Port};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{Clock, Config, Identity, LinkId, NicId, Route, SessionId, Source, Status};
use mx_sim::Polled;
use mx_sim::{Ear, Hearing};
use mx_sys::{EndpointChoice, HostPorts, MonotonicClock, OpenOptions, ROUTE_RDM, RdmOptions, nic};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

fn options(library: Library) -> OpenOptions {
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = ROUTE_RDM;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.rdm = RdmOptions {
        library: Some(library),
        ..RdmOptions::default()
    };
    options
}

fn node(fake: &Fake) -> Node {
    let library = fake.library();
    Node::open(options(library), Config::default(), true).unwrap()
}

/// Events at a stranger's ports.
#[derive(Default)]
struct Heard {
    up: Vec<LinkId>,
    down: Vec<(LinkId, LinkDown)>,
    packets: Vec<(LinkId, HeaderBytes)>,
}

impl Ear for Heard {
    fn on_up(&mut self, link: LinkId) {
        self.up.push(link);
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.down.push((link, reason));
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, _: &B) {
        self.packets.push((link, *header));
    }
}

/// Ports without an endpoint.
struct Stranger {
    ports: HostPorts<Vec<u8>>,
    own: Identity,
    heard: Heard,
}

impl Stranger {
    fn new(fake: &Fake) -> Self {
        let library = fake.library();
        let (ports, own) = HostPorts::open(options(library)).unwrap();
        Self {
            ports: *ports,
            own,
            heard: Heard::default(),
        }
    }

    fn until(&mut self, done: impl Fn(&Heard) -> bool) {
        let begin = Instant::now();
        while !done(&self.heard) {
            assert!(begin.elapsed() < LONG, "it never happens");
            self.ports.note_control();
            if !self
                .ports
                .poll(MonotonicClock.now(), 64, &mut Hearing(&mut self.heard))
            {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Makes a link on which a session over the fabric would begin. Returns when the link is up.
    fn dial(&mut self, to: &Node) -> LinkId {
        let target = to.target(ROUTE_RDM);
        let link = self.ports.connect(target, MonotonicClock.now()).unwrap();
        self.until(|heard| heard.up.contains(&link));
        link
    }

    fn say(&mut self, link: LinkId, kind: Kind, body: &[u8]) {
        let mut header = Header::new(kind, 7, 0);
        header.body_len = body.len() as u32;
        Port::<Vec<u8>>::send(&mut self.ports, link, &header.emit(), Body::Bytes(body)).unwrap();
    }

    /// Introduces the stranger as that interface and session. Returns the code of the answer, and
    /// the link.
    fn introduce(&mut self, to: &Node, nic: NicId, session: SessionId) -> (u32, LinkId) {
        let link = self.dial(to);
        let mut hello = [0; HELLO_LEN];
        hello[0..4].copy_from_slice(b"MXs1");
        hello[4..6].copy_from_slice(&VERSION.to_le_bytes());
        hello[6] = 1;
        hello[8..12].copy_from_slice(&KEY.to_le_bytes());
        hello[12..16].copy_from_slice(&self.own.endpoint.0.to_le_bytes());
        hello[16..24].copy_from_slice(&nic.0.to_le_bytes());
        hello[24..32].copy_from_slice(&session.0.to_le_bytes());
        hello[32..40].copy_from_slice(&to.identity.nic.0.to_le_bytes());
        hello[40..44].copy_from_slice(&to.identity.endpoint.0.to_le_bytes());
        self.say(link, Kind::Connect, &hello);
        self.until(|heard| heard.packets.iter().any(|(of, _)| *of == link));
        let (_, packet) = self.heard.packets.pop().unwrap();
        let reply = Header::parse(&packet).unwrap();
        assert_eq!(reply.kind, Kind::Reply);
        (reply.aux, link)
    }

    fn close(&mut self, link: LinkId) {
        self.ports.close(link, Close::Now);
    }
}

/// Waits until a node has no link over the fabric.
fn left_alone(node: &Node, within: Duration) {
    let links = || {
        node.shared
            .lock()
            .endpoint
            .port()
            .port_of::<RdmPort>()
            .unwrap()
            .link_count()
    };
    let begin = Instant::now();
    while links() > 0 {
        assert!(begin.elapsed() < within, "{} links", links());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a message from one node to the other, over the fabric.
fn talk(a: &Node, b: &Node) {
    let to_b = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.send_all(to_b, 1, b"hello"), Status::Success);
    assert_eq!(b.receive(1, &mut [0; 5]).status, Status::Success);
}

#[test]
fn false_address_over_the_fabric_gets_its_own_name() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let (server, mut stranger) = (node(&fake), Stranger::new(&fake));
    let own = stranger.own;
    let elsewhere = nic::id_of_address("10.1.2.3".parse().unwrap());
    let (code, link) = stranger.introduce(&server, elsewhere, own.session);
    assert_eq!(code, 0);
    let named = |nic| {
        let engine = server.shared.lock();
        engine
            .endpoint
            .remotes_of(nic, own.endpoint)
            .next()
            .is_some()
    };
    assert_eq!((named(elsewhere), named(own.nic)), (false, true));
    stranger.close(link);
}

#[test]
fn present_peer_is_not_replaced_by_a_fabric_claimant() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let (server, victim, mut stranger) = (node(&fake), node(&fake), Stranger::new(&fake));
    talk(&victim, &server);
    let to_server = victim.connect(server.target(Route::AUTO)).unwrap();
    let victim_is = victim.identity;
    let named = || {
        let engine = server.shared.lock();
        let (nic, endpoint) = (victim_is.nic, victim_is.endpoint);
        let first = engine.endpoint.remotes_of(nic, endpoint).next();
        first.and_then(|id| engine.endpoint.remote_identity(id))
    };
    let before = named();
    stranger.own.endpoint = victim_is.endpoint;
    for session in [1, 2, victim_is.session.0] {
        // The stranger is on the peer's machine, so its address alone proves nothing against the
        // claim.
        let (told, link) = stranger.introduce(&server, victim_is.nic, SessionId(session));
        assert_eq!(told, 0);
        stranger.close(link);
        assert_eq!(victim.send_all(to_server, 2, b"still"), Status::Success);
        assert_eq!(server.receive(2, &mut [0; 5]).status, Status::Success);
        assert_eq!(named().map(|it| it.session), before.map(|it| it.session));
    }
    let stats = *server.shared.lock().endpoint.stats();
    assert_ne!(stats.same_name_pings, 0, "{stats:?}");
}

#[test]
fn stranger_beyond_an_introduction_is_dropped_at_once() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let (server, mut stranger) = (node(&fake), Stranger::new(&fake));
    // The limit for strangers over TCP is 1 KiB.
    for len in [1025, 4000] {
        let link = stranger.dial(&server);
        stranger.say(link, Kind::Eager, &vec![7; len]);
        stranger.until(|heard| heard.down.iter().any(|(of, _)| *of == link));
        left_alone(&server, Duration::from_secs(2));
    }
    let stats = *server.shared.lock().endpoint.stats();
    assert_eq!(stats.packets_in, 0, "the endpoint has seen nothing of it");
    talk(&node(&fake), &server);
}

#[test]
fn silent_stranger_is_dropped_after_five_seconds() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let (server, mut stranger) = (node(&fake), Stranger::new(&fake));
    let link = stranger.dial(&server);
    let begin = Instant::now();
    // The stranger answers pings, and sends nothing else.
    stranger.until(|heard| heard.down.iter().any(|(of, _)| *of == link));
    let stayed = begin.elapsed();
    let range = Duration::from_millis(4000)..Duration::from_millis(7000);
    assert!(range.contains(&stayed), "{stayed:?}");
    left_alone(&server, Duration::from_secs(2));
    talk(&node(&fake), &server);
}
