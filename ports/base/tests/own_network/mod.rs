//! A network namespace of the test, if the machine allows one, which only root gets.

use std::process::Command;

/// Gives this thread, and those that it starts, a network of their own with a loopback. Returns
/// false if the machine does not allow that.
pub(crate) fn have_own_network() -> bool {
    // SAFETY: plain system call.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    alone && ip("link set lo up")
}

/// Runs `ip` with these arguments.
pub(crate) fn ip(arguments: &str) -> bool {
    let ip = Command::new("ip").args(arguments.split(' ')).status();
    ip.is_ok_and(|status| status.success())
}
