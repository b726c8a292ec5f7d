//! Numbers in documents are those of the code.

use bmi_mx::config::TUNABLES;

#[test]
fn the_table_of_tunables_is_the_one_in_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tuning.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<String> = TUNABLES
        .iter()
        .map(|tunable| {
            let (name, kind, about) = (tunable.name, tunable.kind, tunable.about);
            format!(
                "| `{name}` | {} | {kind} | {about} |",
                tunable.default_text()
            )
        })
        .collect();
    let table = rows.join("\n");
    assert!(
        text.contains(&table),
        "docs/tuning.md should have these rows:\n{table}"
    );
}

#[test]
fn the_changelog_knows_this_version() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/CHANGELOG.md");
    let text = std::fs::read_to_string(path).unwrap();
    let version = format!("[{}]", env!("CARGO_PKG_VERSION"));
    assert!(
        text.contains(&version) || text.contains("Unreleased"),
        "neither {version} nor Unreleased"
    );
}
