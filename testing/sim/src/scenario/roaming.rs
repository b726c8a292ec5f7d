//! Nodes with several addresses, with addresses that change, and behind translators of addresses.
//!
//! ```text
//!   hosts      several addresses: called at any of them, links leave from any
//!   roamers    their addresses change: old links end, or fall silent
//!   hidden     behind a translator, several with one number: they call, and are not called
//!      --> random operations, changes --> all is quiet --> all meet at once: each session has two ends
//! ```
//!
//! The names that nodes are shown are checked by [`crate::Node`] and its judge.

use super::{Network, Reliably, Stage, Tally};
use crate::node::KEY;
use crate::{Habits, Home, NodeId, Rng, World};
use mx_proto::{Config, EndpointId, NicId};
use std::fmt;
use std::time::Duration;

/// A run in which nodes change their addresses.
pub struct Roaming {
    stage: Stage<Reliably>,
    rng: Rng,
    nodes: usize,
    /// Addresses drawn so far.
    drawn: u64,
}

const SECOND: Duration = Duration::from_secs(1);

impl Roaming {
    /// Nodes that have not begun.
    pub fn new((world, mut rng): (&World, Rng), network: Reliably) -> Self {
        let config = Config {
            eager_max: rng.pick(&[100, 4 << 10, 32 << 10]),
            first_credits: rng.pick(&[0, 4, 80]),
            request_timeout: Some(2 * SECOND),
            waiting_timeout: Some(2 * SECOND),
            peer_timeout: rng.pick(&[None, Some(SECOND)]),
            poll_budget: rng.pick(&[1, 3, 64]),
            connect_again: rng.chance(0.5),
            ..Config::default()
        };
        let habits = Habits {
            message_max: rng.pick(&[100, 33_000]),
            pause: Duration::from_micros(rng.pick(&[300, 5_000])),
            disconnects: rng.chance(0.5),
            cancels: rng.chance(0.5),
            answers: true,
            ..Habits::default()
        };
        let nodes = rng.within(2..=5);
        let mut run = Self {
            stage: Stage::new((world, network), 0, (config, habits), false),
            rng,
            nodes,
            drawn: 0,
        };
        run.stage.nodes = nodes;
        for id in 0..nodes {
            // The first can be called.
            let home = run.draw(id > 0 && id != 1);
            world.note(id, format!("{home:?}"));
            world.set_home(id, home);
            run.stage.begin(id);
        }
        run
    }

    /// Draws a place.
    fn draw(&mut self, may_hide: bool) -> Home {
        let count = self.rng.pick(&[1, 1, 2, 3]);
        self.drawn += count;
        let addresses = (self.drawn - count..self.drawn).map(address);
        let hides = may_hide && self.rng.chance(0.6);
        Home {
            addresses: addresses.collect(),
            translator: hides.then(|| self.translator()),
            number: hides.then(|| EndpointId(100 + self.rng.below(2) as u32)),
        }
    }

    fn translator(&mut self) -> NicId {
        NicId(0x0b00_0001 + self.rng.below(2))
    }

    fn is_hidden(&self, id: NodeId) -> bool {
        self.stage.world.home(id).translator.is_some()
    }

    /// The pairs of which the first can call the second.
    fn pairs(&self) -> Vec<(NodeId, NodeId)> {
        let all = (0..self.nodes).flat_map(|a| (0..self.nodes).map(move |b| (a, b)));
        all.filter(|(a, b)| a != b && !self.is_hidden(*b)).collect()
    }

    /// A node's address changes.
    fn roam(&mut self) {
        let id = self.rng.index(self.nodes);
        let silent = self.rng.chance(0.5);
        let home = self.stage.world.home(id);
        let addresses = if home.translator.is_some() {
            let translator = Some(self.translator());
            let addresses = home.addresses.clone();
            self.stage.world.set_home(id, Home { translator, ..home });
            addresses
        } else {
            self.draw(false).addresses
        };
        let text = format!("--- moves to {addresses:x?}, silent: {silent}");
        self.stage.world.note(id, text);
        self.stage.network.fabric.move_to(id, addresses, silent);
        let what = if silent { "silent move" } else { "move" };
        self.stage.book.borrow_mut().count(what);
    }

    /// Lets everything happen.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn run(&mut self) {
        let rounds = self.rng.within(1..=6);
        for _ in 0..rounds {
            let span = self.stage.habits.pause * self.rng.within(10..=100) as u32;
            self.stage.run(span);
            match self.rng.below(4) {
                0 => {
                    let (a, b) = (self.rng.index(self.nodes), self.rng.index(self.nodes));
                    self.stage.world.note(a, format!("--- reset n{a} n{b}"));
                    self.stage.network.reset(a, b);
                }
                1 | 2 => self.roam(),
                _ => {}
            }
        }
        self.stage.take_in_the_rest();
        // Links that fell silent are noticed.
        self.stage.run(10 * SECOND);
        self.all_meet();
        self.stage.take_in_the_rest();
        for id in 0..self.nodes {
            self.stage.at(id).close();
        }
        self.stage.run(10 * SECOND);
    }

    /// All call all at once, and no end of a session is left without the other.
    fn all_meet(&mut self) {
        let pairs = self.pairs();
        for (from, to) in pairs.clone() {
            self.stage.at(from).connect(to, KEY);
        }
        self.stage.run(5 * SECOND);
        for (from, to) in pairs.clone() {
            assert!(self.stage.at(from).knows(to), "n{from} does not know n{to}");
        }
        for id in 0..self.nodes {
            assert_eq!(
                self.sessions(id, id) % 2,
                0,
                "sessions of n{id} with itself"
            );
            for other in 0..id {
                let ends = (self.sessions(id, other), self.sessions(other, id));
                assert_eq!(ends.0, ends.1, "sessions of n{id} and n{other}");
            }
            for remote in self.stage.at(id).remotes().to_vec() {
                self.stage.at(id).send(remote, 3, 100);
            }
        }
    }

    /// Sessions of a node with another, or with itself. It need not know of them: their connects may have been
    /// called off.
    fn sessions(&mut self, id: NodeId, other: NodeId) -> usize {
        let life = self.stage.at(other).endpoint.identity().session;
        let lives = self.stage.at(id).lives_met();
        lives.into_iter().filter(|met| *met == life).count()
    }

    /// Adds what was counted.
    pub fn tally(&self, tally: &mut Tally) {
        self.stage.tally(tally);
    }
}

/// The address that was drawn then.
fn address(nth: u64) -> NicId {
    NicId(0x0a00_0001 + nth)
}

impl fmt::Debug for Roaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roaming")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
