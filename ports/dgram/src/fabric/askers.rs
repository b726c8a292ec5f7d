//! The addresses from which peers have asked for our name, by their names on the fabric.
//!
//! A name on a fabric that is no IP address tells nothing about its holder's machine. Its holder has asked
//! for ours over a TCP connection, just before it calls: it comes from there.
//!
//! Owns: the names, a bounded number of them.

use super::name::FabricAddress;
use std::collections::HashMap;
use std::net::SocketAddr;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Askers(HashMap<FabricAddress, SocketAddr>);

/// Names that are remembered. Beyond it all are forgotten: who calls later asks again.
const ASKERS_MAX: usize = 16 << 10;

impl Askers {
    /// Its holder asks, from there.
    pub(super) fn insert(&mut self, name: FabricAddress, from: SocketAddr) {
        if self.0.len() >= ASKERS_MAX && !self.0.contains_key(&name) {
            self.0.clear();
        }
        self.0.insert(name, from);
    }

    /// From where it has asked last.
    pub(super) fn get(&self, name: &FabricAddress) -> Option<SocketAddr> {
        self.0.get(name).copied()
    }
}
