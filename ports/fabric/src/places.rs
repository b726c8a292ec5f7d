//! Reachability of an endpoint's address.
//!
//! ```text
//!   src_addr of an offer --source--> IpAddr --place--> Network < NetworkV6 < Loopback < LinkLocal
//! ```
//!
//! Owns: parsing of socket addresses, and the ranking by how many peers can reach an address.
//! Out of scope: providers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reachability class of an address; the smallest is the most reachable, and the best. IPv4 comes before IPv6 so that
/// two sides that have both choose alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AddressPlace {
    /// Public or private IPv4 address, or no IP address.
    Network,
    /// Public or private IPv6 address.
    NetworkV6,
    /// Loopback address of this machine.
    Loopback,
    /// Link-local address, useless without an interface.
    LinkLocal,
}

/// Returns the reachability class of an address.
pub fn place(address: IpAddr) -> AddressPlace {
    match address {
        _ if address.is_loopback() => AddressPlace::Loopback,
        IpAddr::V4(v4) if v4.is_link_local() => AddressPlace::LinkLocal,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => AddressPlace::LinkLocal,
        IpAddr::V4(_) => AddressPlace::Network,
        IpAddr::V6(_) => AddressPlace::NetworkV6,
    }
}

/// Returns the IP address in the bytes of a `sockaddr_in` or `sockaddr_in6`, such as an offer's source address; `None`
/// for other formats and lengths.
pub fn source(bytes: &[u8]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    match family {
        libc::AF_INET if bytes.len() == size_of::<libc::sockaddr_in>() => {
            let octets: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(Ipv4Addr::from(octets).into())
        }
        libc::AF_INET6 if bytes.len() == size_of::<libc::sockaddr_in6>() => {
            let octets: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}
