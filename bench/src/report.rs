//! Results for people (a table) and for programs (one JSON object a line).

use crate::bursts::Bursts;
use crate::figures::Spread;
use crate::targets::Target;
use serde_json::json;

/// A measured figure with its reference.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) test: &'static str,
    pub(crate) port: &'static str,
    /// Bytes of a message; for some tests another count.
    pub(crate) size: usize,
    /// Unit of the figure: median_us, mb_s, msg_s, cpu_percent.
    pub(crate) unit: &'static str,
    pub(crate) value: Spread,
    /// The 99th percentile, if measured.
    pub(crate) p99_us: Option<f64>,
    /// Name and figure of the reference.
    pub(crate) reference: Option<(String, Spread)>,
    /// Ratio of this figure to the reference, pairwise.
    pub(crate) ratio: Option<Spread>,
    /// Percentage of datagrams dropped on purpose.
    pub(crate) loss_percent: Option<f64>,
    /// Number of pieces of each message, if it was a list.
    pub(crate) pieces: Option<usize>,
    /// Bursts from which `value` and `ratio` were taken, if measured in turn.
    pub(crate) bursts: Bursts,
}

const BURSTS_A_LINE: usize = 8;

/// Returns the columns' titles.
pub(crate) fn heading() -> String {
    format!(
        "{:<10} {:<6} {:>9} {:>14} {:>10} {:>22} {:>12} {:>7}  {:<16} at least, goal",
        "test", "port", "size", "figure", "p99", "reference", "", "ratio", "(min .. max)"
    )
}

/// Prints one result.
pub(crate) fn print(row: &Row, json: bool) {
    let text = || as_text(row) + &bursts_as_text(&row.bursts);
    println!("{}", if json { as_json(row) } else { text() });
}

/// Formats a row of the table, without bursts.
fn as_text(row: &Row) -> String {
    let figure = format!("{} {}", short(row.value.median), unit(row.unit));
    let p99 = row
        .p99_us
        .map_or(String::new(), |p99| format!("{} us", short(p99)));
    let (reference, value) = match &row.reference {
        Some((name, value)) => (
            name.as_str(),
            format!("{} {}", short(value.median), unit(row.unit)),
        ),
        None => ("", String::new()),
    };
    let (ratio, spread) = match row.ratio {
        Some(ratio) => (
            format!("{:.2}", ratio.median),
            format!("({:.2} .. {:.2})", ratio.min, ratio.max),
        ),
        None => Default::default(),
    };
    let port = row.port;
    let size = match row.pieces {
        Some(pieces) => format!("{}/{pieces}", row.size),
        None => row.size.to_string(),
    };
    let test = match row.loss_percent {
        Some(percent) => format!("{} {percent}%", row.test),
        None => row.test.to_owned(),
    };
    let target = Target::of(row).map_or(String::new(), |target| target.judge(row));
    let line = format!(
        "{test:<10} {port:<6} {size:>9} {figure:>14} {p99:>10} {reference:>22} {value:>12} \
         {ratio:>7}  {spread:<16} {target}"
    );
    line.trim_end().to_owned()
}

/// Formats the ratio of each burst with the time of the bare ring before it, several a line.
fn bursts_as_text(bursts: &Bursts) -> String {
    let mut text = String::new();
    for (n, line) in bursts.0.chunks(BURSTS_A_LINE).enumerate() {
        let title = if n == 0 { "ring us: ratio" } else { "" };
        text += &format!("\n    {title:<14}");
        for burst in line {
            text += &format!("  {:.3}: {:.2}", burst.ring_us, burst.ratio());
        }
    }
    text
}

fn as_json(row: &Row) -> String {
    let mut line = format!(
        r#"{{"test":"{}","port":"{}","size":{},"{}":{:.4}"#,
        row.test, row.port, row.size, row.unit, row.value.median
    );
    if let Some(percent) = row.loss_percent {
        line += &format!(r#","loss_percent":{percent}"#);
    }
    if let Some(pieces) = row.pieces {
        line += &format!(r#","pieces":{pieces}"#);
    }
    if let Some(p99) = row.p99_us {
        line += &format!(r#","p99_us":{p99:.4}"#);
    }
    if let Some((name, value)) = &row.reference {
        let (name, value) = (json!(name), value.median);
        line += &format!(r#","reference":{name},"reference_value":{value:.4}"#);
    }
    if let Some(Spread { median, min, max }) = row.ratio {
        line += &format!(r#","ratio":{median:.4},"ratio_min":{min:.4},"ratio_max":{max:.4}"#);
    }
    if !row.bursts.0.is_empty() {
        let bursts = row.bursts.0.iter().map(|burst| {
            format!(
                r#"{{"ring_us":{:.4},"reference":{:.4},"figure":{:.4}}}"#,
                burst.ring_us, burst.reference, burst.method
            )
        });
        let bursts = bursts.collect::<Vec<_>>().join(",");
        line += &format!(r#","bursts":[{bursts}]"#);
    }
    if let Some(target) = Target::of(row) {
        line += &format!(
            r#","at_least":{},"goal":{},"reached":"{}""#,
            target.at_least,
            target.goal,
            target.reached(row)
        );
    }
    line + "}"
}

fn unit(name: &str) -> &str {
    match name {
        "median_us" => "us",
        "mb_s" => "MB/s",
        "msg_s" => "msg/s",
        "cpu_percent" => "% CPU",
        "bytes" => "B",
        other => other,
    }
}

/// Reports that a port was not measured, and why.
pub(crate) fn not_measured(port: &str, why: &str, json: bool) {
    if json {
        let why = json!(why);
        println!(r#"{{"port":"{port}","not_measured":{why}}}"#);
    } else {
        println!("{port} was not measured: {why}");
    }
}

/// Formats about three significant digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use crate::bursts::Burst;

    fn row(test: &'static str, size: usize, unit: &'static str, value: f64) -> Row {
        Row {
            test,
            port: "local",
            size,
            unit,
            value: Spread::of(&[value]),
            p99_us: None,
            reference: None,
            ratio: None,
            loss_percent: None,
            pieces: None,
            bursts: Bursts::default(),
        }
    }

    fn beside(name: &str, value: f64) -> Option<(String, Spread)> {
        Some((name.into(), Spread::of(&[value])))
    }

    #[test]
    fn a_row_is_one_json_object() {
        let ratio = Spread {
            median: 2.0,
            min: 1.5,
            max: 3.0,
        };
        let row = Row {
            p99_us: Some(0.2),
            reference: beside("bare ring", 0.05),
            ratio: Some(ratio),
            ..row("latency", 8, "median_us", 0.1)
        };
        assert_eq!(
            as_json(&row),
            concat!(
                r#"{"test":"latency","port":"local","size":8,"median_us":0.1000,"p99_us":0.2000,"#,
                r#""reference":"bare ring","reference_value":0.0500,"#,
                r#""ratio":2.0000,"ratio_min":1.5000,"ratio_max":3.0000,"#,
                r#""at_least":4,"goal":2,"reached":"goal"}"#
            )
        );
    }

    #[test]
    fn every_burst_says_what_a_bare_ring_took() {
        let burst = Burst {
            ring_us: 0.0612,
            reference: 0.2,
            method: 0.6,
        };
        let row = Row {
            reference: beside("UCX", 0.2),
            bursts: Bursts(vec![burst; BURSTS_A_LINE + 1]),
            ..row("latency", 8, "median_us", 0.6)
        };
        let text = bursts_as_text(&row.bursts);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("    ring us: ratio  0.061: 3.00  "));
        assert!(lines[1].ends_with("  0.061: 3.00"));
        let json = as_json(&row);
        assert!(
            json.contains(r#""bursts":[{"ring_us":0.0612,"reference":0.2000,"figure":0.6000},"#)
        );
    }

    #[test]
    fn what_was_thrown_away_stands_beside_the_test() {
        let row = Row {
            port: "dgram",
            loss_percent: Some(0.1),
            ..row("loss", 8, "mb_s", 50.0)
        };
        assert!(as_text(&row).starts_with("loss 0.1%  dgram "));
        assert!(
            as_json(&row).contains(r#","loss_percent":0.1,"#)
                || as_json(&row).ends_with(r#","loss_percent":0.1}"#)
        );
    }

    #[test]
    fn lists_show_their_pieces_and_have_no_limits() {
        let row = Row {
            reference: beside("bare ring", 40.0),
            ratio: Some(Spread::of(&[2.0])),
            pieces: Some(2048),
            ..row("latency", 1 << 20, "median_us", 80.0)
        };
        assert!(as_text(&row).contains(" 1048576/2048 "));
        assert!(as_json(&row).contains(r#""size":1048576,"median_us":80.0000,"pieces":2048,"#));
        assert!(Target::of(&row).is_none());
    }

    #[test]
    fn quotes_do_not_end_a_string() {
        let row = Row {
            reference: beside("a\"b\\c\nd", 0.2),
            ..row("latency", 8, "median_us", 0.6)
        };
        assert!(as_json(&row).contains(r#","reference":"a\"b\\c\nd","reference_value":0.2000"#));
    }
}
