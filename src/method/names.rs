//! Names of hosts that are resolved again while their peers cannot be reached.
//!
//! ```text
//!   a connection begins, and the one before was lost or never came --.
//!   all addresses are tried, a second passes, and each second -------+--> questions --> a thread that may block
//!                                                                                             |
//!          the first is the peer's            new ones are tried, attempts at others called off  |
//!          it is another one                  the same; the peer is found there from now on   <---'
//!          it is another peer's               what begins, ends; the objects are that peer's
//!          it is another one, but the peer    the object leaves it, when nothing is under way
//!          has objects that lead elsewhere
//! ```
//!
//! A name may move to another machine, and an address of this one's may go, while the host keeps its address
//! objects for as long as it lives. Nothing is asked while a peer is connected, nor of a host given by its
//! address.
//!
//! Owns: the questions.
//! Out of scope: the resolver, which may block for seconds, and the thread that asks it.

use super::Method;
use crate::abi::types::bmi_method_addr;
use crate::address::{self, Address};
use crate::peer::state::{Cause, State, WaitState};
use crate::peer::table::{Object, Peer, PeerKey};
use crate::peer_name::PeerName;
use mx_proto::port::Port;
use mx_proto::{Clock, NicId, Target};
use mx_sys::{UserMemory, nic};
use std::sync::Arc;

/// The question for the interface that an address object's name stands for now.
#[derive(Debug)]
pub struct NameQuery {
    addr: *mut bmi_method_addr,
    address: Arc<Address>,
}

// SAFETY: the pointer is only compared.
unsafe impl Send for NameQuery {}

impl NameQuery {
    /// The name.
    pub fn name(&self) -> &PeerName {
        &self.address.name
    }

    /// The interface that it has stood for.
    pub fn before(&self) -> Option<NicId> {
        self.address.nic()
    }
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Are there questions for [`Self::take_questions`]?
    #[inline]
    pub fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Names to be resolved, for [`Self::resolved`].
    pub fn take_questions(&mut self) -> Vec<NameQuery> {
        std::mem::take(&mut self.questions)
    }

    /// A peer's name was resolved long ago, perhaps: it is resolved again as soon as the peer is connected to.
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
            let address = address::find(object.addr)?;
            let is_name = nic::literal_address(&address.name.host).is_none();
            is_name.then_some(NameQuery {
                addr: object.addr,
                address,
            })
        });
        let mut questions: Vec<_> = questions.collect();
        questions.retain(|new| !self.questions.iter().any(|old| old.addr == new.addr));
        self.questions.append(&mut questions);
    }

    /// Applies the answer to a repeated name look-up: the host is now at `nics`, best first. Adds addresses to the
    /// connect under way, moves the peer, or hands its objects to the peer already there. Ignored when the object is
    /// gone, `nics` is empty, or the peer has got beyond connecting.
    pub fn resolved(&mut self, question: &NameQuery, nics: &[NicId]) {
        let NameQuery { addr, address } = question;
        // It may have been dropped meanwhile, and its place be another one's.
        let now = address::find(*addr);
        if !now.is_some_and(|now| Arc::ptr_eq(&now, address)) {
            return;
        }
        let Some(&nic) = nics.first() else {
            return;
        };
        let Some((key, peer)) = self.peers().at_addr(*addr).map(|peer| (peer.key, peer)) else {
            return address.set_nic(nic);
        };
        let at_rest = peer.state == State::Init;
        if !at_rest && peer.state != State::Wait(WaitState::Connecting) {
            return;
        }
        let before = address.nic();
        address.set_nic(nic);
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
            log::info!("{}: {} now names another host", peer.name, address.name);
            self.move_objects(key, nics, &[*addr]);
        } else if let Some(before) = before {
            // Not while something is under way.
            address.set_nic(before);
        }
        self.handle_events();
    }

    /// The peer at that interface is another one already, and two never have one session: what waits for the
    /// connection ends, and all objects stand for that peer from now on.
    fn give_up(&mut self, key: PeerKey, nics: &[NicId]) {
        self.disconnect(key, Cause::Unreachable);
        if let Some(peer) = self.peers().get(key) {
            let objects: Vec<_> = peer.objects.iter().map(|object| object.addr).collect();
            self.move_objects(key, nics, &objects);
        }
    }

    /// Moves address objects of a peer at rest to the peer at the first of these interfaces.
    fn move_objects(&mut self, key: PeerKey, nics: &[NicId], objects: &[*mut bmi_method_addr]) {
        for addr in objects {
            self.peers_mut().detach(*addr);
            if let Some(address) = address::find(*addr)
                && let Err(error) = self.attach(*addr, &address, nics.to_vec(), true)
            {
                log::warn!("{error}");
            }
        }
        self.maybe_remove(key);
    }
}

/// Whether all that the host knows of a peer stands for that interface.
fn leads_to(peer: &Peer, nic: NicId) -> bool {
    let leads = |object: &Object| {
        let address = address::find(object.addr);
        object.looked_up && address.is_some_and(|address| address.nic() == Some(nic))
    };
    peer.objects.iter().all(leads)
}
