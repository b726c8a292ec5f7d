//! Links of a hostile endpoint's port: the program decides what arrives on them.
//!
//! ```text
//!   Endpoint -- send --> Links: the last packets          the program answers, correctly or not
//!            <-- poll -- cables  <-- up, down, packets --------'
//! ```

use crate::meter::within;
use mx_proto::memory::Memory;
use mx_proto::origin::{LinkOrigin, Source};
use mx_proto::port::{ConnectError, HeaderBytes, Limits};
use mx_proto::secret::Binding;
use mx_proto::wire::Kind;
use mx_proto::{Identity, LinkId, NicId, Target};
use mx_sim::script::{Delivery, Ends, Event, Net};
use mx_sim::{Script, ScriptedNet, ScriptedPort};
use std::collections::VecDeque;
use std::rc::Rc;

pub(crate) type HostileNet = ScriptedNet<Links>;
pub(crate) type HostilePort = ScriptedPort<Links>;

/// Memory of an operation, which knows whether it is still held.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    all: Rc<()>,
}

impl Buffer {
    /// Allocates a buffer. All buffers share `all`, which counts them.
    pub(crate) fn new(len: usize, all: &Rc<()>) -> Self {
        Self {
            bytes: vec![0x5a; len],
            all: Rc::clone(all),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The program allocated this memory, not the endpoint.
        within(0, || drop(std::mem::take(&mut self.bytes)));
        debug_assert!(Rc::strong_count(&self.all) > 1);
    }
}

impl Memory for Buffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn part(&self, offset: usize, len: usize) -> Option<Self> {
        assert!(offset + len <= self.bytes.len(), "beyond the region");
        Some(within(0, || Self::new(len, &self.all)))
    }

    fn visit(&self, offset: usize, len: usize, visitor: impl FnMut(&[u8])) {
        self.bytes.visit(offset, len, visitor);
    }

    fn visit_mut(&mut self, offset: usize, len: usize, visitor: impl FnMut(&mut [u8])) {
        self.bytes.visit_mut(offset, len, visitor);
    }
}

/// Settings of the port, and the packets sent through it.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Latest packets of the endpoint, the newest at the end, without messages' data.
    pub(crate) sent: VecDeque<(LinkId, HeaderBytes, Vec<u8>)>,
    /// Number of sends that will be rejected as full.
    pub(crate) full: u8,
    /// Whether large bodies are accepted in part.
    pub(crate) in_parts: bool,
}

pub(crate) const PACKET_MAX: usize = 8192;
pub(crate) const STREAMED_MAX: usize = 16_000;
const DATA_MAX: usize = 20_000;
/// Bodies of this size and above arrive in two halves, if a place is asked for.
const HALVED_MIN: usize = 4096;
const SENT_MAX: usize = 16;

/// Opens a link from a peer.
pub(crate) fn open(net: &mut Net<Links>) -> LinkId {
    mx_sim::script::link(net.lay([None, Some(0)]), 1)
}

/// Reports an event to every link.
pub(crate) fn tell_all(net: &HostileNet, event: &Event) {
    for link in links(net) {
        net.with(|net| net.tell(link, event.clone()));
    }
}

/// Delivers a packet, and asks for a place for its body, if its kind has one.
pub(crate) fn tell_packet(
    net: &HostileNet,
    link: LinkId,
    (header, body): &(HeaderBytes, Vec<u8>),
    ask: bool,
) {
    let delivery = match body.len() {
        _ if !ask => Delivery::Whole,
        ..HALVED_MIN => Delivery::Placed { begin: true },
        _ => Delivery::Halves,
    };
    net.with(|net| net.tell(link, Event::Packet(*header, body.clone(), delivery)));
}

/// Returns the links that have not ended.
pub(crate) fn links(net: &HostileNet) -> Vec<LinkId> {
    net.with(|net| net.links(0).collect())
}

/// Returns the link at a position, modulo their number.
pub(crate) fn link(net: &HostileNet, at: usize) -> Option<LinkId> {
    let links = links(net);
    links.get(at % links.len().max(1)).copied()
}

/// Returns a packet that the endpoint has sent, counted from the last.
pub(crate) fn sent(net: &HostileNet, at: usize) -> Option<(LinkId, HeaderBytes, Vec<u8>)> {
    net.with(|net| net.script.sent.iter().rev().nth(at).cloned())
}

/// Returns the number of a link's cable, from 1 on.
fn number(link: LinkId) -> u32 {
    link.index() + 1
}

impl Script for Links {
    type Memory = Buffer;

    fn limits(&self) -> Limits {
        Limits {
            packet_max: PACKET_MAX,
            streamed_max: STREAMED_MAX,
            data_max: DATA_MAX,
            pull_block: 2 * DATA_MAX,
            remote_read: false,
            refusal_ends_link: false,
            data_links: 1,
        }
    }

    fn connect(
        &mut self,
        _: usize,
        target: Target,
    ) -> Result<(Option<usize>, Option<Event>), ConnectError> {
        match target.endpoint.0 {
            13 => Err(ConnectError::Refused),
            _ => Ok((None, None)),
        }
    }

    /// Decides by the link's number: most are where they claim to be, some elsewhere, and some
    /// unknown.
    fn seen(&self, link: LinkId, _: Ends, claimed: &Identity) -> LinkOrigin {
        let number = number(link);
        let nic = match number % 8 {
            6 => None,
            7 => Some(NicId(7)),
            _ => Some(claimed.nic),
        };
        LinkOrigin {
            source: Source(u64::from(number % 4)),
            user: None,
            nic,
            oneself: number % 16 == 5,
        }
    }

    fn has_interface(&self, _: usize, nic: NicId) -> bool {
        nic.0 % 2 == 1
    }

    fn binding(&self, link: LinkId) -> Binding {
        [number(link).into(), 1]
    }

    fn refuses(&mut self, _: LinkId, _: &HeaderBytes) -> bool {
        let refuses = self.full > 0;
        self.full = self.full.saturating_sub(1);
        refuses
    }

    fn part(&self, len: usize, first: bool) -> usize {
        if self.in_parts && first {
            PACKET_MAX
        } else {
            len
        }
    }

    fn on_sent(&mut self, link: LinkId, header: &HeaderBytes, body: &[u8]) {
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        let is_data = [Kind::Eager as u8, Kind::Data as u8].contains(&header[0]);
        let body = if is_data { &[] } else { body };
        self.sent.push_back((link, *header, body.to_vec()));
    }
}
