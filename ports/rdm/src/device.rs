//! The interface that a provider with IP addresses uses.
//!
//! ```text
//!   asked for (an address, a board)   that one, and no other
//!   nothing asked for                 the first of the machine's, in their order, that a provider offers
//!   these change                      the same choice again; another result: everything is opened anew there
//!   a first peer, nothing asked for   the one that leads to that peer
//! ```
//!
//! A domain is bound to one interface for its life. So a port that was opened before there was a network is on
//! the loopback, and one whose address has gone is nowhere.
//!
//! Owns: the choice of the address. Out of scope: providers.

use super::hardware::{CLASSES, DeviceInUse};
use super::provider::Choice;
use super::{RdmError, RdmOptions, RdmPort};
use mx_port_base::interfaces::{is_of_this_host, source_to};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The interface to use.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Device {
    /// The address of the only one.
    pub bind: Option<IpAddr>,
    /// The addresses of this machine's interfaces, the one to be preferred first.
    pub order: Vec<IpAddr>,
}

impl Device {
    /// The one with that address.
    pub fn only(address: IpAddr) -> Self {
        Self {
            bind: Some(address),
            order: Vec::new(),
        }
    }

    /// The place of an address in the order; one that is not there comes last.
    pub(crate) fn place_of(&self, address: IpAddr) -> usize {
        let place = self.order.iter().position(|known| *known == address);
        place.unwrap_or(self.order.len())
    }

    /// Whether what is at that address should be elsewhere.
    fn wants_to_leave(&self, address: IpAddr) -> bool {
        match self.bind {
            Some(wanted) => wanted != address,
            None if address.is_loopback() => self.order.iter().any(|other| !other.is_loopback()),
            None => !is_of_this_host(address),
        }
    }
}

impl RdmPort {
    /// The address that the port is at, where it has one of IP.
    pub fn device_address(&self) -> Option<IpAddr> {
        self.choice.address()
    }

    /// The interfaces are others now: goes to the one that would be chosen today, if it cannot stay. Links end
    /// with that, so it waits while there are some, unless it is `settled` that things stay as they are.
    pub fn follow(&mut self, device: Device, settled: bool) {
        self.options.device = device;
        let device = &self.options.device;
        let Some(address) = self.choice.address() else {
            return;
        };
        if !device.wants_to_leave(address) || (self.links.len() > 0 && !settled) {
            return;
        }
        match self.choose(&self.options) {
            Ok(choice) => self.move_to(choice, address),
            Err(error) => log::warn!("rdm port: cannot move from {address}: {error}"),
        }
    }

    /// A link with a peer at that address is about to begin: without any so far, and if none in particular is
    /// asked for, goes to the interface that leads there. Others of this machine's need not.
    pub fn face(&mut self, peer: SocketAddr) {
        let device = &self.options.device;
        if device.bind.is_some() || self.links.len() > 0 {
            return;
        }
        let (Some(address), Some(source)) = (self.choice.address(), source_to(peer)) else {
            return;
        };
        // Through the loopback all addresses of this machine are reached from all.
        if source == address || source == peer.ip() || source.is_loopback() {
            return;
        }
        let options = RdmOptions {
            device: Device::only(source),
            provider: Some(self.provider().to_owned()),
            ..self.options.clone()
        };
        match self.choose(&options) {
            Ok(choice) => self.move_to(choice, address),
            Err(error) => log::debug!("rdm port: {peer} is reached from {source}: {error}"),
        }
    }

    fn choose(&self, options: &RdmOptions) -> Result<Choice, RdmError> {
        let tried = |choice: Choice| Ok(choice.tried(&self.library));
        Choice::make(&self.library, options, tried)
    }

    fn move_to(&mut self, choice: Choice, from: IpAddr) {
        if choice.address() == Some(from) {
            return;
        }
        let (provider, now) = (choice.provider(), choice.address());
        let now = now.map_or_else(String::new, |now| format!(" at {now}"));
        log::info!("rdm port over {provider}{now}, moved from {from}");
        self.in_use = DeviceInUse::of(Path::new(CLASSES), &choice.domain());
        self.choice = choice;
        self.renew();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn it_leaves_what_leads_nowhere_and_what_is_not_asked_for() {
        let of = |bind: Option<&str>, order: &[&str]| Device {
            bind: bind.map(ip),
            order: order.iter().map(|text| ip(text)).collect(),
        };
        for (device, here, leaves) in [
            (of(None, &["10.0.0.1"]), "127.0.0.1", true),
            (of(None, &["127.0.0.1"]), "127.0.0.1", false),
            (of(None, &["10.0.0.1"]), "192.0.2.9", true),
            (of(Some("127.0.0.1"), &["10.0.0.1"]), "127.0.0.1", false),
            (of(Some("10.0.0.1"), &["10.0.0.1"]), "127.0.0.1", true),
            (of(Some("10.0.0.1"), &["10.0.0.1"]), "10.0.0.1", false),
        ] {
            assert_eq!(device.wants_to_leave(ip(here)), leaves, "{device:?} {here}");
        }
        let order = of(None, &["10.0.0.1", "10.1.0.1"]);
        let places = ["10.0.0.1", "10.1.0.1", "10.2.0.1"].map(|text| order.place_of(ip(text)));
        assert_eq!(places, [0, 1, 2]);
    }
}
