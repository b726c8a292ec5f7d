//! A transfer, interrupted after every single step of it, by every kind of interruption.
//!
//! ```text
//!   n0 -- message --> n1      step 0, 1, 2, ... n: there, something happens:
//!                             cancel, disconnect, close, kill, restart, cut, power off
//! ```
//!
//! After it: everything outstanding ends, no memory is touched any more, and a message in each
//! direction goes through again.

use super::{Network, Stage};
use crate::check::Selector;
use crate::node::KEY;
use crate::{Habits, Node, NodeId, Rng, World};
use mx_proto::Config;
use std::time::Duration;

/// An event that interrupts the transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Interruption {
    CancelSend,
    CancelRecv,
    CancelBoth,
    SenderDisconnects,
    ReceiverDisconnects,
    BothDisconnect,
    SenderCloses,
    ReceiverCloses,
    SenderDies,
    ReceiverDies,
    SenderVanishes,
    ReceiverVanishes,
    LinksBreak,
    Silence,
    ReceiverStalls,
}

const ALL: [Interruption; 15] = [
    Interruption::CancelSend,
    Interruption::CancelRecv,
    Interruption::CancelBoth,
    Interruption::SenderDisconnects,
    Interruption::ReceiverDisconnects,
    Interruption::BothDisconnect,
    Interruption::SenderCloses,
    Interruption::ReceiverCloses,
    Interruption::SenderDies,
    Interruption::ReceiverDies,
    Interruption::SenderVanishes,
    Interruption::ReceiverVanishes,
    Interruption::LinksBreak,
    Interruption::Silence,
    Interruption::ReceiverStalls,
];

const STEPS: u64 = 1_000_000;

/// The message and its buffers.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Bytes of the message.
    pub len: usize,
    /// Bytes of the buffer it goes to.
    pub room: usize,
    /// Memory lies in several pieces.
    pub pieces: bool,
    /// Transfers like it that went well before, as some ports warm up.
    pub before: u32,
}

/// Two nodes that are connected.
fn stage<N: Network>(world: &World, network: N, pieces: bool) -> Stage<N> {
    let config = Config {
        request_timeout: Some(Duration::from_secs(2)),
        waiting_timeout: Some(Duration::from_secs(2)),
        ..Config::default()
    };
    let habits = Habits {
        pieces,
        ..Habits::default()
    };
    let mut stage = Stage::new((world, network), 2, (config, habits), true);
    stage.meet(0, 1);
    stage.meet(1, 0);
    stage
}

impl<N: Network> Stage<N> {
    fn is_busy(&mut self) -> bool {
        let node = |id| self.cluster.node(id).map_or(0, |node| node.posted());
        (0..2).map(node).sum::<usize>() > 0
    }

    /// Connects until it works; a former life's links may hinder that for a while.
    fn meet(&mut self, from: NodeId, to: NodeId) {
        for _ in 0..20 {
            self.at(from).connect(to, KEY);
            self.run(Duration::from_millis(500));
            if !self.at(from).remotes().is_empty() {
                return;
            }
        }
        panic!("n{from} cannot reach n{to}");
    }

    fn post(&mut self, from: NodeId, len: usize, room: usize, late: bool) {
        let to = 1 - from;
        let remote = self.at(from).remotes()[0];
        if !late {
            self.at(to).recv(Selector::exact(5), room);
        }
        self.at(from).send(remote, 5, len);
        if late {
            self.run(Duration::from_micros(40));
            self.at(to).recv(Selector::exact(5), room);
        }
    }

    fn warm_up(&mut self, len: usize) {
        let before = self.received();
        self.post(0, len, len, false);
        let mut steps = 0;
        while self.is_busy() && steps < STEPS {
            self.cluster.step();
            steps += 1;
        }
        assert_eq!(self.received(), before + 1, "it does not work");
        // Ports do the rest of their warming up without a request.
        self.run(Duration::from_millis(50));
    }

    fn interrupt(&mut self, how: Interruption) {
        self.world.note(0, format!("--- {how:?}"));
        let disconnect = |node: &mut Node<N::Port>| {
            for remote in node.remotes().to_vec() {
                node.disconnect(remote);
            }
        };
        match how {
            Interruption::CancelSend => self.at(0).cancel_sends(),
            Interruption::CancelRecv => self.at(1).cancel_receives(),
            Interruption::CancelBoth => {
                self.at(0).cancel_sends();
                self.at(1).cancel_receives();
            }
            Interruption::SenderDisconnects => disconnect(self.at(0)),
            Interruption::ReceiverDisconnects => disconnect(self.at(1)),
            Interruption::BothDisconnect => {
                disconnect(self.at(0));
                disconnect(self.at(1));
            }
            Interruption::SenderCloses | Interruption::SenderDies => {
                if how == Interruption::SenderCloses {
                    self.at(0).close();
                }
                self.kill(0);
            }
            Interruption::ReceiverCloses | Interruption::ReceiverDies => {
                if how == Interruption::ReceiverCloses {
                    self.at(1).close();
                }
                self.kill(1);
            }
            Interruption::SenderVanishes => {
                self.network.power_off(0);
                self.kill(0);
            }
            Interruption::ReceiverVanishes => {
                self.network.power_off(1);
                self.kill(1);
            }
            Interruption::LinksBreak => self.network.reset(0, 1),
            Interruption::Silence => self.network.cut(0, 1),
            Interruption::ReceiverStalls => self.cluster.stall(1, Duration::from_secs(5)),
        }
    }

    /// Everything ends, and then it works again.
    fn recover(&mut self) {
        self.run(Duration::from_secs(12));
        self.network.heal(0, 1);
        self.network.calm();
        for id in 0..2 {
            if let Some(node) = self.cluster.node(id) {
                assert_eq!(node.outstanding(), 0, "still waiting: {}", node.describe());
                node.cancel_receives();
                self.cluster.poke(id);
            }
            self.begin(id);
        }
        for from in 0..2 {
            if self.at(from).remotes().is_empty() {
                self.meet(from, 1 - from);
            }
        }
        let before = self.received();
        for (from, len) in [(0, 100_000), (1, 100)] {
            // A message that was not received may lie there; this one is another.
            let remote = self.at(from).remotes()[0];
            self.at(1 - from).recv(Selector::exact(6), len);
            self.at(from).send(remote, 6, len);
        }
        self.run(Duration::from_secs(3));
        assert_eq!(self.received(), before + 2, "it does not work any more");
        for id in 0..2 {
            self.at(id).close();
            self.run(Duration::from_secs(1));
            assert_eq!(self.at(id).endpoint.requests(), 0);
        }
    }
}

/// A transfer, interrupted after `step` steps. Returns true when it was over before that.
fn interrupt<N: Network>(
    world: &World,
    network: N,
    transfer: Transfer,
    (how, late, step): (Interruption, bool, u64),
) -> bool {
    world.note(0, format!("{how:?} after step {step}, posted late: {late}"));
    let mut stage = stage(world, network, transfer.pieces);
    for _ in 0..transfer.before {
        stage.warm_up(transfer.len);
    }
    stage.post(0, transfer.len, transfer.room, late);
    let over = !(0..step).all(|_| {
        stage.cluster.step();
        stage.is_busy()
    });
    stage.interrupt(how);
    stage.recover();
    over
}

/// Runs the transfer once for every step of it and every interruption: `len` bytes into a buffer
/// with `room`.
///
/// # Panics
/// When a promise is broken, or nothing works any more afterwards.
pub fn interrupt_everywhere<N: Network>(
    mut network: impl FnMut(&World) -> N,
    len: usize,
    room: usize,
) {
    let mut runs = 0;
    let transfer = Transfer {
        len,
        room,
        pieces: true,
        before: 0,
    };
    for late in [false, true] {
        for how in ALL {
            let mut step = 0;
            loop {
                let world = World::new(step);
                let network = network(&world);
                let over = interrupt(&world, network, transfer, (how, late, step));
                runs += 1;
                if over {
                    break;
                }
                step += 1;
            }
        }
    }
    println!("{runs} runs");
    let least = 2 * ALL.len() * 3;
    assert!(
        runs >= least,
        "only {runs} runs: the transfer had hardly any steps"
    );
}

/// Interrupts a transfer once: an interruption that is drawn, after fewer than `steps` steps. Returns true when
/// the transfer was over before that.
///
/// # Panics
/// As before.
pub fn interrupt_somewhere<N: Network>(
    world: &World,
    rng: &mut Rng,
    network: N,
    transfer: Transfer,
    steps: u64,
) -> bool {
    let what = (rng.pick(&ALL), rng.chance(0.5), rng.below(steps));
    interrupt(world, network, transfer, what)
}
