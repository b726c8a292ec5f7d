//! Address of a datagram's sender or destination, in 24 bytes.
//!
//! ```text
//!    0                               16       20     22     24
//!   +-------------------------------+--------+------+------+
//!   | IPv6, or ::ffff:IPv4          | scope  | port | here |     scope: only of link-local addresses
//!   +-------------------------------+--------+------+------+
//! ```
//!
//! IPv4 is stored as mapped IPv6, so that a peer has one address on dual-stack and on IPv4 sockets. `here` is the local
//! address to answer from ([`super::local_address`]); it is not compared.
//!
//! Out of scope: sockets, targets.

use super::local_address::LocalAddressIndex;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// IP address and port number of a peer's socket. Also has the local address to answer from, which is not compared.
#[derive(Clone, Copy)]
pub struct Address {
    ip: [u8; 16],
    scope: u32,
    port: u16,
    here: LocalAddressIndex,
}

impl PartialEq for Address {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.ip, self.scope, self.port) == (other.ip, other.scope, other.port)
    }
}

impl Eq for Address {}

impl Hash for Address {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.ip, self.scope, self.port).hash(state);
    }
}

impl Address {
    /// Converts a socket address to the canonical form, in which IPv4 is mapped to IPv6 and only link-local addresses
    /// have a scope.
    pub fn new(address: SocketAddr) -> Self {
        let (ip, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => (*v6.ip(), v6.scope_id()),
            SocketAddr::V6(v6) => (*v6.ip(), 0),
        };
        Self {
            ip: ip.octets(),
            scope,
            port: address.port(),
            here: LocalAddressIndex::default(),
        }
    }

    /// Returns this address, to be answered from `here`.
    #[inline]
    pub(super) fn spoken_to(self, here: LocalAddressIndex) -> Self {
        Self { here, ..self }
    }

    /// Index of the local address to send from.
    #[inline]
    pub(super) fn here(self) -> LocalAddressIndex {
        self.here
    }

    /// Converts to a standard socket address; mapped IPv4 becomes IPv4.
    pub fn socket_address(self) -> SocketAddr {
        match self.v6().ip().to_canonical() {
            IpAddr::V4(v4) => SocketAddr::from((v4, self.port)),
            IpAddr::V6(_) => SocketAddr::V6(self.v6()),
        }
    }

    /// Converts to the form for a dual-stack socket.
    pub(super) fn v6(self) -> SocketAddrV6 {
        SocketAddrV6::new(Ipv6Addr::from(self.ip), self.port, 0, self.scope)
    }

    /// IP address, in IPv4 form if mapped.
    pub(super) fn ip(self) -> IpAddr {
        self.v6().ip().to_canonical()
    }

    /// Returns the address of another socket on the same machine.
    pub(super) fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Bytes of the IP and UDP headers before a datagram to this address.
    pub(super) fn headers(self) -> usize {
        match self.ip() {
            IpAddr::V4(_) => 20 + 8,
            IpAddr::V6(_) => 40 + 8,
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket_address().fmt(f)
    }
}

const _: () = assert!(size_of::<Address>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_form_and_comes_back_as_people_write_it() {
        for text in ["10.1.2.3:4", "[2001:db8::1]:5", "[fe80::1%7]:6", "[::1]:7"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::new(address).socket_address(), address);
        }
        let mapped: SocketAddr = "[::ffff:10.1.2.3]:4".parse().unwrap();
        let plain: SocketAddr = "10.1.2.3:4".parse().unwrap();
        assert_eq!(Address::new(mapped), Address::new(plain));
        assert_eq!(Address::new(mapped).headers(), 28);
        // The scope that the kernel reports is not part of a global address.
        let scoped: SocketAddr = "[2001:db8::1%3]:5".parse().unwrap();
        let other: SocketAddr = "[2001:db8::1]:5".parse().unwrap();
        assert_eq!(Address::new(scoped), Address::new(other));
        assert_eq!(Address::new(other).headers(), 48);
    }
}
