//! The addresses from which peers have asked for our name, by their names on the fabric.
//!
//! A name on a fabric that is no IP address tells nothing about its holder's machine. Its holder has asked
//! for ours over a TCP connection, just before it calls: it comes from there.
//!
//! Who says it has another one's name is taken for its holder until that asks again, as it does when it calls
//! again: the fabric proves nothing (docs/security.md). Names without a holder displace none but those of
//! their own source.
//!
//! Owns: the names, a bounded number of them.

use super::name::FabricAddress;
use mx_port_base::origin::Origin;
use mx_port_base::remembered::Remembered;
use std::net::SocketAddr;

/// All of them.
#[derive(Debug)]
pub(super) struct Askers(Remembered<FabricAddress, SocketAddr>);

/// Names that are remembered. Whose name is forgotten asks again when it calls again.
const ASKERS_MAX: usize = 16 << 10;

impl Askers {
    pub(super) fn new() -> Self {
        Self(Remembered::new(ASKERS_MAX))
    }

    /// Its holder asks, from there.
    pub(super) fn insert(&mut self, name: FabricAddress, from: SocketAddr) {
        self.0.insert(name, from, Origin::Address(from).source());
    }

    /// From where it has asked last.
    pub(super) fn get(&self, name: &FabricAddress) -> Option<SocketAddr> {
        self.0.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_names_displace_no_other_source() {
        let mut askers = Askers::new();
        let name = |number: u32| FabricAddress::new(&number.to_be_bytes()).unwrap();
        let [peer, stranger] = ["192.0.2.1:1", "192.0.2.2:1"].map(|text| text.parse().unwrap());
        askers.insert(name(0), peer);
        for number in 1..=ASKERS_MAX as u32 + 10 {
            askers.insert(name(number), stranger);
        }
        assert_eq!(askers.get(&name(0)), Some(peer));
        assert_eq!(askers.get(&name(1)), None);
        assert_eq!(askers.get(&name(ASKERS_MAX as u32 + 10)), Some(stranger));
    }
}
