//! Complete endpoints over datagrams.

mod moves;
mod pair;
