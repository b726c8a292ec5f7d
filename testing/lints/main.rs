//! Rules that no compiler checks, in one program, so that shared code is compiled once.

use std::path::PathBuf;

mod comments;
mod documents;
mod glossary;
mod layering;
mod machines;
mod words;

/// Returns the top of the repository.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
