//! IP addresses of devices, for endpoints whose own addresses have none.
//!
//! ```text
//!   verbs   FI_EP_MSG     domain rxe1         10.9.0.2        --.  one device: domain names are equal
//!           FI_EP_DGRAM   domain rxe1-dgram   no IP address   <-'  up to a '-'
//! ```
//!
//! Out of scope: the choice.

use super::places::source;
use libfabric_sys::{Hints, Library};
use std::net::IpAddr;

/// Devices of a provider by name, with their IP addresses; devices without one are left out.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Devices(Vec<(String, IpAddr)>);

impl Devices {
    /// Queries the devices that match `hints`, which name the provider and no endpoint type. None if the query fails.
    pub fn of(library: &Library, hints: &Hints) -> Self {
        let offers = library.query(None, None, 0, Some(hints));
        let of_ip = offers.iter().flatten().filter_map(|info| {
            let address = source(info.src_addr())?;
            Some((info.domain_name().into_owned(), address))
        });
        Self(of_ip.collect())
    }

    /// Returns true if no device is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the addresses of the device of a domain, whose name is the device's or begins with it and a `-`
    /// (`rxe1-dgram`).
    pub fn addresses(&self, domain: &str) -> impl Iterator<Item = IpAddr> {
        let of_it = |device: &str| {
            let rest = domain.strip_prefix(device);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let mine = self.0.iter().filter(move |(device, _)| of_it(device));
        mine.map(|(_, address)| *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_on_the_device_that_its_name_begins_with() {
        let ip = |last| IpAddr::from([10, 9, 0, last]);
        let devices = [("rxe1", 1), ("rxe10", 2), ("rxe1", 3)];
        let devices = devices.map(|(name, last)| (name.to_owned(), ip(last)));
        let devices = Devices(devices.to_vec());
        for (domain, expected) in [
            ("rxe1-dgram", vec![ip(1), ip(3)]),
            ("rxe1", vec![ip(1), ip(3)]),
            ("rxe10-dgram", vec![ip(2)]),
            ("rxe-dgram", vec![]),
        ] {
            let found: Vec<IpAddr> = devices.addresses(domain).collect();
            assert_eq!(found, expected, "{domain}");
        }
    }
}
