//! Contents of messages, and the check of those that arrive.
//!
//! ```text
//!   | from | life | to | tag | number | len | a pattern that follows from all of these ...      |
//!   0      4      8    12    16       20    24 = HEADER       (little-endian; cut where len ends)
//! ```
//!
//! A message shorter than its header is *nameless*: only what is there of it is checked.
//!
//! Owns: the numbers one life of a node has given, and all it has received.
//! Not here: operations, buffers, other nodes' books.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// Bytes before the pattern.
pub const HEADER: usize = 24;

/// Messages from one node to another with one tag. They arrive in the order they were sent, if none
/// was called off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stream {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// Of all its messages.
    pub tag: i32,
}

/// The header of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Its sender.
    pub from: u32,
    /// The sender's life.
    pub life: u32,
    /// Its receiver.
    pub to: u32,
    /// Its tag.
    pub tag: i32,
    /// Counted from 1 in its stream, in each life anew.
    pub number: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// These bytes were never sent.
    Content {
        /// The stream it claims to be of.
        stream: Stream,
        /// Its header.
        header: Option<Header>,
        /// The first byte that is wrong, or where it ends too early or too late.
        at: usize,
    },
    /// It was meant for another receive.
    Astray {
        /// Of whose receive.
        stream: Stream,
        /// Its header.
        header: Header,
    },
    /// It was here before.
    Twice(Header),
    /// It came after one that was sent later.
    Order {
        /// It.
        late: Header,
        /// The number of the one before it, and in which life of the sender.
        after: (u32, u32),
    },
}

/// The book of one life of one node.
#[derive(Clone, Debug)]
pub struct Book {
    me: usize,
    life: u32,
    /// The last number given, by receiver and tag.
    numbers: HashMap<(usize, i32), u32>,
    seen: HashSet<Header>,
    /// By stream and place: what was received.
    arrived: BTreeMap<(Stream, u64), Header>,
    nameless: HashMap<Stream, u64>,
}

impl Stream {
    /// That of a message.
    pub fn of(header: &Header) -> Self {
        Self {
            from: header.from as usize,
            to: header.to as usize,
            tag: header.tag,
        }
    }
}

impl Header {
    fn emit(&self) -> [u8; HEADER] {
        let tag = self.tag as u32;
        let words = [self.from, self.life, self.to, tag, self.number, self.len];
        let mut bytes = [0; HEADER];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The header of a message; `None` if it is nameless.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER)?;
        let mut words = bytes.chunks_exact(4).map(|word| {
            let word = word.try_into().expect("four bytes");
            u32::from_le_bytes(word)
        });
        let mut next = || words.next().expect("six words");
        Some(Self {
            from: next(),
            life: next(),
            to: next(),
            tag: next() as i32,
            number: next(),
            len: next(),
        })
    }

    /// The whole message.
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
        who.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ where_to.wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    /// The first byte behind the header that is not as it was sent.
    fn differs(&self, bytes: &[u8]) -> Option<usize> {
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

/// The eight bytes at 8 * `n` behind the header; never twice the same in a message of usual length.
fn pattern(seed: u64, n: usize) -> [u8; 8] {
    let word = (seed ^ n as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (word ^ word >> 29).to_le_bytes()
}

impl Book {
    /// Nothing sent, nothing received. Lives of a node are counted by the one that restarts it.
    pub fn new(me: usize, life: u32) -> Self {
        Self {
            me,
            life,
            numbers: HashMap::new(),
            seen: HashSet::new(),
            arrived: BTreeMap::new(),
            nameless: HashMap::new(),
        }
    }

    /// Its node, and that node's life.
    pub fn owner(&self) -> (usize, u32) {
        (self.me, self.life)
    }

    /// The next message for a node, of `len` bytes. In the order in which they are posted.
    pub fn compose(&mut self, to: usize, tag: i32, len: usize) -> Vec<u8> {
        let number = self.numbers.entry((to, tag)).or_default();
        *number += 1;
        let header = Header {
            from: self.me as u32,
            life: self.life,
            to: to as u32,
            tag,
            number: *number,
            len: u32::try_from(len).expect("a message of less than 4 GiB"),
        };
        header.message()
    }

    /// Takes in what a receive got, or an unexpected message. `place`: where the receive stood among
    /// all receives that were posted, or the message among all that were handed out. `from`: whose it
    /// must be, if that is known. `cut`: only its beginning is there. `None`: it is nameless.
    ///
    /// # Errors
    /// The fault of the message.
    pub fn received(
        &mut self,
        place: u64,
        from: Option<usize>,
        tag: i32,
        bytes: &[u8],
        cut: bool,
    ) -> Result<Option<Header>, Fault> {
        let Some(header) = Header::parse(bytes) else {
            return self.nameless(from, tag, bytes).map(|()| None);
        };
        let stream = Stream {
            from: from.unwrap_or(header.from as usize),
            to: self.me,
            tag,
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
        self.arrived.insert((stream, place), header);
        Ok(Some(header))
    }

    fn nameless(&mut self, from: Option<usize>, tag: i32, bytes: &[u8]) -> Result<(), Fault> {
        let says = |word: &[u8; 4]| u32::from_le_bytes(*word) as usize;
        let from = from.or_else(|| bytes.first_chunk().map(says));
        let stream = Stream {
            from: from.unwrap_or(usize::MAX),
            to: self.me,
            tag,
        };
        *self.nameless.entry(stream).or_default() += 1;
        // Life, number and length are not known; who, to whom and the tag are.
        let expected = Header {
            from: stream.from as u32,
            life: 0,
            to: self.me as u32,
            tag,
            number: 0,
            len: 0,
        };
        let expected = expected.emit();
        let known = |at: &usize| matches!(at, 8..16) || *at < 4 && from.is_some();
        let mut known = (0..bytes.len()).filter(known);
        match known.find(|at| bytes[*at] != expected[*at]) {
            None => Ok(()),
            Some(at) => Err(Fault::Content {
                stream,
                header: None,
                at,
            }),
        }
    }

    /// Looks at the order of all that was received. A later life of a sender comes after an earlier
    /// one in every stream; in a stream that is not `loose` also a later number after an earlier one.
    ///
    /// A stream is loose when a send of it was called off: a receive that it had matched goes back to
    /// its place, so that what was sent later may already be in receives behind it.
    ///
    /// # Errors
    /// The first message out of order.
    pub fn check_order(&self, loose: impl Fn(&Stream) -> bool) -> Result<(), Fault> {
        let mut last: Option<(Stream, u32, u32)> = None;
        for ((stream, _), header) in &self.arrived {
            if let Some((_, life, number)) = last.filter(|(of, _, _)| of == stream) {
                let number_counts = header.life == life && !loose(stream);
                if header.life < life || number_counts && header.number <= number {
                    return Err(Fault::Order {
                        late: *header,
                        after: (number, life),
                    });
                }
            }
            last = Some((*stream, header.life, header.number));
        }
        Ok(())
    }

    /// Everything received that has a name, with its place, by stream.
    pub fn arrived(&self) -> impl Iterator<Item = (u64, &Header)> {
        self.arrived
            .iter()
            .map(|((_, place), header)| (*place, header))
    }

    /// Messages received, nameless ones too.
    pub fn count(&self) -> u64 {
        self.arrived.len() as u64 + self.nameless.values().sum::<u64>()
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
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (Book, Book) {
        (Book::new(0, 3), Book::new(1, 0))
    }

    #[test]
    fn what_was_sent_is_received_whole_cut_and_without_a_name() {
        let (mut a, mut b) = two();
        for (place, len) in [0, 3, 10, 23, 24, 25, 31, 32, 33, 5_000]
            .into_iter()
            .enumerate()
        {
            let bytes = a.compose(1, 7, len);
            assert_eq!(bytes.len(), len);
            let got = b.received(place as u64, Some(0), 7, &bytes, false).unwrap();
            assert_eq!(got.is_some(), len >= HEADER);
        }
        for len in 0..HEADER {
            let bytes = a.compose(1, 9, len);
            let got = b.received(0, None, 9, &bytes, false).unwrap();
            assert_eq!(got, None, "{len}");
        }
        let long = a.compose(1, 7, 1_000);
        let got = b.received(99, None, 7, &long[..900], true).unwrap();
        assert_eq!(got.unwrap().number, 11);
        assert_eq!(b.count(), 11 + HEADER as u64);
        b.check_order(|_| false).unwrap();
    }

    #[test]
    fn every_wrong_byte_is_found() {
        let (mut a, b) = two();
        let good = a.compose(1, 7, 60);
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            let got = b.clone().received(0, Some(0), 7, &bytes, false);
            got.expect_err("a wrong byte");
        }
        for (bytes, cut) in [
            (&good[..59], false),
            (&good[..], true),
            (&good[..30], false),
        ] {
            b.clone()
                .received(0, Some(0), 7, bytes, cut)
                .expect_err("its length");
        }
    }

    #[test]
    fn others_messages_and_second_copies_are_found() {
        let (mut a, mut b) = two();
        let bytes = a.compose(1, 7, 60);
        let astray = |got| matches!(got, Err(Fault::Astray { .. }));
        assert!(astray(b.clone().received(0, Some(2), 7, &bytes, false)));
        assert!(astray(b.clone().received(0, Some(0), 8, &bytes, false)));
        assert!(astray(Book::new(2, 0).received(
            0,
            Some(0),
            7,
            &bytes,
            false
        )));
        b.received(0, Some(0), 7, &bytes, false).unwrap();
        let twice = b.received(1, Some(0), 7, &bytes, false);
        assert!(matches!(twice, Err(Fault::Twice(_))));
    }

    #[test]
    fn the_order_of_numbers_counts_where_nothing_was_called_off_and_that_of_lives_always() {
        let (mut a, mut b) = two();
        let first = a.compose(1, 7, 60);
        let second = a.compose(1, 7, 60);
        // Completed the other way round, but posted in order.
        b.received(1, Some(0), 7, &second, false).unwrap();
        b.received(0, Some(0), 7, &first, false).unwrap();
        b.check_order(|_| false).unwrap();
        let third = a.compose(1, 7, 60);
        let fourth = a.compose(1, 7, 60);
        b.received(2, Some(0), 7, &fourth, false).unwrap();
        b.received(3, Some(0), 7, &third, false).unwrap();
        b.check_order(|_| false).unwrap_err();
        b.check_order(|_| true).unwrap();
        let later = Book::new(0, 4).compose(1, 7, 60);
        let fifth = a.compose(1, 7, 60);
        b.received(4, Some(0), 7, &later, false).unwrap();
        b.check_order(|_| true).unwrap();
        b.received(5, Some(0), 7, &fifth, false).unwrap();
        b.check_order(|_| true).unwrap_err();
    }
}
