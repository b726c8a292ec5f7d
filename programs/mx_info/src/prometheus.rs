//! Counters in Prometheus's format, for a node exporter's text file.
//!
//! ```text
//!   Endpoint, Endpoint, ...  -->  # HELP mx_matched_total Messages that found a posted receive.
//!                                 # TYPE mx_matched_total counter
//!                                 mx_matched_total{board="0",endpoint="3",pid="77",...} 12
//!                                 ... one block a metric, one line an endpoint
//! ```
//!
//! Owns: names of metrics and labels, quoting.

use crate::endpoints::Endpoint;
use mx_proto::CounterKind;
use mx_sys::published::all_counters;
use std::collections::HashSet;
use std::fmt::Write as _;

/// Returns a block for every counter of any of the endpoints, and the number of endpoints.
pub(crate) fn text(endpoints: &[Endpoint]) -> String {
    let mut out = String::new();
    heading(&mut out, "mx_endpoints", "gauge", "endpoints that are open");
    let _ = writeln!(out, "mx_endpoints {}", endpoints.len());
    // A duplicate line makes an exporter reject the file, and a page may contain anything.
    let mut seen = HashSet::new();
    let endpoints = endpoints.iter().map(|it| (labels(it), it));
    let endpoints: Vec<_> = endpoints
        .filter(|(key, _)| seen.insert(key.clone()))
        .collect();
    if !endpoints.is_empty() {
        let name = "mx_endpoint_start_time_seconds";
        let about = "when the endpoint was opened, in seconds since 1970";
        heading(&mut out, name, "gauge", about);
        for (labels, endpoint) in &endpoints {
            let _ = writeln!(out, "{name}{{{labels}}} {}", endpoint.opened);
        }
    }
    let mut shown = HashSet::new();
    for (_, first) in &endpoints {
        for (label, _) in &first.counters {
            if is_plain(label) && shown.insert(label) {
                block(&mut out, label, &endpoints);
            }
        }
    }
    out
}

/// Writes the metric of a counter, for all endpoints that have it.
fn block(out: &mut String, label: &str, endpoints: &[(String, &Endpoint)]) {
    let known = all_counters().find(|counter| counter.label == label);
    let (name, kind, about) = match known.map(|counter| (counter.kind, counter.about)) {
        Some((CounterKind::Count, about)) => (format!("mx_{label}_total"), "counter", about),
        // Names with this suffix are counters in Prometheus.
        Some((CounterKind::Level, about)) => match label.strip_suffix("_total") {
            Some(label) => (format!("mx_{label}_credits"), "gauge", about),
            None => (format!("mx_{label}"), "gauge", about),
        },
        None => (
            format!("mx_{label}"),
            "untyped",
            "a counter of another version of the library",
        ),
    };
    heading(out, &name, kind, about);
    for (labels, endpoint) in endpoints {
        if let Some(value) = endpoint.counter(label) {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
        }
    }
}

fn heading(out: &mut String, name: &str, kind: &str, about: &str) {
    let mut about = about.to_owned();
    if let Some(first) = about.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let _ = writeln!(out, "# HELP {name} {about}.\n# TYPE {name} {kind}");
}

fn labels(endpoint: &Endpoint) -> String {
    format!(
        "board=\"{}\",endpoint=\"{}\",pid=\"{}\",program=\"{}\",library=\"{}\"",
        endpoint.board,
        endpoint.endpoint,
        endpoint.pid,
        quoted(&endpoint.program),
        quoted(&endpoint.library)
    )
}

/// Quotes another process's text; control characters have been removed already.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Returns whether a label may be part of a metric's name.
fn is_plain(label: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !label.is_empty() && label.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::NicId;
    use std::time::Duration;

    fn endpoint(pid: u32, program: &str, counters: &[(&str, u64)]) -> Endpoint {
        Endpoint {
            pid,
            program: program.into(),
            library: "bmi_mx".into(),
            board: 0,
            endpoint: 3,
            nic: NicId(1),
            session: 1,
            ports: vec!["tcp"],
            tcp_port: None,
            provider: String::new(),
            age: Duration::from_secs(1),
            opened: 1_790_000_000,
            counters: counters.iter().map(|(l, v)| ((*l).into(), *v)).collect(),
            peers: Vec::new(),
        }
    }

    /// Metrics with their kinds.
    type Metrics = Vec<(String, String)>;

    /// Series with their values.
    type Samples = Vec<(String, u64)>;

    /// Parses the exposition format; panics on an invalid line.
    fn parse(text: &str) -> (Metrics, Samples) {
        let name_of = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            text[..end.unwrap_or(text.len())].to_owned()
        };
        let (mut metrics, mut samples) = (Vec::new(), Vec::new());
        let mut helped = String::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                helped = name_of(help);
                assert!(help.len() > helped.len() + 1, "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, helped);
                assert!(["counter", "gauge", "untyped"].contains(&kind), "{line}");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                metrics.push((name.to_owned(), kind.to_owned()));
            } else {
                // All lines of a metric follow its heading.
                let name = name_of(line);
                assert_eq!(name, metrics.last().unwrap().0);
                let (series, value) = line.rsplit_once(' ').unwrap();
                let rest = &series[name.len()..];
                assert!(
                    rest.is_empty() || rest.starts_with('{') && rest.ends_with('}'),
                    "{line}"
                );
                samples.push((series.to_owned(), value.parse().unwrap()));
            }
        }
        (metrics, samples)
    }

    #[test]
    fn every_counter_is_a_metric_of_its_own() {
        let all: Vec<_> = all_counters().zip(1..).map(|(c, n)| (c.label, n)).collect();
        let (metrics, samples) = parse(&text(&[endpoint(7, "server", &all)]));
        let names: HashSet<_> = metrics.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), metrics.len());
        assert_eq!(metrics.len(), all.len() + 2);
        assert_eq!(samples.len(), metrics.len());
        let labels = "{board=\"0\",endpoint=\"3\",pid=\"7\",program=\"server\",library=\"bmi_mx\"}";
        assert!(samples.contains(&(format!("mx_packets_out_total{labels}"), 1)));
        assert!(metrics.contains(&("mx_flow_credits".into(), "gauge".into())));
    }

    #[test]
    fn endpoints_share_the_heading_of_a_metric() {
        let one = endpoint(7, "a", &[("matched", 1), ("links", 2)]);
        let other = endpoint(8, "b", &[("matched", 3), ("of_a_later_version", 4)]);
        let (metrics, samples) = parse(&text(&[one, other]));
        let kinds: Vec<_> = metrics.iter().map(|(n, k)| (&**n, &**k)).collect();
        assert_eq!(
            kinds[2..],
            [
                ("mx_matched_total", "counter"),
                ("mx_links", "gauge"),
                ("mx_of_a_later_version", "untyped")
            ]
        );
        assert_eq!(samples[0], ("mx_endpoints".into(), 2));
        assert_eq!(samples.len(), 1 + 2 + 2 + 1 + 1);
    }

    #[test]
    fn none_open_is_said_too() {
        assert_eq!(parse(&text(&[])).1, [("mx_endpoints".into(), 0)]);
    }

    #[test]
    fn what_another_process_wrote_breaks_no_line() {
        let evil = endpoint(7, "a\"b\\", &[("matched", 1), ("No Name{}", 2)]);
        // A duplicate endpoint: only one is kept.
        let text = text(&[evil.clone(), evil]);
        assert_eq!(parse(&text).1.len(), 3, "{text}");
        assert!(text.contains(r#"program="a\"b\\","#), "{text}");
    }
}
