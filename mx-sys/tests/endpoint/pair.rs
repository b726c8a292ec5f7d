//! Two endpoints in one process over each of the ports, and one that sends to itself.

use crate::node::{KEY, Node, pattern, pending, waiting};
use mx_proto::port::ConnectError;
use mx_proto::{Config, EndpointId, MatchBits, NicId, RemoteId, Route, SendPosted, Status, Target};
use mx_sys::{EndpointChoice, OpenError, OpenOptions, PortMap, ROUTE_LOCAL, ROUTE_TCP, nic};

/// Connects two nodes. Returns them and the first one's name for the second.
fn pair(route: Route) -> (Node, Node, RemoteId) {
    let (a, b) = (Node::any(), Node::any());
    let remote = a.connect(b.target(route)).unwrap();
    (a, b, remote)
}

/// Connects `b` to `a`.
fn back(a: &Node, b: &Node) -> RemoteId {
    b.connect(a.target(Route::AUTO)).unwrap()
}

fn over_both(test: impl Fn(Route)) {
    for route in [ROUTE_LOCAL, ROUTE_TCP] {
        test(route);
    }
}

#[test]
fn messages_of_every_size_around_the_limits_arrive() {
    over_both(|route| {
        let (a, b, to_b) = pair(route);
        let to_a = back(&a, &b);
        let sizes = [
            0, 1, 31, 32, 33, 4095, 4097, 32767, 32768, 32769, 65537, 1_000_003,
        ];
        for (n, size) in sizes.into_iter().enumerate() {
            let bits = n as u64;
            let sent = pattern(size, bits + 1);
            let mut got = vec![0xee; size + 1];
            waiting(b.post(bits, &mut got, bits));
            assert_eq!(a.send_all(to_b, bits, &sent), Status::Success);
            let done = b.done(bits);
            assert_eq!(done.status, Status::Success);
            assert_eq!(
                (done.length as usize, done.transferred as usize),
                (size, size)
            );
            assert_eq!(got[..size], sent[..]);
            assert_eq!(got[size], 0xee, "a byte behind the message");
            // A shorter buffer in the other direction, with an unexpected message.
            let short = size / 2;
            let mut got = vec![0xee; short + 1];
            let posted = b.send(to_a, bits, &sent, 99);
            let done = a.receive(bits, &mut got[..short]);
            let status = if short < size {
                Status::Truncated
            } else {
                Status::Success
            };
            assert_eq!((done.status, done.length as usize), (status, size));
            assert_eq!((&got[..short], got[short]), (&sent[..short], 0xee));
            if posted != SendPosted::Complete {
                assert_eq!(b.done(99).status, status);
            }
        }
    });
}

#[test]
fn an_endpoint_can_talk_to_itself_by_every_name() {
    let node = Node::any();
    for route in [Route::AUTO, ROUTE_LOCAL, ROUTE_TCP] {
        let to_me = node.connect(node.target(route)).unwrap();
        let big = pattern(3 << 20, 6);
        let mut got = vec![0; 3 << 20];
        pending(node.send(to_me, 1, &big, 1));
        let done = node.receive(1, &mut got);
        assert_eq!(done.status, Status::Success);
        assert_ne!(done.remote, to_me, "the end that was called");
        for end in [done.remote, to_me] {
            let who = node.shared.lock().endpoint.remote_identity(end);
            assert_eq!(who.unwrap().session, node.identity.session);
        }
        assert_eq!(node.done(1).status, Status::Success);
        assert!(got == big);
        assert_eq!(node.send_all(to_me, 2, b"small"), Status::Success);
        assert_eq!(node.receive(2, &mut got[..5]).status, Status::Success);
    }
    let engine = node.shared.lock();
    let ports = engine.endpoint.port();
    assert_eq!(ports.view().links, 0);
    // Two for each name.
    assert_eq!(engine.endpoint.remotes(), 6);
}

#[test]
fn targets_use_their_port_and_this_host_shared_memory() {
    for (route, expected) in [
        (Route::AUTO, (1, 0, 0)),
        (ROUTE_LOCAL, (1, 0, 0)),
        (ROUTE_TCP, (0, 1, 0)),
    ] {
        let (a, b, _) = pair(route);
        assert_eq!([a.links(), b.links()], [expected; 2], "{route:?}");
    }
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = ROUTE_TCP;
    let a = Node::open(options, Config::default(), true).unwrap();
    let b = Node::any();
    a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.links(), (0, 1, 0), "the process asks for TCP");

    let remote = nic::resolve("192.0.2.1", None).unwrap().nic;
    let connect = |nic, endpoint, route| {
        let target = Target {
            nic,
            endpoint: EndpointId(endpoint),
            route,
        };
        a.shared
            .lock()
            .endpoint
            .connect(target, KEY, MatchBits(0), 1)
            .unwrap_err()
    };
    assert_eq!(connect(remote, 3, ROUTE_LOCAL), ConnectError::NoRoute);
    assert_eq!(connect(remote, 3, Route(77)), ConnectError::NoRoute);
    assert_eq!(connect(remote, 65536, ROUTE_TCP), ConnectError::BadEndpoint);
    assert_eq!(connect(NicId(5), 3, Route::AUTO), ConnectError::UnknownNic);
}

#[test]
fn a_foreign_listener_on_the_tcp_port_counts_as_in_use() {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = PortMap::default().endpoint(port).unwrap();
    assert!(matches!(
        Node::exact(endpoint),
        Err(OpenError::InUse { .. })
    ));
}

#[test]
fn sessions_are_unique_and_bad_numbers_are_rejected() {
    let first = Node::any();
    let endpoint = first.identity.endpoint;
    let session = first.identity.session;
    drop(first);
    assert_ne!(Node::exact(endpoint).unwrap().identity.session, session);
    let error = Node::exact(EndpointId(70_000)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "endpoint 70000 is out of range (0 to 65535)"
    );
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.board = Some(99);
    let error = Node::open(options, Config::default(), false).unwrap_err();
    assert!(
        error.to_string().starts_with("board 99: this host has "),
        "{error}"
    );
}
