//! Meanings of the counters: for `mx_counters --prometheus`, and for the manual page.
//!
//! ```text
//!   label in a page  -->  a count, which only grows, or a level;  one sentence
//! ```
//!
//! Owns: the sentences. A test compares the labels with those of the libraries.
//! Not here: values.

/// The kind of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Only up, from 0 when the endpoint is opened.
    Count,
    /// Up and down: what there is now.
    Level,
}

use Kind::{Count, Level};

/// Kind and meaning of a label; `None` of one that another version of the library has.
pub(crate) fn of(label: &str) -> Option<(Kind, &'static str)> {
    let row = MEANINGS.iter().find(|(known, ..)| *known == label);
    row.map(|(_, kind, about)| (*kind, *about))
}

/// Label, kind and meaning of every counter, in the order of the pages.
pub(crate) const MEANINGS: &[(&str, Kind, &str)] = &[
    ("packets_out", Count, "packets given to the ports"),
    ("packets_in", Count, "packets taken from the ports"),
    ("eager_out", Count, "messages sent with their data at once"),
    (
        "offers_out",
        Count,
        "messages announced, for the receiver to pull",
    ),
    ("matched", Count, "messages that found a posted receive"),
    (
        "unmatched",
        Count,
        "messages that came before their receive",
    ),
    (
        "queued",
        Count,
        "sends that had to wait for their link or for credit",
    ),
    (
        "offered_for_credit",
        Count,
        "small messages announced for want of credit",
    ),
    (
        "credit_stalls",
        Count,
        "times that sends had to wait for credit",
    ),
    (
        "stale",
        Count,
        "packets about what is no longer there, dropped",
    ),
    (
        "malformed",
        Count,
        "packets that make no sense; their links were closed",
    ),
    ("remotes_up", Count, "peers that were connected"),
    (
        "remotes_down",
        Count,
        "peers that were disconnected or lost",
    ),
    (
        "refused",
        Count,
        "connects refused: wrong key, version, or too many peers",
    ),
    (
        "unproven",
        Count,
        "peers refused because the network does not tell who they are",
    ),
    (
        "confirms",
        Count,
        "calls of ours that crossed one of the peer's, asked about",
    ),
    (
        "intruders",
        Count,
        "peers asked whether they are there, as another has their name or life",
    ),
    (
        "out_of_memory",
        Count,
        "peers disconnected because there was no memory for a message",
    ),
    (
        "silenced",
        Count,
        "peers taken for lost because nothing was heard of them",
    ),
    ("timeouts", Count, "operations that ran into their time-out"),
    ("flow_total", Level, "credits there are, of 512 bytes each"),
    (
        "flow_free",
        Level,
        "credits neither lent nor held by messages",
    ),
    ("flow_lent", Level, "credits lent to peers"),
    (
        "flow_drawn",
        Level,
        "credits held by messages that were fetched or are being fetched",
    ),
    ("flow_copies", Level, "credits held by copies of own sends"),
    (
        "flow_tombstones",
        Level,
        "credits held by messages whose senders are gone",
    ),
    ("flow_remotes", Level, "peers with an account of credits"),
    (
        "flow_waiting",
        Level,
        "peers that want more credits and wait for them",
    ),
    (
        "flow_poor",
        Level,
        "peers that wait and have no credit at all",
    ),
    (
        "flow_asked",
        Level,
        "peers asked to give credits back that have not answered yet",
    ),
    (
        "flow_messages",
        Count,
        "messages that came for credits or slots",
    ),
    (
        "flow_in_slots",
        Count,
        "messages that came without a credit, in a slot",
    ),
    (
        "flow_violations",
        Count,
        "breaches of the rules about credits",
    ),
    ("flow_wants", Count, "times that peers wanted more credits"),
    (
        "flow_granted",
        Count,
        "credits lent after the first credits",
    ),
    (
        "flow_revoked",
        Count,
        "credits that peers were asked to give back",
    ),
    ("flow_returned", Count, "credits that peers gave back"),
    ("flow_narrowed", Count, "credits taken back without asking"),
    (
        "flow_draws_refused",
        Count,
        "fetches that had to wait for credits",
    ),
    ("flow_epochs", Count, "rounds of sharing credits out anew"),
    (
        "inbox_messages",
        Level,
        "unexpected messages that can be handed out",
    ),
    (
        "inbox_bytes",
        Level,
        "bytes of unexpected messages that can be handed out",
    ),
    ("inbox_fetching", Level, "messages being fetched"),
    (
        "inbox_waiting",
        Level,
        "messages that wait for room before they are fetched",
    ),
    ("remotes", Level, "peers known"),
    ("requests", Level, "operations under way"),
    (
        "posted_receives",
        Level,
        "receives that no message has come for",
    ),
    (
        "unexpected_bytes",
        Level,
        "bytes of messages that came before their receive",
    ),
    ("links", Level, "links of all ports"),
    (
        "wait_progress_thread_sleeps",
        Count,
        "times a thread went to sleep in the kernel for all",
    ),
    (
        "wait_waiter_sleeps",
        Count,
        "times a thread went to sleep behind another one",
    ),
    (
        "wait_progress_thread_wakes",
        Count,
        "times the first sleeper was woken by another thread",
    ),
    (
        "wait_waiter_wakes",
        Count,
        "times a thread behind it was woken for its own completion",
    ),
    (
        "wait_handovers",
        Count,
        "times a thread behind it was woken to take its place",
    ),
    (
        "wait_helper_arms",
        Count,
        "times the helper thread went to sleep on the network",
    ),
    (
        "wait_stand_downs",
        Count,
        "times the helper thread made way for the application's",
    ),
    (
        "local_accepted",
        Count,
        "links over shared memory that others began",
    ),
    (
        "local_initiated",
        Count,
        "links over shared memory begun here",
    ),
    (
        "local_refused",
        Count,
        "callers over shared memory dropped: nonsense, silence, or no place",
    ),
    (
        "local_denied",
        Count,
        "callers over shared memory dropped because the endpoint that they say they are is not their user's",
    ),
    (
        "local_violations",
        Count,
        "links cut because of what the peer wrote into shared memory",
    ),
    (
        "local_over_share",
        Count,
        "links of a user that had its share of shared memory",
    ),
    (
        "local_unbound",
        Count,
        "links over shared memory that were not introduced in time",
    ),
    (
        "local_turned_away",
        Count,
        "links for which there was no place, and memory for a link that was not taken",
    ),
    (
        "local_slept",
        Count,
        "times an idle link gave its shared memory back",
    ),
    (
        "local_asleep",
        Level,
        "links without shared memory, whose messages go over their sockets",
    ),
    ("local_bytes", Level, "bytes of shared memory mapped"),
    ("tcp_accepted", Count, "TCP connections accepted"),
    ("tcp_connected", Count, "TCP connections made"),
    (
        "tcp_strangers",
        Count,
        "TCP callers that do not speak this protocol",
    ),
    (
        "tcp_other_versions",
        Count,
        "TCP callers of another version of the protocol",
    ),
    (
        "tcp_silent",
        Count,
        "TCP callers that were not introduced in time",
    ),
    (
        "tcp_bad_lengths",
        Count,
        "packets of an impossible length over TCP",
    ),
    (
        "tcp_turned_away",
        Count,
        "TCP callers turned away: too many, or too many of their source",
    ),
    (
        "tcp_starved",
        Count,
        "times that accepting stopped for lack of descriptors or memory",
    ),
    (
        "tcp_evicted",
        Count,
        "strangers dropped because another one needed their place",
    ),
    (
        "tcp_awaited",
        Count,
        "packets left in the kernel until they were whole",
    ),
    (
        "tcp_kept",
        Level,
        "bytes kept of packets that are not whole yet",
    ),
    ("rdm_stale", Count, "frames over a fabric that fit no link"),
    (
        "rdm_early",
        Count,
        "frames over a fabric that came before their turn",
    ),
    (
        "rdm_malformed",
        Count,
        "frames over a fabric that make no sense",
    ),
    (
        "rdm_strange",
        Count,
        "completions of a fabric that belong to nothing",
    ),
    ("rdm_renewals", Count, "times the fabric was opened anew"),
    (
        "rdm_blocked",
        Count,
        "times a frame found no room at the fabric",
    ),
    (
        "rdm_evicted",
        Count,
        "strangers over a fabric whose place was given to another one",
    ),
    (
        "rdm_turned_away",
        Count,
        "strangers over a fabric that found no place and came over TCP",
    ),
    ("dgram_datagrams_out", Count, "datagrams sent"),
    (
        "dgram_gso_batches_out",
        Count,
        "calls of the kernel that sent them",
    ),
    ("dgram_datagrams_in", Count, "datagrams received"),
    ("dgram_resent", Count, "segments sent again"),
    (
        "dgram_timeouts",
        Count,
        "time-outs after which something was sent again",
    ),
    (
        "dgram_asked_losses",
        Count,
        "segments shown to be lost by asking",
    ),
    (
        "dgram_late",
        Count,
        "segments taken for lost that were only late",
    ),
    (
        "dgram_acks_alone",
        Count,
        "acknowledgements that travelled alone",
    ),
    (
        "dgram_fast_receives",
        Count,
        "packets delivered before their bookkeeping",
    ),
    (
        "dgram_duplicates",
        Count,
        "segments that were there already",
    ),
    (
        "dgram_outside_window",
        Count,
        "segments outside the window, or without room",
    ),
    (
        "dgram_malformed",
        Count,
        "datagrams of wrong magic, version, length or kind",
    ),
    ("dgram_damaged", Count, "datagrams with a wrong checksum"),
    (
        "dgram_old_session",
        Count,
        "datagrams of a session that is no more, or of another address",
    ),
    (
        "dgram_bad_acks",
        Count,
        "acknowledgements of what was never sent",
    ),
    (
        "dgram_refused",
        Count,
        "callers over datagrams refused because there are too many",
    ),
    (
        "dgram_over_share",
        Count,
        "callers over datagrams refused because their source had its share",
    ),
    (
        "dgram_unbound",
        Count,
        "sessions over datagrams that were not introduced in time",
    ),
    (
        "dgram_black_holes",
        Count,
        "paths that turned out to carry only smaller datagrams",
    ),
    ("method_peers", Level, "peers the BMI method has records of"),
    (
        "method_operations",
        Level,
        "operations of the BMI method that were not handed out yet",
    ),
    (
        "method_dropped",
        Count,
        "messages to the BMI method that make no sense, dropped",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use mx_sys::published::{labels, method_labels};

    #[test]
    fn every_counter_of_the_libraries_has_a_meaning_and_nothing_else_has() {
        let known: Vec<&str> = MEANINGS.iter().map(|(label, ..)| *label).collect();
        assert_eq!(known, [labels(), method_labels()].concat());
    }

    #[test]
    fn the_manual_page_lists_them() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/man/man1/mx_counters.1"
        );
        let page = std::fs::read_to_string(path).unwrap();
        let item = |(label, _, about): &(&str, Kind, &str)| format!(".It Li {label}\n{about}\n");
        let list: String = MEANINGS.iter().map(item).collect();
        assert!(page.contains(&list), "mx_counters(1) should have:\n{list}");
    }
}
