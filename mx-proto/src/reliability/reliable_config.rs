//! Settings of the reliability layer, and their defaults.

use crate::supply::Supply;
use std::time::Duration;

/// Settings of one `Reliable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReliableConfig {
    /// The port's number among several, which its links' names carry ([`LinkId::at_port`]).
    ///
    /// [`LinkId::at_port`]: crate::LinkId::at_port
    pub port: u8,
    /// Segments under way to one peer: 1024, as UCX's datagram transport. At most 32768. Only for
    /// what is sent: the peer's window may be another.
    pub window: u16,
    /// Bytes accepted on one link and not acknowledged.
    pub send_bytes: usize,
    /// Bytes accepted on all links together and not acknowledged.
    pub send_bytes_all: usize,
    /// Bytes of one peer that came early and have no place yet, with what keeping them costs.
    pub early_bytes: usize,
    /// The same of all peers, beyond the first 8 KiB of each. The rest is dropped and sent again.
    pub early_bytes_all: usize,
    /// Largest payload that takes the command channel: 768, the notes' figure.
    pub tiny: usize,
    /// Segments sent again in one pass: 16, usnic's figure; keeps a pass short.
    pub burst: usize,
    /// Time-out before the first measurement.
    pub first_rto: Duration,
    /// Shortest RTO. Above the delay of acknowledgements, or they would miss it.
    pub min_rto: Duration,
    /// Longest time-out, and the longest pause between two tries of anything.
    pub max_rto: Duration,
    /// The time that an acknowledgement waits for data to piggyback on.
    pub ack_delay: Duration,
    /// A peer that acknowledges nothing for so long is dead. 20 s is what the C method sets.
    pub give_up: Duration,
    /// A peer that does not answer a call for so long is not there.
    pub connect_give_up: Duration,
    /// After so long without a word from a peer it is asked for one.
    pub keepalive: Duration,
    /// The same of a peer that operations wait for, on a machine that says at once when it is gone.
    /// A death is noticed after half of it on the average; an idle exchange of 64 bytes costs some
    /// microseconds on either side.
    pub monitored_keepalive: Duration,
    /// The time that a closed link goes on trying to deliver accepted packets.
    pub linger: Duration,
    /// Largest datagram to be tried, whatever the service can do.
    pub datagram_max: usize,
    /// Largest body of a packet. The same at both ends: nothing larger is taken in.
    pub packet_max: usize,
    /// Largest body of a message that is sent with its data, at most 512 KiB: so much is taken in from any peer.
    pub streamed_max: usize,
    /// Largest body of a data packet. The same at both ends.
    pub data_max: usize,
    /// Bytes of a large message that the receiver requests at once.
    pub pull_block: usize,
    /// Limit of data links that a session has: 0, or 1, since further ones would take the same path.
    pub data_links: u32,
    /// Links altogether; callers beyond it are not answered.
    pub max_links: usize,
    /// Percent, 1 to 100, that one source may have of the places that others leave, of those it opens;
    /// of the memory of closed sessions as well.
    pub source_share: u8,
    /// Payloads are summed even where the service is safe.
    pub always_sum: bool,
    /// The supply of memory.
    pub supply: Supply,
    /// Number of the first segment on every link, for tests of the wrap. `None`: random.
    pub first_seq: Option<u32>,
}

/// Largest body of an eager message that is taken in: releases without data links send 512 KiB.
pub(super) const EAGER_TAKEN: usize = 512 << 10;

impl Default for ReliableConfig {
    fn default() -> Self {
        Self {
            port: 0,
            window: 1024,
            send_bytes: 4 << 20,
            send_bytes_all: 64 << 20,
            early_bytes: 1 << 20,
            early_bytes_all: 16 << 20,
            tiny: 768,
            burst: 16,
            first_rto: Duration::from_millis(5),
            min_rto: Duration::from_millis(1),
            max_rto: Duration::from_secs(1),
            ack_delay: Duration::from_micros(500),
            give_up: Duration::from_secs(20),
            connect_give_up: Duration::from_secs(10),
            keepalive: Duration::from_secs(5),
            monitored_keepalive: Duration::from_millis(40),
            linger: Duration::from_secs(2),
            datagram_max: 65_507,
            packet_max: 32 << 10,
            streamed_max: 128 << 10,
            data_max: 256 << 10,
            pull_block: 1 << 20,
            data_links: 1,
            max_links: 1 << 20,
            source_share: 50,
            always_sum: false,
            supply: Supply::ENDLESS,
            first_seq: None,
        }
    }
}
