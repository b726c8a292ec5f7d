//! One page with everything that a run has measured: needs no other file, and no script.
//!
//! ```text
//!   machine, command
//!   plot     table     plot     table ...
//! ```
//!
//! Owns: the page, and the plots as files of their own beside it.

use crate::plot::Plot;
use std::ffi::OsStr;
use std::fs::{self, read_to_string};
use std::path::Path;

/// Plots, and the table that they were drawn from.
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) plots: Vec<Plot>,
    pub(crate) table: String,
}

/// Writes `index.html` and every plot, and says where.
pub(crate) fn write(directory: &Path, sections: &[Section]) -> Result<(), String> {
    let named = |file: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let save = |file: &Path, text: &str| fs::write(file, text).map_err(|why| named(file, &why));
    fs::create_dir_all(directory).map_err(|why| named(directory, &why))?;
    let mut page = head(&machine(), &command());
    for Section {
        title,
        plots,
        table,
    } in sections
    {
        page += &format!("<h2>{}</h2>\n", escaped(title));
        for plot in plots {
            let file = directory.join(format!("{}.svg", plot.name));
            let svg = plot.svg().map_err(|why| named(&file, &why))?;
            save(&file, &svg)?;
            page += &svg;
        }
        page += &format!("<pre>{}</pre>\n", escaped(table));
    }
    let file = directory.join("index.html");
    save(&file, &page)?;
    // The other output is for programs, or goes into a file as a table.
    eprintln!("plots and tables: {}", file.display());
    Ok(())
}

fn head(machine: &str, command: &str) -> String {
    let (machine, command) = (escaped(machine), escaped(command));
    format!(
        r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>bmi_mx_perf</title>
<style>
:root {{ color-scheme: light dark; font-family: sans-serif }}
body {{ max-width: 1000px; margin: 1em auto; padding: 0 1em }}
svg {{ max-width: 100%; height: auto }}
pre {{ overflow-x: auto; font-size: 12px }}
</style></head><body>
<h1>The BMI method beside bare references</h1>
<p>{machine}</p>
<pre>{command}</pre>
<p>Points are medians, bands reach from the smallest to the largest of the repeats. Both axes of a plot are
logarithmic. Ratios are taken within one repeat, and count; figures of another machine do not compare.</p>
"#
    )
}

/// Processor, how many, and kernel.
fn machine() -> String {
    let processors = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = processors
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let release = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{}, {count} processors, Linux {}",
        model.unwrap_or(std::env::consts::ARCH),
        release.trim()
    )
}

/// This process's command line, as a shell takes it.
fn command() -> String {
    let words = std::env::args_os().map(|word| quoted(&word));
    words.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_page_has_all_and_needs_nothing() {
        let directory =
            std::env::temp_dir().join(format!("bmi_mx_perf-page-{}", std::process::id()));
        let section = |title: &str| Section {
            title: title.into(),
            plots: Vec::new(),
            table: "<= 2: \"goal\" & more".into(),
        };
        write(&directory, &[section("first"), section("second")]).unwrap();
        let page = read_to_string(directory.join("index.html")).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(page.contains("<h2>first</h2>") && page.contains("<h2>second</h2>"));
        assert!(page.contains("<pre>&lt;= 2: \"goal\" &amp; more</pre>"));
        assert!(page.contains(&escaped(&machine())) && page.contains(&escaped(&command())));
        for elsewhere in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn the_command_can_be_given_to_a_shell() {
        let words = ["--provider", "tcp;ofi_rxm", "it's", ""].map(|word| quoted(word.as_ref()));
        assert_eq!(words.join(" "), r"--provider 'tcp;ofi_rxm' 'it'\''s' ''");
    }
}
