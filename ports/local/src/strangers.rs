//! Strangers: incoming links that the endpoint has not bound.
//!
//! ```text
//!   accept --> Accepted --> Plain, Up ...   --bind--> one of ours
//!      `--- its time is over, its place --> down, whatever its state
//!           is needed
//! ```
//!
//! The kernel reports the user that connected (`SO_PEERCRED`), whose share a link counts against, and with
//! Hello the one in whose name that was sent (`SCM_CREDENTIALS`), which is also the sender's, and has to
//! have the endpoint open in whose name it comes. In a user namespace without that user it reports the
//! overflow user, 65534: all of those have one share, and count as one owner of endpoints.
//!
//! Owns: closing them; `base::strangers` chooses which, and when.
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
    /// The origin of a link, or the address it was made to.
    pub fn origin(&self, link: LinkId) -> Origin {
        let entry = self.links.get(link);
        entry.map_or(Origin::Unknown, |entry| Origin::User(entry.user))
    }

    /// The endpoint at the other end of a link.
    pub fn endpoint(&self, link: LinkId) -> Option<u32> {
        self.links.get(link)?.endpoint
    }

    /// Whether `user` has this endpoint open, or is root. The listener at its name is found with a
    /// connection that is closed at once, which looks like a stranger that left. If its backlog is
    /// full, nothing is proven: otherwise a process that fills it could speak for the endpoint.
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

    /// A link is a stranger no more, because it is bound or gone.
    pub(super) fn unlist_stranger(&mut self, source: Source) {
        let links = &self.links;
        self.strangers
            .leave(source, |id| links.get(id).is_some_and(|it| it.stranger));
    }

    /// Ends those whose time is over.
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

    /// Descriptors have run out: two strangers go, for a connection and the memory that comes over it.
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

/// Places for links: each takes a descriptor.
pub(super) fn places(max_links: usize) -> usize {
    max_links.min(descriptors::most())
}
