//! Book of all messages sent and received, with the rules that they must obey.
//!
//! ```text
//!   sent(from, to, bits) ----> Message { serial, state }
//!   received(bits, bytes) ---> which message?  once?  for this life?  in order?  undamaged?
//! ```
//!
//! Owns: one entry for each message.
//! Out of scope: endpoints, ports. A broken rule is a panic that names the rule.
//!
//! A message of eight bytes or more carries its serial number. Shorter ones are distinguished by
//! sender, bits and length, and count as received in the order of sending.

use crate::rng::Rng;
use crate::world::NodeId;
use mx_proto::{Instant, MatchBits, MatchMask, RemoteId, SessionId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A node's life: an index into the book.
pub type LifeId = usize;

/// Number of a message in the book.
pub type Serial = u64;

/// State of a message at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendState {
    /// Posted and not complete.
    Pending,
    /// Complete: it will arrive unless the session ends.
    Done,
    /// Cancelled, timed out, or its remote was lost: it may have arrived or not.
    Given,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Life of the sender.
    pub from: LifeId,
    /// Life of the receiver.
    pub to: LifeId,
    /// Match bits.
    pub bits: MatchBits,
    /// Length in bytes.
    pub len: usize,
    /// State at its sender.
    pub state: SendState,
    /// Whether it has been received, or thrown away by its receiver's own choice.
    pub arrived: bool,
    /// Whether a similar message was truncated before its serial number, and may have been this
    /// one.
    perhaps: bool,
    /// Number of ended sessions between the two when it was sent.
    partings: u32,
    /// First message that was sent after this one was complete.
    complete_before: Option<Serial>,
    /// First message that was sent after the send of this one had ended, in any way.
    ended_before: Option<Serial>,
}

/// A receipt of a message.
#[derive(Clone, Copy, Debug)]
struct Receipt {
    serial: Serial,
    /// Number of the receive that is posted next.
    next: u64,
}

/// A life of a node.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Node of the life.
    pub node: NodeId,
    /// Session number.
    pub session: SessionId,
    /// Time of death; `None` while it lives.
    pub died: Option<Instant>,
}

/// Match bits and mask of a posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Selector {
    /// Match bits.
    pub bits: u64,
    /// Mask.
    pub mask: u64,
}

impl Selector {
    /// Returns a selector for messages with exactly these bits.
    pub fn exact(bits: u64) -> Self {
        Self {
            bits,
            mask: MatchMask::EXACT.0,
        }
    }

    fn accepts(self, bits: MatchBits) -> bool {
        bits.0 & self.mask == self.bits
    }
}

/// Key of messages that a receive may be compared with: receiver, selector, sender and bits.
type OrderKey = (LifeId, Selector, LifeId, u64);

/// The book.
#[derive(Debug, Default)]
pub struct Book {
    lives: Vec<Life>,
    by_session: HashMap<u64, LifeId>,
    messages: Vec<Message>,
    /// Serials not yet arrived, of messages too short to carry one.
    short: HashMap<(LifeId, LifeId, u64, usize), BTreeSet<Serial>>,
    /// Serials assigned to arrivals from a sender that was no longer known; they may belong to
    /// another sender.
    guessed: BTreeSet<Serial>,
    /// Serials received, by the position of the receives.
    order: HashMap<OrderKey, BTreeMap<u64, Serial>>,
    /// Serial of the message reported last, by receiver, sender and bits.
    reported: HashMap<(LifeId, LifeId, u64), Serial>,
    /// Receives, by their numbers, that were cancelled when all bytes of their messages had
    /// arrived: their reports no longer wait for others.
    called_off: BTreeSet<(LifeId, u64)>,
    /// Receipts in order, by receiver and sender.
    receipts: HashMap<(LifeId, LifeId), Vec<Receipt>>,
    /// Serial last shown to the handler, by receiver, sender and bits.
    shown: HashMap<(LifeId, RemoteId, u64), Serial>,
    /// Serial last taken from the inbox, by receiver and sender.
    taken: HashMap<(LifeId, RemoteId), Serial>,
    /// Receivers from which a message was withdrawn: a receive may have been put back, so that the
    /// order of their receives proves nothing any more.
    withdrawn: BTreeSet<LifeId>,
    partings: HashMap<(LifeId, LifeId), u32>,
    received: u64,
    tally: BTreeMap<String, u64>,
}

/// Minimum length of a message with a serial.
const SERIAL_LEN: usize = 8;

impl Book {
    /// Begins a life of a node.
    pub fn born(&mut self, node: NodeId, session: SessionId) -> LifeId {
        let life = self.lives.len();
        self.lives.push(Life {
            node,
            session,
            died: None,
        });
        let before = self.by_session.insert(session.0, life);
        assert!(before.is_none(), "two lives with one session");
        life
    }

    /// Ends a life.
    pub fn died(&mut self, life: LifeId, at: Instant) {
        self.lives[life].died = Some(at);
    }

    /// Returns all lives.
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// Returns the life with that session.
    pub fn life_of(&self, session: SessionId) -> Option<LifeId> {
        self.by_session.get(&session.0).copied()
    }

    /// Returns the number of messages sent so far, which is the next serial.
    pub fn sent(&self) -> Serial {
        self.messages.len() as Serial
    }

    /// Returns the number of messages received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Counts an event, so that a test can check that it covers it.
    pub fn count(&mut self, what: impl Into<String>) {
        *self.tally.entry(what.into()).or_default() += 1;
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> &BTreeMap<String, u64> {
        &self.tally
    }

    /// Records that one of two nodes has ended, or has noticed the end of, their session.
    pub fn parted(&mut self, a: LifeId, b: LifeId) {
        *self.partings.entry((a.min(b), a.max(b))).or_default() += 1;
    }

    fn partings(&self, a: LifeId, b: LifeId) -> u32 {
        self.partings
            .get(&(a.min(b), a.max(b)))
            .copied()
            .unwrap_or(0)
    }

    /// Records a message about to be posted; returns its serial and bytes.
    pub fn compose(
        &mut self,
        from: LifeId,
        to: LifeId,
        bits: MatchBits,
        len: usize,
    ) -> (Serial, Vec<u8>) {
        let serial = self.messages.len() as Serial;
        let partings = self.partings(from, to);
        let state = SendState::Pending;
        self.messages.push(Message {
            from,
            to,
            bits,
            len,
            state,
            arrived: false,
            perhaps: false,
            partings,
            complete_before: None,
            ended_before: None,
        });
        if len < SERIAL_LEN {
            self.short
                .entry((from, to, bits.0, len))
                .or_default()
                .insert(serial);
        }
        (serial, content(serial, from, len))
    }

    /// Returns a message.
    pub fn message(&self, serial: Serial) -> &Message {
        &self.messages[serial as usize]
    }

    /// Records that a message was not posted after all.
    pub fn unposted(&mut self, serial: Serial) {
        let message = &mut self.messages[serial as usize];
        message.state = SendState::Given;
        let key = (message.from, message.to, message.bits.0, message.len);
        if let Some(waiting) = self.short.get_mut(&key) {
            waiting.remove(&serial);
        }
    }

    /// Records that a send has completed. `acknowledged`: not before the receiver had the message.
    pub fn send_done(&mut self, serial: Serial, acknowledged: bool) {
        let next = self.messages.len() as Serial;
        let message = &mut self.messages[serial as usize];
        assert_eq!(
            message.state,
            SendState::Pending,
            "send of message {serial} ended twice"
        );
        message.state = SendState::Done;
        (message.complete_before, message.ended_before) = (Some(next), Some(next));
        let arrived = message.arrived || message.perhaps || message.len < SERIAL_LEN;
        assert!(
            !acknowledged || arrived || self.predecessors(serial).next().is_some(),
            "send of message {serial} is complete, but was not received"
        );
    }

    /// Returns the ends of the messages for which the report of this one may wait: those with its
    /// receiver, sender and bits that were sent before it, and that had not ended then.
    fn predecessors(&self, serial: Serial) -> impl Iterator<Item = Option<Serial>> {
        let message = &self.messages[serial as usize];
        let line = (message.from, message.to, message.bits);
        let before = self.messages[..serial as usize].iter();
        before
            .filter(move |it| (it.from, it.to, it.bits) == line)
            .map(|it| it.ended_before)
            .filter(move |end| end.is_none_or(|end| end > serial))
    }

    /// Records that a send has failed.
    pub fn send_given(&mut self, serial: Serial) {
        let next = self.messages.len() as Serial;
        let message = &mut self.messages[serial as usize];
        assert_eq!(
            message.state,
            SendState::Pending,
            "send of message {serial} ended twice"
        );
        message.state = SendState::Given;
        message.ended_before = Some(next);
        self.withdrawn.insert(message.to);
    }

    /// Finds the message that was shown to the unexpected handler of `to`, or received there.
    fn identify(
        &mut self,
        to: LifeId,
        from: Option<LifeId>,
        bits: MatchBits,
        len: usize,
        bytes: &[u8],
    ) -> Serial {
        let serial = if bytes.len() >= SERIAL_LEN {
            let mut head = [0; SERIAL_LEN];
            head.copy_from_slice(&bytes[..SERIAL_LEN]);
            u64::from_le_bytes(head)
        } else {
            // The oldest of those that look the same, because they arrive in order.
            let found = self.oldest_alike(to, from, bits, len);
            found
                .or_else(|| self.regret(to, from?, bits, len))
                .unwrap_or_else(|| {
                    panic!("life {to} received {len} bytes with {bits:x?} that no life sent it")
                })
        };
        let Some(message) = self.messages.get(serial as usize) else {
            panic!(
                "life {to} received bytes that no life sent: {:x?}",
                &bytes[..SERIAL_LEN]
            );
        };
        assert_eq!(
            message.to, to,
            "message {serial} was for another life: {message:?}"
        );
        assert!(
            from.is_none_or(|from| from == message.from),
            "message {serial}: wrong sender"
        );
        assert_eq!(message.bits, bits, "message {serial} has other bits");
        assert_eq!(message.len, len, "message {serial} has another length");
        let expected = content(serial, message.from, len);
        assert!(
            bytes == &expected[..bytes.len()],
            "message {serial} is damaged: {message:?}"
        );
        serial
    }

    /// Returns the oldest short message to `to` that has not arrived.
    fn oldest_alike(
        &mut self,
        to: LifeId,
        from: Option<LifeId>,
        bits: MatchBits,
        len: usize,
    ) -> Option<Serial> {
        let like = |(f, t, b, l): (LifeId, LifeId, u64, usize)| {
            t == to && from.is_none_or(|from| from == f) && b == bits.0 && l == len
        };
        let waiting = self.short.iter().filter(|(key, _)| like(**key));
        let oldest: Vec<Serial> = waiting
            .filter_map(|(_, serials)| serials.first().copied())
            .collect();
        let found = *oldest.iter().min()?;
        if oldest.len() > 1 {
            self.guessed.insert(found);
        }
        Some(found)
    }

    /// Corrects an assignment: the sender is known, and all of its messages have arrived, so that
    /// the message assigned to it before belongs to another sender.
    fn regret(&mut self, to: LifeId, from: LifeId, bits: MatchBits, len: usize) -> Option<Serial> {
        let guess = self.guessed.iter().copied().find(|serial| {
            let message = &self.messages[*serial as usize];
            (message.from, message.to) == (from, to) && (message.bits, message.len) == (bits, len)
        })?;
        let instead = self.oldest_alike(to, None, bits, len)?;
        self.guessed.remove(&guess);
        self.guessed.insert(instead);
        self.arrived(instead);
        self.messages[guess as usize].arrived = false;
        self.received -= 1;
        Some(guess)
    }

    /// Records a message shown to the unexpected handler. Those over one association, `over`, keep
    /// their order.
    pub fn shown(
        &mut self,
        to: LifeId,
        (from, over): (LifeId, RemoteId),
        bits: MatchBits,
        bytes: &[u8],
    ) -> Serial {
        let serial = self.identify(to, Some(from), bits, bytes.len(), bytes);
        if bytes.len() < SERIAL_LEN {
            // One of several that look the same.
            return serial;
        }
        let before = self.shown.insert((to, over, bits.0), serial);
        assert!(
            before.is_none_or(|before| before < serial),
            "message {serial} came after {before:?}"
        );
        serial
    }

    /// Records a message taken from the inbox of `to`, where each sender has its turn. Those over
    /// one association, `over`, keep their order.
    pub fn taken(
        &mut self,
        to: LifeId,
        (from, over): (LifeId, RemoteId),
        bits: MatchBits,
        bytes: &[u8],
    ) {
        let serial = self.identify(to, Some(from), bits, bytes.len(), bytes);
        self.arrived(serial);
        if bytes.len() < SERIAL_LEN {
            // One of several that look the same.
            return;
        }
        let before = self.taken.insert((to, over), serial);
        assert!(
            before.is_none_or(|before| before < serial),
            "message {serial} was taken after {before:?}"
        );
    }

    /// Records that a completed receive, whose report may still wait for others, was cancelled.
    pub fn called_off(&mut self, to: LifeId, posted: u64) {
        self.called_off.insert((to, posted));
    }

    /// Records that a receive, posted as number `posted` of its life with `selector`, has completed
    /// with `bytes` of a message of `len` bytes; the next one will have number `next`. `from` is
    /// the sender, if it is still known.
    pub fn received_by(
        &mut self,
        to: LifeId,
        (posted, next, selector): (u64, u64, Selector),
        from: Option<LifeId>,
        bits: MatchBits,
        len: usize,
        bytes: &[u8],
    ) {
        assert!(
            selector.accepts(bits),
            "{selector:x?} does not accept {bits:x?}"
        );
        if bytes.len() < SERIAL_LEN && len >= SERIAL_LEN {
            self.cut_off(to, from, bits, len, bytes);
            return;
        }
        let serial = self.identify(to, from, bits, len, bytes);
        if bytes.len() < SERIAL_LEN {
            self.arrived(serial);
            return;
        }
        self.arrived(serial);
        let from = self.messages[serial as usize].from;
        if !self.called_off.contains(&(to, posted)) {
            let before = self.reported.insert((to, from, bits.0), serial);
            assert!(
                before.is_none_or(|before| before < serial) || self.withdrawn.contains(&to),
                "message {serial} was reported after {before:?}"
            );
        }
        self.check_proofs(serial, posted);
        let receipt = Receipt { serial, next };
        self.receipts.entry((to, from)).or_default().push(receipt);
        let order = self.order.entry((to, selector, from, bits.0)).or_default();
        let before = order.range(..posted).next_back().map(|(_, serial)| *serial);
        let after = order.range(posted..).next().map(|(_, serial)| *serial);
        order.insert(posted, serial);
        let kept =
            before.is_none_or(|before| before < serial) && after.is_none_or(|after| serial < after);
        assert!(
            kept || self.withdrawn.contains(&to),
            "message {serial} was received between {before:?} and {after:?}"
        );
    }

    /// Checks proofs: a message that was complete is proven to have arrived by any that was sent
    /// after it. None of those is received between the posting of its receive, as number `posted`,
    /// and the completion. Its report may wait for others with its bits that had not ended.
    fn check_proofs(&self, serial: Serial, posted: u64) {
        let message = &self.messages[serial as usize];
        let ends = self.predecessors(serial).chain([message.complete_before]);
        let Some(proofs) = ends
            .min_by_key(|end| end.map_or(0, |end| Serial::MAX - end))
            .flatten()
        else {
            return;
        };
        if self.withdrawn.contains(&message.to) {
            // Its receive may have had another message meanwhile.
            return;
        }
        let receipts = self.receipts.get(&(message.to, message.from));
        let receipts = receipts.map_or(&[][..], Vec::as_slice);
        let meanwhile = receipts.partition_point(|receipt| receipt.next <= posted);
        for receipt in &receipts[meanwhile..] {
            let parted = self.messages[receipt.serial as usize].partings != message.partings;
            assert!(
                receipt.serial < proofs || parted,
                "message {serial} was complete before message {} was sent, which is received first",
                receipt.serial
            );
        }
    }

    /// Handles a receive that took too few bytes of a message to identify it.
    fn cut_off(
        &mut self,
        to: LifeId,
        from: Option<LifeId>,
        bits: MatchBits,
        len: usize,
        bytes: &[u8],
    ) {
        let mut candidates = 0;
        for (serial, message) in self.messages.iter_mut().enumerate() {
            if message.to == to
                && from.is_none_or(|from| message.from == from)
                && (message.bits, message.len, message.arrived) == (bits, len, false)
                && (serial as Serial).to_le_bytes().starts_with(bytes)
            {
                message.perhaps = true;
                candidates += 1;
            }
        }
        assert!(
            candidates > 0,
            "life {to} received the beginning {bytes:x?} of nothing"
        );
    }

    /// Records that a receive ended while it was being filled. A message that came with its data is
    /// lost, although its sender was told that it is complete.
    pub fn lost_midway(&mut self, to: LifeId, by: Selector) {
        for message in &mut self.messages {
            let accepted = (message.bits.0 ^ by.bits) & by.mask == 0;
            message.perhaps |= message.to == to && !message.arrived && accepted;
        }
    }

    /// Records that a message has reached its receiver.
    pub fn arrived(&mut self, serial: Serial) {
        let message = &mut self.messages[serial as usize];
        assert!(
            !message.arrived,
            "message {serial} arrived twice: {message:?}"
        );
        message.arrived = true;
        self.received += 1;
        let key = (message.from, message.to, message.bits.0, message.len);
        if let Some(waiting) = self.short.get_mut(&key) {
            waiting.remove(&serial);
        }
    }

    /// Records that a message was thrown away by its receiver's own choice, or that its matched
    /// receive was cancelled: it must not arrive.
    pub fn refused(&mut self, serial: Serial) {
        self.arrived(serial);
    }

    /// Returns messages that must arrive and have not: both lives last, their session never ended
    /// since, and the send is complete or pending.
    pub fn missing(&self) -> Vec<Serial> {
        let missing = |message: &Message| {
            !message.arrived
                && !message.perhaps
                && self.must_arrive(message)
                && self.lives[message.from].died.is_none()
                && self.lives[message.to].died.is_none()
        };
        let all = (0..).zip(&self.messages);
        let missing = all.filter(|(_, message)| missing(message));
        // Short messages are distinguished by their order only, which a lost one disturbs.
        let sure = missing.filter(|(_, message)| {
            message.len >= SERIAL_LEN || {
                let mut alike = self
                    .messages
                    .iter()
                    .filter(|other| other.looks_like(message));
                alike.all(|other| self.must_arrive(other))
            }
        });
        sure.map(|(serial, _)| serial).collect()
    }

    fn must_arrive(&self, message: &Message) -> bool {
        let partings = self.partings(message.from, message.to);
        message.state != SendState::Given && partings == message.partings
    }
}

impl Message {
    fn looks_like(&self, other: &Self) -> bool {
        let key = |m: &Self| (m.from, m.to, m.bits, m.len);
        key(self) == key(other)
    }
}

/// Returns the bytes of a message.
fn content(serial: Serial, from: LifeId, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut rest = bytes.as_mut_slice();
    let short = len < SERIAL_LEN;
    if !short {
        let (start, behind) = rest.split_at_mut(SERIAL_LEN);
        start.copy_from_slice(&serial.to_le_bytes());
        rest = behind;
    }
    let mut rng = Rng::new(if short { from as u64 } else { serial });
    let (words, last) = rest.as_chunks_mut();
    for word in words {
        *word = rng.bits().to_le_bytes();
    }
    last.copy_from_slice(&rng.bits().to_le_bytes()[..last.len()]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: MatchBits = MatchBits(7);

    fn book() -> Book {
        let mut book = Book::default();
        book.born(0, SessionId(10));
        book.born(1, SessionId(11));
        book
    }

    fn receive(book: &mut Book, posted: u64, bytes: &[u8]) {
        book.received_by(
            1,
            (posted, 10, Selector::exact(7)),
            Some(0),
            BITS,
            bytes.len(),
            bytes,
        )
    }

    #[test]
    fn a_message_received_once_and_in_order_is_fine() {
        let mut book = book();
        let (a, first) = book.compose(0, 1, BITS, 20);
        let (_, second) = book.compose(0, 1, BITS, 3);
        book.send_done(a, false);
        assert_eq!(book.missing(), [0, 1]);
        receive(&mut book, 0, &first);
        receive(&mut book, 1, &second);
        assert_eq!(book.missing(), []);
        assert_eq!(book.received(), 2);
    }

    fn receive_empty(book: &mut Book, posted: u64, from: Option<LifeId>) {
        book.received_by(1, (posted, 10, Selector::exact(7)), from, BITS, 0, &[]);
    }

    /// Makes a book with messages from sender 2, then from sender 0; the sender of the first one
    /// received is not known.
    fn two_empty_messages() -> Book {
        let mut book = book();
        book.born(2, SessionId(12));
        book.compose(2, 1, BITS, 0);
        book.compose(0, 1, BITS, 0);
        receive_empty(&mut book, 0, None);
        receive_empty(&mut book, 1, Some(2));
        book
    }

    #[test]
    fn an_empty_message_of_an_unknown_sender_may_be_any_senders() {
        let book = two_empty_messages();
        assert_eq!((book.missing(), book.received()), (vec![], 2));
    }

    #[test]
    #[should_panic(expected = "that no life sent it")]
    fn one_empty_message_too_many_is_noticed() {
        receive_empty(&mut two_empty_messages(), 2, Some(0));
    }

    #[test]
    #[should_panic(expected = "arrived twice")]
    fn a_message_received_twice_is_noticed() {
        let mut book = book();
        let (_, bytes) = book.compose(0, 1, BITS, 20);
        receive(&mut book, 0, &bytes);
        receive(&mut book, 1, &bytes);
    }

    #[test]
    #[should_panic(expected = "was received between")]
    fn messages_out_of_order_are_noticed() {
        let mut book = book();
        let (_, first) = book.compose(0, 1, BITS, 20);
        let (_, second) = book.compose(0, 1, BITS, 20);
        receive(&mut book, 1, &first);
        receive(&mut book, 0, &second);
    }

    #[test]
    #[should_panic(expected = "was reported after")]
    fn reports_out_of_order_are_noticed() {
        let mut book = book();
        let (_, first) = book.compose(0, 1, BITS, 20);
        let (_, second) = book.compose(0, 1, BITS, 20);
        receive(&mut book, 1, &second);
        receive(&mut book, 0, &first);
    }

    #[test]
    #[should_panic(expected = "is damaged")]
    fn a_changed_byte_is_noticed() {
        let mut book = book();
        let (_, mut bytes) = book.compose(0, 1, BITS, 20);
        bytes[19] ^= 1;
        receive(&mut book, 0, &bytes);
    }

    #[test]
    #[should_panic(expected = "was for another life")]
    fn a_message_for_a_former_life_is_noticed() {
        let mut book = book();
        let (_, bytes) = book.compose(0, 1, BITS, 20);
        let reborn = book.born(1, SessionId(12));
        let recv = (0, 10, Selector::exact(7));
        book.received_by(reborn, recv, None, BITS, 20, &bytes);
    }

    #[test]
    #[should_panic(expected = "but was not received")]
    fn an_acknowledgement_without_a_receive_is_noticed() {
        let mut book = book();
        let (serial, _) = book.compose(0, 1, BITS, 20);
        book.send_done(serial, true);
    }

    /// Sends a message and a later one with other bits, which is received first.
    fn overtaken(complete: bool, recv: u64) {
        let mut book = book();
        let (first, bytes) = book.compose(0, 1, BITS, 20);
        if complete {
            book.send_done(first, false);
        }
        let other = MatchBits(8);
        let (_, proof) = book.compose(0, 1, other, 20);
        let exact = |recv, bits: MatchBits| (recv, 10, Selector::exact(bits.0));
        book.received_by(1, exact(1, other), Some(0), other, 20, &proof);
        book.received_by(1, exact(recv, BITS), Some(0), BITS, 20, &bytes);
    }

    #[test]
    #[should_panic(expected = "was complete before message 1 was sent")]
    fn a_message_that_was_complete_and_is_overtaken_is_noticed() {
        overtaken(true, 2);
    }

    #[test]
    fn what_is_not_complete_or_not_asked_for_yet_may_be_overtaken() {
        overtaken(false, 2);
        overtaken(true, 10);
    }

    #[test]
    fn what_was_sent_before_a_parting_need_not_arrive() {
        let mut book = book();
        book.compose(0, 1, BITS, 20);
        book.parted(1, 0);
        assert_eq!(book.missing(), []);
    }
}
