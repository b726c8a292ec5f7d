//! The attempts to connect to a peer at its addresses, side by side (RFC 8305, Happy Eyeballs).
//!
//! ```text
//!   address A   attempt ------------------------------- no answer --------> cancelled
//!           B           `- 250 ms later: attempt -- refused                  ^
//!           C                                          `- at once: attempt --+- accepted: the session
//!           D                                                                   (not tried)
//! ```
//!
//! An attempt continues while the next ones begin: over a path that takes longer than 250 ms the first one still
//! succeeds. There is one attempt for each address of the peer, from whichever address of this machine the kernel
//! chooses, and one more for an address that cuts the connection.
//!
//! Owns: the attempts of one connect.
//! Out of scope: the endpoint, which connects; the order of the addresses
//! ([`Peer::addresses`](super::table::Peer::addresses)).

use super::state::Cause;
use mx_proto::{Instant, NicId, Reminder, RequestId};
use std::time::Duration;

/// Time between two attempts: the Connection Attempt Delay that RFC 8305, section 8, recommends.
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// An attempt to connect at one address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Interface with that address.
    pub nic: NicId,
    /// Transport connect (ICON_REQ) in progress, or the reason why it failed.
    pub request: Result<RequestId, Cause>,
    /// Cause that cut the first attempt at this address; `None` during the first one. A second attempt that is cut is
    /// the last.
    pub cut: Option<Cause>,
    /// The peer's id for this process; `None` until its hello has arrived.
    pub tx_id: Option<u32>,
}

/// The attempts of one connect.
#[derive(Default, Debug)]
pub struct Attempts {
    /// Attempts in the order in which their addresses were first tried.
    all: Vec<Attempt>,
    /// Reason why the previous connection was lost, if it had not reached READY; `None` for a first try. A lost
    /// connection is tried once more only.
    pub cut: Option<Cause>,
    /// Time of the next attempt or name resolution, and the reminder set for it; `None` if not scheduled.
    pub next: Option<(Instant, Reminder)>,
}

impl Attempts {
    /// Makes an empty list. `cut`: why the previous connection was lost before it was ready; `None` for a first try.
    pub fn after(cut: Option<Cause>) -> Self {
        Self {
            cut,
            ..Self::default()
        }
    }

    /// Records an attempt that has begun at its interface, or failed to begin, in place of an earlier one there.
    pub fn begin(&mut self, attempt: Attempt) {
        match self.all.iter_mut().find(|known| known.nic == attempt.nic) {
            Some(known) => *known = attempt,
            None => self.all.push(attempt),
        }
    }

    /// Returns the attempt whose transport connect `request` is in progress.
    pub fn of(&mut self, request: RequestId) -> Option<&mut Attempt> {
        let mut all = self.all.iter_mut();
        all.find(|attempt| attempt.request == Ok(request))
    }

    /// Returns whether that interface has been tried.
    pub fn has_tried(&self, nic: NicId) -> bool {
        self.all.iter().any(|attempt| attempt.nic == nic)
    }

    /// Returns whether an attempt is in progress.
    pub fn is_under_way(&self) -> bool {
        self.all.iter().any(|attempt| attempt.request.is_ok())
    }

    /// Removes the attempts at interfaces not to be kept, and returns their transport connects that are in progress, to
    /// be cancelled.
    pub fn retain(&mut self, keep: impl Fn(NicId) -> bool) -> Vec<RequestId> {
        let gone = self.all.extract_if(.., |attempt| !keep(attempt.nic));
        gone.filter_map(|attempt| attempt.request.ok()).collect()
    }

    /// Returns the most informative cause of the failure, `last` included: the peer's own answer, then a refusal by its
    /// machine, then a report that there is no route, then a time-out; the first one among equals.
    pub fn cause_of_failure(&self, last: Cause) -> Cause {
        let failed = self.all.iter().filter_map(|attempt| attempt.request.err());
        let worse = |most: Cause, next: Cause| if next.says_more(most) { next } else { most };
        failed.chain([last]).reduce(worse).unwrap_or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(nic: u64, request: Result<u32, Cause>) -> Attempt {
        Attempt {
            nic: NicId(nic),
            request: request.map(|index| RequestId::new(index, 1)),
            cut: None,
            tx_id: None,
        }
    }

    #[test]
    fn one_address_has_one_attempt_at_a_time() {
        let mut attempts = Attempts::default();
        attempts.begin(attempt(1, Ok(1)));
        attempts.begin(attempt(2, Err(Cause::Unreachable)));
        attempts.begin(attempt(1, Ok(2)));
        assert_eq!(attempts.of(RequestId::new(1, 1)), None);
        let second = attempts.of(RequestId::new(2, 1)).copied();
        assert_eq!(second, Some(attempt(1, Ok(2))));
        assert!(attempts.has_tried(NicId(2)) && !attempts.has_tried(NicId(3)));
        assert!(attempts.is_under_way());
        let called_off = attempts.retain(|nic| nic == NicId(2));
        assert_eq!(called_off, [RequestId::new(2, 1)]);
        assert!(!attempts.is_under_way() && attempts.has_tried(NicId(2)));
        assert_eq!(attempts.retain(|_| false), []);
        assert!(!attempts.has_tried(NicId(2)));
    }

    #[test]
    fn the_most_telling_cause_is_the_one_of_the_failure() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.cause_of_failure(Cause::TimedOut), Cause::TimedOut);
        for (nic, cause, most) in [
            (1, Cause::TimedOut, Cause::TimedOut),
            (2, Cause::Unreachable, Cause::Unreachable),
            (3, Cause::Refused, Cause::Refused),
            (4, Cause::TimedOut, Cause::Refused),
            (5, Cause::Secret, Cause::Secret),
            (6, Cause::NoRoom, Cause::Secret),
        ] {
            attempts.begin(attempt(nic, Err(cause)));
            assert_eq!(attempts.cause_of_failure(Cause::TimedOut), most);
        }
        attempts.retain(|nic| nic == NicId(1));
        assert_eq!(attempts.cause_of_failure(Cause::Refused), Cause::Refused);
    }
}
