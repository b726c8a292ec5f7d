//! A child of fork leaves its parent's endpoints alone and opens its own.
//!
//! One test in a process of its own: the child of a process with many threads may find locks held.

use mx_sys::settings::PortChoice;
use mx_sys::{Settings, UserMemory};
use myriexpress::error::{Code, Error};
use myriexpress::process::{self, OpenParams, SendMode};
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
    let sent = process::isend(ep, UserMemory::empty(), own, 1, 0, SendMode::Standard).unwrap();
    let got = process::irecv(ep, UserMemory::empty(), 1, u64::MAX, 0).unwrap();
    let ended = [sent, got].map(|request| process::wait_for(ep, request, LONG).unwrap().is_some());
    ended == [true; 2] && process::close(ep).is_ok()
}

#[test]
fn a_child_is_refused_its_parents_endpoints_and_opens_its_own() {
    let ep = process::open(&settings(), OpenParams::default()).unwrap();
    // A place that is empty when the process forks is the parent's too.
    let closed = process::open(&settings(), OpenParams::default()).unwrap();
    process::close(closed).unwrap();
    let own = process::own_address(ep).unwrap();
    let request = process::irecv(ep, UserMemory::empty(), 9, u64::MAX, 0).unwrap();
    // SAFETY: the only other threads are the endpoint's helper, whose lock the child leaves alone,
    // and the harness's, which waits.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let good = refused(process::test_any(ep, 0, 0), Code::BadEndpoint)
            && refused(process::close(ep), Code::BadEndpoint)
            && refused(process::context_of(request), Code::BadRequest)
            && refused(process::decompose(own), Code::BadEndpoint)
            && process::open_endpoints().is_empty()
            && works()
            && works();
        process::close_all();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{status:#x}"
    );
    // The parent has not noticed.
    assert_eq!(process::open_endpoints(), [ep]);
    assert!(process::cancel(ep, request).unwrap());
    assert!(works());
    process::close(ep).unwrap();
}
