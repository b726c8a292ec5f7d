//! Executor with real processes.
//!
//! ```text
//!   args --> director --> program's steps --> act --> process --> line ==> node
//!                |                                                          | bmi, memory, operations
//!                `--> finish: checks at the end of a program                ` recorder
//! ```

mod alarm;
mod args;
mod bmi;
mod director;
mod drain;
mod figures;
mod finish;
mod line;
mod memory;
mod node;
mod notes;
mod operations;
mod peers;
mod process;
mod recorder;
mod settings;
mod sockets;
mod stage;
mod talk;
mod tester;

use args::Args;
use clap::Parser;
use std::process::ExitCode;

/// Runs the program.
pub(crate) fn run() -> ExitCode {
    let args = Args::parse();
    match args.place() {
        Some(place) => node::run(&args, &place),
        None => director::run(&args),
    }
}
