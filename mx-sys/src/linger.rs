//! Polls a closing endpoint, which has no other thread, for a bounded time.
//!
//! ```text
//!   step() --> Over       Busy: again       Idle(descriptors): sleep until one is readable, or a moment
//! ```

use mx_proto::port::WakeDescriptors;
use std::time::{Duration, Instant};

/// The longest sleep, in milliseconds: what has not been armed may not end it.
const MOMENT_MS: i32 = 2;

/// The result of one step.
#[derive(Clone, Copy, Debug)]
pub enum Lingering {
    /// There is nothing left to wait for.
    Over,
    /// Something happened; there may be more.
    Busy,
    /// Nothing happened.
    Idle(WakeDescriptors),
}

/// Takes steps until one says that it is over, or `span` has passed.
pub fn linger(span: Duration, mut step: impl FnMut() -> Lingering) {
    let until = Instant::now() + span;
    while Instant::now() < until {
        match step() {
            Lingering::Over => return,
            Lingering::Busy => {}
            Lingering::Idle(descriptors) => sleep(descriptors),
        }
    }
}

fn sleep(descriptors: WakeDescriptors) {
    let mut both = [descriptors.control, descriptors.data].map(|fd| libc::pollfd {
        fd: fd.unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: two entries; a negative descriptor is ignored.
    unsafe { libc::poll(both.as_mut_ptr(), 2, MOMENT_MS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_a_step_says_so_and_otherwise_when_the_time_is_up() {
        let mut steps = 0;
        linger(Duration::from_secs(60), || {
            steps += 1;
            match steps {
                1 => Lingering::Busy,
                2 => Lingering::Idle(WakeDescriptors::default()),
                _ => Lingering::Over,
            }
        });
        assert_eq!(steps, 3);
        let mut slept = 0;
        linger(Duration::from_millis(5), || {
            slept += 1;
            Lingering::Idle(WakeDescriptors::default())
        });
        assert!(slept >= 1);
        linger(Duration::ZERO, || panic!("there is no time for a step"));
    }
}
