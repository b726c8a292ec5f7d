//! The network on which an endpoint would be.
//!
//! ```text
//!   src_addr of an offer --source--> IpAddr --place--> Network < NetworkV6 < Loopback < LinkLocal
//! ```
//!
//! Owns: reading socket addresses, and the choice of the one that most peers can reach.
//! Out of scope: providers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The place of an endpoint, the most reachable first. IPv4 before IPv6 so that both sides choose
/// the same if they have both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AddressPlace {
    /// No IP address, or a public or private one of IPv4.
    Network,
    /// A public or private address of IPv6.
    NetworkV6,
    /// An address of this host only.
    Loopback,
    /// An address of a link only, useless without the name of an interface.
    LinkLocal,
}

/// The place of an address.
pub fn place(address: IpAddr) -> AddressPlace {
    match address {
        _ if address.is_loopback() => AddressPlace::Loopback,
        IpAddr::V4(v4) if v4.is_link_local() => AddressPlace::LinkLocal,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => AddressPlace::LinkLocal,
        IpAddr::V4(_) => AddressPlace::Network,
        IpAddr::V6(_) => AddressPlace::NetworkV6,
    }
}

/// The IP address in a socket address; `None` for anything else.
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
