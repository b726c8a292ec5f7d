//! Bounce buffers: copies of small sends that have to wait, so that the host has its own back.
//!
//! ```text
//!   post: the link takes it      complete            (as before: the link has a copy)
//!         it has to wait         small, expected, and there is room?
//!                                  copied, complete  ---> its own memory waits at the endpoint
//!                                  otherwise pending
//! ```
//!
//! A server's answers to clients that are slow to take them do not keep its threads waiting. What has
//! been said to be complete must not get lost: if the endpoint gives such a message up, its peer is
//! lost. A receiver that does not want it, or not all of it, has got what it asked for. The copies of all peers take up a fixed number of bytes, of which a peer may have as many as
//! are still free. Unexpected sends are not copied: what makes them wait is that their receiver has
//! enough of them.
//!
//! Knows nothing of: whose link is full.

use super::Method;
use crate::op::word::{Role, Word};
use crate::peer::state::Cause;
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{Clock, Outcome, RequestId, Status};
use mx_sys::UserMemory;

/// Bytes of copies, of all peers.
#[derive(Debug)]
pub(crate) struct Bounce {
    limit: usize,
    used: usize,
}

/// The largest message that is copied. Larger ones are worth the wait.
const LARGEST: usize = 4096;

/// What a copy takes beside its bytes: its request at the endpoint.
const OVERHEAD: usize = 256;

impl Bounce {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: 0 }
    }

    /// Bytes that copies take up.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// An expected send of `len` bytes waits at the endpoint. True when it goes on without the host's
    /// memory.
    #[cold]
    pub(crate) fn bounce(&mut self, key: PeerKey, request: RequestId, len: usize) -> bool {
        let Some(peer) = self.peers().get(key).filter(|_| len <= LARGEST) else {
            return false;
        };
        let (size, free) = (len + OVERHEAD, self.bounce.limit - self.bounce.used);
        if peer.bounced as usize + size > free {
            return false;
        }
        let copy = UserMemory::to_owned_copy;
        let word = Word::own(Role::Copy, key);
        let copied = self.endpoint.buffer(request, word, copy);
        if copied {
            if let Some(peer) = self.peers_mut().get_mut(key) {
                peer.bounced += size as u32;
            }
            self.bounce.used += size;
        }
        copied
    }

    /// A copy has gone, or not.
    pub(super) fn on_bounced(&mut self, key: PeerKey, how: &Outcome) {
        let size = how.length as usize + OVERHEAD;
        self.bounce.used = self.bounce.used.saturating_sub(size);
        // Of an earlier life nobody knows any more.
        let of_now = self.endpoint.partner_context(how.partner) == Some(key.to_word());
        let peer = self.peers_mut().get_mut(key).filter(|_| of_now);
        let Some(peer) = peer else {
            return;
        };
        peer.bounced = peer.bounced.saturating_sub(size as u32);
        if how.status != Status::Success {
            let (len, name, status) = (how.length, &peer.name, how.status);
            log::warn!("{len} bytes to {name} that had been copied are lost: {status:?}");
            self.disconnect(key, Cause::TimedOut, true);
        }
    }
}
