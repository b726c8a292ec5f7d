//! Behaviour of a datagram network and its services: everything that the contract leaves open.

use crate::link::Faults;
use crate::rng::Rng;
use std::time::Duration;

/// Fate of a datagram that is larger than the MTU and may not be fragmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oversize {
    /// Lost without a report.
    Vanishes,
    /// Lost without a report even if it may be fragmented: the narrow link forwards or drops, and
    /// nothing else.
    IsSwallowed,
    /// Reported to the sender, a while later.
    IsReported,
    /// Rejected by the service, which knows the MTU.
    IsRefused,
}

/// A choice for each of these.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// Faults of every link.
    pub faults: Faults,
    /// Initial size of the largest datagram that passes in one piece.
    pub mtu: usize,
    /// Largest datagram that the service accepts.
    pub datagram_max: usize,
    /// Largest datagram on the command channel, if less.
    pub command_max: usize,
    /// Maximum number of datagrams in a GSO batch that is sent.
    pub batch_max: usize,
    /// Maximum bytes of each channel that have arrived and were not polled; more are lost.
    pub receive_buffer: usize,
    /// Whether both channels of a pair of nodes share one queue; otherwise each has a link of its
    /// own.
    pub one_queue: bool,
    /// Fate of datagrams that are too large.
    pub oversize: Oversize,
    /// Whether the service claims that no datagram is damaged. Faults must agree.
    pub safe: bool,
    /// Probability that consecutive datagrams are returned as a GSO batch.
    pub coalesce: f64,
    /// Interval at which arrivals become visible, as with interrupt moderation.
    pub moderation: Duration,
    /// Number of consecutive polls that skip the data channel.
    pub glances: u32,
    /// Probability that a send is rejected for lack of room.
    pub refuse: f64,
    /// Whether senders are told that a name is not open.
    pub answers_refused: bool,
    /// Whether senders are told that there is no route while a link is cut.
    pub answers_cut: bool,
}

impl Default for Terms {
    /// Returns kernel UDP on a good Ethernet.
    fn default() -> Self {
        Self {
            faults: Faults::default(),
            mtu: 1472,
            datagram_max: 65_507,
            command_max: usize::MAX,
            batch_max: 64,
            receive_buffer: 4 << 20,
            one_queue: true,
            oversize: Oversize::Vanishes,
            safe: false,
            coalesce: 1.0,
            moderation: Duration::ZERO,
            glances: 0,
            refuse: 0.0,
            answers_refused: true,
            answers_cut: false,
        }
    }
}

impl Terms {
    /// Returns the default with these faults.
    pub fn with(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// Draws anything.
    pub fn random(rng: &mut Rng) -> Self {
        let faults = Faults::random(rng);
        let mtu = rng.pick(&[548, 600, 1_200, 1_472, 4_052, 9_000, 65_507]);
        Self {
            faults,
            mtu,
            datagram_max: rng.pick(&[mtu, 65_507]),
            command_max: usize::MAX,
            batch_max: rng.pick(&[1, 7, 64]),
            receive_buffer: rng.pick(&[128 << 10, 4 << 20]),
            one_queue: rng.chance(0.5),
            oversize: rng.pick(&[
                Oversize::Vanishes,
                Oversize::IsSwallowed,
                Oversize::IsReported,
                Oversize::IsRefused,
            ]),
            safe: faults.corrupt == 0.0 && rng.chance(0.5),
            coalesce: rng.pick(&[0.0, 0.5, 1.0]),
            moderation: Duration::from_micros(rng.pick(&[0, 5, 50])),
            glances: 0,
            refuse: rng.pick(&[0.0, 0.0, 0.1]),
            answers_refused: rng.chance(0.5),
            answers_cut: rng.chance(0.3),
        }
    }
}
