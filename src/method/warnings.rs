//! The log's warning when the memory for unexpected messages runs short.

use super::Method;
use mx_proto::Clock;
use mx_proto::port::Port;
use mx_sys::UserMemory;

/// Returns nine tenths of what may be lent of `limit`: seven eighths, or the rest beside the `largest` message.
pub(super) fn most_of_lent(limit: usize, largest: usize) -> usize {
    let lent = limit - largest.max(limit / 8).min(limit - limit / 8);
    lent - lent / 10
}

/// Returns whether more than `alarm` is used, and disables the alarm if so.
#[inline]
fn exceeds(used: usize, alarm: &mut usize) -> bool {
    let exceeds = used > *alarm;
    if exceeds {
        *alarm = usize::MAX;
    }
    exceeds
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Warns once per opening of the method that nearly all memory is lent to peers or used by their messages.
    #[inline]
    pub(super) fn watch_memory(&mut self) {
        let (used, limit) = self.endpoint.unexpected_usage();
        if exceeds(used, &mut self.memory_alarm) {
            log::warn!(
                "unexpected messages and credits lent for them use nine tenths of \
                 MX_UNEXPECTED_BYTES={limit}; this warning appears once"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{exceeds, most_of_lent};

    #[test]
    fn most_is_nine_tenths_of_what_may_be_lent() {
        assert_eq!([0, 8, 800].map(|limit| most_of_lent(limit, 0)), [0, 7, 630]);
        assert_eq!(
            [400, 900].map(|largest| most_of_lent(800, largest)),
            [360, 90]
        );
        assert!(most_of_lent(usize::MAX, 0) < usize::MAX);
    }

    #[test]
    fn the_alarm_goes_off_once_above_its_value() {
        let mut alarm = 630;
        let seen = [629, 630, 631, 700, 600, 631].map(|used| exceeds(used, &mut alarm));
        assert_eq!(seen, [false, false, true, false, false, false]);
    }
}
