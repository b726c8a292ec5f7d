//! Test calls that find what an earlier call has received.

use crate::published::counter;
use crate::races::{Addr, BY_ID, LONG_US, Tally, start, stop};
use bmi_method::instance::{self, Done, PostKind, Unexpected};

/// Context with operations, and one without.
const OWN: i64 = 8;
const OTHER: i64 = 9;

/// Receives what this process has sent to itself, by calls that report none of it.
fn receive_all() {
    for _ in 0..1_000 {
        let each = |_: Done| panic!("an operation of another context");
        assert_eq!(instance::test_context(OTHER, 1, 0, each).unwrap(), 0);
    }
}

#[test]
fn completions_left_by_a_call_are_in_the_next_call() {
    let _alone = crate::alone();
    let ends = start();
    let tally = Tally::default();
    for tag in 1..=3 {
        let receive = tally.post(ends.caller, PostKind::Recv, tag, 60, OWN);
        assert!(receive.is_some());
        tally.post(ends.own, PostKind::Send, tag, 60, BY_ID);
    }
    receive_all();
    for tag in 1..=3 {
        let each = |done: Done| tally.note(&done, tag);
        assert_eq!(instance::test_context(OWN, 1, 0, each).unwrap(), 1);
    }
    stop(ends);
}

#[test]
fn a_message_left_by_a_call_keeps_the_next_call_awake() {
    let _alone = crate::alone();
    let ends = start();
    let tally = Tally::default();
    let none = |_: Done| panic!("no operation has completed");
    // A thread that goes to sleep publishes the counters.
    assert_eq!(instance::test_context(OTHER, 1, 1_000, none).unwrap(), 0);
    let sleeps = counter("wait_progress_thread_sleeps");
    for _ in 0..2 {
        tally.post(ends.own, PostKind::SendUnexpected, 1, 60, BY_ID);
    }
    receive_all();
    let take = || {
        let each = |message: Unexpected| {
            assert_eq!(Addr(message.addr), ends.caller);
            // SAFETY: from malloc, and owned by this test now.
            unsafe { libc::free(message.buffer) };
        };
        instance::test_unexpected(1, 0, 0, each).unwrap()
    };
    assert_eq!(take(), 1);
    assert_eq!(instance::test_context(OTHER, 1, LONG_US, none).unwrap(), 0);
    assert_eq!(counter("wait_progress_thread_sleeps"), sleeps);
    assert_eq!(take(), 1);
    stop(ends);
}
