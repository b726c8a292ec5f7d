//! Plan of a run, derived from its seed.
//!
//! ```text
//!   seed --> shape, steps        seed --> profiles, time-outs, limits: unchanged when steps are left out
//! ```

use crate::rig::Rig;
use bmi_mx_torture::{Shape, Step, program};
use mx_sim::{Profile, Rng};
use std::time::Duration;

/// A plan, as it follows from a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub shape: Shape,
    /// Kind of ports.
    pub network: Network,
    /// Whether nodes die without their hosts noticing: only silence reveals it.
    pub power_fails: bool,
    /// Whether some nodes are looked up under a second name.
    pub two_names: bool,
    /// Credits that nodes lend each other at first.
    pub credit_limit: u16,
}

/// Message size beyond which a program has few nodes and tags.
const LARGE: usize = 200_000;

/// Usual credit limit, with room for more than any program leaves at another node.
pub const WIDE: u16 = mx_proto::flow::FIRST;

/// Kind of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// Fast rings, with jitter.
    Rings,
    /// Byte streams.
    Streams,
    /// Any behaviour, different for each node.
    Any,
}

impl Plan {
    /// Makes a plan. Half of the seeds have a named shape, the others any.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed).fork();
        let named = Shape::named();
        let mut shape = match named.get(seed as usize % (2 * named.len())) {
            Some(shape) => shape.clone(),
            None => Shape::random(&mut rng),
        };
        if shape.name != "random" {
            shape.nodes = rng.within(2..=shape.nodes);
            shape.message_max = rng.pick(&[5_000, 40_000, shape.message_max]);
        }
        if shape.message_max > LARGE {
            // Every buffer is kept until the end, to check that it is not written to.
            shape.nodes = shape.nodes.min(2);
            shape.tags = shape.tags.min(2);
        }
        Self {
            seed,
            shape,
            network: rng.pick(&[Network::Rings, Network::Streams, Network::Any, Network::Any]),
            power_fails: rng.chance(0.3),
            two_names: rng.chance(0.15),
            credit_limit: rng.pick(&[0, 2, 8, WIDE, WIDE, WIDE]),
        }
    }

    /// Returns the program.
    pub fn steps(&self) -> Vec<Step> {
        program(self.seed, &self.shape).collect()
    }

    /// Makes the rig for the program, without nodes.
    pub fn rig(&self) -> Rig {
        let mut rng = self.rng(1);
        let mut rig = Rig::sharing(self.seed);
        let millis =
            |millis: u64| Some(Duration::from_millis(millis)).filter(|span| !span.is_zero());
        rig.settings.connect_timeout = millis(rng.pick(&[500, 5_000, 20_000]));
        rig.settings.send_timeout = millis(rng.pick(&[0, 0, 0, 1_000]));
        rig.settings.unexpected_timeout = millis(rng.pick(&[0, 0, 0, 1_000]));
        rig.settings.recv_timeout = millis(rng.pick(&[0, 0, 0, 1_000]));
        let settings = &mut rig.settings;
        rig.endpoint.copies = rng.pick(&[0, 16, usize::MAX]);
        let endpoint = &mut rig.endpoint;
        endpoint.request_timeout = millis(rng.pick(&[500, 5_000, 20_000]));
        endpoint.peer_timeout = millis(rng.pick(&[0, 500, 5_000, 20_000]));
        // Little more than the largest message needs, or plenty.
        let largest = self.shape.message_max.max(1000);
        let memory = rng.pick(&[largest * 3 + 20_000, 4 * largest + (1 << 20), 64 << 20]);
        let least = if self.credit_limit == WIDE {
            64 << 20
        } else {
            0
        };
        endpoint.unexpected_bytes = memory.max(least);
        endpoint.fetched_max = largest as u32;
        settings.unexpected_max = largest;
        endpoint.first_credits = self.credit_limit;
        endpoint.poll_budget = rng.pick(&[1, 3, 64]);
        endpoint.burst = rng.pick(&[1, 16]);
        rig
    }

    /// Draws the profile for the port of a node's next life.
    pub fn profile(&self, rng: &mut Rng) -> Profile {
        match self.network {
            Network::Rings => Profile {
                jitter: Duration::from_micros(20),
                ..Profile::default()
            },
            Network::Streams => Profile::stream(),
            Network::Any => Profile {
                // Both ends of a link use the same limit.
                packet_max: self.rng(3).pick(&[4 << 10, 8 << 10, 32 << 10, 40 << 10]),
                ..Profile::random(rng)
            },
        }
    }

    /// Makes a generator for one purpose.
    pub fn rng(&self, purpose: u64) -> Rng {
        Rng::new(self.seed.wrapping_mul(0x9e37_79b9) ^ purpose).fork()
    }
}
