//! The figures of each number of peers, for people and for programs.
//!
//! Owns: the limits, printed beside the figures.

use super::measure::Point;
use crate::figures::Spread;

/// Maximum of the process's memory for a peer, in bytes.
const MEMORY: f64 = 2048.0;
/// Maximum ratio of a round trip's time to that with one peer.
const LATENCY: f64 = 1.3;
/// Minimum ratio of the rate of unexpected messages to that of one peer.
const RATE: f64 = 0.7;
/// Number of clients that connect at the same time, and the seconds that it may take.
const STORM: (usize, f64) = (2000, 5.0);

pub(crate) fn heading() -> String {
    format!(
        "a server and N clients over TCP; round trips of 8 bytes; clients on one core, the server \
         on another\n\
         {:>7} {:>9} {:>9} {:>9} {:>9} {:>10} {:>7} {:>9} {:>8} {:>21} {:>10} {:>8} {:>10} {:>8} {:>21}",
        "peers",
        "heap/peer",
        "after",
        "rss/peer",
        "kernel",
        "connect/s",
        "idle %",
        "one asks",
        "p99, us",
        "/ one (min .. max)",
        "all ask/s",
        "CPU, us",
        "flood/s",
        "CPU, us",
        "/ one (min .. max)"
    )
}

pub(crate) fn print(point: &Point, json: bool) {
    println!("{}", if json { as_json(point) } else { as_text(point) });
}

pub(crate) fn not_measured(peers: usize, most: usize, json: bool) {
    if json {
        println!(
            r#"{{"test":"scale","peers":{peers},"not_measured":"descriptors for {most} only"}}"#
        );
    } else {
        println!("{peers:>7} not measured: the limit of descriptors is for {most} peers");
    }
}

fn as_text(point: &Point) -> String {
    let each = |bytes: f64| bytes / point.peers as f64;
    let spread = |of: Spread| format!("{:.2} ({:.2} .. {:.2})", of.median, of.min, of.max);
    let mut line = format!(
        "{:>7} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>10.0} {:>7.2} {:>9.2} {:>8.1} {:>21} {:>10.0} {:>8.2} \
         {:>10.0} {:>8.2} {:>21}",
        point.peers,
        each(point.heap),
        each(point.heap_after),
        each(point.resident),
        each(point.kernel),
        point.peers as f64 / point.connect_s,
        point.idle_percent,
        point.latency.median,
        point.latency_p99,
        spread(point.latency_ratio),
        point.requests_s,
        point.request_cpu_us,
        point.flood_s,
        point.flood_cpu_us,
        spread(point.flood_ratio),
    );
    for (what, wanted, reached) in verdicts(point) {
        let word = if reached { "reached" } else { "missed" };
        line += &format!("\n{:>9} {what} {wanted}: {word}", "");
    }
    line
}

/// Returns each figure that has a limit: its name, the limit, and whether it is met.
fn verdicts(point: &Point) -> Vec<(String, String, bool)> {
    let mut verdicts = Vec::new();
    if point.peers >= STORM.0 {
        let each = point.heap / point.peers as f64;
        verdicts.push((
            format!("{each:.0} bytes a peer"),
            format!("<= {MEMORY}"),
            each <= MEMORY,
        ));
    }
    if point.peers == STORM.0 {
        let (time, most) = (point.connect_s, STORM.1);
        verdicts.push((
            format!("storm of {} in {time:.2} s", point.peers),
            format!("<= {most} s"),
            time <= most,
        ));
    }
    if point.peers > 1 {
        let (latency, rate) = (point.latency_ratio.median, point.flood_ratio.median);
        verdicts.push((
            format!("latency {latency:.2} of one peer's"),
            format!("<= {LATENCY}"),
            latency <= LATENCY,
        ));
        verdicts.push((
            format!("{} flooding {rate:.2} of one", point.busy),
            format!(">= {RATE}"),
            rate >= RATE,
        ));
    }
    verdicts
}

fn as_json(point: &Point) -> String {
    let Point {
        peers,
        heap,
        heap_after,
        resident,
        kernel,
        descriptors,
        threads,
        connect_s,
        idle_percent,
        latency,
        latency_p99,
        latency_ratio,
        requests_s,
        request_cpu_us,
        busy,
        flood_s,
        flood_cpu_us,
        flood_ratio,
        flood_cpu_ratio,
    } = point;
    let mut line = format!(r#"{{"test":"scale","peers":{peers}"#);
    for (name, value) in [
        ("heap_bytes", *heap),
        ("heap_after_bytes", *heap_after),
        ("resident_bytes", *resident),
        ("kernel_bytes_both_ends", *kernel),
        ("descriptors", *descriptors as f64),
        ("threads", *threads as f64),
        ("connect_s", *connect_s),
        ("idle_cpu_percent", *idle_percent),
        ("latency_us", latency.median),
        ("latency_p99_us", *latency_p99),
        ("latency_ratio", latency_ratio.median),
        ("latency_ratio_min", latency_ratio.min),
        ("latency_ratio_max", latency_ratio.max),
        ("requests_s", *requests_s),
        ("request_cpu_us", *request_cpu_us),
        ("busy", *busy as f64),
        ("flood_s", *flood_s),
        ("flood_cpu_us", *flood_cpu_us),
        ("flood_ratio", flood_ratio.median),
        ("flood_ratio_min", flood_ratio.min),
        ("flood_ratio_max", flood_ratio.max),
        ("flood_cpu_ratio", flood_cpu_ratio.median),
    ] {
        line += &format!(r#","{name}":{value:.4}"#);
    }
    line + "}"
}

#[cfg(test)]
mod unit {
    use super::*;

    fn point(peers: usize, heap: f64, latency: f64, flood: f64) -> Point {
        Point {
            peers,
            heap,
            heap_after: heap,
            resident: heap,
            kernel: 2.0 * heap,
            descriptors: peers as i64,
            threads: 0,
            connect_s: 1.0,
            idle_percent: 0.1,
            latency: Spread::of(&[7.0]),
            latency_p99: 9.0,
            latency_ratio: Spread::of(&[latency]),
            requests_s: 1000.0,
            request_cpu_us: 5.0,
            busy: peers.min(1000),
            flood_s: 1000.0,
            flood_cpu_us: 1.0,
            flood_ratio: Spread::of(&[flood]),
            flood_cpu_ratio: Spread::of(&[1.0]),
        }
    }

    #[test]
    fn limits_are_kept_at_their_values_and_not_beyond() {
        let reached = |point: &Point| -> Vec<bool> {
            verdicts(point)
                .into_iter()
                .map(|(.., reached)| reached)
                .collect()
        };
        let at = point(2000, 2000.0 * 2048.0, 1.3, 0.7);
        assert_eq!(reached(&at), [true; 4]);
        let beyond = Point {
            connect_s: 5.1,
            ..point(2000, 2000.0 * 2049.0, 1.31, 0.69)
        };
        assert_eq!(reached(&beyond), [false; 4]);
        assert!(verdicts(&point(1, 1e9, 1.0, 1.0)).is_empty());
    }

    #[test]
    fn a_point_is_one_json_object() {
        let line = as_json(&point(10, 20480.0, 1.0, 1.0));
        assert!(line.starts_with(r#"{"test":"scale","peers":10,"heap_bytes":20480.0000,"#));
        assert!(line.ends_with('}') && line.matches('{').count() == 1);
    }
}
