//! Links of a fabric, to which sessions may move.
//!
//! ```text
//!   offer: an end without a peer, and its address --> call: makes the other end; up after a round trip
//! ```

use super::{Fabric, HostId, Inner, What};
use crate::world::NodeId;
use mx_proto::port::{LinkDown, MoveRefusal};
use mx_proto::{LinkId, Memory};

impl<M: Memory> Fabric<M> {
    /// Lets a node answer at all addresses of the fabric from now on, including those that other
    /// nodes have told.
    pub fn set_impostor(&self, node: Option<NodeId>) {
        self.inner.borrow_mut().impostor = node;
    }

    /// Lets no node answer at addresses of the fabric from now on, or the right ones again.
    pub fn set_mute(&self, mute: bool) {
        self.inner.borrow_mut().mute = mute;
    }
}

impl<M: Memory> Inner<M> {
    /// Returns the number of a port's links that are not of a fabric.
    pub(crate) fn met(&self, host: HostId) -> usize {
        let ends = self.hosts[host].ends.iter().flatten();
        ends.filter(|end| !end.added).count()
    }

    /// Makes an end that a peer may call.
    pub(crate) fn offer(&mut self, host: HostId) -> (LinkId, Vec<u8>) {
        let link = self.add_end(host, true, self.world.now());
        if let Some(end) = self.end_mut(host, link) {
            (end.beside, end.added) = (true, true);
        }
        let words = [host as u64, link.to_word()];
        (link, words.map(u64::to_le_bytes).concat())
    }

    /// Begins a link to the end with that address.
    pub(crate) fn call(&mut self, host: HostId, address: &[u8]) -> Result<LinkId, MoveRefusal> {
        let word = |at: usize| {
            let bytes = address.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let words = word(0).zip(word(8)).filter(|_| address.len() == 16);
        let (peer, offered) = words.ok_or(MoveRefusal::Differs)?;
        let (peer, offered) = (peer as HostId, LinkId::from_word(offered));
        let now = self.world.now();
        let link = self.add_end(host, false, now);
        let (there, back) = (self.travel(host), self.travel(host));
        let round = there + back;
        let impostor = self.impostor.and_then(|node| {
            let mut hosts = self.hosts.iter();
            hosts.position(|host| host.open && host.node == node)
        });
        let is_there = self.hosts.get(peer).is_some_and(|host| host.open);
        if self.mute || !is_there {
            let keepalive = self.hosts[host].profile.keepalive;
            let down = What::Down(LinkDown::TimedOut);
            self.put(now.after(keepalive), host, link, down);
        } else if let Some(other) = impostor {
            let nic = self.hosts[other].nic;
            self.join(host, link, (other, nic), (there, round));
        } else if self.end(peer, offered).is_some_and(|end| end.added) {
            for (end, with) in [
                ((host, link), (peer, offered)),
                ((peer, offered), (host, link)),
            ] {
                if let Some(end) = self.end_mut(end.0, end.1) {
                    end.peer = Some(with);
                    end.last_arrival = now.after(round);
                }
            }
            self.put(now.after(round), host, link, What::Up);
        } else {
            let down = What::Down(LinkDown::Reset);
            self.put(now.after(round), host, link, down);
        }
        if let Some(end) = self.end_mut(host, link) {
            (end.beside, end.added) = (true, true);
        }
        Ok(link)
    }
}
