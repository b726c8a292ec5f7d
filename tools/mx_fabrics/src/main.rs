//! What libfabric's providers on this machine offer, and what the rdm port makes of each.
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
//! Owns: the command line.
//! Knows nothing of: which provider is good for what; that is `mx_port_rdm`'s.

mod names;
mod print;
mod row;

use lexopt::prelude::{Long, Short};
use libfabric_sys::Library;
use mx_port_rdm::{hardware, survey};
use row::{Machine, Row};
use std::process::ExitCode;

const USAGE: &str = "\
usage: mx_fabrics [--json | --markdown | --usable]

Lists libfabric's providers on this machine: what each offers, whether the rdm port uses it, and
which path each class of message takes over it. MX_LIBFABRIC names another library.

  --json       one JSON object
  --markdown   tables for a document
  --usable     only the names of providers that can be used, the one that is chosen first
";

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    Text,
    Json,
    Markdown,
    Usable,
}

fn main() -> ExitCode {
    let style = match style() {
        Ok(Some(style)) => style,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("mx_fabrics: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
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
    // What is used stands first.
    rows.sort_by_key(|row| row.rank());
    let text = match style {
        Style::Text => print::text(&machine, &rows),
        Style::Json => print::json(&machine, &rows),
        Style::Markdown => print::markdown(&machine, &rows),
        Style::Usable => print::usable(&rows),
    };
    print!("{text}");
    ExitCode::SUCCESS
}

/// `None` when help was asked for.
fn style() -> Result<Option<Style>, lexopt::Error> {
    let mut style = Style::Text;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        style = match argument {
            Long("json") => Style::Json,
            Long("markdown") => Style::Markdown,
            Long("usable") => Style::Usable,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(argument.unexpected()),
        };
    }
    Ok(Some(style))
}
