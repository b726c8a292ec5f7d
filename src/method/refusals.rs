//! Refused connection requests.
//!
//! ```text
//!   CONN_REQ --refused--> CONN_ACK says why; a warning, the first time
//!                         more than 16 times: disconnected
//! ```
//!
//! The context word of a remote without a peer counts its refusals. Read as a peer's key it finds
//! no peer: its highest bit is set, and the id is 0.

use super::Method;
use crate::match_layout::{Refusal, refusal_bits};
use crate::op::data::OpData;
use crate::peer::state::Cause;
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{Clock, RemoteId, SendMode};
use mx_sys::UserMemory;
use std::fmt;

/// Marks the context word of a remote that has been refused.
const REFUSED: u64 = 1 << 63;

/// Adds one to the refusals that a context word counts.
const ONCE: u64 = 1 << 32;

/// Calls that are forgiven which no peer of ours makes.
const FORGIVEN: u64 = 16;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Tells a remote that it cannot be a peer. One that takes nothing is told once: whatever else
    /// it asks, nothing is kept for it.
    pub(super) fn refuse(&mut self, remote: RemoteId, reason: Refusal, why: impl fmt::Display) {
        let Some(context) = self.endpoint.remote_context(remote) else {
            return;
        };
        let key = PeerKey::from_word(context);
        if self.peers().get(key).is_some() {
            // Its session with us can go on.
            if self.calls_again(key) {
                return;
            }
            log::debug!("id {} {why}: refused", key.id());
        } else {
            let context = if context & REFUSED == 0 {
                REFUSED
            } else {
                context
            };
            let context = context + ONCE;
            let times = (context & !REFUSED) / ONCE;
            let identity = self.endpoint.remote_identity(remote);
            if times == 1 {
                log::warn!("{identity:?} {why}: refused");
            }
            if times > FORGIVEN {
                log::debug!("{identity:?} was rejected repeatedly: disconnecting it");
                return self.endpoint.disconnect(remote);
            }
            self.endpoint.set_remote_context(remote, context);
        }
        if self.endpoint.queued_for(remote) == 0 {
            // One that does not get through is noticed by its receiver's time-out.
            let (memory, word) = (UserMemory::empty(), OpData::default());
            let bits = refusal_bits(reason);
            let _ = (self.endpoint).send(remote, bits, memory, word, SendMode::Standard);
        }
    }

    /// A peer that is connected calls again. True: too often, it has been disconnected.
    pub(super) fn calls_again(&mut self, key: PeerKey) -> bool {
        let Some(peer) = self.peers_mut().get_mut(key) else {
            return false;
        };
        peer.again = peer.again.saturating_add(1);
        let too_often = u64::from(peer.again) > FORGIVEN;
        if too_often {
            let (name, id) = (&peer.name, key.id());
            log::warn!("disconnecting {name} (id {id}): it repeats its connection request");
            self.disconnect(key, Cause::Protocol);
        }
        too_often
    }
}
