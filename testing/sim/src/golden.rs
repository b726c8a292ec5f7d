//! Expected texts, stored beside tests.

/// Compares a text with the file at `path`; writes it there first if `MX_BLESS` is set.
///
/// # Panics
/// If they differ.
pub fn is_kept(path: &str, text: &str) {
    if std::env::var_os("MX_BLESS").is_some() {
        std::fs::write(path, text).expect("the golden file can be written");
    }
    let kept = std::fs::read_to_string(path).expect("the golden file is there");
    let differs = text
        .lines()
        .zip(kept.lines())
        .find(|(now, then)| now != then);
    assert_eq!(
        differs, None,
        "the table now (MX_BLESS=1 keeps it):\n{text}"
    );
    assert_eq!(text.len(), kept.len());
}
