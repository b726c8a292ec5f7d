//! Contents of messages, and the check of those that arrive.
//!
//! ```text
//!   | from | side | to | tag | life | peer | number | len | a pattern derived from all of these ...       |
//!   0      4      8    12    16     20     24       28    32 = HEADER    (little-endian; cut where len ends)
//! ```
//!
//! A message shorter than its header is *nameless*: only the bytes that it has are checked.
//!
//! Two nodes that call each other have two sessions, and are two peers to each other. So a message
//! names the sender's side of its session, and the messages of each peer have an order of their
//! own.
//!
//! Owns: the numbers that one life of a node has given, and everything it has received.
//! Out of scope: operations, buffers, other nodes' books.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// Bytes before the pattern.
pub const HEADER: usize = 32;

/// Side of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Side {
    /// The process that looked the other one up.
    Caller,
    /// The process that was looked up.
    Called,
}

/// A peer of a node, which an address stands for. A peer that has called the node has one session
/// with it; a peer that the node calls has one session after the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Number of the other node.
    pub node: usize,
    /// Side of the other node.
    pub side: Side,
    /// Number of the peer: differs for each address of a caller that one life of the node got, and
    /// grows with time. A called peer gets a new number when its addresses were dropped and looked
    /// up again.
    pub number: u32,
}

/// Messages from one side of the sessions of two nodes to the other, with one tag. Those of one
/// session arrive in the order in which they were sent, unless one was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// Node that sends.
    pub from: usize,
    /// Side of the sender.
    pub side: Side,
    /// Node that receives.
    pub to: usize,
    /// Tag of all messages.
    pub tag: i32,
}

/// Header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Sending node.
    pub from: u32,
    /// Side of the sender.
    pub side: Side,
    /// Receiving node.
    pub to: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Life of the sender.
    pub life: u32,
    /// Number of the receiving peer at the sender.
    pub peer: u32,
    /// Number of the message, from 1 for each peer and tag of that life.
    pub number: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Bytes that were never sent.
    Content {
        /// Stream named by the receive.
        stream: Stream,
        /// Header of the message.
        header: Option<Header>,
        /// Position of the first wrong byte, or of an end that is too early or too late.
        at: usize,
    },
    /// A message for another receive.
    Astray {
        /// Stream of the receive.
        stream: Stream,
        /// Header of the message.
        header: Header,
    },
    /// A message that has come before.
    Twice(Header),
    /// A message after one that was sent later.
    Order {
        /// Message that came too late.
        late: Header,
        /// Message before it.
        after: Header,
    },
    /// Messages of two sessions from a peer that has one.
    Mixed(Header, Header),
}

/// Book of one life of one node.
#[derive(Clone, Debug)]
pub struct Book {
    me: usize,
    life: u32,
    /// Last number given, by receiver and tag.
    numbers: HashMap<(Peer, i32), u32>,
    seen: HashSet<Header>,
    /// Received messages, by sender, tag and position. Called peers have number 0 here: those of
    /// one node follow one another.
    arrived: BTreeMap<(Peer, i32, u64), Header>,
    nameless: u64,
}

impl Side {
    /// Returns the opposite side.
    pub fn other(self) -> Self {
        match self {
            Self::Caller => Self::Called,
            Self::Called => Self::Caller,
        }
    }
}

impl Stream {
    /// Returns the stream of a message.
    pub fn of(header: &Header) -> Self {
        Self {
            from: header.from as usize,
            side: header.side,
            to: header.to as usize,
            tag: header.tag,
        }
    }

    /// Returns the stream of a node's messages to a peer.
    pub fn to(me: usize, peer: &Peer, tag: i32) -> Self {
        Self {
            from: me,
            side: peer.side.other(),
            to: peer.node,
            tag,
        }
    }

    /// Returns the stream of a node's messages from a peer.
    pub fn from(me: usize, peer: &Peer, tag: i32) -> Self {
        Self {
            from: peer.node,
            side: peer.side,
            to: me,
            tag,
        }
    }
}

impl Header {
    fn emit(&self) -> [u8; HEADER] {
        let stream = [self.from, self.side as u32, self.to, self.tag as u32];
        let rest = [self.life, self.peer, self.number, self.len];
        let words = stream.into_iter().chain(rest);
        let mut bytes = [0; HEADER];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses the header of a message; `None` if it is nameless.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let mut words = bytes.chunks_exact(4).map(|word| {
            let word = word.try_into().expect("four bytes");
            u32::from_le_bytes(word)
        });
        let mut next = || words.next().expect("eight words");
        Some(Self {
            from: next(),
            side: match next() {
                0 => Side::Caller,
                _ => Side::Called,
            },
            to: next(),
            tag: next() as i32,
            life: next(),
            peer: next(),
            number: next(),
            len: next(),
        })
    }

    /// Makes the whole message.
    pub fn message(&self) -> Vec<u8> {
        let len = self.len as usize;
        let mut bytes = vec![0; len.max(HEADER)];
        let (head, rest) = bytes.split_at_mut(HEADER);
        head.copy_from_slice(&self.emit());
        let seed = self.seed();
        for (n, chunk) in rest.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&pattern(seed, n)[..chunk.len()]);
        }
        bytes.truncate(len);
        bytes
    }

    fn seed(&self) -> u64 {
        let who = u64::from(self.from) << 48 | u64::from(self.life) << 32 | u64::from(self.number);
        let where_to = u64::from(self.to) << 16 | u64::from(self.tag as u32);
        let session = u64::from(self.peer) << 1 | self.side as u64;
        who.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ where_to.wrapping_mul(0xbf58_476d_1ce4_e5b9)
            ^ session.wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    /// Returns the position of the first byte that is not as it was sent.
    fn differs(&self, bytes: &[u8]) -> Option<usize> {
        // The field of the side has two values.
        let mut head = bytes.iter().zip(self.emit());
        if let Some(at) = head.position(|(a, b)| *a != b) {
            return Some(at);
        }
        let seed = self.seed();
        let rest = bytes.get(HEADER..)?;
        let wrong = rest.chunks(8).enumerate().position(|(n, chunk)| {
            let expected = pattern(seed, n);
            chunk != &expected[..chunk.len()]
        })?;
        let expected = pattern(seed, wrong);
        let chunk = &rest[wrong * 8..];
        let inside = chunk.iter().zip(expected).position(|(a, b)| *a != b)?;
        Some(HEADER + wrong * 8 + inside)
    }
}

/// Returns the eight bytes at 8 * `n` behind the header; they do not repeat within a message of
/// usual length.
fn pattern(seed: u64, n: usize) -> [u8; 8] {
    let word = (seed ^ n as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (word ^ word >> 29).to_le_bytes()
}

impl Book {
    /// Makes an empty book. The caller counts the lives of a node.
    pub fn new(me: usize, life: u32) -> Self {
        Self {
            me,
            life,
            numbers: HashMap::new(),
            seen: HashSet::new(),
            arrived: BTreeMap::new(),
            nameless: 0,
        }
    }

    /// Makes the next message for a peer, of `len` bytes. Called in the order of posting.
    pub fn compose(&mut self, to: &Peer, tag: i32, len: usize) -> Vec<u8> {
        let number = self.numbers.entry((*to, tag)).or_default();
        *number += 1;
        let header = Header {
            from: self.me as u32,
            side: to.side.other(),
            to: to.node as u32,
            tag,
            life: self.life,
            peer: to.number,
            number: *number,
            len: u32::try_from(len).expect("a message of less than 4 GiB"),
        };
        header.message()
    }

    /// Records a received or unexpected message. `place`: position of the receive among all posted
    /// receives, or of the message among all reported ones. `from`: peer that must be its sender.
    /// `cut`: only the beginning was received. Returns `None` for a nameless message.
    ///
    /// # Errors
    /// Fault of the message.
    pub fn received(
        &mut self,
        place: u64,
        from: &Peer,
        tag: i32,
        bytes: &[u8],
        cut: bool,
    ) -> Result<Option<Header>, Fault> {
        let stream = Stream::from(self.me, from, tag);
        let Some(header) = Header::parse(bytes) else {
            return self.nameless(stream, bytes).map(|()| None);
        };
        let wrong = |at| Fault::Content {
            stream,
            header: Some(header),
            at,
        };
        let len = header.len as usize;
        if let Some(at) = header.differs(bytes) {
            return Err(wrong(at));
        }
        if if cut {
            len <= bytes.len()
        } else {
            len != bytes.len()
        } {
            return Err(wrong(bytes.len().min(len)));
        }
        if stream != Stream::of(&header) {
            return Err(Fault::Astray { stream, header });
        }
        if !self.seen.insert(header) {
            return Err(Fault::Twice(header));
        }
        let number = match from.side {
            Side::Caller => from.number,
            Side::Called => 0,
        };
        let peer = Peer { number, ..*from };
        self.arrived.insert((peer, tag, place), header);
        Ok(Some(header))
    }

    fn nameless(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Fault> {
        self.nameless += 1;
        // The sender's life and number of this node, and number and length of the message, are not
        // known.
        let expected = Header {
            from: stream.from as u32,
            side: stream.side,
            to: stream.to as u32,
            tag: stream.tag,
            life: 0,
            peer: 0,
            number: 0,
            len: 0,
        };
        let mut known = bytes.iter().zip(expected.emit()).take(16);
        match known.position(|(a, b)| *a != b) {
            None => Ok(()),
            Some(at) => Err(Fault::Content {
                stream,
                header: None,
                at,
            }),
        }
    }

    /// Checks the order of all received messages. A peer that has called sends the messages of one
    /// session. Of a called node, messages of a later life come after those of an earlier one, and
    /// those of a later session after those of an earlier one, in each stream. Within a session and
    /// a stream that is not `loose`, a later number comes after an earlier one.
    ///
    /// A stream is loose once a send of it was cancelled: a receive that the send had matched goes
    /// back to its position, so that later messages may already be in receives behind it.
    ///
    /// # Errors
    /// First message out of order.
    pub fn check_order(&self, loose: impl Fn(&Stream) -> bool) -> Result<(), Fault> {
        let session = |header: &Header| (header.life, header.peer);
        let all = self.arrived.iter();
        for (((of, before, _), after), ((peer, tag, _), late)) in all.clone().zip(all.skip(1)) {
            let same = session(late) == session(after);
            if of == peer && peer.side == Side::Caller && !same {
                return Err(Fault::Mixed(*after, *late));
            }
            let number_counts = same && !loose(&Stream::of(late));
            let is_late =
                session(late) < session(after) || number_counts && late.number <= after.number;
            if (of, before) == (peer, tag) && is_late {
                return Err(Fault::Order {
                    late: *late,
                    after: *after,
                });
            }
        }
        Ok(())
    }

    /// Returns the number of messages received, including nameless ones.
    pub fn count(&self) -> u64 {
        self.arrived.len() as u64 + self.nameless
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{} ({:?} {})", self.node, self.side, self.number)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { stream, header, at } => {
                write!(f, "byte {at} is wrong: {stream:?} {header:?}")
            }
            Self::Astray { stream, header } => write!(f, "astray: {header:?} in {stream:?}"),
            Self::Twice(header) => write!(f, "twice: {header:?}"),
            Self::Order { late, after } => write!(f, "out of order: {late:?} after {after:?}"),
            Self::Mixed(one, other) => write!(f, "two sessions of one peer: {one:?}, {other:?}"),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns node 0 as a caller of node 1, with this number.
    fn caller(number: u32) -> Peer {
        Peer {
            node: 0,
            side: Side::Caller,
            number,
        }
    }

    /// Returns node 1 as called by node 0, with this number.
    fn called(number: u32) -> Peer {
        Peer {
            node: 1,
            side: Side::Called,
            number,
        }
    }

    fn two() -> (Book, Book) {
        (Book::new(0, 3), Book::new(1, 0))
    }

    #[test]
    fn what_was_sent_is_received_whole_cut_and_without_a_name() {
        let (mut a, mut b) = two();
        let (to, from) = (called(5), caller(9));
        for (place, len) in [0, 3, 10, 23, 31, 32, 33, 39, 40, 41, 5_000]
            .into_iter()
            .enumerate()
        {
            let bytes = a.compose(&to, 7, len);
            assert_eq!(bytes.len(), len);
            let got = b.received(place as u64, &from, 7, &bytes, false).unwrap();
            assert_eq!(got.is_some(), len >= HEADER);
        }
        for len in 0..HEADER {
            let bytes = a.compose(&to, 9, len);
            let got = b.received(0, &from, 9, &bytes, false).unwrap();
            assert_eq!(got, None, "{len}");
        }
        let long = a.compose(&to, 7, 1_000);
        let got = b.received(99, &from, 7, &long[..900], true).unwrap();
        assert_eq!(got.unwrap().number, 12);
        assert_eq!(b.count(), 12 + HEADER as u64);
        b.check_order(|_| false).unwrap();
        // An answer.
        let answer = b.compose(&from, 7, 50);
        let got = a.received(0, &to, 7, &answer, false).unwrap();
        assert_eq!(got.unwrap().side, Side::Called);
    }

    #[test]
    fn every_wrong_byte_is_found() {
        let (mut a, b) = two();
        let good = a.compose(&called(5), 7, 60);
        let from = caller(9);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            let got = b.clone().received(0, &from, 7, &bytes, false);
            got.expect_err("a wrong byte");
            let nameless = b.clone().received(0, &from, 7, &bytes[..24], false);
            assert_eq!(nameless.is_err(), at < 16, "{at}");
        }
        for (bytes, cut) in [
            (&good[..59], false),
            (&good[..], true),
            (&good[..33], false),
        ] {
            b.clone()
                .received(0, &from, 7, bytes, cut)
                .expect_err("its length");
        }
    }

    #[test]
    fn others_messages_and_second_copies_are_found() {
        let (mut a, mut b) = two();
        let bytes = a.compose(&called(5), 7, 60);
        let from = caller(9);
        let astray = |got| matches!(got, Err(Fault::Astray { .. }));
        let other = Peer { node: 2, ..from };
        assert!(astray(b.clone().received(0, &other, 7, &bytes, false)));
        let other = Peer {
            side: Side::Called,
            ..from
        };
        assert!(astray(b.clone().received(0, &other, 7, &bytes, false)));
        assert!(astray(b.clone().received(0, &from, 8, &bytes, false)));
        let mut third = Book::new(2, 0);
        assert!(astray(third.received(0, &from, 7, &bytes, false)));
        b.received(0, &from, 7, &bytes, false).unwrap();
        // A message of another peer of the node comes twice, too.
        let twice = b.received(1, &caller(10), 7, &bytes, false);
        assert!(matches!(twice, Err(Fault::Twice(_))));
    }

    #[test]
    fn the_order_of_numbers_counts_where_nothing_was_called_off() {
        let (mut a, mut b) = two();
        let (to, from) = (called(5), caller(9));
        let mut send = || a.compose(&to, 7, 60);
        let (first, second, third, fourth) = (send(), send(), send(), send());
        // Completed in reverse order, but posted in order.
        b.received(1, &from, 7, &second, false).unwrap();
        b.received(0, &from, 7, &first, false).unwrap();
        b.check_order(|_| false).unwrap();
        b.received(2, &from, 7, &fourth, false).unwrap();
        b.received(3, &from, 7, &third, false).unwrap();
        let late = b.check_order(|_| false);
        assert!(matches!(late, Err(Fault::Order { .. })));
        b.check_order(|_| true).unwrap();
        // Messages of different tags have no order.
        let other = a.compose(&to, 8, 60);
        b.received(4, &from, 8, &other, false).unwrap();
        b.check_order(|_| true).unwrap();
    }

    #[test]
    fn caller_has_one_session_and_called_peer_several() {
        let (mut caller_book, called_book) = two();
        // Addresses that were dropped and looked up again are another peer.
        let session = [called(5), called(6)].map(|to| caller_book.compose(&to, 7, 60));
        let get = |peers: [Peer; 2]| {
            let mut book = called_book.clone();
            for (place, (peer, bytes)) in (0..).zip(peers.iter().zip(&session)) {
                book.received(place, peer, 7, bytes, false).unwrap();
            }
            book.check_order(|_| true)
        };
        get([caller(9), caller(10)]).unwrap();
        get([caller(10), caller(9)]).unwrap();
        let mixed = get([caller(9), caller(9)]);
        assert!(matches!(mixed, Err(Fault::Mixed(..))));

        // The called side has a peer for each session, and loses them when it restarts.
        let mut called_book = called_book;
        let mut restarted = Book::new(1, 1);
        let answers = [
            called_book.compose(&caller(1), 7, 60),
            called_book.compose(&caller(2), 7, 60),
            restarted.compose(&caller(0), 7, 60),
        ];
        let get = |order: [usize; 3]| {
            let mut book = caller_book.clone();
            for (place, at) in (0..).zip(order) {
                // The last message comes after its addresses were dropped and looked up again.
                let from = called(if place < 2 { 5 } else { 6 });
                book.received(place, &from, 7, &answers[at], false).unwrap();
            }
            book.check_order(|_| true)
        };
        get([0, 1, 2]).unwrap();
        for order in [[1, 0, 2], [0, 2, 1], [2, 0, 1]] {
            assert!(matches!(get(order), Err(Fault::Order { .. })));
        }
    }
}
