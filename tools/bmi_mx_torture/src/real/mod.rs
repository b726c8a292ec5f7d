//! The executor with real processes.
//!
//! ```text
//!   args --> director --> program's steps --> act --> process --> line ==> node
//!                |                                                          | bmi, memory, desk
//!                `--> settle: what must be true when a program is over      ` recorder
//! ```

mod alarm;
mod args;
mod bmi;
mod desk;
mod director;
mod drain;
mod figures;
mod line;
mod memory;
mod node;
mod notes;
mod peers;
mod process;
mod recorder;
mod settings;
mod settle;
mod sockets;
mod stage;
mod talk;
mod tester;

use args::{Args, Role};
use std::ffi::OsString;
use std::process::ExitCode;

/// The whole program.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::parse(words) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("bmi_mx_torture: {error}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match &args.role {
        Role::Node(place) => node::run(&args, place),
        Role::Director => director::run(&args),
    }
}
