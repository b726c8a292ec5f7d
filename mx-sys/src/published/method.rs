//! The counters of a method above its endpoint: credits, queues, memory by class.
//!
//! ```text
//!   LenderStats     SendGauges    QueueGauges    MemoryGauges        MethodGauges
//!       |               |              |              |
//!   "credits_.."    "sends_.."     "queue_.."     "memory_.."        method_labels(), method_values()
//! ```
//!
//! Owns: what a method has to show, its labels and their order.
//! Knows nothing of: methods.
//! Cost: [`method_values`] copies words; no allocation, no system call.

use super::counters::table;
use mx_proto::ledger::LenderStats;

/// What a method has at the moment, and how often what happened to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MethodGauges {
    /// Credits it lends for unexpected messages.
    pub credits: LenderStats,
    /// Its own sends.
    pub sends: SendGauges,
    /// What waits in it.
    pub queues: QueueGauges,
    /// What that takes.
    pub memory: MemoryGauges,
}

/// What sends wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendGauges {
    /// Unexpected sends that came to be the first of their peer's queue and found too few credits.
    pub credit_stalls: u64,
    /// Peers whose first unexpected send waits for credits now.
    pub without_credits: u64,
    /// Times that a peer with something to send found no ticket and had to wait for one.
    pub ticket_stalls: u64,
    /// Peers that wait for a ticket now.
    pub without_ticket: u64,
    /// Tickets in use, as far as has been looked.
    pub tickets_out: u64,
    /// Tickets there are.
    pub tickets: u64,
}

/// What waits, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueGauges {
    /// Peers there are records of.
    pub peers: u64,
    /// Operations that were posted and have not been handed out.
    pub operations: u64,
    /// Unexpected messages that the host can have.
    pub ready: u64,
    /// Unexpected messages that are being received.
    pub coming: u64,
    /// Peers with unexpected messages that are left at the endpoint.
    pub held_peers: u64,
    /// Peers in line to send.
    pub line: u64,
    /// Unexpected messages dropped because they made no sense or were not paid for.
    pub dropped: u64,
}

/// Bytes, by what takes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryGauges {
    /// Unexpected messages that wait for the host or are being received, 64 for each included.
    pub unexpected: u64,
    /// What the credits stand for that these messages use.
    pub unexpected_used: u64,
    /// The most that may be.
    pub unexpected_limit: u64,
    /// Messages that came before their receives and wait at the endpoint with their data.
    pub early: u64,
    /// What is promised to partners for such messages or taken by them, bookkeeping included.
    pub early_used: u64,
    /// The most that may be, but for four messages of each partner.
    pub early_limit: u64,
    /// The books about credits.
    pub ledger: u64,
    /// Copies of small sends that have to wait.
    pub bounced: u64,
}

table! {
    LABELS, METHOD_COUNT, method_values(gauges: &MethodGauges);
    "credits_" LenderStats = gauges.credits, {
        total, bank, drawn, lent, estates, peers, others, waiting, asked, messages, unpaid, held,
        wants, granted, revoked, returned, kept, revokes_sent, grants_sent, controls,
        draws_refused, strikes, failed, epochs, memory
    };
    "sends_" SendGauges = gauges.sends, {
        credit_stalls, without_credits, ticket_stalls, without_ticket, tickets_out, tickets
    };
    "queue_" QueueGauges = gauges.queues, {
        peers, operations, ready, coming, held_peers, line, dropped
    };
    "memory_" MemoryGauges = gauges.memory, {
        unexpected, unexpected_used, unexpected_limit, early, early_used, early_limit, ledger,
        bounced
    };
}

/// What a method's counters are called, in a fixed order; none is called as one of its endpoint's.
pub fn method_labels() -> &'static [&'static str] {
    LABELS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::labels;
    use std::collections::HashSet;

    #[test]
    fn every_counter_of_endpoint_and_method_has_a_label_of_its_own() {
        let all = || labels().iter().chain(method_labels());
        let different: HashSet<&&str> = all().collect();
        assert_eq!(different.len(), all().count());
        for label in method_labels() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(label.chars().all(plain), "{label}");
        }
    }

    #[test]
    fn values_stand_where_their_labels_do() {
        let mut gauges = MethodGauges::default();
        gauges.credits.total = 1;
        gauges.credits.memory = 2;
        gauges.sends.ticket_stalls = 3;
        gauges.queues.dropped = 4;
        gauges.memory.unexpected = 5;
        gauges.memory.ledger = 6;
        let values = method_values(&gauges);
        let of = |label: &str| {
            let place = method_labels().iter().position(|other| *other == label);
            values[place.unwrap()]
        };
        for (label, value) in [
            ("credits_total", 1),
            ("credits_memory", 2),
            ("sends_ticket_stalls", 3),
            ("queue_dropped", 4),
            ("memory_unexpected", 5),
            ("memory_ledger", 6),
        ] {
            assert_eq!(of(label), value, "{label}");
        }
        assert_eq!(values.iter().sum::<u64>(), 21);
    }
}
