//! Whole endpoints, and how they choose among their ports.

#[path = "../node/mod.rs"]
mod node;

mod fabrics;
mod impostors;
mod local_limit;
mod pair;
mod rdm;
mod settings;
mod strangers;
