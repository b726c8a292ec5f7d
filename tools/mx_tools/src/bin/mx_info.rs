//! Boards, open endpoints, libfabric's providers, and the peers this machine knows.

use mx_tools::args::{Args, Takes};
use mx_tools::machine::Machine;
use mx_tools::text::show;
use std::process::ExitCode;

const USAGE: &str = "\
usage: mx_info [-b BOARD] [--json]

Lists the boards of this machine with their addresses, the endpoints that are open on them,
libfabric's providers, and the hosts of the peers file. What another network namespace has is seen
from there.

  -b BOARD  only this board
  --json    one JSON object
";

fn main() -> ExitCode {
    let args = match Args::parse("mx_info", USAGE, Takes::Board) {
        Ok(args) => args,
        Err(code) => return code,
    };
    let Some(machine) = Machine::look(args.board) else {
        eprintln!("mx_info: this machine has no such board");
        return ExitCode::FAILURE;
    };
    show(&match args.json {
        true => format!("{}\n", machine.json()),
        false => machine.text(),
    });
    ExitCode::SUCCESS
}
