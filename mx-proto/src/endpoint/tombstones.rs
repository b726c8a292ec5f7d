//! Tombstones: messages whose sender was lost before they were received.
//!
//! ```text
//!   remote fails --> its complete messages get the id of a tombstone  (offers are dropped: their data is lost)
//!           |           tombstone: the same identity and context, an id of its own, no link
//!           `------> inbox messages, and a shown one, keep its id, which is stale
//!   the last one is received --> the next progress removes the tombstone,
//!                                so that the receiver can still look the sender up
//! ```
//!
//! A tombstone cannot be found by name or sent to: the peer's next life is another remote. Our own
//! [`Endpoint::disconnect`] leaves no tombstone.
//!
//! Owns: the number of such messages. They wait in the same queues as all others, and until they are received the pool
//! counts their credits as a tombstone's.

use super::Endpoint;
use crate::flow::Payment;
use crate::ids::{EndpointId, EntryId, NicId, RemoteId};
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{Remote, RemoteState};
use crate::status::Status;
use crate::time::Clock;
use crate::unexpected::Stage;

#[derive(Debug, Default)]
pub(super) struct Tombstones {
    count: usize,
    /// Tombstones without messages, to be removed by the next progress.
    spent: Vec<RemoteId>,
    /// Tombstone of the remote that is being removed; `None` until it has a message.
    pub(super) made: Option<RemoteId>,
}

impl Tombstones {
    /// Subtracts messages that have left.
    pub(super) fn gone(&mut self, left: u32) {
        self.count = self.count.saturating_sub(left as usize);
    }

    /// Returns whether tombstones without messages wait for their removal.
    #[inline]
    pub(super) fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Returns the tombstones of the endpoint with that interface and number: one for each of its lost sessions whose
    /// messages still wait to be received. Empty if there are none.
    pub fn tombstones_of(&self, nic: NicId, endpoint: EndpointId) -> Vec<RemoteId> {
        let remotes = &self.remotes;
        let is_one = |id: &RemoteId| {
            let remote = remotes.of(*id);
            remote.is_some_and(|it| it.is_tombstone() && it.name == (nic, endpoint))
        };
        remotes.ids().into_iter().filter(is_one).collect()
    }

    /// Discards the messages of a tombstone, whose id becomes stale. Does nothing to any other remote.
    pub fn forget_tombstone(&mut self, tombstone: RemoteId) {
        if self.is_tombstone(tombstone) {
            self.remove_remote(tombstone, (Status::Unreachable, None), false);
        }
    }

    /// Returns whether a remote is a tombstone: its session is lost, but messages that had arrived from it wait to be
    /// received. False if the id is stale.
    pub fn is_tombstone(&self, remote: RemoteId) -> bool {
        let remote = self.remotes.of(remote);
        remote.is_some_and(Remote::is_tombstone)
    }

    /// Closes the account of a remote that is removed. Complete messages stay as a tombstone's if `keep` and if there
    /// is room, and are dropped otherwise; complete messages of the inbox always stay.
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
                // A shown message leaves when it has been decided; its slot is free now.
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
            // The pool has no room for them.
            for it in in_slots {
                self.unexpected.forgive(it);
                self.take_out(it);
            }
        }
    }

    /// Gives a message to the tombstone of its sender.
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

    /// Records that a message of a tombstone has been received.
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

    #[inline]
    pub(super) fn drop_empty_tombstones(&mut self) {
        while let Some(tombstone) = self.tombstones.spent.pop() {
            self.remotes.take(tombstone);
        }
    }
}
