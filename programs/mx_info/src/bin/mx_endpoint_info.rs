//! The open endpoints of this machine, one by one.

use clap::Parser;
use mx_tools::args::{self, Which};
use mx_tools::endpoints;
use mx_tools::json::Json;
use mx_tools::text::show;
use std::process::ExitCode;

const ABOUT: &str = "\
Shows the open endpoints of this machine: whose they are, over which ports they are reached, and
what is posted on them. Only root sees those of other users. Those of other network namespaces
are seen from there.";

#[derive(Parser)]
#[command(about = ABOUT, after_help = "Ends with 1 when there is none.")]
struct Args {
    #[command(flatten)]
    which: Which,
    /// One JSON list
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args: Args = args::read("mx_endpoint_info");
    let found = endpoints::find(|found| args.which.wants(found));
    if args.json {
        let list = found.iter().map(endpoints::Endpoint::json).collect();
        show(&format!("{}\n", Json::List(list)));
    } else {
        let blocks: Vec<String> = found.iter().map(endpoints::Endpoint::block).collect();
        show(&blocks.join("\n"));
    }
    if found.is_empty() {
        eprintln!("mx_endpoint_info: no such endpoint is open");
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
