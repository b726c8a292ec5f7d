//! Settings of the reliability layer, and their defaults.

use crate::supply::Supply;
use std::time::Duration;

/// Settings of one `Reliable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReliableConfig {
    /// Number of the port among several, which is part of its links' ids ([`LinkId::at_port`]).
    ///
    /// [`LinkId::at_port`]: crate::LinkId::at_port
    pub port: u8,
    /// Maximum number of segments in flight to one peer: 1024, like UCX's datagram transport; at most 32768. Applies
    /// only to sending: the peer's window may differ.
    pub window: u16,
    /// Maximum number of accepted, unacknowledged bytes on one link.
    pub send_bytes: usize,
    /// Maximum number of accepted, unacknowledged bytes on all links together.
    pub send_bytes_all: usize,
    /// Maximum memory in bytes for one peer's early data that has no destination yet, bookkeeping included.
    pub early_bytes: usize,
    /// Maximum memory in bytes for all peers' early data, beyond the first 8 KiB of each. Excess data is dropped and
    /// retransmitted.
    pub early_bytes_all: usize,
    /// Size in bytes of the largest payload that is sent on the command channel; larger ones take the data channel.
    pub tiny: usize,
    /// Maximum number of segments retransmitted in one pass: 16, usnic's figure; keeps a pass short.
    pub burst: usize,
    /// Retransmission time-out (RTO) of a new link, before its round-trip time has been measured.
    pub first_rto: Duration,
    /// Shortest retransmission time-out. Above the delay of acknowledgements, which would otherwise come too late.
    pub min_rto: Duration,
    /// Longest retransmission time-out, and longest pause between two attempts at anything.
    pub max_rto: Duration,
    /// Time that an acknowledgement waits for data to piggyback on.
    pub ack_delay: Duration,
    /// Time without an acknowledgement after which a peer counts as dead, and its link goes down. The C method sets 20
    /// s.
    pub give_up: Duration,
    /// Time without an answer to a call after which the call fails.
    pub connect_give_up: Duration,
    /// Silence after which a peer is sent a Ping.
    pub keepalive: Duration,
    /// Silence after which a peer that operations wait for is sent a Ping, if its machine reports a dead process at
    /// once. A death is noticed after half of it on average; an idle exchange of 64 bytes costs some microseconds on
    /// either side.
    pub monitored_keepalive: Duration,
    /// Time that a closed link continues to deliver packets that it had accepted.
    pub linger: Duration,
    /// Largest datagram in bytes to be tried, whatever the service can do.
    pub datagram_max: usize,
    /// Largest body of a packet in bytes, equal at both ends: larger ones are rejected.
    pub packet_max: usize,
    /// Largest body in bytes of a message sent with its data, at most 512 KiB, which every peer accepts.
    pub streamed_max: usize,
    /// Largest body of a data packet in bytes, equal at both ends.
    pub data_max: usize,
    /// Bytes of a large message that the receiver requests at once.
    pub pull_block: usize,
    /// Maximum number of data links of a session: 0 or 1, because further ones would take the same path.
    pub data_links: u32,
    /// Maximum number of links. Callers beyond it get no answer, and our connects fail.
    pub max_links: usize,
    /// Percentage, 1 to 100, of the slots left by other sources that the links opened by one source may have; also of
    /// the memory for closed sessions.
    pub source_share: u8,
    /// Whether payloads have a checksum even if the service is safe.
    pub always_sum: bool,
    /// Memory accounting that is asked before new links and data are accepted.
    pub supply: Supply,
    /// Number of the first segment on every link, for tests of the wrap. `None`: random.
    pub first_seq: Option<u32>,
}

/// Largest body in bytes of an eager message that is received: releases without data links send 512 KiB.
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
