//! Random programs on real processes: nodes that post, cancel, die, freeze and restart over a port,
//! while every byte is checked and every forbidden access to memory is detected.
//!
//! ```text
//!   director ---- orders, kill -9, SIGSTOP ----> node 0 == libbmi_mx.so ==.
//!      |  ^                                      node 1 == libbmi_mx.so ==+== local, tcp, rdm
//!      |  `----- faults, reports, figures --------- node 2 == libbmi_mx.so =='
//!      `-- a seed, and the command that repeats it
//! ```
//!
//! Each node is this program again, with the library loaded by its path and called as a C program
//! calls it.

mod real;

use std::process::ExitCode;

fn main() -> ExitCode {
    real::run()
}
