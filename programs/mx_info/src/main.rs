//! `mx_info`: the tool that shows endpoints, peers, counters and fabrics.
//!
//! ```text
//!   mx_info             boards, endpoints, providers, peers     machine
//!   mx_info endpoints   one block for each endpoint             endpoints
//!   mx_info peers       peers, and what operations wait for     peers
//!   mx_info counters    numbers, once or repeatedly             counters
//!                       for a node exporter, with descriptions  prometheus
//!   mx_info fabrics     libfabric's providers, one by one       fabrics
//!                                  |
//!                       text, serde_json: the output
//! ```
//!
//! The program looks from outside: at the kernel's interfaces, at libfabric's providers, and at the pages that
//! processes publish about their endpoints (`mx_sys::published`). `mx_info` opens no endpoint. Text of other processes
//! is shown only after [`text::printable`].

mod again;
mod counters;
mod endpoints;
mod fabrics;
mod machine;
mod peers;
mod prometheus;
mod text;

use clap::Parser;
use mx_sys::Settings;
use std::path::Path;
use std::process::ExitCode;

#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    machine: machine::Args,
}

#[derive(clap::Subcommand)]
enum Part {
    Endpoints(endpoints::Args),
    Peers(peers::Args),
    Counters(counters::Args),
    Fabrics(fabrics::Args),
}

impl CommandLine {
    /// Parses the command line. Under its own program name a part has the whole command line.
    fn read(name: &str) -> Self {
        let part = match name {
            "mx_endpoint_info" => Part::Endpoints(Parser::parse()),
            "mx_counters" => Part::Counters(Parser::parse()),
            "mx_fabrics" => Part::Fabrics(Parser::parse()),
            _ => return Self::parse(),
        };
        let machine = machine::Args::default();
        Self {
            part: Some(part),
            machine,
        }
    }
}

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    let name = Path::new(&called)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let args = CommandLine::read(&name);
    for refused in Settings::of_process().1 {
        eprintln!("{name}: {refused}");
    }
    let outcome = match args.part {
        None => args.machine.show(),
        Some(Part::Endpoints(args)) => args.show(),
        Some(Part::Peers(args)) => args.show(),
        Some(Part::Counters(args)) => args.show(),
        Some(Part::Fabrics(args)) => args.show(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_own_options() {
        let read = |line: &str| CommandLine::try_parse_from(line.split_whitespace()).ok();
        let fine = [
            "mx_info",
            "mx_info -b 1 --json",
            "mx_info endpoints -b 1 -e 3 -p 7 --json",
            "mx_info counters --prometheus",
            "mx_info peers -e 3 --busy --watch 1 --count 2 --json",
            "mx_info fabrics --usable",
        ];
        assert!(fine.iter().all(|line| read(line).is_some()));
        let nonsense = [
            "mx_info -b 1 endpoints",
            "mx_info --usable",
            "mx_info help",
            "mx_info endpoints --watch 1",
            "mx_info fabrics --json --usable",
        ];
        for line in nonsense {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
