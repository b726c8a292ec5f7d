//! The state of one peer.
//!
//! ```text
//!            post                        the answer
//!   INIT ------------> WAIT: Connecting ----------------------> READY <--- hello --- (a peer that connects)
//!    ^                    |  |                                  ^  |
//!    |                    |  `--> Requested --- CONN_ACK -------'  |
//!    |                    v           |  failure, time-out         v  peer lost, dropped
//!    `------------------ DISCONNECT <-+----------------------------'
//! ```
//!
//! Requested is for a C `bmi_mx`, whose hello has no greeting: it gets a CONN_REQ, and sends one when it connects. A
//! peer that has connected itself begins in READY, and stays in INIT after its connection has ended; it is never called
//! back.
//!
//! A connection that is cut before READY is tried once more from the start (Connecting): the peer may just have been
//! closing the previous one. Several attempts may be in progress in Connecting, one at each address of the peer
//! ([`Attempts`](super::attempts::Attempts)).
//!
//! [`TRANSITIONS`] lists the arrows; `docs/states.md` describes the effect of each on operations.
//!
//! Owns: the data of each state and the legal transitions.
//! Out of scope: operations, the endpoint.

use crate::abi::constants as bmi;
use libc::c_int;
use mx_proto::port::{ConnectError, LinkDown};
use mx_proto::transition_table;
use mx_proto::{DownReason, RemoteId, Status};
use std::fmt;

/// State of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No connection: before the first one, or after one has ended.
    Init,
    /// Connecting, or handshake in progress. Sends are queued.
    Wait(WaitState),
    /// The connection is ready for messages.
    Ready(Ready),
    /// The connection has ended, and its operations complete. INIT follows within the same call.
    Disconnect {
        /// Cause, which determines the code with which the operations complete.
        cause: Cause,
    },
}

/// Steps of connecting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitState {
    /// Transport connects (ICON_REQ) are in progress.
    Connecting,
    /// CONN_REQ was sent, and waits for CONN_ACK.
    Requested {
        /// Remote that it was sent to.
        remote: RemoteId,
        /// Cause that cut the attempt before this one, if any. At most two attempts are made.
        cut: Option<Cause>,
    },
}

/// Result of a finished handshake: the two ids needed to send to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The endpoint's id of the peer.
    pub remote: RemoteId,
    /// The peer's id for this process, contained in every message to it.
    pub tx_id: u32,
}

impl State {
    /// Returns the endpoint's id of the peer; `None` before the endpoint is connected to the peer.
    #[inline]
    pub const fn remote(&self) -> Option<RemoteId> {
        match self {
            Self::Ready(Ready { remote, .. }) | Self::Wait(WaitState::Requested { remote, .. }) => {
                Some(*remote)
            }
            Self::Init | Self::Wait(WaitState::Connecting) | Self::Disconnect { .. } => None,
        }
    }

    /// Returns whether the state is one of WAIT.
    pub const fn is_wait(&self) -> bool {
        matches!(self, Self::Wait(_))
    }

    /// Returns the state without its data.
    pub const fn name(&self) -> StateName {
        match self {
            Self::Init => StateName::Init,
            Self::Wait(WaitState::Connecting) => StateName::Connecting,
            Self::Wait(WaitState::Requested { .. }) => StateName::Requested,
            Self::Ready(_) => StateName::Ready,
            Self::Disconnect { .. } => StateName::Disconnect,
        }
    }

    /// Returns whether `next` may follow this state, according to [`TRANSITIONS`].
    pub fn may_become(&self, next: &Self) -> bool {
        TRANSITIONS
            .iter()
            .any(|legal| legal.from == self.name() && legal.to == next.name())
    }

    /// Changes to `next`. Debug builds check that the transition is legal, and record it.
    pub fn become_next(&mut self, next: Self) {
        debug_assert!(self.may_become(&next), "{self} -> {next}");
        note(self.name(), next.name());
        *self = next;
    }
}

/// A state without its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StateName {
    /// [`State::Init`].
    Init,
    /// [`WaitState::Connecting`].
    Connecting,
    /// [`WaitState::Requested`].
    Requested,
    /// [`State::Ready`].
    Ready,
    /// [`State::Disconnect`].
    Disconnect,
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "INIT",
            Self::Connecting => "WAIT (connecting)",
            Self::Requested => "WAIT (requested)",
            Self::Ready => "READY",
            Self::Disconnect => "DISCONNECT",
        })
    }
}

// The simulator's random programs cover every transition.
transition_table! {
    StateName {
        Init => Connecting: "an operation is posted: our transport connect begins",
        Init => Ready: "a peer calls, by its hello or by CONN_REQ",
        Connecting => Ready: "the first transport connect is done, and the peer's hello had all there is",
        Connecting => Requested: "the first transport connect is done: CONN_REQ is sent to a C method",
        Connecting => Disconnect: "refused, no route, time-out at all its addresses; the last object is dropped; the name leads to another peer now; a C method has called before",
        Requested => Connecting: "the connection is cut before the answer: the method tries once \
            more",
        Requested => Ready: "CONN_ACK comes and accepts; CONN_REQ comes",
        Requested => Disconnect: "CONN_ACK refuses; cut, time-out; the last address is dropped",
        Ready => Ready: "CONN_REQ comes again, perhaps with another id",
        Ready => Disconnect: "the peer is lost or silent; the last address is dropped",
        Disconnect => Init: "all operations that were under way have completed, within the same call",
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// Reasons for disconnecting a peer, which determine the code of its operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The peer disconnected or restarted, or its address was dropped.
    Reset,
    /// No endpoint listens there, or it rejects the connection.
    Refused,
    /// There is no route to the peer.
    Unreachable,
    /// No answer arrived in time.
    TimedOut,
    /// The peer speaks another version, or violates the protocol.
    Protocol,
    /// The peer or this process has no room for another peer.
    NoRoom,
    /// The peer and this process have different secrets.
    Secret,
    /// The peer rejects this process, whose address it cannot verify.
    Denied,
}

impl Cause {
    /// Returns the negative BMI code with which the peer's operations complete.
    pub const fn code(self) -> c_int {
        -match self {
            Self::Reset => bmi::BMI_ENETRESET,
            Self::Refused => bmi::BMI_ECONNREFUSED,
            Self::Unreachable => bmi::BMI_EHOSTUNREACH,
            Self::TimedOut => bmi::BMI_ETIMEDOUT,
            Self::Protocol => bmi::BMI_EPROTO,
            Self::NoRoom => bmi::BMI_ENOMEM,
            Self::Secret => bmi::BMI_EACCES,
            Self::Denied => bmi::BMI_EPERM,
        }
    }

    /// Returns whether this cause is more informative than another attempt's about why a peer cannot be reached.
    pub const fn says_more(self, than: Self) -> bool {
        self.rank() > than.rank()
    }

    const fn rank(self) -> u8 {
        match self {
            Self::TimedOut => 0,
            Self::Unreachable => 1,
            Self::Refused => 2,
            // The peer itself has answered.
            _ => 3,
        }
    }

    /// Returns the cause for a lost remote.
    pub const fn of_down(reason: DownReason) -> Self {
        match reason {
            DownReason::Disconnected => Self::Reset,
            DownReason::Secret => Self::Secret,
            DownReason::NoMemory => Self::NoRoom,
            DownReason::Protocol(_) => Self::Protocol,
            DownReason::Link(link) => match link {
                LinkDown::Refused => Self::Refused,
                LinkDown::Unreachable | LinkDown::Elsewhere(_) => Self::Unreachable,
                LinkDown::TimedOut => Self::TimedOut,
                LinkDown::Denied => Self::Denied,
                LinkDown::Closed | LinkDown::Reset => Self::Reset,
                LinkDown::Protocol => Self::Protocol,
            },
        }
    }

    /// Returns the cause for a failed transport connect.
    pub const fn of_connect(status: Status) -> Self {
        match status {
            Status::Timeout => Self::TimedOut,
            Status::Unreachable => Self::Unreachable,
            Status::BadEndpoint => Self::Protocol,
            Status::NoResources => Self::NoRoom,
            Status::BadSecret => Self::Secret,
            Status::Refused => Self::Denied,
            _ => Self::Refused,
        }
    }

    /// Returns the cause for a transport connect that could not be started.
    pub const fn of_start(error: ConnectError) -> Self {
        match error {
            ConnectError::UnknownNic | ConnectError::NoRoute | ConnectError::BadEndpoint => {
                Self::Unreachable
            }
            ConnectError::Refused => Self::Refused,
            ConnectError::NoResources => Self::NoRoom,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "the peer disconnected",
            Self::Refused => "connection refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "no answer in time",
            Self::Protocol => "protocol mismatch",
            Self::NoRoom => "no room",
            Self::Secret => "the two sides have different secrets (MX_SECRET_FILE)",
            Self::Denied => "rejected: the peer cannot verify our address",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_state() -> Vec<State> {
        let (remote, cut) = (RemoteId::new(2, 1), None);
        vec![
            State::Init,
            State::Wait(WaitState::Connecting),
            State::Wait(WaitState::Requested { remote, cut }),
            State::Ready(Ready { remote, tx_id: 3 }),
            State::Disconnect {
                cause: Cause::Reset,
            },
        ]
    }

    #[test]
    fn a_connect_that_fails_says_why() {
        for (status, cause) in [
            (Status::Timeout, Cause::TimedOut),
            (Status::Unreachable, Cause::Unreachable),
            (Status::BadEndpoint, Cause::Protocol),
            (Status::NoResources, Cause::NoRoom),
            (Status::BadSecret, Cause::Secret),
            (Status::Refused, Cause::Denied),
            (Status::BadKey, Cause::Refused),
        ] {
            assert_eq!(Cause::of_connect(status), cause, "{status:?}");
        }
    }

    #[test]
    fn exactly_the_drawn_moves_are_legal() {
        // Rows: from; columns: to; in the order of `every_state`.
        let drawn = [
            [0, 1, 0, 1, 0],
            [0, 0, 1, 1, 1],
            [0, 1, 0, 1, 1],
            [0, 0, 0, 1, 1],
            [1, 0, 0, 0, 0],
        ];
        for (from, row) in every_state().iter().zip(drawn) {
            for (to, legal) in every_state().iter().zip(row) {
                assert_eq!(from.may_become(to), legal == 1, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn only_states_after_the_first_contact_have_a_remote() {
        let with: Vec<_> = every_state()
            .iter()
            .map(|state| state.remote().is_some())
            .collect();
        assert_eq!(with, [false, false, true, true, false]);
    }

    #[test]
    fn every_cause_is_a_negative_code_of_its_own() {
        let causes = [
            Cause::Reset,
            Cause::Refused,
            Cause::Unreachable,
            Cause::TimedOut,
            Cause::Protocol,
            Cause::NoRoom,
            Cause::Secret,
            Cause::Denied,
        ];
        let mut codes: Vec<_> = causes.iter().map(|cause| cause.code()).collect();
        assert!(codes.iter().all(|code| *code < 0));
        codes.dedup();
        assert_eq!(codes.len(), causes.len());
    }
}
