//! The peers of an endpoint, named by `mx_endpoint_addr_t`.
//!
//! ```text
//!   (NIC, endpoint id) --by_name--> peer: name and life, the program's pointer
//!                                     |  ^
//!            sends go over the first  v  |  by_remote
//!                 joined remotes of mx-proto: one for each connection between the two processes
//! ```
//!
//! A peer exists while the endpoint is open, through restarts of its process: the address stays valid and keeps the
//! program's pointer. The peer is lost with the session that carries the sends, until the next connect or a session of
//! its next life. A peer is removed when the program disconnects, or, if lost and without a pointer, when [`DEAD_KEPT`]
//! others have been lost after it. Peer 0 is the endpoint itself and stays; both ends of a connection to itself are its
//! sessions.
//!
//! A session that claims the name or life of a peer with another session, and is not joined with that one, is a
//! separate peer: a twin, as from behind a NAT. The first has the name, each twin is found by its life. Messages left
//! by a remote belong to its peer.
//!
//! Owns: the peers.
//! Out of scope: requests, messages.

use crate::handles::PeerKey;
use foldhash::fast::RandomState;
use mx_proto::table::Table;
use mx_proto::{EndpointId, Identity, NicId, RemoteId, SessionId};
use std::collections::{HashMap, VecDeque};

/// A source or destination of messages.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Name, and the life known last.
    pub(crate) identity: Identity,
    /// Session that carries the sends; `None` while the peer is lost.
    pub(crate) remote: Option<RemoteId>,
    /// Further sessions with the peer's process, oldest first.
    joined: Vec<RemoteId>,
    /// The program's pointer, not dereferenced.
    pub(crate) context: usize,
    /// Number of the peer's latest loss, in `Peers::deaths`; 0: none.
    death: u64,
}

/// All peers of one endpoint.
#[derive(Debug)]
pub(crate) struct Peers {
    table: Table<PeerKey, Peer>,
    /// The newest key.
    youngest: PeerKey,
    /// Number of places ever used.
    places: u32,
    by_name: HashMap<(NicId, EndpointId), PeerKey, RandomState>,
    /// Peers behind another peer's address, by their one life.
    twins: HashMap<(NicId, EndpointId, SessionId), PeerKey, RandomState>,
    /// By the place of each remote: the last remote there, and its peer.
    by_remote: Vec<(RemoteId, PeerKey)>,
    /// Lost peers, oldest first, with the number of the loss.
    dead: VecDeque<(PeerKey, u64)>,
    deaths: u64,
}

/// Maximum number of lost peers without a pointer that are kept, so that addresses in untested statuses stay valid.
/// Bounds the memory of a server with short-lived clients.
const DEAD_KEPT: usize = 4096;

impl Peer {
    /// Returns the peer's sessions; the one that carries the sends is first.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = RemoteId> {
        self.remote.into_iter().chain(self.joined.iter().copied())
    }

    fn is_dead(&self) -> bool {
        self.sessions().next().is_none()
    }

    /// Makes a session carry the sends, unless one does.
    fn set_send_session(&mut self, remote: RemoteId) {
        if self.remote.is_none() {
            self.joined.retain(|known| *known != remote);
            self.remote = Some(remote);
        }
    }
}

impl Peers {
    /// Key of the endpoint itself.
    pub(crate) const OWN: PeerKey = PeerKey {
        index: 0,
        generation: 1,
    };

    /// Makes a table with the endpoint itself.
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
        let key = peers.add(own);
        debug_assert_eq!(key, Self::OWN);
        peers.by_name.insert(name_of(own), key);
        peers
    }

    /// Stores the new session of the endpoint itself.
    pub(crate) fn set_own(&mut self, own: Identity) {
        if let Some(peer) = self.get_mut(Self::OWN) {
            peer.identity = own;
        }
    }

    /// Returns the number of peers with a name, the endpoint itself included.
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

    /// Returns whether such a peer exists or existed. The key comes from the program.
    #[inline]
    pub(crate) fn existed(&self, key: PeerKey) -> bool {
        self.get(key).is_some() || self.is_former(key)
    }

    #[cold]
    fn is_former(&self, key: PeerKey) -> bool {
        let generations = 1..=self.youngest.generation;
        key.index < self.places && generations.contains(&key.generation)
    }

    /// Returns the peer that has a name.
    pub(crate) fn named(&self, nic: NicId, endpoint: EndpointId) -> Option<PeerKey> {
        self.by_name.get(&(nic, endpoint)).copied()
    }

    /// Returns the peer of a session that ended before it was handled; an unknown peer is added as lost.
    pub(crate) fn remembered(&mut self, identity: Identity) -> PeerKey {
        let key = self.without_session(identity);
        if self.get(key).is_some_and(|peer| peer.death == 0) {
            self.record_death(key);
        }
        key
    }

    fn add(&mut self, identity: Identity) -> PeerKey {
        self.youngest = self.table.insert(Peer {
            identity,
            remote: None,
            joined: Vec::new(),
            context: 0,
            death: 0,
        });
        self.places = self.places.max(self.youngest.index + 1);
        self.youngest
    }

    /// Returns the peer for a session that is joined with none: the one of its life or name that has no session, or a
    /// new one.
    fn without_session(&mut self, identity: Identity) -> PeerKey {
        let own = self.get(Self::OWN).map(|own| own.identity.session);
        if own == Some(identity.session) {
            return Self::OWN;
        }
        let (name, life) = (name_of(identity), life_of(identity));
        let known = [self.twins.get(&life), self.by_name.get(&name)];
        let is_free =
            |key: &&PeerKey| **key != Self::OWN && self.get(**key).is_some_and(Peer::is_dead);
        if let Some(key) = known.into_iter().flatten().find(is_free) {
            return *key;
        }
        let key = self.add(identity);
        if *self.by_name.entry(name).or_insert(key) != key {
            self.twins.insert(life, key);
        }
        key
    }

    /// Adds a session that has sent a message and is joined with none.
    pub(crate) fn connected(&mut self, identity: Identity, remote: RemoteId) -> PeerKey {
        let key = self.without_session(identity);
        if let Some(peer) = self.get_mut(key) {
            peer.identity.session = identity.session;
            peer.joined.push(remote);
            peer.set_send_session(remote);
        }
        self.assign_remote(remote, key);
        key
    }

    /// Records that two sessions belong to one process. `identity`: the name and life of the first.
    pub(crate) fn joined(&mut self, one: RemoteId, other: RemoteId, identity: Identity) {
        let known = self.of_remote(one).or_else(|| self.of_remote(other));
        let key = known.unwrap_or_else(|| self.connected(identity, one));
        for remote in [one, other] {
            if self.of_remote(remote).is_none()
                && let Some(peer) = self.get_mut(key)
            {
                peer.joined.push(remote);
                self.assign_remote(remote, key);
            }
        }
    }

    /// Records that a connect has been answered on a session.
    pub(crate) fn answered(&mut self, remote: RemoteId) {
        if let Some(key) = self.of_remote(remote)
            && let Some(peer) = self.get_mut(key)
        {
            peer.set_send_session(remote);
        }
    }

    /// Records that a remote, or a tombstone, belongs to a peer.
    pub(crate) fn assign_remote(&mut self, remote: RemoteId, key: PeerKey) {
        let place = remote.index() as usize;
        if self.by_remote.len() <= place {
            self.by_remote.resize(place + 1, (remote, key));
        }
        self.by_remote[place] = (remote, key);
    }

    /// Returns the peer of a remote.
    #[inline]
    pub(crate) fn of_remote(&self, remote: RemoteId) -> Option<PeerKey> {
        let (known, key) = *self.by_remote.get(remote.index() as usize)?;
        (known == remote && self.get(key).is_some()).then_some(key)
    }

    /// Removes an ended session.
    pub(crate) fn lost(&mut self, remote: RemoteId) {
        if let Some(key) = self.of_remote(remote)
            && let Some(peer) = self.get_mut(key)
            && peer.sessions().any(|known| known == remote)
        {
            peer.remote.take_if(|carries| *carries == remote);
            peer.joined.retain(|known| *known != remote);
            if peer.is_dead() {
                self.record_death(key);
            }
        }
    }

    /// Attaches the program's pointer. Returns false for an unknown key.
    pub(crate) fn set_context(&mut self, key: PeerKey, context: usize) -> bool {
        let Some(peer) = self.get_mut(key) else {
            return false;
        };
        peer.context = context;
        if context == 0 && peer.is_dead() {
            self.record_death(key);
        }
        true
    }

    /// Removes a peer. The endpoint itself stays, without sessions and pointer.
    pub(crate) fn remove(&mut self, key: PeerKey) {
        if key == Self::OWN {
            if let Some(own) = self.get_mut(key) {
                (own.remote, own.context) = (None, 0);
                own.joined.clear();
            }
            return;
        }
        let Some(peer) = self.table.remove(key) else {
            return;
        };
        let (name, life) = (name_of(peer.identity), life_of(peer.identity));
        if self.by_name.get(&name) == Some(&key) {
            self.by_name.remove(&name);
        }
        if self.twins.get(&life) == Some(&key) {
            self.twins.remove(&life);
        }
    }

    /// Records the loss of a peer, and removes the oldest lost peers above the limit.
    fn record_death(&mut self, key: PeerKey) {
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
            .is_some_and(|peer| peer.death == death && peer.is_dead() && peer.context == 0);
        if unwanted && oldest != Self::OWN {
            self.remove(oldest);
        }
    }
}

fn name_of(identity: Identity) -> (NicId, EndpointId) {
    (identity.nic, identity.endpoint)
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
        // The loss of the previous life no longer matters.
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
        // A lost twin is found by its life, and so are its messages.
        peers.lost(remote(2));
        assert_eq!(peers.get(first).unwrap().remote, Some(remote(1)));
        assert_eq!(peers.remembered(identity(3, 20)), twin);
        assert_eq!(peers.connected(identity(3, 20), remote(3)), twin);
        peers.lost(remote(1));
        assert_eq!(peers.get(twin).unwrap().remote, Some(remote(3)));
        assert_eq!(peers.remembered(identity(3, 10)), first);
        // The next life belongs to the peer that has the name.
        assert_eq!(peers.connected(identity(3, 11), remote(4)), first);
        assert_eq!(peers.get(first).unwrap().remote, Some(remote(4)));
        peers.remove(first);
        assert_eq!(peers.of_remote(remote(3)), Some(twin));
        peers.lost(remote(3));
        assert_eq!(peers.connected(identity(3, 20), remote(5)), twin);
        peers.remove(twin);
        let again = peers.connected(identity(3, 20), remote(6));
        assert!(again != twin && peers.twins.is_empty());
    }

    #[test]
    fn joined_sessions_are_one_peer_whichever_is_heard_of_first() {
        for first in [None, Some(1), Some(2)] {
            let mut peers = Peers::new(identity(0, 1));
            let known = first.map(|first| peers.connected(identity(3, 10), remote(first)));
            // A repeated claim changes nothing.
            for (one, other) in [(1, 2), (2, 1), (1, 2)] {
                peers.joined(remote(one), remote(other), identity(3, 10));
            }
            let carries = first.unwrap_or(1);
            let key = peers.of_remote(remote(3 - carries)).unwrap();
            assert!(known.is_none_or(|known| known == key));
            assert_eq!(peers.of_remote(remote(carries)), Some(key));
            let peer = peers.get(key).unwrap();
            assert_eq!(peer.remote, Some(remote(carries)));
            assert!(peer.sessions().eq([carries, 3 - carries].map(remote)));
        }
    }

    #[test]
    fn a_peer_is_lost_with_the_session_that_carries_the_sends() {
        for (ends, stays) in [(1, 2), (2, 1)] {
            let mut peers = Peers::new(identity(0, 1));
            let key = peers.connected(identity(3, 10), remote(1));
            peers.joined(remote(1), remote(2), identity(3, 10));
            peers.lost(remote(ends));
            let carries = (ends == 2).then_some(remote(1));
            let peer = peers.get(key).unwrap();
            assert_eq!(peer.remote, carries);
            assert!(peer.sessions().eq([remote(stays)]));
            // A stranger with its name and life does not replace it.
            assert_ne!(peers.connected(identity(3, 10), remote(3)), key);
            peers.answered(remote(stays));
            assert_eq!(peers.get(key).unwrap().remote, Some(remote(stays)));
            peers.lost(remote(stays));
            assert_eq!(peers.get(key).unwrap().remote, None);
            assert_eq!(peers.connected(identity(3, 11), remote(4)), key);
        }
    }

    #[test]
    fn unjoined_sessions_are_separate_peers() {
        let mut peers = Peers::new(identity(0, 1));
        let known = peers.connected(identity(3, 10), remote(1));
        let impostors = [2, 3].map(|n| peers.connected(identity(3, 10), remote(n)));
        assert!(impostors[0] != known && impostors[1] != known && impostors[0] != impostors[1]);
        // A session that has ended has left nothing under another peer's name.
        let gone = peers.remembered(identity(3, 10));
        assert!(gone != known && !impostors.contains(&gone));
        assert_eq!(peers.get(known).unwrap().remote, Some(remote(1)));
    }

    #[test]
    fn remote_with_our_own_name_is_a_peer_of_its_own() {
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
        peers.remove(key);
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
        assert_eq!(peers.connected(identity(0, 1), remote(5)), Peers::OWN);
        assert_eq!(peers.get(Peers::OWN).unwrap().remote, Some(remote(4)));
        peers.remove(Peers::OWN);
        let own = peers.get(Peers::OWN).unwrap();
        assert_eq!((own.sessions().count(), own.context), (0, 0));
    }

    #[test]
    fn of_many_dead_peers_the_oldest_without_a_pointer_go() {
        let mut peers = Peers::new(identity(0, 9));
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
        // Peers whose connection ended before they were known count as lost.
        peers.remembered(identity(500, 1));
        assert_eq!(peers.len(), DEAD_KEPT + 2);
        assert!(peers.get(keys[10]).is_none() && peers.get(keys[11]).is_some());
        // Without its pointer it is the newest lost peer.
        peers.set_context(wanted, 0);
        assert!(peers.get(wanted).is_some() && peers.get(keys[11]).is_none());
    }
}
