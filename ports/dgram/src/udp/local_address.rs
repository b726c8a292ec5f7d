//! The local address that a peer sends to, so that it is answered from that one.
//!
//! ```text
//!   10.0.0.1 ◄── Hello ──── peer        by default the kernel would answer from 10.0.0.2 if that is
//!   10.0.0.2                            the route's source: not the address the peer called
//! ```
//!
//! Used only on machines with several addresses of a family, from the time that they have them; elsewhere the
//! kernel is not asked, which has a cost per datagram. Callers need none of this: the peer answers to their source.
//!
//! The route's source at the time of a call is noted: the peer answers to that address, and not when this
//! machine has lost it. Nothing is sent from it expressly.
//!
//! Owns: the local addresses in use. Out of scope: sockets, peers.

use mx_port_base::interfaces::{Interfaces, is_of_this_host, source_to};
use std::net::{IpAddr, SocketAddr};

/// An index of a local address; none by default.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct LocalAddressIndex(u16);

/// The bit of a note that only says where answers come to.
const ROUTE: u16 = 1 << 15;

/// The local addresses in use.
#[derive(Debug, Default)]
pub(super) struct LocalAddresses {
    known: Vec<IpAddr>,
    /// Addresses that are this machine's no more, one bit each.
    gone: u64,
}

/// Addresses remembered: a machine may own whole networks. Peers of further addresses are answered
/// from the route's source.
const MOST: usize = u64::BITS as usize;

impl LocalAddresses {
    /// The note for a local address that received something.
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

    /// The address to send from that a note names.
    #[inline]
    pub(super) fn address(&self, here: LocalAddressIndex) -> Option<IpAddr> {
        // One of a route is beyond them all.
        let place = usize::from(here.0).checked_sub(1)?;
        self.known.get(place).copied()
    }

    /// The note for what is sent to a peer of which nothing has come: the source of the route to it.
    pub(super) fn note_route(&mut self, to: SocketAddr) -> LocalAddressIndex {
        match self.note(source_to(to)) {
            LocalAddressIndex(0) => LocalAddressIndex(0),
            LocalAddressIndex(place) => LocalAddressIndex(place | ROUTE),
        }
    }

    /// Looks at this machine's addresses again, which have changed.
    pub(super) fn look_again(&mut self) {
        let all = self.known.iter().enumerate();
        let gone = all.filter(|(_, address)| !is_of_this_host(**address));
        self.gone = gone.fold(0, |bits, (place, _)| bits | 1 << place);
    }

    /// Whether the address of a note is this machine's no more.
    pub(super) fn is_gone(&self, here: LocalAddressIndex) -> bool {
        let place = (here.0 & !ROUTE).checked_sub(1);
        place.is_some_and(|place| self.gone & (1 << place) != 0)
    }
}

/// True if the kernel can choose among source addresses.
pub(super) fn has_choice(interfaces: &Interfaces) -> bool {
    let others = interfaces.addresses().iter().filter(|ip| !ip.is_loopback());
    let v4 = others.filter(|ip| ip.is_ipv4()).count();
    let v6 = interfaces.addresses().iter().filter(|ip| is_wide_v6(ip));
    v4 > 1 || v6.count() > 1
}

/// True for IPv6 that is not link-local; link-local is never answered from another scope.
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
        // Of documentation, so no machine has it.
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
