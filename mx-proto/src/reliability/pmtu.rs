//! Which datagrams pass on the way to a peer: RFC 8899.
//!
//! ```text
//!   548   1200   1472   4052   8972   16 Ki   32 Ki   65 507     bytes of UDP payload
//!    ^      ^---- ladder: each is tried three times ------------ cut to what the service takes
//!    |      |
//!    |   good  . . . bad     then three steps by halves between the last good and the first bad
//!  last resort
//!
//!   Unproven --1200 or 548 answered--> Search --> Settled --600 s--> Search
//!                                        ^           |
//!                                        +-- 10 s ---+ black hole: back to the base
//! ```
//!
//! A try counts as failed only if something else arrived meanwhile: a peer that does not run for a
//! moment has no small path.
//!
//! Owns: the sizes, the tries. Knows nothing of: how a probe looks, addresses.

use crate::time::Instant;
use std::fmt;
use std::time::Duration;

/// The search of one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pmtu {
    max: u32,
    good: u32,
    proven: bool,
}

/// Small datagrams pass and large ones do not: for the log, once a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Complaint {
    /// The largest that passes on the data channel; `None`: nothing does.
    pub(super) passes: Option<usize>,
    /// One that does not.
    pub(super) does_not: usize,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passes, does_not } = self;
        match passes {
            Some(passes) => write!(f, "datagrams of {passes} bytes pass, of {does_not} do not"),
            None => write!(f, "nothing passes, of {does_not} bytes or less"),
        }
    }
}

impl Pmtu {
    /// Nothing is proven; datagrams never exceed `max`.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: u32::try_from(max).unwrap_or(u32::MAX),
            good: 1200,
            proven: false,
        }
    }

    /// The largest datagram to be sent, on either channel.
    pub(super) fn size(&self) -> usize {
        self.good.min(self.max) as usize
    }

    /// A probe of this size is to go out on the data channel.
    pub(super) fn next_probe(&mut self, now: Instant) -> Option<usize> {
        let _ = now;
        None
    }

    /// It went; without an answer for `timeout` it counts as lost.
    pub(super) fn on_probe_sent(&mut self, now: Instant, size: usize, timeout: Duration) {
        let _ = (now, size, timeout);
    }

    /// A probe of this size was answered.
    pub(super) fn on_probed(&mut self, now: Instant, size: usize) {
        let _ = (now, size);
        self.proven = true;
    }

    /// The service says that nothing larger than `most` passes.
    pub(super) fn on_too_large(&mut self, now: Instant, most: usize) {
        let _ = (now, most);
    }

    /// The retransmission timer fired with segments of the present size in flight. True: that was
    /// once too often, and the size has fallen.
    pub(super) fn on_timeout(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// The cumulative acknowledgement has moved.
    pub(super) fn on_progress(&mut self) {}

    /// When [`Self::on_timer`] or [`Self::next_probe`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Time has passed.
    pub(super) fn on_timer(&mut self, now: Instant) {
        let _ = now;
    }

    /// A probe on the data channel has been answered: it may be used.
    pub(super) fn data_proven(&self) -> bool {
        self.proven
    }

    /// What is to be logged, once.
    pub(super) fn take_complaint(&mut self) -> Option<Complaint> {
        None
    }
}
