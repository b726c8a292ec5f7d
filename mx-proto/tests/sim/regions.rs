//! Memory that peers reach: honest gets and puts, regions that are deregistered meanwhile, peers
//! that die, and one that attacks.
//!
//! ```text
//!   n0, n1, n2: regions of each: readable ones with a pattern, writable ones with a border that no peer may write
//!      every step: get, put, cancel, deregister (its memory is then checked not to be accessed), kill n2
//!      the attacker n2: guessed keys, keys of an earlier life, ranges that wrap, wrong rights
//! ```

use crate::rig::{NIC, Rig};
use mx_proto::port::Port;
use mx_proto::reliability::{Reliable, ReliableConfig};
use mx_proto::{EndpointId, OpKind, RegionKey, RemoteId, RequestId, Rights, SendPosted, Status};
use mx_sim::scenario::key;
use mx_sim::world::{NodeId, World};
use mx_sim::{
    Buffer, DatagramNet, Fabric, Faults, Profile, Rng, SimDatagrams, SimPort, Terms, seeds,
};
use std::collections::HashMap;
use std::time::Duration;

/// Bytes at both ends of a writable region that no put may reach.
const BORDER: usize = 64;
/// The value of all bytes of a writable region at first.
const BLANK: u8 = 0xee;

/// Registered memory of a node.
struct Region {
    of: NodeId,
    key: RegionKey,
    memory: Buffer,
    rights: Rights,
    ended: bool,
}

/// A get or put that has not completed.
struct Transfer {
    by: NodeId,
    region: usize,
    offset: usize,
    memory: Buffer,
    kind: OpKind,
    honest: bool,
}

struct Play<P: Port<Buffer>> {
    rig: Rig<P>,
    rng: Rng,
    regions: Vec<Region>,
    under_way: HashMap<(NodeId, u64), (RequestId, Transfer)>,
    /// Number of completions by status.
    ends: HashMap<Status, u64>,
    word: u64,
}

fn pattern(region: usize, at: usize) -> u8 {
    (region * 31 + at * 7 + at / 251) as u8
}

const NODES: NodeId = 3;
const ATTACKER: NodeId = 2;

impl<P: Port<Buffer>> Play<P> {
    fn new(mut rig: Rig<P>, seed: u64) -> Self {
        for node in 1..NODES {
            rig.call(node);
            rig.run(Duration::from_secs(1));
            let (_, done) = rig.side(0).completions.pop().expect("an answer");
            assert_eq!(done.status, Status::Success);
        }
        let mut play = Self {
            rig,
            rng: Rng::new(seed ^ 0x7e61),
            regions: Vec::new(),
            under_way: HashMap::new(),
            ends: HashMap::new(),
            word: 0,
        };
        for of in 0..NODES {
            for _ in 0..2 {
                play.register(of);
            }
        }
        play
    }

    fn register(&mut self, of: NodeId) {
        let len = self.rng.pick(&[1 << 10, 70_000, 700_000]);
        let nth = self.regions.len();
        let writable = self.rng.chance(0.5);
        let bytes = (0..len).map(|at| if writable { BLANK } else { pattern(nth, at) });
        let memory = Buffer::in_pieces(bytes.collect(), vec![100, 60_000]);
        let rights = Rights {
            read: !writable,
            write: writable,
        };
        let key = self.rig.side(of).endpoint.register(memory.share(), rights);
        self.regions.push(Region {
            of,
            key,
            memory,
            rights,
            ended: false,
        });
    }

    fn remote(&mut self, from: NodeId, to: NodeId) -> Option<RemoteId> {
        let side = self.rig.cluster.node(from)?;
        side.endpoint.remotes_of(NIC, EndpointId(to as u32)).next()
    }

    fn post(&mut self, by: NodeId, to: NodeId, key: RegionKey, offset: u64, transfer: Transfer) {
        let Some(remote) = self.remote(by, to) else {
            return;
        };
        self.word += 1;
        let what = (transfer.memory.share(), self.word);
        let side = self.rig.side(by);
        let posted = match transfer.kind {
            OpKind::Recv => side.endpoint.get(remote, (key, offset), what),
            _ => side.endpoint.put(remote, (key, offset), what),
        };
        if let Ok(SendPosted::Pending(id)) = posted {
            self.under_way.insert((by, self.word), (id, transfer));
        }
    }

    /// Begins a valid get or put, whose region may have been deregistered.
    fn honest(&mut self) {
        let region = self.rng.index(self.regions.len());
        let Region {
            of, key, rights, ..
        } = self.regions[region];
        let len = self.regions[region].memory.look().len();
        // All nodes have a session with the first, which has called them.
        let by = if of == 0 { 1 + self.rng.index(2) } else { 0 };
        let border = if rights.write { BORDER } else { 0 };
        let offset = border + self.rng.index(len - 2 * border);
        let most = len - border - offset;
        let size = 1 + self.rng.index(most);
        let bytes = (0..size).map(|at| pattern(region, offset + at));
        let (kind, bytes) = if rights.write {
            (OpKind::Send, bytes.collect())
        } else {
            (OpKind::Recv, vec![0; size])
        };
        let memory = Buffer::new(bytes);
        let transfer = Transfer {
            by,
            region,
            offset,
            memory,
            kind,
            honest: true,
        };
        self.post(by, of, key, offset as u64, transfer);
    }

    /// Begins an access that must be rejected in any case.
    fn hostile(&mut self) {
        let region = self.rng.index(self.regions.len());
        let Region {
            of, key, rights, ..
        } = self.regions[region];
        if of == ATTACKER {
            return;
        }
        let len = self.regions[region].memory.look().len() as u64;
        let size = 1 + self.rng.index(100_000);
        let wraps = u64::MAX - self.rng.below(size as u64);
        let beyond = len.saturating_sub(self.rng.below(size as u64));
        let (key, offset, kind) = match self.rng.below(4) {
            0 => (RegionKey(self.rng.bits()), 0, OpKind::Recv),
            1 => (
                key,
                wraps,
                if rights.read {
                    OpKind::Recv
                } else {
                    OpKind::Send
                },
            ),
            2 => (
                key,
                beyond,
                if rights.read {
                    OpKind::Recv
                } else {
                    OpKind::Send
                },
            ),
            _ => (
                key,
                0,
                if rights.read {
                    OpKind::Send
                } else {
                    OpKind::Recv
                },
            ),
        };
        let transfer = Transfer {
            by: ATTACKER,
            region,
            offset: 0,
            memory: Buffer::new(vec![0x55; size]),
            kind,
            honest: false,
        };
        self.post(ATTACKER, of, key, offset, transfer);
    }

    fn deregister(&mut self) {
        let nth = self.rng.index(self.regions.len());
        let Region { of, key, ended, .. } = self.regions[nth];
        if ended || self.rig.cluster.node(of).is_none() {
            return;
        }
        assert!(self.rig.side(of).endpoint.deregister(key));
        assert!(!self.rig.side(of).endpoint.deregister(key));
        let region = &mut self.regions[nth];
        region.ended = true;
        assert_eq!(region.memory.handles(), 1, "a part of it is left");
        // An access from now on fails the run.
        region.memory.give_back();
        self.register(of);
    }

    fn call_off(&mut self) {
        let mut all: Vec<_> = self.under_way.keys().copied().collect();
        all.sort_unstable();
        if all.is_empty() {
            return;
        }
        let (by, word) = self.rng.pick(&all);
        let (id, _) = self.under_way[&(by, word)];
        if self.rig.cluster.node(by).is_some() {
            self.rig.side(by).endpoint.end(id, Status::Cancelled);
        }
    }

    /// Checks the completions.
    fn collect(&mut self) {
        for node in 0..NODES {
            let Some(side) = self.rig.cluster.node(node) else {
                continue;
            };
            for (_, done) in std::mem::take(&mut side.completions) {
                let (_, transfer) = self
                    .under_way
                    .remove(&(node, done.context))
                    .expect("an operation ends once");
                *self.ends.entry(done.status).or_default() += 1;
                transfer.memory.give_back();
                if !transfer.honest {
                    assert_ne!(done.status, Status::Success, "the attacker got in");
                    let untouched = transfer.memory.look().iter().all(|byte| *byte == 0x55);
                    assert!(untouched, "bytes for the attacker");
                } else if done.status == Status::Success && transfer.kind == OpKind::Recv {
                    for (at, byte) in transfer.memory.look().iter().enumerate() {
                        let at = transfer.offset + at;
                        assert_eq!(*byte, pattern(transfer.region, at), "at {at}");
                    }
                } else if done.status == Status::Success {
                    let region = &self.regions[transfer.region].memory;
                    let range = transfer.offset..transfer.offset + transfer.memory.look().len();
                    assert_eq!(region.look()[range], transfer.memory.look()[..]);
                }
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..=9 => self.honest(),
            10..=12 => self.hostile(),
            13..=14 => self.call_off(),
            15 => self.deregister(),
            _ => {
                let span = self.rng.span(Duration::from_millis(2));
                self.rig.run(span);
            }
        }
        self.collect();
    }

    fn run(mut self, dies: bool) -> HashMap<Status, u64> {
        for step in 0..150 {
            self.step();
            if dies && step == 100 {
                drop(self.rig.cluster.kill(ATTACKER));
                self.under_way.retain(|(by, _), _| *by != ATTACKER);
            }
        }
        self.rig.run(Duration::from_secs(60));
        self.collect();
        let left: Vec<_> = self
            .under_way
            .values()
            .map(|(_, of)| (of.by, of.kind))
            .collect();
        assert_eq!(left, [], "gets and puts never end");
        for (nth, region) in self.regions.iter().enumerate() {
            let bytes = region.memory.look();
            if region.rights.write {
                let border = bytes[..BORDER].iter().chain(&bytes[bytes.len() - BORDER..]);
                assert!(border.copied().all(|byte| byte == BLANK), "region {nth}");
            }
            let part = if region.rights.write { BORDER } else { 0 };
            for (at, byte) in bytes.iter().enumerate().skip(part) {
                let written = *byte == BLANK && region.rights.write;
                assert!(*byte == pattern(nth, at) || written, "region {nth} at {at}");
            }
        }
        for node in 0..NODES {
            let Some(side) = self.rig.cluster.node(node) else {
                continue;
            };
            let own = self.regions.iter().filter(|of| of.of == node && !of.ended);
            assert_eq!(side.endpoint.regions(), own.count());
            assert_eq!(side.endpoint.requests(), 0, "accesses are left");
        }
        self.ends
    }
}

fn over_a_reliable_port(seed: u64) -> HashMap<Status, u64> {
    let world = World::new(seed);
    let fabric = Fabric::new(&world, None);
    let profile = Profile {
        remote_read: false,
        fabric: None,
        ..Profile::random(&mut Rng::new(seed))
    };
    let open = |node: NodeId| {
        let name = EndpointId(node as u32);
        SimPort::open(&fabric, node, NIC, name, profile).expect("a free name")
    };
    let rig = Rig::with(&world, NODES, open, Duration::from_secs(5));
    Play::new(rig, seed).run(seed % 3 == 0)
}

fn over_datagrams(seed: u64) -> HashMap<Status, u64> {
    let world = World::new(seed);
    let faults = Faults {
        loss: [0.0, 0.02][seed as usize % 2],
        latency: Duration::from_micros(20),
        ..Faults::default()
    };
    let net = DatagramNet::new(&world, Terms::with(faults));
    let open = |node: NodeId| {
        let name = EndpointId(node as u32);
        let datagrams = SimDatagrams::open(&net, node, NIC, name).expect("a free name");
        let key = key(&mut Rng::new(node as u64));
        Reliable::new(datagrams, ReliableConfig::default(), key)
    };
    let rig = Rig::with(&world, NODES, open, Duration::from_secs(5));
    Play::new(rig, seed).run(seed % 3 == 0)
}

/// Makes a run over a reliable port, for tests that look at what happens in it.
#[cfg(debug_assertions)]
pub(crate) fn any_run(seed: u64) {
    over_a_reliable_port(seed);
}

fn all(count: u64, run: fn(u64) -> HashMap<Status, u64>) {
    let mut ends = HashMap::new();
    seeds::each(count, |seed| {
        for (status, times) in run(seed) {
            *ends.entry(status).or_insert(0) += times;
        }
    });
    println!("{ends:?}");
    if std::env::var_os("SIM_SEED").is_none() {
        for status in [
            Status::Success,
            Status::NoRegion,
            Status::OutOfRange,
            Status::NotAllowed,
            Status::Cancelled,
        ] {
            assert!(ends.contains_key(&status), "none ended as {status:?}");
        }
    }
}

#[test]
fn regions_keep_every_promise_over_a_reliable_port() {
    all(120, over_a_reliable_port);
}

#[test]
fn regions_keep_every_promise_over_datagrams() {
    all(40, over_datagrams);
}
