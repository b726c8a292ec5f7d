//! The address objects a node has.
//!
//! ```text
//!   looked up -----------> of node 1: | object | object |  --- dropped ---> must not be seen again
//!   reg_addr, its name --> of node 2: | object |
//! ```
//!
//! Owns: which objects are alive, and of whom.
//! Not here: operations.

use super::args::Place;
use super::bmi::{self, News};
use bmi_host::method::{Address, Method};
use mx_sim::Rng;
use std::collections::HashMap;

/// All of them.
#[derive(Debug)]
pub(crate) struct Peers {
    place: Place,
    of: Vec<Vec<Address>>,
    /// By the names they were given when the library made them known.
    registered: HashMap<i64, Address>,
}

impl Peers {
    pub(crate) fn new(place: &Place) -> Self {
        Self {
            place: *place,
            of: vec![Vec::new(); place.nodes],
            registered: HashMap::new(),
        }
    }

    /// Any address of a node; looked up when there is none.
    pub(crate) fn any(
        &mut self,
        method: Method,
        node: usize,
        rng: &mut Rng,
    ) -> Result<Address, String> {
        match self.of[node].len() {
            0 => self.another(method, node),
            have => Ok(self.of[node][rng.index(have)]),
        }
    }

    /// A new address of a node.
    pub(crate) fn another(&mut self, method: Method, node: usize) -> Result<Address, String> {
        let address = method.lookup(&bmi::name_of(&self.place, node))?;
        if let Some(owner) = self.owner(address) {
            return Err(format!(
                "lookup of n{node} gives {address:x?}, which is an address of n{owner} already"
            ));
        }
        self.of[node].push(address);
        Ok(address)
    }

    /// Drops all addresses of a node.
    pub(crate) fn drop(&mut self, method: Method, node: usize) {
        for address in std::mem::take(&mut self.of[node]) {
            self.registered.retain(|_, known| *known != address);
            method.drop_address(address);
        }
    }

    /// Drops all there are.
    pub(crate) fn drop_all(&mut self, method: Method) {
        for node in 0..self.of.len() {
            self.drop(method, node);
        }
    }

    /// The node of an address; `None` if it is none that is alive.
    pub(crate) fn owner(&self, address: Address) -> Option<usize> {
        self.of.iter().position(|all| all.contains(&address))
    }

    /// Takes in what the library told.
    pub(crate) fn take(&mut self, method: Method, news: News) -> Result<(), String> {
        match news {
            News::Wrong(text) => Err(text),
            News::Registered(address, name) => {
                if let Some(owner) = self.owner(address) {
                    return Err(format!("{address:x?} of n{owner} registered once more"));
                }
                let text = method.name(address);
                let node = self.node_named(&text);
                let node = node.ok_or_else(|| format!("a peer with the name '{text}'"))?;
                bmi::record(&format!("n{node} registered as {name}, {address:x?}"));
                self.of[node].push(address);
                self.registered.insert(name, address);
                Ok(())
            }
            News::Forgotten(name) => {
                // It may have been dropped while the library was about to tell.
                let Some(address) = self.registered.get(&name).copied() else {
                    return Ok(());
                };
                let may = method.may_drop(address);
                bmi::record(&format!("peer {name} forgotten, may be dropped: {may}"));
                if may {
                    self.registered.remove(&name);
                    self.of
                        .iter_mut()
                        .for_each(|all| all.retain(|known| *known != address));
                    method.drop_address(address);
                }
                Ok(())
            }
        }
    }

    /// The node that calls itself this.
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
