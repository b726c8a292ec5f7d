//! The peers of an endpoint, named by `mx_endpoint_addr_t`.
//!
//! ```text
//!   (NIC, endpoint id) --by_name--> peer: session, remote, the program's pointer
//!                                     |  ^
//!                remote of mx-proto  v  |  by_remote
//! ```
//!
//! A peer exists while the endpoint is open, through restarts of the other side: the address stays
//! valid and keeps the program's pointer. It is removed when the program disconnects, or, dead and
//! without a pointer, when [`DEAD_KEPT`] others have died after it. Peer 0 is the endpoint itself
//! and stays.
//!
//! Of several that are connected under one name, as from behind a translator of addresses, the first has the
//! name and each of the others is found by its life. What a remote has left belongs to its peer.
//!
//! Owns: the peers.
//! Not here: requests, messages.

use crate::handles::PeerKey;
use foldhash::fast::RandomState;
use mx_proto::table::Table;
use mx_proto::{EndpointId, Identity, NicId, RemoteId, SessionId};
use std::collections::{HashMap, VecDeque};

/// A source or destination of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its name, and its life as known last.
    pub(crate) identity: Identity,
    /// The protocol endpoint's name for it, while there is a connection.
    pub(crate) remote: Option<RemoteId>,
    /// An earlier connection with the same life that has not ended: it takes the place of that one.
    pub(crate) earlier: Option<RemoteId>,
    /// The program's pointer; only handed through.
    pub(crate) context: usize,
    /// Its latest death.
    death: u64,
}

/// All peers of one endpoint.
#[derive(Debug)]
pub(crate) struct Peers {
    table: Table<PeerKey, Peer>,
    /// The youngest key that was given.
    youngest: PeerKey,
    /// Places that had a peer once.
    places: u32,
    by_name: HashMap<(NicId, EndpointId), PeerKey, RandomState>,
    /// Those behind the address of another one, each with its one life.
    twins: HashMap<(NicId, EndpointId, SessionId), PeerKey, RandomState>,
    /// At the place of each remote, the last that was there and whose it was.
    by_remote: Vec<(RemoteId, PeerKey)>,
    /// Those that died, oldest first, with the death meant.
    dead: VecDeque<(PeerKey, u64)>,
    deaths: u64,
}

/// Dead peers without a pointer that are remembered, so that addresses in statuses the program has
/// not looked at yet stay good. A server of short-lived clients has no more than these.
const DEAD_KEPT: usize = 4096;

impl Peers {
    /// The endpoint itself.
    pub(crate) const OWN: PeerKey = PeerKey {
        index: 0,
        generation: 1,
    };

    /// The peers at the start: the endpoint itself.
    pub(crate) fn new(own: Identity) -> Self {
        let mut peers = Self {
            table: Table::default(),
            youngest: Self::OWN,
            places: 0,
            by_name: HashMap::default(),
            twins: HashMap::default(),
            by_remote: Vec::new(),
            dead: VecDeque::new(),
            deaths: 0,
        };
        let key = peers.known(own);
        debug_assert_eq!(key, Self::OWN);
        peers
    }

    /// The endpoint itself has another session.
    pub(crate) fn set_own(&mut self, own: Identity) {
        if let Some(peer) = self.get_mut(Self::OWN) {
            peer.identity = own;
        }
    }

    /// Their number, the endpoint itself included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    #[inline]
    pub(crate) fn get(&self, key: PeerKey) -> Option<&Peer> {
        self.table.get(key)
    }

    #[inline]
    fn get_mut(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.table.get_mut(key)
    }

    /// Is or was there such a peer? The key comes from the program.
    #[inline]
    pub(crate) fn existed(&self, key: PeerKey) -> bool {
        self.get(key).is_some() || self.is_former(key)
    }

    #[cold]
    fn is_former(&self, key: PeerKey) -> bool {
        let generations = 1..=self.youngest.generation;
        key.index < self.places && generations.contains(&key.generation)
    }

    /// The peer of that name, added as dead if it is not known.
    pub(crate) fn remembered(&mut self, identity: Identity) -> PeerKey {
        let key = self.known_as(identity, None);
        let unheard_of = self
            .get(key)
            .is_some_and(|peer| peer.remote.is_none() && peer.death == 0);
        if unheard_of && key != Self::OWN {
            self.mourn(key);
        }
        key
    }

    /// The peer of that name, made if need be.
    fn known(&mut self, identity: Identity) -> PeerKey {
        let name = (identity.nic, identity.endpoint);
        if let Some(key) = self.by_name.get(&name) {
            return *key;
        }
        let key = self.add(identity);
        self.by_name.insert(name, key);
        key
    }

    fn add(&mut self, identity: Identity) -> PeerKey {
        self.youngest = self.table.insert(Peer {
            identity,
            remote: None,
            earlier: None,
            context: 0,
            death: 0,
        });
        self.places = self.places.max(self.youngest.index + 1);
        self.youngest
    }

    /// The peer of that name, made if need be. If that has a connection, other than to `remote`, with
    /// another life, it is another one. So is one with the name of the endpoint itself.
    fn known_as(&mut self, identity: Identity, remote: Option<RemoteId>) -> PeerKey {
        if let Some(twin) = self.twins.get(&life_of(identity)) {
            return *twin;
        }
        let key = self.known(identity);
        let is_other = |peer: &Peer| {
            let connected = peer.remote.is_some() && peer.remote != remote;
            (connected || key == Self::OWN) && peer.identity.session != identity.session
        };
        if self.get(key).is_some_and(is_other) {
            let twin = self.add(identity);
            self.twins.insert(life_of(identity), twin);
            return twin;
        }
        key
    }

    /// There is a connection to the peer of that name. If that has one with another life, this is another
    /// peer, from behind the same address.
    pub(crate) fn connected(&mut self, identity: Identity, remote: RemoteId) -> PeerKey {
        let key = self.known_as(identity, Some(remote));
        if let Some(peer) = self.get_mut(key)
            && peer.earlier != Some(remote)
        {
            let before = peer.remote.filter(|before| *before != remote);
            peer.earlier = before.or(peer.earlier);
            peer.identity = identity;
            peer.remote = Some(remote);
        }
        self.ascribe(remote, key);
        key
    }

    /// That remote is this peer, or is the name on what it has left.
    pub(crate) fn ascribe(&mut self, remote: RemoteId, key: PeerKey) {
        let place = remote.index() as usize;
        if self.by_remote.len() <= place {
            self.by_remote.resize(place + 1, (remote, key));
        }
        self.by_remote[place] = (remote, key);
    }

    /// The peer behind a remote.
    #[inline]
    pub(crate) fn of_remote(&self, remote: RemoteId) -> Option<PeerKey> {
        let (known, key) = *self.by_remote.get(remote.index() as usize)?;
        (known == remote && self.get(key).is_some()).then_some(key)
    }

    /// A connection has ended.
    pub(crate) fn lost(&mut self, remote: RemoteId) {
        let Some(key) = self.of_remote(remote) else {
            return;
        };
        match self.get_mut(key) {
            Some(peer) if peer.remote == Some(remote) => {
                peer.remote = peer.earlier.take();
                if peer.remote.is_some() {
                    return;
                }
            }
            Some(peer) => {
                peer.earlier = peer.earlier.filter(|earlier| *earlier != remote);
                return;
            }
            None => return,
        }
        self.mourn(key);
    }

    /// Attaches the program's pointer. False for an unknown key.
    pub(crate) fn set_context(&mut self, key: PeerKey, context: usize) -> bool {
        let Some(peer) = self.get_mut(key) else {
            return false;
        };
        peer.context = context;
        if context == 0 && peer.remote.is_none() {
            self.mourn(key);
        }
        true
    }

    /// Drops a peer; tells its connection, if there was one. The endpoint itself stays, without
    /// its pointer.
    pub(crate) fn remove(&mut self, key: PeerKey) -> Option<RemoteId> {
        let peer = self.get_mut(key)?;
        let remote = peer.remote.take();
        peer.earlier = None;
        if key == Self::OWN {
            peer.context = 0;
            return remote;
        }
        let (name, life) = (
            (peer.identity.nic, peer.identity.endpoint),
            life_of(peer.identity),
        );
        self.table.remove(key);
        if self.by_name.get(&name) == Some(&key) {
            self.by_name.remove(&name);
        }
        if self.twins.get(&life) == Some(&key) {
            self.twins.remove(&life);
        }
        remote
    }

    /// Remembers that a peer is dead, and forgets those that have been for long.
    fn mourn(&mut self, key: PeerKey) {
        self.deaths += 1;
        let death = self.deaths;
        if let Some(peer) = self.get_mut(key) {
            peer.death = death;
        }
        self.dead.push_back((key, death));
        if self.dead.len() <= DEAD_KEPT {
            return;
        }
        let Some((oldest, death)) = self.dead.pop_front() else {
            return;
        };
        let unwanted = self
            .get(oldest)
            .is_some_and(|peer| peer.death == death && peer.remote.is_none() && peer.context == 0);
        if unwanted && oldest != Self::OWN {
            self.remove(oldest);
        }
    }
}

fn life_of(identity: Identity) -> (NicId, EndpointId, SessionId) {
    (identity.nic, identity.endpoint, identity.session)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(endpoint: u32, session: u64) -> Identity {
        Identity {
            nic: NicId(7),
            endpoint: EndpointId(endpoint),
            session: SessionId(session),
        }
    }

    fn remote(n: u32) -> RemoteId {
        RemoteId::new(n, 1)
    }

    #[test]
    fn a_peer_that_restarts_keeps_its_key_and_its_pointer() {
        let mut peers = Peers::new(identity(0, 1));
        let key = peers.connected(identity(3, 10), remote(1));
        assert!(peers.set_context(key, 0x77));
        peers.lost(remote(1));
        assert_eq!(peers.get(key).unwrap().remote, None);
        assert_eq!(peers.connected(identity(3, 11), remote(2)), key);
        // The loss of the former life counts no more.
        peers.lost(remote(1));
        let peer = peers.get(key).unwrap();
        assert_eq!(peer.identity, identity(3, 11));
        assert_eq!((peer.remote, peer.context), (Some(remote(2)), 0x77));
    }

    #[test]
    fn peers_behind_one_address_do_not_end_with_each_other() {
        let mut peers = Peers::new(identity(0, 1));
        let first = peers.connected(identity(3, 10), remote(1));
        let twin = peers.connected(identity(3, 20), remote(2));
        assert_ne!(first, twin);
        assert!(peers.set_context(first, 1) && peers.set_context(twin, 2));
        // One that has gone is known by its life, and so is what it has left.
        peers.lost(remote(2));
        assert_eq!(peers.get(first).unwrap().remote, Some(remote(1)));
        assert_eq!(peers.remembered(identity(3, 20)), twin);
        assert_eq!(peers.connected(identity(3, 20), remote(3)), twin);
        peers.lost(remote(1));
        assert_eq!(peers.get(twin).unwrap().remote, Some(remote(3)));
        assert_eq!(peers.remembered(identity(3, 10)), first);
        // The next life is that of the one that has the name.
        assert_eq!(peers.connected(identity(3, 11), remote(4)), first);
        assert_eq!(peers.remove(first), Some(remote(4)));
        assert_eq!(peers.of_remote(remote(3)), Some(twin));
        assert_eq!(peers.connected(identity(3, 20), remote(5)), twin);
        peers.remove(twin);
        let again = peers.connected(identity(3, 20), remote(6));
        assert!(again != twin && peers.twins.is_empty());
    }

    #[test]
    fn of_two_connections_with_one_life_either_may_end_first() {
        for (ends, stays) in [(1, 2), (2, 1)] {
            let mut peers = Peers::new(identity(0, 1));
            let key = peers.connected(identity(3, 10), remote(1));
            assert_eq!(peers.connected(identity(3, 10), remote(2)), key);
            peers.lost(remote(ends));
            assert_eq!(peers.get(key).unwrap().remote, Some(remote(stays)));
            peers.lost(remote(stays));
            assert_eq!(peers.get(key).unwrap().remote, None);
        }
    }

    #[test]
    fn another_one_with_the_name_of_the_endpoint_itself_is_a_peer_of_its_own() {
        let mut peers = Peers::new(identity(0, 1));
        let other = peers.connected(identity(0, 2), remote(1));
        assert_ne!(other, Peers::OWN);
        let own = peers.get(Peers::OWN).unwrap();
        assert_eq!((own.identity, own.remote), (identity(0, 1), None));
    }

    #[test]
    fn a_removed_peer_is_gone_and_a_made_up_one_never_was() {
        let mut peers = Peers::new(identity(0, 1));
        let key = peers.connected(identity(3, 10), remote(1));
        assert_eq!(peers.remove(key), Some(remote(1)));
        assert!(peers.get(key).is_none() && peers.existed(key));
        let again = peers.connected(identity(3, 10), remote(2));
        assert_eq!(again.index, key.index);
        assert!(peers.get(key).is_none() && peers.existed(key));
        assert!(peers.get(again).is_some());
        for (index, generation) in [(1, 0), (1, 9), (2, 1), (u32::MAX, u32::MAX)] {
            let made_up = PeerKey { index, generation };
            assert!(!peers.existed(made_up));
            assert!(!peers.set_context(made_up, 1));
        }
        assert_eq!(peers.of_remote(remote(1)), None);
        assert_eq!(peers.of_remote(remote(2)), Some(again));
        assert_eq!(peers.of_remote(RemoteId::new(2, 2)), None);
    }

    #[test]
    fn the_endpoint_itself_cannot_be_removed() {
        let mut peers = Peers::new(identity(0, 1));
        assert_eq!(peers.connected(identity(0, 1), remote(4)), Peers::OWN);
        peers.set_context(Peers::OWN, 5);
        assert_eq!(peers.remove(Peers::OWN), Some(remote(4)));
        let own = peers.get(Peers::OWN).unwrap();
        assert_eq!((own.remote, own.context), (None, 0));
    }

    #[test]
    fn of_many_dead_peers_the_oldest_without_a_pointer_go() {
        let mut peers = Peers::new(identity(0, 1));
        let wanted = peers.connected(identity(1, 1), remote(1));
        peers.set_context(wanted, 1);
        peers.lost(remote(1));
        let mut keys = Vec::new();
        for n in 0..DEAD_KEPT as u32 + 10 {
            let who = identity(1000 + n, 1);
            keys.push(peers.connected(who, remote(2 + n)));
            peers.lost(remote(2 + n));
        }
        assert!(peers.get(wanted).is_some());
        assert!(peers.get(keys[0]).is_none() && peers.get(keys[9]).is_none());
        assert!(peers.get(keys[10]).is_some());
        assert_eq!(peers.len(), DEAD_KEPT + 2);
        // Those whose connection was over before they were known are dead as well.
        peers.remembered(identity(500, 1));
        assert_eq!(peers.len(), DEAD_KEPT + 2);
        assert!(peers.get(keys[10]).is_none() && peers.get(keys[11]).is_some());
        // Without its pointer it is the youngest of the dead.
        peers.set_context(wanted, 0);
        assert!(peers.get(wanted).is_some() && peers.get(keys[11]).is_none());
    }
}
