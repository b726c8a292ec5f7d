//! Endpoint names: the bytes that `fi_getname` returns, as a comparable `Copy` value.
//!
//! ```text
//!   sockaddr_in  16      udp, usnic         sockaddr_in6 28   udp
//!   efa_ep_addr  32      efa                ib_ud_ep_name 32  verbs
//! ```
//!
//! A peer is identified by its name alone, which never changes; its place in an address vector may ([`super::peers`]).
//!
//! Owns: the bytes, and conversion from and to socket addresses.
//! Out of scope: libfabric, whether such an endpoint exists.

use libfabric_sys::abi::{FI_ADDR_EFA, FI_ADDR_IB_UD};
use mx_port_fabric::{is_address, source};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Longest name in bytes of any provider with datagrams (see the module).
pub(super) const NAME_MAX: usize = 32;

/// Bytes of an InfiniBand global identifier.
const GID: usize = 16;

/// Address of an endpoint on its fabric: the bytes of `fi_getname`, 32 at most.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FabricAddress {
    /// Length of the name in bytes.
    len: u8,
    /// Name, zero from `len` on.
    bytes: [u8; NAME_MAX],
}

impl FabricAddress {
    /// Creates a name; `None` if there are no bytes, or more than [`NAME_MAX`].
    pub(super) fn new(name: &[u8]) -> Option<Self> {
        if name.is_empty() {
            return None;
        }
        let mut bytes = [0; NAME_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        // `copy_from_slice` above bounds the length by `NAME_MAX`.
        let len = name.len() as u8;
        Some(Self { len, bytes })
    }

    /// Parses an untrusted name without trailing zeros. `None` if, judging by `ours` and the fabric's address format,
    /// it cannot be a name there.
    pub(super) fn read(name: &[u8], format: u32, ours: &Self) -> Option<Self> {
        if name.len() > usize::from(ours.len) || name.is_empty() {
            return None;
        }
        let mut read = Self::new(name)?;
        read.len = ours.len;
        let Some(ip) = read.ip() else {
            let alike = ours.ip().is_none() && is_address(format, read.bytes());
            return alike.then_some(read);
        };
        let sane = !ip.is_unspecified() && !ip.is_multicast();
        if !sane || !is_address(format, read.bytes()) {
            return None;
        }
        // The interface index and similar fields are local to the sender.
        ours.elsewhere(SocketAddr::from((ip, read.port()?)))
    }

    /// Returns all bytes, as libfabric takes them.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Returns the name without trailing zeros, as sent in datagrams.
    pub(super) fn short(&self) -> &[u8] {
        let bytes = self.bytes();
        let used = bytes.iter().rposition(|byte| *byte != 0);
        &bytes[..used.map_or(0, |last| last + 1)]
    }

    /// Returns the IP address, if the name has one.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        source(self.bytes())
    }

    /// Returns true if both names belong to one machine, as far as names tell, so that a peer cannot redirect us to
    /// another machine. Names of `verbs` and `efa`, which have no IP address, begin with the card's global identifier.
    pub(super) fn is_beside(&self, other: &Self, format: u32) -> bool {
        match (self.ip(), other.ip()) {
            (None, None) if matches!(format, FI_ADDR_IB_UD | FI_ADDR_EFA) => {
                self.bytes[..GID] == other.bytes[..GID]
            }
            (one, other) => one == other,
        }
    }

    /// Returns the port, if the name has an IP address.
    pub(crate) fn port(&self) -> Option<u16> {
        self.ip()?;
        Some(u16::from_be_bytes(*self.bytes.get(2..)?.first_chunk()?))
    }

    /// Returns the name with another address and port. `None` if the family differs or the name has no IP address.
    pub(super) fn elsewhere(&self, place: SocketAddr) -> Option<Self> {
        let mut other = *self;
        other.bytes[2..4].copy_from_slice(&place.port().to_be_bytes());
        match (self.ip()?, place.ip()) {
            (IpAddr::V4(_), IpAddr::V4(to)) => {
                other.bytes[4..8].copy_from_slice(&to.octets());
            }
            (IpAddr::V6(_), IpAddr::V6(to)) => {
                other.bytes[8..24].copy_from_slice(&to.octets());
            }
            _ => return None,
        }
        Some(other)
    }
}

impl fmt::Debug for FabricAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(ip), Some(port)) = (self.ip(), self.port()) {
            return SocketAddr::from((ip, port)).fmt(f);
        }
        for byte in self.short() {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libfabric_sys::abi::{FI_ADDR_PSMX, FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

    fn v4(ip: [u8; 4], port: u16) -> FabricAddress {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes[4..8].copy_from_slice(&ip);
        FabricAddress::new(&bytes).unwrap()
    }

    #[test]
    fn a_name_has_one_to_thirty_two_bytes() {
        assert!(FabricAddress::new(&[]).is_none());
        assert!(FabricAddress::new(&[1; 33]).is_none());
        assert_eq!(FabricAddress::new(&[1; 32]).unwrap().bytes(), [1; 32]);
    }

    #[test]
    fn zeroes_at_the_end_do_not_travel() {
        let ours = v4([10, 0, 0, 1], 7);
        let theirs = v4([10, 0, 1, 0], 9);
        assert_eq!(theirs.short().len(), 7);
        let read = FabricAddress::read(theirs.short(), FI_SOCKADDR_IN, &ours);
        assert_eq!(read, Some(theirs));
        assert_eq!(format!("{theirs:?}"), "10.0.1.0:9");
    }

    #[test]
    fn what_cannot_be_a_peers_name_is_not_read() {
        let ours = v4([10, 0, 0, 1], 7);
        let read = |name: &FabricAddress| FabricAddress::read(name.short(), FI_SOCKADDR_IN, &ours);
        for ip in [[0, 0, 0, 0], [224, 0, 0, 1]] {
            assert_eq!(read(&v4(ip, 9)), None);
        }
        assert_eq!(read(&v4([10, 0, 0, 2], 0)), None);
        let too_long = FabricAddress::new(&[2; 17]).unwrap();
        assert_eq!(read(&too_long), None);
        assert_eq!(FabricAddress::read(&[], FI_SOCKADDR_IN, &ours), None);
        let card = FabricAddress::new(&[7; 32]).unwrap();
        let other = FabricAddress::new(&[9; 30]).unwrap();
        let read = FabricAddress::read(other.short(), FI_ADDR_EFA, &card).unwrap();
        assert_eq!(read.bytes().len(), 32);
    }

    #[test]
    fn an_interface_is_named_by_our_number_for_it() {
        let v6 = |host: u8, scope: u8| {
            let mut bytes = [0; 28];
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[2..4].copy_from_slice(&[4, 5]);
            (bytes[8], bytes[9], bytes[23]) = (0xfe, 0x80, host);
            bytes[24] = scope;
            FabricAddress::new(&bytes).unwrap()
        };
        let (ours, theirs) = (v6(1, 3), v6(2, 7));
        let read = FabricAddress::read(theirs.short(), FI_SOCKADDR_IN6, &ours);
        assert_eq!(read, Some(v6(2, 3)));
        let there = SocketAddr::from((theirs.ip().unwrap(), theirs.port().unwrap()));
        assert_eq!(read, ours.elsewhere(there));
    }

    #[test]
    fn names_of_one_host_have_its_address_or_its_identifier() {
        let card = |identifier: u8, number: u8| {
            let mut name = [identifier; 32];
            name[16..].fill(number);
            FabricAddress::new(&name).unwrap()
        };
        for format in [FI_ADDR_EFA, FI_ADDR_IB_UD] {
            assert!(card(1, 2).is_beside(&card(1, 3), format));
            assert!(!card(1, 2).is_beside(&card(2, 2), format));
        }
        // Names of unknown formats count as one machine's.
        assert!(card(1, 2).is_beside(&card(2, 2), FI_ADDR_PSMX));
        let (one, other) = (v4([10, 0, 0, 1], 7), v4([10, 0, 0, 1], 8));
        assert!(one.is_beside(&other, FI_SOCKADDR_IN));
        assert!(!one.is_beside(&v4([10, 0, 0, 2], 7), FI_SOCKADDR_IN));
        assert!(!one.is_beside(&card(1, 2), FI_SOCKADDR_IN));
    }

    #[test]
    fn a_name_elsewhere_differs_in_place_only() {
        let ours = v4([10, 0, 0, 1], 7);
        let there = ours.elsewhere(([10, 0, 0, 2], 9).into());
        assert_eq!(there, Some(v4([10, 0, 0, 2], 9)));
        assert_eq!(ours.elsewhere("[::1]:9".parse().unwrap()), None);
        assert_eq!((ours.port(), there.unwrap().port()), (Some(7), Some(9)));
    }
}
