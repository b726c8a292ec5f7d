//! Table of an endpoint's counters, for all tools, and those of the method above it.
//!
//! ```text
//!   mx_proto::Stats   Gauges   WaitStats   LocalStats, TcpStats, ...    Sample
//!        |              |          |               |
//!   "matched"      "remotes" "wait_.."   "local_..", "tcp_..", "rdm_.."      counters(), values()
//! ```
//!
//! Each counter's label and description are at its declaration ([`mx_proto::counters`]).
//!
//! Owns: their order.
//! Out of scope: pages, tools.
//! Cost: [`values`] copies words; no allocation, no system call.

use super::PortView;
use crate::progress::WaitStats;
use mx_proto::flow::FlowStats;
use mx_proto::port::Port;
use mx_proto::{Clock, Counter, Endpoint, InboxStats, Owner, Stats};

mx_proto::counters! {
    /// Current levels of an endpoint.
    pub struct Gauges("") {
        Level remotes: u64 = "peers known",
        Level requests: u64 = "operations under way",
        Level posted_receives: u64 = "receives without a message",
        Level unexpected_bytes: u64 = "bytes of messages that came before their receive",
        Level links: u64 = "links of all ports",
    }
}

/// Every counter of one endpoint at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample<'a> {
    /// Counters of the protocol.
    pub stats: Stats,
    /// Counters of flow control: credits and their use.
    pub flow: FlowStats,
    /// Counters of the inbox.
    pub inbox: InboxStats,
    /// Current levels.
    pub gauges: Gauges,
    /// Counters of waiting threads.
    pub waits: WaitStats,
    /// Counters of the ports.
    pub ports: PortView<'a>,
    /// Counters of the method; `None` if the endpoint belongs to no method.
    pub method: Option<MethodGauges>,
}

impl<'a> Sample<'a> {
    /// Samples `endpoint`'s counters now. The caller supplies those of ports and waiting threads;
    /// [`method`](Self::method) is `None`, for the caller to set.
    pub fn of<P: Port<O::Memory>, C: Clock, O: Owner>(
        endpoint: &Endpoint<P, C, O>,
        ports: PortView<'a>,
        waits: WaitStats,
    ) -> Self {
        Self {
            stats: *endpoint.stats(),
            flow: endpoint.flow_stats(),
            inbox: endpoint.inbox_stats(),
            gauges: Gauges {
                remotes: endpoint.remotes() as u64,
                requests: endpoint.requests() as u64,
                posted_receives: endpoint.posted_receives() as u64,
                unexpected_bytes: endpoint.unexpected_bytes() as u64,
                links: ports.links as u64,
            },
            waits,
            ports,
            method: None,
        }
    }
}

mx_proto::counters! {
    /// Current levels and counters of a method.
    pub struct MethodGauges("method_") {
        Level peers: u64 = "peers known to the BMI method",
        Level operations: u64 = "operations of the BMI method that were not handed out yet",
        Count dropped: u64 = "invalid messages to the BMI method, dropped",
    }
}

mx_proto::counters! {
    /// Old names of counters, which scripts may look for, with the values of the new ones.
    pub struct OldNames("") {
        Count intruders: u64 = "old name of same_name_pings, until the next release",
        Count silenced: u64 = "old name of peer_timeouts, until the next release",
        Count dgram_acks_alone: u64 = "old name of dgram_pure_acks, until the next release",
    }
}

impl OldNames {
    fn of(sample: &Sample<'_>) -> Self {
        Self {
            intruders: sample.stats.same_name_pings,
            silenced: sample.stats.peer_timeouts,
            dgram_acks_alone: sample.ports.dgram.pure_acks,
        }
    }
}

/// Lists the structures in the order in which they are shown, each with its place in a sample.
macro_rules! table {
    ($sample:ident: $($kind:ty = $source:expr;)+) => {
        /// Number of an endpoint's counters.
        pub const COUNT: usize = 0 $(+ <$kind>::COUNTERS.len())+;

        const COUNTERS: [Counter; COUNT] = joined(&[$(&<$kind>::COUNTERS),+]);

        /// Returns the values of all counters, in the order of [`counters`].
        pub fn values($sample: &Sample<'_>) -> [u64; COUNT] {
            joined(&[$(&<$kind>::values(&$source)),+])
        }
    };
}

table! {
    sample:
    Stats = sample.stats;
    FlowStats = sample.flow;
    InboxStats = sample.inbox;
    Gauges = sample.gauges;
    WaitStats = sample.waits;
    PortView<'_> = sample.ports;
    OldNames = OldNames::of(sample);
}

/// Concatenates parts that have `N` items together.
pub(crate) const fn joined<T: Copy, const N: usize>(parts: &[&[T]]) -> [T; N] {
    let mut all = [parts[0][0]; N];
    let (mut part, mut to) = (0, 0);
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            all[to] = parts[part][at];
            (at, to) = (at + 1, to + 1);
        }
        part += 1;
    }
    all
}

/// Returns the names and descriptions of the counters that every endpoint has.
pub fn counters() -> &'static [Counter] {
    &COUNTERS
}

/// Returns the names and descriptions of all counters of an endpoint that belongs to a BMI method: those of
/// [`counters`], then the method's.
pub fn all_counters() -> impl Iterator<Item = &'static Counter> {
    COUNTERS.iter().chain(&MethodGauges::COUNTERS)
}

#[cfg(test)]
mod tests {
    use super::super::layout;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_counter_has_a_label_of_its_own_that_fits_into_a_page() {
        let all: Vec<&str> = all_counters().map(|counter| counter.label).collect();
        let different: HashSet<&&str> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        for label in all {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(label.chars().all(plain), "{label}");
            assert!(label.len() < layout::LABEL_WORDS * 8, "{label}");
        }
    }

    #[test]
    fn values_stand_where_their_labels_do() {
        let mut sample = Sample::default();
        sample.stats.packets_out = 1;
        sample.stats.timeouts = 2;
        sample.gauges.links = 3;
        sample.waits.stand_downs = 4;
        sample.ports.local.violations = 5;
        sample.ports.tcp.starved = 6;
        sample.ports.rdm.blocked = 7;
        let values = values(&sample);
        let place = |label: &str| counters().iter().position(|other| other.label == label);
        let of = |label: &str| values[place(label).unwrap()];
        for (label, value) in [
            ("packets_out", 1),
            ("timeouts", 2),
            ("links", 3),
            ("wait_stand_downs", 4),
            ("local_violations", 5),
            ("tcp_starved", 6),
            ("rdm_blocked", 7),
        ] {
            assert_eq!(of(label), value, "{label}");
        }
        assert_eq!(values.iter().sum::<u64>(), 28);
    }
}
