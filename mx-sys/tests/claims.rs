//! The name that an endpoint's ports give to a caller, on a machine that gets another address
//! meanwhile. The test has a process of its own, because the list of interfaces belongs to the
//! process, and as root a network namespace, if the machine allows one.

use crate::own_network::{have_own_network, ip};
use crate::own_process::in_own_process;
use crate::tcp_common::{Pieces, Recorder, frame, preamble};
use mx_proto::port::LinkControl;
use mx_proto::{Clock, Identity, LinkId, NicId};
use mx_sim::Polled;
use mx_sys::{EndpointChoice, HostPorts, MonotonicClock, OpenOptions, ROUTE_TCP, nic};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Returns an endpoint's ports, a caller from an address of this machine to the same address, and
/// its link.
fn called(at: &str) -> (HostPorts<Pieces>, Identity, TcpStream, LinkId) {
    let (ports, own) = HostPorts::open(OpenOptions {
        policy: ROUTE_TCP,
        ..OpenOptions::new(EndpointChoice::Any)
    })
    .unwrap();
    let mut ports = *ports;
    let mut caller = TcpStream::connect((at, own.endpoint.0 as u16)).unwrap();
    let said = [preamble(), frame(1, b"hello")].concat();
    caller.write_all(&said).unwrap();
    let mut sink = Recorder::default();
    let begin = Instant::now();
    while sink.packet_count() == 0 {
        Polled::poll(&mut ports, MonotonicClock.now(), 64, &mut sink);
        assert!(begin.elapsed() < Duration::from_secs(20), "a packet");
    }
    let link = sink.first_link();
    (ports, own, caller, link)
}

/// Returns the interface of a link's peer, which claims another one.
fn seen(ports: &HostPorts<Pieces>, own: &Identity, link: LinkId) -> Option<NicId> {
    let claimed = Identity {
        nic: NicId(0x1234),
        ..*own
    };
    ports.link_origin(link, &claimed).nic
}

#[test]
fn caller_is_named_by_source_and_current_interfaces() {
    in_own_process!();
    let alone = have_own_network();
    let (ports, own, _caller, link) = called("127.0.0.1");
    assert_eq!(seen(&ports, &own, link), Some(own.nic));
    let gone = LinkId::new(7, 7);
    assert_eq!(seen(&ports, &own, gone), None, "whence is not known");
    if !alone {
        eprintln!("no network of its own: what comes later is not tried");
        return;
    }
    assert!(ip("addr add 10.77.0.1/32 dev lo"));
    let other = nic::id_of_address("10.77.0.1".parse().unwrap());
    let (ports, own, _caller, link) = called("10.77.0.1");
    assert_eq!(seen(&ports, &own, link), Some(own.nic), "this machine's");
    assert!(nic::is_local(other) && ports.has_interface(other));
    let foreign = nic::id_of_address("10.77.0.2".parse().unwrap());
    assert!(!ports.has_interface(foreign));
}
