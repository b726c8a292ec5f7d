//! Host names, NIC ids and addresses.
//!
//! ```text
//!   "server7", "10.0.0.5"  --resolve-->  NicId  --socket_addresses-->  10.0.0.5:28675
//!   "localhost", own names                 |    --host_name--------->  "server7"
//!                                          |    --is_local
//!   IPv4:  4d580004 aabbccdd    tag and address: reversible anywhere
//!   IPv6:  1 hash (63 bits)     known to a process that has resolved or seen it
//! ```
//!
//! All names and addresses of this machine resolve to its own NIC id, that of board 0 unless a
//! board is given: `localhost`, `127.0.0.1` and the host name are one peer, not three.
//!
//! Owns: the process-wide table of names and IPv6 addresses met so far.
//! Knows nothing of: endpoints, sockets.

use crate::interfaces::{Interfaces, is_link_local};
use mx_proto::NicId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::OnceLock;

/// The upper half of an IPv4 interface's id: "MX", 4.
const IPV4_TAG: u64 = 0x4d58_0004 << 32;

/// Set in every IPv6 interface's id, clear in every IPv4 one's.
const IPV6_TAG: u64 = 1 << 63;

/// A host that has been found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// Its interface.
    pub nic: NicId,
    /// It is this machine.
    pub is_local: bool,
}

/// Why a host has not been found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResolveError {
    /// No name at all.
    EmptyHost,
    /// Something in brackets that is not an IPv6 address.
    BadBrackets {
        /// The text.
        host: String,
    },
    /// An address that no host has, such as 0.0.0.0.
    NoHost {
        /// The text.
        host: String,
    },
    /// The resolver does not know the name.
    Unknown {
        /// The name.
        host: String,
        /// What the resolver says.
        reason: String,
    },
    /// This machine has no such interface.
    BadBoard {
        /// The number.
        board: u32,
        /// What there is.
        interfaces: Interfaces,
    },
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyHost => f.write_str("empty host name"),
            Self::BadBrackets { host } => write!(f, "'{host}' is not an IPv6 address in brackets"),
            Self::NoHost { host } => write!(f, "'{host}' is not the address of a host"),
            Self::Unknown { host, reason } => write!(f, "unknown host '{host}' ({reason})"),
            Self::BadBoard { board, interfaces } => {
                let have = interfaces.boards().len();
                write!(f, "board {board}: this host has {have} ({interfaces})")
            }
        }
    }
}

impl std::error::Error for ResolveError {}

/// What the process has learnt.
struct Table {
    /// Taken when the table is first used and again at every [`resolve`] and [`own_nic`].
    interfaces: Interfaces,
    /// Addresses that cannot be had back from their id. The scope is kept for link-local ones.
    v6: HashMap<NicId, SocketAddrV6>,
    /// Under which name another host was resolved.
    names: HashMap<NicId, String>,
}

/// Looks a host up: a name, an IPv4 address, or an IPv6 address with or without brackets.
///
/// `board` is the interface's number on that host. It is checked when the host is this machine.
/// Another machine's interfaces cannot be seen from here: a name of several addresses gives the
/// one numbered `board`, and when it has not that many, its first. May ask the network (DNS).
pub fn resolve(host: &str, board: Option<u32>) -> Result<Resolved, ResolveError> {
    let addresses = addresses_of(host)?;
    let mut table = table();
    table.interfaces = Interfaces::now();
    let own = addresses.is_empty() || addresses.iter().any(|a| table.interfaces.has(a.ip()));
    if own {
        let nic = board_nic(&mut table, board)?;
        return Ok(Resolved {
            nic,
            is_local: true,
        });
    }
    let wanted = board
        .and_then(|n| addresses.get(n as usize))
        .or_else(|| addresses.first());
    // Not empty: an empty list means this machine.
    let Some(&address) = wanted else {
        return Err(ResolveError::Unknown {
            host: host.to_owned(),
            reason: "no address".into(),
        });
    };
    let nic = remember(&mut table, address);
    if address_text(address.ip()) != host && !host.contains(':') {
        table.names.insert(nic, host.to_owned());
    }
    Ok(Resolved {
        nic,
        is_local: false,
    })
}

/// This machine's interface number `board`, or its first.
pub fn own_nic(board: Option<u32>) -> Result<NicId, ResolveError> {
    let mut table = table();
    table.interfaces = Interfaces::now();
    board_nic(&mut table, board)
}

/// The number of one of this machine's interfaces; `None` for everybody else's.
pub fn board_number(nic: NicId) -> Option<u32> {
    let table = table();
    let boards = table.interfaces.boards();
    let number = boards
        .iter()
        .position(|board| nic_of(board.address) == nic)?;
    u32::try_from(number).ok()
}

/// True when `nic` is this machine's.
pub fn is_local(nic: NicId) -> bool {
    let table = table();
    address_in(&table, nic).is_some_and(|address| table.interfaces.has(address.ip()))
}

/// Where the interface can be reached by TCP, best first. This machine's own is reached by way of
/// the loopback, or at its address when a server listens only there. Empty for an id that this
/// process has not heard of.
pub fn socket_addresses(nic: NicId, port: u16) -> Vec<SocketAddr> {
    let table = table();
    let Some(mut address) = address_in(&table, nic) else {
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
/// host was resolved under, or else its address. `None` for an id nothing is known of.
pub fn host_name(nic: NicId) -> Option<String> {
    let table = table();
    let address = address_in(&table, nic)?.ip();
    if table.interfaces.has(address) {
        return Some(machine_name().to_owned());
    }
    Some(
        table
            .names
            .get(&nic)
            .cloned()
            .unwrap_or_else(|| address_text(address)),
    )
}

/// An address as it stands in `mx://`.
fn address_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// The id of the interface that has this address, remembered so that it can be had back.
pub fn nic_of_address(address: SocketAddr) -> NicId {
    let mut table = table();
    remember(&mut table, address)
}

/// What this machine calls itself (`gethostname`), or `localhost`.
pub fn machine_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let mut buffer = [0u8; 256];
        // SAFETY: the buffer is valid for writing all but its last byte, which stays 0.
        let code = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
        let name = CStr::from_bytes_until_nul(&buffer)
            .ok()
            .and_then(|name| name.to_str().ok());
        match name {
            Some(name) if code == 0 && !name.is_empty() => name.to_owned(),
            _ => "localhost".to_owned(),
        }
    })
}

/// The addresses behind `host`, IPv4 first. Empty: it is a name of this machine's.
fn addresses_of(host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
    if host.is_empty() {
        return Err(ResolveError::EmptyHost);
    }
    if host.starts_with('[') || host.ends_with(']') {
        let inner = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let parsed = inner.and_then(v6_literal);
        let bad = || ResolveError::BadBrackets {
            host: host.to_owned(),
        };
        return literal(SocketAddr::V6(parsed.ok_or_else(bad)?), host);
    }
    if let Some(address) = v6_literal(host) {
        return literal(SocketAddr::V6(address), host);
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return literal(SocketAddr::from((address, 0)), host);
    }
    let plain = host.strip_suffix('.').unwrap_or(host);
    if plain.eq_ignore_ascii_case("localhost") || plain.eq_ignore_ascii_case(machine_name()) {
        return Ok(Vec::new());
    }
    let unknown = |reason: String| ResolveError::Unknown {
        host: host.to_owned(),
        reason,
    };
    let found = (host, 0)
        .to_socket_addrs()
        .map_err(|error| unknown(reason_of(&error)))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found
        .map(plain_v4)
        .filter(|address| !address.ip().is_unspecified())
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    // Stable: within a family the resolver's order stays.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    match addresses.is_empty() {
        true => Err(unknown("no address".to_owned())),
        false => Ok(addresses),
    }
}

fn literal(address: SocketAddr, host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
    let address = plain_v4(address);
    let ip = address.ip();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err(ResolveError::NoHost {
            host: host.to_owned(),
        });
    }
    Ok(vec![address])
}

/// `fe80::1%eth0`, `fe80::1%2` or an address without a scope.
fn v6_literal(text: &str) -> Option<SocketAddrV6> {
    let (address, scope) = match text.split_once('%') {
        Some((address, scope)) => (address, scope_number(scope)?),
        None => (text, 0),
    };
    let address: Ipv6Addr = address.parse().ok()?;
    Some(SocketAddrV6::new(address, 0, 0, scope))
}

fn scope_number(scope: &str) -> Option<u32> {
    if let Ok(number) = scope.parse() {
        return Some(number);
    }
    let name = std::ffi::CString::new(scope).ok()?;
    // SAFETY: `name` is a C string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        number => Some(number),
    }
}

/// `::ffff:10.0.0.5` is 10.0.0.5.
fn plain_v4(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// The resolver's own words, without std's preamble.
fn reason_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("failed to lookup address information: ") {
        Some(reason) => reason.to_owned(),
        None => text,
    }
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    let fresh = || {
        let interfaces = Interfaces::now();
        Mutex::new(Table {
            interfaces,
            v6: HashMap::new(),
            names: HashMap::new(),
        })
    };
    TABLE.get_or_init(fresh).lock()
}

fn board_nic(table: &mut Table, board: Option<u32>) -> Result<NicId, ResolveError> {
    let number = board.unwrap_or(0);
    let Some(found) = table.interfaces.boards().get(number as usize) else {
        return Err(ResolveError::BadBoard {
            board: number,
            interfaces: table.interfaces.clone(),
        });
    };
    let mut address = SocketAddr::from((found.address, 0));
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(found.scope);
    }
    Ok(remember(table, address))
}

fn remember(table: &mut Table, address: SocketAddr) -> NicId {
    let nic = nic_of(address.ip());
    if let SocketAddr::V6(mut v6) = plain_v4(address) {
        v6.set_port(0);
        if !is_link_local(*v6.ip()) {
            v6.set_scope_id(0);
        }
        table.v6.insert(nic, v6);
    }
    nic
}

fn address_in(table: &Table, nic: NicId) -> Option<SocketAddr> {
    if nic.0 & !0xffff_ffff == IPV4_TAG {
        return Some(SocketAddr::from((Ipv4Addr::from_bits(nic.0 as u32), 0)));
    }
    table.v6.get(&nic).copied().map(SocketAddr::V6)
}

/// The id of the interface with this address; the same in every process of the cluster.
fn nic_of(address: IpAddr) -> NicId {
    match plain_v4(SocketAddr::from((address, 0))).ip() {
        IpAddr::V4(v4) => NicId(IPV4_TAG | u64::from(v4.to_bits())),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let hash = mix(mix(bits as u64) ^ (bits >> 64) as u64);
            NicId(IPV6_TAG | hash)
        }
    }
}

/// The finaliser of splitmix64, a bijection that spreads every bit over all others. Part of the
/// wire format: it must never change.
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(host: &str) -> NicId {
        let resolved = resolve(host, None).unwrap();
        assert!(resolved.is_local, "{host}");
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
            "127.9.8.7",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            machine_name(),
            &address,
        ] {
            assert_eq!(local(host), nic, "{host}");
        }
        assert_eq!(resolve("localhost", Some(0)).unwrap().nic, nic);
        assert!(is_local(nic));
        assert_eq!(board_number(nic), Some(0));
        assert_eq!(host_name(nic).unwrap(), machine_name());
        assert_eq!(socket_addresses(nic, 7)[0], "127.0.0.1:7".parse().unwrap());
    }

    #[test]
    fn remote_addresses_come_back_from_their_ids() {
        let remote = resolve("192.0.2.77", Some(3)).unwrap();
        assert!(!remote.is_local);
        assert!(!is_local(remote.nic));
        assert_eq!(remote.nic, NicId(0x4d58_0004_c000_024d));
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
        assert_eq!(nic_of_address("[2001:db8::5]:1".parse().unwrap()), v6.nic);
    }

    #[test]
    fn ids_of_ipv6_addresses_never_change() {
        let nic = nic_of_address("[2001:db8::1]:0".parse().unwrap());
        assert_eq!(nic, NicId(IPV6_TAG | mix(mix(1) ^ 0x2001_0db8_0000_0000)));
        assert_eq!(mix(1), 0x5692_161d_100b_05e5);
    }

    #[test]
    fn ids_nobody_told_us_about_have_no_address() {
        for nic in [NicId(0), NicId(u64::MAX), NicId(0x4d58_0005_7f00_0001)] {
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
        assert_eq!(error("0.0.0.0"), "'0.0.0.0' is not the address of a host");
        assert_eq!(error("[::]"), "'[::]' is not the address of a host");
        assert_eq!(
            error("224.0.0.1"),
            "'224.0.0.1' is not the address of a host"
        );
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
