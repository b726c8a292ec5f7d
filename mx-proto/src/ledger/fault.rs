//! In which ways a peer can lie about credits.
//!
//! Each is counted as a strike; a peer with more strikes than the settings allow is failed.
//!
//! Knows nothing of: how a peer is failed.

use std::fmt;

/// What a peer did that no honest peer does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// It sent a message that it had no credits for.
    Unpaid,
    /// It said that a message cost something else than it does.
    WrongCount,
    /// It sent a Want before the one before it was answered.
    WantedTwice,
    /// It sent a Return that nobody had asked for.
    ReturnedUnasked,
    /// It gave back more than it was asked for, or has.
    ReturnedTooMuch,
    /// It was quiet for many epochs and still does not give back what it does not use.
    Hoards,
    /// It did not answer a Revoke in time.
    NoAnswer,
    /// It sent a control message that is a lender's.
    WrongDirection,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unpaid => "sent a message that it had no credits for",
            Self::WrongCount => "gave a wrong number of credits used",
            Self::WantedTwice => "wanted credits twice without waiting for the answer",
            Self::ReturnedUnasked => "returned credits that were not asked for",
            Self::ReturnedTooMuch => "returned more credits than asked for or lent",
            Self::Hoards => "keeps credits that it has not used for many epochs",
            Self::NoAnswer => "did not answer when credits were asked back",
            Self::WrongDirection => "sent a lender's message to its lender",
        })
    }
}
