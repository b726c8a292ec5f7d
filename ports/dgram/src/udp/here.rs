//! The local address that a peer sends to, so that it is answered from that one.
//!
//! ```text
//!   10.0.0.1 ◄── Hello ──── peer        by default the kernel would answer from 10.0.0.2 if that is
//!   10.0.0.2                            the route's source: not the address the peer called
//! ```
//!
//! Used only on machines with several addresses of a family; elsewhere the kernel is not asked,
//! which has a cost per datagram. Callers need none of this: the peer answers to their source.
//!
//! Owns: the local addresses in use. Not here: sockets, peers.

use mx_port_base::interfaces::Interfaces;
use std::net::IpAddr;

/// An index of a local address; none by default.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Here(u16);

/// The local addresses in use.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    known: Vec<IpAddr>,
}

/// Addresses remembered: a machine may own whole networks. Peers of further addresses are answered
/// from the route's source.
const MOST: usize = 64;

impl Spoken {
    /// The note for a local address that received something.
    #[inline]
    pub(super) fn note(&mut self, at: Option<IpAddr>) -> Here {
        let Some(ip) = at else {
            return Here::default();
        };
        match self.known.iter().position(|known| *known == ip) {
            Some(place) => Here(place as u16 + 1),
            None => self.note_another(ip),
        }
    }

    #[cold]
    fn note_another(&mut self, ip: IpAddr) -> Here {
        if self.known.len() >= MOST || ip.is_unspecified() || ip.is_multicast() {
            return Here::default();
        }
        self.known.push(ip);
        Here(self.known.len() as u16)
    }

    /// The address of a note.
    #[inline]
    pub(super) fn address(&self, here: Here) -> Option<IpAddr> {
        let place = usize::from(here.0).checked_sub(1)?;
        self.known.get(place).copied()
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
        let mut spoken = Spoken::default();
        assert_eq!(spoken.note(None), Here::default());
        assert_eq!(spoken.address(Here::default()), None);
        let notes = [spoken.note(Some(ip(1))), spoken.note(Some(ip(2)))];
        assert_ne!(notes[0], notes[1]);
        assert_eq!(spoken.note(Some(ip(1))), notes[0]);
        assert_eq!(
            notes.map(|note| spoken.address(note)),
            [Some(ip(1)), Some(ip(2))]
        );
    }

    #[test]
    fn what_nothing_can_be_sent_from_and_too_many_are_not_noted() {
        let mut spoken = Spoken::default();
        for odd in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
            assert_eq!(spoken.note(Some(odd.parse().unwrap())), Here::default());
        }
        for nth in 0..MOST as u8 {
            assert_ne!(spoken.note(Some(ip(nth))), Here::default());
        }
        assert_eq!(spoken.note(Some(ip(MOST as u8))), Here::default());
        assert_ne!(spoken.note(Some(ip(0))), Here::default());
    }
}
