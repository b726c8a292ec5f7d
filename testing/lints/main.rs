//! Rules that no compiler checks, in one program: what they share is compiled once.

use std::path::PathBuf;

mod comments;
mod documents;
mod glossary;
mod layering;
mod machines;
mod words;

/// The top of the repository.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
