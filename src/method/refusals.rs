//! Rejected connection requests.
//!
//! ```text
//!   CONN_REQ --rejected--> CONN_ACK with the reason; a warning, the first time
//!                          more than 16 times: disconnected
//! ```
//!
//! The context word of a remote without a peer counts its rejected requests. Read as a peer's key it finds no peer: its
//! highest bit is set, and the id is 0.

use super::Method;
use crate::match_layout::{Refusal, refusal_bits};
use crate::op::data::OpData;
use crate::peer::state::Cause;
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{Clock, RemoteId, SendMode};
use mx_sys::UserMemory;
use std::fmt;

/// Marks the context word of a remote that has been rejected.
const REFUSED: u64 = 1 << 63;

/// Increment of the count in a context word.
const ONCE: u64 = 1 << 32;

/// Maximum number of rejected or repeated requests before a remote is disconnected. This method never repeats one.
const FORGIVEN: u64 = 16;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Rejects a remote as a peer. At most one answer is queued for a remote that does not receive, however many
    /// requests it sends.
    pub(super) fn refuse(&mut self, remote: RemoteId, reason: Refusal, why: impl fmt::Display) {
        let Some(context) = self.endpoint.remote_context(remote) else {
            return;
        };
        let key = PeerKey::from_word(context);
        if self.peers().get(key).is_some() {
            // The peer's existing session continues.
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
            // A remote that does not get the answer times out.
            let (memory, word) = (UserMemory::empty(), OpData::default());
            let bits = refusal_bits(reason);
            let _ = (self.endpoint).send(remote, bits, memory, word, SendMode::Standard);
        }
    }

    /// Counts a connected peer's repeated request. Returns true if it was one too many, and the peer has been
    /// disconnected.
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
