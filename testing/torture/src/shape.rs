//! The shape of a program: its nodes, its length, and its mixture of actions.
//!
//! ```text
//!   calm     no disturbances               frozen   nodes are stopped and go on
//!   cancels  many operations cancelled     storm    connects, drops, new lives
//!   deaths   kill, finalize, restart       random   any mixture
//! ```

use mx_sim::Rng;
use std::time::Duration;

/// Relative weights of the actions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Weights {
    /// Operations: sends, unexpected sends, receives.
    pub post: u32,
    /// [`crate::Action::Cancel`].
    pub cancel: u32,
    /// [`crate::Action::Connect`].
    pub connect: u32,
    /// [`crate::Action::Drop`].
    pub drop: u32,
    /// [`crate::Action::Finalize`]; a restart follows.
    pub finalize: u32,
    /// [`crate::Action::Kill`]; a restart follows.
    pub kill: u32,
    /// [`crate::Action::Freeze`].
    pub freeze: u32,
    /// [`crate::Action::Cut`].
    pub cut: u32,
    /// [`crate::Action::Reset`].
    pub reset: u32,
    /// [`crate::Action::Pause`].
    pub pause: u32,
}

/// Parameters from which a program is drawn. All of them may be changed before.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    /// Name of the shape.
    pub name: &'static str,
    /// Nodes, numbered from 0.
    pub nodes: usize,
    /// Steps of the program.
    pub steps: u64,
    /// Longest message; no receive is longer.
    pub message_max: usize,
    /// First tag that expected messages do not use.
    pub tags: i32,
    /// Probability that a posted operation is a receive.
    pub receives: f64,
    /// Probability that a posted send is an unexpected one.
    pub unexpected: f64,
    /// Probability that an operation is a list.
    pub lists: f64,
    /// Probability that a receive is shorter than [`Shape::message_max`].
    pub short: f64,
    /// Longest [`crate::Action::Pause`]; most are much shorter.
    pub pause: Duration,
    /// Longest [`crate::Action::Freeze`].
    pub freeze: Duration,
    /// Longest [`crate::Action::Cut`].
    pub cut: Duration,
    /// The mixture of actions.
    pub weights: Weights,
}

impl Shape {
    /// Returns the shape with operations and pauses only.
    pub fn calm() -> Self {
        Self {
            name: "calm",
            nodes: 3,
            steps: 300,
            message_max: 200_000,
            tags: 3,
            receives: 0.5,
            unexpected: 0.3,
            lists: 0.2,
            short: 0.0,
            pause: Duration::from_millis(20),
            freeze: Duration::from_secs(1),
            cut: Duration::from_secs(5),
            weights: Weights {
                post: 80,
                connect: 2,
                pause: 20,
                ..Weights::default()
            },
        }
    }

    /// Returns the shape with many cancellations, at any moment of an operation's life.
    pub fn cancels() -> Self {
        let mut shape = Self {
            name: "cancels",
            short: 0.1,
            ..Self::calm()
        };
        shape.weights.cancel = 40;
        shape
    }

    /// Returns the shape with nodes that end, in order or by a kill, and are restarted.
    pub fn deaths() -> Self {
        let mut shape = Self {
            name: "deaths",
            ..Self::calm()
        };
        shape.weights.kill = 5;
        shape.weights.finalize = 3;
        shape.weights.cancel = 5;
        shape
    }

    /// Returns the shape with nodes that are stopped for a while, shorter and longer than their peers' time-out.
    pub fn frozen() -> Self {
        let mut shape = Self {
            name: "frozen",
            ..Self::calm()
        };
        shape.weights.freeze = 6;
        shape.weights.cancel = 5;
        shape
    }

    /// Returns the shape with connections that come and go.
    pub fn storm() -> Self {
        let mut shape = Self {
            name: "storm",
            nodes: 5,
            message_max: 40_000,
            ..Self::calm()
        };
        shape.weights.post = 50;
        shape.weights.connect = 30;
        shape.weights.drop = 15;
        shape.weights.reset = 8;
        shape.weights.kill = 3;
        shape
    }

    /// Returns all shapes above.
    pub fn named() -> [Self; 5] {
        [
            Self::calm(),
            Self::cancels(),
            Self::deaths(),
            Self::frozen(),
            Self::storm(),
        ]
    }

    /// Draws any mixture.
    pub fn random(rng: &mut Rng) -> Self {
        let mut maybe = |most: u64| {
            if rng.chance(0.4) {
                0
            } else {
                rng.below(most) as u32
            }
        };
        let weights = Weights {
            post: 80,
            cancel: maybe(40),
            connect: maybe(30),
            drop: maybe(10),
            finalize: maybe(6),
            kill: maybe(6),
            freeze: maybe(6),
            cut: maybe(6),
            reset: maybe(10),
            pause: 5 + maybe(40),
        };
        Self {
            name: "random",
            nodes: rng.within(2..=5),
            steps: rng.pick(&[50, 200, 400]),
            message_max: rng.pick(&[100, 5_000, 40_000, 200_000, 1_000_000]),
            tags: rng.pick(&[1, 3, 20]),
            receives: rng.pick(&[0.3, 0.5, 0.7]),
            unexpected: rng.pick(&[0.0, 0.3, 0.8]),
            lists: rng.pick(&[0.0, 0.2]),
            short: rng.pick(&[0.0, 0.2]),
            pause: Duration::from_micros(rng.pick(&[100, 3_000, 100_000])),
            freeze: Duration::from_millis(rng.pick(&[5, 1_000, 40_000])),
            cut: Duration::from_millis(rng.pick(&[10, 4_000, 40_000])),
            weights,
        }
    }
}
