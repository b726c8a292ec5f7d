//! Whole endpoints over datagrams.

#[path = "../dgram_common/mod.rs"]
mod dgram_common;
#[path = "../node/mod.rs"]
mod node;

mod exchange;
mod pair;
