//! The peers of endpoints, and what their operations wait for.
//!
//! ```text
//!   published::Peer  +  the current time  -->  table row, JSON
//! ```
//!
//! Owns: the text form of a published row.

use crate::again::Again;
use crate::endpoints::{Endpoint, Which, nic_text};
use crate::text::{aligned, non_empty, or_none};
use clap::Parser;
use mx_proto::{Clock, Instant, Phase};
use mx_sys::clock::MonotonicClock;
use mx_sys::nic;
use mx_sys::published::Peer;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

const ABOUT: &str = "\
Shows the peers of this machine's open endpoints, without disturbing their processes: the port, the round
trip, and what is queued and for how long. Peers with the oldest operation come first.";

#[derive(Parser)]
#[command(about = ABOUT, after_help = "Exits with 1 if no such endpoint is open at first.")]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Only peers with operations under way
    #[arg(long)]
    busy: bool,
    #[command(flatten)]
    again: Again,
    /// Print one JSON object a line for each endpoint
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn show(&self) -> Result<(), String> {
        let gap = if self.json { "" } else { "\n" };
        self.again.show(gap, |_| {
            let found = self.which.find();
            let now = MonotonicClock.now();
            let shown = found.iter().map(|endpoint| {
                let peers = self.peers(endpoint);
                if self.json {
                    json(endpoint, &peers, now)
                } else {
                    text(endpoint, &peers, now)
                }
            });
            (!found.is_empty()).then(|| shown.collect())
        })
    }

    fn peers<'a>(&self, endpoint: &'a Endpoint) -> Vec<&'a Peer> {
        let all = endpoint.peers.iter();
        let mut peers: Vec<_> = all
            .filter(|peer| !self.busy || peer.operations > 0)
            .collect();
        // Peers without an operation come last; then by name, so that rows keep their places.
        peers.sort_by_key(|peer| {
            let waits = peer.oldest_since.map(|since| Reverse(since.0));
            (Reverse(waits), peer.nic, peer.endpoint)
        });
        peers
    }
}

const HEADING: [&str; 17] = [
    "peer",
    "state",
    "port",
    "round trip",
    "heard",
    "operations",
    "queued",
    "oldest",
    "credits",
    "resent",
    "links",
    "sent",
    "received",
    "bulk sent",
    "bulk received",
    "longest wait",
    "as of",
];

fn text(endpoint: &Endpoint, peers: &[&Peer], now: Instant) -> String {
    let mut out = String::new();
    let all = endpoint.counter("remotes").unwrap_or(0);
    let _ = writeln!(out, "{}: {all} peers", endpoint.title());
    let rows: Vec<Vec<String>> = peers.iter().map(|peer| row(peer, now)).collect();
    out += &or_none(aligned(&HEADING, &rows));
    out
}

fn row(peer: &Peer, now: Instant) -> Vec<String> {
    let figures = &peer.figures;
    let since = |at: Option<Instant>| at.map_or_else(|| "-".to_owned(), |at| span(now.since(at)));
    vec![
        name(peer),
        state(peer.phase).to_owned(),
        peer.port.unwrap_or("-").to_owned(),
        figures.round_trip.map_or_else(|| "-".to_owned(), span),
        since(figures.heard_at),
        peer.operations.to_string(),
        peer.queued.to_string(),
        since(peer.oldest_since),
        peer.credits.to_string(),
        figures.resent.to_string(),
        peer.links.to_string(),
        bytes(figures.sent),
        bytes(figures.received),
        bytes(peer.bulk_sent),
        bytes(peer.bulk_received),
        span(peer.longest_wait),
        since(Some(peer.written)),
    ]
}

fn json(endpoint: &Endpoint, peers: &[&Peer], now: Instant) -> String {
    let since = |at: Option<Instant>| at.map(|at| now.since(at).as_secs_f64());
    let peers = peers.iter().map(|peer| {
        json!({
            "peer": name(peer),
            "nic_id": nic_text(peer.nic),
            "endpoint": peer.endpoint.0,
            "state": state(peer.phase),
            "port": peer.port,
            "round_trip": peer.figures.round_trip.map(|span| span.as_secs_f64()),
            "heard": since(peer.figures.heard_at),
            "operations": peer.operations,
            "queued": peer.queued,
            "oldest": since(peer.oldest_since),
            "credits": peer.credits,
            "resent": peer.figures.resent,
            "links": peer.links,
            "sent": peer.figures.sent,
            "received": peer.figures.received,
            "bulk_sent": peer.bulk_sent,
            "bulk_received": peer.bulk_received,
            "longest_wait": peer.longest_wait.as_secs_f64(),
            "as_of": since(Some(peer.written)),
        })
    });
    let line = json!({
        "pid": endpoint.pid,
        "program": non_empty(&endpoint.program),
        "board": endpoint.board,
        "endpoint": endpoint.endpoint,
        "peers": peers.collect::<Value>(),
    });
    format!("{line}\n")
}

/// Returns the peer's name, such as `node7:0:3`, with the NIC id if the host is unknown.
fn name(peer: &Peer) -> String {
    let host = nic::mx_name(peer.nic).unwrap_or_else(|| nic_text(peer.nic));
    format!("{host}:{}", peer.endpoint.0)
}

fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::Connecting => "connecting",
        Phase::Connected => "connected",
        Phase::LinkFull => "link full",
        Phase::NoCredits => "no credits",
    }
}

/// Formats bytes in about three digits with a unit; `-` if the port does not count them.
fn bytes(bytes: Option<u64>) -> String {
    let Some(bytes) = bytes else {
        return "-".to_owned();
    };
    let units = ["B", "KB", "MB", "GB", "TB"];
    let (mut whole, mut tenth, mut unit) = (bytes, 0, 0);
    while whole >= 1000 && unit + 1 < units.len() {
        (whole, tenth, unit) = (whole / 1000, whole / 100 % 10, unit + 1);
    }
    if whole < 10 && unit > 0 {
        format!("{whole}.{tenth} {}", units[unit])
    } else {
        format!("{whole} {}", units[unit])
    }
}

/// Formats a time in about three digits with a unit.
fn span(span: Duration) -> String {
    match span.as_micros() {
        us @ 0..1000 => format!("{us} us"),
        us @ 1000..1_000_000 => format!("{}.{} ms", us / 1000, us / 100 % 10),
        us @ 1_000_000..100_000_000 => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
        us => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_makes_them_short() {
        for (count, text) in [
            (None, "-"),
            (Some(999), "999 B"),
            (Some(1_250), "1.2 KB"),
            (Some(48_000), "48 KB"),
            (Some(7_900_000_000), "7.9 GB"),
            (Some(3_000_000_000_000_000), "3000 TB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn spans_have_the_unit_that_makes_them_short() {
        for (us, text) in [
            (0, "0 us"),
            (999, "999 us"),
            (1_250, "1.2 ms"),
            (2_000_000, "2.0 s"),
            (99_990_000, "99.9 s"),
            (7_200_000_000, "7200 s"),
        ] {
            assert_eq!(span(Duration::from_micros(us)), text);
        }
    }
}
