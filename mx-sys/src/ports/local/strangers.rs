//! Links that others began and that the endpoint has not bound: they are cheap and short.
//!
//! ```text
//!   accept --> Accepted --> Up, Asleep ...   --bind--> one of ours
//!      `------------- 5 s ---------------> down, whatever its state
//! ```
//!
//! Whoever looks late gives them one more look: what has introduced them may lie there unread.
//!
//! The user at the other end is the kernel's word (`SO_PEERCRED`). In a user namespace that does not
//! know a user that is the overflow user, 65534: all of those have one share, and count as one where
//! it is asked who owns an endpoint.
//!
//! Owns: which of them go, and when.
//! Knows nothing of: introductions.

use super::LocalPort;
use super::link::State;
use super::socket::{Name, Socket};
use crate::descriptors;
use crate::ports::origin::Origin;
use mx_proto::origin::Source;
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId};
use std::collections::HashMap;
use std::time::Duration;

impl LocalPort {
    /// Where a link comes from, or leads to.
    pub(in crate::ports) fn origin(&self, link: LinkId) -> Origin {
        let entry = self.links.get(link);
        entry.map_or(Origin::Unknown, |entry| Origin::User(entry.user))
    }

    /// `user` has this endpoint open, or may do what it likes here anyway. Whoever listens at its name
    /// is asked for with a connection that hangs up at once; it takes that for a stranger who went.
    /// One that cannot be asked now, because too many wait to be accepted there, proves nothing: else
    /// whoever fills its backlog could speak for it.
    pub(in crate::ports) fn owns(&self, user: u32, endpoint: u32) -> bool {
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

    /// A link that somebody has just begun.
    pub(super) fn add_stranger(&mut self, id: LinkId, now: Instant) {
        if self.unbound == 0 {
            self.strangers_seen = now;
        }
        if self.strangers.len() >= 2 * self.unbound + 64 {
            let links = &self.links;
            let is = |id: &LinkId| links.get(*id).is_some_and(|it| it.stranger_until.is_some());
            self.strangers.retain(is);
        }
        self.unbound += 1;
        self.strangers.push_back(id);
    }

    /// When the next of them goes.
    pub(super) fn strangers_due(&self) -> Option<Instant> {
        let until = |id: &LinkId| self.links.get(*id)?.stranger_until;
        match self.unbound {
            0 => None,
            _ => self.strangers.iter().find_map(until),
        }
    }

    /// Ends those whose time is over.
    pub(super) fn drop_strangers(&mut self, now: Instant) -> bool {
        let late = now.since(self.strangers_seen) > LATE;
        let over = if late { self.strangers_seen } else { now };
        self.strangers_seen = now;
        let mut any = false;
        while self.unbound > 0
            && let Some(id) = self.strangers.front().copied()
        {
            let until = self.links.get(id).and_then(|entry| entry.stranger_until);
            if until.is_some_and(|until| until > over) {
                break;
            }
            self.strangers.pop_front();
            if until.is_some() {
                any = true;
                self.stats.unbound += 1;
                self.send_away(id, &"it has not introduced itself");
            }
        }
        any
    }

    /// Descriptors have run out: the two oldest strangers of the user with the most go, for a
    /// connection and the memory that it brings. False: nobody has several.
    pub(super) fn make_room(&mut self) -> bool {
        let mut most: HashMap<u32, Vec<LinkId>> = HashMap::new();
        for id in &self.strangers {
            if let Some(entry) = self.links.get(*id)
                && entry.stranger_until.is_some()
            {
                most.entry(entry.user).or_default().push(*id);
            }
        }
        let Some(greediest) = most.into_values().max_by_key(Vec::len) else {
            return false;
        };
        if greediest.len() < 2 {
            return false;
        }
        for id in greediest.into_iter().take(2) {
            self.send_away(id, &"others need its descriptor");
        }
        true
    }

    /// There is no place left: the oldest goes that has said nothing, of the user with the most of
    /// those.
    pub(super) fn drop_silent(&mut self) -> bool {
        let mut most: HashMap<u32, (usize, LinkId)> = HashMap::new();
        for id in &self.strangers {
            if let Some(entry) = self.links.get(*id)
                && matches!(entry.state, State::Accepted)
            {
                most.entry(entry.user).or_insert((0, *id)).0 += 1;
            }
        }
        let oldest = most.into_values().max_by_key(|(count, _)| *count);
        if let Some((_, id)) = oldest {
            self.send_away(id, &"too many silent connections");
        }
        oldest.is_some()
    }

    fn send_away(&mut self, id: LinkId, why: &dyn std::fmt::Display) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let user = entry.user;
        self.unbound -= usize::from(entry.stranger_until.take().is_some());
        if let State::Accepted = entry.state {
            return self.refuse(id, why);
        }
        log::debug!("{:?}: {id:?} of user {user} goes: {why}", self.name);
        if let Some(socket) = entry.socket.take() {
            self.control.remove(socket.raw());
            self.data.remove(socket.raw());
            socket.shut_down();
        }
        self.doom(id, LinkDown::TimedOut);
    }
}

/// Places for links: each takes a descriptor.
pub(super) fn places(max_links: usize) -> usize {
    max_links.min(descriptors::most())
}

/// Who looks so much later than it could have was busy with something else.
const LATE: Duration = Duration::from_secs(1);
