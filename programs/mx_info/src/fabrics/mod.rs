//! libfabric's providers on this machine, and the rdm port's use of each.
//!
//! ```text
//!   libfabric-sys: the library     mx-port-rdm: survey, adapters
//!              `------------------.-----------'
//!                               Row  (names for libfabric's numbers: `names`)
//!                                 |
//!   paths     provider  verdict  small  medium  large  waits on
//!   offers    provider  version  type  inject  address  caps  mode  mr_mode
//!   refused   provider  why
//! ```
//!
//! Owns: the tables. `mx_port_rdm` rates the providers.

mod names;
mod row;

use crate::text::{aligned, show};
use clap::Parser;
use libfabric_sys::Library;
use mx_port_rdm::{hardware, survey};
use row::Row;
pub(crate) use row::verdict;
use serde_json::{Value, json};
use std::fmt::Write as _;

const ABOUT: &str = "\
Lists libfabric's providers on this machine: what each offers, whether the rdm port uses it, and
which path each class of message takes over it. MX_LIBFABRIC names another library.";

/// Format of the output; text by default.
#[derive(Parser)]
#[command(about = ABOUT)]
#[group(multiple = false)]
pub(crate) struct Args {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// Print tables in Markdown
    #[arg(long)]
    markdown: bool,
    /// Print only the names of usable providers, the chosen one first
    #[arg(long)]
    usable: bool,
}

impl Args {
    pub(crate) fn show(&self) -> Result<(), String> {
        let library = Library::get().map_err(|error| error.to_string())?;
        let machine = Machine {
            version: version(library),
            adapters: hardware::adapters(),
        };
        let findings = survey(library);
        let mut rows: Vec<Row> = findings.iter().map(Row::new).collect();
        // The provider in use comes first.
        rows.sort_by_key(Row::rank);
        show(&match self {
            Self { json: true, .. } => format!("{}\n", json(&machine, &rows)),
            Self { markdown: true, .. } => markdown(&machine, &rows),
            Self { usable: true, .. } => usable(&rows),
            _ => text(&machine, &rows),
        });
        Ok(())
    }
}

/// Data common to all rows.
struct Machine {
    /// Version of libfabric.
    version: String,
    adapters: Vec<String>,
}

/// Returns libfabric's version.
pub(crate) fn version(library: &Library) -> String {
    let (major, minor) = library.version();
    format!("{major}.{minor}")
}

/// Returns a line with the fabric adapters; `none` is the text without any.
pub(crate) fn adapters(adapters: &[String], none: &str) -> String {
    let names = match adapters {
        [] => none.to_owned(),
        names => names.join(", "),
    };
    format!("fabric adapters: {names}")
}

/// Returns the tables as text, each under a heading, aligned.
fn text(machine: &Machine, rows: &[Row]) -> String {
    let mut out = heading(machine);
    for Table { name, head, lines } in tables(rows) {
        let _ = write!(out, "\n{name}\n{}", aligned(head, &lines));
    }
    out
}

/// Returns the tables in Markdown, for a document.
fn markdown(machine: &Machine, rows: &[Row]) -> String {
    let mut out = heading(machine);
    for Table { name, head, lines } in tables(rows) {
        let rule = "---|".repeat(head.len());
        let _ = writeln!(out, "\n{name}:\n\n| {} |\n|{rule}", head.join(" | "));
        for line in lines {
            let _ = writeln!(out, "| {} |", line.join(" | "));
        }
    }
    out
}

fn json(machine: &Machine, rows: &[Row]) -> Value {
    json!({
        "libfabric": machine.version,
        "adapters": machine.adapters,
        "providers": rows.iter().map(Row::json).collect::<Value>(),
    })
}

/// Returns the names of usable providers, one a line.
fn usable(rows: &[Row]) -> String {
    let names = rows.iter().filter(|row| row.is_usable());
    names.map(|row| format!("{}\n", row.provider)).collect()
}

fn heading(machine: &Machine) -> String {
    let adapters = adapters(&machine.adapters, "none");
    format!("libfabric {}; {adapters}\n", machine.version)
}

struct Table {
    name: &'static str,
    head: &'static [&'static str],
    lines: Vec<Vec<String>>,
}

const PATHS: &[&str] = &[
    "provider", "verdict", "small", "medium", "large", "waits on",
];
const OFFERS: &[&str] = &[
    "provider",
    "version",
    "endpoint",
    "inject",
    "address",
    "capabilities",
    "mode",
    "mr_mode",
];
const OTHERS: &[&str] = &["provider", "verdict", "why"];

/// Returns the tables that have rows.
fn tables(rows: &[Row]) -> impl Iterator<Item = Table> {
    let (used, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_usable());
    [
        (
            "Which path a message takes",
            PATHS,
            used.into_iter().filter_map(Row::path).collect(),
        ),
        (
            "What is offered",
            OFFERS,
            rows.iter().map(Row::offer).collect(),
        ),
        (
            "Not used",
            OTHERS,
            others.into_iter().map(Row::refusal).collect(),
        ),
    ]
    .map(|(name, head, lines): (_, _, Vec<_>)| Table { name, head, lines })
    .into_iter()
    .filter(|table| !table.lines.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use row::Paths;

    fn rows() -> [Row; 2] {
        let used = Row {
            provider: "tcp".into(),
            version: "120.0".into(),
            verdict: "chosen",
            reason: String::new(),
            ep_type: "RDM".into(),
            caps: vec!["MSG", "MULTI_RECV"],
            mode: Vec::new(),
            mr_mode: vec!["LOCAL".into()],
            inject: 128,
            address: "sockaddr_in".into(),
            paths: Some(Paths {
                small: "inject, up to 128 B".into(),
                medium: "slot copy, up to 32 KiB".into(),
                large: "copied".into(),
                waits: "descriptor",
            }),
        };
        let refused = Row {
            provider: "shm".into(),
            verdict: "refused",
            reason: "it \"hangs\"".into(),
            paths: None,
            ..used.clone()
        };
        [used, refused]
    }

    fn machine() -> Machine {
        Machine {
            version: "1.17".into(),
            adapters: Vec::new(),
        }
    }

    #[test]
    fn text_names_paths_offers_and_refusals() {
        let text = text(&machine(), &rows());
        assert!(text.starts_with("libfabric 1.17; fabric adapters: none\n"));
        assert!(text.contains(
            "  tcp       chosen   inject, up to 128 B  slot copy, up to 32 KiB  copied  descriptor\n"
        ));
        assert!(text.contains("  shm       refused  it \"hangs\"\n"));
    }

    #[test]
    fn markdown_has_a_rule_under_each_heading() {
        let text = markdown(&machine(), &rows()[..1]);
        assert!(text.contains("| provider | verdict | small | medium | large | waits on |\n|---|---|---|---|---|---|\n| tcp |"));
        assert!(!text.contains("Not used"), "nothing is refused");
    }

    #[test]
    fn json_is_quoted() {
        let text = json(&machine(), &rows()).to_string();
        assert!(text.starts_with(
            "{\"libfabric\":\"1.17\",\"adapters\":[],\"providers\":[{\"provider\":\"tcp\","
        ));
        assert!(text.contains("\"reason\":\"it \\\"hangs\\\"\""));
        assert!(text.ends_with("}]}"));
    }

    #[test]
    fn only_usable_names_are_listed() {
        assert_eq!(usable(&rows()), "tcp\n");
    }
}
