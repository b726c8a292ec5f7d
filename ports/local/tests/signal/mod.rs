//! Signals to the processes that a test has started.

use std::process::Child;

/// Sends a signal. Returns when the process has stopped, if that is the effect.
pub(crate) fn send(child: &Child, signal: i32) {
    let id = child.id();
    // SAFETY: the child has not been waited for, so its number is still its own.
    assert_eq!(unsafe { libc::kill(id as i32, signal) }, 0);
    if signal == libc::SIGSTOP {
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut info = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is valid.
        let waited = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, libc::WSTOPPED) };
        assert_eq!(waited, 0);
    }
}
