//! Whole endpoints, and how they choose among their ports.

mod fabrics;
mod local_limit;
mod pair;
mod rdm;
mod settings;
mod strangers;
