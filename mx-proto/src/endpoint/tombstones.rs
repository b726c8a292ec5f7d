//! Messages whose sender is gone before they were received.
//!
//! ```text
//!   remote fails --> its whole messages get the name of a tombstone     (offers go: their bytes are gone)
//!                       tombstone: the same identity and context, an id of its own, no link
//!   the last one is received --> the tombstone goes with the next progress,
//!                                so that its receiver can still look the sender up
//! ```
//!
//! A tombstone cannot be found by name or sent to: the peer's next life is another remote. Our own
//! [`Endpoint::disconnect`] leaves no tombstone.
//!
//! Owns: the number of such messages. They wait in the same queues as all others, and their credits
//! are a tombstone of the pool until then.

use super::{Core, Endpoint};
use crate::ids::{EndpointId, NicId, RemoteId};
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{Life, Remote};
use crate::status::Status;
use crate::time::Clock;

/// Messages without a sender.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    count: usize,
    /// Tombstones that have lost their last message.
    spent: Vec<RemoteId>,
    /// That of the remote which is being dissolved.
    pub(super) made: Option<RemoteId>,
}

impl Tombstones {
    /// So many have left.
    pub(super) fn gone(&mut self, left: u32) {
        self.count = self.count.saturating_sub(left as usize);
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The tombstones with that name, of whichever life.
    pub fn tombstones_of(&self, nic: NicId, endpoint: EndpointId) -> Vec<RemoteId> {
        let remotes = &self.core.remotes;
        let is_one = |id: &RemoteId| {
            let remote = remotes.of(*id);
            remote.is_some_and(|it| it.is_tombstone() && it.name == (nic, endpoint))
        };
        remotes.ids().into_iter().filter(is_one).collect()
    }

    /// Throws away what a sender has left behind when it went.
    pub fn forget_tombstone(&mut self, tombstone: RemoteId) {
        if self.is_tombstone(tombstone) {
            self.core.dissolve(tombstone, Status::Unreachable, false);
        }
    }

    /// Whether it is the tombstone of a gone sender.
    pub fn is_tombstone(&self, remote: RemoteId) -> bool {
        let remote = self.core.remotes.of(remote);
        remote.is_some_and(Remote::is_tombstone)
    }
}

impl<O: Owner> Core<O> {
    /// A remote is about to be dissolved because it has failed. The name that its messages have from
    /// now on, as many as may stay, if any do.
    pub(super) fn leave_tombstone(&mut self, id: RemoteId) -> Option<RemoteId> {
        let room = self
            .config
            .keep_tombstones
            .saturating_sub(self.tombstones.count);
        let remote = self.remotes.living(id)?;
        if room == 0 {
            return None;
        }
        let first = self.unexpected.whole_of(id).min(room);
        let then = self.undecided.whole_of(id).min(room - first);
        if first + then == 0 {
            return None;
        }
        // Two messages are not in one slab place, so they are fewer than 2^32.
        let tombstone = remote.tombstone((first + then) as u32);
        let tombstone = self.remotes.add_tombstone(tombstone);
        self.unexpected.rename(id, tombstone, first);
        self.undecided.rename(id, tombstone, then);
        self.tombstones.count += first + then;
        self.tombstones.made = Some(tombstone);
        Some(tombstone)
    }

    /// One of a tombstone's messages has been received.
    #[cold]
    pub(super) fn tombstone_read(&mut self, tombstone: RemoteId) {
        self.tombstones.gone(1);
        if let Some(remote) = self.remotes.of_mut(tombstone)
            && let Life::Tombstone { messages, .. } = &mut remote.life
        {
            *messages = messages.saturating_sub(1);
            if *messages == 0 {
                self.tombstones.spent.push(tombstone);
            }
        }
    }

    /// Tombstones without messages go.
    #[inline]
    pub(super) fn bury(&mut self) {
        while let Some(tombstone) = self.tombstones.spent.pop() {
            self.remotes.take(tombstone);
        }
    }
}
