//! The counters of open endpoints, while their processes run.

use clap::Parser;
use mx_tools::args::{self, Which};
use mx_tools::counters::Watch;
use mx_tools::endpoints;
use mx_tools::prometheus;
use mx_tools::text::show;
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

const ABOUT: &str = "\
Shows what the open endpoints of this machine have counted, without disturbing them. Only root sees
those of other users. Those of other network namespaces are seen from there.";

const AFTER: &str = "\
Ends with 1 when no such endpoint is open to begin with; with --prometheus that is no failure.";

#[derive(Parser)]
#[command(about = ABOUT, after_help = AFTER)]
struct Args {
    #[command(flatten)]
    which: Which,
    /// Also counters that are 0
    #[arg(short, long)]
    all: bool,
    /// Again and again, with rates, until no such endpoint is open
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    watch: Option<Duration>,
    /// At most N times
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<NonZeroU64>,
    /// One JSON object a line for each endpoint
    #[arg(long)]
    json: bool,
    /// All counters as metrics, for a node exporter's text file
    #[arg(long, conflicts_with_all = ["json", "all", "watch"])]
    prometheus: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|n| (0.01..=86_400.0).contains(n));
    let seconds = seconds.ok_or("it is no number of seconds from 0.01 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

fn main() -> ExitCode {
    let args: Args = args::read("mx_counters");
    if args.prometheus {
        let found = endpoints::find(|found| args.which.wants(found));
        show(&prometheus::text(&found));
        return ExitCode::SUCCESS;
    }
    let mut watch = Watch::default();
    let mut last: Option<Instant> = None;
    let mut shown = 0;
    loop {
        let found = endpoints::find(|found| args.which.wants(found));
        let now = Instant::now();
        let passed = last.map(|last| now - last);
        if found.is_empty() {
            break;
        }
        let text = if args.json {
            watch.json(&found, passed)
        } else {
            watch.text(&found, passed, args.all)
        };
        // An empty line between one time and the next.
        let gap = if shown > 0 && !args.json { "\n" } else { "" };
        shown += 1;
        if !show(&format!("{gap}{text}")) || args.count.is_some_and(|count| shown >= count.get()) {
            break;
        }
        let Some(pause) = args.watch else { break };
        last = Some(now);
        sleep(pause);
    }
    match shown {
        0 => {
            eprintln!("mx_counters: no such endpoint is open");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(args.watch, Some(Duration::from_millis(500)));
        assert_eq!(args.count.map(NonZeroU64::get), Some(2));
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
