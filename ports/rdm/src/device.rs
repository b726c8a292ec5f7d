//! Interface that a provider with IP addresses uses.
//!
//! ```text
//!   requested (an address, a board)   that interface only
//!   not requested                     the first of the machine's, in their order, that a provider offers
//!   interfaces change                 the choice is repeated; if it differs, everything is reopened there
//!   a first peer, not requested       the interface that leads to that peer
//! ```
//!
//! A domain stays bound to one interface. So a port that was opened before there was a network is on the loopback, and
//! one whose address has been removed is unreachable.
//!
//! Owns: the choice of the address. Out of scope: providers.

use super::hardware::{CLASSES, DeviceInUse};
use super::provider::Choice;
use super::{RdmError, RdmOptions, RdmPort};
use mx_port_base::interfaces::{is_of_this_host, source_to};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Request for the interface that the port is to use.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Device {
    /// Address of the only interface to use; `None`: the best.
    pub bind: Option<IpAddr>,
    /// Addresses of this machine's interfaces, in order of preference.
    pub order: Vec<IpAddr>,
}

impl Device {
    /// Requests the interface with that address.
    pub fn only(address: IpAddr) -> Self {
        Self {
            bind: Some(address),
            order: Vec::new(),
        }
    }

    /// Returns the position of an address in the order; unknown addresses come last.
    pub(crate) fn place_of(&self, address: IpAddr) -> usize {
        let place = self.order.iter().position(|known| *known == address);
        place.unwrap_or(self.order.len())
    }

    /// Returns whether a port at `address` should move.
    fn wants_to_leave(&self, address: IpAddr) -> bool {
        match self.bind {
            Some(wanted) => wanted != address,
            None if address.is_loopback() => self.order.iter().any(|other| !other.is_loopback()),
            None => !is_of_this_host(address),
        }
    }
}

impl RdmPort {
    /// Returns the address of the interface that the port uses; `None` if the provider has no IP addresses.
    pub fn device_address(&self) -> Option<IpAddr> {
        self.choice.address()
    }

    /// Follows a change of interfaces, with the new request: moves to the interface that would be chosen now, if the
    /// current one cannot stay. Moving ends all links, so a port with links waits until the change is `settled`.
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

    /// Prepares for a link to a peer at that address: a port without links and without a requested interface moves to
    /// the interface that leads there. Addresses of this machine need no move.
    pub fn face(&mut self, peer: SocketAddr) {
        let device = &self.options.device;
        if device.bind.is_some() || self.links.len() > 0 {
            return;
        }
        let (Some(address), Some(source)) = (self.choice.address(), source_to(peer)) else {
            return;
        };
        // Over the loopback all addresses of this machine reach each other.
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
