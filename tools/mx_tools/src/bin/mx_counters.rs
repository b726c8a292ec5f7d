//! The counters of open endpoints, while their processes run.

use mx_tools::args::{Args, Takes};
use mx_tools::counters::Watch;
use mx_tools::endpoints;
use mx_tools::prometheus;
use mx_tools::text::show;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Instant;

const USAGE: &str = "\
usage: mx_counters [-b BOARD] [-e ENDPOINT] [-p PID] [-a] [--watch SECONDS [--count N]] [--json]
       mx_counters [-b BOARD] [-e ENDPOINT] [-p PID] --prometheus

Shows what the open endpoints of this machine have counted, without disturbing them. Only root sees
those of other users. Those of other network namespaces are seen from there.

  -b BOARD         only endpoints of this board
  -e ENDPOINT      only endpoints of this number
  -p PID           only endpoints of this process
  -a, --all        also counters that are 0
  --watch SECONDS  again and again, with rates, until no such endpoint is open
  --count N        at most N times
  --json           one JSON object a line for each endpoint
  --prometheus     all counters as metrics, for a node exporter's text file

Ends with 1 when no such endpoint is open to begin with; with --prometheus that is no failure.
";

fn main() -> ExitCode {
    let args = match Args::parse("mx_counters", USAGE, Takes::Watching) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if args.prometheus {
        show(&prometheus::text(&endpoints::find(|found| {
            args.wants(found)
        })));
        return ExitCode::SUCCESS;
    }
    let mut watch = Watch::default();
    let mut last: Option<Instant> = None;
    let mut shown = 0;
    loop {
        let found = endpoints::find(|found| args.wants(found));
        let now = Instant::now();
        let passed = last.map(|last| now - last);
        if found.is_empty() {
            break;
        }
        let text = match args.json {
            true => watch.json(&found, passed),
            false => watch.text(&found, passed, args.all),
        };
        // An empty line between one time and the next.
        let gap = if shown > 0 && !args.json { "\n" } else { "" };
        shown += 1;
        if !show(&format!("{gap}{text}")) || args.count.is_some_and(|count| shown >= count) {
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
