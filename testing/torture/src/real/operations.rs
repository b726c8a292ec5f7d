//! Operations of a node: each completes once, with a valid result, and its memory is inaccessible
//! from then on.
//!
//! ```text
//!   post --> | label: verb, peer, memory | --> done: code, contents, order --> quarantine
//!              ^ cancel, must end at once    `-- book
//! ```
//!
//! Owns: outstanding operations, and counts.
//! Out of scope: the director, programs.

use super::args::Place;
use super::bmi::{self, CONTEXTS, News, record};
use super::figures::Figures;
use super::memory::{Guarded, Quarantine};
use super::notes::{Fates, Left, Report};
use super::peers::{Object, Peers};
use super::tester::Tester;
use bmi_host::abi::{EXT_ALLOC, PRE_ALLOC};
use bmi_host::codes;
use bmi_host::method::{Done, Message, Method, Post, Posted};
use bmi_mx_torture::{Book, Peer, Side, Stream, Verb, pieces};
use mx_sim::Rng;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// All operations of a node, and everything they need.
pub(crate) struct Operations {
    pub(crate) method: Method,
    pub(crate) peers: Peers,
    pub(crate) figures: Figures,
    /// State of each node, as of the last order.
    pub(crate) fates: Fates,
    pub(crate) rng: Rng,
    place: Place,
    book: Book,
    ops: BTreeMap<u64, Op>,
    /// Thread that tests the last context, if it is not this one.
    tester: Option<Tester>,
    /// Operations that have ended, for callers that wait for one of them.
    over: Vec<(u64, i32)>,
    next_label: u64,
    receives: u64,
    handed: u64,
    sent: HashMap<Stream, u64>,
    got: HashMap<Stream, u64>,
    given_up: HashMap<Stream, u64>,
    quarantine: Quarantine,
    /// Returned memory of `memalloc`, with a checksum of its contents.
    held: VecDeque<(Lent, u64)>,
}

#[derive(Debug)]
struct Op {
    id: i64,
    verb: Verb,
    with: Object,
    tag: i32,
    len: usize,
    /// Position of a receive among all receives.
    place: u64,
    context: i64,
    memory: Memory,
    cancelled: bool,
}

#[derive(Debug)]
enum Memory {
    Ours(Vec<Guarded>),
    Lent(Lent),
}

/// Memory from `memalloc`.
#[derive(Debug)]
struct Lent {
    at: *mut u8,
    len: usize,
}

impl Operations {
    pub(crate) fn new(method: Method, place: &Place, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let apart = rng.chance(0.3);
        let tester = apart.then(|| Tester::begin(method, CONTEXTS - 1, rng.pick(&[0, 1, 10])));
        Self {
            tester,
            method,
            peers: Peers::new(place),
            figures: Figures::default(),
            fates: Fates::default(),
            rng,
            place: *place,
            book: Book::new(place.index, place.life),
            ops: BTreeMap::new(),
            over: Vec::new(),
            next_label: 0,
            receives: 0,
            handed: 0,
            sent: HashMap::new(),
            got: HashMap::new(),
            given_up: HashMap::new(),
            quarantine: Quarantine::default(),
            held: VecDeque::new(),
        }
    }

    /// Returns any object of a node; looks it up if there is none.
    pub(crate) fn node(&mut self, node: usize) -> Result<Object, String> {
        let any = self.peers.any(&mut self.rng, |peer| peer.node == node);
        any.map_or_else(|| self.peers.look_up(self.method, node), Ok)
    }

    /// Returns any object that calls a node; looks it up if there is none.
    pub(crate) fn called(&mut self, node: usize) -> Result<Object, String> {
        let calls = |peer: &Peer| (peer.node, peer.side) == (node, Side::Called);
        let any = self.peers.any(&mut self.rng, calls);
        any.map_or_else(|| self.peers.look_up(self.method, node), Ok)
    }

    /// Returns any object of a peer; `None` if all were dropped.
    pub(crate) fn peer(&mut self, peer: &Peer) -> Option<Object> {
        self.peers.any(&mut self.rng, |known| known == peer)
    }

    /// Posts an operation and returns its label; `None` if it was rejected because of the peer.
    pub(crate) fn post(
        &mut self,
        verb: Verb,
        with: Object,
        tag: i32,
        len: usize,
        parts: u8,
    ) -> Result<Option<u64>, String> {
        self.next_label += 1;
        let label = self.next_label;
        let peer = with.peer;
        let bytes = match verb {
            Verb::Recv => None,
            _ => Some(self.book.compose(&peer, tag, len)),
        };
        let memory = self.memory(label, len, parts, bytes.as_deref())?;
        let lent = matches!(memory, Memory::Lent(_));
        let pieces = memory.pieces();
        let context = self.rng.below(CONTEXTS as u64) as i64;
        let post = |memory| Post {
            verb,
            with: with.address,
            tag,
            memory,
            kind: if lent { PRE_ALLOC } else { EXT_ALLOC },
            user: label as usize,
            context,
        };
        // One piece may be a list, too.
        let as_list = pieces.len() > 1 || self.rng.chance(0.1);
        record(&format!(
            "{label:#x} {verb:?} {peer} tag {tag} len {len} in {}",
            pieces.len()
        ));
        // SAFETY: `memory` is kept until the operation is over.
        let (posted, slate) = unsafe { bmi::post(self.method, label, &pieces, as_list, post) };
        // Its outputs are written during the call only.
        self.quarantine.take(slate);
        self.figures.posted += 1;
        let place = self.receives;
        self.receives += u64::from(verb == Verb::Recv);
        let op = Op {
            id: 0,
            verb,
            with,
            tag,
            len,
            place,
            context,
            memory,
            cancelled: false,
        };
        match posted {
            Posted::Pending(0) => return Err(format!("operation {label:#x} has no id")),
            Posted::Pending(id) => {
                self.ops.insert(label, Op { id, ..op });
            }
            Posted::Complete(actual) => {
                let size = if verb == Verb::Recv {
                    actual
                } else {
                    len as i64
                };
                self.end(label, op, 0, size)?;
            }
            Posted::Refused(code) if code == codes::EHOSTDOWN || is_loss(code) => {
                record(&format!("{label:#x} refused: {}", codes::name(code)));
                self.figures.ended(code);
                self.retire(op.memory)?;
                return Ok(None);
            }
            Posted::Refused(code) => {
                return Err(format!("{verb:?} to {peer} refused: {}", codes::name(code)));
            }
        }
        Ok(Some(label))
    }

    fn memory(
        &mut self,
        label: u64,
        len: usize,
        parts: u8,
        bytes: Option<&[u8]>,
    ) -> Result<Memory, String> {
        if parts == 1 && len > 0 && self.rng.chance(0.1) {
            let at = self.method.lend(len);
            let at = at.ok_or_else(|| format!("memalloc({len}) gives nothing"))?;
            if let Some(bytes) = bytes {
                // SAFETY: the library lent us so many bytes there.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, len) };
            }
            return Ok(Memory::Lent(Lent { at, len }));
        }
        let mut from = 0;
        let mut all = Vec::new();
        for part in pieces(len, parts) {
            let mut buffer = Guarded::new(part, self.rng.chance(0.5), label);
            if let Some(bytes) = bytes {
                buffer.write(&bytes[from..from + part]);
                buffer.read_only();
            }
            from += part;
            all.push(buffer);
        }
        Ok(Memory::Ours(all))
    }

    /// Handles operations of a context that have ended; returns whether there were any.
    pub(crate) fn test(&mut self, context: i64, idle_ms: i32) -> Result<bool, String> {
        let all = self.pick_up(context, idle_ms)?;
        let any = !all.is_empty();
        self.take(all)?;
        Ok(any)
    }

    fn pick_up(&self, context: i64, idle_ms: i32) -> Result<Vec<Done>, String> {
        match &self.tester {
            Some(tester) if context == CONTEXTS - 1 => {
                let all = tester.take()?;
                if all.is_empty() && idle_ms > 0 {
                    // An event that wakes the other thread is seen in the next call.
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(all)
            }
            _ => bmi::test(self.method, context, idle_ms),
        }
    }

    /// Stops the other thread's calls of the library.
    pub(crate) fn be_alone(&mut self) -> Result<(), String> {
        match self.tester.take() {
            Some(tester) => tester.end().and_then(|all| self.take(all)),
            None => Ok(()),
        }
    }

    fn take(&mut self, all: Vec<Done>) -> Result<(), String> {
        let later = self.hear_news()?;
        for done in all {
            let Done {
                id, error, size, ..
            } = done;
            let label = done.user as u64;
            let op = self.ops.remove(&label);
            let op = op.ok_or_else(|| format!("operation {label:#x} completed twice"))?;
            if id != op.id {
                return Err(format!("operation {label:#x} has id {}, not {id}", op.id));
            }
            self.end(label, op, error, size)?;
        }
        self.forget(later)
    }

    /// Handles the library's reports, except those of forgotten peers: the same call may have
    /// returned messages of theirs.
    fn hear_news(&mut self) -> Result<Vec<News>, String> {
        let news = bmi::news().into_iter();
        let (later, now): (Vec<_>, _) = news.partition(|news| matches!(news, News::Forgotten(_)));
        for news in now {
            self.peers.take(self.method, news)?;
        }
        Ok(later)
    }

    fn forget(&mut self, news: Vec<News>) -> Result<(), String> {
        news.into_iter()
            .try_for_each(|news| self.peers.take(self.method, news))
    }

    /// Handles unexpected messages; returns their objects and tags.
    pub(crate) fn unexpected(&mut self) -> Result<Vec<(Object, i32)>, String> {
        let all = bmi::unexpected(self.method)?;
        let later = self.hear_news()?;
        let mut from = Vec::new();
        for message in all {
            from.push(self.hand(&message)?);
        }
        self.forget(later)?;
        Ok(from)
    }

    fn hand(&mut self, message: &Message) -> Result<(Object, i32), String> {
        let (from, tag, error) = (message.from(), message.tag(), message.error());
        let bytes = message.bytes();
        let by = self.peers.at(from);
        let by = by.ok_or_else(|| format!("a message from {from:x?}, no address we have"))?;
        record(&format!(
            "unexpected from {} tag {tag} len {}",
            by.peer,
            bytes.len()
        ));
        if error != 0 {
            return Err(format!("an unexpected message with {}", codes::name(error)));
        }
        let place = self.handed;
        self.handed += 1;
        self.figures.unexpected += 1;
        let stream = Stream::from(self.me(), &by.peer, tag);
        *self.got.entry(stream).or_default() += 1;
        let header = self.book.received(place, &by.peer, tag, bytes, false);
        header.map_err(|fault| format!("unexpected message: {fault}"))?;
        Ok((by, tag))
    }

    fn end(&mut self, label: u64, op: Op, error: i32, size: i64) -> Result<(), String> {
        let code = codes::name(error);
        record(&format!("{label:#x} over: {code}, {size} bytes"));
        let Op {
            verb,
            with,
            tag,
            len,
            place,
            ..
        } = op;
        let peer = with.peer;
        let wrong = |what: &str| {
            Err(format!(
                "operation {label:#x}, {verb:?} {peer} tag {tag} len {len}: {code}, {size} bytes: {what}"
            ))
        };
        let stream = match verb {
            Verb::Recv => Stream::from(self.me(), &peer, tag),
            _ => Stream::to(self.me(), &peer, tag),
        };
        self.figures.ended(error);
        if with.is_over && error != codes::ENETRESET {
            return wrong("it was posted when the session was over");
        }
        match error {
            0 | codes::EMSGSIZE if verb == Verb::Recv => {
                let got = usize::try_from(size).unwrap_or(usize::MAX);
                let cut = error != 0;
                if got > len || cut && got != len {
                    return wrong("a size that cannot be");
                }
                *self.got.entry(stream).or_default() += 1;
                let bytes = op.memory.read(got);
                if let Err(fault) = self.book.received(place, &peer, tag, &bytes, cut) {
                    return wrong(&fault.to_string());
                }
            }
            0 if size != len as i64 => return wrong("a send of another size"),
            // The sender of a large message learns how much of it was wanted.
            codes::EMSGSIZE if size >= len as i64 => return wrong("all of it was wanted"),
            0 | codes::EMSGSIZE => *self.sent.entry(stream).or_default() += 1,
            codes::ECANCEL if !op.cancelled => return wrong("it was not called off"),
            codes::ECANCEL if verb == Verb::Recv => {
                *self.given_up.entry(stream).or_default() += 1;
            }
            codes::ECANCEL => {}
            code if is_loss(code) => {}
            // The receiver has cancelled the receive, or ended with all others.
            codes::ENORECVR if verb == Verb::Send => {}
            _ => return wrong("a code that cannot be"),
        }
        self.over.push((label, error));
        self.retire(op.memory)
    }

    /// Makes memory inaccessible that the library no longer uses.
    fn retire(&mut self, memory: Memory) -> Result<(), String> {
        match memory {
            Memory::Ours(all) => all.into_iter().for_each(|one| self.quarantine.take(one)),
            Memory::Lent(lent) => {
                let sum = lent.sum();
                self.held.push_back((lent, sum));
                if self.held.len() > HELD {
                    self.give_back()?;
                }
            }
        }
        Ok(())
    }

    fn give_back(&mut self) -> Result<(), String> {
        let Some((lent, sum)) = self.held.pop_front() else {
            return Ok(());
        };
        if lent.sum() != sum {
            return Err(format!("{} bytes of memalloc changed afterwards", lent.len));
        }
        // SAFETY: lent before, and not used again.
        match unsafe { self.method.take_back(lent.at, lent.len) } {
            0 => Ok(()),
            code => Err(format!("memfree: {}", codes::name(code))),
        }
    }

    /// Frees all memory of `memalloc` whose operations have ended.
    pub(crate) fn give_all_back(&mut self) -> Result<(), String> {
        while !self.held.is_empty() {
            self.give_back()?;
        }
        Ok(())
    }

    /// Returns the labels of outstanding operations, oldest first.
    pub(crate) fn outstanding(&self) -> Vec<u64> {
        self.ops.keys().copied().collect()
    }

    /// Returns the stream that becomes loose if this operation is cancelled.
    pub(crate) fn loosens(&self, label: u64) -> Option<Stream> {
        let op = self.ops.get(&label)?;
        let stream = Stream::to(self.me(), &op.with.peer, op.tag);
        (op.verb != Verb::Recv).then_some(stream)
    }

    /// Cancels an operation, which must end at once. Does nothing if it has ended already.
    pub(crate) fn cancel(&mut self, label: u64) -> Result<(), String> {
        let Some(op) = self.ops.get_mut(&label) else {
            return Ok(());
        };
        op.cancelled = true;
        let (id, context) = (op.id, op.context);
        let fate = self.fates.of(op.with.peer.node);
        record(&format!("{label:#x} cancelled"));
        let handed_over = self.tester.is_some() && context == CONTEXTS - 1;
        let begin = Instant::now();
        let rc = self.method.cancel(id, context);
        // The other thread may have reported it already.
        let before = handed_over && rc == codes::EINVAL;
        if rc != 0 && !before {
            return Err(format!("cancel of {label:#x}: {}", codes::name(rc)));
        }
        loop {
            let all = self.pick_up(context, 0)?;
            let took = begin.elapsed();
            if all.iter().any(|done| done.user as u64 == label) {
                // The time of the hand-over is not the library's.
                if !handed_over {
                    self.figures.cancels[fate as usize].record(took);
                }
            } else if all.is_empty() && (!handed_over || begin.elapsed() > HAND_OVER) {
                return Err(format!("cancel of {label:#x}: no completion at once"));
            }
            self.take(all)?;
            if !self.ops.contains_key(&label) {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// Returns the operations that have ended since the last call.
    pub(crate) fn take_over(&mut self) -> Vec<(u64, i32)> {
        std::mem::take(&mut self.over)
    }

    pub(crate) fn report(&self) -> Report {
        let left = self.ops.iter().map(|(label, op)| Left {
            label: *label,
            verb: op.verb,
            with: op.with.peer,
            tag: op.tag,
            len: op.len,
        });
        let counts = |of: &HashMap<Stream, u64>| of.iter().map(|(of, n)| (*of, *n)).collect();
        Report {
            left: left.collect(),
            callers: self.peers.callers(),
            sent: counts(&self.sent),
            got: counts(&self.got),
            given_up: counts(&self.given_up),
        }
    }

    /// Checks that all messages came in order, except in these streams.
    pub(crate) fn check_order(&self, loose: &[Stream]) -> Result<(), String> {
        let checked = self.book.check_order(|stream| loose.contains(stream));
        checked.map_err(|fault| fault.to_string())
    }

    pub(crate) fn me(&self) -> usize {
        self.place.index
    }
}

impl Memory {
    fn pieces(&self) -> Vec<(*mut u8, usize)> {
        match self {
            Self::Ours(all) => all.iter().map(|one| (one.as_ptr(), one.len())).collect(),
            Self::Lent(lent) => vec![(lent.at, lent.len)],
        }
    }

    /// Returns the first bytes, one piece after the other.
    fn read(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        match self {
            Self::Lent(lent) => bytes.extend_from_slice(&lent.bytes()[..len]),
            Self::Ours(all) => {
                for one in all {
                    bytes.extend_from_slice(one.read(len - bytes.len()));
                }
            }
        }
        bytes
    }
}

impl Lent {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the library lent us so many bytes there, and has given them back since.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    fn sum(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.bytes().hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns whether a code means that the peer is lost or unreachable.
fn is_loss(code: i32) -> bool {
    use codes::{ECONNREFUSED, EHOSTUNREACH, ENETRESET, ETIMEDOUT};
    [ENETRESET, ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH].contains(&code)
}

/// Maximum time for which the other thread may hold a completion: it may be stopped meanwhile.
const HAND_OVER: Duration = Duration::from_secs(10);
/// Number of buffers of `memalloc` that are checked again before they are freed.
const HELD: usize = 32;
