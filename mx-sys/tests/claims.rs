//! Claims of an interface, as an endpoint's ports check them, on a machine that gets another address
//! meanwhile. In a network namespace of its own, where that may be had; as root.

#[path = "../../ports/tcp/tests/tcp_common/mod.rs"]
mod tcp_common;

use mx_proto::origin::{Claim, Proof};
use mx_proto::port::Port;
use mx_proto::{EndpointId, Identity, LinkId, NicId};
use mx_sys::{EndpointChoice, HostPorts, MonotonicClock, OpenOptions, ROUTE_TCP, nic};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use tcp_common::{Pieces, Recorder, frame, preamble};

/// This thread has a network of its own, with a loopback in it.
fn have_own_network() -> bool {
    // SAFETY: plain system call.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    alone && ip("link set lo up")
}

fn ip(arguments: &str) -> bool {
    let ip = Command::new("ip").args(arguments.split(' ')).status();
    ip.is_ok_and(|status| status.success())
}

/// An endpoint's ports, a caller from 127.0.0.1, and the link of that.
fn called() -> (HostPorts, Identity, TcpStream, LinkId) {
    let (mut ports, own) = HostPorts::open(OpenOptions {
        policy: ROUTE_TCP,
        ..OpenOptions::new(EndpointChoice::Any)
    })
    .unwrap();
    let port = own.endpoint.0 as u16;
    let mut caller = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let said = [preamble(), frame(1, b"hello")].concat();
    caller.write_all(&said).unwrap();
    let mut sink = Recorder::default();
    let begin = Instant::now();
    while sink.packet_count() == 0 {
        Port::<Pieces>::poll(&mut ports, &MonotonicClock, 64, &mut sink);
        assert!(begin.elapsed() < Duration::from_secs(20), "a packet");
    }
    let link = sink.first_link();
    (ports, own, caller, link)
}

fn proof(ports: &HostPorts, own: &Identity, link: LinkId, nic: NicId) -> Proof {
    let claim = Claim {
        nic,
        endpoint: EndpointId(5),
        to: (own.nic, own.endpoint),
    };
    Port::<Pieces>::proof(ports, link, &claim)
}

#[test]
fn a_claim_is_held_against_the_interfaces_as_they_are_now() {
    let alone = have_own_network();
    let (ports, own, _caller, link) = called();
    assert_eq!(proof(&ports, &own, link, own.nic), Proof::Proven);
    let other = nic::id_of_address("10.77.0.1".parse().unwrap());
    let gone = LinkId::new(7, 7);
    let asked = proof(&ports, &own, gone, other);
    assert!(
        matches!(asked, Proof::Ask(..)),
        "whence is not known: {asked:?}"
    );
    assert_eq!(proof(&ports, &own, link, other), Proof::Refuted);
    if !alone {
        eprintln!("no network of its own: what comes later is not tried");
        return;
    }
    assert!(ip("addr add 10.77.0.1/32 dev lo"));
    // The list was looked at just now.
    assert_eq!(proof(&ports, &own, link, other), Proof::Refuted);
    std::thread::sleep(Duration::from_millis(1001));
    assert_eq!(proof(&ports, &own, link, other), Proof::Proven);
    assert!(nic::is_local(other));
    let foreign = nic::id_of_address("10.77.0.2".parse().unwrap());
    assert_eq!(proof(&ports, &own, link, foreign), Proof::Refuted);
}
