//! The providers as text, Markdown or JSON.
//!
//! ```text
//!   paths     provider  verdict  small  medium  large  waits on
//!   offers    provider  version  type  inject  address  caps  mode  mr_mode
//!   refused   provider  why
//! ```
//!
//! Owns: layout and quoting.

use crate::row::{Machine, Row};
use std::fmt::Write as _;

/// Three tables with a heading each, aligned.
pub(crate) fn text(machine: &Machine, rows: &[Row]) -> String {
    let mut out = heading(machine) + "\n";
    for (name, table) in tables(rows) {
        if table.len() > 1 {
            let _ = writeln!(out, "\n{name}");
            out += &aligned(&table);
        }
    }
    out
}

/// The same for a document.
pub(crate) fn markdown(machine: &Machine, rows: &[Row]) -> String {
    let mut out = heading(machine) + "\n";
    for (name, table) in tables(rows) {
        if table.len() > 1 {
            let _ = writeln!(out, "\n{name}:\n");
        }
        for (index, line) in table.iter().enumerate().filter(|_| table.len() > 1) {
            let _ = writeln!(out, "| {} |", line.join(" | "));
            if index == 0 {
                let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
            }
        }
    }
    out
}

/// One object.
pub(crate) fn json(machine: &Machine, rows: &[Row]) -> String {
    let objects: Vec<String> = rows.iter().map(object).collect();
    let (major, minor) = machine.version;
    format!(
        "{{\"libfabric\":\"{major}.{minor}\",\"adapters\":{},\"providers\":[{}]}}\n",
        list(&machine.adapters),
        objects.join(",")
    )
}

/// Names, one a line.
pub(crate) fn usable(rows: &[Row]) -> String {
    let names = rows.iter().filter(|row| row.is_usable());
    names.map(|row| format!("{}\n", row.provider)).collect()
}

fn heading(machine: &Machine) -> String {
    let (major, minor) = machine.version;
    let adapters = if machine.adapters.is_empty() {
        "none".to_owned()
    } else {
        machine.adapters.join(", ")
    };
    format!("libfabric {major}.{minor}; fabric adapters: {adapters}")
}

type Table = Vec<Vec<String>>;

fn tables(rows: &[Row]) -> [(&'static str, Table); 3] {
    let line = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
    let mut paths: Table = vec![line(&[
        "provider", "verdict", "small", "medium", "large", "waits on",
    ])];
    let mut offers: Table = vec![line(&[
        "provider",
        "version",
        "endpoint",
        "inject",
        "address",
        "capabilities",
        "mode",
        "mr_mode",
    ])];
    let mut others: Table = vec![line(&["provider", "verdict", "why"])];
    for row in rows {
        let joined = |bits: &[String]| {
            if bits.is_empty() {
                "0".to_owned()
            } else {
                bits.join(" ")
            }
        };
        match &row.paths {
            Some(it) => paths.push(line(&[
                &row.provider,
                row.verdict,
                &it.small,
                &it.medium,
                &it.large,
                it.waits,
            ])),
            None => others.push(line(&[&row.provider, row.verdict, &row.reason])),
        }
        offers.push(line(&[
            &row.provider,
            &row.version,
            &row.ep_type,
            &row.inject.to_string(),
            &row.address,
            &row.caps.join(" "),
            &joined(&row.mode),
            &joined(&row.mr_mode),
        ]));
    }
    [
        ("Which path a message takes", paths),
        ("What is offered", offers),
        ("Not used", others),
    ]
}

fn aligned(table: &Table) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let widest = |column| {
        let widths = table
            .iter()
            .filter_map(|line: &Vec<String>| line.get(column));
        widths
            .map(|cell: &String| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut out = String::new();
    for line in table {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
    out
}

fn object(row: &Row) -> String {
    let mut out = format!(
        "{{\"provider\":{},\"version\":{},\"verdict\":{},\"reason\":{},\"endpoint\":{},\
         \"inject\":{},\"address\":{},\"capabilities\":{},\"mode\":{},\"mr_mode\":{}",
        quoted(&row.provider),
        quoted(&row.version),
        quoted(row.verdict),
        quoted(&row.reason),
        quoted(&row.ep_type),
        row.inject,
        quoted(&row.address),
        list(&row.caps),
        list(&row.mode),
        list(&row.mr_mode),
    );
    if let Some(paths) = &row.paths {
        let _ = write!(
            out,
            ",\"small\":{},\"medium\":{},\"large\":{},\"waits\":{}",
            quoted(&paths.small),
            quoted(&paths.medium),
            quoted(&paths.large),
            quoted(paths.waits),
        );
    }
    out + "}"
}

fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(","))
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Paths;

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

    const MACHINE: Machine = Machine {
        version: (1, 17),
        adapters: Vec::new(),
    };

    #[test]
    fn text_names_paths_offers_and_refusals() {
        let text = text(&MACHINE, &rows());
        assert!(text.starts_with("libfabric 1.17; fabric adapters: none\n"));
        assert!(text.contains(
            "  tcp       chosen   inject, up to 128 B  slot copy, up to 32 KiB  copied  descriptor\n"
        ));
        assert!(text.contains("  shm       refused  it \"hangs\"\n"));
    }

    #[test]
    fn markdown_has_a_rule_under_each_heading() {
        let text = markdown(&MACHINE, &rows()[..1]);
        assert!(text.contains("| provider | verdict | small | medium | large | waits on |\n|---|---|---|---|---|---|\n| tcp |"));
        assert!(!text.contains("Not used"), "nothing is refused");
    }

    #[test]
    fn json_is_quoted() {
        let text = json(&MACHINE, &rows());
        assert!(text.starts_with(
            "{\"libfabric\":\"1.17\",\"adapters\":[],\"providers\":[{\"provider\":\"tcp\","
        ));
        assert!(text.contains("\"reason\":\"it \\\"hangs\\\"\""));
        assert!(text.ends_with("}]}\n"));
        assert_eq!(quoted("a\tb\\"), "\"a\\u0009b\\\\\"");
    }

    #[test]
    fn only_usable_names_are_listed() {
        assert_eq!(usable(&rows()), "tcp\n");
    }
}
