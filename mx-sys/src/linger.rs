//! Polls a closing endpoint that has no thread of its own, for a bounded time.
//!
//! ```text
//!   step() --> None: done      busy: again      idle: sleep until a descriptor is readable, at most 2 ms
//! ```

use mx_proto::port::WakeDescriptors;
use std::time::{Duration, Instant};

/// Longest sleep, in milliseconds. Events of a port that has not been armed do not end the sleep.
const MOMENT_MS: i32 = 2;

/// Blocks until `step` returns `None` (nothing is left to wait for) or `span` has passed. `step` is called again at
/// once after `true` (something happened), and after `false` when one of its descriptors is readable or 2 ms have
/// passed.
pub fn linger(span: Duration, mut step: impl FnMut() -> Option<(bool, WakeDescriptors)>) {
    let until = Instant::now() + span;
    while Instant::now() < until {
        match step() {
            None => return,
            Some((true, _)) => {}
            Some((false, descriptors)) => sleep(descriptors),
        }
    }
}

fn sleep(descriptors: WakeDescriptors) {
    let mut both = [descriptors.control, descriptors.data].map(|fd| libc::pollfd {
        fd: fd.unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: `both` has two entries; poll ignores negative descriptors.
    unsafe { libc::poll(both.as_mut_ptr(), 2, MOMENT_MS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linger_ends_by_its_step_or_by_time() {
        let mut steps = 0;
        linger(Duration::from_secs(60), || {
            steps += 1;
            (steps < 3).then(|| (steps == 1, WakeDescriptors::default()))
        });
        assert_eq!(steps, 3);
        let mut slept = 0;
        linger(Duration::from_millis(5), || {
            slept += 1;
            Some((false, WakeDescriptors::default()))
        });
        assert!(slept >= 1);
        linger(Duration::ZERO, || panic!("there is no time for a step"));
    }
}
