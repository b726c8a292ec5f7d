//! Names in the provider's address vector: the most recently used ones.
//!
//! ```text
//!   name --take--> number of a place --> fi_addr_t     if absent: fi_av_insert, into the place
//!                     |                                that was unused longest
//!   begun, ended      a place with sends in flight is kept
//! ```
//!
//! Only destinations of sends have a place. Answering a stranger takes one temporarily; [`MOST`] bounds their total,
//! and an evicted peer gets a place again with the next datagram.
//!
//! Owns: the places.
//! Out of scope: the peers behind the names.
//! Cost: one table lookup; none if the destination is that of the previous send.

use super::name::FabricAddress;
use mx_port_fabric::{Domain, FabricError};
use std::collections::HashMap;

/// Maximum number of places. Address vectors have room for some thousand handles, and a process talks with fewer peers
/// at a time.
pub(super) const MOST: usize = 4096;

/// Table of places.
#[derive(Debug, Default)]
pub(super) struct Peers {
    numbers: HashMap<FabricAddress, u32>,
    places: Vec<PeerEntry>,
    /// Next candidate for eviction (the hand of a clock algorithm).
    hand: usize,
    last: Option<(FabricAddress, u32)>,
}

#[derive(Debug)]
struct PeerEntry {
    name: FabricAddress,
    address: u64,
    /// Sends that the provider has accepted and not completed.
    busy: u32,
    used: bool,
}

/// Reason why a name gets no place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    /// All places have sends in flight.
    Full,
    /// The provider rejects the name.
    Refused(FabricError),
}

impl Peers {
    /// Returns the place of a name, inserting it if absent.
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

    /// Returns the provider's handle for the peer at this place.
    #[inline]
    pub(super) fn address(&self, number: u32) -> u64 {
        let place = self.places.get(number as usize);
        place.map_or(u64::MAX, |place| place.address)
    }

    /// Counts a send that is or will be passed to the provider.
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

    /// Number of places in use.
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

    /// Returns a place to evict: without sends in flight, and unused since the hand last passed it.
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
