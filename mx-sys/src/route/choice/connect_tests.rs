//! The table of `choice`, checked against `HostPorts::connect` with all ports and with TCP alone.

use super::tests::cases;
use crate::nic;
use crate::route::fabrics_tests::{Double, listening, resolve};
use crate::route::host::HostPorts;
use crate::route::lazy::Lazy;
use crate::route::open::BOARD;
use mx_port_base::clock::MonotonicClock;
use mx_port_base::endpoint_port::PortMap;
use mx_port_base::ports::ROUTE_WORDS;
use mx_port_dgram::{self as dgram, BackendChoice, DgramOptions, DgramPort};
use mx_port_local::{LocalOptions, LocalPort};
use mx_proto::port::{ConnectError, FABRIC_RDM, LinkControl};
use mx_proto::{Clock, EndpointId, Identity, Route, SessionId, Target};
use std::net::Ipv4Addr;

/// Number of an endpoint that no process has opened.
const UNOPENED: EndpointId = EndpointId(1023);

/// Returns the ports of an endpoint. `able`: whether all of them carry links; if not, TCP alone does.
fn ports(policy: Route, offered: bool, able: bool) -> HostPorts {
    let tcp = listening();
    let own = Identity {
        nic: nic::own_nic(None).unwrap(),
        endpoint: PortMap::default().endpoint(tcp.local_port()).unwrap(),
        session: SessionId(1),
    };
    let options = LocalOptions::default();
    let base = PortMap::default().base();
    let local = || LocalPort::with_options(base, BOARD, own.endpoint.0, options).unwrap();
    let mut fabric = Double::new("tcp");
    fabric.full = !able;
    let rdm = if offered {
        Lazy::open(fabric)
    } else {
        Lazy::later("rdm", || Ok::<_, String>(fabric), |_: &Double| "")
    };
    let datagrams = DgramOptions {
        backend: BackendChoice::Udp,
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        ..DgramOptions::default()
    };
    let open = move || dgram::open(&datagrams, Box::new(resolve));
    let dgram = if able {
        Lazy::later("dgram", open, |_: &DgramPort| "")
    } else {
        Lazy::never()
    };
    let local = able.then(local);
    HostPorts::new(own, policy, PortMap::default(), local, tcp, [rdm, dgram]).unwrap()
}

#[test]
fn a_link_takes_the_first_port_that_can_carry_it() {
    let now = MonotonicClock.now();
    let there = ports(Route::AUTO, false, true);
    let elsewhere = nic::id_of_address(Ipv4Addr::new(192, 0, 2, 7).into());
    let cases = cases();
    let routes = ROUTE_WORDS.len();
    assert_eq!(cases.len(), routes * (routes + 1) * 2);
    for case in cases {
        for able in [false, true] {
            let mut ports = ports(case.policy, case.rdm_open, able);
            let own = ports.identity();
            let mut connect = |nic, endpoint| {
                let route = case.asked;
                let target = Target {
                    nic,
                    endpoint,
                    route,
                };
                let link = ports.connect(target, now)?;
                // A session that begins on TCP moves to the port that its target asks for.
                Ok::<_, ConnectError>(match ports.fabrics(link, true) {
                    FABRIC_RDM => "rdm",
                    _ => HostPorts::port_name(link),
                })
            };
            assert_eq!(connect(own.nic, own.endpoint), Ok("loopback"));
            let there = there.identity().endpoint;
            for (nic, endpoint, list) in [
                (own.nic, there, &case.this_machine),
                (own.nic, UNOPENED, &case.this_machine),
                (elsewhere, there, &case.elsewhere),
            ] {
                let reached = connect(nic, endpoint);
                let can = |name: &str| match name {
                    "tcp" => true,
                    "local" => able && endpoint != UNOPENED,
                    "rdm" | "dgram" => able,
                    // Any other port is not open here.
                    _ => false,
                };
                match list.iter().find(|name| can(name)) {
                    Some(name) => assert_eq!(reached, Ok(name.as_str()), "{case:?}"),
                    None => assert!(reached.is_err(), "{case:?}: {reached:?}"),
                }
            }
        }
    }
}
