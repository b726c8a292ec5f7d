//! Documentation comments name the thing that they are about.
//!
//! A comment is read on its own, in rustdoc's index: one that begins with *it*, *the same* or *of* cannot be understood
//! there. Functions begin with a verb or a condition, everything else with a noun.

use crate::glossary;

/// Beginnings that refer to something unnamed.
const BEGINNINGS: &[&str] = &[
    "It", "They", "That", "Those", "This", "These", "One", "Other", "Others", "The same", "Of",
    "With", "What", "Such", "Not",
];

/// Returns the text of a line of documentation.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("/// ")
        .or_else(|| line.strip_prefix("//! "))
}

/// Returns the beginning of a comment that names nothing.
fn nameless(text: &str) -> Option<&'static str> {
    let begins = |word: &&&'static str| {
        text.strip_prefix(**word)
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    BEGINNINGS.iter().find(begins).copied()
}

/// Returns the names and texts of the Rust sources.
fn sources() -> impl Iterator<Item = (String, String)> {
    let all = glossary::texts().into_iter();
    all.filter(|(name, _)| name.ends_with(".rs"))
}

#[test]
fn documentation_names_the_thing() {
    let mut findings = String::new();
    for (name, text) in sources() {
        let mut follows = false;
        for (number, line) in (1..).zip(text.lines()) {
            let said = documentation(line);
            if let Some(beginning) = said.filter(|_| !follows).and_then(nameless) {
                findings += &format!(
                    "{name}:{number}: begins with `{beginning}`: {}\n",
                    line.trim()
                );
            }
            // A later paragraph is read together with those before it.
            follows = line.trim_start().starts_with("//") && !line.trim_start().starts_with("// ");
        }
    }
    assert!(
        findings.is_empty(),
        "comments that name nothing:\n{findings}"
    );
}

/// Returns the first lines of comments of documentation in which a fence is not closed.
fn open_fences(text: &str) -> Vec<usize> {
    let mut open = Vec::new();
    let (mut first, mut fences) = (0, 0);
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        let line = line.trim_start();
        if let Some(said) = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"))
        {
            if first == 0 {
                first = number;
            }
            fences += usize::from(said.trim_start().starts_with("```"));
        } else {
            if fences % 2 != 0 {
                open.push(first);
            }
            (first, fences) = (0, 0);
        }
    }
    open
}

#[test]
fn fences_are_closed() {
    let open: Vec<String> = sources()
        .flat_map(|(name, text)| {
            let open = open_fences(&text).into_iter();
            open.map(move |line| format!("{name}:{line}"))
        })
        .collect();
    assert!(
        open.is_empty(),
        "comments with a fence that is not closed: {open:?}"
    );
}

#[test]
fn an_open_fence_is_found() {
    assert_eq!(open_fences("//! ```text\n//! a\n//! ```\n"), []);
    assert_eq!(
        open_fences("fn a() {}\n\n    /// ```\n    /// a\nfn b() {}"),
        [3]
    );
    assert_eq!(open_fences("//! ```text"), [1]);
}

#[test]
fn beginnings_are_whole_words() {
    assert_eq!(nameless("It is."), Some("It"));
    assert_eq!(nameless("The same, or 0."), Some("The same"));
    assert_eq!(nameless("Oneself."), None);
    assert_eq!(nameless("Items."), None);
    assert_eq!(nameless("A link."), None);
}
