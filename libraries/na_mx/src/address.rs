//! Mercury's addresses: a peer, and the session with it.
//!
//! ```text
//!   "tcp://10.0.0.5:2000" --look_up--> Peer <--accepted-- a process that has connected to us
//!                                        |  remote: the session, if any; else the next message begins one
//!                                        `--text--> an address that any process can look up
//! ```
//!
//! Owns: names of peers. A peer's session changes under the lock of the engine.

use crate::abi::{NA_ADDRNOTAVAIL, NA_INVALID_ARG, na_return};
use bmi_method::peer_name;
use mx_proto::{EndpointId, NicId, RemoteId, Route, Target};
use mx_sys::{nic, ports};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The plugin's name, as a class and as the protocol that chooses the ports.
pub(crate) const CLASS: &str = "mx";

/// Protocols besides [`CLASS`], each of which forces a port.
pub(crate) const PROTOCOLS: [&str; 4] = ["local", "tcp", "dgram", "rdm"];

/// Returns the route of a protocol; `None` if it is not one of this plugin.
pub(crate) fn route_of(protocol: &str) -> Option<Route> {
    if protocol == CLASS {
        return Some(Route::AUTO);
    }
    let known = PROTOCOLS.contains(&protocol);
    let mut all = ports::PORTS
        .iter()
        .filter(|port| known && port.name == protocol);
    all.next()?.route
}

/// An endpoint to exchange messages with.
#[derive(Debug)]
pub(crate) struct Peer {
    nic: NicId,
    endpoint: EndpointId,
    route: Route,
    text: String,
    own: bool,
    /// Session, as a word; [`NO_REMOTE`] for none. Changes under the engine's lock.
    remote: AtomicU64,
    /// Whether the session ends with the program's last reference.
    pub(crate) removed: AtomicBool,
}

const NO_REMOTE: u64 = u64::MAX;

impl Peer {
    /// Makes the peer at an endpoint of an interface, reached over `route`.
    pub(crate) fn new((nic, endpoint): (NicId, EndpointId), route: Route, own: EndpointId) -> Self {
        let host = match nic::address(nic).map(|address| address.ip()) {
            Some(IpAddr::V6(address)) => format!("[{address}]"),
            Some(IpAddr::V4(address)) => address.to_string(),
            // An interface that was never resolved here is reached only by its session.
            None => format!("{:x}", nic.0),
        };
        let protocol = ports::of_route(route).map_or(CLASS, |port| port.name);
        Self {
            nic,
            endpoint,
            route,
            text: format!("{protocol}://{host}:{}", endpoint.0),
            own: endpoint == own && nic::is_local(nic),
            remote: AtomicU64::new(NO_REMOTE),
            removed: AtomicBool::new(false),
        }
    }

    /// Returns the target to connect to.
    pub(crate) fn target(&self) -> Target {
        Target {
            nic: self.nic,
            endpoint: self.endpoint,
            route: self.route,
        }
    }

    /// Returns the address as text, without the class.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the peer is this endpoint.
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    /// Returns whether both are the same endpoint.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let nics = self.nic == other.nic || nic::is_local(self.nic) && nic::is_local(other.nic);
        self.endpoint == other.endpoint && nics
    }

    /// Returns the session with the peer, if there is one.
    pub(crate) fn remote(&self) -> Option<RemoteId> {
        let word = self.remote.load(Ordering::Relaxed);
        (word != NO_REMOTE).then(|| RemoteId::from_word(word))
    }

    /// Stores the session with the peer.
    pub(crate) fn set_remote(&self, remote: Option<RemoteId>) {
        let word = remote.map_or(NO_REMOTE, RemoteId::to_word);
        self.remote.store(word, Ordering::Relaxed);
    }
}

/// Looks up `[protocol://]host[:board]:endpoint`. May use the resolver. `usual`: the route of addresses without one.
pub(crate) fn look_up(text: &str, usual: Route) -> Result<Target, na_return> {
    let (scheme, rest) = text.split_once("://").unwrap_or((CLASS, text));
    let bad = |why: &dyn std::fmt::Display| {
        log::warn!("address {text:?}: {why}");
        NA_INVALID_ARG
    };
    let Some(route) = route_of(scheme.rsplit('+').next().unwrap_or(scheme)) else {
        return Err(bad(&"no protocol of mx"));
    };
    let name = peer_name::parse(&format!("{CLASS}://{rest}")).map_err(|error| bad(&error))?;
    let Some(name) = name else {
        return Err(bad(&"no address"));
    };
    let Some(endpoint) = name.endpoint else {
        return Err(bad(&"no port number"));
    };
    let found = nic::resolve(&name.host, name.board).map_err(|error| {
        log::warn!("address {text:?}: {error}");
        NA_ADDRNOTAVAIL
    })?;
    let mut asked = [name.route, route, usual].into_iter();
    let route = asked.find(|route| *route != Route::AUTO);
    Ok(Target {
        nic: found.nic,
        endpoint: EndpointId(endpoint),
        route: route.unwrap_or(Route::AUTO),
    })
}
