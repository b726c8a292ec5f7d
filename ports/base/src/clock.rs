//! The machine's monotonic clock.
//!
//! ```text
//!   CLOCK_MONOTONIC --(vDSO, no system call)--> mx_proto::Instant (ns since boot)
//! ```
//!
//! All processes of a machine read the same time.

use mx_proto::{Clock, Instant};

/// Clock that reads `CLOCK_MONOTONIC` without a system call: nanoseconds since boot, equal in all processes of the
/// machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` is valid for writing. The call cannot fail for this clock; if it did, the time would be 0, not
        // undefined.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        Instant(
            (now.tv_sec as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(now.tv_nsec as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_forward_and_in_nanoseconds() {
        let clock = MonotonicClock;
        // Each clock is read within the other's span.
        let (begin, wall) = (clock.now(), std::time::Instant::now());
        while wall.elapsed().as_micros() < 2_000 {
            std::hint::spin_loop();
        }
        let waited = wall.elapsed();
        let span = clock.now().since(begin);
        assert!(span >= waited, "{span:?} around {waited:?}");
        assert!(begin.after(waited) <= clock.now());
    }
}
