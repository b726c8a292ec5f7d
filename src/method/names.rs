//! Names of hosts that are resolved again while their peers cannot be reached.
//!
//! ```text
//!   a connection begins after one that was lost or never made -------.
//!   all addresses are tried, a second passes, and each second -------+--> questions --> a thread that may block
//!                                                                                                     |
//!          the peer's first address           new ones are tried, attempts at others cancelled        |
//!          another address                    as above; the peer is at that address from now on <-----'
//!          another peer's address             operations end; the objects move to that peer
//!          another address, but the peer      the object leaves the peer, if nothing is in progress
//!          has objects that lead elsewhere
//! ```
//!
//! A name may move to another machine, and an address of a machine may disappear, while the host keeps its address
//! objects for as long as it lives. Nothing is resolved while a peer is connected, or for a host given by its address.
//!
//! Owns: the questions.
//! Out of scope: the resolver, which may block for seconds, and the thread that calls it.

use super::Method;
use crate::abi::types::bmi_method_addr;
use crate::address;
use crate::peer::state::{Cause, State, WaitState};
use crate::peer::table::{Object, Peer, PeerKey};
use crate::peer_name::PeerName;
use mx_proto::port::Port;
use mx_proto::{Clock, NicId, Target};
use mx_sys::{UserMemory, nic};
use std::sync::Arc;

/// Question to the resolver, which may block: the interface that an address object's name resolves to now.
#[derive(Debug)]
pub struct NameQuery {
    addr: *mut bmi_method_addr,
    name: Arc<PeerName>,
}

// SAFETY: the pointer is only compared.
unsafe impl Send for NameQuery {}

impl NameQuery {
    /// Returns the name to be resolved.
    pub fn name(&self) -> &PeerName {
        &self.name
    }

    /// Returns the interface that the name resolved to before; `None` if it has not been resolved yet.
    pub fn before(&self) -> Option<NicId> {
        address::nic(self.addr)
    }
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Returns whether [`Self::take_questions`] would return any.
    #[inline]
    pub fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Removes and returns the names to be resolved. The caller resolves them without the lock, and passes each answer
    /// to [`Self::resolved`].
    pub fn take_questions(&mut self) -> Vec<NameQuery> {
        std::mem::take(&mut self.questions)
    }

    /// Marks a peer's name as possibly outdated: it is resolved again when the peer is next connected to.
    pub fn doubt_name(&mut self, key: PeerKey) {
        if let Some(peer) = self.peers_mut().get_mut(key) {
            peer.name_doubted = true;
        }
    }

    pub(super) fn ask(&mut self, key: PeerKey) {
        let Some(peer) = self.peers().get(key) else {
            return;
        };
        let of_names = peer.objects.iter().filter(|object| object.looked_up);
        let questions = of_names.filter_map(|object| {
            let (addr, name) = (object.addr, address::name(object.addr)?);
            let is_name = nic::literal_address(&name.host).is_none();
            is_name.then_some(NameQuery { addr, name })
        });
        let mut questions: Vec<_> = questions.collect();
        questions.retain(|new| !self.questions.iter().any(|old| old.addr == new.addr));
        self.questions.append(&mut questions);
    }

    /// Applies the answer to a repeated name look-up: the host is now at `nics`, best first. Adds addresses to the
    /// connect in progress, moves the peer, or moves its objects to the peer already there. Ignored if the object was
    /// dropped, `nics` is empty, or the peer is past connecting.
    pub fn resolved(&mut self, question: &NameQuery, nics: &[NicId]) {
        let NameQuery { addr, name } = question;
        // The object may have been dropped, and its place reused.
        let now = address::name(*addr);
        if !now.is_some_and(|now| Arc::ptr_eq(&now, name)) {
            return;
        }
        let Some(&nic) = nics.first() else {
            return;
        };
        let Some((key, peer)) = self.peers().at_addr(*addr).map(|peer| (peer.key, peer)) else {
            return address::set_nic(*addr, nic);
        };
        let at_rest = peer.state == State::Init;
        if !at_rest && peer.state != State::Wait(WaitState::Connecting) {
            return;
        }
        let before = address::nic(*addr);
        address::set_nic(*addr, nic);
        if before == Some(nic) {
            self.on_addresses(key, *addr, nics);
        } else if leads_to(peer, nic) {
            log::info!("{}: the address of the host has changed", peer.name);
            let target = Target { nic, ..peer.target };
            match self.peers().called(target) {
                Some(_) => self.give_up(key, nics),
                None => self.on_addresses(key, *addr, nics),
            }
        } else if at_rest {
            log::info!("{}: {} now names another host", peer.name, name);
            self.move_objects(key, nics, &[*addr]);
        } else if let Some(before) = before {
            // Keep the old address while operations are in progress.
            address::set_nic(*addr, before);
        }
        self.handle_events();
    }

    /// Gives up a peer whose new interface belongs to another peer already, because two peers never share a session:
    /// operations that wait for the connection end, and all objects move to that peer.
    fn give_up(&mut self, key: PeerKey, nics: &[NicId]) {
        self.disconnect(key, Cause::Unreachable);
        if let Some(peer) = self.peers().get(key) {
            let objects: Vec<_> = peer.objects.iter().map(|object| object.addr).collect();
            self.move_objects(key, nics, &objects);
        }
    }

    /// Moves address objects of an idle peer to the peer at the first of these interfaces.
    fn move_objects(&mut self, key: PeerKey, nics: &[NicId], objects: &[*mut bmi_method_addr]) {
        for addr in objects {
            self.peers_mut().detach(*addr);
            if let Some(name) = address::name(*addr)
                && let Err(error) = self.attach(*addr, &name, nics, true)
            {
                log::warn!("{error}");
            }
        }
        self.maybe_remove(key);
    }
}

/// Returns whether all objects of a peer lead to that interface.
fn leads_to(peer: &Peer, nic: NicId) -> bool {
    let leads = |object: &Object| object.looked_up && address::nic(object.addr) == Some(nic);
    peer.objects.iter().all(leads)
}
