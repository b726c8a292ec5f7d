//! Boards, open endpoints, libfabric's providers, and the peers this machine knows.

use clap::Parser;
use mx_tools::args;
use mx_tools::machine::Machine;
use mx_tools::text::show;
use std::process::ExitCode;

const ABOUT: &str = "\
Lists the boards of this machine with their addresses, the endpoints that are open on them,
libfabric's providers, and the hosts of the peers file. What another network namespace has is seen
from there.";

#[derive(Parser)]
#[command(about = ABOUT)]
struct Args {
    /// Only this board
    #[arg(short)]
    board: Option<u32>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args: Args = args::read("mx_info");
    let Some(machine) = Machine::look(args.board) else {
        eprintln!("mx_info: this machine has no such board");
        return ExitCode::FAILURE;
    };
    show(&if args.json {
        format!("{}\n", machine.json())
    } else {
        machine.text()
    });
    ExitCode::SUCCESS
}
