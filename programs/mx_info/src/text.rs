//! Layout of text for people.
//!
//! ```text
//!   rows of cells  --aligned-->   "  board  interface  address"
//!                                 "  0      eth0       10.0.0.5"
//! ```
//!
//! Owns: layout.

use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Returns a table with columns as wide as their widest cell; empty without rows.
pub(crate) fn aligned(heading: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let heading: Vec<String> = heading.iter().map(|&cell| cell.to_owned()).collect();
    let lines = || std::iter::once(&heading).chain(rows);
    let width = |column: usize| {
        let cells = lines().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut out = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
    out
}

/// Returns a text for JSON, where an empty one is null.
pub(crate) fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns the table, or a line that says there is none.
pub(crate) fn or_none(table: String) -> String {
    if table.is_empty() {
        "  none\n".to_owned()
    } else {
        table
    }
}

/// Returns another process's text without characters that a terminal would act on.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_plain(c) { c } else { '?' })
        .collect()
}

/// Returns whether a character is neither a control character nor one that changes the order of display.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a text. Returns false if the reader of the pipe has closed it.
pub(crate) fn show(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["0".to_owned(), "eth0".to_owned()],
            vec!["10".to_owned(), String::new()],
        ];
        assert_eq!(
            aligned(&["board", "name"], &rows),
            "  board  name\n  0      eth0\n  10\n"
        );
        assert_eq!(aligned(&["board"], &[]), "");
    }

    #[test]
    fn what_a_terminal_would_act_on_is_not_shown() {
        assert_eq!(printable("a\x1b[2Jb\n\u{202e}é"), "a?[2Jb??é");
    }
}
