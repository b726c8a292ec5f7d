//! Changes of a link's state, and its end.
//!
//! ```text
//!   turn: state --> next; its memory counted, the sleepers counted
//!
//!   hung up, failed:  with rings     the next round drains them, then Down
//!                     without rings  doomed: Down in the next look at descriptors
//! ```
//!
//! Owns: the sums over all links.

use super::LocalPort;
use super::link::{Entry, State};
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
        entry.state = next(state);
        let (sleeps, after) = (entry.state.is_asleep(), entry.state.bytes());
        self.budget.change(source, before, after);
        self.stats.asleep = self.stats.asleep + u64::from(sleeps) - u64::from(slept);
    }

    /// The peer's socket is closed; what it left in its ring is still to be read.
    pub(super) fn hang_up(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if let Some(socket) = entry.socket.take() {
            self.control.remove(&socket.raw());
            self.data.remove(&socket.raw());
        }
        match self.links.get(id) {
            Some(entry) if matches!(entry.state, State::Up(_)) => self.keep_active(id),
            Some(entry) => {
                let reason = if entry.bye {
                    LinkDown::Closed
                } else {
                    LinkDown::Reset
                };
                self.doom(id, reason);
            }
            None => {}
        }
    }

    /// The peer has done what no peer of ours does. The next poll reports it.
    pub(super) fn fail(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if let Some(link) = entry.up() {
            link.failed = true;
            self.keep_active(id);
        } else {
            self.doom(id, LinkDown::Protocol);
        }
    }

    /// A link is over, and nothing is left to read.
    pub(super) fn doom(&mut self, id: LinkId, reason: LinkDown) {
        if let Some(entry) = self.links.get_mut(id)
            && !std::mem::replace(&mut entry.doomed, true)
        {
            self.doomed.push((id, reason));
            self.control_wanted = true;
        }
    }

    /// Reports links that are over. Returns whether there were any.
    pub(super) fn bury(&mut self) -> bool {
        let doomed = std::mem::take(&mut self.doomed);
        let any = !doomed.is_empty();
        for (id, reason) in doomed {
            self.end(id, reason);
        }
        any
    }

    /// Forgets a link and tells the endpoint, if it knows of it.
    pub(super) fn end(&mut self, id: LinkId, reason: LinkDown) {
        if let Some(entry) = self.remove(id) {
            if let Some(socket) = &entry.socket {
                socket.shut_down();
            }
            if reason == LinkDown::Protocol {
                self.stats.violations += 1;
            }
            log::debug!("{:?}: {id:?} down: {reason}", self.name);
            if entry.known {
                self.tell(PortEvent::Down(id, reason));
            }
        }
    }

    /// Takes a link out of everything.
    pub(super) fn remove(&mut self, id: LinkId) -> Option<Entry> {
        let entry = self.links.remove(id)?;
        self.round.forget(id);
        if let Some(socket) = &entry.socket {
            self.control.remove(&socket.raw());
            self.data.remove(&socket.raw());
        }
        self.active.retain(|other| *other != id);
        self.idle -= usize::from(entry.idle);
        if entry.listed {
            self.awake.retain(|other| *other != id);
        }
        if entry.loud {
            self.loud.retain(|other| *other != id);
        }
        self.stats.asleep -= u64::from(entry.state.is_asleep());
        self.budget.change(entry.source, entry.state.bytes(), 0);
        self.places.give_back(entry.source, 1);
        if entry.stranger {
            self.unstrange(entry.source);
        }
        self.timed.retain(|other| *other != id);
        Some(entry)
    }
}
