//! Cancels over every simulated provider: from the moment at which a cancel returns, the provider
//! has nothing of the buffer.
//!
//! ```text
//!   docs/buffers.md:   small │ slot │ large, sent │ large, received
//!   moments:           blocked, offered, matched and n steps on its way
//!   the peer:          moves, has stopped, has died in each of the ways that providers show
//! ```
//!
//! The simulated provider knows which buffers it was given, and answers when asked
//! ([`Fake::holds`]). The buffer is then overwritten and compared later, which shows any bytes that
//! the provider wrote.

use crate::direct::made_up::{nodes, shapes};
use crate::direct::nodes::{Nodes, pattern};
use libfabric_fake::{Death, Fake, Faults, Shape};
use mx_proto::{RemoteId, RequestId, Status};
use mx_sim::Cancelled;
use std::time::Duration;

/// The peer's behaviour from the moment of the cancel on, or from a little earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Peer {
    Moves,
    Stops,
    Dies,
}

const PEERS: [Peer; 3] = [Peer::Moves, Peer::Stops, Peer::Dies];

/// Lengths of each class: injected, in a slot, large.
const LENGTHS: [usize; 4] = [8, 4_000, 200_001, 2 << 20];

/// Two nodes that have exchanged messages.
struct World {
    fake: Fake,
    nodes: Nodes,
    to: RemoteId,
    peer: Peer,
    name: String,
    /// Buffers of the peer's operations, kept until the peer has ended.
    kept: Vec<Vec<u8>>,
}

impl World {
    fn new(shape: &Shape, seed: u64, peer: Peer) -> Self {
        let fake = Fake::new(shape.clone(), seed);
        let mut nodes = nodes(&fake, 2);
        let to = nodes.connect(0, 1);
        let back = nodes.connect(1, 0);
        let message = pattern(600_000, 1);
        let mut got = vec![0; message.len()];
        for _ in 0..3 {
            for (from, to) in [(0, to), (1, back)] {
                nodes.post(1 - from, 1, &mut got, 7);
                nodes.send_all(from, to, 1, &message);
                assert_eq!(nodes.wait(1 - from, 7).status, Status::Success);
            }
            (0..60).for_each(|_| nodes.turn());
        }
        fake.faults(|faults| {
            *faults = Faults {
                // Small steps, so that there are many moments.
                hold: 0.5,
                landing_polls: 3,
                late_send: 0.5,
                late_send_polls: 8,
                revocable: true,
                ..Faults::none()
            };
        });
        let name = format!("{}, seed {seed}, {peer:?}", shape.provider);
        Self {
            fake,
            nodes,
            to,
            peer,
            name,
            kept: Vec::new(),
        }
    }

    fn steps(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.nodes.turn());
    }

    /// Lets the peer stop or die now.
    fn strike(&mut self) {
        if self.peer == Peer::Dies {
            self.nodes.kill(1);
        }
        if self.peer != Peer::Moves {
            // This node may notice that, or nothing yet.
            self.alone(3);
        }
    }

    fn alone(&mut self, turns: usize) {
        for _ in 0..turns {
            self.nodes.end(0).progress();
        }
    }

    /// Cancels, and checks that the provider does not have the buffer from then on. For a send that
    /// the peer's card may be reading over a connection, the check begins at the end of the send.
    fn let_go(&mut self, request: RequestId, buffer: &mut [u8], what: &str) -> Cancelled {
        let cancelled = self.nodes.cancel(0, request);
        let name = format!("{}: {what}", self.name);
        let later = cancelled == Cancelled::Later;
        while later && self.nodes.end(0).ops().data(request).is_some() {
            match self.peer {
                Peer::Moves => self.steps(1),
                Peer::Stops | Peer::Dies => {
                    self.nodes.skip(Duration::from_millis(100));
                    self.alone(1);
                }
            }
        }
        let held = self.fake.holds(buffer.as_ptr(), buffer.len());
        assert!(held.is_empty(), "{name}: {cancelled:?}: {held:?}");
        let stats = self.nodes.end(0).port().rdm().stats();
        assert_eq!(stats.renewals, 0, "{name}: the others' links are gone");
        buffer.fill(0x5a);
        match self.peer {
            Peer::Moves => self.steps(60),
            Peer::Stops | Peer::Dies => self.alone(60),
        }
        assert!(buffer.iter().all(|byte| *byte == 0x5a), "{name}: written");
        cancelled
    }

    fn end(self) {
        drop(self.nodes);
        drop(self.kept);
        self.fake.assert_clean();
        assert_eq!(
            self.fake.open_objects(),
            Vec::<String>::new(),
            "{}",
            self.name
        );
    }
}

/// Runs a test in every world.
fn everywhere(seeds: std::ops::Range<u64>, mut test: impl FnMut(&mut World, u64)) {
    for shape in shapes() {
        for peer in PEERS {
            for seed in seeds.clone() {
                let mut world = World::new(&shape, seed, peer);
                test(&mut world, seed);
                world.end();
            }
        }
    }
}

#[test]
fn a_send_that_finds_no_room() {
    everywhere(1..2, |world, _| {
        world.fake.faults(|faults| {
            faults.again = 1.0;
            faults.again_run = 1;
        });
        let buffers: Vec<_> = LENGTHS.iter().map(|len| pattern(*len, 4)).collect();
        let sent: Vec<_> = buffers
            .into_iter()
            .map(|buffer| (world.nodes.send(0, world.to, 6, &buffer, 9), buffer))
            .collect();
        world.strike();
        for (request, mut buffer) in sent {
            let what = format!("{} bytes blocked", buffer.len());
            if let Some(request) = request {
                world.let_go(request, &mut buffer, &what);
            }
        }
    });
}

#[test]
fn a_send_that_is_on_its_way_at_every_moment() {
    everywhere(0..6, |world, seed| {
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let bits = 20 + n as u64;
            let mut got = vec![0; len];
            let mut buffer = pattern(len, 5);
            // If the card's reads need a connection, a peer that does not answer a cancel has lost
            // the connection.
            while world.nodes.end(0).remote_identity(world.to).is_none() {
                assert!(world.peer != Peer::Moves);
                world.to = world.nodes.try_connect(0, 1).remote;
            }
            world.nodes.post(1, bits, &mut got, 1);
            world.kept.push(got);
            if let Some(request) = world.nodes.send(0, world.to, bits, &buffer, 9) {
                world.steps(seed as usize * 3);
                if len == LENGTHS[3] {
                    world.strike();
                }
                world.let_go(request, &mut buffer, &format!("{len} bytes sent"));
            }
        }
    });
}

#[test]
fn send_of_a_cancelled_receive_holds_nothing_at_its_end() {
    let mut given = 0;
    for shape in shapes() {
        for seed in 0..12 {
            let mut world = World::new(&shape, seed, Peer::Moves);
            for (n, len) in LENGTHS.into_iter().enumerate() {
                let bits = 60 + n as u64;
                let mut got = vec![0; len];
                let buffer = pattern(len, 6);
                let receive = world.nodes.post(1, bits, &mut got, 1);
                let send = world.nodes.send(0, world.to, bits, &buffer, 9);
                world.steps(seed as usize);
                given += world.fake.holds(buffer.as_ptr(), len).len();
                receive.map(|receive| world.nodes.cancel(1, receive));
                // The first receive may have been cancelled before that message came.
                world.nodes.post(1, bits, &mut got, 1);
                if send.is_some() {
                    world.nodes.wait(0, 9);
                }
                let held = world.fake.holds(buffer.as_ptr(), len);
                assert!(held.is_empty(), "{}: {len} bytes: {held:?}", world.name);
                world.steps(60);
                world.kept.push(got);
            }
            world.end();
        }
    }
    assert!(given > 100, "in the middle of {given} only");
}

#[test]
fn a_receive_that_is_being_filled_at_every_moment() {
    everywhere(0..6, |world, seed| {
        let back = world.nodes.connect(1, 0);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let bits = 40 + n as u64;
            let message = pattern(len, 7);
            let mut buffer = vec![0; len];
            let request = world.nodes.post(0, bits, &mut buffer, 9).unwrap();
            world.nodes.send(1, back, bits, &message, 1);
            world.kept.push(message);
            world.steps(seed as usize * 3);
            if len == LENGTHS[3] {
                world.strike();
            }
            world.let_go(request, &mut buffer, &format!("{len} bytes received"));
        }
    });
}

/// Some providers show a death by errors, others do not show it at all.
#[test]
fn however_a_provider_shows_that_a_peer_has_died() {
    let deaths = [
        Death::Again,
        Death::Vanish,
        Death::Swallow,
        Death::Fail(libc::ECONNRESET),
    ];
    for shape in shapes() {
        for death in deaths {
            let shape = Shape {
                peer_gone: death,
                no_peer: death,
                ..shape.clone()
            };
            for seed in 0..3 {
                let mut world = World::new(&shape, seed, Peer::Dies);
                let back = world.nodes.connect(1, 0);
                let message = pattern(2 << 20, 8);
                let (mut into, mut from) = (vec![0; 2 << 20], pattern(2 << 20, 9));
                let receive = world.nodes.post(0, 9, &mut into, 9).unwrap();
                world.nodes.send(1, back, 9, &message, 1);
                let mut theirs = vec![0; 2 << 20];
                world.nodes.post(1, 7, &mut theirs, 2);
                let send = world.nodes.send(0, world.to, 7, &from, 10).unwrap();
                world.steps(seed as usize * 3);
                world.strike();
                let what = format!("{death:?}");
                world.let_go(receive, &mut into, &what);
                world.let_go(send, &mut from, &what);
                world.end();
            }
        }
    }
}
