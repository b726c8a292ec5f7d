//! The table of an endpoint's counters, for all tools; `method` has those of the method above it.
//!
//! ```text
//!   mx_proto::Stats   Gauges   WaitStats   LocalStats, TcpStats, ...    Sample
//!        |              |          |               |
//!   "matched"      "remotes" "wait_.."   "local_..", "tcp_..", "rdm_.."      labels(), values()
//! ```
//!
//! The table names every field of each: one that is missing does not compile.
//!
//! Owns: the labels and their order.
//! Not here: pages, tools.
//! Cost: [`values`] copies words; no allocation, no system call.

use super::method::MethodGauges;
use crate::progress::WaitStats;
use crate::route::host::HostPorts;
use mx_port_local::{LocalPort, LocalStats};
use mx_port_rdm::{RdmPort, RdmStats};
use mx_port_tcp::TcpStats;
use mx_proto::flow::FlowStats;
use mx_proto::port::Port;
use mx_proto::reliability::ReliableStats;
use mx_proto::{Clock, Endpoint, InboxStats, Owner, Stats};

/// The current figures of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gauges {
    /// Remote endpoints known.
    pub remotes: u64,
    /// Operations that have not completed.
    pub requests: u64,
    /// Receives posted and not matched.
    pub posted_receives: u64,
    /// Bytes of unexpected messages that wait with their data.
    pub unexpected_bytes: u64,
    /// Links of all ports.
    pub links: u64,
}

/// The counters of an endpoint's ports. `None`: not open.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortView<'a> {
    /// Shared memory.
    pub local: Option<LocalStats>,
    /// TCP.
    pub tcp: Option<TcpStats>,
    /// libfabric, with the name of its provider.
    pub rdm: Option<(&'a str, RdmStats)>,
    /// Datagrams.
    pub dgram: Option<ReliableStats>,
    /// Links of all of them.
    pub links: usize,
}

impl<'a> PortView<'a> {
    /// Of a host's ports.
    pub fn of(ports: &'a HostPorts) -> Self {
        Self {
            local: ports.local().map(LocalPort::stats),
            tcp: Some(ports.tcp().stats()),
            rdm: ports
                .rdm()
                .map(|rdm: &RdmPort| (rdm.provider(), rdm.stats())),
            dgram: ports.dgram().map(|dgram| *dgram.stats()),
            links: ports.link_count(),
        }
    }
}

/// Everything there is to count of one endpoint, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample<'a> {
    /// The protocol's.
    pub stats: Stats,
    /// Its flow control's: credits, and what became of them.
    pub flow: FlowStats,
    /// The figures of the inbox.
    pub inbox: InboxStats,
    /// The current figures.
    pub gauges: Gauges,
    /// Of the threads that wait.
    pub waits: WaitStats,
    /// The ports'.
    pub ports: PortView<'a>,
    /// The method's, where the endpoint belongs to one.
    pub method: Option<MethodGauges>,
}

impl<'a> Sample<'a> {
    /// The figures of this endpoint. The caller adds those of its ports, of its waiting threads,
    /// and of its method.
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

/// A table of counters: `prefix Type = where in a sample: fields;` for all of them, in the order
/// they are shown. Makes the labels, how many they are, and a function for their values.
macro_rules! table {
    (
        $labels:ident, $count:ident, $values:ident($sample:ident: &$of:ty);
        $($prefix:literal $kind:ident = $source:expr, { $($field:ident),+ $(,)? };)+
    ) => {
        const $labels: &[&str] = &[$($(concat!($prefix, stringify!($field))),+),+];

        /// The number of counters.
        pub const $count: usize = $labels.len();

        /// The values of all counters, in the order of their labels.
        pub fn $values($sample: &$of) -> [u64; $count] {
            let mut values = [0; $count];
            let mut next = values.iter_mut();
            let mut put = |value: u64| {
                if let Some(next) = next.next() {
                    *next = value;
                }
            };
            $(
                // Without `..`: a field that is not in the table is an error.
                let $kind { $($field),+ } = $source;
                $(put($field as u64);)+
            )+
            values
        }

        const _: () = {
            let mut index = 0;
            while index < $count {
                assert!($labels[index].len() < $crate::published::layout::LABEL_WORDS * 8);
                index += 1;
            }
        };
    };
}
pub(super) use table;

table! {
    LABELS, COUNT, values(sample: &Sample<'_>);
    "" Stats = sample.stats, {
        packets_out, packets_in, eager_out, offers_out, matched, unmatched, queued,
        offered_for_credit, credit_stalls, stale, malformed, remotes_up, remotes_down, refused, unproven,
        confirms, intruders, out_of_memory, silenced, timeouts
    };
    "flow_" FlowStats = sample.flow, {
        total, free, lent, drawn, copies, tombstones, remotes, waiting, poor, asked, messages, in_slots,
        violations, wants, granted, revoked, returned, narrowed, draws_refused, epochs
    };
    "inbox_" InboxStats = sample.inbox, { messages, bytes, fetching, waiting };
    "" Gauges = sample.gauges, { remotes, requests, posted_receives, unexpected_bytes, links };
    "wait_" WaitStats = sample.waits, {
        progress_thread_sleeps, waiter_sleeps, progress_thread_wakes, waiter_wakes, handovers, helper_arms,
        stand_downs
    };
    "local_" LocalStats = sample.ports.local.unwrap_or_default(), {
        accepted, initiated, refused, denied, violations, over_share, unbound, turned_away, slept, asleep,
        bytes
    };
    "tcp_" TcpStats = sample.ports.tcp.unwrap_or_default(), {
        accepted, connected, strangers, other_versions, silent, bad_lengths, turned_away, starved,
        evicted, awaited, kept
    };
    "rdm_" RdmStats = sample.ports.rdm.unwrap_or_default().1, {
        stale, early, malformed, strange, renewals, blocked, evicted, turned_away
    };
    "dgram_" ReliableStats = sample.ports.dgram.unwrap_or_default(), {
        datagrams_out, gso_batches_out, datagrams_in, resent, timeouts, asked_losses, late,
        acks_alone, fast_receives, duplicates, outside_window, malformed, damaged, old_session, bad_acks,
        refused, over_share, unbound, black_holes
    };
}

/// The labels of the counters, in a fixed order: letters, digits and `_`, shorter than 32 bytes.
pub fn labels() -> &'static [&'static str] {
    LABELS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_counter_has_a_label_of_its_own() {
        let different: HashSet<&str> = labels().iter().copied().collect();
        assert_eq!(different.len(), COUNT);
        for label in labels() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(label.chars().all(plain), "{label}");
        }
    }

    #[test]
    fn every_field_of_stats_is_a_counter() {
        let fields = format!("{:?}", Stats::default());
        let fields = fields.trim_start_matches("Stats {").trim_end_matches('}');
        let mut found = 0;
        for field in fields.split(',') {
            let name = field.split(':').next().unwrap().trim();
            assert!(labels().contains(&name), "{name}");
            found += 1;
        }
        assert!(found >= 14);
    }

    #[test]
    fn values_stand_where_their_labels_do() {
        let mut sample = Sample::default();
        sample.stats.packets_out = 1;
        sample.stats.timeouts = 2;
        sample.gauges.links = 3;
        sample.waits.stand_downs = 4;
        let local = sample.ports.local.insert(LocalStats::default());
        local.violations = 5;
        let tcp = sample.ports.tcp.insert(TcpStats::default());
        tcp.starved = 6;
        let rdm = sample.ports.rdm.insert(("x", RdmStats::default()));
        rdm.1.blocked = 7;
        let values = values(&sample);
        let of = |label: &str| values[labels().iter().position(|other| *other == label).unwrap()];
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
