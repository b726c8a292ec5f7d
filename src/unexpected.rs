//! Messages nobody posted a receive for: the host's unexpected ones, and the handshake's.
//!
//! ```text
//!   endpoint asks (Intake)      CONN_REQ, CONN_ACK ---> handshake queue ---> method
//!        |                      (received first, where its sender had no credit for its bytes)
//!        |
//!        +-- UNEXPECTED, small -------------------------> ready queue -----> testunexpected
//!        +-- UNEXPECTED, large: receive into a buffer --> behind it, in the order of its peer
//!        +-- more than the limit: stays at the endpoint, whose credits hold its sender back
//!        +-- EXPECTED: stays at the endpoint until its receive is posted
//! ```
//!
//! Messages of one peer are handed out in the order they were sent, also when a large one takes
//! its time; messages of others pass it meanwhile.
//!
//! Owns: buffers of waiting messages and their limit.
//! Knows nothing of: peers but their keys, the host.

use crate::abandoned::Abandoned;
use crate::match_layout::{Fields, MessageType, TYPE, bits};
use crate::peer::handshake::REQUEST_MAX;
use crate::peer::table::PeerKey;
use foldhash::fast::RandomState;
use mx_proto::{
    Arrival, Completion, Handler, MatchBits, MatchMask, PartnerId, Source, Status, Verdict,
};
use mx_sys::{Lent, MallocBuffer, UserMemory};
use slab::Slab;
use std::collections::{HashMap, VecDeque};

/// One unexpected message.
#[derive(Debug)]
pub struct Message {
    /// Who sent it.
    pub peer: PeerKey,
    /// Its bytes.
    pub buffer: MallocBuffer,
    /// Its tag.
    pub tag: i32,
}

/// A message of the handshake.
#[derive(Debug)]
pub struct Note {
    /// Who sent it.
    pub partner: PartnerId,
    /// Its match bits taken apart.
    pub fields: Fields,
    /// What it says.
    pub body: Vec<u8>,
}

/// What is behind a large message that is still on its way, and the message itself.
#[derive(Debug)]
enum Behind {
    Coming(usize),
    Here(Message),
}

/// A large message on its way.
#[derive(Debug)]
struct Coming {
    peer: PeerKey,
    tag: i32,
    len: usize,
    lent: Lent,
}

/// A message of the handshake on its way: one whose sender may not send us its bytes unasked, as
/// all that may be sent so has been promised to others.
#[derive(Debug)]
struct Asked {
    partner: PartnerId,
    fields: Fields,
    len: usize,
    lent: Lent,
}

/// What arrived and waits.
#[derive(Debug)]
pub struct Inbox {
    ready: VecDeque<Message>,
    coming: Slab<Coming>,
    /// Each partner has at most as many as it may send messages.
    asked: Slab<Asked>,
    /// Per peer with a large message on its way.
    behind: HashMap<PeerKey, VecDeque<Behind>, RandomState>,
    notes: VecDeque<Note>,
    /// Bytes of all messages that wait or are on their way.
    bytes: usize,
    limit: usize,
    largest: usize,
    /// Messages have been left at the endpoint, and all that come later are, too.
    left_behind: bool,
    /// A message has become ready since a test call returned because of it.
    news: bool,
    /// A message has become ready since waiting threads were told.
    produced: bool,
    /// Messages dropped because they made no sense.
    dropped: u64,
    /// Receives that were given up, whose messages may still come.
    pub(crate) abandoned: Abandoned,
    /// Peers of which some were, and which have left another message at the endpoint.
    crowds: Vec<PeerKey>,
}

/// What a waiting message counts beside its bytes, so that empty ones are limited too.
const OVERHEAD: usize = 64;

impl Inbox {
    /// An inbox that takes messages up to `largest` and holds about `limit` bytes of them.
    pub fn new(limit: usize, largest: usize) -> Self {
        Self {
            ready: VecDeque::new(),
            coming: Slab::new(),
            asked: Slab::new(),
            behind: HashMap::default(),
            notes: VecDeque::new(),
            bytes: 0,
            limit,
            largest,
            left_behind: false,
            news: false,
            produced: false,
            dropped: 0,
            abandoned: Abandoned::default(),
            crowds: Vec::new(),
        }
    }

    /// The oldest message of the handshake.
    #[inline]
    pub fn pop_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// A note that cannot be dealt with yet goes back to the front.
    pub fn defer(&mut self, note: Note) {
        self.notes.push_front(note);
    }

    /// A peer that may have left too many messages at the endpoint.
    #[inline]
    pub fn pop_crowd(&mut self) -> Option<PeerKey> {
        self.crowds.pop()
    }

    #[cold]
    fn note_crowd(&mut self, peer: PeerKey) {
        if self.abandoned.any_of(peer.id()) && !self.crowds.contains(&peer) {
            self.crowds.push(peer);
        }
    }

    /// Who sent the oldest unexpected message.
    pub fn first_peer(&self) -> Option<PeerKey> {
        self.ready.front().map(|message| message.peer)
    }

    /// The oldest unexpected message.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        self.forget_bytes(message.buffer.len());
        Some(message)
    }

    /// Unexpected messages that can be had now.
    #[inline]
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Has a message become ready since the last call?
    #[inline]
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Has one become ready since the last call? Asked on behalf of threads that sleep.
    #[inline]
    pub fn take_produced(&mut self) -> bool {
        std::mem::take(&mut self.produced)
    }

    /// Somebody should look (again).
    pub fn set_news(&mut self) {
        self.news = true;
        self.produced = true;
    }

    /// Bytes that wait, overheads included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages dropped because they made no sense.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Does a message of that peer wait?
    pub fn holds(&self, peer: PeerKey) -> bool {
        self.behind.contains_key(&peer) || self.ready.iter().any(|message| message.peer == peer)
    }

    /// A peer is gone, and with it what it sent.
    pub fn forget(&mut self, peer: PeerKey) {
        let mut freed = 0;
        self.ready.retain(|message| {
            let keep = message.peer != peer;
            freed += if keep {
                0
            } else {
                message.buffer.len() + OVERHEAD
            };
            keep
        });
        for behind in self.behind.remove(&peer).into_iter().flatten() {
            if let Behind::Here(message) = behind {
                freed += message.buffer.len() + OVERHEAD;
            }
        }
        self.bytes = self.bytes.saturating_sub(freed);
    }

    /// One peer turned out to be another.
    pub fn rename(&mut self, from: PeerKey, into: PeerKey) {
        for message in self.ready.iter_mut().filter(|message| message.peer == from) {
            message.peer = into;
        }
    }

    /// The receive of a large message, or of one of the handshake, has ended.
    pub fn on_received(&mut self, context: u64, completion: &Completion) {
        let slot = (context & !(RECEIVE | HANDSHAKE)) as usize;
        if context & HANDSHAKE != 0 {
            return self.on_asked(slot, completion);
        }
        let Some(coming) = self.coming.try_remove(slot) else {
            return;
        };
        let Coming {
            peer,
            tag,
            len,
            lent,
        } = coming;
        self.forget_bytes(len);
        let complete = completion.status == Status::Success && completion.length as usize == len;
        let arrived = match lent.take() {
            Ok(buffer) if complete => Some(Message { peer, buffer, tag }),
            _ => None,
        };
        if arrived.is_none() {
            log::debug!(
                "an unexpected message of {len} bytes was lost: {:?}",
                completion.status
            );
        }
        let Some(behind) = self.behind.get_mut(&peer) else {
            // The peer has been forgotten meanwhile.
            return;
        };
        let place = behind
            .iter()
            .position(|entry| matches!(entry, Behind::Coming(n) if *n == slot));
        if let Some(place) = place {
            match arrived {
                Some(message) => {
                    self.bytes += message.buffer.len() + OVERHEAD;
                    behind[place] = Behind::Here(message);
                }
                None => drop(behind.remove(place)),
            }
        }
        while let Some(Behind::Here(_)) = behind.front() {
            if let Some(Behind::Here(message)) = behind.pop_front() {
                self.ready.push_back(message);
                (self.news, self.produced) = (true, true);
            }
        }
        if behind.is_empty() {
            self.behind.remove(&peer);
        }
    }

    fn on_asked(&mut self, slot: usize, completion: &Completion) {
        let Some(asked) = self.asked.try_remove(slot) else {
            return;
        };
        let complete =
            completion.status == Status::Success && completion.length as usize == asked.len;
        if let Ok(mut buffer) = asked.lent.take()
            && complete
        {
            self.notes.push_back(Note {
                partner: asked.partner,
                fields: asked.fields,
                body: buffer.bytes_mut().to_vec(),
            });
        }
    }

    /// Are messages left at the endpoint for which there is room now?
    #[inline]
    pub fn wants_more(&self) -> bool {
        self.left_behind && self.has_room(0)
    }

    /// The endpoint has no more of them.
    pub fn has_all(&mut self) {
        self.left_behind = false;
    }

    /// What to ask the endpoint for: the oldest unexpected message of anybody's.
    pub fn wanted() -> (MatchBits, MatchMask) {
        (bits(MessageType::Unexpected, 0, 0), TYPE)
    }

    /// A message that was left at the endpoint is to be received now. Gives the buffer and the
    /// word for its completion; `None` when there is no room after all.
    pub fn pick_up(&mut self, arrival: &Arrival) -> Option<(UserMemory, u64)> {
        if !self.is_welcome(arrival) {
            // Received into nothing, which is how it is dropped; no completion of it is looked at.
            self.dropped += 1;
            return Some((UserMemory::empty(), DROPPED));
        }
        if !self.has_room(arrival.length as usize) {
            return None;
        }
        self.start(arrival)
    }

    fn has_room(&self, len: usize) -> bool {
        self.bytes == 0 || self.bytes + len + OVERHEAD <= self.limit
    }

    fn forget_bytes(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_sub(len + OVERHEAD);
    }

    /// Does the message come from a peer that may send it?
    fn is_welcome(&self, arrival: &Arrival) -> bool {
        let peer = PeerKey::from_word(arrival.source_context);
        peer != PeerKey::NOBODY
            && peer.id() == Fields::of(arrival.bits).id
            && arrival.length as usize <= self.largest
    }

    /// Makes room for a message that has to be received.
    fn start(&mut self, arrival: &Arrival) -> Option<(UserMemory, u64)> {
        let len = arrival.length as usize;
        let buffer = MallocBuffer::new(len)?;
        let (memory, lent) = UserMemory::owned(buffer);
        let peer = PeerKey::from_word(arrival.source_context);
        let slot = self.coming.insert(Coming {
            peer,
            tag: Fields::of(arrival.bits).tag as i32,
            len,
            lent,
        });
        self.bytes += len + OVERHEAD;
        self.behind
            .entry(peer)
            .or_default()
            .push_back(Behind::Coming(slot));
        Some((memory, RECEIVE | slot as u64))
    }

    fn add(&mut self, message: Message) {
        self.bytes += message.buffer.len() + OVERHEAD;
        match self.behind.get_mut(&message.peer) {
            Some(behind) => behind.push_back(Behind::Here(message)),
            None => {
                self.ready.push_back(message);
                self.set_news();
            }
        }
    }

    fn unexpected<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict<UserMemory> {
        if !self.is_welcome(arrival) {
            return self.refuse(arrival, "an unexpected message we cannot take");
        }
        if self.left_behind || !self.has_room(arrival.length as usize) {
            self.left_behind = true;
            return Verdict::Continue;
        }
        let Some(body) = body else {
            return match self.start(arrival) {
                Some((memory, context)) => Verdict::Receive { memory, context },
                None => {
                    self.left_behind = true;
                    Verdict::Continue
                }
            };
        };
        let Some(buffer) = MallocBuffer::copy_of(body) else {
            self.left_behind = true;
            return Verdict::Continue;
        };
        self.add(Message {
            peer: PeerKey::from_word(arrival.source_context),
            buffer,
            tag: Fields::of(arrival.bits).tag as i32,
        });
        Verdict::Finished
    }

    fn handshake<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        fields: Fields,
        body: Option<&B>,
    ) -> Verdict<UserMemory> {
        let len = arrival.length as usize;
        let body = match body {
            Some(body) if body.len() <= REQUEST_MAX => body.to_vec(),
            None if len <= REQUEST_MAX => {
                let Some(buffer) = MallocBuffer::new(len) else {
                    return self.refuse(arrival, "a request there is no memory for");
                };
                let (memory, lent) = UserMemory::owned(buffer);
                let slot = self.asked.insert(Asked {
                    partner: arrival.source,
                    fields,
                    len,
                    lent,
                });
                return Verdict::Receive {
                    memory,
                    context: RECEIVE | HANDSHAKE | slot as u64,
                };
            }
            // Too long for one: what is kept says so.
            _ => vec![b'?'; REQUEST_MAX + 1],
        };
        self.notes.push_back(Note {
            partner: arrival.source,
            fields,
            body,
        });
        Verdict::Finished
    }

    #[cold]
    fn refuse(&mut self, arrival: &Arrival, what: &str) -> Verdict<UserMemory> {
        self.dropped += 1;
        log::debug!(
            "{:?} sent {what}: {:#018x}, {} bytes; dropped",
            arrival.identity,
            arrival.bits.0,
            arrival.length
        );
        Verdict::Finished
    }
}

/// Set in the context word of receives that belong to the inbox.
pub const RECEIVE: u64 = 1 << 63;
/// Set as well in those of messages of the handshake.
const HANDSHAKE: u64 = 1 << 62;
/// The context word of receives whose end interests nobody.
pub const DROPPED: u64 = u64::MAX;

impl Handler<UserMemory> for Inbox {
    #[inline]
    fn unexpected<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict<UserMemory> {
        let fields = Fields::of(arrival.bits);
        match fields.kind {
            Some(MessageType::Unexpected) => Self::unexpected(self, arrival, body),
            Some(MessageType::Expected) => {
                let peer = PeerKey::from_word(arrival.source_context);
                // With another peer's id it would wait for that peer's receive.
                if peer.id() != fields.id {
                    return self.refuse(arrival, "a message with an id that is not its own");
                }
                if !self.abandoned.is_empty() {
                    self.note_crowd(peer);
                }
                Verdict::Continue
            }
            Some(MessageType::ConnReq | MessageType::ConnAck) => {
                self.handshake(arrival, fields, body)
            }
            Some(MessageType::IconReq | MessageType::IconAck) | None => {
                self.refuse(arrival, "a message of an unknown type")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::{EndpointId, Identity, Kind, Memory, NicId, RequestId, SessionId};

    fn peer(id: u32) -> PeerKey {
        PeerKey::from_word(1 << 32 | u64::from(id))
    }

    fn arrival(kind: MessageType, from: u32, tag: u32, length: usize) -> Arrival {
        Arrival {
            source: PartnerId::new(from, 1),
            source_context: peer(from).to_word(),
            identity: Identity {
                nic: NicId(1),
                endpoint: EndpointId(from),
                session: SessionId(1),
            },
            bits: bits(kind, from, tag),
            length: length as u32,
        }
    }

    fn small(inbox: &mut Inbox, from: u32, tag: u32, body: &[u8]) -> Verdict<UserMemory> {
        let arrival = arrival(MessageType::Unexpected, from, tag, body.len());
        Handler::unexpected(inbox, &arrival, Some(body))
    }

    fn large(inbox: &mut Inbox, from: u32, tag: u32, len: usize) -> Option<(UserMemory, u64)> {
        let arrival = arrival(MessageType::Unexpected, from, tag, len);
        match Handler::unexpected::<[u8]>(inbox, &arrival, None) {
            Verdict::Receive { memory, context } => Some((memory, context)),
            _ => None,
        }
    }

    fn received(inbox: &mut Inbox, context: u64, length: usize, status: Status) {
        let completion = Completion {
            request: RequestId::new(0, 0),
            kind: Kind::Recv,
            context,
            status,
            partner: PartnerId::new(0, 0),
            bits: MatchBits(0),
            length: length as u32,
            transferred: length as u32,
        };
        inbox.on_received(context, &completion);
    }

    fn tags(inbox: &mut Inbox) -> Vec<i32> {
        std::iter::from_fn(|| inbox.pop()).map(|m| m.tag).collect()
    }

    #[test]
    fn a_large_message_is_not_overtaken_by_its_own_sender_but_by_others() {
        let mut inbox = Inbox::new(1 << 20, 1 << 20);
        let (mut memory, context) = large(&mut inbox, 1, 10, 300 << 10).unwrap();
        assert!(matches!(small(&mut inbox, 1, 11, b"x"), Verdict::Finished));
        assert!(matches!(small(&mut inbox, 2, 20, b"y"), Verdict::Finished));
        assert_eq!(tags(&mut inbox), [20]);
        assert!(inbox.holds(peer(1)) && !inbox.holds(peer(2)));
        memory.fill(0, 300 << 10, &vec![7u8; 300 << 10][..], 0);
        drop(memory);
        received(&mut inbox, context, 300 << 10, Status::Success);
        let first = inbox.pop().unwrap();
        assert_eq!((first.tag, first.buffer.len()), (10, 300 << 10));
        assert_eq!(tags(&mut inbox), [11]);
        assert_eq!(inbox.bytes(), 0);
    }

    #[test]
    fn a_large_message_that_fails_lets_the_rest_through_and_gives_its_room_back() {
        let mut inbox = Inbox::new(1 << 20, 1 << 20);
        let (memory, context) = large(&mut inbox, 1, 10, 1000).unwrap();
        small(&mut inbox, 1, 11, b"x");
        drop(memory);
        received(&mut inbox, context, 1000, Status::Cancelled);
        assert_eq!(tags(&mut inbox), [11]);
        assert_eq!(inbox.bytes(), 0);
    }

    #[test]
    fn beyond_the_limit_everything_stays_with_the_endpoint_in_order() {
        let mut inbox = Inbox::new(1000, 1 << 20);
        // A single message larger than the limit gets through, or it never would.
        assert!(matches!(
            small(&mut inbox, 1, 1, &[0; 2000]),
            Verdict::Finished
        ));
        assert!(matches!(small(&mut inbox, 1, 2, b""), Verdict::Continue));
        assert!(!inbox.wants_more());
        assert_eq!(tags(&mut inbox), [1]);
        assert!(inbox.wants_more());
        // Small enough, but another one is waiting before it.
        assert!(matches!(small(&mut inbox, 1, 3, b""), Verdict::Continue));
        let waiting = arrival(MessageType::Unexpected, 1, 2, 0);
        let (memory, context) = inbox.pick_up(&waiting).unwrap();
        drop(memory);
        received(&mut inbox, context, 0, Status::Success);
        inbox.has_all();
        assert!(matches!(small(&mut inbox, 1, 4, b""), Verdict::Finished));
        assert_eq!(tags(&mut inbox), [2, 4]);
    }

    #[test]
    fn empty_messages_are_limited_too() {
        let mut inbox = Inbox::new(10 * OVERHEAD, 1 << 20);
        let taken = (0..100)
            .filter(|tag| matches!(small(&mut inbox, 1, *tag, b""), Verdict::Finished))
            .count();
        assert_eq!(taken, 10);
    }

    #[test]
    fn messages_with_a_foreign_id_or_from_strangers_or_too_large_are_dropped() {
        let mut inbox = Inbox::new(1 << 20, 100);
        let mut forged = arrival(MessageType::Unexpected, 1, 0, 1);
        forged.bits = bits(MessageType::Unexpected, 2, 0);
        let mut stranger = arrival(MessageType::Unexpected, 1, 0, 1);
        stranger.source_context = 0;
        stranger.bits = bits(MessageType::Unexpected, 0, 0);
        for bad in [
            forged,
            stranger,
            arrival(MessageType::Unexpected, 1, 0, 101),
        ] {
            let verdict = Handler::unexpected(&mut inbox, &bad, Some(&b"x"[..]));
            assert!(matches!(verdict, Verdict::Finished));
        }
        let mut forged = arrival(MessageType::Expected, 1, 0, 1);
        forged.bits = bits(MessageType::Expected, 2, 0);
        let verdict = Handler::unexpected(&mut inbox, &forged, Some(&b"x"[..]));
        assert!(matches!(verdict, Verdict::Finished));
        for kind in [0, 1, 8, 9, 0xb, 0xf] {
            let mut odd = arrival(MessageType::Expected, 1, 0, 1);
            odd.bits = MatchBits(kind << 60);
            let verdict = Handler::unexpected(&mut inbox, &odd, Some(&b"x"[..]));
            assert!(matches!(verdict, Verdict::Finished));
        }
        assert_eq!(inbox.dropped(), 10);
        assert!(inbox.is_empty());
    }

    #[test]
    fn the_handshake_is_kept_apart_and_never_longer_than_allowed() {
        let mut inbox = Inbox::new(1 << 20, 100);
        let request = arrival(MessageType::ConnReq, 1, 0x100, 5);
        Handler::unexpected(&mut inbox, &request, Some(&b"mx://"[..]));
        let long = arrival(MessageType::ConnReq, 1, 0x100, 9000);
        Handler::unexpected::<[u8]>(&mut inbox, &long, None);
        Handler::unexpected(&mut inbox, &long, Some(&vec![0u8; 9000][..]));
        assert_eq!(inbox.pop_note().unwrap().body, b"mx://");
        for _ in 0..2 {
            assert_eq!(inbox.pop_note().unwrap().body.len(), REQUEST_MAX + 1);
        }
        assert!(inbox.pop_note().is_none() && inbox.is_empty());
    }

    #[test]
    fn a_request_that_was_only_offered_is_received_first() {
        let mut inbox = Inbox::new(1 << 20, 100);
        let request = arrival(MessageType::ConnReq, 1, 0x100, 5);
        for status in [Status::Unreachable, Status::Success] {
            let verdict = Handler::unexpected::<[u8]>(&mut inbox, &request, None);
            let Verdict::Receive {
                mut memory,
                context,
            } = verdict
            else {
                panic!("{verdict:?}");
            };
            memory.fill(0, 5, &b"mx://"[..], 0);
            drop(memory);
            assert!(inbox.pop_note().is_none());
            received(&mut inbox, context, 5, status);
        }
        assert_eq!(inbox.pop_note().unwrap().body, b"mx://");
        assert!(inbox.pop_note().is_none() && inbox.asked.is_empty());
        assert_eq!(inbox.bytes(), 0);
    }

    #[test]
    fn a_peer_that_is_forgotten_leaves_nothing_behind() {
        let mut inbox = Inbox::new(1 << 20, 1 << 20);
        small(&mut inbox, 1, 1, b"abc");
        let (memory, context) = large(&mut inbox, 1, 2, 50_000).unwrap();
        small(&mut inbox, 1, 3, b"abc");
        small(&mut inbox, 2, 4, b"abc");
        inbox.forget(peer(1));
        drop(memory);
        received(&mut inbox, context, 50_000, Status::Success);
        assert_eq!(tags(&mut inbox), [4]);
        assert_eq!(inbox.bytes(), 0);
    }
}
