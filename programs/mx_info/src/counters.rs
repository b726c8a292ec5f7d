//! Counters of endpoints, once or repeatedly.
//!
//! ```text
//!   Sample, a second later Sample  -->  value, and its increase per second
//! ```
//!
//! Owns: changes between two samples.

use crate::again::Again;
use crate::endpoints::{Endpoint, Which};
use crate::prometheus;
use crate::text::{aligned, non_empty, show};
use clap::Parser;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

const ABOUT: &str = "\
Shows the counters of the open endpoints on this machine, without disturbing their processes. Only root
sees endpoints of other users. Endpoints of another network namespace are shown there only.";

const AFTER: &str = "\
Exits with 1 if no such endpoint is open at first, except with --prometheus.";

#[derive(Parser)]
#[command(about = ABOUT, after_help = AFTER)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Show counters that are 0, too
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    again: Again,
    /// Print one JSON object a line for each endpoint
    #[arg(long)]
    json: bool,
    /// Print all counters as Prometheus metrics, for the text file of a node exporter
    #[arg(long, conflicts_with_all = ["json", "all", "watch"])]
    prometheus: bool,
}

impl Args {
    pub(crate) fn show(&self) -> Result<(), String> {
        if self.prometheus {
            show(&prometheus::text(&self.which.find()));
            return Ok(());
        }
        let mut watch = Watch::default();
        let gap = if self.json { "" } else { "\n" };
        self.again.show(gap, |passed| {
            let found = self.which.find();
            let shown = if self.json {
                watch.json(&found, passed)
            } else {
                watch.text(&found, passed, self.all)
            };
            (!found.is_empty()).then_some(shown)
        })
    }
}

/// Identifies an endpoint; one that a process opens again is another.
type Key = (u32, u64);

/// Endpoints as last shown.
#[derive(Debug, Default)]
struct Watch {
    last: HashMap<Key, HashMap<String, u64>>,
}

impl Watch {
    /// Returns a block for each endpoint: its counters, zero ones only with `all`, and their rates over the time that
    /// `passed` since the last call.
    fn text(&mut self, endpoints: &[Endpoint], passed: Option<Duration>, all: bool) -> String {
        let mut out = String::new();
        for endpoint in endpoints {
            let _ = writeln!(out, "{}, {}", endpoint.title(), endpoint.library);
            let rows = endpoint
                .counters
                .iter()
                .filter(|(_, value)| all || *value > 0);
            let rows: Vec<Vec<String>> = rows
                .map(|(label, value)| {
                    let rate = self.rate(endpoint, label, *value, passed);
                    let rate = rate.map_or(String::new(), |rate| format!("{rate:.1}"));
                    vec![label.clone(), value.to_string(), rate]
                })
                .collect();
            out += &aligned(
                &["counter", "value", "per second"][..2 + passed.iter().len()],
                &rows,
            );
        }
        self.remember(endpoints);
        out
    }

    /// Returns a JSON object a line for each endpoint.
    fn json(&mut self, endpoints: &[Endpoint], passed: Option<Duration>) -> String {
        let mut out = String::new();
        for endpoint in endpoints {
            let mut line = json!({
                "pid": endpoint.pid,
                "program": non_empty(&endpoint.program),
                "library": endpoint.library,
                "board": endpoint.board,
                "endpoint": endpoint.endpoint,
                "counters": endpoint.counters_json(),
            });
            let rates: Map<String, Value> = endpoint
                .counters
                .iter()
                .filter_map(|(label, value)| {
                    let rate = self.rate(endpoint, label, *value, passed)?;
                    // Parsed from its digits, so that a whole rate is `1`, not `1.0`.
                    Some((label.clone(), rate.to_string().parse().ok()?))
                })
                .collect();
            if !rates.is_empty() {
                line["per_second"] = rates.into();
            }
            let _ = writeln!(out, "{line}");
        }
        self.remember(endpoints);
        out
    }

    /// Returns the rate per second; `None` at first, and for a decreased value, which is a level, not a count.
    fn rate(
        &self,
        endpoint: &Endpoint,
        label: &str,
        value: u64,
        passed: Option<Duration>,
    ) -> Option<f64> {
        let before = self.last.get(&key(endpoint))?.get(label)?;
        let more = value.checked_sub(*before)?;
        let seconds = passed?.as_secs_f64();
        (seconds > 0.0).then(|| more as f64 / seconds)
    }

    fn remember(&mut self, endpoints: &[Endpoint]) {
        self.last = endpoints
            .iter()
            .map(|endpoint| {
                let counters = endpoint.counters.iter().cloned().collect();
                (key(endpoint), counters)
            })
            .collect();
    }
}

fn key(endpoint: &Endpoint) -> Key {
    (endpoint.pid, endpoint.session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::NicId;
    use std::num::NonZeroU64;

    fn endpoint(session: u64, sent: u64) -> Endpoint {
        Endpoint {
            pid: 7,
            program: "server".into(),
            library: "myriexpress".into(),
            board: 0,
            endpoint: 3,
            nic: NicId(1),
            session,
            ports: vec!["local", "tcp"],
            tcp_port: Some(28675),
            provider: String::new(),
            age: Duration::from_secs(1),
            opened: 0,
            counters: vec![("sent".into(), sent), ("lost".into(), 0)],
            peers: Vec::new(),
        }
    }

    #[test]
    fn the_first_look_has_values_and_the_second_rates() {
        let mut watch = Watch::default();
        let first = watch.text(&[endpoint(1, 10)], None, false);
        assert_eq!(
            first,
            "endpoint 3 of board 0, process 7 (server), myriexpress\n  counter  value\n  sent     10\n"
        );
        let later = watch.text(&[endpoint(1, 30)], Some(Duration::from_secs(2)), true);
        assert!(later.contains("  sent     30     10.0\n"), "{later}");
        assert!(later.contains("  lost     0      0.0\n"), "{later}");
    }

    #[test]
    fn an_endpoint_that_was_opened_again_starts_anew() {
        let mut watch = Watch::default();
        watch.json(&[endpoint(1, 10)], None);
        let second = Some(Duration::from_secs(1));
        assert!(
            !watch
                .json(&[endpoint(2, 30)], second)
                .contains("per_second")
        );
        let line = watch.json(&[endpoint(2, 31)], second);
        assert!(line.ends_with(
            "\"counters\":{\"sent\":31,\"lost\":0},\"per_second\":{\"sent\":1,\"lost\":0}}\n"
        ));
    }

    #[test]
    fn what_has_become_less_has_no_rate() {
        let mut watch = Watch::default();
        watch.text(&[endpoint(1, 10)], None, false);
        let later = watch.text(&[endpoint(1, 4)], Some(Duration::from_secs(1)), false);
        assert!(later.ends_with("  sent     4\n"), "{later}");
    }

    fn read(line: &str) -> Option<Args> {
        Args::try_parse_from(std::iter::once("mx_counters").chain(line.split_whitespace())).ok()
    }

    #[test]
    fn every_option_is_read() {
        let args = read("-b 1 -e3 -p 77 --json -a --watch 0.5 --count 2").unwrap();
        let Which {
            board,
            endpoint,
            pid,
        } = args.which;
        assert_eq!((board, endpoint, pid), (Some(1), Some(3), Some(77)));
        assert!(args.json && args.all && !args.prometheus);
        assert_eq!(args.again.watch, Some(Duration::from_millis(500)));
        assert_eq!(args.again.count.map(NonZeroU64::get), Some(2));
        assert!(read("-e 3 --prometheus").is_some());
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "-b",
            "-b -1",
            "-e x",
            "--watch 0",
            "--watch NaN",
            "--watch 1 --count 0",
            "--count 3",
            "--prometheus --json",
            "--prometheus --watch 1",
            "something",
        ] {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
