//! Control messages: what is to be said about credits when there is no message to ride on.
//!
//! ```text
//!    31..29   28   27..26   25..13   12..0       in the tag of an empty message
//!   +------+-----+--------+--------+--------+
//!   | kind |  E  |   0    |   a    |   b    |
//!   +------+-----+--------+--------+--------+
//!     1 Want     a: credits wanted        b: 0         borrower -> lender
//!     2 Grant    a: going home            b: extra     lender -> borrower, answers Want
//!     3 Revoke   a: credits asked for     b: 0         lender -> borrower
//!     4 Return   a: credits given back    b: 0         borrower -> lender, answers Revoke
//! ```
//!
//! Knows nothing of: when which is sent.

/// The largest number of credits in a control message.
pub const CONTROL_MAX: u16 = (1 << FIELD) - 1;

/// What a control message says. Numbers above [`CONTROL_MAX`] are sent as that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Borrower to lender: nothing can go; so many more are wanted.
    Want(u16),
    /// Lender to borrower: the answer to `Want`.
    Grant {
        /// Credits of taken messages, going home.
        home: u16,
        /// Credits lent on top.
        extra: u16,
    },
    /// Lender to borrower: give back up to so many.
    Revoke(u16),
    /// Borrower to lender: the answer to `Revoke`; 0 is an answer.
    Return(u16),
}

/// A control message as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlWord {
    /// What it says.
    pub control: Control,
    /// The sender, as a lender, has ended an epoch since it last told this peer.
    pub epoch: bool,
}

impl ControlWord {
    /// The tag to send it in.
    pub fn to_tag(self) -> u32 {
        let (kind, a, b) = match self.control {
            Control::Want(a) => (WANT, a, 0),
            Control::Grant { home, extra } => (GRANT, home, extra),
            Control::Revoke(a) => (REVOKE, a, 0),
            Control::Return(a) => (RETURN, a, 0),
        };
        let field = |number: u16| u32::from(number.min(CONTROL_MAX));
        kind << 29 | u32::from(self.epoch) << 28 | field(a) << FIELD | field(b)
    }

    /// Reads a tag; `None` when it is none that [`Self::to_tag`] makes.
    pub fn of_tag(tag: u32) -> Option<Self> {
        let a = (tag >> FIELD) as u16 & CONTROL_MAX;
        let b = tag as u16 & CONTROL_MAX;
        if tag >> 26 & 3 != 0 {
            return None;
        }
        let control = match (tag >> 29, b) {
            (WANT, 0) => Control::Want(a),
            (GRANT, extra) => Control::Grant { home: a, extra },
            (REVOKE, 0) => Control::Revoke(a),
            (RETURN, 0) => Control::Return(a),
            _ => return None,
        };
        Some(Self {
            control,
            epoch: tag >> 28 & 1 != 0,
        })
    }
}

/// Bits of a number.
const FIELD: u32 = 13;

// 0 and 5 to 7 are no kinds.
const WANT: u32 = 1;
const GRANT: u32 = 2;
const REVOKE: u32 = 3;
const RETURN: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were() {
        for a in [0, 1, 2, 4095, 4096, CONTROL_MAX] {
            for control in [
                Control::Want(a),
                Control::Grant { home: a, extra: 7 },
                Control::Grant { home: 3, extra: a },
                Control::Revoke(a),
                Control::Return(a),
            ] {
                for epoch in [false, true] {
                    let word = ControlWord { control, epoch };
                    assert_eq!(ControlWord::of_tag(word.to_tag()), Some(word));
                }
            }
        }
    }

    #[test]
    fn a_tag_is_a_word_or_nothing() {
        // A prime step visits all combinations of the high bits and most of the low ones.
        for tag in (0..=u32::MAX).step_by(9_973) {
            if let Some(word) = ControlWord::of_tag(tag) {
                assert_eq!(word.to_tag(), tag);
            }
        }
        for bad in [
            0,
            u32::MAX,
            5 << 29,
            1 << 29 | 1,
            2 << 29 | 1 << 26,
            4 << 29 | 1,
        ] {
            assert_eq!(ControlWord::of_tag(bad), None, "{bad:#x}");
        }
    }

    #[test]
    fn too_large_numbers_are_sent_as_the_largest() {
        let word = ControlWord {
            control: Control::Want(u16::MAX),
            epoch: false,
        };
        let read = ControlWord::of_tag(word.to_tag()).map(|word| word.control);
        assert_eq!(read, Some(Control::Want(CONTROL_MAX)));
    }
}
