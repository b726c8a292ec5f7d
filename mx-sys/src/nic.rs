//! Host names, NIC ids and addresses.
//!
//! ```text
//!   "server7", "10.0.0.5"  --resolve-->  NicId  --socket_addresses-->  10.0.0.5:28675
//!   "localhost", own names     ^           |    --host_name--------->  "server7"
//!                              |           |    --mx_name----------->  "server7:0"
//!           peers file, resolver           |    --is_local, board_number
//! ```
//!
//! Names of this machine (`localhost`, `127.0.0.1`, the host name) resolve to the id of its first board, or of the
//! given board. Another address of this machine has an id of its own, because an endpoint may listen on that address
//! only ([`listen_address`]). The id of an IPv4 interface contains its address. The address of an IPv6 id is known only
//! to a process that has resolved it, has seen it connect, or has it in the peers file.
//!
//! The list of interfaces is read again on each query; while an endpoint is open, only after the kernel has reported a
//! change.
//!
//! Owns: the process-wide table of names and IPv6 addresses seen so far.
//! Out of scope: endpoints, sockets.

mod error;
mod lookup;
mod mx_name;
mod table;

pub use error::ResolveError;
pub use mx_name::{MX_NAME_MAX, mx_name, resolve_mx_name};

use crate::literal;
use lookup::Known;
use mx_port_base::interfaces::{Board, Interfaces};
use mx_port_base::nic_id as id;
use mx_proto::NicId;
use nix::unistd::gethostname;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;
pub(crate) use table::Watching;
use table::{address_in, fresh_table, table};

/// Interfaces, on one machine, that a host name or address resolves to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// NIC id of the first interface to try.
    pub nic: NicId,
    /// Another machine's further interfaces, in the order of trial ([`lookup::in_order_of_trial`]); empty for this
    /// machine.
    pub others: Vec<NicId>,
    /// Address of this machine that the host resolved to; `None` for another machine.
    pub own: Option<IpAddr>,
}

impl Resolved {
    /// Returns whether the host is this machine.
    pub fn is_local(&self) -> bool {
        self.own.is_some()
    }

    /// Returns all interfaces in the order of trial: between one and [`ADDRESSES_MAX`].
    pub fn nics(self) -> Vec<NicId> {
        let mut nics = self.others;
        nics.insert(0, self.nic);
        nics
    }
}

/// Maximum number of addresses tried for one name. More hardly belong to one machine, and each may become a connection
/// attempt beside the others.
pub const ADDRESSES_MAX: usize = 8;

/// Interface whose host's name is known: an entry of [`known_peers`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownPeer {
    /// NIC id.
    pub nic: NicId,
    /// IP address.
    pub address: IpAddr,
    /// Names of the machine; may be empty.
    pub names: Vec<String>,
    /// Whether the interface belongs to this machine.
    pub is_local: bool,
}

/// Resolves a host: a name, an IPv4 address, or an IPv6 address with or without brackets.
///
/// `board` is the interface's number on that host. On this machine it has to exist, and chooses the interface unless
/// `host` is an address other than 127.0.0.1. On another machine it chooses the first of a name's addresses to try; a
/// number beyond the last chooses the first address. The peers file is consulted first, then the resolver, which may
/// use the network (DNS).
pub fn resolve(host: &str, board: Option<u32>) -> Result<Resolved, ResolveError> {
    resolve_again(host, board, None)
}

/// Does what [`resolve`] does, for a host that was last found at the interface `before` (`None`: not found yet). That
/// interface stays first as long as it is among the host's addresses, whatever order the resolver returns.
pub fn resolve_again(
    host: &str,
    board: Option<u32>,
    before: Option<NicId>,
) -> Result<Resolved, ResolveError> {
    let known = lookup::classify(host)?;
    let is_name = matches!(known, Known::Name);
    let addresses = match known {
        Known::Address(address) => vec![address],
        Known::Own => Vec::new(),
        Known::Name => {
            let listed = fresh_table().peers().addresses_of(host);
            if listed.is_empty() {
                lookup::ask(host)?
            } else {
                listed
            }
        }
    };
    let mut table = table();
    table.look_again();
    let own = addresses.iter().find(|a| table.interfaces.has(a.ip()));
    if own.is_some() || addresses.is_empty() {
        let of_board = table.board_nic(board)?;
        // A name's loopback address is meant for times without a network, and chooses no interface.
        let names_board = |ip: IpAddr| {
            let is_usual = if is_name {
                ip.is_loopback()
            } else {
                ip == IpAddr::V4(Ipv4Addr::LOCALHOST)
            };
            is_usual || (is_name && board.is_some())
        };
        let nic = match own {
            Some(own) if !names_board(own.ip()) => table.remember(*own),
            _ => of_board,
        };
        let own = match own {
            Some(own) => Some(own.ip()),
            None if lookup::is_localhost(host) => None,
            None => table.named_address(board),
        };
        let own = own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        return Ok(Resolved {
            nic,
            others: Vec::new(),
            own: Some(own),
        });
    }
    let place = board
        .and_then(|board| usize::try_from(board).ok())
        .filter(|place| *place < addresses.len())
        .unwrap_or(0);
    let stays = |address: &SocketAddr| Some(id::of_address(address.ip())) == before;
    let place = addresses.iter().position(stays).unwrap_or(place);
    let mut nics = Vec::new();
    for (place, address) in lookup::in_order_of_trial(&addresses, place) {
        let nic = table.remember(address);
        if is_name && nics.is_empty() {
            table.name(nic, host, place);
        } else if is_name {
            table.name_too(nic, host, place);
        }
        if !nics.contains(&nic) {
            nics.push(nic);
        }
    }
    nics.truncate(ADDRESSES_MAX);
    let mut nics = nics.into_iter();
    // Empty address lists mean this machine and have returned above.
    let Some(nic) = nics.next() else {
        return Err(ResolveError::Unknown {
            host: host.to_owned(),
            reason: "no address".into(),
        });
    };
    Ok(Resolved {
        nic,
        others: nics.collect(),
        own: None,
    })
}

/// Returns the address to listen on for a server that is to be reachable at `host` only: 127.0.0.1 for `localhost`; for
/// this machine's name the interface numbered `board`, else an address that the peers file or the resolver has for the
/// name, else the first interface. Fails with [`ResolveError::Elsewhere`] if `host` is another machine. May use the
/// network (DNS).
pub fn listen_address(host: &str, board: Option<u32>) -> Result<IpAddr, ResolveError> {
    let found = resolve(host, board)?;
    let Some(own) = found.own else {
        let known = address(found.nic).map(|address| address.ip());
        let address = known.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        return Err(ResolveError::Elsewhere { address });
    };
    match lookup::classify(host)? {
        Known::Name if own.is_loopback() => return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Known::Own if board.is_none() && !own.is_loopback() => {}
        _ => return Ok(own),
    }
    let listed = fresh_table().peers().addresses_of(host);
    let asked = if listed.is_empty() {
        lookup::ask(host).unwrap_or_default()
    } else {
        listed
    };
    // A machine's name often resolves to a loopback address, which peers cannot reach.
    let others = asked.iter().map(SocketAddr::ip);
    let mut others = others.filter(|address| !address.is_loopback() && has(*address));
    Ok(others.next().unwrap_or(own))
}

/// Returns the NIC id of an address of this machine, and records the address under that id.
pub(crate) fn remember(own: IpAddr) -> NicId {
    table().remember(SocketAddr::new(own, 0))
}

/// Returns the id of this machine's first interface, as of the last [`look_again`].
pub(crate) fn first() -> NicId {
    let mut table = table();
    let first = table.board_nic(None);
    // There is at least the loopback.
    first.unwrap_or_else(|_| id::of_address(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

/// Returns the NIC id of interface number `board` of this machine (`None`: the first). Fails if there is no such
/// interface.
pub fn own_nic(board: Option<u32>) -> Result<NicId, ResolveError> {
    let mut table = table();
    table.look_again();
    table.board_nic(board)
}

/// Returns this machine's current interfaces with their NIC ids, ordered by board number. There is at least one, the
/// loopback if no other.
pub fn boards() -> Vec<(NicId, Board)> {
    let mut table = table();
    table.look_again();
    let boards = table.interfaces.boards().to_vec();
    let with_id = |board: Board| (table.remember(board.socket_address()), board);
    boards.into_iter().map(with_id).collect()
}

/// Returns the addresses of this machine's interfaces, by number, as of the last [`look_again`].
pub(crate) fn board_addresses() -> Vec<IpAddr> {
    let table = table();
    let boards = table.interfaces.boards().iter();
    boards.map(|board| board.address).collect()
}

/// Returns the address of interface number `board` of this machine, if it exists.
pub(crate) fn board_address(board: u32) -> Option<IpAddr> {
    let table = table();
    let board = table.interfaces.boards().get(board as usize)?;
    Some(board.address)
}

/// Returns the interfaces of this machine, as of the last [`look_again`].
pub(crate) fn interfaces() -> Interfaces {
    table().interfaces.clone()
}

/// Parses `host` as an IP address, without its scope. `None` for a name, a loopback, unspecified, multicast or
/// broadcast address, and bad brackets.
pub fn literal_address(host: &str) -> Option<IpAddr> {
    let address = literal::parse(host).ok()??.ip();
    (!address.is_loopback()).then_some(address)
}

/// Returns the board number of the interface `nic` of this machine; `None` if it belongs to another machine.
pub fn board_number(nic: NicId) -> Option<u32> {
    table().board_number(nic)
}

/// Returns all addresses of this machine, loopback included. The kernel is asked at most once a second.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut table = table();
    table.look_again();
    table.interfaces.addresses().to_vec()
}

/// Returns whether `nic` belongs to this machine; false if its address is not known here.
pub fn is_local(nic: NicId) -> bool {
    let table = table();
    address_in(&table, nic).is_some_and(|address| table.interfaces.has(address.ip()))
}

/// Returns whether this machine had `address` when its interfaces were last read; always true for a loopback address.
pub fn has(address: IpAddr) -> bool {
    address.is_loopback() || table().interfaces.has(address)
}

/// Returns whether a packet from `address` comes from this machine.
pub fn is_source_here(address: SocketAddr) -> bool {
    table().interfaces.is_source_here(address)
}

/// Returns the address contained in the id of an IPv4 interface; `None` for an IPv6 one.
pub fn ipv4(nic: NicId) -> Option<Ipv4Addr> {
    id::v4(nic)
}

/// Returns the interface's IP address, with port 0. An IPv4 address is contained in the id; an IPv6 one is known only
/// if it was resolved, is in the peers file, or a peer has connected from it, else `None`.
pub fn address(nic: NicId) -> Option<SocketAddr> {
    address_in(&table(), nic)
}

/// Returns whether `address` belongs to the interface `nic`. The 64-bit id does not determine an IPv6 address, so an id
/// belongs to the address that was resolved or is in the peers file, else to the first one passed here, which is
/// recorded.
pub fn is_address_of(nic: NicId, address: SocketAddr) -> bool {
    id::of_address(address.ip()) == nic && fresh_table().meet(nic, address)
}

/// Reads this machine's interfaces again. While a [`Watching`] exists, only if the kernel reports a change, or, where
/// the kernel reports none, at most once a second. Returns the number of changes so far.
pub(crate) fn look_again() -> u64 {
    let mut table = table();
    table.look_again();
    table.changes
}

/// Reads the interfaces after the caller has seen a change, which this table's own watch may not have reported yet.
pub(crate) fn look_at_once() -> u64 {
    let mut table = table();
    table.stale = true;
    table.look_again();
    table.changes
}

/// Returns the TCP addresses of an interface, best first. An interface of this machine is reached through the loopback,
/// or at its address if a server listens only there. Empty for an unknown id.
pub fn socket_addresses(nic: NicId, port: u16) -> Vec<SocketAddr> {
    let mut table = table();
    let mut known = address_in(&table, nic);
    if known.is_none() {
        drop(table);
        table = fresh_table();
        known = address_in(&table, nic);
    }
    let Some(mut address) = known else {
        return Vec::new();
    };
    address.set_port(port);
    let mut addresses = Vec::with_capacity(2);
    if table.interfaces.has(address.ip()) {
        addresses.push(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    if !addresses.contains(&address) {
        addresses.push(address);
    }
    addresses
}

/// Returns a host name for the interface that [`resolve`] accepts: this machine's name, the name a host was resolved
/// under or has in the peers file, else its address. `None` for an unknown id.
pub fn host_name(nic: NicId) -> Option<String> {
    let table = fresh_table();
    let address = address_in(&table, nic)?;
    if table.interfaces.has(address.ip()) {
        return Some(machine_name().to_owned());
    }
    let named = table.names_of(nic, address.ip()).into_iter().next();
    Some(named.map_or_else(|| literal::text(address), |(name, _)| name))
}

/// Returns the hosts with known names: those of the peers file, in its order, then those that this process has
/// resolved, by name.
pub fn known_peers() -> Vec<KnownPeer> {
    fresh_table().known_peers()
}

/// Sets the path of the peers file for this process (`None`: no file). Until the first call the path comes from
/// `MX_PEERS`.
pub fn set_peers_file(path: Option<PathBuf>) {
    table().set_file(path);
}

/// Returns the NIC id of an interface with this address.
pub fn id_of_address(address: IpAddr) -> NicId {
    id::of_address(address)
}

/// Returns the name of this machine (`gethostname`), or `localhost`.
pub fn machine_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = gethostname().ok().and_then(|name| name.into_string().ok());
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| "localhost".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(host: &str) -> NicId {
        let resolved = resolve(host, None).unwrap();
        assert!(resolved.is_local(), "{host}");
        resolved.nic
    }

    #[test]
    fn every_name_of_this_machine_is_one_peer() {
        let nic = own_nic(None).unwrap();
        let address = match socket_addresses(nic, 0).pop().unwrap().ip() {
            IpAddr::V6(v6) => format!("[{v6}]"),
            IpAddr::V4(v4) => v4.to_string(),
        };
        for host in [
            "localhost",
            "LocalHost",
            "127.0.0.1",
            "::ffff:127.0.0.1",
            machine_name(),
            &address,
        ] {
            assert_eq!(local(host), nic, "{host}");
        }
        assert_eq!(resolve("localhost", Some(0)).unwrap().nic, nic);
        assert!(is_local(nic));
        assert_eq!(board_number(nic), Some(0));
        assert_eq!(boards()[0].0, nic);
        assert_eq!(host_name(nic).unwrap(), machine_name());
        assert_eq!(socket_addresses(nic, 7)[0], "127.0.0.1:7".parse().unwrap());
    }

    #[test]
    fn remote_addresses_come_back_from_their_ids() {
        let remote = resolve("192.0.2.77", Some(3)).unwrap();
        assert!(!remote.is_local());
        assert!(!is_local(remote.nic));
        assert_eq!(remote.nic, NicId(0x4d58_c000_024d));
        assert_eq!(
            socket_addresses(remote.nic, 9),
            ["192.0.2.77:9".parse().unwrap()]
        );
        assert_eq!(host_name(remote.nic).unwrap(), "192.0.2.77");
        assert_eq!(board_number(remote.nic), None);

        let v6 = resolve("[2001:db8::5]", None).unwrap();
        assert_eq!(resolve("2001:db8:0::5", None).unwrap(), v6);
        assert_eq!(
            socket_addresses(v6.nic, 9),
            ["[2001:db8::5]:9".parse().unwrap()]
        );
        assert_eq!(host_name(v6.nic).unwrap(), "[2001:db8::5]");
    }

    #[test]
    fn a_server_may_listen_on_the_address_of_its_name_only() {
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        for (host, listen) in [
            ("localhost", "127.0.0.1"),
            ("127.0.0.2", "127.0.0.2"),
            ("[::1]", "::1"),
            ("::ffff:127.0.0.3", "127.0.0.3"),
        ] {
            assert_eq!(listen_address(host, None), Ok(address(listen)), "{host}");
        }
        let board = boards()[0].1.address;
        assert_eq!(listen_address(&board.to_string(), None), Ok(board));
        assert_eq!(listen_address(machine_name(), Some(0)), Ok(board));
        assert!(has(listen_address(machine_name(), None).unwrap()));
        let elsewhere = listen_address("192.0.2.77", None).unwrap_err();
        let expected = "192.0.2.77 is not an address of this machine";
        assert_eq!(elsewhere.to_string(), expected);
        let unknown = listen_address("no-such-host.invalid", None);
        assert!(matches!(unknown, Err(ResolveError::Unknown { .. })));
    }

    #[test]
    fn an_address_of_this_machine_is_dialled_where_it_is() {
        for (host, text) in [("127.0.0.7", "127.0.0.7:9"), ("[::1]", "[::1]:9")] {
            let nic = local(host);
            assert_ne!(nic, own_nic(None).unwrap(), "{host}");
            assert!(is_local(nic), "{host}");
            let dialled = socket_addresses(nic, 9);
            let expected = ["127.0.0.1:9", text].map(|text| text.parse().unwrap());
            assert_eq!(dialled, expected);
            assert_eq!(host_name(nic).unwrap(), machine_name());
        }
        for (number, (nic, board)) in boards().into_iter().enumerate() {
            // An address chooses its interface, whatever board number is given.
            let found = resolve(&board.address.to_string(), Some(0)).unwrap();
            assert_eq!(found.nic, nic);
            assert_eq!(board_number(found.nic), Some(number as u32));
        }
    }

    #[test]
    fn unknown_ids_have_no_address() {
        for nic in [NicId(0), NicId::MAX, NicId(0x4d59_7f00_0001)] {
            assert!(socket_addresses(nic, 1).is_empty());
            assert_eq!(host_name(nic), None);
            assert!(!is_local(nic));
        }
    }

    #[test]
    fn errors_name_the_value_and_what_is_wrong() {
        let error = |host: &str| resolve(host, None).unwrap_err().to_string();
        assert_eq!(error(""), "empty host name");
        assert_eq!(
            error("[10.0.0.1]"),
            "'[10.0.0.1]' is not an IPv6 address in brackets"
        );
        assert_eq!(error("[::1"), "'[::1' is not an IPv6 address in brackets");
        assert_eq!(error("0.0.0.0"), "'0.0.0.0' is not a host address");
        assert_eq!(error("[::]"), "'[::]' is not a host address");
        assert_eq!(error("224.0.0.1"), "'224.0.0.1' is not a host address");
        let unknown = error("no-such-host.invalid");
        assert!(
            unknown.starts_with("unknown host 'no-such-host.invalid' ("),
            "{unknown}"
        );
        let nul = error("a\0b");
        assert!(nul.starts_with("unknown host 'a\0b'"), "{nul}");

        let boards = Interfaces::now();
        let count = boards.boards().len();
        let board = resolve("localhost", Some(700)).unwrap_err().to_string();
        assert_eq!(
            board,
            format!("board 700: this host has {count} ({boards})")
        );
        assert!(own_nic(Some(count as u32)).is_err());
        assert!(own_nic(Some(count as u32 - 1)).is_ok());
    }
}
