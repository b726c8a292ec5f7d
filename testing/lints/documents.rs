//! Numbers in documents match the code.

use bmi_method::config::{self, Config};
use bmi_method::peer::state::TRANSITIONS;
use mx_port_fabric::endpoint_address::{ADDRESS_MAX, EndpointAddress, PROVIDER_MAX};
use mx_proto::Counter;
use mx_proto::op_states;
use mx_proto::transitions::Transition;
use mx_sys::published::all_counters;
use mx_sys::settings::{self, MX_ROWS, MX_WITHOUT_EFFECT, OTHERS, PEERS_FILE, Settings};
use mx_sys::tunable::Tunable;
use std::fmt::Display;
use std::path::Path;

fn text_of(path: &str) -> String {
    std::fs::read_to_string(crate::root().join(path)).unwrap()
}

/// Returns names and numbers of a file's lines `    Name = 1,` and `const NAME: u8 = 1;`.
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

/// Formats a table's rows with their defaults in one library.
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
fn what_an_elevated_process_ignores_is_documented() {
    fn ignored<S: 'static>(rows: &[Tunable<S>]) -> Vec<&'static str> {
        let rows = rows.iter().filter(|row| !row.kind.is_quantity());
        rows.map(|row| row.name).collect()
    }
    let rows = [
        ignored(settings::rows::<Settings>()),
        ignored(config::OWN),
        ignored(MX_ROWS),
    ];
    let mut expected: Vec<_> = rows.into_iter().flatten().chain(OTHERS).collect();
    expected.sort_unstable();
    let text = text_of("docs/tuning.md");
    let (_, list) = text.split_once("It ignores what chooses").unwrap();
    let (list, _) = list.split_once(". Where").unwrap();
    let mut found: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "docs/tuning.md, In an elevated process");
}

#[test]
fn the_settings_of_the_manual_page_are_those_in_the_code() {
    fn items<S: 'static>(rows: &[Tunable<S>], defaults: &S) -> String {
        let item = |row: &Tunable<S>| {
            let (name, kind, about) = (row.name, row.kind, row.about.replace('`', ""));
            let default = row.text(defaults);
            format!(".It Ev {name}\n{about}.\nDefault {default}; values: {kind}.\n")
        };
        rows.iter().map(item).collect()
    }
    let text = text_of("docs/man/man7/bmi_mx.7");
    for (title, items) in [
        (
            "Both libraries",
            items(settings::rows(), &Settings::default()),
        ),
        ("Only libbmi_mx", items(config::OWN, &Config::default())),
        ("Only libmyriexpress", items(MX_ROWS, &Settings::for_mx())),
    ] {
        let list = format!(".Ss {title}\n.Bl -tag -width Ds\n{items}.El\n");
        assert!(
            text.contains(&list),
            "docs/man/man7/bmi_mx.7 should have:\n{list}"
        );
    }
}

#[test]
fn the_counters_of_the_manual_page_are_those_in_the_code() {
    let item = |counter: &Counter| format!(".It Li {}\n{}\n", counter.label, counter.about);
    let list: String = all_counters().map(item).collect();
    let list = format!(".Bl -tag -width Ds\n{list}.El\n");
    assert!(
        text_of("docs/man/man1/mx_counters.1").contains(&list),
        "docs/man/man1/mx_counters.1 should have:\n{list}"
    );
}

#[test]
fn what_differs_by_library_is_told_in_the_documentation() {
    let differ = settings::rows()
        .iter()
        .map(|row| (row, row.text(&Settings::for_mx())))
        .filter(|(row, mx)| row.text(&Settings::default()) != *mx);
    let text = text_of("docs/tuning.md");
    let page = text_of("docs/man/man7/bmi_mx.7");
    let mut count = 0;
    for (row, mx) in differ {
        let claim = format!("`{}` is {mx} by default in `libmyriexpress`", row.name);
        assert!(text.contains(&claim), "docs/tuning.md: {claim}");
        let claim = format!(
            "In\n.Nm libmyriexpress\n.Ev {}\nis {mx} by default.\n",
            row.name
        );
        assert!(page.contains(&claim), "docs/man/man7/bmi_mx.7: {claim}");
        count += 1;
    }
    let claims = text.matches("by default in `libmyriexpress`").count();
    assert_eq!(claims, count, "docs/tuning.md says more than the code");
    assert!(text.contains(PEERS_FILE));
}

#[test]
fn variables_of_mx_without_effect_are_those_in_the_code() {
    for path in ["docs/tuning.md", "docs/man/man7/bmi_mx.7"] {
        let text = text_of(path);
        let (_, section) = text
            .split_once("The other variables of MX 1.2 are")
            .unwrap();
        let section = section.split("\n#").next().unwrap();
        let section = section.split("\n.Ss").next().unwrap();
        let words = section.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        let mut told: Vec<_> = words
            .filter(|word| word.starts_with("MX_") && *word != "MX_DGRAM_CHECKSUM")
            .collect();
        told.sort_unstable();
        assert_eq!(told, MX_WITHOUT_EFFECT, "{path}");
    }
}

/// Compares the table of legal transitions in `docs/states.md` with the file that it names.
fn check_transitions<S: Display>(file: &str, transitions: &[Transition<S>]) {
    let text = text_of("docs/states.md");
    let begin = format!("<!-- transitions: from {file} -->\n");
    let (_, section) = text.split_once(&begin).expect("a table");
    let (section, _) = section.split_once("<!-- /transitions -->").unwrap();
    let row = |m: &Transition<S>| format!("| {} | {} | {} |\n", m.from, m.to, m.when);
    let rows: String = transitions.iter().map(row).collect();
    let table = format!("| from | to | when |\n|---|---|---|\n{rows}");
    assert_eq!(
        section, table,
        "docs/states.md should have this table:\n{table}"
    );
}

#[test]
fn documented_transitions_match_the_code() {
    check_transitions("src/peer/state.rs", TRANSITIONS);
    check_transitions("mx-proto/src/op_states.rs", op_states::TRANSITIONS);
}

/// Returns the drawing in a section of `docs/states.md`.
fn drawn(title: &str) -> String {
    let text = text_of("docs/states.md");
    let (_, section) = text.split_once(&format!("\n## {title}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let (_, drawing) = section.split_once("```text\n").unwrap();
    drawing.split("```").next().unwrap().to_owned()
}

/// Returns the variants of an enum, in the order of the code.
fn variants(path: &str, name: &str) -> Vec<String> {
    let text = text_of(path);
    let (_, body) = text
        .split_once(&format!("enum {name}"))
        .and_then(|(_, rest)| rest.split_once("{\n"))
        .unwrap_or_else(|| panic!("{path} has no {name}"));
    let indent = body.len() - body.trim_start_matches(' ').len();
    let lines = body.lines().take_while(|line| !line.starts_with('}'));
    let mine = lines.filter(|line| line.len() - line.trim_start().len() == indent);
    let word = |line: &str| {
        let line = line.trim();
        let end = line
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(line.len());
        line[..end].to_owned()
    };
    mine.map(word)
        .filter(|word| word.starts_with(|c: char| c.is_uppercase()))
        .collect()
}

#[test]
fn drawn_states_exist_and_existing_ones_are_drawn() {
    let drawings: [(&str, &str, &str, &[&str]); 3] = [
        (
            "A remote at the endpoint",
            "mx-proto/src/remote.rs",
            "RemoteState",
            &["GONE"],
        ),
        (
            "A link over a fabric",
            "ports/rdm/src/links/link.rs",
            "State",
            &["Bye", "Reset"],
        ),
        (
            "A message on arrival",
            "mx-proto/src/event.rs",
            "Verdict",
            &["RECEIVED", "UNEXPECTED", "WAITING", "OUT", "INBOX", "GONE"],
        ),
    ];
    for (title, path, name, others) in drawings {
        let drawing = drawn(title);
        let variants = variants(path, name);
        assert!(variants.len() > 2, "{path}: {variants:?}");
        for state in &variants {
            assert!(
                drawing.contains(state.as_str()) || drawing.contains(&state.to_lowercase()),
                "docs/states.md, {title}: {state} is not drawn"
            );
        }
        // In reverse: capitalised words of the drawing are states, or known exceptions.
        let words = drawing.split(|c: char| !c.is_alphanumeric());
        for word in words.filter(|word| word.len() > 1) {
            let known = variants.iter().any(|state| state == word) || others.contains(&word);
            let capital = word.starts_with(|c: char| c.is_uppercase());
            assert!(
                !capital || known,
                "docs/states.md, {title}: {word} is no state"
            );
        }
    }
}

#[test]
fn files_that_the_states_are_drawn_from_exist() {
    let text = text_of("docs/states.md");
    let named: Vec<_> = text
        .split('`')
        .filter(|word| word.contains('/') && !word.contains(' ') && !word.starts_with('/'))
        .collect();
    assert!(named.len() > 3, "{named:?}");
    for name in named {
        let path = crate::root().join(name);
        assert!(path.exists(), "docs/states.md: {name}");
    }
    // Reads have no enum of their own: this struct is their state.
    let (file, word) = ("ports/rdm/src/remote.rs", "struct Read ");
    assert!(text_of(file).contains(word), "{file}: {word}");
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
fn endpoint_addresses_are_documented_as_they_travel() {
    let text = text_of("docs/wire-format.md");
    let fixed = EndpointAddress {
        provider: String::new(),
        format: 0,
        address: Vec::new(),
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
    let frames = numbered("ports/rdm/src/frame.rs");
    assert!(!frames.is_empty());
    for (name, number) in frames {
        let row = format!("\n| {number} | {name}");
        assert!(text.contains(&row), "docs/wire-format.md: {row}");
    }
}

#[test]
fn the_oldest_libfabric_is_the_one_in_the_code() {
    let code = text_of("libfabric-sys/src/load.rs");
    let (_, rest) = code.split_once("OLDEST: (u32, u32) = (").unwrap();
    let (version, _) = rest.split_once(')').unwrap();
    let claim = format!("works with libfabric {} to 2.x", version.replace(", ", "."));
    let text = text_of("CHANGELOG.md");
    let text = Vec::from_iter(text.split_whitespace()).join(" ");
    assert!(text.contains(&claim), "CHANGELOG.md: {claim}");
}

#[test]
fn cited_documents_are_there() {
    let root = crate::root();
    let (mut cited, mut missing) = (0, Vec::new());
    for (path, text) in crate::glossary::texts() {
        let apart = |c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c));
        for word in text.split(apart) {
            let Some((name, _)) = word.split_once(".md").filter(|(name, rest)| {
                let ends = rest.trim_end_matches('.').is_empty();
                ends && !name.starts_with('/')
                    && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            }) else {
                continue;
            };
            cited += 1;
            let name = format!("{name}.md");
            let beside = Path::new(&path).parent().unwrap_or_else(|| Path::new(""));
            let places = [beside, Path::new(""), Path::new("docs")];
            if !places
                .iter()
                .any(|place| root.join(place).join(&name).exists())
            {
                missing.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(cited > 100, "{cited} citations");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_concepts_of_the_architecture_are_in_the_code() {
    let text = text_of("docs/architecture.md");
    let (_, section) = text.split_once("\n## Concepts\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<[&str; 2]> = section
        .lines()
        .filter_map(|line| line.strip_suffix("` |")?.split_once(" | `"))
        .map(|(_, rest)| rest.split_once("` | `").unwrap().into())
        .collect();
    assert!((30..=40).contains(&rows.len()), "{} concepts", rows.len());
    for [name, path] in rows {
        let code = text_of(path);
        let kinds = ["struct", "enum", "trait"];
        let defined = kinds.iter().any(|kind| {
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let begins = format!("{kind} {name}");
            code.split(&begins).skip(1).any(ends)
        });
        assert!(defined, "{path} has no type {name}");
    }
}

#[test]
fn the_mechanisms_are_counted_and_in_the_code() {
    let text = text_of("docs/mechanisms.md");
    let (mut all, mut leaving) = (0, 0);
    for section in text.split("\n## ").skip(1) {
        let (title, body) = section.split_once('\n').unwrap();
        let Some((_, claimed)) = title
            .strip_suffix(')')
            .and_then(|title| title.rsplit_once(" ("))
        else {
            continue;
        };
        let rows = body.lines().filter(|line| line.starts_with("| "));
        let rows: Vec<Vec<&str>> = rows.skip(1).map(|row| row.split('|').collect()).collect();
        assert_eq!(
            rows.len().to_string(),
            claimed,
            "docs/mechanisms.md: {title}"
        );
        for row in rows {
            let [_, mechanism, places, _, leaves, _] = row[..] else {
                panic!("docs/mechanisms.md: {row:?}");
            };
            all += 1;
            if !leaves.trim().is_empty() {
                leaving += 1;
                let landing = format!("\n|{leaves}| ");
                assert!(text.contains(&landing), "docs/mechanisms.md: {leaves}");
            }
            for place in places.split(';') {
                let quoted: Vec<&str> = place.split('`').skip(1).step_by(2).collect();
                let (path, names) = quoted.split_last().expect(mechanism);
                assert!(!names.is_empty(), "docs/mechanisms.md, {mechanism}: {path}");
                let code = text_of(path);
                let apart = |c: char| !(c.is_alphanumeric() || c == '_');
                for word in names.iter().flat_map(|name| name.split("::")) {
                    let known = code.split(apart).any(|it| it == word);
                    assert!(
                        known,
                        "docs/mechanisms.md, {mechanism}: {path} has no {word}"
                    );
                }
            }
        }
    }
    let claim = format!("There are **{all}** mechanisms; {leaving} of them leave ");
    assert!(text.contains(&claim), "docs/mechanisms.md: {claim}");
}

/// Returns the entries of a table in the dissector: `NAME = { [1] = "Connect", ... }`.
fn dissected(name: &str) -> Vec<String> {
    let text = text_of("wireshark/mx.lua");
    let (_, table) = text.split_once(&format!("local {name} = {{")).unwrap();
    let table = table.split("\n}").next().unwrap();
    let entries = table.split('[').skip(1).map(|entry| {
        let (number, rest) = entry.split_once("] = \"").unwrap();
        format!("{number} {}", rest.split('"').next().unwrap())
    });
    entries.collect()
}

#[test]
fn dissector_knows_exactly_the_documented_kinds() {
    let kinds = |path: &str, title: &str| -> Vec<String> {
        let text = text_of(path);
        let (_, section) = text.split_once(&format!("\n## {title}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let cells = section.lines().filter_map(|line| {
            let line = line.strip_prefix("| ")?;
            let number = line.split_once(' ')?.0;
            number.parse::<u8>().ok()?;
            let mut cells = line.split(" | ");
            let first = cells.next()?;
            Some(if first == number {
                format!("{number} {}", cells.next()?)
            } else {
                first.to_owned()
            })
        });
        cells.collect()
    };
    assert_eq!(
        dissected("KINDS"),
        kinds("docs/wire-format.md", "MX shim: packets")
    );
    assert_eq!(dissected("DATAGRAMS"), kinds("docs/dgram.md", "Datagrams"));
}
