//! Two endpoints in one process over each of the ports, and one that talks to itself.

use crate::node::traffic::stream;
use crate::node::{KEY, LONG, Node, NotConnected, pattern, pending, waiting};
use mx_proto::port::ConnectError;
use mx_proto::{
    Config, Down, DownReason, EndpointId, MatchBits, NicId, Posted, RemoteId, Route, Status, Target,
};
use mx_sim::Cancelled;
use mx_sys::{EndpointChoice, OpenError, OpenOptions, PortMap, ROUTE_LOCAL, ROUTE_TCP, nic};
use std::net::IpAddr;
use std::time::Duration;

/// Two connected nodes; the remote is the second one as the first one sees it.
fn pair(route: Route) -> (Node, Node, RemoteId) {
    let (a, b) = (Node::any(), Node::any());
    let remote = a.connect(b.target(route)).unwrap();
    (a, b, remote)
}

/// The other direction.
fn back(a: &Node, b: &Node) -> RemoteId {
    b.connect(a.target(Route::AUTO)).unwrap()
}

fn over_both(test: impl Fn(Route)) {
    for route in [ROUTE_LOCAL, ROUTE_TCP] {
        test(route);
    }
}

#[test]
fn small_messages_arrive_whole_and_in_order_over_both_ports() {
    over_both(|route| {
        let (a, b, to_b) = pair(route);
        stream(&a, &b, to_b, 2_000);
    });
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
            // And a shorter buffer, the other way, unexpected.
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
            if posted != Posted::Complete {
                assert_eq!(b.done(99).status, status);
            }
        }
    });
}

#[test]
fn sixteen_mebibytes_cross_in_both_directions_at_once() {
    over_both(|route| {
        let (a, b, to_b) = pair(route);
        let to_a = back(&a, &b);
        let size = 16 << 20;
        let (from_a, from_b) = (pattern(size, 1), pattern(size, 2));
        let (mut at_a, mut at_b) = (vec![0; size], vec![0; size]);
        pending(a.send(to_b, 1, &from_a, 10));
        pending(b.send(to_a, 2, &from_b, 20));
        a.post(2, &mut at_a, 11);
        b.post(1, &mut at_b, 21);
        for (node, context) in [(&a, 10), (&a, 11), (&b, 20), (&b, 21)] {
            let done = node.done(context);
            assert_eq!(
                (done.status, done.transferred as usize),
                (Status::Success, size)
            );
        }
        assert!(at_a == from_b && at_b == from_a);
    });
}

#[test]
fn cancelling_takes_back_what_is_posted_and_leaves_the_rest_alone() {
    over_both(|route| {
        let (a, b, to_b) = pair(route);
        let big = pattern(16 << 20, 3);

        // A receive that nothing matched.
        let mut never = [0u8; 8];
        let request = waiting(b.post(1, &mut never, 1));
        assert_eq!(b.cancel(request), Cancelled::Withdrawn);
        assert_eq!(b.cancel(request), Cancelled::Unknown);
        assert_eq!(a.send_all(to_b, 1, b"message"), Status::Success);
        let mut got = [0u8; 7];
        assert_eq!(b.receive(1, &mut got).status, Status::Success);
        assert_eq!((&got, never), (b"message", [0; 8]));

        // A send that has not been received yet.
        let request = pending(a.send(to_b, 2, &big, 2));
        assert_eq!(a.cancel(request), Cancelled::Withdrawn);
        assert_eq!(a.send_all(to_b, 2, b"instead"), Status::Success);
        let mut got = vec![0; 16 << 20];
        let done = b.receive(2, &mut got);
        assert_eq!((done.length, &got[..7]), (7, &b"instead"[..]), "{done:?}");

        // A receive in the middle of its message: its memory is left alone, the sender told.
        pending(a.send(to_b, 3, &big, 3));
        let request = waiting(b.post(3, &mut got, 3));
        let cancelled = b.cancel(request);
        assert!(
            matches!(cancelled, Cancelled::Aborted | Cancelled::Withdrawn),
            "{cancelled:?}"
        );
        got.fill(0x55);
        if cancelled == Cancelled::Aborted {
            assert_eq!(a.done(3).status, Status::Aborted);
        }
        assert_eq!(a.send_all(to_b, 4, b"onward"), Status::Success);
        let mut small = [0; 6];
        assert_eq!(b.receive(4, &mut small).status, Status::Success);
        assert_eq!(&small, b"onward");
        assert!(
            got.iter().all(|byte| *byte == 0x55),
            "memory was touched after the cancel"
        );
    });
}

#[test]
fn a_disconnect_ends_everything_on_both_sides_and_one_can_connect_again() {
    over_both(|route| {
        let (a, b, to_b) = pair(route);
        let big = pattern(8 << 20, 4);
        pending(a.send(to_b, 1, &big, 1));
        a.shared.lock().endpoint.disconnect(to_b);
        assert_eq!(a.done(1).status, Status::Unreachable);
        let Down {
            identity, reason, ..
        } = b.event();
        assert_eq!(identity, a.identity);
        assert_eq!(reason, DownReason::Disconnected);
        assert!(a.shared.lock().endpoint.remote_identity(to_b).is_none());

        let again = a.connect(b.target(route)).unwrap();
        assert_ne!(again, to_b);
        assert_eq!(a.send_all(again, 2, b"again"), Status::Success);
        let mut got = [0; 5];
        assert_eq!(b.receive(2, &mut got).status, Status::Success);
    });
}

#[test]
fn a_peer_that_closes_is_noticed_at_once() {
    over_both(|route| {
        let (a, b, to_b) = pair(route);
        let identity = b.identity;
        let big = pattern(1 << 20, 5);
        pending(a.send(to_b, 1, &big, 1));
        drop(b);
        assert_eq!(a.done(1).status, Status::Unreachable);
        let Down { identity: gone, .. } = a.event();
        assert_eq!(gone, identity);
        let (nic, endpoint) = (identity.nic, identity.endpoint);
        let refused = a.connect(Target {
            nic,
            endpoint,
            route,
        });
        if route == ROUTE_LOCAL {
            assert_eq!(refused, Err(NotConnected::AtOnce(ConnectError::Refused)));
        } else {
            assert_eq!(refused, Err(NotConnected::Later(Status::EndpointClosed)));
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
        assert_eq!((done.status, done.remote), (Status::Success, to_me));
        assert_eq!(node.done(1).status, Status::Success);
        assert!(got == big);
        assert_eq!(node.send_all(to_me, 2, b"small"), Status::Success);
        assert_eq!(node.receive(2, &mut got[..5]).status, Status::Success);
    }
    let engine = node.shared.lock();
    let ports = engine.endpoint.port();
    assert_eq!(
        ports.local().unwrap().link_count() + ports.tcp().link_count(),
        0
    );
    assert_eq!(engine.endpoint.remotes(), 1);
}

#[test]
fn an_endpoint_is_one_remote_to_itself_under_each_of_its_addresses() {
    let mut addresses = vec![
        "127.0.0.1".to_owned(),
        "127.0.0.7".to_owned(),
        "[::1]".to_owned(),
    ];
    addresses.extend(nic::boards().iter().map(|(_, board)| match board.address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }));
    let node = Node::any();
    let mut found = Vec::new();
    for address in addresses {
        for route in [Route::AUTO, ROUTE_TCP] {
            let target = Target {
                nic: nic::resolve(&address, None).unwrap().nic,
                ..node.target(route)
            };
            let to_me = node.connect(target).unwrap();
            assert_eq!(
                node.send_all(to_me, 2, b"small"),
                Status::Success,
                "{address}"
            );
            let mut got = [0; 5];
            let done = node.receive(2, &mut got);
            assert_eq!(
                (done.status, done.remote),
                (Status::Success, to_me),
                "{address}"
            );
            found.push(to_me);
        }
    }
    assert!(found.iter().all(|to_me| *to_me == found[0]), "{found:?}");
    let mut engine = node.shared.lock();
    assert_eq!(engine.endpoint.remotes(), 1);
    engine.endpoint.disconnect(found[0]);
    assert_eq!(engine.endpoint.remotes(), 0);
}

#[test]
fn targets_get_the_port_they_ask_for_and_this_host_gets_shared_memory() {
    let links = |node: &Node| {
        let engine = node.shared.lock();
        let ports = engine.endpoint.port();
        (
            ports.local().unwrap().link_count(),
            ports.tcp().link_count(),
        )
    };
    for (route, expected) in [
        (Route::AUTO, (1, 0)),
        (ROUTE_LOCAL, (1, 0)),
        (ROUTE_TCP, (0, 1)),
    ] {
        let (a, b, _) = pair(route);
        assert_eq!((links(&a), links(&b)), (expected, expected), "{route:?}");
    }
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = ROUTE_TCP;
    let a = Node::open(options, Config::default(), true).unwrap();
    let b = Node::any();
    a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(links(&a), (0, 1), "the process asks for TCP");

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
fn where_the_unix_socket_cannot_be_reached_tcp_takes_over() {
    // A peer of another port base is what a peer in another network namespace is: its Unix name
    // does not exist for us, but its TCP port does.
    let base = PortMap::new(1024 + std::process::id() as u16 % 20_000).unwrap();
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.ports = base;
    let b = Node::open(options, Config::default(), true).unwrap();
    let a = Node::any();
    let to_b = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.send_all(to_b, 1, b"through tcp"), Status::Success);
    let mut got = [0; 11];
    assert_eq!(b.receive(1, &mut got).status, Status::Success);
    assert_eq!(a.shared.lock().endpoint.port().tcp().link_count(), 1);
}

#[test]
fn an_endpoint_in_use_is_refused_by_name_and_free_again_when_closed() {
    let first = Node::any();
    let endpoint = first.identity.endpoint;
    let error = Node::exact(endpoint).unwrap_err();
    assert!(matches!(error, OpenError::InUse { endpoint: taken, .. } if taken == endpoint));
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("endpoint {} is in use", endpoint.0)),
        "{text}"
    );
    // The attempt has not taken anything from the one that has it.
    let probe = Node::any();
    let to_first = probe.connect(first.target(ROUTE_TCP)).unwrap();
    assert_eq!(probe.send_all(to_first, 1, b"x"), Status::Success);
    drop(probe);
    drop(first);
    let second = Node::exact(endpoint).unwrap();
    assert_eq!(second.identity.endpoint, endpoint);
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
fn sessions_are_never_drawn_twice_and_numbers_out_of_range_are_refused() {
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

#[test]
fn a_server_bound_to_one_address_is_still_found_by_its_own_host() {
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.tcp_bind = Some("127.0.0.1".parse().unwrap());
    let b = Node::open(options, Config::default(), true).unwrap();
    let a = Node::any();
    let to_b = a.connect(b.target(ROUTE_TCP)).unwrap();
    assert_eq!(a.send_all(to_b, 1, b"x"), Status::Success);
}

/// Four threads on either side, each with messages of its own, all waiting on one endpoint.
#[test]
fn many_threads_exchange_messages_through_one_endpoint_each() {
    over_both(|route| {
        let (a, b, to_b) = pair(route);
        let to_a = back(&a, &b);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (a, b) = (&a, &b);
                scope.spawn(move || {
                    for n in 0..300usize {
                        let mut got = vec![0; 40_000];
                        let done = b.receive(thread, &mut got);
                        assert_eq!(done.status, Status::Success);
                        let size = size_of_message(thread, n);
                        assert_eq!(done.length as usize, size);
                        assert_eq!(
                            b.send_all(to_a, 100 + thread, &got[..size]),
                            Status::Success
                        );
                    }
                });
                scope.spawn(move || {
                    for n in 0..300usize {
                        let sent = pattern(size_of_message(thread, n), n as u64);
                        assert_eq!(a.send_all(to_b, thread, &sent), Status::Success);
                        let mut got = vec![0; sent.len()];
                        let done = a.receive(100 + thread, &mut got);
                        assert_eq!(done.status, Status::Success);
                        assert!(got == sent, "thread {thread}, message {n}");
                        if n % 50 == 0 {
                            // Long enough for all threads to fall asleep.
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                });
            }
        });
    });
}

/// Mostly small, now and then too large to travel at once.
fn size_of_message(thread: u64, n: usize) -> usize {
    match n % 10 {
        9 => 40_000,
        _ => (n * 37 + thread as usize * 11) % 2_000,
    }
}

/// Without a helper thread a node that only polls now and then still lets strangers in, and one
/// that blocks in a wait does so at once.
#[test]
fn without_a_helper_polling_and_waiting_let_strangers_in() {
    over_both(|route| {
        let options = OpenOptions::new(EndpointChoice::Any);
        let b = Node::open(options, Config::default(), false).unwrap();
        let a = Node::any();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| b.receive(1, &mut [0; 1]).status);
            let to_b = a.connect(b.target(route)).unwrap();
            assert_eq!(a.send_all(to_b, 1, b"x"), Status::Success);
            assert_eq!(waiter.join().unwrap(), Status::Success);
        });
        let c = Node::any();
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| c.connect(b.target(route)));
            let begin = std::time::Instant::now();
            while !connecting.is_finished() {
                assert!(begin.elapsed() < LONG);
                b.try_done(77, Duration::ZERO);
                std::thread::sleep(Duration::from_micros(200));
            }
            connecting.join().unwrap().unwrap();
        });
    });
}
