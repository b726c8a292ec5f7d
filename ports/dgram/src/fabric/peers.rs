//! Names that are in the provider's address vector, the ones used last.
//!
//! ```text
//!   name --take--> number of a place --> fi_addr_t     not there: fi_av_insert, for which the
//!                     |                                place used longest ago is given up
//!   begun, ended      places with sends under way stay
//! ```
//!
//! Only whom we send to gets a place. A stranger who makes us answer takes one for a while; [`MOST`]
//! bounds how many all of them have, and whoever loses a place to them gets one again with the next
//! datagram.
//!
//! Owns: the places.
//! Knows nothing of: who the names are.
//! Cost: one look-up in a table, none for who was sent to just before.

use super::name::FabricAddress;
use mx_port_fabric::{Domain, FabricError};
use std::collections::HashMap;

/// Places there are. Addresses have room for some thousand address handles, and a host talks with
/// fewer peers at a time.
pub(super) const MOST: usize = 4096;

/// All places.
#[derive(Debug, Default)]
pub(super) struct Peers {
    numbers: HashMap<FabricAddress, u32>,
    places: Vec<Place>,
    /// The next place to be given up if it has not been used since it was looked at last.
    hand: usize,
    last: Option<(FabricAddress, u32)>,
}

#[derive(Debug)]
struct Place {
    name: FabricAddress,
    address: u64,
    /// Sends the provider has.
    busy: u32,
    used: bool,
}

/// Why there is no place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    /// All have sends under way.
    Full,
    /// The provider will not have that name.
    Refused(FabricError),
}

impl Peers {
    /// The number of a name's place.
    #[inline]
    pub(super) fn take(&mut self, domain: &Domain, name: &FabricAddress) -> Result<u32, NoPlace> {
        if let Some((last, number)) = &self.last
            && last == name
        {
            return Ok(*number);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.insert(domain, name)?,
        };
        if let Some(place) = self.places.get_mut(number as usize) {
            place.used = true;
        }
        self.last = Some((*name, number));
        Ok(number)
    }

    /// What the provider calls who has this place.
    #[inline]
    pub(super) fn address(&self, number: u32) -> u64 {
        let place = self.places.get(number as usize);
        place.map_or(u64::MAX, |place| place.address)
    }

    /// A send to it has been given to the provider, or will be.
    #[inline]
    pub(super) fn begun(&mut self, number: u32) {
        if let Some(place) = self.places.get_mut(number as usize) {
            place.busy += 1;
        }
    }

    /// And is over.
    #[inline]
    pub(super) fn ended(&mut self, number: u32) {
        if let Some(place) = self.places.get_mut(number as usize) {
            place.busy = place.busy.saturating_sub(1);
        }
    }

    /// Places that are taken.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[cold]
    fn insert(&mut self, domain: &Domain, name: &FabricAddress) -> Result<u32, NoPlace> {
        let old = match self.places.len() < MOST {
            true => None,
            false => Some(self.oldest().ok_or(NoPlace::Full)?),
        };
        let address = domain.insert(name.bytes()).map_err(NoPlace::Refused)?;
        let place = Place {
            name: *name,
            address,
            busy: 0,
            used: true,
        };
        let number = match old {
            Some(old) => {
                let before = std::mem::replace(&mut self.places[old], place);
                self.numbers.remove(&before.name);
                domain.remove(before.address);
                self.last = None;
                old
            }
            None => {
                self.places.push(place);
                self.places.len() - 1
            }
        };
        self.numbers.insert(*name, number as u32);
        Ok(number as u32)
    }

    /// A place that can be given up: not used for a round of the hand, or the first that is free.
    fn oldest(&mut self) -> Option<usize> {
        for _ in 0..2 * self.places.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.places.len();
            let place = &mut self.places[at];
            if place.busy == 0 && !std::mem::take(&mut place.used) {
                return Some(at);
            }
        }
        None
    }
}
