//! The warning about a path that drops large datagrams, logged once a link.

use std::fmt;

/// Small datagrams pass and large ones do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::reliability) struct BlackHole {
    /// The largest that passes on the data channel; `None`: nothing does.
    pub(in crate::reliability) passes: Option<usize>,
    /// One that does not.
    pub(in crate::reliability) does_not: usize,
}

/// The state of the warning, which is logged once.
#[derive(Clone, Copy, Default, Debug)]
pub(super) enum Reporting {
    #[default]
    No,
    Due(BlackHole),
    Done,
}

impl Reporting {
    /// Only the first is kept.
    pub(super) fn report(&mut self, passes: Option<u32>, does_not: u32) {
        if matches!(self, Self::No) {
            *self = Self::Due(BlackHole {
                passes: passes.map(|passes| passes as usize),
                does_not: does_not as usize,
            });
        }
    }

    /// The black hole to be logged, once.
    pub(super) fn take(&mut self) -> Option<BlackHole> {
        let Self::Due(black_hole) = *self else {
            return None;
        };
        *self = Self::Done;
        Some(black_hole)
    }
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
