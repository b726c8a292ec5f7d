//! Without any descriptor left in the process, the facts about this machine remain known. The test
//! has a process of its own, because nothing else could run beside it.

use crate::own_process::in_own_process;
use mx_sys::nic;
use std::fs::File;
use std::time::{Duration, Instant};

#[test]
fn our_interfaces_stay_ours_when_the_kernel_cannot_be_asked() {
    in_own_process!();
    let own = nic::own_nic(None).unwrap();
    let address = nic::address(own).unwrap();
    let limit = libc::rlimit {
        rlim_cur: 64,
        rlim_max: 64,
    };
    // SAFETY: `limit` outlives the call.
    let lowered = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(lowered, 0);
    let mut all = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    assert!(!all.is_empty());
    let until = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < until {
        assert_eq!(nic::own_nic(None).unwrap(), own);
        assert!(nic::is_local(own) && nic::has(address.ip()));
        std::thread::sleep(Duration::from_millis(100));
    }
}
