//! State changes of a link, and its end.
//!
//! ```text
//!   turn: state --> next; counts its memory and sleeping links; without rings it is not active
//!
//!   hung up      with rings: the next rounds drain them --.
//!                without ---------------------------------+--> end: no socket, Ended --the queue--> remove, Down
//!   failed, refused, timed out ---------------------------'
//!   closed by the endpoint -----------------------------------------------------------------------> remove
//! ```
//!
//! Owns: the sums over all links.

use super::LocalPort;
use super::link::{Entry, State};
use super::queue::Reason;
use mx_proto::LinkId;
use mx_proto::port::LinkDown;
use mx_proto::round::PortEvent;

impl LocalPort {
    /// Changes a link's state; every change goes through here.
    pub(super) fn turn(&mut self, id: LinkId, next: impl FnOnce(State) -> State) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let source = entry.source;
        let state = std::mem::replace(&mut entry.state, State::Changing);
        let (slept, before) = (state.is_asleep(), state.bytes());
        self.round.forget_lent(id);
        if matches!(state, State::Up(_)) {
            self.active.retain(|other| *other != id);
        }
        entry.state = next(state);
        let (sleeps, after) = (entry.state.is_asleep(), entry.state.bytes());
        self.budget.change(source, before, after);
        self.stats.asleep = self.stats.asleep + u64::from(sleeps) - u64::from(slept);
    }

    /// Handles a hang-up of the peer; packets left in its ring are read first.
    pub(super) fn hang_up(&mut self, id: LinkId) {
        self.cut(id);
        self.keep_active(id);
        if let Some(reason) = self.links.get_mut(id).and_then(Entry::verdict) {
            self.end(id, reason);
        }
    }

    /// Ends a link whose peer has violated the protocol.
    pub(super) fn fail(&mut self, id: LinkId) {
        self.end(id, LinkDown::Protocol);
    }

    /// Ends a link: nothing is sent or received on it, and the queue reports it. If the link never came up, other ports
    /// may lead to the peer, whatever the reason.
    pub(super) fn end(&mut self, id: LinkId, reason: LinkDown) {
        self.cut(id);
        if let Some(entry) = self.links.get_mut(id) {
            let reason = entry.instead.map_or(reason, LinkDown::Elsewhere);
            entry.end.get_or_insert(reason);
            self.note(id, Reason::Ended);
        }
    }

    /// Removes a link that has ended. Returns the event if the endpoint knows the link.
    pub(super) fn remove_link(&mut self, id: LinkId) -> Option<PortEvent> {
        let entry = self.remove(id)?;
        let reason = entry.end?;
        self.round.any = true;
        self.stats.violations += u64::from(reason == LinkDown::Protocol);
        log::debug!("{:?}: {id:?} down: {reason}", self.name);
        entry.known.then_some(PortEvent::Down(id, reason))
    }

    /// Closes a link's socket.
    fn cut(&mut self, id: LinkId) {
        let entry = self.links.get_mut(id);
        if let Some(socket) = entry.and_then(|entry| entry.socket.take()) {
            self.control.remove(&socket.raw());
            self.data.remove(&socket.raw());
            socket.shut_down();
        }
    }

    /// Removes a link and its reasons for attention; the queue skips its id.
    pub(super) fn remove(&mut self, id: LinkId) -> Option<Entry> {
        self.cut(id);
        self.turn(id, |_| State::Changing);
        let entry = self.links.remove(id)?;
        if entry.listed {
            self.awake.retain(|other| *other != id);
        }
        self.places.give_back(entry.source, 1);
        if entry.stranger {
            self.unlist_stranger(entry.source);
        }
        Some(entry)
    }
}
