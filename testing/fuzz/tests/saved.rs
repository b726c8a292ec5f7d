//! The saved inputs, and some random ones, on any toolchain.
//!
//! `MX_FUZZ_DRAWN` sets the number of random inputs for each target. A fuzzer's file is run with
//! `MX_FUZZ_INPUT=file cargo test -p mx-fuzz --test saved <target>`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

fn runs(target: &str, run: fn(&[u8])) {
    if let Some(file) = std::env::var_os("MX_FUZZ_INPUT") {
        return run(&std::fs::read(file).expect("the input can be read"));
    }
    for file in saved(target) {
        let input = std::fs::read(&file).expect("a saved input can be read");
        attempt(&format!("{}", file.display()), &input, run);
    }
    let drawn = std::env::var("MX_FUZZ_DRAWN").map_or(300, |count| {
        count.parse().expect("MX_FUZZ_DRAWN is a number")
    });
    for seed in 1..=drawn {
        attempt(&format!("{target}, drawn {seed}"), &draw(seed), run);
    }
}

fn attempt(name: &str, input: &[u8], run: fn(&[u8])) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(input)));
    assert!(outcome.is_ok(), "{name}");
}

fn saved(target: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let entries = std::fs::read_dir(&directory).expect("there is a corpus");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no saved inputs in {directory:?}");
    files
}

/// Draws bytes, small ones more often, as in programs.
fn draw(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    let len = 20 + next() % 1500;
    let small = next() % 4;
    let mut byte = || {
        if next() % 4 < small {
            next() as u8 % 24
        } else {
            next() as u8
        }
    };
    (0..len).map(|_| byte()).collect()
}

#[test]
fn datagram_strangers_leave_nothing_behind() {
    runs("datagram", mx_fuzz::datagram);
}

#[test]
fn session_holds_its_promises_whatever_the_net_does() {
    runs("session", mx_fuzz::session);
}

#[test]
fn endpoint_ends_every_operation_whatever_its_peers_say() {
    runs("endpoint", mx_fuzz::endpoint);
}

#[test]
fn introduction_lets_no_peer_in_without_the_secret() {
    runs("introduction", mx_fuzz::introduction);
}
