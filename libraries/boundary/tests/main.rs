//! Tests of panics in exported functions, in a separate program because they replace the process's panic hook.

#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;

mod panics;
