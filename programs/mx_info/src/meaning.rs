//! Meanings of the counters: for `mx_info counters --prometheus`, and for the manual page.
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

/// Kind and meaning of a label; `None` of one that another version of the library has.
pub(crate) fn of(label: &str) -> Option<(Kind, &'static str)> {
    let (_, kind, about) = all().find(|(known, ..)| *known == label)?;
    Some((kind, about))
}

/// Label, kind and meaning of every counter, in the order of the pages.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, Kind, &'static str)> {
    MEANINGS.lines().filter_map(|line| {
        let (kind, rest) = line.split_once(' ')?;
        let (label, about) = rest.split_once(' ')?;
        let kind = if kind == "count" {
            Kind::Count
        } else {
            Kind::Level
        };
        Some((label, kind, about))
    })
}

const MEANINGS: &str = "\
count packets_out packets given to the ports
count packets_in packets taken from the ports
count eager_out messages sent with their data at once
count offers_out messages announced, for the receiver to pull
count matched messages that found a posted receive
count unmatched messages that came before their receive
count queued sends that had to wait for their link or for credit
count offered_for_credit small messages announced for want of credit
count credit_stalls times that sends had to wait for credit
count stale packets about what is no longer there, dropped
count malformed packets that make no sense; their links were closed
count remotes_up peers that were connected
count remotes_down peers that were disconnected or lost
count refused connects refused: wrong key, version, or too many peers
count unproven peers refused because the network does not tell who they are
count confirms calls of ours that crossed one of the peer's, asked about
count intruders peers asked whether they are there, as another has their name or life
count out_of_memory peers disconnected because there was no memory for a message
count silenced peers taken for lost because nothing was heard of them
count timeouts operations that ran into their time-out
level flow_total credits there are, of 512 bytes each
level flow_free credits neither lent nor held by messages
level flow_lent credits lent to peers
level flow_drawn credits held by messages that were fetched or are being fetched
level flow_copies credits held by copies of own sends
level flow_tombstones credits held by messages whose senders are gone
level flow_remotes peers with an account of credits
level flow_waiting peers that want more credits and wait for them
level flow_poor peers that wait and have no credit at all
level flow_asked peers asked to give credits back that have not answered yet
count flow_messages messages that came for credits or slots
count flow_in_slots messages that came without a credit, in a slot
count flow_violations breaches of the rules about credits
count flow_wants times that peers wanted more credits
count flow_granted credits lent after the first credits
count flow_revoked credits that peers were asked to give back
count flow_returned credits that peers gave back
count flow_narrowed credits taken back without asking
count flow_draws_refused fetches that had to wait for credits
count flow_epochs rounds of sharing credits out anew
level inbox_messages unexpected messages that can be handed out
level inbox_bytes bytes of unexpected messages that can be handed out
level inbox_fetching messages being fetched
level inbox_waiting messages that wait for room before they are fetched
level remotes peers known
level requests operations under way
level posted_receives receives that no message has come for
level unexpected_bytes bytes of messages that came before their receive
level links links of all ports
count wait_progress_thread_sleeps times a thread went to sleep in the kernel for all
count wait_waiter_sleeps times a thread went to sleep behind another one
count wait_progress_thread_wakes times the first sleeper was woken by another thread
count wait_waiter_wakes times a thread behind it was woken for its own completion
count wait_handovers times a thread behind it was woken to take its place
count wait_helper_arms times the helper thread went to sleep on the network
count wait_stand_downs times the helper thread made way for the application's
count local_accepted links over shared memory that others began
count local_initiated links over shared memory begun here
count local_refused callers over shared memory dropped: nonsense, silence, or no place
count local_denied callers over shared memory dropped because the endpoint that they say they are is not their user's
count local_violations links cut because of what the peer wrote into shared memory
count local_over_share links of a user that had its share of shared memory
count local_unbound links over shared memory that were not introduced in time
count local_turned_away links for which there was no place, and memory for a link that was not taken
count local_slept times an idle link gave its shared memory back
level local_asleep links without shared memory, whose messages go over their sockets
level local_bytes bytes of shared memory mapped
count tcp_accepted TCP connections accepted
count tcp_connected TCP connections made
count tcp_strangers TCP callers that do not speak this protocol
count tcp_other_versions TCP callers of another version of the protocol
count tcp_silent TCP callers that were not introduced in time
count tcp_bad_lengths packets of an impossible length over TCP
count tcp_turned_away TCP callers turned away: too many, or too many of their source
count tcp_starved times that accepting stopped for lack of descriptors or memory
count tcp_evicted strangers dropped because another one needed their place
count tcp_awaited packets left in the kernel until they were whole
level tcp_kept bytes kept of packets that are not whole yet
count rdm_stale frames over a fabric that fit no link
count rdm_early frames over a fabric that came before their turn
count rdm_malformed frames over a fabric that make no sense
count rdm_strange completions of a fabric that belong to nothing
count rdm_renewals times the fabric was opened anew
count rdm_blocked times a frame found no room at the fabric
count rdm_evicted strangers over a fabric whose place was given to another one
count rdm_turned_away strangers over a fabric that found no place and came over TCP
count dgram_datagrams_out datagrams sent
count dgram_gso_batches_out calls of the kernel that sent them
count dgram_datagrams_in datagrams received
count dgram_resent segments sent again
count dgram_timeouts time-outs after which something was sent again
count dgram_asked_losses segments shown to be lost by asking
count dgram_late segments taken for lost that were only late
count dgram_acks_alone acknowledgements that travelled alone
count dgram_fast_receives packets delivered before their bookkeeping
count dgram_duplicates segments that were there already
count dgram_outside_window segments outside the window, or without room
count dgram_malformed datagrams of wrong magic, version, length or kind
count dgram_damaged datagrams with a wrong checksum
count dgram_old_session datagrams of a session that is no more, or of another address
count dgram_bad_acks acknowledgements of what was never sent
count dgram_refused callers over datagrams refused because there are too many
count dgram_over_share callers over datagrams refused because their source had its share
count dgram_unbound sessions over datagrams that were not introduced in time
count dgram_black_holes paths that turned out to carry only smaller datagrams
level method_peers peers the BMI method has records of
level method_operations operations of the BMI method that were not handed out yet
count method_dropped messages to the BMI method that make no sense, dropped
";

#[cfg(test)]
mod tests {
    use super::*;
    use mx_sys::published::{labels, method_labels};

    #[test]
    fn every_counter_of_the_libraries_has_a_meaning_and_nothing_else_has() {
        let known: Vec<&str> = all().map(|(label, ..)| label).collect();
        assert_eq!(known, [labels(), method_labels()].concat());
    }

    #[test]
    fn the_manual_page_lists_them() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/man/man1/mx_counters.1"
        );
        let page = std::fs::read_to_string(path).unwrap();
        let item = |(label, _, about)| format!(".It Li {label}\n{about}\n");
        let list: String = all().map(item).collect();
        assert!(page.contains(&list), "mx_counters(1) should have:\n{list}");
    }
}
