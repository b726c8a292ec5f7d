//! The network interfaces of this machine.
//!
//! ```text
//!   getifaddrs:  lo   AF_PACKET        boards:  0: eth0 10.0.0.5
//!                eth0 AF_PACKET   -->           1: ib0  10.1.0.5
//!                ib0  AF_PACKET
//!                lo   127.0.0.1        addresses: 127.0.0.1, 10.0.0.5, ::1, fe80::.., 10.1.0.5
//!                eth0 10.0.0.5  ...
//! ```
//!
//! A *board* is an interface that is up, has an address and is not the loopback; its number is its
//! position in the kernel's list. A machine without any has the loopback as its only board.
//!
//! Owns: nothing; a [`Interfaces`] is a snapshot.
//! Not here: NIC ids, host names.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One usable interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Board {
    /// Its name, `eth0`.
    pub name: String,
    /// Its first IPv4 address; without one its first IPv6 address, global ones before link-local.
    pub address: IpAddr,
    /// The interface's number, which link-local addresses need.
    pub scope: u32,
}

impl Board {
    /// Its address with what is needed to reach it; the port is 0.
    pub fn socket_address(&self) -> SocketAddr {
        let mut address = SocketAddr::from((self.address, 0));
        if let SocketAddr::V6(v6) = &mut address {
            v6.set_scope_id(self.scope);
        }
        address
    }
}

/// A snapshot of this machine's interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interfaces {
    boards: Vec<Board>,
    addresses: Vec<IpAddr>,
    /// The link-local ones with their interfaces' numbers.
    link_local: Vec<(Ipv6Addr, u32)>,
}

/// One entry of the kernel's list.
struct Entry {
    name: String,
    up: bool,
    loopback: bool,
    address: Option<(IpAddr, u32)>,
}

impl Interfaces {
    /// Asks the kernel. When it does not answer, there is only the loopback.
    pub fn now() -> Self {
        match entries() {
            Ok(entries) => Self::from_entries(&entries),
            Err(error) => {
                log::warn!("cannot list the network interfaces: {error}");
                Self::from_entries(&[])
            }
        }
    }

    /// Asks the kernel again. When it does not answer, for want of a descriptor or of memory, what was known
    /// stays.
    pub fn refresh(&mut self) {
        match entries() {
            Ok(entries) => *self = Self::from_entries(&entries),
            Err(error) => log::debug!("the network interfaces cannot be listed now: {error}"),
        }
    }

    fn from_entries(entries: &[Entry]) -> Self {
        let mut boards: Vec<Board> = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for entry in entries {
            if !entry.up || entry.loopback || seen.contains(&entry.name.as_str()) {
                continue;
            }
            seen.push(&entry.name);
            let best = entries
                .iter()
                .filter(|other| other.name == entry.name)
                .filter_map(|other| other.address)
                .min_by_key(|(address, _)| preference(*address));
            if let Some((address, scope)) = best {
                let name = entry.name.clone();
                boards.push(Board {
                    name,
                    address,
                    scope,
                });
            }
        }
        if boards.is_empty() {
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            boards.push(Board {
                name: "lo".to_owned(),
                address,
                scope: 0,
            });
        }
        let addresses = entries
            .iter()
            .filter_map(|entry| entry.address)
            .map(|a| a.0)
            .collect();
        let link_local = entries.iter().filter_map(|entry| match entry.address {
            Some((IpAddr::V6(address), scope)) if is_link_local(address) => Some((address, scope)),
            _ => None,
        });
        Self {
            boards,
            addresses,
            link_local: link_local.collect(),
        }
    }

    /// The usable interfaces, by board number. There is at least one.
    pub fn boards(&self) -> &[Board] {
        &self.boards
    }

    /// All addresses of this machine, the loopback's among them.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// True when packets to `address` do not leave this machine.
    pub fn has(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || self.addresses.contains(&address)
            || self.boards.iter().any(|board| board.address == address)
    }

    /// True when what comes from that address has not left this machine. A link-local address of one
    /// interface's may be another machine's behind the next one.
    pub fn is_source_here(&self, address: SocketAddr) -> bool {
        match address {
            SocketAddr::V6(v6) if is_link_local(*v6.ip()) => {
                self.link_local.contains(&(*v6.ip(), v6.scope_id()))
            }
            _ => self.has(address.ip().to_canonical()),
        }
    }
}

impl fmt::Display for Interfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, board) in self.boards.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{number}: {} {}", board.name, board.address)?;
        }
        Ok(())
    }
}

/// The preference among an interface's addresses: the smallest is used.
fn preference(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(address) if !is_link_local(address) => 1,
        IpAddr::V6(_) => 2,
    }
}

/// `fe80::/10`.
pub fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// The kernel's list in its order.
fn entries() -> io::Result<Vec<Entry>> {
    let entry = |it: InterfaceAddress| Entry {
        name: it.interface_name,
        up: it.flags.contains(InterfaceFlags::IFF_UP),
        loopback: it.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        address: it.address.as_ref().and_then(ip_of),
    };
    Ok(getifaddrs()?.map(entry).collect())
}

/// The address in a socket address of the families we know, and its scope.
fn ip_of(address: &SockaddrStorage) -> Option<(IpAddr, u32)> {
    let v4 = address.as_sockaddr_in().map(|v4| (v4.ip().into(), 0));
    let v6 = address.as_sockaddr_in6();
    v4.or_else(|| v6.map(|v6| (v6.ip().into(), v6.scope_id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, up: bool, address: Option<&str>) -> Entry {
        Entry {
            name: name.to_owned(),
            up,
            loopback: name == "lo",
            address: address.map(|text| (text.parse().unwrap(), 0)),
        }
    }

    #[test]
    fn boards_are_usable_interfaces_in_the_kernels_order() {
        let interfaces = Interfaces::from_entries(&[
            entry("lo", true, None),
            entry("eth0", true, None),
            entry("bare0", true, None),
            entry("down0", false, None),
            entry("ib0", true, None),
            entry("lo", true, Some("127.0.0.1")),
            entry("ib0", true, Some("fe80::1")),
            entry("eth0", true, Some("10.0.0.5")),
            entry("eth0", true, Some("10.0.0.6")),
            entry("down0", false, Some("10.9.0.5")),
            entry("ib0", true, Some("fd00::7")),
        ]);
        assert_eq!(interfaces.to_string(), "0: eth0 10.0.0.5, 1: ib0 fd00::7");
        for own in ["10.0.0.6", "10.9.0.5", "fe80::1", "127.3.2.1", "::1"] {
            assert!(interfaces.has(own.parse().unwrap()), "{own}");
        }
        assert!(!interfaces.has("10.0.0.7".parse().unwrap()));
    }

    #[test]
    fn a_machine_without_a_network_has_the_loopback_as_its_board() {
        let interfaces = Interfaces::from_entries(&[entry("lo", true, Some("127.0.0.1"))]);
        assert_eq!(interfaces.to_string(), "0: lo 127.0.0.1");
    }

    #[test]
    fn this_machine_has_a_board_and_owns_its_address() {
        let interfaces = Interfaces::now();
        let board = &interfaces.boards()[0];
        assert!(interfaces.has(board.address), "{interfaces}");
    }
}
