//! Peers' addresses in the provider's address vector, each inserted once.
//!
//! ```text
//!   [bytes of an endpoint address] --take--> number, used by n links --give--> (0 links) fi_av_remove
//! ```
//!
//! Several links may lead to one address, after simultaneous connects or a reconnect.
//!
//! Owns: the numbers and their reference counts.
//! Out of scope: links.

use mx_port_fabric::{Domain, FabricError};
use std::collections::HashMap;

/// Addresses in use.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    numbers: HashMap<Vec<u8>, u64>,
    users: HashMap<u64, (Vec<u8>, u32)>,
}

impl Addresses {
    /// Returns the provider's number for an address, and counts a user; [`Addresses::give`] releases it.
    pub(super) fn take(&mut self, domain: &Domain, bytes: &[u8]) -> Result<u64, FabricError> {
        if let Some(number) = self.numbers.get(bytes)
            && let Some((_, users)) = self.users.get_mut(number)
        {
            *users += 1;
            return Ok(*number);
        }
        let number = domain.insert(bytes)?;
        self.numbers.insert(bytes.to_vec(), number);
        self.users.insert(number, (bytes.to_vec(), 1));
        Ok(number)
    }

    /// Adds a user of a number in use.
    pub(super) fn keep(&mut self, number: u64) {
        if let Some((_, users)) = self.users.get_mut(&number) {
            *users += 1;
        }
    }

    /// Returns the address of a number.
    pub(super) fn bytes(&self, number: u64) -> Option<&[u8]> {
        let (bytes, _) = self.users.get(&number)?;
        Some(bytes)
    }

    /// Removes a user of a number; the last removes the address from the vector.
    pub(super) fn give(&mut self, domain: &Domain, number: u64) {
        let Some((bytes, users)) = self.users.get_mut(&number) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            self.numbers.remove(bytes);
            self.users.remove(&number);
            domain.remove(number);
        }
    }
}
