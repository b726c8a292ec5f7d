//! Whole endpoints, and how they choose among their ports.

#[path = "../../../ports/local/tests/ear/mod.rs"]
mod ear;
#[path = "../node/mod.rs"]
mod node;

mod fabrics;
mod local_limit;
mod pair;
mod rdm;
mod settings;
mod strangers;
