//! Black hole: the warning about a path that drops large datagrams, logged once for each link.

use std::fmt;

/// Report that small datagrams pass and large ones do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::reliability) struct BlackHole {
    /// Size of the largest datagram that passes on the data channel; `None`: none passes.
    pub(in crate::reliability) passes: Option<u32>,
    /// Size of a datagram that does not pass.
    pub(in crate::reliability) does_not: u32,
}

impl fmt::Display for BlackHole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does_not = self.does_not;
        match self.passes {
            Some(passes) => write!(
                f,
                "datagrams of {passes} bytes pass and of {does_not} bytes do not: \
                 is the MTU smaller somewhere on the way than its ends believe?"
            ),
            None => write!(
                f,
                "the command channel answers and the data channel does not, not even to datagrams \
                 of {does_not} bytes: is one of the two ports blocked?"
            ),
        }
    }
}
