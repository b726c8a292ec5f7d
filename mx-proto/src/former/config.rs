//! What can be tuned in the reliability layer. The only place these numbers stand in.

use std::time::Duration;

/// Settings of one [`super::Reliable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReliableConfig {
    /// Fragments under way on one link, and fragments kept that came early: 256, between what
    /// usnic's reliable UDP and UCX's datagram transport use. At most 32768.
    pub window: u16,
    /// Bytes that came early, on all links together. Beyond it they are dropped and sent again.
    pub early_bytes: usize,
    /// Time-out before the first measurement.
    pub first_rto: Duration,
    /// Shortest time-out. Above the delay of acknowledgements, or they would come too late.
    pub min_rto: Duration,
    /// Longest time-out, and the longest pause between two tries of anything.
    pub max_rto: Duration,
    /// How long an acknowledgement waits for something to travel with.
    pub ack_delay: Duration,
    /// A peer that acknowledges nothing for so long is dead. 20 s is what the C method sets.
    pub give_up: Duration,
    /// A peer that does not answer a call for so long is not there.
    pub connect_give_up: Duration,
    /// After so long without a word from a peer it is asked for one.
    pub keepalive: Duration,
    /// How long a closed link goes on trying to deliver what was accepted.
    pub linger: Duration,
    /// Largest body of a packet.
    pub packet_max: usize,
    /// Largest body of a data packet.
    pub data_max: usize,
    /// How much of a large message is asked for at once.
    pub pull_block: usize,
    /// Links that strangers have begun and not confirmed; more make the oldest go.
    pub half_open_max: usize,
    /// Links altogether; callers beyond it are not answered.
    pub max_links: usize,
    /// Number of the first fragment on every link, for tests of the wrap. `None`: random.
    pub first_seq: Option<u32>,
}

impl Default for ReliableConfig {
    fn default() -> Self {
        Self {
            window: 256,
            early_bytes: 16 << 20,
            first_rto: Duration::from_millis(5),
            min_rto: Duration::from_millis(1),
            max_rto: Duration::from_secs(1),
            ack_delay: Duration::from_micros(500),
            give_up: Duration::from_secs(20),
            connect_give_up: Duration::from_secs(10),
            keepalive: Duration::from_secs(5),
            linger: Duration::from_secs(2),
            packet_max: 32 << 10,
            data_max: 64 << 10,
            pull_block: 256 << 10,
            half_open_max: 1024,
            max_links: 1 << 20,
            first_seq: None,
        }
    }
}
