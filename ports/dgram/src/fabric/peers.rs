//! The names in the provider's address vector: the most recently used ones.
//!
//! ```text
//!   name --take--> number of a place --> fi_addr_t     if absent: fi_av_insert, into the place
//!                     |                                that was unused longest
//!   begun, ended      a place with sends in flight is kept
//! ```
//!
//! Only destinations of sends get a place. A stranger who is answered takes one for a while;
//! [`MOST`] bounds their total, and an evicted peer gets a place again with the next datagram.
//!
//! Owns: the places.
//! Out of scope: the peers behind the names.
//! Cost: one table lookup, none for the destination of the previous send.

use super::name::FabricAddress;
use mx_port_fabric::{Domain, FabricError};
use std::collections::HashMap;

/// Number of places. Addresses have room for some thousand handles, and a process talks with fewer
/// peers at a time.
pub(super) const MOST: usize = 4096;

/// All places.
#[derive(Debug, Default)]
pub(super) struct Peers {
    numbers: HashMap<FabricAddress, u32>,
    places: Vec<PeerEntry>,
    /// The next candidate for eviction (the hand of a clock algorithm).
    hand: usize,
    last: Option<(FabricAddress, u32)>,
}

#[derive(Debug)]
struct PeerEntry {
    name: FabricAddress,
    address: u64,
    /// Sends that the provider has.
    busy: u32,
    used: bool,
}

/// The reason why there is no place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    /// All have sends in flight.
    Full,
    /// The provider refuses the name.
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

    /// The provider's handle for the peer at this place.
    #[inline]
    pub(super) fn address(&self, number: u32) -> u64 {
        let place = self.places.get(number as usize);
        place.map_or(u64::MAX, |place| place.address)
    }

    /// Counts a send that is, or will be, given to the provider.
    #[inline]
    pub(super) fn begun(&mut self, number: u32) {
        if let Some(place) = self.places.get_mut(number as usize) {
            place.busy += 1;
        }
    }

    /// Counts the end of a send.
    #[inline]
    pub(super) fn ended(&mut self, number: u32) {
        if let Some(place) = self.places.get_mut(number as usize) {
            place.busy = place.busy.saturating_sub(1);
        }
    }

    /// Places in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[cold]
    fn insert(&mut self, domain: &Domain, name: &FabricAddress) -> Result<u32, NoPlace> {
        let old = if self.places.len() < MOST {
            None
        } else {
            Some(self.oldest().ok_or(NoPlace::Full)?)
        };
        let address = domain.insert(name.bytes()).map_err(NoPlace::Refused)?;
        let place = PeerEntry {
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

    /// A place to evict: without sends in flight, and not used since the hand last passed it.
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
