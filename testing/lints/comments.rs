//! Documentation comments name the thing that they are about.
//!
//! A comment is read on its own, in rustdoc's index: one that begins with *it*, *the same* or *of* cannot be understood
//! there. Functions begin with a verb or a condition, everything else with a noun.

use crate::glossary;
use std::fs;
use std::path::Path;

/// Beginnings that stand for something which is not named.
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

#[test]
fn documentation_names_the_thing() {
    let root = crate::root();
    let mut all = Vec::new();
    glossary::files(&root, Path::new(""), &mut all);
    let mut findings = String::new();
    for path in all {
        let name = path.to_string_lossy();
        if !name.ends_with(".rs") {
            continue;
        }
        let text = fs::read_to_string(root.join(&path)).expect(&name);
        let mut follows = false;
        for (number, line) in (1..).zip(text.lines()) {
            let said = documentation(line);
            if let Some(beginning) = said.filter(|_| !follows).and_then(nameless) {
                findings += &format!(
                    "{name}:{number}: begins with `{beginning}`: {}\n",
                    line.trim()
                );
            }
            // A paragraph is read with those before it.
            follows = line.trim_start().starts_with("//") && !line.trim_start().starts_with("// ");
        }
    }
    assert!(
        findings.is_empty(),
        "comments that name nothing:\n{findings}"
    );
}

#[test]
fn beginnings_are_whole_words() {
    assert_eq!(nameless("It is."), Some("It"));
    assert_eq!(nameless("The same, or 0."), Some("The same"));
    assert_eq!(nameless("Oneself."), None);
    assert_eq!(nameless("Items."), None);
    assert_eq!(nameless("A link."), None);
}
