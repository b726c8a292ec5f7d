//! Strangers: incoming links that the endpoint has not yet bound to a remote.
//!
//! ```text
//!   accept --> Accepted --> Plain, Up ...   --bind--> counts as its source's share
//!      `--- timed out, or evicted --> down, whatever its state
//!           for a newer link
//! ```
//!
//! The kernel reports the user that connected (`SO_PEERCRED`), whose share a link counts against, and with Hello the
//! user in whose name it was sent (`SCM_CREDENTIALS`). The sender must be that user, and the user must have the claimed
//! endpoint open. In a user namespace without that user the kernel reports the overflow user, 65534: all of those have
//! one share, and count as one owner of endpoints.
//!
//! Owns: closing strangers; `base::strangers` decides which, and when.
//! Out of scope: introductions.

use super::LocalPort;
use super::link::State;
use super::socket::{Name, Socket};
use mx_port_base::descriptors;
use mx_port_base::origin::Origin;
use mx_proto::origin::Source;
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId};

impl LocalPort {
    /// Returns the origin of a link: the user of the peer's process, as the kernel reports it; [`Origin::Unknown`] if
    /// the id is stale.
    pub fn origin(&self, link: LinkId) -> Origin {
        let entry = self.links.get(link);
        entry.map_or(Origin::Unknown, |entry| Origin::User(entry.user))
    }

    /// Returns the endpoint id of a link's peer; `None` if the id is stale, or if the peer called and has not
    /// introduced itself yet.
    pub fn endpoint(&self, link: LinkId) -> Option<u32> {
        self.links.get(link)?.endpoint
    }

    /// Returns whether `user` has this endpoint open, or is root or our user. Finds the listener at the endpoint's name
    /// with a connection that is closed at once, which looks like a stranger that left. A full backlog proves nothing:
    /// otherwise a process that fills it could claim the endpoint.
    pub(super) fn user_has(&self, user: u32, endpoint: u32) -> bool {
        if Origin::User(user).source() == Source::TRUSTED {
            return true;
        }
        let name = Name {
            endpoint,
            ..self.name
        };
        let listens = Socket::new().and_then(|socket| {
            socket.connect(name)?;
            Ok(socket.user())
        });
        listens.is_ok_and(|listens| listens == user)
    }

    /// Removes a link from the strangers, because it has been bound or closed.
    pub(super) fn unlist_stranger(&mut self, source: Source) {
        let links = &self.links;
        self.strangers
            .leave(source, |id| links.get(id).is_some_and(|it| it.stranger));
    }

    /// Ends strangers that have timed out.
    pub(super) fn drop_strangers(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(id) = self.strangers.due(now) {
            any = true;
            self.stats.unbound += 1;
            self.send_away(id, &"it has not introduced itself");
        }
        any
    }

    /// Evicts a stranger. Returns false if there is none.
    pub(super) fn evict(&mut self, why: &dyn std::fmt::Display) -> bool {
        let links = &self.links;
        let said = |id| {
            let entry = links.get(id).filter(|entry| entry.stranger)?;
            Some(!matches!(entry.state, State::Accepted))
        };
        let victim = self.strangers.victim(said);
        if let Some(id) = victim {
            self.send_away(id, why);
        }
        victim.is_some()
    }

    /// Evicts two strangers when descriptors have run out, for a connection and its memory.
    pub(super) fn make_room(&mut self) -> bool {
        let why = "others need its descriptor";
        self.strangers.len() >= 2 && self.evict(&why) && self.evict(&why)
    }

    fn send_away(&mut self, id: LinkId, why: &dyn std::fmt::Display) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if let State::Accepted = entry.state {
            return self.refuse(id, why);
        }
        let (user, source) = (entry.user, entry.source);
        if std::mem::take(&mut entry.stranger) {
            self.unlist_stranger(source);
        }
        log::debug!("{:?}: closing {id:?} of user {user}: {why}", self.name);
        self.end(id, LinkDown::TimedOut);
    }
}

/// Returns the number of links that there can be: each takes a descriptor.
pub(super) fn places(max_links: usize) -> usize {
    max_links.min(descriptors::most())
}
