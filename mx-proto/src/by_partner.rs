//! Which places of a slab belong to which partner.
//!
//! ```text
//!   place of a partner:  first, last      place of the slab:  neighbours
//!         #0  ------------>  #4 <-> #7 <-> #2                 in the order they joined
//!         #1  ------------>  (none)
//! ```
//!
//! Who takes a partner out of its table has emptied its chain: the place is given out again.
//!
//! Knows nothing of: what lies at the places. Cost: join and leave are O(1) and allocate nothing once
//! everything has grown to its size; 8 bytes a place on either side.

use crate::ids::PartnerId;
use crate::matching::{Chains, Ends};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ByPartner {
    ends: Vec<Ends>,
    chains: Chains,
}

impl ByPartner {
    /// `place`, which is nobody's, is `partner`'s from now on.
    #[inline]
    pub(crate) fn join(&mut self, partner: PartnerId, place: u32) {
        let at = partner.index() as usize;
        if at >= self.ends.len() {
            self.ends.resize(at + 1, Ends::EMPTY);
        }
        self.chains.append(&mut self.ends[at], place);
    }

    /// `place`, which was `partner`'s, is nobody's.
    #[inline]
    pub(crate) fn leave(&mut self, partner: PartnerId, place: u32) {
        match self.ends.get_mut(partner.index() as usize) {
            Some(ends) => self.chains.unlink(ends, place),
            None => debug_assert!(false, "{partner:?} has never had a place"),
        }
    }

    /// All of a partner's, in the order they joined.
    pub(crate) fn of(&self, partner: PartnerId) -> impl Iterator<Item = u32> {
        let ends = self.ends.get(partner.index() as usize);
        self.chains.walk(ends.copied().unwrap_or(Ends::EMPTY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_their_own_places_in_the_order_they_joined() {
        let partner = |index| PartnerId::new(index, 7);
        let mut places = ByPartner::default();
        for place in [4, 7, 2, 9, 0] {
            places.join(partner(place % 2), place);
        }
        let of = |places: &ByPartner, index| places.of(partner(index)).collect::<Vec<_>>();
        assert_eq!(
            [of(&places, 0), of(&places, 1)],
            [vec![4, 2, 0], vec![7, 9]]
        );
        places.leave(partner(0), 2);
        places.join(partner(1), 2);
        places.leave(partner(0), 4);
        places.leave(partner(1), 7);
        assert_eq!([of(&places, 0), of(&places, 1)], [vec![0], vec![9, 2]]);
        places.leave(partner(0), 0);
        assert!(of(&places, 0).is_empty() && of(&places, 5).is_empty());
    }
}
