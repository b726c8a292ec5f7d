//! Panics of exported functions. A program of its own: it takes the process's panic hook.

#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;

mod panics;
