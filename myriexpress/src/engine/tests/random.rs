//! Random programs: whatever they do, every request ends once and every message arrives once.
//!
//! ```text
//!   steps: send, receive, cancel, forget, test, handler on or off, disconnects of no peer
//!   end:   no handler, receives for everything  -->  the books are even
//! ```

use super::{Net, Recv};
use crate::engine::UnexpectedHandler;
use crate::handles::{Address, RequestHandle};
use crate::status::{Status, StatusCode};
use mx_sim::world::NodeId;
use mx_sim::{Profile, Rng, seeds};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::time::Duration;

const NODES: usize = 3;
const TURNS: usize = 400;
const TAGS: u64 = 4;

unsafe extern "C" fn never(_: *mut c_void, _: Address, _: u64, _: u32, _: *mut c_void) -> u32 {
    unreachable!("the books decide")
}

/// Requests and messages of one run.
struct Books {
    net: Net,
    rng: Rng,
    /// Addresses by sender and receiver.
    addresses: Vec<Vec<Address>>,
    /// Pending sends, with the serial numbers of their messages.
    sends: [BTreeMap<Word, u64>; NODES],
    recvs: [BTreeMap<Word, Recv>; NODES],
    /// Receivers and lengths of messages that have not arrived.
    under_way: BTreeMap<u64, (NodeId, usize)>,
    handled: [bool; NODES],
    /// Messages that a handler has consumed.
    consumed: BTreeSet<u64>,
    serial: u64,
}

/// Ordered, so that the seed determines the run.
type Word = u64;

fn handle(word: Word) -> RequestHandle {
    RequestHandle(word)
}

/// Makes a body with the message's serial number in its first bytes, if it has any.
fn body(serial: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|n| (n as u64 * 31 + serial) as u8).collect();
    let stamp = serial.to_le_bytes();
    let n = len.min(8);
    bytes[..n].copy_from_slice(&stamp[..n]);
    bytes
}

impl Books {
    fn new(seed: u64) -> Self {
        let mut net = Net::new(seed, Profile::default());
        let mut rng = net.world.fork_rng();
        net.profile = Profile {
            remote_read: false,
            refusal_ends_link: false,
            ..Profile::random(&mut rng)
        };
        for _ in 0..NODES {
            net.add(None);
        }
        let addresses = (0..NODES)
            .map(|from| {
                let to = (0..NODES).map(|to| {
                    if from == to {
                        net.engine(from).own_address()
                    } else {
                        net.connect(from, to)
                    }
                });
                to.collect()
            })
            .collect();
        Self {
            net,
            rng,
            addresses,
            sends: Default::default(),
            recvs: Default::default(),
            under_way: BTreeMap::new(),
            handled: [false; NODES],
            consumed: BTreeSet::new(),
            serial: 0,
        }
    }

    fn turn(&mut self) {
        let node = self.rng.index(NODES);
        match self.rng.below(10) {
            0..=2 => self.send(node),
            3..=4 => {
                let tag = self.rng.below(TAGS);
                let mask = self.rng.pick(&[0, TAGS - 1, 1]);
                self.receive(node, tag & mask, mask, 1 << 20);
            }
            5 => self.cancel(node),
            6 => {
                self.handled[node] = !self.handled[node];
                let handler = self.handled[node].then_some(UnexpectedHandler {
                    function: never,
                    context: 0,
                });
                self.net.engine(node).set_handler(handler);
            }
            7 => self.peek(node),
            _ => {
                let span = self.rng.span(Duration::from_millis(2));
                self.net.pass(span);
            }
        }
        for node in 0..NODES {
            self.look(node);
        }
    }

    fn send(&mut self, from: NodeId) {
        let to = self.rng.index(NODES);
        let tag = self.rng.below(TAGS);
        let len = 8 + self.rng.pick(&[0usize, 1, 500, 20_000, 60_000, 300_000]);
        self.serial += 1;
        let address = self.addresses[from][to];
        let bytes = body(self.serial, len);
        let request = if self.rng.chance(0.3) {
            self.net.issend(from, address, tag, &bytes)
        } else {
            self.net.isend(from, address, tag, &bytes)
        };
        self.under_way.insert(self.serial, (to, len));
        if self.rng.chance(0.1) {
            self.net.engine(from).forget(request).unwrap();
        } else {
            self.sends[from].insert(request.0, self.serial);
        }
    }

    fn receive(&mut self, node: NodeId, bits: u64, mask: u64, len: usize) {
        let recv = self.net.irecv(node, bits, mask, len);
        assert!(self.recvs[node].insert(recv.handle.0, recv).is_none());
    }

    fn cancel(&mut self, node: NodeId) {
        let words: Vec<u64> = self.recvs[node].keys().copied().collect();
        if words.is_empty() {
            return;
        }
        let word = self.rng.pick(&words);
        if self.net.engine(node).cancel(handle(word)).unwrap() {
            self.recvs[node].remove(&word);
        }
    }

    fn peek(&mut self, node: NodeId) {
        let Some(oldest) = self.net.engine(node).peek().unwrap() else {
            return;
        };
        let any = self.net.engine(node).test_any(0, 0).unwrap().unwrap();
        self.ended(node, oldest, any);
    }

    /// Tests completed requests, and plays the handler's part.
    fn look(&mut self, node: NodeId) {
        while let Some(turn) = self.net.engine(node).next_turn(|| 1) {
            let consumed = self.rng.chance(0.3);
            if consumed {
                // Only a message that is shown with its data can be identified.
                let bits = turn.deferred.arrival.bits.0;
                let serial = match turn.deferred.body() {
                    Some(body) => u64::from_le_bytes(body[..8].try_into().unwrap()),
                    None => 0,
                };
                assert!(bits < TAGS);
                self.consumed.insert(serial);
                self.arrived(node, serial);
            }
            let consumed = consumed && turn.deferred.body().is_some();
            self.net.engine(node).end_turn(turn.deferred, consumed);
        }
        let requests: Vec<u64> = self.sends[node]
            .keys()
            .chain(self.recvs[node].keys())
            .copied()
            .collect();
        for word in requests {
            // Some are left for `test_any`.
            if self.rng.chance(0.5)
                && let Some(status) = self.net.engine(node).test(handle(word)).unwrap()
            {
                self.ended(node, handle(word), status);
            }
        }
    }

    fn arrived(&mut self, node: NodeId, serial: u64) {
        if serial != 0 {
            let (to, _) = self.under_way.remove(&serial).expect("once");
            assert_eq!(to, node);
        }
    }

    fn ended(&mut self, node: NodeId, request: RequestHandle, status: Status) {
        assert!(self.net.engine(node).test(request).is_err(), "ended twice");
        let Some(recv) = self.recvs[node].remove(&request.0) else {
            let serial = self.sends[node].remove(&request.0);
            let serial = serial.expect("an unknown request");
            // Consumed by the handler without a receive, of which the sender of an offered message is told.
            let consumed = self.consumed.contains(&serial);
            let unread = consumed && status.code == StatusCode::Truncated as u32;
            assert!(unread || status.code == StatusCode::Success as u32);
            return;
        };
        assert_eq!(status.code, StatusCode::Success as u32);
        let len = status.msg_length as usize;
        let bytes = self.net.bytes(recv)[..len].to_vec();
        let serial = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(self.under_way.get(&serial), Some(&(node, len)));
        assert!(bytes == body(serial, len), "bytes of message {serial}");
        self.arrived(node, serial);
    }

    /// Receives everything.
    fn finish(mut self) {
        for node in 0..NODES {
            self.net.engine(node).set_handler(None);
            for word in self.recvs[node].keys().copied().collect::<Vec<_>>() {
                if self.net.engine(node).cancel(handle(word)).unwrap() {
                    self.recvs[node].remove(&word);
                }
            }
        }
        self.net.run_until_idle();
        for node in 0..NODES {
            while let Some(status) = self.net.engine(node).probe(0, 0).unwrap() {
                let before = self.under_way.len();
                self.receive(node, status.match_info, u64::MAX, 1 << 20);
                self.net.run_until_idle();
                let recvs: Vec<u64> = self.recvs[node].keys().copied().collect();
                for word in recvs {
                    let status = self.net.done(node, handle(word));
                    self.ended(node, handle(word), status);
                }
                assert!(self.under_way.len() < before);
            }
        }
        self.net.run_until_idle();
        for node in 0..NODES {
            for word in self.sends[node].keys().copied().collect::<Vec<_>>() {
                let status = self.net.done(node, handle(word));
                self.ended(node, handle(word), status);
            }
            for word in self.recvs[node].keys().copied().collect::<Vec<_>>() {
                let status = self.net.done(node, handle(word));
                self.ended(node, handle(word), status);
            }
            let engine = self.net.engine(node);
            assert_eq!((engine.requests(), engine.peek().unwrap()), (0, None));
        }
        assert!(self.under_way.is_empty(), "lost: {:?}", self.under_way);
    }
}

#[test]
fn every_request_ends_once_and_every_message_arrives_once() {
    seeds::each(60, |seed| {
        let mut books = Books::new(seed);
        for _ in 0..TURNS {
            books.turn();
        }
        books.finish();
    });
}

#[test]
fn small_messages_of_one_sender_are_received_in_order() {
    seeds::each(60, |seed| {
        let mut net = Net::new(seed, Profile::default());
        let mut rng = net.world.fork_rng();
        net.profile = Profile::random(&mut rng);
        net.add(None);
        net.add(None);
        let b = net.connect(0, 1);
        let mut sent = 0;
        let mut posted = Vec::new();
        for _ in 0..300 {
            match rng.below(4) {
                0 => {
                    let recv = net.irecv(1, 0, rng.pick(&[0, 1 << 40]), 4_000);
                    posted.push(recv);
                }
                1 | 2 => {
                    sent += 1;
                    let len = 8 + rng.index(4_000 - 8);
                    let request = net.isend(0, b, 5, &body(sent, len));
                    net.engine(0).forget(request).unwrap();
                }
                _ => net.pass(rng.span(Duration::from_micros(200))),
            }
        }
        while (posted.len() as u64) < sent {
            posted.push(net.irecv(1, 0, 0, 4_000));
        }
        net.run_until_idle();
        for (n, recv) in posted.into_iter().take(sent as usize).enumerate() {
            assert_eq!(net.code(1, recv.handle), StatusCode::Success);
            let serial = u64::from_le_bytes(net.bytes(recv)[..8].try_into().unwrap());
            assert_eq!(serial, n as u64 + 1);
        }
    });
}
