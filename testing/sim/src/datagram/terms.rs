//! The behaviour of a datagram network and its services: everything the contract leaves open.

use crate::link::Faults;
use crate::rng::Rng;
use std::time::Duration;

/// The fate of a datagram that is larger than the MTU and may not be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oversize {
    /// A datagram that is too large is lost without a report.
    Vanishes,
    /// Datagrams are lost without a report also if they may be cut: the narrow place only lets through or forgets.
    IsSwallowed,
    /// The sender is told, a while later.
    IsReported,
    /// The service knows and refuses it.
    IsRefused,
}

/// A choice for everything.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// The faults of every link.
    pub faults: Faults,
    /// Largest datagram that passes in one piece, to begin with.
    pub mtu: usize,
    /// Largest datagram the service takes.
    pub datagram_max: usize,
    /// Largest one on the command channel, if that is less.
    pub command_max: usize,
    /// Most datagrams in a GSO batch that is sent.
    pub batch_max: usize,
    /// Bytes of each channel that have arrived and were not polled; more are lost.
    pub receive_buffer: usize,
    /// Both channels of a pair of nodes queue up behind each other; else each has a link of its own.
    pub one_queue: bool,
    /// The fate of datagrams that are too large.
    pub oversize: Oversize,
    /// The service says that nothing is damaged under way. Faults must agree.
    pub safe: bool,
    /// The probability that datagrams that arrived one behind the other are handed out as a GSO batch.
    pub coalesce: f64,
    /// Arrivals become visible only at multiples of it, as with an interface that saves interrupts.
    pub moderation: Duration,
    /// So many polls in a row leave out the data channel.
    pub glances: u32,
    /// The probability that a send finds no room.
    pub refuse: f64,
    /// Senders are told when a name is not open.
    pub answers_refused: bool,
    /// Senders are told that there is no route while a link is cut.
    pub answers_cut: bool,
}

impl Default for Terms {
    /// Kernel UDP on a good Ethernet.
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
    /// The default with these faults.
    pub fn with(faults: Faults) -> Self {
        Self {
            faults,
            ..Self::default()
        }
    }

    /// Anything.
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
