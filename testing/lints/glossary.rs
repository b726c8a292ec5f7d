//! Words that must not occur, with those of `docs/architecture.md` to use instead.
//!
//! ```text
//!   text of a file --> words and parts of identifiers --> in the list, and not exempt there? a finding
//! ```

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A word, its replacement, and beginnings of paths where the word is right.
type Row = (&'static str, &'static str, &'static [&'static str]);

const WORDS: &[Row] = &[
    ("acquaint", "associate", &[]),
    ("acquaintance", "association", &[]),
    ("anybody", "a peer, any process", &[]),
    ("befriend", "attach", &[]),
    ("bell", "doorbell", &[]),
    ("chill", "idle", &[]),
    (
        "complaint",
        "PMTU black hole",
        &[
            "docs/architecture.md",
            "bench/",
            "programs/mx_info/check.sh",
            "mk/",
        ],
    ),
    ("conceal", "deregister", &[]),
    ("desk", "resolver, owner", &[]),
    ("detour", "fallback", &[]),
    ("errand", "deferred action", &[]),
    ("estate", "tombstone", &[]),
    ("everybody", "all peers", &[]),
    ("follower", "waiter", &[]),
    ("ghost", "tombstone", &[]),
    ("hot", "active", &[]),
    ("intake", "receive, poll", &[]),
    ("judgement", "loss detection", &[]),
    ("kick", "wake", &[]),
    ("leader", "progress thread", &[]),
    ("liar", "faulty, violator", &[]),
    ("loan", "credit limit", &[]),
    ("locator", "address exchange", &[]),
    ("nap", "sleep", &[]),
    ("nobody", "no peer, no process", &[]),
    // The kernel has orphaned sockets.
    ("orphan", "tombstone", &["testing/crowd/src/census.rs"]),
    ("parked", "pending", &[]),
    ("partner", "remote, peer", &[]),
    ("patience", "timeout", &[]),
    ("pulse", "poll timer", &[]),
    ("relieve", "shed", &[]),
    ("scout", "filter", &[]),
    ("slumber", "idle", &[]),
    ("somebody", "a peer, a process", &[]),
    ("ticket", "key", &[]),
    ("tiding", "eager message", &[]),
    ("train", "GSO batch", &[]),
    ("unbacked", "RTO without backoff", &[]),
    ("vigil", "liveness", &[]),
    ("whoever", "the peer, the process", &[]),
    ("wish", "request, hints", &[]),
];

/// Files that list these words, or come from elsewhere.
const LEFT_OUT: &[&str] = &[
    "CHANGELOG.md",
    "LICENSE",
    "include/mx_internals",
    "testing/lints/glossary.rs",
];

const KINDS: &[&str] = &["rs", "c", "h", "md", "toml", "mk", "sh", "1", "3", "7"];

/// Beginnings of documentation that ask instead of saying what the item is.
const QUESTIONS: &[&str] = &["How ", "What ", "Which ", "Who ", "Whose "];

/// Collects the files below a directory, by their paths from the root.
pub(crate) fn files(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        let name = path.to_string_lossy();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || LEFT_OUT.iter().any(|left| name.starts_with(left)) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            // Built by make, by cargo (also in crates outside the workspace) and by debhelper.
            if !["target", "build", "tmp"]
                .iter()
                .any(|built| entry.file_name() == *built)
            {
                files(root, &path, found);
            }
        } else if path
            .extension()
            .is_some_and(|kind| KINDS.iter().any(|it| kind == *it))
        {
            found.push(path);
        }
    }
}

/// Returns the names of all [files], and their texts.
pub(crate) fn texts() -> Vec<(String, String)> {
    let root = crate::root();
    let mut all = Vec::new();
    files(&root, Path::new(""), &mut all);
    let read = |path: PathBuf| {
        let name = path.to_string_lossy().into_owned();
        let text = fs::read_to_string(root.join(&path)).expect(&name);
        (name, text)
    };
    all.into_iter().map(read).collect()
}

/// Returns words and parts of identifiers in lower case: `RemoteId`, `REMOTE_ID` and `remote_id`
/// are two words.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut chars = line.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let small_follows = chars.peek().is_some_and(char::is_ascii_lowercase);
        let begins = c.is_ascii_uppercase() && (before.is_ascii_lowercase() || small_follows);
        if (begins || !c.is_ascii_alphabetic()) && !word.is_empty() {
            found.push(std::mem::take(&mut word));
        }
        if c.is_ascii_alphabetic() {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    found.extend((!word.is_empty()).then_some(word));
    found
}

#[test]
fn private_words_do_not_come_back() {
    let all = texts();
    assert!(all.len() > 500, "{} files", all.len());
    let rows: HashMap<&str, &Row> = WORDS.iter().map(|row| (row.0, row)).collect();
    let mut findings = String::new();
    for (name, text) in all {
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start().strip_prefix("/// ");
            if comment.is_some_and(|said| QUESTIONS.iter().any(|begin| said.starts_with(begin))) {
                findings += &format!("{name}:{number}: say what it is: {line}\n");
            }
            for word in words(line) {
                let one = word.strip_suffix('s').unwrap_or(&word);
                let row = rows.get(word.as_str()).or_else(|| rows.get(one));
                if let Some((_, say, exempt)) = row
                    && !exempt.iter().any(|path| name.starts_with(path))
                {
                    findings += &format!("{name}:{number}: {word}: say {say}\n");
                }
            }
        }
    }
    assert!(
        findings.is_empty(),
        "docs/architecture.md has other words:\n{findings}"
    );
}

#[test]
fn identifiers_are_taken_apart() {
    let parts = words("let HTTPBell = RING_BELL + bells(old_bell);");
    let expected = [
        "let", "http", "bell", "ring", "bell", "bells", "old", "bell",
    ];
    assert_eq!(parts, expected);
}
