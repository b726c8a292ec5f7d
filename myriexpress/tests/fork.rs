//! A child of fork leaves its parent's endpoints alone while that lives, and opens its own. (What it does
//! with them when the parent has ended is in c_tests/mx/fork.c.)
//!
//! In a process of its own: the child of a process with many threads may find locks held.

use crate::own_process::in_own_process;
use mx_sys::settings::PortChoice;
use mx_sys::{Settings, UserMemory};
use myriexpress_api::error::{Code, Error};
use myriexpress_api::handles::Address;
use myriexpress_api::process::{self, OpenParams, SendMode, UnexpectedHandler};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn settings() -> Settings {
    Settings {
        port: PortChoice::Local,
        ..Settings::for_mx()
    }
}

fn refused<T>(result: Result<T, Error>, code: Code) -> bool {
    matches!(result, Err(error) if error.code() == code)
}

/// Sends itself a message.
fn works() -> bool {
    let Ok(ep) = process::open(&settings(), OpenParams::default()) else {
        return false;
    };
    let own = process::own_address(ep).unwrap();
    let sent = process::isend(
        ep,
        UserMemory::empty(),
        own,
        1,
        0,
        SendMode::Buffered,
        false,
    )
    .unwrap();
    let got = process::irecv(ep, UserMemory::empty(), 1, u64::MAX, 0, false).unwrap();
    let ended = [sent, got].map(|request| process::wait_for(ep, request, LONG).unwrap().is_some());
    ended == [true; 2] && process::close(ep).is_ok()
}

/// The result of fork in [`forks`].
static FORKED: AtomicI32 = AtomicI32::new(-1);

/// An unexpected handler that forks, and comes back in both processes.
unsafe extern "C" fn forks(_: *mut c_void, _: Address, _: u64, _: u32, _: *mut c_void) -> u32 {
    // SAFETY: as in the test.
    FORKED.store(unsafe { libc::fork() }, Ordering::Relaxed);
    0
}

/// The child ended with 0.
fn ended_well(pid: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// A handler that forks goes on for the parent; in the child its message is gone, and its endpoint is in use.
fn fork_inside_the_handler() {
    let ep = process::open(&settings(), OpenParams::default()).unwrap();
    let own = process::own_address(ep).unwrap();
    let handler = UnexpectedHandler {
        function: forks,
        context: 0,
    };
    process::register_handler(ep, Some(handler)).unwrap();
    process::isend(
        ep,
        UserMemory::empty(),
        own,
        1,
        0,
        SendMode::Buffered,
        false,
    )
    .unwrap();
    let found = process::probe(ep, 1, u64::MAX, LONG);
    let pid = FORKED.load(Ordering::Relaxed);
    if pid == 0 {
        let good = refused(found, Code::Busy);
        // SAFETY: as in the test.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    assert!(found.unwrap().is_some() && ended_well(pid));
    process::close(ep).unwrap();
}

#[test]
fn a_child_is_refused_its_living_parents_endpoints_and_opens_its_own() {
    in_own_process!();
    let ep = process::open(&settings(), OpenParams::default()).unwrap();
    // A place that is empty when the process forks is the parent's too.
    let closed = process::open(&settings(), OpenParams::default()).unwrap();
    process::close(closed).unwrap();
    let own = process::own_address(ep).unwrap();
    let request = process::irecv(ep, UserMemory::empty(), 9, u64::MAX, 0, false).unwrap();
    // SAFETY: the only other threads are the endpoint's helper, whose lock the child leaves alone,
    // and the harness's, which waits.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let good = refused(process::test_any(ep, 0, 0), Code::Busy)
            && refused(process::decompose(own), Code::Busy)
            && process::context_of(request).is_ok()
            && process::open_endpoints() == [ep]
            && works()
            && process::close(ep).is_ok()
            && refused(process::close(ep), Code::BadEndpoint)
            && refused(process::context_of(request), Code::BadRequest)
            && process::open_endpoints().is_empty()
            && works();
        process::close_all();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    assert!(ended_well(pid));
    // The parent has not noticed.
    assert_eq!(process::open_endpoints(), [ep]);
    assert!(process::cancel(ep, request).unwrap());
    assert!(works());
    process::close(ep).unwrap();
    fork_inside_the_handler();
}
