//! A port with the peers that the program chooses, and any packets it says.
//!
//! ```text
//!   Endpoint -- send --> Wire: sent, the last of each link          the program answers, or lies
//!            <-- poll -- Wire: inbox  <-- up, down, packets --------'
//! ```
//!
//! Keeps a port's own promises, so that what goes wrong is the endpoint's: nothing after a link's
//! end, bodies as long as their headers say, nothing larger than the limits that has no place.

use crate::meter::within;
use crate::packets::body_len;
use mx_proto::memory::Memory;
use mx_proto::origin::{Address, Seen, Source};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, LinkDown, Port, SendError, Sent,
    Sink,
};
use mx_proto::secret::Binding;
use mx_proto::time::{Clock, Instant};
use mx_proto::{Identity, LinkId, NicId, Target};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Memory of an operation, which knows whether it is still held.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    all: Rc<()>,
}

impl Buffer {
    /// `all` is shared by all that exist.
    pub(crate) fn new(len: usize, all: &Rc<()>) -> Self {
        Self {
            bytes: vec![0x5a; len],
            all: Rc::clone(all),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // It was not the endpoint that took this memory.
        within(0, || drop(std::mem::take(&mut self.bytes)));
        debug_assert!(Rc::strong_count(&self.all) > 1);
    }
}

impl Memory for Buffer {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn visit(&self, offset: usize, len: usize, visitor: impl FnMut(&[u8])) {
        self.bytes.visit(offset, len, visitor);
    }

    fn visit_mut(&mut self, offset: usize, len: usize, visitor: impl FnMut(&mut [u8])) {
        self.bytes.visit_mut(offset, len, visitor);
    }
}

/// An event that the port will tell.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    Up,
    Down(LinkDown),
    Writable,
    /// The last: the body is offered a place if it is of that kind.
    Packet(HeaderBytes, Vec<u8>, bool),
}

#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) now: Instant,
    /// Links there are, and the word bound to each.
    pub(crate) links: BTreeMap<u32, u64>,
    next: u32,
    pub(crate) inbox: VecDeque<(LinkId, Word)>,
    /// The endpoint's last packets, the youngest at the end.
    pub(crate) sent: VecDeque<(LinkId, HeaderBytes, Vec<u8>)>,
    /// So many of the next sends find no room.
    pub(crate) full: u8,
    /// Large bodies are taken in part.
    pub(crate) in_parts: bool,
    /// Links on which a half of a body has come, and all of it.
    pub(crate) midway: BTreeMap<u32, (HeaderBytes, Vec<u8>)>,
    /// The link whose body is not all there, and how much is missing.
    partial: BTreeMap<u32, usize>,
}

pub(crate) const PACKET_MAX: usize = 8192;
pub(crate) const STREAMED_MAX: usize = 16_000;
const DATA_MAX: usize = 20_000;
/// Bodies from here on come in two halves, when a place is asked for.
const HALVED_MIN: usize = 4096;
const SENT_MAX: usize = 16;

impl Wire {
    /// A link that a peer made, or we do.
    pub(crate) fn open(&mut self) -> LinkId {
        self.next += 1;
        self.links.insert(self.next, 0);
        LinkId::new(self.next, 0)
    }

    pub(crate) fn tell(&mut self, link: LinkId, word: Word) {
        self.inbox.push_back((link, word));
    }

    /// Tells that of every link.
    pub(crate) fn tell_all(&mut self, word: &Word) {
        let links = self.links.keys().map(|link| LinkId::new(*link, 0));
        self.inbox.extend(links.map(|link| (link, word.clone())));
    }

    /// One of the links there are, counted round.
    pub(crate) fn link(&self, at: usize) -> Option<LinkId> {
        let at = at % self.links.len().max(1);
        let link = self.links.keys().nth(at);
        link.map(|link| LinkId::new(*link, 0))
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }

    fn end(&mut self, link: LinkId) -> Option<u64> {
        self.partial.remove(&link.index());
        self.midway.remove(&link.index());
        self.inbox.retain(|(of, _)| *of != link);
        self.links.remove(&link.index())
    }
}

#[derive(Debug)]
pub(crate) struct HostilePort {
    pub(crate) wire: Rc<RefCell<Wire>>,
}

#[derive(Debug)]
pub(crate) struct WireClock(pub(crate) Rc<RefCell<Wire>>);

impl Clock for WireClock {
    fn now(&self) -> Instant {
        self.0.borrow().now
    }
}

impl LinkControl for HostilePort {
    fn limits(&self, _: LinkId) -> Limits {
        Limits {
            packet_max: PACKET_MAX,
            streamed_max: STREAMED_MAX,
            data_max: DATA_MAX,
            pull_block: 2 * DATA_MAX,
            remote_read: false,
            refusal_ends_link: false,
        }
    }

    fn connect(&mut self, target: Target, _: Instant) -> Result<LinkId, ConnectError> {
        match target.endpoint.0 {
            13 => Err(ConnectError::Refused),
            _ => Ok(within(0, || self.wire.borrow_mut().open())),
        }
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        if let Some(bound) = self.wire.borrow_mut().links.get_mut(&link.index()) {
            *bound = cookie;
        }
    }

    /// By its number: most are where they say, some are elsewhere, and of some nothing is known.
    fn seen(&self, link: LinkId, claimed: &Identity) -> Seen {
        let nic = match link.index() % 8 {
            6 => None,
            7 => Some(NicId(7)),
            _ => Some(claimed.nic),
        };
        Seen {
            source: Source(u64::from(link.index() % 4)),
            user: None,
            nic,
            address: Address(link.index().into()),
            oneself: link.index() % 16 == 5,
        }
    }

    fn binding(&self, link: LinkId) -> Binding {
        [link.index().into(), 1]
    }

    fn has_address(&self, address: Address) -> bool {
        address.0 % 2 == 1
    }

    fn has_interface(&self, nic: NicId) -> bool {
        nic.0 % 2 == 1
    }

    fn close(&mut self, link: LinkId, _: Close) {
        within(0, || self.wire.borrow_mut().end(link));
    }

    fn arm(&mut self) -> bool {
        self.wire.borrow().inbox.is_empty()
    }

    fn disarm(&mut self) {}
}

impl Port<Buffer> for HostilePort {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, Buffer>,
    ) -> Result<Sent, SendError> {
        within(0, || {
            let mut wire = self.wire.borrow_mut();
            assert_eq!(body_len(header), body.len(), "a header that lies");
            if !wire.links.contains_key(&link.index()) {
                return Err(SendError::Down);
            }
            if wire.full > 0 || wire.partial.contains_key(&link.index()) {
                wire.full = wire.full.saturating_sub(1);
                return Err(SendError::WouldBlock);
            }
            let most = match header[0] {
                3 => STREAMED_MAX,
                6 => DATA_MAX,
                _ => PACKET_MAX,
            };
            assert!(body.len() <= most, "a body of {} bytes", body.len());
            let mut bytes = Vec::new();
            let mut sent = Sent::Whole;
            match body {
                Body::Bytes(given) => bytes.extend_from_slice(given),
                Body::Memory {
                    memory,
                    offset,
                    len,
                } => {
                    assert!(offset + len <= memory.len(), "more than there is");
                    if wire.in_parts && len > PACKET_MAX {
                        wire.partial.insert(link.index(), len - PACKET_MAX);
                        sent = Sent::Part(PACKET_MAX);
                    }
                }
            }
            if wire.sent.len() == SENT_MAX {
                wire.sent.pop_front();
            }
            wire.sent.push_back((link, *header, bytes));
            Ok(sent)
        })
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &Buffer,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let mut wire = self.wire.borrow_mut();
        if !wire.links.contains_key(&link.index()) {
            return Err(SendError::Down);
        }
        assert_eq!(wire.partial.get(&link.index()), Some(&len));
        assert!(offset + len <= memory.len(), "more than there is");
        if wire.full > 0 {
            wire.full -= 1;
            return Err(SendError::WouldBlock);
        }
        within(0, || wire.partial.remove(&link.index()));
        Ok(Sent::Whole)
    }

    fn detach(&mut self, link: LinkId, memory: &Buffer, offset: usize, len: usize) {
        assert!(offset + len <= memory.len(), "more than there is");
        let mut wire = self.wire.borrow_mut();
        if wire.links.contains_key(&link.index()) {
            let missing = within(0, || wire.partial.remove(&link.index()));
            assert_eq!(missing, Some(len), "detached what is not under way");
        }
    }

    fn poll<S: Sink<Buffer>>(&mut self, _: Instant, budget: usize, sink: &mut S) -> bool {
        let mut busy = false;
        for _ in 0..budget {
            let next = within(0, || self.wire.borrow_mut().inbox.pop_front());
            let Some((link, word)) = next else { break };
            let bound = self.wire.borrow().links.get(&link.index()).copied();
            if let Some(cookie) = bound {
                busy = true;
                self.give(link, cookie, &word, sink);
            }
            within(0, || drop(word));
        }
        busy
    }
}

impl HostilePort {
    fn give<S: Sink<Buffer>>(&mut self, link: LinkId, cookie: u64, word: &Word, sink: &mut S) {
        if !matches!(word, Word::Down(_))
            && let Some((header, body)) =
                within(0, || self.wire.borrow_mut().midway.remove(&link.index()))
        {
            if let Some(mut place) = sink.place(link, cookie, &header, false) {
                let (at, rest) = (body.len() / 2, body.len() - body.len() / 2);
                place.memory.fill(place.offset + at, rest, &body[..], at);
                sink.on_placed(link, cookie, &header);
            }
            within(0, || drop(body));
        }
        match word {
            Word::Up => sink.on_up(link, cookie),
            Word::Down(reason) => {
                within(0, || self.wire.borrow_mut().end(link));
                sink.on_down(link, cookie, *reason);
            }
            Word::Writable => sink.on_writable(link, cookie),
            Word::Packet(header, body, ask) => {
                if *ask && let Some(mut place) = sink.place(link, cookie, header, true) {
                    let room = place.memory.len() - place.offset;
                    assert!(body.len() <= room, "a place too small");
                    if body.len() < HALVED_MIN {
                        place.memory.fill(place.offset, body.len(), &body[..], 0);
                        return sink.on_placed(link, cookie, header);
                    }
                    place
                        .memory
                        .fill(place.offset, body.len() / 2, &body[..], 0);
                    return within(0, || {
                        let mut wire = self.wire.borrow_mut();
                        wire.midway.insert(link.index(), (*header, body.clone()));
                    });
                }
                if body.len() <= PACKET_MAX {
                    sink.on_packet(link, cookie, header, &body[..]);
                }
            }
        }
    }
}
