//! libfabric's providers on this machine, and the use that the rdm port makes of each.
//!
//! ```text
//!   mx_fabrics [--json | --markdown | --usable]
//!
//!   libfabric-sys: the library     mx-port-rdm: survey, adapters
//!              `------------------.-----------'
//!                               Row  (names for libfabric's numbers: `names`)
//!                                 |
//!                     text, JSON or Markdown  (`print`)
//! ```
//!
//! Owns: the command line. The providers are rated by `mx_port_rdm`.

mod names;
mod print;
mod row;

use clap::Parser;
use libfabric_sys::Library;
use mx_port_rdm::{hardware, survey};
use row::{Machine, Row};
use std::process::ExitCode;

const ABOUT: &str = "\
Lists libfabric's providers on this machine: what each offers, whether the rdm port uses it, and
which path each class of message takes over it. MX_LIBFABRIC names another library.";

/// The output's format; text without any.
#[derive(Parser)]
#[command(about = ABOUT)]
#[group(multiple = false)]
struct Args {
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Tables for a document
    #[arg(long)]
    markdown: bool,
    /// Only the names of providers that can be used, the one that is chosen first
    #[arg(long)]
    usable: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let library = match Library::get() {
        Ok(library) => library,
        Err(error) => {
            eprintln!("mx_fabrics: {error}");
            return ExitCode::FAILURE;
        }
    };
    let machine = Machine {
        version: library.version(),
        adapters: hardware::adapters(),
    };
    let mut rows: Vec<Row> = survey(library)
        .iter()
        .map(|finding| Row::new(library, finding))
        .collect();
    // The provider that is used stands first.
    rows.sort_by_key(|row| row.rank());
    let text = match args {
        Args { json: true, .. } => print::json(&machine, &rows),
        Args { markdown: true, .. } => print::markdown(&machine, &rows),
        Args { usable: true, .. } => print::usable(&rows),
        _ => print::text(&machine, &rows),
    };
    print!("{text}");
    ExitCode::SUCCESS
}
