//! A method that a child of `fork` has inherited.
//!
//! ```text
//!   peers: DISCONNECT ---> the endpoint ends its operations ---> INIT     the next post reconnects
//!          (all that are not in INIT)     -BMI_ENETRESET
//!   addresses, contexts, ids, waiting completions: unchanged
//! ```
//!
//! The child does what [`Method::disconnect`] does with every peer, but without the port, which belongs to the parent
//! ([`Endpoint::inherit`]).

use super::Method;
use crate::peer::state::{Cause, State};
use mx_proto::port::Port;
use mx_proto::{Clock, Config, Endpoint, Identity};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Ends all operations (-BMI_ENETRESET) and connections without using the port: in a child of `fork`, where they
    /// are the parent's, or after the host has closed the descriptors. Until [`Self::reopen`] nothing may be posted,
    /// but completions may be taken and objects dropped.
    pub fn inherit(&mut self) {
        let cause = Cause::Reset;
        let mut lost = self.peers().keys();
        lost.retain(|key| {
            let peer = self.peers().get(*key);
            peer.is_some_and(|peer| peer.state != State::Init)
        });
        for key in &lost {
            self.move_to(*key, State::Disconnect { cause });
        }
        self.endpoint.inherit();
        self.forget_events();
        self.arrivals_mut().forget();
        self.registering = false;
        for key in lost {
            self.move_to(key, State::Init);
            self.tell_dead(key);
            self.maybe_remove(key);
        }
    }

    /// Continues over `port` as `identity`, and introduces itself to peers as `name`. Returns the old port, whose
    /// descriptors belong to the parent of `fork`.
    pub fn reopen(&mut self, name: String, config: Config, identity: Identity, port: P) -> P {
        self.endpoint.owner_mut().name = name;
        self.endpoint.reopen(config, identity, port)
    }

    /// Drops everything but the port, which is leaked: its descriptors belong to the parent of `fork`, or the host has
    /// closed them.
    pub fn leave_port(self) {
        Endpoint::leave_port(self.endpoint);
    }
}
