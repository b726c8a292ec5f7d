//! Handing out unexpected messages, and registering their senders with the host.
//!
//! ```text
//!   next message ----> its peer has an object the host knows? --yes--> handed out
//!                        | no
//!                        v
//!                      NextUnexpected::Register(object)   the caller releases the lock, registers the object
//!                        |                         with the host, and passes on the result
//!                        v
//!                      registered(object, name)    meanwhile no message is handed out
//! ```
//!
//! The host is called from inside test calls only and without a lock, because its own function takes none
//! (docs/hosts.md, Threads).

use super::Method;
use crate::abi::types::{BMI_addr_t, bmi_method_addr};
use crate::address;
use crate::match_layout::{Fields, of_turn};
use crate::peer::state::State;
use crate::peer::table::{HostRegistration, Peer, PeerKey};
use crate::peer_name::{self, PeerName};
use libc::c_void;
use mx_proto::port::Port;
use mx_proto::{Clock, NicId, Route};
use mx_sys::UserMemory;
use std::ptr::NonNull;

/// An unexpected message, as the host gets it.
#[derive(Debug)]
pub struct Unexpected {
    /// Address object of the sender.
    pub addr: NonNull<bmi_method_addr>,
    /// Contents, in a buffer from `malloc` of exactly this size, which the receiver of this value has to free.
    pub buffer: *mut c_void,
    /// Length in bytes.
    pub size: i64,
    /// Tag of the message.
    pub tag: i32,
    /// Always 0: failed messages are not handed out.
    pub error: i32,
}

/// Next step in handing out unexpected messages.
#[derive(Debug)]
pub enum NextUnexpected {
    /// A message.
    Message(Unexpected),
    /// The sender's new address object. The caller registers it with the host without the lock, calls
    /// [`Method::registered`], and asks again for the message.
    Register(NonNull<bmi_method_addr>),
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Removes and returns the next unexpected message of a class, or returns the sender's object to be registered
    /// first. `None` if there is no message, or while another thread registers a peer.
    pub fn next_unexpected(&mut self, class: u8) -> Option<NextUnexpected> {
        if self.registering {
            return None;
        }
        loop {
            let turn = self.endpoint.next_turn(|turn| of_turn(turn).1 == class)?;
            let peers = self.peers();
            let Some((key, peer)) = peers
                .with_id(of_turn(turn).0)
                .and_then(|key| Some((key, peers.get(key)?)))
            else {
                // The host dropped the address: the message would have no sender.
                self.endpoint.forget_messages(turn);
                continue;
            };
            let Some(addr) = known_object(peer) else {
                let (name, nic) = (name_of(peer), peer.target.nic);
                return self.introduce(key, &name, nic);
            };
            let message = self.endpoint.next_message()?;
            self.on_handed_out(key, message.source);
            let Some(buffer) = message.memory.into_owned() else {
                debug_assert!(false, "a message in memory that is not ours");
                continue;
            };
            return Some(NextUnexpected::Message(Unexpected {
                addr,
                size: buffer.len() as i64,
                buffer: buffer.into_raw(),
                tag: Fields::of(message.bits).tag as i32,
                error: 0,
            }));
        }
    }

    /// Makes the object of a peer that connected to this process. `None`: there is no memory for it, and the message waits.
    #[cold]
    fn introduce(&mut self, key: PeerKey, name: &PeerName, nic: NicId) -> Option<NextUnexpected> {
        let addr = address::create_for_caller(name, nic)?;
        self.peers_mut()
            .attach(addr.as_ptr(), key, Box::default(), false);
        if let Some(peer) = self.peers_mut().get_mut(key) {
            peer.inbound = HostRegistration::Registering(addr.as_ptr());
        }
        self.registering = true;
        Some(NextUnexpected::Register(addr))
    }

    /// Records `name`, the host's id of a registered object. 0 means that the host had no memory for it: then the
    /// message stays, and the object is removed. Returns whether registration succeeded.
    pub fn registered(&mut self, addr: NonNull<bmi_method_addr>, name: BMI_addr_t) -> bool {
        self.registering = false;
        self.arrivals_mut().set_events();
        let addr = addr.as_ptr();
        if name == 0 {
            log::error!("the host did not register the address of a new peer");
            self.peers_mut().detach(addr);
            address::remove(addr);
            return false;
        }
        let Some(peer) = self
            .peers()
            .of_addr(addr)
            .and_then(|key| self.peers_mut().get_mut(key))
        else {
            return false;
        };
        log::info!("{} (id {}) is known to the host", peer.name, peer.key.id());
        peer.inbound = HostRegistration::Known {
            addr,
            name,
            forgotten: false,
        };
        let key = peer.key;
        if peer.state == State::Init {
            log::debug!("{key:?} died before the host knew it");
            self.tell_dead(key);
        }
        true
    }
}

/// Returns the object under which the host knows a peer.
fn known_object(peer: &Peer) -> Option<NonNull<bmi_method_addr>> {
    let addr = match peer.inbound {
        HostRegistration::Known { addr, .. } => addr,
        _ => peer.objects.iter().find(|object| object.looked_up)?.addr,
    };
    NonNull::new(addr)
}

/// Returns the name of a peer that connected to this process: that in its CONN_REQ, if valid, but with the endpoint
/// from the transport.
fn name_of(peer: &Peer) -> PeerName {
    let endpoint = peer.target.endpoint.0;
    let said = peer_name::parse(&peer.name).ok().flatten();
    let host =
        mx_sys::nic::host_name(peer.target.nic).or_else(|| Some(said.as_ref()?.host.clone()));
    PeerName {
        host: host.map_or_else(
            || "unknown".to_owned(),
            |host| host.trim_matches(['[', ']']).to_owned(),
        ),
        board: said.as_ref().and_then(|said| said.board),
        endpoint: Some(endpoint),
        route: Route::AUTO,
    }
}
