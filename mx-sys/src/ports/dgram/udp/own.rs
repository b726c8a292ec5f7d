//! Which addresses are this host's own.
//!
//! ```text
//!   is it ours? --> snapshot, at most a second old --> kernel's list of interfaces
//! ```
//!
//! What goes to one of them does not leave the machine.
//!
//! Owns: the snapshot.
//! Knows nothing of: what follows from it.

use super::address::Address;
use crate::clock::MonotonicClock;
use crate::interfaces::Interfaces;
use mx_proto::{Clock, Instant};
use std::cell::RefCell;
use std::time::Duration;

/// An address that has moved to another host is taken for ours at most so long.
const FRESH: Duration = Duration::from_secs(1);

/// This host's addresses.
#[derive(Debug)]
pub(super) struct OwnHost {
    known: RefCell<(Instant, Interfaces)>,
}

impl OwnHost {
    pub(super) fn new() -> Self {
        Self {
            known: RefCell::new((MonotonicClock.now(), Interfaces::now())),
        }
    }

    pub(super) fn has(&self, address: Address) -> bool {
        let ip = address.ip();
        if ip.is_loopback() {
            return true;
        }
        let mut known = self.known.borrow_mut();
        let now = MonotonicClock.now();
        if now.since(known.0) > FRESH {
            known.0 = now;
            known.1.refresh();
        }
        known.1.has(ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_and_our_interfaces_are_ours_and_others_are_not() {
        let own = OwnHost::new();
        let address = |text: &str| Address::new(text.parse().unwrap());
        assert!(own.has(address("127.3.2.1:1")) && own.has(address("[::1]:1")));
        // Reserved for documentation: nobody's own.
        assert!(!own.has(address("192.0.2.1:1")) && !own.has(address("[2001:db8::1]:1")));
        for board in Interfaces::now().boards() {
            assert!(own.has(Address::new(board.socket_address())));
        }
    }
}
