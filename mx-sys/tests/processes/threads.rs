//! Stacks of the library's own threads: neither variables of Rust's standard library nor
//! thread-local data of the program reduce them.

use crate::cases;
use mx_sys::thread::{self, PROGRESS_STACK, RESOLVER_STACK};
use std::cell::Cell;
use std::hint::black_box;
use std::process::{Command, ExitCode};

type Case = fn();

const CASES: &[(&str, Case)] = cases::named![variables_of_rust_do_not_change_a_stack];

pub(super) fn run() -> ExitCode {
    let cases = CASES.iter().map(|&(name, case)| (name.to_owned(), case));
    cases::run("threads", cases)
}

fn variables_of_rust_do_not_change_a_stack() {
    let huge = (1_u64 << 60).to_string();
    for stack in [None, Some("0"), Some("1"), Some("24576"), Some(&huge)] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "threads"]);
        command.envs([("RUST_BACKTRACE", "full"), ("RUST_LOG", "trace")]);
        command.env_remove("RUST_MIN_STACK");
        command.envs(stack.map(|stack| ("RUST_MIN_STACK", stack)));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{stack:?}: {}: {said}",
            output.status
        );
        assert_eq!(said, "");
    }
}

/// Bytes of thread-local data, more than any of the stacks.
const DATA: usize = 3 << 20;

thread_local! {
    static THREAD_LOCAL: Cell<[u8; DATA]> = const { Cell::new([0; DATA]) };
}

/// Runs the process whose threads use all of their stacks.
pub(super) fn child(_: &[&str]) {
    THREAD_LOCAL.with(|data| black_box(data.as_ptr()));
    let started = thread::start("mx-progress", PROGRESS_STACK, || use_stack(PROGRESS_STACK));
    started.unwrap().join().unwrap();
    let started = thread::start("mx-names", RESOLVER_STACK, || use_stack(RESOLVER_STACK));
    started.unwrap().join().unwrap();
    thread::apart("mx-lookup", || {
        let name = std::thread::current().name().map(str::to_owned);
        assert_eq!(name.as_deref(), Some("mx-lookup"));
        use_stack(RESOLVER_STACK);
    });
}

/// Writes to all of a stack except the parts that the start of the thread and the ends of calls
/// need.
fn use_stack(bytes: usize) {
    const STEP: usize = 4096;
    const SPARE: usize = 24 << 10;
    fn step(left: usize) {
        let mut area = [0_u8; STEP];
        black_box(&mut area);
        if left > STEP {
            // A call itself takes less than 256 bytes.
            step(left.saturating_sub(STEP + 256));
        }
        black_box(&mut area);
    }
    step(bytes - SPARE);
}
