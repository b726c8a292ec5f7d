//! Time-outs of operations.

use std::time::Duration;

/// Time that an operation may go without progress, in four bytes: whole milliseconds, rounded up; 0: unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timeout(u32);

impl Timeout {
    pub(crate) const FOR_EVER: Self = Self(0);

    /// Makes a time-out. Spans above 49 days are unlimited, those below a millisecond are one millisecond.
    pub(crate) fn new(span: Option<Duration>) -> Self {
        let millis = span.map(|span| span.as_nanos().div_ceil(1_000_000).max(1));
        Self(millis.map_or(0, |millis| u32::try_from(millis).unwrap_or(0)))
    }

    /// Returns the span; `None`: unlimited.
    pub(crate) fn span(self) -> Option<Duration> {
        (self.0 != 0).then(|| Duration::from_millis(self.0.into()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeOuts {
    /// Time-out of a transfer or a connect.
    pub(crate) transfer: Timeout,
    /// Time-out of an operation that waits to be matched.
    pub(crate) waiting: Timeout,
}

impl TimeOuts {
    pub(crate) const NONE: Self = Self {
        transfer: Timeout::FOR_EVER,
        waiting: Timeout::FOR_EVER,
    };

    /// Returns the time-outs of a new posted receive, whose wait is unlimited.
    #[inline]
    pub(crate) fn of_receive(self) -> Self {
        Self {
            waiting: Timeout::FOR_EVER,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_never_shorter_than_what_was_asked_for() {
        let span = |span| Timeout::new(Some(span)).span();
        assert_eq!(Timeout::new(None).span(), None);
        let millis = Duration::from_millis;
        assert_eq!(span(Duration::ZERO), Some(millis(1)));
        assert_eq!(span(Duration::from_nanos(1_000_001)), Some(millis(2)));
        let longest = millis(u32::MAX.into());
        assert_eq!(span(longest), Some(longest));
        assert_eq!(span(longest + Duration::from_nanos(1)), None);
        assert_eq!(span(Duration::MAX), None);
    }
}
