//! Network interfaces of this machine.
//!
//! ```text
//!   getifaddrs:  lo   AF_PACKET        boards:  0: eth0 10.0.0.5
//!                eth0 AF_PACKET   -->           1: ib0  10.1.0.5
//!                ib0  AF_PACKET
//!                lo   127.0.0.1        addresses: 127.0.0.1, 10.0.0.5, ::1, fe80::.., 10.1.0.5
//!                eth0 10.0.0.5  ...
//! ```
//!
//! A *board* is an interface that is up, has an address and is not the loopback. Boards are numbered by [`Rank`], then
//! in the kernel's order, so that interfaces leading to other machines come first. A machine without any has the
//! loopback as its only board.
//!
//! ```text
//!   rank      operational (IFF_RUNNING: up, with carrier)     the kernel's kind
//!   network   yes, and its address reaches beyond one link    none of those below
//!   bridge    yes, and its address reaches beyond one link    bridge, openvswitch
//!   last      anything else: no carrier, a link-local address, a bridge's port, dummy
//! ```
//!
//! A container bridge has the same address on every machine, and the kernel may list it first. Its carrier depends on
//! whether containers run, so flags alone do not identify it. A bridge may also be a machine's only way out, so it is
//! ranked lower instead of left out.
//!
//! Owns: nothing; [`Interfaces`] is a snapshot.
//! Out of scope: NIC ids, host names, netlink messages (`netlink`).

use crate::netlink::{self, InterfaceKind};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Usable interface: up, with an address, and not the loopback, unless the machine has no other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Board {
    /// Interface name, such as `eth0`.
    pub name: String,
    /// First IPv4 address; without one the first IPv6 address, global before link-local.
    pub address: IpAddr,
    /// Interface index, which link-local addresses need; 0 for IPv4.
    pub scope: u32,
}

impl Board {
    /// Returns the socket address of the board, with its scope; the port is 0.
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
    /// Link-local addresses with their interface indexes.
    link_local: Vec<(Ipv6Addr, u32)>,
    kinds: Vec<InterfaceKind>,
}

/// An entry of the kernel's list.
struct Entry {
    name: String,
    up: bool,
    /// True if the interface is up and has carrier.
    operational: bool,
    loopback: bool,
    address: Option<(IpAddr, u32)>,
}

/// Order of boards; the module's table defines the ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Network,
    Bridge,
    Last,
}

impl Interfaces {
    /// Takes a snapshot. If the kernel does not answer, the loopback is the only board.
    pub fn now() -> Self {
        match entries() {
            Ok(entries) => Self::from_lists(&entries, &kinds().unwrap_or_default()),
            Err(error) => {
                log::warn!("cannot list the network interfaces: {error}");
                Self::from_lists(&[], &[])
            }
        }
    }

    /// Takes a new snapshot. Returns whether anything has changed; `None`, with the old snapshot kept, if the kernel
    /// does not answer for want of a descriptor or memory.
    pub fn refresh(&mut self) -> Option<bool> {
        match entries() {
            Ok(entries) => {
                let kinds = kinds().unwrap_or_else(|| self.kinds.clone());
                let now = Self::from_lists(&entries, &kinds);
                let other = now != *self;
                *self = now;
                Some(other)
            }
            Err(error) => {
                log::debug!("cannot list the network interfaces: {error}");
                None
            }
        }
    }

    /// Builds a snapshot from the kernel's lists, in the order that the module describes.
    fn from_lists(entries: &[Entry], kinds: &[InterfaceKind]) -> Self {
        let mut boards: Vec<(Rank, Board)> = Vec::new();
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
                let board = Board {
                    name: entry.name.clone(),
                    address,
                    scope,
                };
                boards.push((rank(entry, address, kinds), board));
            }
        }
        // A stable sort: boards of one rank stay in the kernel's order.
        boards.sort_by_key(|(rank, _)| *rank);
        let mut boards: Vec<Board> = boards.into_iter().map(|(_, board)| board).collect();
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
            Some((IpAddr::V6(address), scope)) if address.is_unicast_link_local() => {
                Some((address, scope))
            }
            _ => None,
        });
        Self {
            kinds: kinds.to_vec(),
            boards,
            addresses,
            link_local: link_local.collect(),
        }
    }

    /// Returns the usable interfaces, indexed by board number; at least one.
    pub fn boards(&self) -> &[Board] {
        &self.boards
    }

    /// Returns all addresses of this machine, including the loopback's and those of interfaces that are no boards.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns true if packets to `address` do not leave this machine.
    pub fn has(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || self.addresses.contains(&address)
            || self.boards.iter().any(|board| board.address == address)
    }

    /// Returns true if packets from `address` come from this machine. A link-local address is this machine's on one
    /// interface only; on another it may be another machine's.
    pub fn is_source_here(&self, address: SocketAddr) -> bool {
        match address {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
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

/// Returns the preference among an interface's addresses; the smallest wins.
fn preference(address: IpAddr) -> u8 {
    match address {
        _ if is_of_one_link(address) => 2 + u8::from(address.is_ipv6()),
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => 1,
    }
}

/// Returns the rank of an interface with this address.
fn rank(entry: &Entry, address: IpAddr, kinds: &[InterfaceKind]) -> Rank {
    let kind = kinds.iter().find(|kind| kind.name == entry.name);
    let (kind, master) = kind.map_or(("", ""), |of| (&of.kind, &of.master));
    if !entry.operational || is_of_one_link(address) || is_bridge(master) || kind == "dummy" {
        Rank::Last
    } else if is_bridge(kind) {
        Rank::Bridge
    } else {
        Rank::Network
    }
}

fn is_bridge(kind: &str) -> bool {
    matches!(kind, "bridge" | "openvswitch")
}

/// Returns true for link-local addresses.
fn is_of_one_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Returns whether a socket can be bound to `address`. Asks the kernel, which also knows addresses that belong to no
/// interface.
pub fn is_of_this_host(address: IpAddr) -> bool {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

/// Returns the address of this machine from which the kernel sends to `there`; `None` without a route.
pub fn source_to(there: SocketAddr) -> Option<IpAddr> {
    let any = match there {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Connecting a UDP socket sends nothing.
    socket.connect(there).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the kernel's list in its order.
fn entries() -> io::Result<Vec<Entry>> {
    let entry = |it: InterfaceAddress| Entry {
        name: it.interface_name,
        up: it.flags.contains(InterfaceFlags::IFF_UP),
        operational: it.flags.contains(InterfaceFlags::IFF_RUNNING),
        loopback: it.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        address: it.address.as_ref().and_then(ip_of),
    };
    Ok(getifaddrs()?.map(entry).collect())
}

/// Returns the kinds of interfaces; `None` if the kernel does not tell, and then all count as cards.
fn kinds() -> Option<Vec<InterfaceKind>> {
    let kinds = netlink::kinds().map_err(|error| {
        log::debug!("cannot read the kinds of the network interfaces: {error}");
    });
    kinds.ok()
}

/// Returns the IP address and scope of an IPv4 or IPv6 socket address.
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
            operational: up,
            loopback: name == "lo",
            address: address.map(|text| (text.parse().unwrap(), 0)),
        }
    }

    fn idle(name: &str, address: Option<&str>) -> Entry {
        Entry {
            operational: false,
            ..entry(name, true, address)
        }
    }

    fn kind(name: &str, kind: &str, master: &str) -> InterfaceKind {
        InterfaceKind {
            name: name.to_owned(),
            kind: kind.to_owned(),
            master: master.to_owned(),
        }
    }

    #[test]
    fn boards_are_usable_interfaces_in_the_kernels_order() {
        let interfaces = Interfaces::from_lists(
            &[
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
            ],
            &[],
        );
        assert_eq!(interfaces.to_string(), "0: eth0 10.0.0.5, 1: ib0 fd00::7");
        for own in ["10.0.0.6", "10.9.0.5", "fe80::1", "127.3.2.1", "::1"] {
            assert!(interfaces.has(own.parse().unwrap()), "{own}");
        }
        assert!(!interfaces.has("10.0.0.7".parse().unwrap()));
    }

    #[test]
    fn what_leads_to_no_other_machine_comes_last() {
        let entries = [
            entry("docker0", true, Some("172.17.0.1")),
            idle("virbr0", Some("192.168.122.1")),
            entry("kube0", true, Some("169.254.20.10")),
            entry("vnet3", true, Some("fe80::3")),
            entry("vport", true, Some("10.7.0.1")),
            idle("eth9", Some("10.9.0.5")),
            entry("service", true, Some("10.96.0.1")),
            entry("eth0", true, Some("10.0.0.5")),
            entry("eth0", true, Some("169.254.1.2")),
            entry("br0", true, Some("10.2.0.5")),
            entry("ib0", true, Some("10.1.0.5")),
            entry("veth0", true, Some("10.3.0.5")),
        ];
        let kinds = [
            kind("docker0", "bridge", ""),
            kind("virbr0", "bridge", ""),
            kind("vport", "veth", "bridge"),
            kind("service", "dummy", ""),
            kind("br0", "bridge", ""),
            kind("veth0", "veth", ""),
        ];
        let order = |kinds: &[InterfaceKind]| -> Vec<String> {
            let interfaces = Interfaces::from_lists(&entries, kinds);
            let boards = interfaces.boards().iter();
            boards.map(|board| board.name.clone()).collect()
        };
        assert_eq!(
            order(&kinds),
            [
                "eth0", "ib0", "veth0", "docker0", "br0", "virbr0", "kube0", "vnet3", "vport",
                "eth9", "service"
            ]
        );
        // Without kinds, flags and addresses decide.
        assert_eq!(order(&[])[7..], ["virbr0", "kube0", "vnet3", "eth9"]);
        let eth0 = Interfaces::from_lists(&entries, &kinds).boards()[0].address;
        assert_eq!(eth0.to_string(), "10.0.0.5");
    }

    #[test]
    fn bridge_is_the_board_if_it_is_the_only_way_out() {
        let bridge = [
            entry("eth0", true, None),
            entry("br0", true, Some("10.2.0.5")),
        ];
        let kinds = [kind("br0", "bridge", ""), kind("eth0", "", "bridge")];
        let interfaces = Interfaces::from_lists(&bridge, &kinds);
        assert_eq!(interfaces.to_string(), "0: br0 10.2.0.5");
    }

    #[test]
    fn a_machine_without_a_network_has_the_loopback_as_its_board() {
        let interfaces = Interfaces::from_lists(&[entry("lo", true, Some("127.0.0.1"))], &[]);
        assert_eq!(interfaces.to_string(), "0: lo 127.0.0.1");
    }

    #[test]
    fn this_machine_has_a_board_and_owns_its_address() {
        let mut interfaces = Interfaces::now();
        let board = interfaces.boards()[0].clone();
        assert!(interfaces.has(board.address), "{interfaces}");
        let kinds = netlink::kinds().unwrap();
        let known = kinds.iter().any(|kind| kind.name == board.name);
        assert!(known, "{board:?}: {kinds:?}");
        // Apart from changes made by other tests, the snapshot stays equal.
        assert!((0..10).any(|_| interfaces.refresh() == Some(false)));
    }
}
