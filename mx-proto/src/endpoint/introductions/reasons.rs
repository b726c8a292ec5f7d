//! Reasons for refusing a peer that called, and for dropping a peer that we called.

use crate::wire::VERSION;
use std::fmt;

/// Reason for refusing a peer that called; the texts below explain each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::endpoint) enum Rejection {
    Unproven,
    Relayed,
    Key,
    /// The peer's version, and the oldest version that it understands.
    Version(u16, u16),
    Secret,
    Silent,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unproven => "but the network does not confirm that",
            Self::Relayed => {
                "called another name than ours: a relay, or a translator of our address, and with a \
                 secret of the site neither is accepted"
            }
            Self::Key => "but its connection key differs from ours",
            Self::Version(theirs, oldest) if *oldest > VERSION => {
                return write!(
                    f,
                    "but uses protocol version {theirs}, which understands none before {oldest}; \
                     ours is {VERSION}"
                );
            }
            Self::Version(theirs, _) => {
                return write!(f, "but uses protocol version {theirs}; ours is {VERSION}");
            }
            Self::Secret => {
                "but has another secret of the site than we, or none: give it the same file \
                 (MX_SECRET_FILE)"
            }
            Self::Silent => {
                "but went when asked for the site's secret: give it the same file (MX_SECRET_FILE)"
            }
        })
    }
}

/// Reason for distrusting a peer that we called; the texts below explain each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::endpoint) enum Distrust {
    Unasked,
    Refused,
    Unvouched,
    Echo,
    Another,
    Wanted,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unasked => {
                "does not ask for the site's secret, so it has none: it needs the same file as we"
            }
            Self::Refused => "says that we do not know the site's secret: both sides need the same \
                file",
            Self::Unvouched => {
                "is not the peer that has proven the site's secret: a relay passes on what others say"
            }
            Self::Echo => "is this endpoint itself: our packets come back to us",
            Self::Another => "has a different secret: both sides need the same file",
            Self::Wanted => "requires the site's secret, and this side has none: use the same file",
        })
    }
}
