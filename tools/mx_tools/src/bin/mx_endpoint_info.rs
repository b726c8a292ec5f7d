//! The open endpoints of this machine, one by one.

use mx_tools::args::{Args, Takes};
use mx_tools::endpoints;
use mx_tools::json::Json;
use mx_tools::text::show;
use std::process::ExitCode;

const USAGE: &str = "\
usage: mx_endpoint_info [-b BOARD] [-e ENDPOINT] [-p PID] [--json]

Shows the open endpoints of this machine: whose they are, over which ports they are reached, and
what is posted on them. Only root sees those of other users. Those of other network namespaces
are seen from there.

  -b BOARD     only endpoints of this board
  -e ENDPOINT  only endpoints of this number
  -p PID       only endpoints of this process
  --json       one JSON list

Ends with 1 when there is none.
";

fn main() -> ExitCode {
    let args = match Args::parse("mx_endpoint_info", USAGE, Takes::Endpoints) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let found = endpoints::find(|found| args.wants(found));
    if args.json {
        let list = found.iter().map(endpoints::Endpoint::json).collect();
        show(&format!("{}\n", Json::List(list)));
    } else {
        let blocks: Vec<String> = found.iter().map(endpoints::Endpoint::block).collect();
        show(&blocks.join("\n"));
    }
    match found.is_empty() {
        true => {
            eprintln!("mx_endpoint_info: no such endpoint is open");
            ExitCode::FAILURE
        }
        false => ExitCode::SUCCESS,
    }
}
