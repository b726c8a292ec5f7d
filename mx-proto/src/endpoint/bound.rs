//! Table from each link to its remote.
//!
//! ```text
//!   no entry     a stranger's link: its packets may introduce their sender
//!   a remote     the remote was called over this link, or connected on it
//! ```
//!
//! Owns: the table. An entry is removed when its link is closed or down.
//! Cost: a look-up is two indexings and a comparison; 12 bytes for each slot of a port's links.

use crate::ids::{LinkId, RemoteId};
use crate::table;

/// Remotes of links, by port and slot.
#[derive(Debug, Default)]
pub(super) struct BoundLinks {
    ports: Vec<Vec<Bound>>,
    /// Entry found last; `None` after a change of the table.
    last: Option<(LinkId, RemoteId)>,
}

/// Generation of a link, and its remote.
type Bound = (u32, RemoteId);

/// Entry of a slot without a link: the generation of a remote is never 0.
const FREE: Bound = (0, RemoteId::new(0, 0));

impl BoundLinks {
    /// Returns the remote of a link. `None`: the link is a stranger's.
    #[inline]
    pub(super) fn get(&self, link: LinkId) -> Option<RemoteId> {
        let places = self.ports.get(usize::from(link.port()))?;
        let (generation, remote) = *places.get(link.index() as usize)?;
        (generation == link.generation() && remote.generation() != 0).then_some(remote)
    }

    /// Returns the remote of a link as [`Self::get`] does; faster for the link looked up last.
    #[inline(always)]
    pub(super) fn find(&mut self, link: LinkId) -> Option<RemoteId> {
        match self.last {
            Some((known, remote)) if known == link => Some(remote),
            _ => self.find_other(link),
        }
    }

    #[inline(never)]
    fn find_other(&mut self, link: LinkId) -> Option<RemoteId> {
        let remote = self.get(link)?;
        self.last = Some((link, remote));
        Some(remote)
    }

    pub(super) fn bind(&mut self, link: LinkId, remote: RemoteId) {
        self.last = None;
        let (port, place) = (usize::from(link.port()), link.index() as usize);
        if self.ports.len() <= port {
            self.ports.resize_with(port + 1, Vec::new);
        }
        let places = &mut self.ports[port];
        if places.len() <= place {
            table::reserve(places, place + 1);
            places.resize(place + 1, FREE);
        }
        places[place] = (link.generation(), remote);
    }

    /// Removes a link that is closed or down.
    pub(super) fn forget(&mut self, link: LinkId) {
        self.last = None;
        if self.get(link).is_some() {
            self.ports[usize::from(link.port())][link.index() as usize] = FREE;
        }
    }

    pub(super) fn clear(&mut self) {
        (self.last, self.ports) = (None, Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_another_port_or_life_is_a_strangers() {
        let mut bound = BoundLinks::default();
        let remote = RemoteId::new(4, 1);
        let link = LinkId::new(7, 2).at_port(3);
        bound.bind(link, remote);
        assert_eq!(bound.get(link), Some(remote));
        for _ in 0..2 {
            assert_eq!(bound.find(link), Some(remote));
        }
        let later = LinkId::new(7, 3).at_port(3);
        for other in [LinkId::new(7, 2), later, LinkId::new(6, 2).at_port(3)] {
            assert_eq!((bound.get(other), bound.find(other)), (None, None));
            bound.forget(other);
        }
        bound.bind(later, remote);
        bound.forget(link);
        assert_eq!((bound.find(link), bound.find(later)), (None, Some(remote)));
        // The cached entry is forgotten, and then replaced by another remote's.
        bound.forget(later);
        assert_eq!(bound.find(later), None);
        bound.bind(later, remote);
        assert_eq!(bound.find(later), Some(remote));
        let other = RemoteId::new(5, 1);
        bound.bind(later, other);
        assert_eq!(bound.find(later), Some(other));
        bound.clear();
        assert_eq!(bound.find(later), None);
    }
}
