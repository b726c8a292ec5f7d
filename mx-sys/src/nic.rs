//! Host names, NIC ids and addresses.
//!
//! ```text
//!   "server7", "10.0.0.5"  --resolve-->  NicId  --socket_addresses-->  10.0.0.5:28675
//!   "localhost", own names     ^           |    --host_name--------->  "server7"
//!                              |           |    --mx_name----------->  "server7:0"
//!           peers file, resolver           |    --is_local, board_number
//! ```
//!
//! The names of this machine resolve to the id of its first board, or of the one that is given:
//! `localhost`, `127.0.0.1` and the host name are the same. An address of this machine is its own id, as an
//! endpoint may listen on that address only ([`listen_address`]). The id of an IPv4 interface contains its
//! address; that of an IPv6 one is known to a process that has resolved or seen it, or has it in the peers
//! file.
//!
//! The list of interfaces is read again whenever it is asked for; while an endpoint is open, when the kernel
//! says that it has changed.
//!
//! Owns: the process-wide table of names and IPv6 addresses met so far.
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

/// A host that has been found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// Its interface.
    pub nic: NicId,
    /// Another machine's further interfaces, in the order of trial ([`lookup::in_order_of_trial`]).
    pub others: Vec<NicId>,
    /// The address that the name stands for, if that is this machine's.
    pub own: Option<IpAddr>,
}

impl Resolved {
    /// Whether the host is this machine.
    pub fn is_local(&self) -> bool {
        self.own.is_some()
    }

    /// All its interfaces, in the order of trial: at least one, and at most [`ADDRESSES_MAX`].
    pub fn nics(self) -> Vec<NicId> {
        let mut nics = self.others;
        nics.insert(0, self.nic);
        nics
    }
}

/// Addresses of one name that are tried: more are hardly those of one machine, and each may be an attempt that goes
/// on beside the others.
pub const ADDRESSES_MAX: usize = 8;

/// An interface that has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownPeer {
    /// Its id.
    pub nic: NicId,
    /// Its address.
    pub address: IpAddr,
    /// The names of its machine; may be empty.
    pub names: Vec<String>,
    /// The interface is one of this machine's.
    pub is_local: bool,
}

/// Looks a host up: a name, an IPv4 address, or an IPv6 address with or without brackets.
///
/// `board` is the interface's number on that host. It is checked when the host is this machine, where it
/// chooses among the interfaces unless an address does. Another machine's interfaces cannot be seen from
/// here: a name of several addresses gives the one numbered `board`, and when it has not that many, its
/// first; the others follow. The peers file is looked at first; then it may ask the network (DNS).
pub fn resolve(host: &str, board: Option<u32>) -> Result<Resolved, ResolveError> {
    resolve_again(host, board, None)
}

/// Resolves the name of a host again that was found at the interface `before`: that is its first as long as one of its
/// addresses is that, in whichever order the resolver gives them.
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
        // A name's loopback address is for the time without a network.
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
    // Not empty: an empty list means this machine.
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

/// The address for a server that is to be reached at this name's only. It may ask the network (DNS).
///
/// The address to listen on: for `localhost` 127.0.0.1; for this machine's name that of the interface numbered `board`, or
/// the one that the resolver has for it, or that of its first interface.
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
    // A machine's name is often given a loopback address for the time without a network.
    let others = asked.iter().map(SocketAddr::ip);
    let mut others = others.filter(|address| !address.is_loopback() && has(*address));
    Ok(others.next().unwrap_or(own))
}

/// The id of an address of this machine, which leads back to it from now on.
pub(crate) fn remember(own: IpAddr) -> NicId {
    table().remember(SocketAddr::new(own, 0))
}

/// The id of this machine's first interface, as it was last seen.
pub(crate) fn first() -> NicId {
    let mut table = table();
    let first = table.board_nic(None);
    // There is at least the loopback.
    first.unwrap_or_else(|_| id::of_address(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

/// The interface number `board` of this machine, or its first.
pub fn own_nic(board: Option<u32>) -> Result<NicId, ResolveError> {
    let mut table = table();
    table.look_again();
    table.board_nic(board)
}

/// The interfaces of this machine as they are now, by their numbers. There is at least one.
pub fn boards() -> Vec<(NicId, Board)> {
    let mut table = table();
    table.look_again();
    let boards = table.interfaces.boards().to_vec();
    let with_id = |board: Board| (table.remember(board.socket_address()), board);
    boards.into_iter().map(with_id).collect()
}

/// The addresses of this machine's interfaces, by their numbers, as of the last [`look_again`].
pub(crate) fn board_addresses() -> Vec<IpAddr> {
    let table = table();
    let boards = table.interfaces.boards().iter();
    boards.map(|board| board.address).collect()
}

/// The address of an interface.
pub(crate) fn board_address(board: u32) -> Option<IpAddr> {
    let table = table();
    let board = table.interfaces.boards().get(board as usize)?;
    Some(board.address)
}

/// The interfaces of this machine, as of the last [`look_again`].
pub(crate) fn interfaces() -> Interfaces {
    table().interfaces.clone()
}

/// Parses `host` as an IP address, without its scope. `None` for a name, a loopback, unspecified, multicast or
/// broadcast address, and bad brackets.
pub fn literal_address(host: &str) -> Option<IpAddr> {
    let address = literal::parse(host).ok()??.ip();
    (!address.is_loopback()).then_some(address)
}

/// The number of one of this machine's interfaces; `None` for other machines'.
pub fn board_number(nic: NicId) -> Option<u32> {
    table().board_number(nic)
}

/// All addresses of this machine, those of the loopback included. The kernel is asked once a second at most.
pub fn own_addresses() -> Vec<IpAddr> {
    let mut table = table();
    table.look_again();
    table.interfaces.addresses().to_vec()
}

/// True when `nic` is this machine's.
pub fn is_local(nic: NicId) -> bool {
    let table = table();
    address_in(&table, nic).is_some_and(|address| table.interfaces.has(address.ip()))
}

/// True when this machine has that address, or had it at the last [`look_again`].
pub fn has(address: IpAddr) -> bool {
    address.is_loopback() || table().interfaces.has(address)
}

/// True when what comes from there has not left this machine.
pub fn is_source_here(address: SocketAddr) -> bool {
    table().interfaces.is_source_here(address)
}

/// The address in the id of an IPv4 interface.
pub fn ipv4(nic: NicId) -> Option<Ipv4Addr> {
    id::v4(nic)
}

/// The interface's address, as far as it is known.
pub fn address(nic: NicId) -> Option<SocketAddr> {
    address_in(&table(), nic)
}

/// Whether the address is that interface's. An IPv6 address is not proven by its id: in a network
/// of 2^64 addresses there is one with any given id. So an id belongs to the address that was
/// resolved or is listed in the peers file; if there is none, to the first one seen.
pub fn is_address_of(nic: NicId, address: SocketAddr) -> bool {
    id::of_address(address.ip()) == nic && fresh_table().meet(nic, address)
}

/// Reads this machine's interfaces again; while there is a [`Watching`] only if the kernel says that they have
/// changed, or, where it says nothing, once a second at most. Returns how often they have changed so far.
pub(crate) fn look_again() -> u64 {
    let mut table = table();
    table.look_again();
    table.changes
}

/// Looks at the interfaces when the kernel has told the caller of a change, perhaps before it tells so here.
pub(crate) fn look_at_once() -> u64 {
    let mut table = table();
    table.stale = true;
    table.look_again();
    table.changes
}

/// The TCP addresses of the interface, best first. This machine's own is reached through the
/// loopback, or at its address when a server listens only there. Empty for an unknown id.
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

/// The name of the interface's host, which [`resolve`] takes back: this machine's name, the name a
/// host was resolved under or has in the peers file, or else its address. `None` for an id nothing
/// is known of.
pub fn host_name(nic: NicId) -> Option<String> {
    let table = fresh_table();
    let address = address_in(&table, nic)?;
    if table.interfaces.has(address.ip()) {
        return Some(machine_name().to_owned());
    }
    let named = table.names_of(nic, address.ip()).into_iter().next();
    Some(named.map_or_else(|| literal::text(address), |(name, _)| name))
}

/// The hosts that have names: those of the peers file, in its order, then those this process has
/// resolved, by name.
pub fn known_peers() -> Vec<KnownPeer> {
    fresh_table().known_peers()
}

/// Names the peers file; `None`: there is none. Until this is called it is what `MX_PEERS` says.
pub fn set_peers_file(path: Option<PathBuf>) {
    table().set_file(path);
}

/// The id of the interface that has this address, if any has.
pub fn id_of_address(address: IpAddr) -> NicId {
    id::of_address(address)
}

/// The name of this machine (`gethostname`), or `localhost`.
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
            // Its own address chooses, whatever number is asked for.
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
