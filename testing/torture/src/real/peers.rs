//! Address objects of a node, and their peers.
//!
//! ```text
//!   looked up ----------> object, object: node 1, which this node calls      --- dropped --> must not be seen again
//!   reg_addr, its name -> object:         node 1, which has called, a session
//!                           `-- forgotten: every post ends with ENETRESET -- may be dropped --> dropped
//! ```
//!
//! Owns: the living objects, and their peers.
//! Out of scope: operations.

use super::args::Place;
use super::bmi::{self, News};
use bmi_host::method::{Address, Method};
use bmi_mx_torture::{Peer, Side};
use mx_sim::Rng;
use std::collections::BTreeSet;

/// An address object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    pub(crate) address: Address,
    pub(crate) peer: Peer,
    /// Name that the library uses for a caller.
    name: Option<i64>,
    /// Whether the library has reported the end of this caller's session.
    pub(crate) is_over: bool,
}

/// All address objects.
#[derive(Debug)]
pub(crate) struct Peers {
    place: Place,
    objects: Vec<Object>,
    /// Number of peers so far.
    count: u32,
}

impl Peers {
    pub(crate) fn new(place: &Place) -> Self {
        Self {
            place: *place,
            objects: Vec::new(),
            count: 0,
        }
    }

    /// Returns any object of the `wanted` peers.
    pub(crate) fn any(&self, rng: &mut Rng, wanted: impl Fn(&Peer) -> bool) -> Option<Object> {
        let all = self.objects.iter().filter(|object| wanted(&object.peer));
        let all: Vec<_> = all.copied().collect();
        (!all.is_empty()).then(|| rng.pick(&all))
    }

    /// Returns each peer.
    pub(crate) fn all(&self) -> BTreeSet<Peer> {
        self.objects.iter().map(|object| object.peer).collect()
    }

    /// Returns the callers, and whether their sessions have ended.
    pub(crate) fn callers(&self) -> Vec<(Peer, bool)> {
        let called = |object: &&Object| object.peer.side == Side::Caller;
        let all = self.objects.iter().filter(called);
        all.map(|object| (object.peer, object.is_over)).collect()
    }

    /// Makes a new object that calls a node. All such objects of one node are one peer.
    pub(crate) fn look_up(&mut self, method: Method, node: usize) -> Result<Object, String> {
        let address = method.lookup(&bmi::name_of(&self.place, node))?;
        if let Some(known) = self.at(address) {
            return Err(format!(
                "lookup of n{node} gives {address:x?}, which is an address of {} already",
                known.peer
            ));
        }
        let mut called = self.objects.iter().map(|object| object.peer);
        let called = called.find(|peer| (peer.node, peer.side) == (node, Side::Called));
        let peer = called.unwrap_or_else(|| self.another(node, Side::Called));
        Ok(self.add(address, peer, None))
    }

    fn another(&mut self, node: usize, side: Side) -> Peer {
        self.count += 1;
        Peer {
            node,
            side,
            number: self.count,
        }
    }

    fn add(&mut self, address: Address, peer: Peer, name: Option<i64>) -> Object {
        let object = Object {
            address,
            peer,
            name,
            is_over: false,
        };
        self.objects.push(object);
        object
    }

    /// Drops the objects of the `wanted` peers.
    pub(crate) fn drop(&mut self, method: Method, wanted: impl Fn(&Peer) -> bool) {
        let drops = |object: &mut Object| wanted(&object.peer);
        for object in self.objects.extract_if(.., drops) {
            method.drop_address(object.address);
        }
    }

    /// Drops callers whose sessions have ended, if the library holds nothing of theirs any more.
    pub(crate) fn drop_those_over(&mut self, method: Method) {
        let drops = |object: &mut Object| object.is_over && method.may_drop(object.address);
        for object in self.objects.extract_if(.., drops) {
            bmi::record(&format!("{} dropped", object.peer));
            method.drop_address(object.address);
        }
    }

    /// Returns the living object at an address.
    pub(crate) fn at(&self, address: Address) -> Option<Object> {
        let mut all = self.objects.iter();
        all.find(|object| object.address == address).copied()
    }

    /// Handles a report of the library.
    pub(crate) fn take(&mut self, method: Method, news: News) -> Result<(), String> {
        match news {
            News::Wrong(text) => Err(text),
            News::Registered(address, name) => {
                if let Some(known) = self.at(address) {
                    return Err(format!(
                        "{address:x?} of {} registered once more",
                        known.peer
                    ));
                }
                let text = method.name(address);
                let node = self.node_named(&text);
                let node = node.ok_or_else(|| format!("a peer with the name '{text}'"))?;
                let peer = self.another(node, Side::Caller);
                bmi::record(&format!("{peer} registered as {name}, {address:x?}"));
                self.add(address, peer, Some(name));
                Ok(())
            }
            News::Forgotten(name) => {
                let mut all = self.objects.iter_mut();
                // Dropped while the library was about to report it.
                let Some(object) = all.find(|object| object.name == Some(name)) else {
                    return Ok(());
                };
                let peer = object.peer;
                if std::mem::replace(&mut object.is_over, true) {
                    return Err(format!("{peer} forgotten once more"));
                }
                bmi::record(&format!("{peer} forgotten"));
                Ok(())
            }
        }
    }

    /// Returns the node with this name.
    fn node_named(&self, text: &str) -> Option<usize> {
        let rest = text.strip_prefix("mx://")?;
        let rest = rest.split('/').next()?;
        let endpoint: u32 = rest.rsplit(':').next()?.parse().ok()?;
        let node = endpoint.checked_sub(self.place.base)? as usize;
        (node < self.place.nodes).then_some(node)
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn peers_are_known_by_their_endpoints() {
        let peers = Peers::new(&Place {
            index: 0,
            life: 0,
            nodes: 3,
            base: 5000,
        });
        for (text, node) in [
            ("mx://localhost:0:5002", Some(2)),
            ("mx://tcp@localhost:5000", Some(0)),
            ("mx://localhost:5003", None),
            ("mx://localhost:4999", None),
            ("(unknown)", None),
        ] {
            assert_eq!(peers.node_named(text), node, "{text}");
        }
    }
}
