//! Local addresses that peers send to, so that answers come from them.
//!
//! ```text
//!   10.0.0.1 ◄── Hello ──── peer        by default the kernel would answer from 10.0.0.2 if that is
//!   10.0.0.2                            the route's source: not the address that the peer called
//! ```
//!
//! Used only on machines with several addresses of a family, from the time that they have them; elsewhere the kernel is
//! not asked for local addresses, which costs time per datagram. Callers do not need them: the peer answers to their
//! source.
//!
//! A caller records the route's source at the time of the call: the peer's answers are lost once this machine has lost
//! that address. Datagrams are not explicitly sent from it.
//!
//! Owns: the local addresses in use. Out of scope: sockets, peers.

use mx_port_base::interfaces::{Interfaces, is_of_this_host, source_to};
use std::net::{IpAddr, SocketAddr};

/// Index of a local address plus 1, and [`ROUTE`]; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct LocalAddressIndex(u16);

/// Bit of an index whose address only receives answers, and is not explicitly sent from.
const ROUTE: u16 = 1 << 15;

/// Table of the local addresses in use.
#[derive(Debug, Default)]
pub(super) struct LocalAddresses {
    known: Vec<IpAddr>,
    /// Bit set of the addresses that this machine has lost.
    gone: u64,
}

/// Maximum number of addresses recorded: a machine may own whole networks. Peers of further addresses are answered from
/// the route's source.
const MOST: usize = u64::BITS as usize;

impl LocalAddresses {
    /// Returns the index of a local address that received a datagram, adding it if new.
    #[inline]
    pub(super) fn note(&mut self, at: Option<IpAddr>) -> LocalAddressIndex {
        let Some(ip) = at else {
            return LocalAddressIndex::default();
        };
        match self.known.iter().position(|known| *known == ip) {
            Some(place) => LocalAddressIndex(place as u16 + 1),
            None => self.note_another(ip),
        }
    }

    #[cold]
    fn note_another(&mut self, ip: IpAddr) -> LocalAddressIndex {
        if self.known.len() >= MOST || ip.is_unspecified() || ip.is_multicast() {
            return LocalAddressIndex::default();
        }
        self.known.push(ip);
        LocalAddressIndex(self.known.len() as u16)
    }

    /// Returns the address to send from; `None`: the route's source.
    #[inline]
    pub(super) fn address(&self, here: LocalAddressIndex) -> Option<IpAddr> {
        // Indexes with `ROUTE` are beyond the table.
        let place = usize::from(here.0).checked_sub(1)?;
        self.known.get(place).copied()
    }

    /// Returns the index for sends to a peer that has sent nothing yet: the source of the route to it.
    pub(super) fn note_route(&mut self, to: SocketAddr) -> LocalAddressIndex {
        match self.note(source_to(to)) {
            LocalAddressIndex(0) => LocalAddressIndex(0),
            LocalAddressIndex(place) => LocalAddressIndex(place | ROUTE),
        }
    }

    /// Checks which of the addresses this machine still has.
    pub(super) fn look_again(&mut self) {
        let all = self.known.iter().enumerate();
        let gone = all.filter(|(_, address)| !is_of_this_host(**address));
        self.gone = gone.fold(0, |bits, (place, _)| bits | 1 << place);
    }

    /// Returns whether this machine has lost the address of an index.
    pub(super) fn is_gone(&self, here: LocalAddressIndex) -> bool {
        let place = (here.0 & !ROUTE).checked_sub(1);
        place.is_some_and(|place| self.gone & (1 << place) != 0)
    }
}

/// Returns true if the kernel can choose among source addresses.
pub(super) fn has_choice(interfaces: &Interfaces) -> bool {
    let others = interfaces.addresses().iter().filter(|ip| !ip.is_loopback());
    let v4 = others.filter(|ip| ip.is_ipv4()).count();
    let v6 = interfaces.addresses().iter().filter(|ip| is_wide_v6(ip));
    v4 > 1 || v6.count() > 1
}

/// Returns true for IPv6 other than loopback and link-local; link-local is never answered from another scope.
fn is_wide_v6(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if !v6.is_loopback() && !v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(nth: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, nth))
    }

    #[test]
    fn an_address_is_noted_once_and_none_is_none() {
        let mut spoken = LocalAddresses::default();
        assert_eq!(spoken.note(None), LocalAddressIndex::default());
        assert_eq!(spoken.address(LocalAddressIndex::default()), None);
        let notes = [spoken.note(Some(ip(1))), spoken.note(Some(ip(2)))];
        assert_ne!(notes[0], notes[1]);
        assert_eq!(spoken.note(Some(ip(1))), notes[0]);
        assert_eq!(
            notes.map(|note| spoken.address(note)),
            [Some(ip(1)), Some(ip(2))]
        );
    }

    #[test]
    fn the_source_of_a_route_is_noted_and_not_sent_from() {
        let mut spoken = LocalAddresses::default();
        let route = spoken.note_route("127.0.0.1:9".parse().unwrap());
        assert_ne!(route, LocalAddressIndex::default());
        assert_eq!(
            (spoken.address(route), spoken.is_gone(route)),
            (None, false)
        );
        // A documentation address, which no machine has.
        let gone = spoken.note(Some("192.0.2.9".parse().unwrap()));
        assert!(!spoken.is_gone(gone), "not looked at yet");
        spoken.look_again();
        assert!(spoken.is_gone(gone) && spoken.is_gone(LocalAddressIndex(gone.0 | ROUTE)));
        assert!(!spoken.is_gone(LocalAddressIndex::default()) && !spoken.is_gone(route));
    }

    #[test]
    fn what_nothing_can_be_sent_from_and_too_many_are_not_noted() {
        let mut spoken = LocalAddresses::default();
        for odd in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
            assert_eq!(
                spoken.note(Some(odd.parse().unwrap())),
                LocalAddressIndex::default()
            );
        }
        for nth in 0..MOST as u8 {
            assert_ne!(spoken.note(Some(ip(nth))), LocalAddressIndex::default());
        }
        assert_eq!(
            spoken.note(Some(ip(MOST as u8))),
            LocalAddressIndex::default()
        );
        assert_ne!(spoken.note(Some(ip(0))), LocalAddressIndex::default());
    }
}
