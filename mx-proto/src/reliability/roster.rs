//! Roster: the links of a port, active and suspended.
//!
//! ```text
//!   awake     Box<Link>             windows, estimates, searches: 1.2 KiB
//!     |  ^
//!     |  `- it is used
//!     `---- a second without a segment in either direction, nothing in flight, no ACK, Ping or probe due
//!     v
//!   suspended Box<SuspendedLink>    cookies, numbers, properties of the path: 0.2 KiB
//! ```
//!
//! A look-up resumes a suspended link. The Ping of a keep-alive resumes it for a moment; it is suspended again as soon
//! as the Ping is answered.
//!
//! Suspension keeps an idle peer below 2 KiB: the layers above a link take 1.1 KiB on a server with 10 000 clients.
//!
//! Owns: the links.

use super::link::Link;
use super::reassembly::Reassembly;
use super::reliable_config::ReliableConfig;
use super::senders::Senders;
use super::session::{Session, SuspendedSession};
use crate::ids::LinkId;
use crate::port::LinkFigures;
use crate::secret::Binding;
use crate::table::Table;
use crate::time::Instant;
use crate::timer::TimerId;
use std::time::Duration;

/// Time without traffic after which a link frees memory.
pub(super) const QUIET: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Roster<A> {
    places: Table<LinkId, RosterEntry<A>>,
    /// Settings for resumed links.
    config: ReliableConfig,
    datagram_max: usize,
}

#[derive(Debug)]
enum RosterEntry<A> {
    Awake(Box<Link<A>>),
    Suspended(Box<SuspendedLink<A>>),
}

/// A suspended link: nothing waits on it, and its data channel is proven.
#[derive(Debug)]
struct SuspendedLink<A> {
    address: A,
    data: A,
    session: SuspendedSession,
    /// Number of the fragment to be delivered next.
    fragment: u32,
    timer: Option<(Instant, TimerId)>,
    known: bool,
    called: bool,
    sum: Option<bool>,
}

impl<A: Copy + Eq> Roster<A> {
    pub(super) fn new(config: ReliableConfig, datagram_max: usize) -> Self {
        Self {
            places: Table::default(),
            config,
            datagram_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of suspended links. Cost: O(n).
    pub(super) fn suspended(&self) -> usize {
        let all = self.places.iter();
        all.filter(|(_, place)| matches!(place, RosterEntry::Suspended(_)))
            .count()
    }

    pub(super) fn insert(&mut self, link: Link<A>) -> LinkId {
        let id = self.places.insert(RosterEntry::Awake(Box::new(link)));
        id.at_port(self.config.port)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link<A>> {
        let place = self.places.get_mut(id)?;
        if let RosterEntry::Suspended(suspended) = place {
            *place = RosterEntry::Awake(suspended.wake(self.datagram_max, &self.config));
        }
        match place {
            RosterEntry::Awake(link) => Some(link),
            // Unreachable: the link was woken above.
            RosterEntry::Suspended(_) => None,
        }
    }

    /// Removes a link. It stays in its box, because on the stack it would lie below everything that a failed link sets
    /// off.
    pub(super) fn remove(&mut self, id: LinkId) -> Option<Box<Link<A>>> {
        Some(match self.places.remove(id)? {
            RosterEntry::Awake(link) => link,
            RosterEntry::Suspended(suspended) => suspended.wake(self.datagram_max, &self.config),
        })
    }

    /// Returns the address of a link's peer, and whether it is monitored. Resumes no link.
    pub(super) fn monitored(&self, id: LinkId) -> Option<(A, bool)> {
        Some(match self.places.get(id)? {
            RosterEntry::Awake(link) => (link.address, link.session.keep_alive.monitored.is_some()),
            // A monitored link is not suspended.
            RosterEntry::Suspended(suspended) => (suspended.address, false),
        })
    }

    /// Returns all links with their peers' addresses. Resumes no link.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (LinkId, A)> {
        self.places.iter().map(|(id, place)| {
            let address = match place {
                RosterEntry::Awake(link) => link.address,
                RosterEntry::Suspended(suspended) => suspended.address,
            };
            (id.at_port(self.config.port), address)
        })
    }

    /// Returns the cookies of a link's session, the caller's first. Resumes no link.
    pub(super) fn cookies(&self, id: LinkId) -> Option<Binding> {
        let (ours, theirs, called) = match self.places.get(id)? {
            RosterEntry::Awake(link) => (link.session.ours, link.session.theirs, link.called),
            RosterEntry::Suspended(suspended) => {
                let (ours, theirs) = suspended.session.cookies();
                (ours, theirs, suspended.called)
            }
        };
        Some(if called {
            [theirs, ours]
        } else {
            [ours, theirs]
        })
    }

    /// Returns the time of the last valid datagram from a link's peer. Resumes no link.
    pub(super) fn heard_at(&self, id: LinkId) -> Option<Instant> {
        self.figures(id)?.heard_at
    }

    /// Returns the measurements of a link's network path, for tools; `None` if the id is stale. Resumes no suspended
    /// link.
    pub(super) fn figures(&self, id: LinkId) -> Option<LinkFigures> {
        Some(match self.places.get(id)? {
            RosterEntry::Awake(link) => link.session.figures(),
            RosterEntry::Suspended(suspended) => suspended.session.figures(),
        })
    }

    #[inline]
    pub(super) fn suspend(&mut self, now: Instant, id: LinkId) {
        let Some(place) = self.places.get_mut(id) else {
            return;
        };
        let RosterEntry::Awake(link) = place else {
            return;
        };
        if link.session.has_sent_since(now.before(QUIET)) || Senders::is_recent(now, link.active) {
            return;
        }
        if let Some(suspended) = SuspendedLink::of(link) {
            *place = RosterEntry::Suspended(Box::new(suspended));
        }
    }
}

impl<A: Copy + Eq> SuspendedLink<A> {
    /// Makes the suspended form of a link. `None`: something still waits on that link.
    fn of(link: &Link<A>) -> Option<Self> {
        let waits = link.blocked.is_some() || link.midway.is_some();
        if waits || link.dirty || link.backlogged || link.trial.is_some() {
            return None;
        }
        Some(Self {
            address: link.address,
            data: link.data?,
            session: link.session.suspend()?,
            fragment: link.reassembly.suspended()?,
            timer: link.timer,
            known: link.known,
            called: link.called,
            sum: link.sum,
        })
    }

    #[cold]
    fn wake(&self, datagram_max: usize, config: &ReliableConfig) -> Box<Link<A>> {
        let session = Session::resume(&self.session, datagram_max, config);
        Box::new(Link {
            data: Some(self.data),
            data_credit: usize::MAX,
            reassembly: Reassembly::new(self.fragment),
            called: self.called,
            sum: self.sum,
            timer: self.timer,
            ..Link::new(self.address, session, self.known)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As large as the addresses of kernel UDP and of fabrics together.
    type Address = [u64; 4];

    #[test]
    fn a_suspended_link_takes_a_quarter_of_an_active_one() {
        let suspended = size_of::<SuspendedLink<Address>>();
        assert!(suspended <= 264, "{suspended} bytes");
        assert!(suspended * 4 <= size_of::<Link<Address>>());
        assert_eq!(size_of::<RosterEntry<Address>>(), 16);
    }
}
