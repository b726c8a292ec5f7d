//! Placeholder module list; see docs/architecture.md.
