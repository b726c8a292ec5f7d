//! The process's table of names and addresses of machines.
//!
//! ```text
//!   resolve, peers file, peers that connect ---> IPv6 address of each id
//!                                           ---> name and place of each id
//!   kernel --------------------------------> this machine's interfaces, again after it has reported a change
//! ```
//!
//! Owns: the table, behind one lock that is held across `fork`.
//! Out of scope: the resolver.

use super::{KnownPeer, ResolveError, id};
use crate::fork::ForkLock;
use crate::literal::plain_v4;
use crate::peers_file::{Peers, PeersFile};
use crate::settings;
use mx_port_base::bounded_map::BoundedMap;
use mx_port_base::interfaces::Interfaces;
use mx_port_base::netlink::Watch;
use mx_port_base::origin::Origin;
use mx_proto::NicId;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::sync::{MutexGuard, OnceLock};

/// Names and addresses known to the process.
pub(super) struct Table {
    pub(super) interfaces: Interfaces,
    /// Number of changes of the interfaces seen so far.
    pub(super) changes: u64,
    /// Whether the interfaces may have changed since the kernel was last asked successfully.
    pub(super) stale: bool,
    /// The kernel's change notifications; `None` while this process has no [`Watching`].
    watch: Option<Watch>,
    watching: usize,
    /// Addresses of resolved or listed interfaces, which cannot be derived from their id. The scope is kept for
    /// link-local ones.
    v6: HashMap<NicId, SocketAddrV6>,
    /// Addresses seen only as the source of a peer's connection.
    met: BoundedMap<NicId, SocketAddrV6>,
    /// Name that another host was resolved under, and the place of its address among the name's addresses.
    names: HashMap<NicId, (String, usize)>,
    file: PeersFile,
}

/// Locks the table, without reading the peers file again.
pub(super) fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<ForkLock<Table>> = OnceLock::new();
    let empty = || {
        // `MX_PEERS` applies until `set_file` is called.
        let file = PeersFile::new(settings::peers_file(settings::environment));
        ForkLock::inherited(Table::new(Interfaces::now(), file), |table| {
            // The child's copy of the descriptor is closed already, and no lock may be taken here.
            let _ = ManuallyDrop::new(table.watch.take());
            table.watching = 0;
        })
    };
    TABLE.get_or_init(empty).lock()
}

/// Held by an open endpoint, which queries often: while one exists, the kernel reports changes.
#[derive(Debug)]
pub(crate) struct Watching;

impl Watching {
    pub(crate) fn begin() -> Self {
        // `Watch::new` and its drop take a lock themselves, so both happen outside of the table's.
        let mut spare = Some(Watch::new());
        let mut table = table();
        table.watching += 1;
        if table.watch.is_none() {
            table.watch = spare.take();
        }
        drop(table);
        Self
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut table = table();
        table.watching = table.watching.saturating_sub(1);
        let watching = table.watching > 0;
        let unused = if watching { None } else { table.watch.take() };
        drop(table);
        drop(unused);
    }
}

/// Locks the table after reading the peers file if it has changed.
pub(super) fn fresh_table() -> MutexGuard<'static, Table> {
    let mut table = table();
    table.look_at_file();
    table
}

/// Returns the address of an interface, if known.
pub(super) fn address_in(table: &Table, nic: NicId) -> Option<SocketAddr> {
    match id::v4(nic) {
        Some(v4) => Some(SocketAddr::from((v4, 0))),
        None => {
            let known = table.v6.get(&nic).or_else(|| table.met.get(&nic));
            known.copied().map(SocketAddr::V6)
        }
    }
}

/// Maximum number of addresses known only from connecting peers.
const MET_MAX: usize = 16 << 10;

/// Returns an IPv6 address without its port, and without its scope unless it is link-local; `None` for IPv4.
fn plain_v6(address: SocketAddr) -> Option<SocketAddrV6> {
    let SocketAddr::V6(mut v6) = plain_v4(address) else {
        return None;
    };
    v6.set_port(0);
    if !v6.ip().is_unicast_link_local() {
        v6.set_scope_id(0);
    }
    Some(v6)
}

impl Table {
    fn new(interfaces: Interfaces, file: PeersFile) -> Self {
        Self {
            interfaces,
            changes: 0,
            stale: false,
            watch: None,
            watching: 0,
            v6: HashMap::new(),
            met: BoundedMap::new(MET_MAX),
            names: HashMap::new(),
            file,
        }
    }

    pub(super) fn peers(&self) -> &Peers {
        self.file.peers()
    }

    pub(super) fn set_file(&mut self, path: Option<PathBuf>) {
        if self.file.path() != path.as_deref() {
            self.file = PeersFile::new(path);
        }
    }

    fn look_at_file(&mut self) {
        if !self.file.refresh() {
            return;
        }
        // A program may pass an id from the file without having resolved a name: each id must lead to its address.
        let peers = self.file.peers().all().iter();
        let addresses: Vec<SocketAddr> = peers.map(|peer| peer.address).collect();
        for address in addresses {
            self.remember(address);
        }
    }

    /// Reads the interfaces again, unless the kernel is watched and has reported no change.
    pub(super) fn look_again(&mut self) {
        self.stale |= self.watch.as_mut().is_none_or(Watch::changed);
        if self.stale
            && let Some(other) = self.interfaces.refresh()
        {
            self.stale = false;
            self.changes += u64::from(other);
        }
    }

    /// Returns the id of interface number `board` of this machine; the first for `None`.
    pub(super) fn board_nic(&mut self, board: Option<u32>) -> Result<NicId, ResolveError> {
        let number = board.unwrap_or(0);
        let Some(found) = self.interfaces.boards().get(number as usize) else {
            return Err(ResolveError::BadBoard {
                board: number,
                interfaces: self.interfaces.clone(),
            });
        };
        let address = found.socket_address();
        Ok(self.remember(address))
    }

    /// Returns the address that this machine's name stands for: that of interface `board`, or of the first one whose
    /// address is valid beyond its link.
    pub(super) fn named_address(&self, board: Option<u32>) -> Option<IpAddr> {
        let mut addresses = self.interfaces.boards().iter().map(|board| board.address);
        match board {
            Some(board) => addresses.nth(board as usize),
            None => addresses.find(|address| match address {
                IpAddr::V6(v6) => !v6.is_unicast_link_local(),
                IpAddr::V4(_) => true,
            }),
        }
    }

    pub(super) fn board_number(&self, nic: NicId) -> Option<u32> {
        let mut boards = self.interfaces.boards().iter();
        let number = boards.position(|board| id::of_address(board.address) == nic)?;
        u32::try_from(number).ok()
    }

    /// Records an address that was resolved or is listed, and returns its id, which leads to this address from now on
    /// instead of one known only from a connection.
    pub(super) fn remember(&mut self, address: SocketAddr) -> NicId {
        let nic = id::of_address(address.ip());
        if let Some(v6) = plain_v6(address) {
            let known = self.v6.entry(nic).or_insert(v6);
            // An address without a scope says nothing about the interface.
            if known.ip() == v6.ip() && v6.scope_id() != 0 {
                *known = v6;
            }
            self.met.remove(&nic);
        }
        nic
    }

    /// Records the source address of a connecting peer. Returns false if the id belongs to another address.
    pub(super) fn meet(&mut self, nic: NicId, address: SocketAddr) -> bool {
        let Some(v6) = plain_v6(address) else {
            return true;
        };
        match self.v6.get(&nic).or_else(|| self.met.get(&nic)) {
            Some(known) => known.ip() == v6.ip(),
            None => {
                // Bounded per source network: a machine can use any number of addresses, which displace only each
                // other.
                let source = Origin::Address(v6.into()).source();
                self.met.insert(nic, v6, source);
                true
            }
        }
    }

    /// Records that another host was resolved under this name, and the place of its address.
    pub(super) fn name(&mut self, nic: NicId, host: &str, place: usize) {
        self.names.insert(nic, (host.to_owned(), place));
    }

    /// Names a further address of a host; an interface that has a name keeps it.
    pub(super) fn name_too(&mut self, nic: NicId, host: &str, place: usize) {
        let named = self.names.entry(nic);
        named.or_insert_with(|| (host.to_owned(), place));
    }

    /// Returns the names that resolve to this interface of another machine, best first, each with the board number to
    /// give.
    pub(super) fn names_of(&self, nic: NicId, address: IpAddr) -> Vec<(String, usize)> {
        let peers = self.file.peers();
        let mut names = Vec::new();
        if let Some((name, place)) = self.names.get(&nic) {
            // The peers file may have given the name to another machine since.
            if peers.addresses_of(name).is_empty() {
                names.push((name.clone(), *place));
            }
        }
        let listed = peers.with_address(address);
        for name in listed.map(|peer| peer.names.as_slice()).unwrap_or_default() {
            let mut places = peers.addresses_of(name).into_iter();
            if let Some(place) = places.position(|other| other.ip() == address) {
                names.push((name.clone(), place));
            }
        }
        // Prefer the name that the application used.
        if let Some((asked, _)) = self.names.get(&nic) {
            names.sort_by_key(|(name, _)| name != asked);
        }
        names
    }

    pub(super) fn known_peers(&self) -> Vec<KnownPeer> {
        let known = |address: IpAddr, names: Vec<String>| KnownPeer {
            nic: id::of_address(address),
            address,
            names,
            is_local: self.interfaces.has(address),
        };
        let peers = self.file.peers();
        let listed = peers.all().iter();
        let mut all: Vec<KnownPeer> = listed
            .map(|peer| known(peer.address.ip(), peer.names.clone()))
            .collect();
        let mut resolved: Vec<KnownPeer> = Vec::new();
        for (nic, (name, _)) in &self.names {
            if let Some(address) = address_in(self, *nic)
                && peers.with_address(address.ip()).is_none()
            {
                resolved.push(known(address.ip(), vec![name.clone()]));
            }
        }
        resolved.sort_by(|a, b| a.names.cmp(&b.names));
        all.append(&mut resolved);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn addresses_of_one_network_displace_no_others() {
        let mut table = Table::new(Interfaces::now(), PeersFile::new(None));
        let socket = |address: u128| SocketAddr::from((Ipv6Addr::from_bits(address), 1));
        let mut meet = |at: SocketAddr| table.meet(id::of_address(at.ip()), at);
        let (first, network) = (
            socket(0x2001_0db8_0001 << 80 | 0x10),
            0x2001_0db8_0066 << 80,
        );
        assert!(meet(first));
        for host in 0..MET_MAX as u128 + 10 {
            assert!(meet(socket(network | host)));
        }
        // A different address with the id of the first one.
        let twin = socket(0x2001_0db8_0066_0000_0b51_0268_ccb7_c837);
        assert_eq!(id::of_address(twin.ip()), id::of_address(first.ip()));
        assert!(!meet(twin) && meet(first));
        // A source seen only now is recorded, too.
        let late = socket(0x2001_0db8_0002 << 80 | 0x20);
        assert!(meet(late));
        let twin = socket(0x2001_0db8_0077_0000_779b_3256_f40b_f466);
        assert_eq!(id::of_address(twin.ip()), id::of_address(late.ip()));
        assert!(!meet(twin) && meet(late));
        assert_eq!(table.met.len(), MET_MAX);
    }
}
