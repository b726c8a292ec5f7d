//! Messages whose sender is gone before they were received.
//!
//! ```text
//!   remote fails --> its complete messages get the name of a tombstone  (offers go: their bytes are gone)
//!           |           tombstone: the same identity and context, an id of its own, no link
//!           `------> those that have a turn, or are out, keep its id, which is stale
//!   the last one is received --> the tombstone goes with the next progress,
//!                                so that its receiver can still look the sender up
//! ```
//!
//! A tombstone cannot be found by name or sent to: the peer's next life is another remote. Our own
//! [`Endpoint::disconnect`] leaves no tombstone.
//!
//! Owns: the number of such messages. They wait in the same queues as all others, and their credits
//! are a tombstone of the pool until then.

use super::Endpoint;
use crate::flow::Payment;
use crate::ids::{EndpointId, EntryId, NicId, RemoteId};
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{Remote, RemoteState};
use crate::status::Status;
use crate::time::Clock;
use crate::unexpected::Stage;

/// Messages without a sender.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    count: usize,
    /// Tombstones that have lost their last message.
    spent: Vec<RemoteId>,
    /// The tombstone of the remote which is being dissolved.
    pub(super) made: Option<RemoteId>,
}

impl Tombstones {
    /// So many have left.
    pub(super) fn gone(&mut self, left: u32) {
        self.count = self.count.saturating_sub(left as usize);
    }

    /// Whether some have no message any more.
    #[inline]
    pub(super) fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The tombstones with that name, of whichever life.
    pub fn tombstones_of(&self, nic: NicId, endpoint: EndpointId) -> Vec<RemoteId> {
        let remotes = &self.remotes;
        let is_one = |id: &RemoteId| {
            let remote = remotes.of(*id);
            remote.is_some_and(|it| it.is_tombstone() && it.name == (nic, endpoint))
        };
        remotes.ids().into_iter().filter(is_one).collect()
    }

    /// Throws away what a sender has left behind when it went.
    pub fn forget_tombstone(&mut self, tombstone: RemoteId) {
        if self.is_tombstone(tombstone) {
            self.remove_remote(tombstone, (Status::Unreachable, None), false);
        }
    }

    /// Whether it is the tombstone of a gone sender.
    pub fn is_tombstone(&self, remote: RemoteId) -> bool {
        let remote = self.remotes.of(remote);
        remote.is_some_and(Remote::is_tombstone)
    }

    /// The account of a remote that goes is closed. What is complete of what it has left here stays as
    /// messages of a tombstone, if `keep` and if there is room, or goes; what is here and has a turn stays.
    pub(super) fn close_account(&mut self, id: RemoteId, keep: bool) {
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let (from, is_tombstone) = (remote.source, remote.is_tombstone());
        let most = if keep && !is_tombstone {
            self.config.keep_tombstones
        } else {
            0
        };
        let theirs: Vec<_> = self.unexpected.of(id).map(|(message, _)| message).collect();
        let mut in_slots = Vec::new();
        for it in theirs {
            let Some(message) = self.unexpected.get(it) else {
                continue;
            };
            let in_slot = message.paid.slot().is_some();
            if message.stage == Stage::Out {
                // It goes when it has been decided; its slot is free now.
                if let (Payment::Slot(_), false) = (message.paid, is_tombstone) {
                    self.consumed(id, message.paid);
                    self.unexpected.forgive(it);
                }
                self.unexpected.charge_to_tombstone(it, from);
                continue;
            } else if let Some(turn) = self
                .unexpected
                .turn_of(message)
                .filter(|_| message.is_whole())
            {
                let ready = self.unexpected.charge_to_tombstone(it, from);
                self.on_ready(turn, ready.into());
            } else if message.is_complete() && self.tombstones.count < most {
                self.leave_to_tombstone(it, id);
            } else {
                self.take_out(it);
                continue;
            }
            if in_slot {
                in_slots.push(it);
            }
        }
        if !is_tombstone && !self.flow.close(&mut self.remotes, id.index()) {
            // There is no room for them.
            for it in in_slots {
                self.unexpected.forgive(it);
                self.take_out(it);
            }
        }
    }

    /// A message gets the name of its sender's tombstone.
    fn leave_to_tombstone(&mut self, message: EntryId, id: RemoteId) {
        if self.tombstones.made.is_none() {
            let tombstone = self.remotes.of(id).map(Remote::tombstone);
            self.tombstones.made = tombstone.map(|it| self.remotes.add_tombstone(it));
        }
        if let Some(made) = self.tombstones.made
            && let Some(remote) = self.remotes.of_mut(made)
            && let RemoteState::Tombstone { messages, .. } = &mut remote.state
        {
            *messages += 1;
            self.tombstones.count += 1;
            self.unexpected.rename(message, made);
        }
    }

    /// Records that a message of a tombstone's has been received.
    #[cold]
    pub(super) fn tombstone_read(&mut self, tombstone: RemoteId) {
        self.tombstones.gone(1);
        if let Some(remote) = self.remotes.of_mut(tombstone)
            && let RemoteState::Tombstone { messages, .. } = &mut remote.state
        {
            *messages = messages.saturating_sub(1);
            if *messages == 0 {
                self.tombstones.spent.push(tombstone);
            }
        }
    }

    /// Tombstones without messages go.
    #[inline]
    pub(super) fn drop_empty_tombstones(&mut self) {
        while let Some(tombstone) = self.tombstones.spent.pop() {
            self.remotes.take(tombstone);
        }
    }
}
