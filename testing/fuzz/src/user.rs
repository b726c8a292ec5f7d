//! User of a port: checks that packets arrive as sent, once, whole and in order.
//!
//! ```text
//!   flow (a sender's link) --- bound by its first packet ---> link here       1 : 1
//!      serial 0, 1, 2, ...                                    next expected
//! ```
//!
//! Once a forger has known a session's cookies, contents are no longer guaranteed, only sizes are.

use crate::meter::within;
use crate::packets::{Packet, body_len};
use mx_proto::LinkId;
use mx_proto::memory::Source;
use mx_proto::port::{Destination, HeaderBytes, LinkDown, Place, RemoteUse};
use mx_sim::Sink;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(crate) struct User {
    /// Links that accept sends.
    pub(crate) links: Vec<LinkId>,
    /// Links that ended, and the reason.
    pub(crate) down: Vec<(LinkId, LinkDown)>,
    /// Calls of this sink so far.
    pub(crate) calls: u64,
    /// Flows with their receiving link and next serial.
    flows: BTreeMap<u64, (LinkId, u64)>,
    bound: HashMap<LinkId, u64>,
    /// Links that have ended: nothing comes from them any more.
    over: BTreeSet<u64>,
    /// Whether datagrams were forged with the right cookies.
    pub(crate) tainted: bool,
    /// Links that have come up and have not introduced themselves.
    pub(crate) up: Vec<LinkId>,
    /// Whether endpoints other than the ends have sessions.
    pub(crate) foreign: bool,
    /// Whether bodies that want a place get none.
    pub(crate) unwilling: bool,
    /// Whether memory has been refused before, so that large messages may be missing.
    pub(crate) was_unwilling: bool,
    rooms: HashMap<(LinkId, HeaderBytes), Vec<u8>>,
    limits: (usize, usize),
}

/// Maximum number of places at a time, so that a forger's headers cannot claim more memory. More
/// than an honest peer has under way.
const ROOMS_MAX: usize = 64;

impl User {
    /// Makes the user of a port that delivers bodies of at most `packet_max`, and places those up
    /// to `data_max`.
    pub(crate) fn new(packet_max: usize, data_max: usize) -> Self {
        Self {
            limits: (packet_max, data_max),
            ..Self::default()
        }
    }

    /// Returns the number of packets of a flow that have arrived.
    pub(crate) fn delivered(&self, flow: u64) -> u64 {
        self.flows.get(&flow).map_or(0, |(_, next)| *next)
    }

    fn packet(&mut self, link: LinkId, header: &HeaderBytes, body: &[u8]) {
        assert!(
            !self.over.contains(&link.to_word()),
            "a packet of a link that is over"
        );
        if !self.links.contains(&link) {
            self.links.push(link);
        }
        if self.tainted {
            return;
        }
        let known = Packet::of(header);
        let bound = self.bound.get(&link).copied();
        let Some(packet) = known.filter(|packet| packet.has_body(body)) else {
            assert!(
                self.foreign && bound.is_none(),
                "delivered a packet that was not sent: {header:02x?}, {} bytes",
                body.len()
            );
            return;
        };
        let (first, next) = *self.flows.entry(packet.flow).or_insert((link, 0));
        assert_eq!(first, link, "a second session delivers {packet:?}");
        assert_eq!(*self.bound.entry(link).or_insert(packet.flow), packet.flow);
        assert!(
            packet.serial == next || (self.was_unwilling && packet.serial > next),
            "{packet:?} instead of {next}"
        );
        self.flows.insert(packet.flow, (link, packet.serial + 1));
    }
}

impl Sink<Vec<u8>> for User {
    fn on_up(&mut self, link: LinkId) {
        within(0, || {
            self.calls += 1;
            self.up.push(link);
        });
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        within(0, || {
            self.calls += 1;
            self.links.retain(|known| *known != link);
            self.rooms.retain(|(owner, _), _| *owner != link);
            assert!(self.over.insert(link.to_word()), "a link ended twice");
            self.down.push((link, reason));
        });
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        within(0, || {
            self.calls += 1;
            assert_eq!(body_len(header), body.len(), "a header that lies");
            assert!(
                body.len() <= self.limits.0,
                "a packet of {} bytes",
                body.len()
            );
            self.packet(link, header, &body.to_vec());
        });
    }

    fn place(&mut self, link: LinkId, header: &HeaderBytes, _: bool) -> Option<Place<'_, Vec<u8>>> {
        within(0, || {
            self.calls += 1;
            let len = body_len(header);
            let full = self.rooms.len() >= ROOMS_MAX && !self.rooms.contains_key(&(link, *header));
            if header[1] != 1 || self.unwilling || len > self.limits.1 || full {
                return None;
            }
            let room = self.rooms.entry((link, *header));
            let memory = room.or_insert_with(|| vec![0; len]);
            Some(Place {
                memory: Destination::Memory(memory),
                offset: 0,
            })
        })
    }

    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        within(0, || {
            self.calls += 1;
            let body = self.rooms.remove(&(link, *header));
            assert!(
                body.is_some() || self.tainted || self.foreign,
                "placed nowhere"
            );
            if let Some(body) = body {
                self.packet(link, header, &body);
            }
        });
    }

    fn on_writable(&mut self, _: LinkId) {
        self.calls += 1;
    }

    fn on_remote_activity(&mut self, _: LinkId, _: RemoteUse) {
        self.calls += 1;
    }

    fn on_remote_read(&mut self, _: LinkId, _: u64, _: bool) {
        self.calls += 1;
    }
}
