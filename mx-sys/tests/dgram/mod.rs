//! Whole endpoints over datagrams.

mod exchange;
mod pair;
