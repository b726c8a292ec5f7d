//! The queue of links that need attention beside their rings, each with its reasons.
//!
//! ```text
//!   note(link, reason)                                next_queued, before the rings have their turn
//!     a first reason   --> end of the queue --------> Ended  the link is removed: Down
//!     further reasons  --> bits of the link           Up     the handshake is over: Up
//!                                                     Socket it is read: packets, one at a time
//!                                                     Room   the rest of a body is sent: Writable
//!
//!   close: the reasons go with the link; its id in the queue names no link, and is passed over
//! ```
//!
//! A link is in the queue once while it has reasons, and stays at the front until it has none. Events that wait are
//! reasons, and packets wait in their socket or ring: so closing a link drops them all.
//!
//! Owns: the order of links and reasons.
//! Out of scope: handling a reason.

use super::LocalPort;
use super::link::Entry;
use mx_proto::LinkId;
use mx_proto::round::PortEvent;

/// A reason for which a link needs attention: a bit of [`Entry::reasons`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// End of the link, with nothing left to read.
    Ended = 1,
    /// End of a handshake that we began, which the endpoint has yet to hear of.
    Up = 2,
    /// Messages in the link's socket, or room for one of ours.
    Socket = 4,
    /// Room on a link that was blocked.
    Room = 8,
}

impl Reason {
    /// The reasons, in the order in which they are handled.
    pub(super) const ALL: [Self; 4] = [Self::Ended, Self::Up, Self::Socket, Self::Room];
}

impl Entry {
    /// Returns the reason that is handled next.
    fn first_reason(&self) -> Option<Reason> {
        let mut all = Reason::ALL.into_iter();
        all.find(|reason| self.reasons & *reason as u8 != 0)
    }
}

impl LocalPort {
    /// Gives a link a reason for attention, and a place in the queue if that is its first one.
    pub(super) fn note(&mut self, id: LinkId, reason: Reason) {
        if let Some(entry) = self.links.get_mut(id) {
            if entry.reasons == 0 {
                self.queue.push_back(id);
            }
            entry.reasons |= reason as u8;
        }
    }

    /// Takes a reason from the link at the front of the queue.
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
