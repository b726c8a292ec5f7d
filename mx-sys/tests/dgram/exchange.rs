//! Endpoints over libfabric's datagrams whose peers have to be asked where they are: `udp` of the
//! libfabric that is installed, as if its addresses followed from nothing, and endpoint addresses made up in
//! memory.

use crate::dgram_common::{
    a_closed_endpoint_is_not_found, a_successor_is_another_one, only_tcp_leads_there,
    wait_for_links,
};
use crate::node::traffic::{exchange, stream};
use crate::node::{LONG, Node, pattern};
use libfabric_fake::{Fake, Shape};
use mx_port_dgram::BackendChoice;
use mx_port_fabric::endpoint_address::VERSION;
use mx_proto::{Config, RemoteId, Route, Status};
use mx_sys::{EndpointChoice, OpenOptions, ROUTE_DGRAM, ROUTE_TCP};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};

fn options(policy: Route) -> OpenOptions {
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = policy;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.dgram.backend = BackendChoice::Fabric;
    options.dgram.provider = Some("udp".into());
    options.dgram.ask = true;
    options
}

fn open(options: OpenOptions) -> Node {
    Node::open(options, Config::default(), true).expect("libfabric with its udp provider")
}

fn node() -> Node {
    open(options(ROUTE_DGRAM))
}

/// A node over an endpoint address that is made up.
fn on_address(fake: &Fake) -> Node {
    let mut options = options(ROUTE_DGRAM);
    options.dgram.provider = None;
    options.dgram.library = Some(fake.library());
    open(options)
}

fn pair(a: Node, b: Node) -> (Node, Node, RemoteId) {
    let remote = a.connect(b.target(Route::AUTO)).unwrap();
    (a, b, remote)
}

#[test]
fn messages_of_every_size_cross_in_both_directions() {
    let (a, b, to_b) = pair(node(), node());
    exchange(
        &a,
        &b,
        to_b,
        &[0, 1, 33, 700, 1400, 4097, 32_769, 3_000_001],
    );
    stream(&a, &b, to_b, 500);
    // Each has called the other.
    for node in [&a, &b] {
        wait_for_links(node, (0, 2));
    }
}

#[test]
fn endpoint_addresses_with_addresses_of_their_own_are_found_by_host_and_number() {
    let fake = Fake::new(Shape::verbs_ud(), 1);
    let (a, b, to_b) = pair(on_address(&fake), on_address(&fake));
    exchange(&a, &b, to_b, &[0, 1, 700, 4097, 32_769, 1_000_001]);
    // Each has called the other.
    for node in [&a, &b] {
        wait_for_links(node, (0, 2));
    }
    drop((a, b));
    fake.assert_clean();
}

#[test]
fn both_ends_may_ask_at_once() {
    let (a, b) = (node(), node());
    std::thread::scope(|scope| {
        for (one, other, bits) in [(&a, &b, 1), (&b, &a, 2)] {
            scope.spawn(move || {
                let to = one.connect(other.target(Route::AUTO)).unwrap();
                assert_eq!(
                    one.send_all(to, bits, &pattern(100_000, bits)),
                    Status::Success
                );
            });
        }
        for (node, bits) in [(&b, 1), (&a, 2)] {
            let mut buffer = vec![0; 100_000];
            assert_eq!(node.receive(bits, &mut buffer).status, Status::Success);
            assert!(buffer == pattern(100_000, bits));
        }
    });
}

#[test]
fn a_peer_that_is_elsewhere_is_reached_over_tcp_unless_its_address_says_dgram() {
    let kernel = || {
        let mut options = options(ROUTE_DGRAM);
        options.dgram.backend = BackendChoice::Udp;
        open(options)
    };
    let fake = Fake::new(Shape::verbs_ud(), 1);
    let without = || open(options(ROUTE_TCP));
    // Without the port, over the kernel's sockets, over another provider.
    for b in [without(), kernel(), on_address(&fake)] {
        only_tcp_leads_there(&node(), &b, &node());
    }
}

#[test]
fn a_closed_endpoint_refuses_as_over_tcp() {
    a_closed_endpoint_is_not_found(&node(), node());
}

#[test]
fn a_successor_is_found_under_its_own_address() {
    a_successor_is_another_one(&node(), node(), |endpoint| {
        let mut options = options(ROUTE_DGRAM);
        options.endpoint = endpoint;
        open(options)
    });
}

/// Sends `bytes`, framed, to a node's address exchange, and receives until the connection is
/// closed.
fn stranger(node: &Node, bytes: &[u8]) -> Vec<u8> {
    let port = node.shared.lock().endpoint.port().tcp_port();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // A closed connection is an answer, too.
    let _ = stream.write_all(b"\x93MXTCP\x01\x00");
    let _ = stream.write_all(bytes);
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => said.extend_from_slice(&buffer[..len]),
            Err(error) => {
                let kind = error.kind();
                assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "it hangs");
                break;
            }
        }
    }
    said
}

/// The bytes of a question with this body, for links over datagrams.
fn question(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[..4].copy_from_slice(b"L\x03mx");
    bytes[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    bytes[8] = 1;
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn strangers_at_the_exchange_get_one_answer_and_leave_nothing_behind() {
    let server = node();
    let mut endpoint_address = b"MXrc".to_vec();
    endpoint_address.extend_from_slice(&VERSION.to_le_bytes());
    endpoint_address.extend_from_slice(b"\x03\x00\x10\x00\x00\x00");
    endpoint_address.extend_from_slice(&2_u32.to_le_bytes());
    endpoint_address.extend_from_slice(&[0; 20]);
    endpoint_address.extend_from_slice(b"udp");
    endpoint_address.extend_from_slice(&[9; 16]);
    // A good one is answered with as much: where the command endpoint is.
    let said = stranger(&server, &question(&endpoint_address));
    let answer = &said[said.len() - endpoint_address.len() - 1..];
    assert_eq!((answer[0], &answer[1..5]), (1, &b"MXrc"[..]));
    assert_eq!(&answer[37..40], b"udp");
    let family = u16::from_ne_bytes([answer[40], answer[41]]);
    assert_eq!(i32::from(family), libc::AF_INET);
    assert_eq!(answer[44..48], [127, 0, 0, 1]);
    // Whatever else is said.
    let mut cases = vec![
        question(b""),
        question(&[0xff; 300]),
        question(&endpoint_address[1..]),
        question(&endpoint_address[..endpoint_address.len() - 1]),
    ];
    let mut state = 1_u64;
    for _ in 0..64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mut bytes = endpoint_address.clone();
        let at = (state >> 33) as usize % bytes.len();
        bytes[at] ^= (state >> 56) as u8 | 1;
        cases.push(question(&bytes));
    }
    for case in &cases {
        let said = stranger(&server, case);
        // The greeting of the framing, a header, and an answer.
        let body = said.get(8 + 32..).expect("an answer");
        assert!(matches!(body[0], 0 | 1), "{body:?}");
        assert!(said.len() <= 8 + 32 + 1 + 36 + 64 + 32);
    }
    wait_for_links(&server, (0, 0));
    // A proper peer is served as before.
    let client = node();
    let to = client.connect(server.target(Route::AUTO)).unwrap();
    assert_eq!(client.send_all(to, 1, b"still here"), Status::Success);
    assert_eq!(server.receive(1, &mut [0; 10]).status, Status::Success);
}
