//! Endpoints opened with settings, and the ports that their messages use.

use crate::node::{LONG, Node};
use libfabric_fake::{Fake, Shape};
use mx_proto::{Route, Status};
use mx_sys::{EndpointChoice, OpenOptions, ROUTE_RDM, RdmOptions, Settings};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Returns the options of a program that sets these variables.
fn options(variables: &[(&str, &str)]) -> OpenOptions {
    let (settings, refused) = Settings::load(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    });
    assert!(refused.is_empty(), "{refused:?}");
    OpenOptions {
        tcp_bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ..settings.open_options(EndpointChoice::Any)
    }
}

fn open(options: OpenOptions) -> Node {
    Node::open(options, mx_proto::Config::default(), true).unwrap()
}

/// Sends a message. Returns the numbers of the sender's links over shared memory, TCP and the
/// fabric.
fn links_of_a_message(from: &Node, to: &Node) -> (usize, usize, usize) {
    let remote = from.connect(to.target(Route::AUTO)).unwrap();
    assert_eq!(from.send_all(remote, 1, b"message"), Status::Success);
    let mut got = [0; 7];
    assert_eq!(to.receive(1, &mut got).status, Status::Success);
    assert_eq!(&got, b"message");
    from.links()
}

const DISABLED: (&str, &str) = ("MX_DISABLE_SHMEM", "1");

#[test]
fn without_shared_memory_tcp_reaches_this_host() {
    for (variables, expected) in [
        (vec![], (1, 0, 0)),
        (vec![DISABLED], (0, 1, 0)),
        (vec![DISABLED, ("MX_PORT", "tcp")], (0, 1, 0)),
        (vec![DISABLED, ("MX_PORT", "local")], (1, 0, 0)),
    ] {
        let (a, b) = (open(options(&variables)), open(options(&[])));
        assert_eq!(links_of_a_message(&a, &b), expected, "{variables:?}");
    }
    let (a, b) = (open(options(&[])), open(options(&[DISABLED])));
    assert_eq!(links_of_a_message(&a, &b), (1, 0, 0));
    // Neither has shared memory.
    let c = open(options(&[DISABLED]));
    assert_eq!(links_of_a_message(&c, &b), (0, 1, 0));
}

#[test]
fn without_shared_memory_a_fabric_reaches_this_host() {
    let fake = Fake::new(Shape::psm3(), 1);
    let on_fabric = |variables: &[(&str, &str)], library| {
        open(OpenOptions {
            required: ROUTE_RDM,
            rdm: RdmOptions {
                library: Some(library),
                ..RdmOptions::default()
            },
            ..options(variables)
        })
    };
    let a = on_fabric(&[DISABLED], fake.library());
    let b = on_fabric(&[], fake.machine(&[]).library());
    assert_eq!(links_of_a_message(&a, &b).0, 0);
    let begin = std::time::Instant::now();
    while a.links().2 == 0 {
        assert!(begin.elapsed() < LONG, "the session does not move");
        a.try_done(77, Duration::from_millis(1));
    }
    let c = on_fabric(&[], fake.machine(&[]).library());
    assert_eq!(links_of_a_message(&c, &b).0, 1);
}

#[test]
fn without_shared_memory_an_endpoint_still_talks_to_itself() {
    let node = open(options(&[DISABLED]));
    assert_eq!(links_of_a_message(&node, &node), (0, 0, 0));
}
