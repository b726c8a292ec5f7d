//! Numbers in documents are those of the code.

use bmi_mx::config::{self, Config};
use mx_sys::ports::rdm::card::{ADDRESS_MAX, Answer, Card, PROVIDER_MAX, Refusal};
use mx_sys::settings::{self, MX_ROWS, PEERS_FILE, Settings};
use mx_sys::tunable::Tunable;

fn text_of(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The names and numbers of a file's lines `    Name = 1,` and `const NAME: u8 = 1;`.
fn numbered(path: &str) -> Vec<(String, u8)> {
    let line = |line: &str| {
        let line = line.trim().trim_end_matches([',', ';']);
        let (name, number) = line.split_once(" = ")?;
        let name = name.trim_start_matches("const ").trim_end_matches(": u8");
        let plain = |c: char| c.is_ascii_alphabetic() || c == '_';
        let known = name != "VERSION" && name.chars().all(plain);
        known.then_some((name.to_owned(), number.parse().ok()?))
    };
    text_of(path).lines().filter_map(line).collect()
}

/// A table's rows with their defaults in one library.
fn rows_of<S: 'static>(rows: &[Tunable<S>], defaults: &S) -> Vec<String> {
    let row = |row: &Tunable<S>| {
        let (name, kind, about) = (row.name, row.kind, row.about);
        format!("| `{name}` | {} | {kind} | {about} |", row.text(defaults))
    };
    rows.iter().map(row).collect()
}

#[test]
fn the_tables_of_tunables_are_those_in_the_code() {
    let text = text_of("docs/tuning.md");
    let tables = [
        (
            "Both libraries",
            rows_of(settings::rows(), &Settings::default()),
        ),
        ("Only libbmi_mx", rows_of(config::OWN, &Config::default())),
        ("Only libmyriexpress", rows_of(MX_ROWS, &Settings::for_mx())),
    ];
    for (title, rows) in tables {
        let (_, section) = text.split_once(&format!("\n### {title}\n")).unwrap();
        let section = section.split("\n#").next().unwrap();
        let found = section.lines().filter(|line| line.starts_with("| `"));
        let rows = rows.join("\n");
        assert!(
            found.eq(rows.lines()),
            "docs/tuning.md should have these rows and no more under {title}:\n{rows}"
        );
    }
}

#[test]
fn what_differs_by_library_is_told_in_the_documentation() {
    let differ = settings::rows()
        .iter()
        .map(|row| (row, row.text(&Settings::for_mx())))
        .filter(|(row, mx)| row.text(&Settings::default()) != *mx);
    let text = text_of("docs/tuning.md");
    let mut count = 0;
    for (row, mx) in differ {
        let claim = format!("`{}` is {mx} by default in `libmyriexpress`", row.name);
        assert!(text.contains(&claim), "docs/tuning.md: {claim}");
        count += 1;
    }
    let claims = text.matches("by default in `libmyriexpress`").count();
    assert_eq!(claims, count, "docs/tuning.md says more than the code");
    assert!(text.contains(PEERS_FILE));
}

#[test]
fn the_changelog_knows_this_version() {
    let text = text_of("CHANGELOG.md");
    let version = format!("[{}]", env!("CARGO_PKG_VERSION"));
    assert!(
        text.contains(&version) || text.contains("Unreleased"),
        "neither {version} nor Unreleased"
    );
}

#[test]
fn cards_are_documented_as_they_travel() {
    let text = text_of("docs/wire-format.md");
    let reasons = [
        Refusal::NoPort,
        Refusal::Provider,
        Refusal::Format,
        Refusal::Full,
        Refusal::NotUnderstood,
        Refusal::Failed,
    ];
    let rows = reasons.map(|why| {
        let provider = String::new();
        let number = Answer::None { why, provider }.emit()[1];
        format!("| {number} | {why} |")
    });
    let table = rows.join("\n");
    assert!(text.contains(&table), "docs/wire-format.md:\n{table}");
    let fixed = Card {
        provider: String::new(),
        format: 0,
        address: Vec::new(),
        incarnation: 0,
        link: 0,
        cookie: 0,
    };
    for claim in [
        format!("is {} bytes, the provider", fixed.emit().len()),
        format!("provider's name, 1 to {PROVIDER_MAX} |"),
        format!("address in that format, 1 to {ADDRESS_MAX} "),
    ] {
        assert!(text.contains(&claim), "docs/wire-format.md: {claim}");
    }
}

#[test]
fn kinds_of_frames_are_documented_as_they_travel() {
    let text = text_of("docs/wire-format.md");
    let frames = numbered("mx-sys/src/ports/rdm/frame.rs");
    assert!(!frames.is_empty());
    for (name, number) in frames {
        let row = format!("\n| {number} | {name}");
        assert!(text.contains(&row), "docs/wire-format.md: {row}");
    }
    let remote = numbered("mx-sys/src/ports/rdm/remote_frame.rs");
    assert!(!remote.is_empty());
    for (name, number) in remote {
        let name = name.replace('_', "").to_lowercase();
        let found = text.lines().any(|line| {
            let line = line.to_lowercase();
            line.starts_with(&format!("  |  {number}   |")) && line.ends_with(&format!(" {name}"))
        });
        assert!(found, "docs/wire-format.md: remote frame {number}, {name}");
    }
}

#[test]
fn the_oldest_libfabric_is_the_one_in_the_code() {
    let code = text_of("libfabric-sys/src/load.rs");
    let (_, rest) = code.split_once("OLDEST: (u32, u32) = (").unwrap();
    let (version, _) = rest.split_once(')').unwrap();
    let claim = format!("Works with {}\n  to 2.x", version.replace(", ", "."));
    let text = text_of("CHANGELOG.md");
    assert!(text.contains(&claim), "CHANGELOG.md: {claim}");
}
