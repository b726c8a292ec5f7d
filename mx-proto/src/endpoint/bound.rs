//! The remote of each link.
//!
//! ```text
//!   no entry     a stranger's: its packets may introduce their sender
//!   a remote     it called there, or has been met there
//! ```
//!
//! Owns: the table. An entry goes when its link is closed or down.
//! Cost: a look-up is two indices and a comparison; 16 bytes for each place of a port's links.

use crate::ids::{LinkId, RemoteId};

/// The remotes of links, by the links' ports and places.
#[derive(Debug, Default)]
pub(super) struct BoundLinks {
    ports: Vec<Vec<Option<(LinkId, RemoteId)>>>,
}

impl BoundLinks {
    /// Returns the remote of a link. `None`: it is a stranger's.
    #[inline]
    pub(super) fn get(&self, link: LinkId) -> Option<RemoteId> {
        let places = self.ports.get(usize::from(link.port()))?;
        match places.get(link.index() as usize) {
            Some(Some((known, remote))) if *known == link => Some(*remote),
            _ => None,
        }
    }

    /// Notes that a link is this remote's.
    pub(super) fn bind(&mut self, link: LinkId, remote: RemoteId) {
        let (port, place) = (usize::from(link.port()), link.index() as usize);
        if self.ports.len() <= port {
            self.ports.resize_with(port + 1, Vec::new);
        }
        let places = &mut self.ports[port];
        if places.len() <= place {
            places.resize(place + 1, None);
        }
        places[place] = Some((link, remote));
    }

    /// Forgets a link that is no more.
    pub(super) fn forget(&mut self, link: LinkId) {
        if self.get(link).is_some() {
            self.ports[usize::from(link.port())][link.index() as usize] = None;
        }
    }

    /// Forgets all links.
    pub(super) fn clear(&mut self) {
        self.ports.clear();
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
        let later = LinkId::new(7, 3).at_port(3);
        for other in [LinkId::new(7, 2), later, LinkId::new(6, 2).at_port(3)] {
            assert_eq!(bound.get(other), None);
            bound.forget(other);
        }
        bound.bind(later, remote);
        bound.forget(link);
        assert_eq!((bound.get(link), bound.get(later)), (None, Some(remote)));
        bound.clear();
        assert_eq!(bound.get(later), None);
    }
}
