//! All peers of one method.
//!
//! ```text
//!   address object (many) -------------.
//!   target of an outgoing connection --+--> PeerKey { id, generation } --> Peer
//!   remote's context word -------------'
//!
//!   ids: 1, 2, 3, ...   freed ones wait, oldest first, and are reused when 1024 wait or the numbers are used up
//! ```
//!
//! The peer puts this id into every message to this process (`rx_id`), so it must not be given to another peer while a
//! receive with it is posted. Therefore a peer with operations is not removed.
//!
//! Owns: ids.
//! Cost: every look-up is O(1).

use super::attempts::Attempts;
use super::conversation::Conversation;
use super::state::State;
use crate::abi::types::{BMI_addr_t, bmi_method_addr};
use crate::address;
use crate::match_layout::PEER_ID_MAX;
use foldhash::fast::RandomState;
use mx_proto::ops::List;
use mx_proto::{Instant, NicId, Reminder, Target, table};
use mx_sys::nic::ADDRESSES_MAX;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;

/// Key of a peer in [`Peers`]; finds nothing once the peer is removed, even if another one has its id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerKey {
    id: u32,
    generation: u32,
}

impl PeerKey {
    /// Key of no peer.
    pub const NONE: Self = Self {
        id: 0,
        generation: 0,
    };

    /// Returns the id that this process gave the peer (`rx_id`), which the peer puts into every message to this
    /// process.
    #[inline]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// Returns the key as a word, for the endpoint's contexts. Its highest bit is 0; the word is 0 only for
    /// [`Self::NONE`].
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.id as u64
    }

    /// Converts a word back to a key, which may be stale.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self {
            id: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

/// Registration with the host of a peer that sent an unexpected message without the host having looked it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostRegistration {
    /// No registration: not needed, or the host has dropped the object.
    No,
    /// A thread is registering this object.
    Registering(*mut bmi_method_addr),
    /// The host knows the peer by this object.
    Known {
        /// Address object given to the host.
        addr: *mut bmi_method_addr,
        /// The host's id.
        name: BMI_addr_t,
        /// Whether the host has been told that the peer is lost.
        forgotten: bool,
    },
}

/// Address object by which the host refers to a peer.
#[derive(Debug)]
pub struct Object {
    /// Pointer that the host has.
    pub addr: *mut bmi_method_addr,
    /// Interfaces that its name resolves to, in the order of trial; empty for a peer that connected.
    pub nics: Box<[NicId]>,
    /// Whether the object comes from the host's look-up, so that unexpected messages may be reported from it.
    pub looked_up: bool,
}

/// Data of a peer in WAIT.
#[derive(Default, Debug)]
pub struct Wait {
    /// Attempts to connect, while in Connecting.
    pub attempts: Attempts,
    /// Time at which connecting fails, and the reminder set for it; `None` without a time limit.
    pub until: Option<(Instant, Reminder)>,
}

/// A remote endpoint, as the method knows it.
#[derive(Debug)]
pub struct Peer {
    /// Key of the peer.
    pub key: PeerKey,
    /// Name, for display.
    pub name: Box<str>,
    /// State of the connection.
    pub state: State,
    /// Target of connections to the peer: the first interface that its name resolves to, endpoint and route. For a peer
    /// that connected, its origin.
    pub target: Target,
    /// Data of WAIT, while in WAIT.
    pub wait: Option<Box<Wait>>,
    /// Interface at which the peer was last reached; `None` if it never was.
    pub reached: Option<NicId>,
    /// Address objects of the peer, oldest first.
    pub objects: SmallVec<[Object; 1]>,
    /// State of the conversation, which decides whether expected operations can have a counterpart.
    pub conversation: Conversation,
    /// Whether receives of the peer may be provisional.
    pub has_provisional: bool,
    /// Whether a handshake message to the peer is still queued.
    pub handshake_waits: bool,
    /// Whether the peer was lost or unreachable since its name was last resolved.
    pub name_doubted: bool,
    /// Number of CONN_REQs from the peer while READY.
    pub again: u8,
    /// Whether the peer connected to this process; such a peer is never called back.
    pub has_called: bool,
    /// Registration of the peer with the host.
    pub inbound: HostRegistration,
    /// Operations that wait for READY, in the order of posting.
    pub pending: List,
}

// SAFETY: the pointers are only compared and passed back to the host.
unsafe impl Send for Peer {}

impl Peer {
    /// Returns the peer's interfaces in the order of trial: the one at which it was last reached, then those of its
    /// address objects, at most [`ADDRESSES_MAX`].
    pub fn addresses(&self) -> Vec<NicId> {
        let mut all = Vec::new();
        for nic in self.objects.iter().flat_map(|object| &object.nics[..]) {
            if !all.contains(nic) {
                all.push(*nic);
            }
        }
        if let Some(place) = all.iter().position(|nic| Some(*nic) == self.reached) {
            all[..=place].rotate_right(1);
        }
        all.truncate(ADDRESSES_MAX);
        all
    }

    /// Returns the attempts of the connect in progress; `None` if the peer is not in WAIT.
    pub fn attempts_mut(&mut self) -> Option<&mut Attempts> {
        Some(&mut self.wait.as_mut()?.attempts)
    }

    /// Returns the first interface that this connect has not tried; `None` if all have been tried.
    pub fn untried(&self) -> Option<NicId> {
        let mut addresses = self.addresses().into_iter();
        let wait = self.wait.as_ref();
        let has_tried = |nic| wait.is_some_and(|wait| wait.attempts.has_tried(nic));
        addresses.find(|nic| !has_tried(*nic))
    }
}

/// All peers of one method.
#[derive(Debug)]
pub struct Peers {
    /// Peers by id. Entry 0 is never used.
    slots: Vec<Option<Box<Peer>>>,
    freed: VecDeque<u32>,
    /// Generation given last: each new peer gets the next.
    generation: u32,
    limit: u32,
    /// Peers that this process connects to, by target.
    calls: HashMap<Target, PeerKey, RandomState>,
}

/// Number of freed ids that wait before the oldest is reused.
const REUSE_DELAY: usize = 1024;

/// Largest generation, which leaves the highest bit of a key's word for other uses.
const GENERATIONS: u32 = (1 << 31) - 1;

impl Default for Peers {
    fn default() -> Self {
        Self::new(PEER_ID_MAX)
    }
}

impl Peers {
    /// Makes an empty table with ids from 1 to `limit`.
    pub fn new(limit: u32) -> Self {
        Self {
            slots: vec![None],
            freed: VecDeque::new(),
            generation: 0,
            limit,
            calls: HashMap::default(),
        }
    }

    /// Returns the number of peers.
    pub fn len(&self) -> usize {
        self.slots.len() - 1 - self.freed.len()
    }

    /// Returns whether there is no peer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of peers.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Adds a peer that this process will connect to, in INIT. [`Peers::called`] finds it under `target`, unless
    /// another peer is there already. `None` if all ids are in use.
    pub fn add(&mut self, target: Target, name: &str) -> Option<PeerKey> {
        let key = self.add_one(target, name, false)?;
        self.calls.entry(target).or_insert(key);
        Some(key)
    }

    /// Adds a peer that has connected to this process, in INIT. [`Peers::called`] does not find it under `target`.
    /// `None` if all ids are in use.
    pub fn add_caller(&mut self, target: Target, name: &str) -> Option<PeerKey> {
        self.add_one(target, name, true)
    }

    fn add_one(&mut self, target: Target, name: &str, has_called: bool) -> Option<PeerKey> {
        let fresh = self.slots.len() as u32;
        let reuse = self.freed.len() >= REUSE_DELAY || fresh > self.limit;
        let id = if reuse {
            self.freed.pop_front()?
        } else {
            table::reserve(&mut self.slots, fresh as usize + 1);
            self.slots.push(None);
            fresh
        };
        self.generation = self.generation % GENERATIONS + 1;
        let key = PeerKey {
            id,
            generation: self.generation,
        };
        self.slots[id as usize] = Some(Box::new(Peer {
            key,
            name: name.into(),
            state: State::Init,
            target,
            wait: None,
            reached: None,
            objects: SmallVec::new(),
            conversation: Conversation::default(),
            has_provisional: false,
            handshake_waits: false,
            name_doubted: false,
            again: 0,
            has_called,
            inbound: HostRegistration::No,
            pending: List::EMPTY,
        }));
        Some(key)
    }

    /// Removes and returns a peer, which must have no operations; its id may be reused.
    pub fn remove(&mut self, key: PeerKey) -> Option<Box<Peer>> {
        self.get(key)?;
        let peer = self.slots[key.id as usize].take()?;
        self.freed.push_back(key.id);
        self.forget_call(peer.target, key);
        debug_assert!(peer.pending.is_empty(), "{} has operations", peer.name);
        Some(peer)
    }

    /// Returns the peer of that key, unless it was removed.
    #[inline]
    pub fn get(&self, key: PeerKey) -> Option<&Peer> {
        let slot = self.slots.get(key.id as usize)?;
        // One comparison.
        slot.as_deref()
            .filter(|peer| peer.key.to_word() == key.to_word())
    }

    /// Returns the peer of that key, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: PeerKey) -> Option<&mut Peer> {
        let slot = self.slots.get_mut(key.id as usize)?;
        slot.as_deref_mut().filter(|peer| peer.key == key)
    }

    /// Returns the key of the peer that has the id `id` now; `None` if no peer has it.
    #[inline]
    pub fn with_id(&self, id: u32) -> Option<PeerKey> {
        let peer = self.slots.get(id as usize)?.as_deref();
        peer.map(|peer| peer.key)
    }

    /// Returns the peer that this process connects to at `target`; `None` if there is none.
    pub fn called(&self, target: Target) -> Option<PeerKey> {
        self.calls.get(&target).copied()
    }

    fn forget_call(&mut self, target: Target, key: PeerKey) {
        if self.calls.get(&target) == Some(&key) {
            self.calls.remove(&target);
        }
    }

    /// Merges the peer that this process connects to as `key` with the one that has connected as `caller`, which gets
    /// its objects and its target.
    pub fn hand_over(&mut self, key: PeerKey, caller: PeerKey) {
        let Some(peer) = self.get_mut(key) else {
            return;
        };
        let (target, objects) = (peer.target, std::mem::take(&mut peer.objects));
        self.forget_call(target, key);
        self.calls.entry(target).or_insert(caller);
        if let Some(peer) = self.get_mut(caller) {
            (peer.target, peer.has_called) = (target, false);
        }
        for Object {
            addr,
            nics,
            looked_up,
        } in objects
        {
            self.attach(addr, caller, nics, looked_up);
        }
    }

    /// Stores the interfaces that an address object's name resolves to now. The peer's target moves to the first of
    /// them.
    pub fn readdress(&mut self, addr: *mut bmi_method_addr, nics: &[NicId]) {
        let peer = self.of_addr(addr).and_then(|key| self.get_mut(key));
        let (Some(peer), Some(&nic)) = (peer, nics.first()) else {
            return;
        };
        for object in peer.objects.iter_mut().filter(|known| known.addr == addr) {
            object.nics = nics.into();
        }
        let (key, before) = (peer.key, peer.target);
        peer.target.nic = nic;
        let target = peer.target;
        self.forget_call(before, key);
        self.calls.entry(target).or_insert(key);
    }

    /// Returns the key of an address object's peer.
    #[inline]
    pub fn of_addr(&self, addr: *mut bmi_method_addr) -> Option<PeerKey> {
        address::peer(addr).map(|word| PeerKey::from_word(word.get()))
    }

    /// Returns the peer that an address object refers to.
    pub fn at_addr(&self, addr: *mut bmi_method_addr) -> Option<&Peer> {
        self.get(self.of_addr(addr)?)
    }

    /// Attaches an address object, with the interfaces of its name, to a peer.
    pub fn attach(
        &mut self,
        addr: *mut bmi_method_addr,
        key: PeerKey,
        nics: Box<[NicId]>,
        looked_up: bool,
    ) {
        if let Some(peer) = self.get_mut(key) {
            peer.objects.push(Object {
                addr,
                nics,
                looked_up,
            });
            address::set_peer(addr, NonZeroU64::new(key.to_word()));
        }
    }

    /// Detaches a dropped address object from its peer, and ends a registration of the peer with the host by that
    /// object. Returns the peer's key; `None` if there was no peer.
    pub fn detach(&mut self, addr: *mut bmi_method_addr) -> Option<PeerKey> {
        let key = self.of_addr(addr)?;
        address::set_peer(addr, None);
        let peer = self.get_mut(key)?;
        peer.objects.retain(|known| known.addr != addr);
        match peer.inbound {
            HostRegistration::Registering(known) | HostRegistration::Known { addr: known, .. }
                if known == addr =>
            {
                peer.inbound = HostRegistration::No;
            }
            _ => {}
        }
        Some(key)
    }

    /// Returns every peer's key.
    pub fn keys(&self) -> Vec<PeerKey> {
        let peers = self.slots.iter().filter_map(Option::as_deref);
        peers.map(|peer| peer.key).collect()
    }
}

impl Drop for Peers {
    /// The objects stay, without a peer.
    fn drop(&mut self) {
        let peers = self.slots.iter().filter_map(Option::as_deref);
        for object in peers.flat_map(|peer| &peer.objects) {
            address::set_peer(object.addr, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_name::PeerName;
    use mx_proto::{EndpointId, Route};
    use std::ptr;

    fn target(endpoint: u32) -> Target {
        Target {
            nic: NicId(1),
            endpoint: EndpointId(endpoint),
            route: Route::AUTO,
        }
    }

    fn name() -> PeerName {
        PeerName {
            host: "n1".into(),
            board: None,
            endpoint: Some(1),
            route: Route::AUTO,
        }
    }

    fn add(peers: &mut Peers, endpoint: u32) -> Option<PeerKey> {
        peers.add(target(endpoint), &format!("mx://n1:{endpoint}"))
    }

    #[test]
    fn ids_after_the_last_one_come_from_peers_that_are_gone() {
        let mut peers = Peers::new(3);
        let keys: Vec<_> = (0..3).map(|n| add(&mut peers, n).unwrap()).collect();
        assert_eq!([1, 2, 3], [keys[0].id(), keys[1].id(), keys[2].id()]);
        assert_eq!(add(&mut peers, 9), None);
        assert!(peers.remove(keys[1]).is_some());
        assert!(peers.remove(keys[1]).is_none());
        let again = add(&mut peers, 9).unwrap();
        assert_eq!(again.id(), 2);
        assert_ne!(again, keys[1]);
        assert!(peers.get(keys[1]).is_none());
        assert!(peers.get(again).is_some());
        assert_eq!(peers.len(), 3);
    }

    #[test]
    fn last_20_bit_id_is_used_then_the_oldest_free_one() {
        let mut peers = Peers::default();
        let mut first = None;
        // Only the last few live at the same time, as with clients that come and go.
        for round in 0..PEER_ID_MAX + 5 {
            let key = add(&mut peers, round).unwrap();
            assert!((1..=PEER_ID_MAX).contains(&key.id()));
            if round > 2 {
                assert!(peers.remove(key).is_some());
            } else {
                first = first.or(Some(key));
            }
        }
        assert!(peers.get(first.unwrap()).is_some());
        // Memory follows the number of live peers, not of all there ever were.
        assert!(peers.slots.len() < REUSE_DELAY + 10);
    }

    #[test]
    fn freed_ids_rest_before_they_are_used_again() {
        let mut peers = Peers::default();
        let first = add(&mut peers, 0).unwrap();
        peers.remove(first);
        for n in 1..REUSE_DELAY as u32 {
            let key = add(&mut peers, n).unwrap();
            assert_ne!(key.id(), first.id());
            peers.remove(key);
        }
        assert_eq!(add(&mut peers, 0).unwrap().id(), first.id());
    }

    #[test]
    fn of_two_peers_with_one_target_the_first_is_found() {
        let mut peers = Peers::default();
        let caller = peers.add_caller(target(1), "mx://n1:1").unwrap();
        assert_eq!(peers.called(target(1)), None, "it has called");
        let (first, second) = (add(&mut peers, 1).unwrap(), add(&mut peers, 1).unwrap());
        assert_eq!(peers.called(target(1)), Some(first));
        peers.remove(second);
        peers.remove(caller);
        assert_eq!(peers.called(target(1)), Some(first));
        let addr = address::create(name(), None).unwrap().as_ptr();
        peers.attach(addr, first, [NicId(1)].into(), true);
        peers.readdress(addr, &[2, 3].map(NicId));
        let moved = peers.get(first).unwrap();
        assert_eq!(moved.addresses(), [2, 3].map(NicId));
        assert_eq!(peers.called(target(1)), None);
        let there = Target {
            nic: NicId(2),
            ..target(1)
        };
        assert_eq!(peers.called(there), Some(first));
        peers.detach(addr);
        assert!(address::remove(addr));
        peers.remove(first);
        assert_eq!(peers.called(there), None);
    }

    #[test]
    fn many_address_objects_are_one_peer_and_are_counted() {
        let mut peers = Peers::default();
        let [a, b] = [(); 2].map(|()| address::create(name(), None).unwrap().as_ptr());
        let key = add(&mut peers, 1).unwrap();
        peers.attach(a, key, [NicId(1)].into(), true);
        peers.attach(b, key, [NicId(1)].into(), false);
        assert_eq!(peers.get(key).unwrap().objects.len(), 2);
        assert_eq!(peers.detach(a), Some(key));
        assert_eq!(peers.detach(a), None);
        assert_eq!(peers.get(key).unwrap().objects.len(), 1);
        assert_eq!(peers.of_addr(b), Some(key));
        drop(peers);
        assert_eq!(Peers::default().of_addr(b), None);
        assert!(address::remove(a) && address::remove(b));
    }

    #[test]
    fn the_address_that_was_reached_last_is_tried_first() {
        let mut peers = Peers::default();
        let key = add(&mut peers, 1).unwrap();
        let objects = [[1, 2, 3], [1, 4, 2]];
        for nics in objects {
            let nics = nics.map(NicId).into();
            peers.attach(ptr::null_mut(), key, nics, true);
        }
        let peer = peers.get_mut(key).unwrap();
        let order = |peer: &Peer| peer.addresses().iter().map(|nic| nic.0).collect::<Vec<_>>();
        assert_eq!(order(peer), [1, 2, 3, 4]);
        peer.reached = Some(NicId(3));
        assert_eq!(order(peer), [3, 1, 2, 4]);
        assert_eq!(peer.untried(), Some(NicId(3)));
        // The name no longer leads there.
        peer.reached = Some(NicId(99));
        assert_eq!(order(peer), [1, 2, 3, 4]);
        peer.objects[1].nics = (5..20).map(NicId).collect();
        assert_eq!(order(peer), [1, 2, 3, 5, 6, 7, 8, 9]);
        peer.reached = Some(NicId(19));
        assert_eq!(order(peer), [19, 1, 2, 3, 5, 6, 7, 8]);
    }

    #[test]
    fn a_peer_is_small() {
        assert!(size_of::<Peer>() <= 168, "{}", size_of::<Peer>());
    }

    #[test]
    fn words_of_keys_leave_the_highest_bit_alone() {
        let key = PeerKey {
            id: PEER_ID_MAX,
            generation: GENERATIONS,
        };
        assert_eq!(PeerKey::from_word(key.to_word()), key);
        assert_eq!(key.to_word() >> 63, 0);
    }
}
