//! The table of ports for a link, held against `HostPorts::connect`.

use super::address_exchange_tests::{Double, listening, resolve};
use super::dgram::Dgram;
use super::host::{HostPorts, ROUTE_DGRAM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP};
use super::lazy::Lazy;
use super::open::BOARD;
use crate::nic;
use mx_port_base::clock::MonotonicClock;
use mx_port_base::endpoint_port::PortMap;
use mx_port_dgram::{self as dgram, BackendChoice, DgramOptions};
use mx_port_fabric::Addresses;
use mx_port_local::{LocalOptions, LocalPort};
use mx_proto::port::LinkControl;
use mx_proto::{Clock, EndpointId, Identity, Route, SessionId, Target};
use std::net::Ipv4Addr;

/// The ports of a link in their order. `rdm`: whether that port was opened with the endpoint.
const TABLE: &str = "
    MX_PORT  address  rdm     this machine  elsewhere

    auto     -        closed  local,tcp     tcp
    auto     -        open    local,tcp     rdm,tcp
    local    -        either  local         none
    tcp      -        either  tcp           tcp
    rdm      -        closed  none          none
    rdm      -        open    rdm,tcp       rdm,tcp
    dgram    -        either  dgram,tcp     dgram,tcp
    any      local@   either  local         none
    any      tcp@     either  tcp           tcp
    any      rdm@     either  rdm           rdm
    any      dgram@   either  dgram         dgram
    any      other@   either  none          none
";

/// The routes that `MX_PORT` or an address can name.
const ROUTES: [(&str, Route); 5] = [
    ("auto", Route::AUTO),
    ("local", ROUTE_LOCAL),
    ("tcp", ROUTE_TCP),
    ("rdm", ROUTE_RDM),
    ("dgram", ROUTE_DGRAM),
];

/// An endpoint that nobody has opened.
const NOBODY: EndpointId = EndpointId(1023);

/// One case of the table.
#[derive(Clone, Debug)]
struct Case {
    policy: Route,
    asked: Route,
    rdm_open: bool,
    this_machine: Vec<&'static str>,
    elsewhere: Vec<&'static str>,
}

/// All cases, those that a word stands for one by one.
fn cases() -> Vec<Case> {
    let list = |ports: &'static str| ports.split(',').filter(|name| *name != "none").collect();
    let mut cases = Vec::new();
    for row in TABLE.lines().skip(3).filter(|row| !row.trim().is_empty()) {
        let [policy, address, rdm, this_machine, elsewhere] =
            *Vec::from_iter(row.split_whitespace())
        else {
            panic!("{row}");
        };
        let asked = match address.strip_suffix('@') {
            None => Route::AUTO,
            Some(name) => {
                let known = ROUTES.iter().find(|(known, _)| *known == name);
                known.map_or(Route(77), |(_, route)| *route)
            }
        };
        for (name, policy_route) in ROUTES {
            for (word, rdm_open) in [("closed", false), ("open", true)] {
                if [name, "any"].contains(&policy) && [word, "either"].contains(&rdm) {
                    cases.push(Case {
                        policy: policy_route,
                        asked,
                        rdm_open,
                        this_machine: list(this_machine),
                        elsewhere: list(elsewhere),
                    });
                }
            }
        }
    }
    cases
}

/// Ports of an endpoint. `able`: all of them carry links; else TCP alone does.
fn ports(policy: Route, offered: bool, able: bool) -> HostPorts<Double> {
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
        Lazy::new(Some(fabric), None, Double::provider)
    } else {
        let later = move || Some(Box::new(fabric));
        Lazy::new(None, Some(Box::new(later)), Double::provider)
    };
    let datagrams = DgramOptions {
        backend: BackendChoice::Udp,
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        ..DgramOptions::default()
    };
    let open = move || {
        dgram::open(&datagrams, Box::new(resolve))
            .ok()
            .map(Box::new)
    };
    let dgram = Lazy::new(None, able.then_some(Box::new(open) as _), |_| "");
    let local = able.then(local);
    let dgram = Dgram::new(dgram);
    HostPorts::new(own, policy, PortMap::default(), local, tcp, rdm, dgram).unwrap()
}

#[test]
fn a_link_takes_the_first_port_that_can_carry_it() {
    let now = MonotonicClock.now();
    let there = ports(Route::AUTO, false, true);
    let elsewhere = nic::id_of_address(Ipv4Addr::new(192, 0, 2, 7).into());
    let cases = cases();
    assert_eq!(cases.len(), 5 * 6 * 2);
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
                ports.connect(target, now).map(HostPorts::port_name)
            };
            assert_eq!(connect(own.nic, own.endpoint), Ok("loopback"));
            let there = there.identity().endpoint;
            for (nic, endpoint, list) in [
                (own.nic, there, &case.this_machine),
                (own.nic, NOBODY, &case.this_machine),
                (elsewhere, there, &case.elsewhere),
            ] {
                let reached = connect(nic, endpoint);
                let can = |name: &str| match name {
                    "tcp" => true,
                    "local" => able && endpoint != NOBODY,
                    _ => able,
                };
                match list.iter().find(|name| can(name)) {
                    Some(name) => assert_eq!(reached, Ok(*name), "{case:?}"),
                    None => assert!(reached.is_err(), "{case:?}: {reached:?}"),
                }
            }
        }
    }
}
