//! The kernel's reports of changed interfaces, in a process that forks; parent and child have one
//! watch each.

use crate::own_network::{have_own_network, ip};
use crate::own_process::in_own_process;
use mx_port_base::netlink::Watch;
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn is_open(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn says(to: &mut UnixStream) {
    to.write_all(b".").unwrap();
}

/// Waits for a byte. Returns false if none comes.
fn hears(from: &mut UnixStream) -> bool {
    from.read_exact(&mut [0]).is_ok()
}

/// Runs the child's part after the fork. Returns the number of its first failed check, or 0.
fn child(parents: RawFd, parent: &mut UnixStream, network: bool) -> i32 {
    if is_open(parents) {
        return 1;
    }
    let mut own = Watch::new();
    if own.raw().is_none() || !own.changed() {
        return 2;
    }
    if !network {
        return 0;
    }
    for _ in 0..2 {
        while own.changed() {}
        says(parent);
        if !hears(parent) || !own.changed() {
            return 3;
        }
        says(parent);
    }
    0
}

#[test]
fn a_child_takes_nothing_of_what_its_parent_is_told() {
    in_own_process!();
    let network = have_own_network();
    if !network {
        eprintln!("no network of its own: nothing changes");
    }
    let mut watch = Watch::new();
    assert!(watch.changed());
    let parents = watch.raw().expect("the kernel tells of changes");
    let (mut here, mut there) = UnixStream::pair().unwrap();
    for end in [&here, &there] {
        end.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    // SAFETY: the child calls `child` and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let failed = child(parents, &mut there, network);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(failed) };
    }
    drop(there);
    for change in [
        "addr add 10.77.0.1/32 dev lo",
        "addr del 10.77.0.1/32 dev lo",
    ] {
        if !network {
            break;
        }
        while watch.changed() {}
        assert!(hears(&mut here), "the child listens");
        assert!(ip(change));
        says(&mut here);
        assert!(hears(&mut here), "the child has heard it");
        assert!(watch.changed(), "and so has its parent");
    }
    let mut status = 0;
    // SAFETY: `status` is writable, the child is ours.
    let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((ended, status), (pid, 0), "the status has what has failed");
    assert!(is_open(parents));
}
