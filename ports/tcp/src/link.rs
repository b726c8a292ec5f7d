//! One connection, and the table of all of them.
//!
//! ```text
//!   connect -> Dialling --+                      +--> Lingering --> gone
//!                         +--> Open -- close ----+
//!   accept  -> Greeting --+                      `--> gone
//! ```
//!
//! Owns: the descriptor, bytes received and not delivered, bytes accepted and not sent.
//! Not here: epoll, the sink.
//! Cost: an idle link is one box of some 250 bytes beside its slot of 16.

use super::receive::Rx;
use super::send::Tx;
use super::sys;
use mx_port_base::numbers;
use mx_proto::origin::Source;
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId};
use smallvec::SmallVec;
use std::net::SocketAddr;

/// Slots are numbered below this; the bits above are used for the port's number.
pub(super) const INDEX_LIMIT: u32 = 1 << 28;

/// The state of a link.
#[derive(Debug)]
pub(super) enum Phase {
    /// The kernel is connecting.
    Dialling(Box<Dial>),
    /// Accepted, but it has not said yet that it is one of ours.
    Greeting,
    /// Carries packets.
    Open,
    /// Closed by its owner; what was accepted still goes out.
    Lingering,
}

/// A connection being made.
#[derive(Debug)]
pub(super) struct Dial {
    /// Addresses not tried yet, the next one last.
    pub(super) rest: SmallVec<[SocketAddr; 2]>,
    /// The number of the attempt, by which an expired timer of an earlier one is recognised.
    pub(super) attempt: u32,
    /// The most telling reason why an address did not answer.
    pub(super) worst: Option<LinkDown>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) fd: sys::TcpSocket,
    pub(super) peer: SocketAddr,
    pub(super) cookie: u64,
    pub(super) phase: Phase,
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    /// Others began it, and the endpoint has not bound it.
    pub(super) stranger: bool,
    /// The source whose share it counts against.
    pub(super) source: Source,
    /// The endpoint has heard of it: it asked for it, or a packet of it was delivered.
    pub(super) known: bool,
    /// It is in the list of links to read.
    pub(super) queued: bool,
    /// It is in the list of links read on each poll.
    pub(super) active: bool,
    /// The number of reads since the port last slept, up to that which makes it active; and the
    /// number of that sleep.
    pub(super) reads: u8,
    pub(super) read_after: u32,
    /// The endpoint was told that there is no room and waits for [`mx_proto::port::Sink::on_writable`].
    pub(super) waiting: bool,
    /// It waits for room, or the endpoint does.
    pub(super) blocked: bool,
    /// It is in the list of blocked links.
    pub(super) listed: bool,
    /// Its epoll interest includes room.
    pub(super) watched_for_room: bool,
    /// Its epoll interest is in what is new, because it waits for a whole packet.
    pub(super) watched_by_edge: bool,
    /// Something was sent since the peer was last known to be alive.
    pub(super) doubted: bool,
    /// The time since which the peer has owed an acknowledgement, as of the last check.
    pub(super) owes_since: Option<Instant>,
    /// Sending failed; what still arrives is delivered, then the link goes down over this.
    pub(super) failed: Option<LinkDown>,
}

impl Link {
    pub(super) fn new(fd: sys::TcpSocket, peer: SocketAddr, phase: Phase) -> Self {
        Self {
            fd,
            peer,
            cookie: 0,
            stranger: false,
            source: Source::TRUSTED,
            known: matches!(phase, Phase::Dialling(_)),
            phase,
            rx: Rx::default(),
            tx: Tx::default(),
            queued: false,
            active: false,
            reads: 0,
            read_after: 0,
            waiting: false,
            blocked: false,
            listed: false,
            watched_for_room: false,
            watched_by_edge: false,
            doubted: false,
            owes_since: None,
            failed: None,
        }
    }
}

/// All links of a port.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    used: usize,
    max: usize,
    /// Of the next link, whichever its place, so that a place may be forgotten.
    generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    link: Option<Box<Link>>,
}

impl Table {
    /// A table for at most `max` links.
    pub(super) fn new(max: usize) -> Self {
        let max = max.min(INDEX_LIMIT as usize);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            used: 0,
            max,
            generation: 0,
        }
    }

    /// Most links at a time.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// The number of links.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// True when there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.max
    }

    /// Gives `link` a name. The table must not be full.
    pub(super) fn insert(&mut self, link: Link) -> LinkId {
        debug_assert!(!self.is_full());
        self.used += 1;
        let generation = self.generation;
        self.generation = generation.wrapping_add(1);
        let slot = Slot {
            generation,
            link: Some(Box::new(link)),
        };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return name(index, generation);
        }
        let index = self.slots.len() as u32;
        self.slots.push(slot);
        name(index, generation)
    }

    /// The link of that name.
    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&Link> {
        let slot = self.slots.get(id.index() as usize)?;
        if slot.generation == id.generation() {
            slot.link.as_deref()
        } else {
            None
        }
    }

    /// The link of that name.
    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation == id.generation() {
            slot.link.as_deref_mut()
        } else {
            None
        }
    }

    /// All links with their names.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Link)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(|(index, slot)| {
                let id = name(index as u32, slot.generation);
                slot.link.as_deref_mut().map(|link| (id, link))
            })
    }

    /// Takes a link out; its name is stale from now on.
    pub(super) fn remove(&mut self, id: LinkId) -> Option<Box<Link>> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation != id.generation() {
            return None;
        }
        let link = slot.link.take()?;
        self.free.push(id.index());
        self.used -= 1;
        if self.used == 0 {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        Some(link)
    }
}

fn name(index: u32, generation: u32) -> LinkId {
    LinkId::new(index, generation).at_port(numbers::TCP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    fn link() -> Link {
        let address = "127.0.0.1:1".parse().unwrap();
        Link::new(sys::socket(&address).unwrap(), address, Phase::Open)
    }

    #[test]
    fn a_stale_name_finds_nothing_although_its_slot_is_used_again() {
        let mut table = Table::new(1);
        let first = table.insert(link());
        assert!(table.is_full());
        assert!(table.remove(first).is_some());
        let second = table.insert(link());
        assert_eq!(second.index(), first.index());
        assert!(table.get(first).is_none());
        assert!(table.get_mut(first).is_none());
        assert!(table.remove(first).is_none());
        assert!(table.get(second).is_some());
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_name_beyond_the_table_finds_nothing() {
        assert!(Table::new(4).get(LinkId::new(u32::MAX, 0)).is_none());
    }

    #[test]
    fn an_idle_link_is_small() {
        assert!(size_of::<Link>() <= 320, "{}", size_of::<Link>());
    }
}
