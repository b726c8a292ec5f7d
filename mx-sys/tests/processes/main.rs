//! Cases that need a second process, which can be stopped, killed and restarted, or a process
//! without descriptors.
//!
//! ```text
//!   [FILTER]            for each file: start the program with --of=FILE and the filter
//!   --of=FILE [FILTER]  the file's cases, one after the other
//!   child FILE ...      the other process of a case
//! ```
//!
//! The test harness is not used, because the program must be able to start itself, and to fork. The
//! cases of each file have a process of their own, because limits, loggers and leftovers of
//! libfabric belong to the process.

#[path = "../../../testing/sim/fixtures/cases.rs"]
mod cases;
#[path = "../../../ports/local/tests/common/mod.rs"]
mod local_common;
#[path = "../node/mod.rs"]
mod node;
#[path = "../../../ports/local/tests/signal/mod.rs"]
mod signal;

mod local_starved;
mod peers;
mod threads;

use std::process::{Command, ExitCode};

type Run = fn() -> ExitCode;
type Child = fn(&[&str]);

/// Files that have cases.
const FILES: [(&str, Run); 3] = [
    ("local_starved", local_starved::run),
    ("peers", peers::run),
    ("threads", threads::run),
];

/// Files that have another process.
const CHILDREN: [(&str, Child); 3] = [
    ("local_starved", local_starved::child),
    ("peers", peers::child),
    ("threads", threads::child),
];

fn named<F: Copy>(all: &[(&str, F)], name: &str) -> F {
    let found = all.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name} is none")).1
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["child", file, rest @ ..] = &args[..] {
        named(&CHILDREN, file)(rest);
        return ExitCode::SUCCESS;
    }
    if let Some(file) = args.iter().find_map(|arg| arg.strip_prefix("--of=")) {
        return named(&FILES, file)();
    }
    let itself = std::env::current_exe().unwrap();
    let mut failed = false;
    for (file, _) in FILES {
        let mut command = Command::new(&itself);
        let status = command.arg(format!("--of={file}")).args(&args).status();
        failed |= !status.unwrap().success();
    }
    ExitCode::from(u8::from(failed))
}
