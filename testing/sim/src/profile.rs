//! The behaviour of a simulated port within what the [`mx_proto::port::Port`] contract allows.
//!
//! Out of scope: links, packets.

use crate::rng::Rng;
use std::time::Duration;

/// A choice for everything the contract leaves open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    /// [`mx_proto::port::Limits::packet_max`].
    pub packet_max: usize,
    /// [`mx_proto::port::Limits::streamed_max`].
    pub streamed_max: usize,
    /// [`mx_proto::port::Limits::data_max`].
    pub data_max: usize,
    /// [`mx_proto::port::Limits::pull_block`].
    pub pull_block: usize,
    /// Bytes under way on a link before it has no room. One packet always fits an empty link.
    pub room: usize,
    /// The probability that a data packet that does not fit is taken in part instead of not at all.
    pub parts: f64,
    /// Largest piece in which a body arrives.
    pub piece: usize,
    /// The probability that a body that is there as a whole is offered to `place` nevertheless.
    pub eager_place: f64,
    /// Peers' memory can be read.
    pub remote_read: bool,
    /// A read of memory that is not registered any more ends the link.
    pub refusal_ends_link: bool,
    /// The probability that a port says "writable" without having been full.
    pub spurious: f64,
    /// In one direction, everything takes so long,
    pub latency: Duration,
    /// and at most so much longer.
    pub jitter: Duration,
    /// Bytes a second.
    pub bandwidth: Option<u64>,
    /// After how much silence a peer that says nothing any more is given up.
    pub keepalive: Duration,
    /// A link that a peer began goes after so long, unless it has been bound; `None`: it stays.
    pub unbound: Option<Duration>,
    /// Both ends know something of a link that no other link has.
    pub binding: bool,
    /// [`mx_proto::port::Limits::data_links`].
    pub data_links: u32,
    /// The probability that a link that was made beside another one ends with what is sent there.
    pub beside_dies: f64,
    /// Sessions that this port calls, or that call it, may move to links of another kind.
    pub fabric: Option<SimFabric>,
}

/// The links of a fabric, beside those on which nodes meet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SimFabric {
    /// Sessions that do not move there end.
    pub strict: bool,
    /// Peers' memory can be read there.
    pub remote_read: bool,
    /// Number of links on which nodes meet beyond which places for them are short.
    pub places: usize,
}

impl Default for Profile {
    /// A fast port that takes everything whole, as a ring on one host does.
    fn default() -> Self {
        Self {
            packet_max: 32 << 10,
            streamed_max: 0,
            data_max: 64 << 10,
            pull_block: 256 << 10,
            room: 1 << 20,
            parts: 0.0,
            piece: usize::MAX,
            eager_place: 0.0,
            remote_read: false,
            refusal_ends_link: false,
            spurious: 0.0,
            latency: Duration::from_micros(5),
            jitter: Duration::ZERO,
            bandwidth: None,
            keepalive: Duration::from_secs(3),
            unbound: None,
            binding: false,
            data_links: 0,
            beside_dies: 0.0,
            fabric: None,
        }
    }
}

impl Profile {
    /// Like kernel TCP: bodies arrive in pieces, data packets are taken in part.
    pub fn stream() -> Self {
        Self {
            streamed_max: 512 << 10,
            data_max: 1 << 20,
            pull_block: 1 << 20,
            room: 128 << 10,
            parts: 1.0,
            piece: 16 << 10,
            latency: Duration::from_micros(30),
            ..Self::default()
        }
    }

    /// Any behaviour the contract allows.
    pub fn random(rng: &mut Rng) -> Self {
        let mut maybe = |of: f64| if rng.chance(0.5) { 0.0 } else { of };
        let (parts, eager_place, spurious) = (maybe(0.8), maybe(0.5), maybe(0.05));
        let latency = Duration::from_micros(rng.pick(&[1, 10, 100, 3_000]));
        let drawn = Self {
            packet_max: rng.pick(&[4 << 10, 8 << 10, 32 << 10, 40 << 10]),
            streamed_max: rng.pick(&[0, 6_000, 100_000, 512 << 10]),
            data_max: rng.pick(&[4 << 10, 9_000, 64 << 10, 1 << 20]),
            pull_block: rng.pick(&[4 << 10, 30_000, 64 << 10, 1 << 20]),
            room: rng.pick(&[1, 10_000, 100_000, 1 << 20]),
            parts,
            piece: rng.pick(&[700, 5_000, 64 << 10, usize::MAX]),
            eager_place,
            remote_read: rng.chance(0.2),
            refusal_ends_link: false,
            spurious,
            latency,
            jitter: if rng.chance(0.5) {
                latency
            } else {
                Duration::ZERO
            },
            bandwidth: rng
                .chance(0.3)
                .then(|| rng.pick(&[10_000_000, 1_000_000_000])),
            keepalive: Duration::from_secs(3),
            unbound: None,
            binding: false,
            data_links: 0,
            beside_dies: 0.0,
            fabric: None,
        };
        // Not drawn, so that seeds that once failed still run as they did.
        let fabric = SimFabric {
            strict: false,
            remote_read: drawn.jitter.is_zero(),
            places: if drawn.latency > Duration::from_micros(50) {
                0
            } else {
                usize::MAX
            },
        };
        let drawn = Self {
            fabric: (drawn.pull_block < 64 << 10).then_some(fabric),
            ..drawn
        };
        match drawn.piece {
            usize::MAX => drawn,
            _ => Self {
                data_links: 1,
                // A session ends with the link of a fabric to which it has moved.
                beside_dies: match drawn.fabric {
                    Some(_) => 0.0,
                    None => drawn.parts / 10.0,
                },
                ..drawn
            },
        }
    }
}
