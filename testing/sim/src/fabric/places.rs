//! Ports at their nodes' places: names, and the source addresses of links.
//!
//! ```text
//!   (any address, number) --> port, unless it is behind a translator
//!   link  <-- an address of its machine, always the same for one destination; or the translator's
//! ```

use super::{Fabric, Host, HostId, Inner};
use crate::world::NodeId;
use mx_proto::origin::{LinkOrigin, Source};
use mx_proto::port::LinkDown;
use mx_proto::{EndpointId, LinkId, Memory, NicId};

impl<M: Memory> Fabric<M> {
    /// Gives the node's machine other addresses. Its links end: at once, or, if `silent`, when both
    /// ends have noticed the silence.
    pub fn move_to(&self, node: NodeId, addresses: Vec<NicId>, silent: bool) {
        let mut inner = self.inner.borrow_mut();
        inner.world.set_addresses(node, addresses);
        for host in 0..inner.hosts.len() {
            let (nic, name) = (inner.hosts[host].nic, inner.hosts[host].name);
            if inner.hosts[host].node != node || !inner.hosts[host].open {
                continue;
            }
            inner.names.retain(|_, owner| *owner != host);
            let names = inner.names_of(node, nic, name);
            inner
                .names
                .extend(names.into_iter().map(|name| (name, host)));
        }
        if silent {
            return inner.darken(|x, y| x == node || y == node);
        }
        for (host, link) in inner.links_between(|x, _| x == node) {
            inner.break_link(host, link, LinkDown::Reset);
        }
    }
}

impl<M: Memory> Inner<M> {
    /// Returns the names under which a port can be called.
    pub(super) fn names_of(
        &self,
        node: NodeId,
        nic: NicId,
        number: EndpointId,
    ) -> Vec<(NicId, EndpointId)> {
        let home = self.world.home(node);
        let addresses = match (home.translator, home.addresses.is_empty()) {
            (Some(_), _) => Vec::new(),
            (None, true) => vec![nic],
            (None, false) => home.addresses,
        };
        let names = addresses.into_iter().map(|nic| (nic, number));
        names.collect()
    }

    /// Returns the addresses of that port's machine.
    pub(crate) fn addresses(&self, host: HostId) -> Vec<NicId> {
        let Host { node, nic, .. } = &self.hosts[host];
        let addresses = self.world.addresses(*node);
        if addresses.is_empty() {
            vec![*nic]
        } else {
            addresses
        }
    }

    /// Returns the source address of links to `to`; `None` if machines have no addresses.
    pub(super) fn leaves_from(&self, host: HostId, to: NicId) -> Option<NicId> {
        let home = self.world.home(self.hosts[host].node);
        let addresses = &home.addresses;
        let own = addresses.get(to.0 as usize % addresses.len().max(1));
        home.translator.or_else(|| own.copied())
    }

    /// Returns the other end of a link, as that port sees it. Nodes on its own machine, which any
    /// of its addresses reaches, have the name that the machine uses for itself.
    pub(crate) fn seen(&self, host: HostId, link: LinkId) -> LinkOrigin {
        let end = self.end(host, link);
        let peer = end.and_then(|end| Some(end.peer?.0));
        let own = self.addresses(host);
        let from = end.and_then(|end| end.from);
        let nic = match (from, peer) {
            (Some(from), _) if own.contains(&from) => own.first().copied(),
            (Some(from), _) => Some(from),
            (None, peer) => peer.map(|peer| self.hosts[peer].nic),
        };
        LinkOrigin {
            source: from.map_or(Source::TRUSTED, |from| Source(from.0)),
            user: None,
            nic,
            oneself: peer == Some(host),
        }
    }
}
