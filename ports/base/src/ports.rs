//! Table of ports: all that the rest of the product knows of a port by its number, name or route.
//!
//! ```text
//!   number   part of its links' ids ([`LinkId::at_port`]), member of a nest, row of the table
//!   name     in the log, tools, MX_PORT, before the `@` of an address, as prefix of its counters
//!   route    what MX_PORT and an address ask for; its bit in a published page
//! ```
//!
//! Out of scope: the ports. `ports/README.md` lists what else a new port touches.
//!
//! [`LinkId::at_port`]: mx_proto::LinkId::at_port

use mx_proto::Route;

/// Number of the port over shared memory.
pub const LOCAL: u8 = 0;
/// Number of the port over kernel TCP.
pub const TCP: u8 = 1;
/// Number of the port that carries an endpoint's links to itself.
pub const LOOPBACK: u8 = 2;
/// Number of the port over libfabric's reliable datagrams (`FI_EP_RDM`).
pub const RDM: u8 = 3;
/// Number of the port over datagrams (UDP or `FI_EP_DGRAM`).
pub const DGRAM: u8 = 4;

/// Route over shared memory only; reaches no other machine.
pub const ROUTE_LOCAL: Route = Route(1);
/// Route over TCP only, even to peers on this machine.
pub const ROUTE_TCP: Route = Route(2);
/// Route over libfabric's `FI_EP_RDM` only, even to peers on this machine.
pub const ROUTE_RDM: Route = Route(3);
/// Route over datagrams only, even to peers on this machine.
pub const ROUTE_DGRAM: Route = Route(4);

/// Names and number of a port, a row of [`PORTS`].
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    /// Index of this row in [`PORTS`].
    pub number: u8,
    /// Name in the log, in settings and in addresses.
    pub name: &'static str,
    /// Route over this port alone; `None` if it cannot be asked for.
    pub route: Option<Route>,
}

/// All ports, indexed by number.
pub const PORTS: [PortInfo; 5] = [
    row(LOCAL, "local", Some(ROUTE_LOCAL)),
    row(TCP, "tcp", Some(ROUTE_TCP)),
    row(LOOPBACK, "loopback", None),
    row(RDM, "rdm", Some(ROUTE_RDM)),
    row(DGRAM, "dgram", Some(ROUTE_DGRAM)),
];

const fn row(number: u8, name: &'static str, route: Option<Route>) -> PortInfo {
    PortInfo {
        number,
        name,
        route,
    }
}

/// Names of the routes, indexed by route, which are the choices of `MX_PORT`: `auto`, then the names of all ports but
/// loopback.
pub const ROUTE_WORDS: [&str; PORTS.len()] = {
    let mut words = ["auto"; PORTS.len()];
    let mut at = 0;
    while at < PORTS.len() {
        assert!(PORTS[at].number as usize == at);
        if let Some(route) = PORTS[at].route {
            words[route.0 as usize] = PORTS[at].name;
        }
        at += 1;
    }
    words
};

/// Returns the name of a port; `None` for unknown numbers.
pub fn name(port: u8) -> Option<&'static str> {
    PORTS.get(usize::from(port)).map(|port| port.name)
}

/// Returns the port of `route`; `None` for [`Route::AUTO`] and unknown routes.
pub fn of_route(route: Route) -> Option<&'static PortInfo> {
    PORTS.iter().find(|port| port.route == Some(route))
}
