//! Queue of links that need attention beside their rings, each with its reasons.
//!
//! ```text
//!   note(link, reason)                                next_queued, before the rings
//!     a first reason   --> end of the queue --------> Ended  the link is removed: Down
//!     further reasons  --> bits of the link           Up     the handshake is over: Up
//!                                                     Socket it is read: packets, one at a time
//!                                                     Room   the rest of a body is sent: Writable
//!
//!   close: the reasons are removed with the link; the queue skips its stale id
//! ```
//!
//! A link is queued once while it has reasons, and stays at the front until it has none. Pending events are reasons,
//! and pending packets stay in their socket or ring, so closing a link drops them all.
//!
//! Owns: the order of links and reasons.
//! Out of scope: handling a reason.

use super::LocalPort;
use super::link::Entry;
use mx_proto::LinkId;
use mx_proto::round::PortEvent;

/// Reason why a link needs attention: a bit of [`Entry::reasons`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// The link has ended, with nothing left to read.
    Ended = 1,
    /// A handshake that this side began is over, and the endpoint has not been told.
    Up = 2,
    /// The socket has messages, or room for one of ours.
    Socket = 4,
    /// A blocked link has room.
    Room = 8,
}

impl Reason {
    /// All reasons, in the order in which they are handled.
    pub(super) const ALL: [Self; 4] = [Self::Ended, Self::Up, Self::Socket, Self::Room];
}

impl Entry {
    /// Returns the reason to handle next.
    fn first_reason(&self) -> Option<Reason> {
        let mut all = Reason::ALL.into_iter();
        all.find(|reason| self.reasons & *reason as u8 != 0)
    }
}

impl LocalPort {
    /// Adds a reason to a link, and queues the link if it had none.
    pub(super) fn note(&mut self, id: LinkId, reason: Reason) {
        if let Some(entry) = self.links.get_mut(id) {
            if entry.reasons == 0 {
                self.queue.push_back(id);
            }
            entry.reasons |= reason as u8;
        }
    }

    /// Removes a reason from the link at the front of the queue.
    pub(super) fn settle(&mut self, id: LinkId, reason: Reason) {
        if let Some(entry) = self.links.get_mut(id) {
            entry.reasons &= !(reason as u8);
            if entry.reasons == 0 {
                self.queue.pop_front();
            }
        }
    }

    /// Handles the reasons of queued links, up to the first event.
    #[cold]
    #[inline(never)]
    pub(super) fn next_queued(&mut self) -> Option<PortEvent> {
        while let Some(id) = self.queue.front().copied() {
            let event = match self.links.get(id).and_then(Entry::first_reason) {
                None => {
                    self.queue.pop_front();
                    None
                }
                Some(Reason::Ended) => self.remove_link(id),
                Some(Reason::Up) => {
                    self.settle(id, Reason::Up);
                    Some(PortEvent::Up(id))
                }
                Some(Reason::Socket) => self.hear(id),
                Some(Reason::Room) => {
                    self.settle(id, Reason::Room);
                    self.unblock(id)
                }
            };
            if event.is_some() {
                self.round.any = true;
                return event;
            }
        }
        None
    }
}
