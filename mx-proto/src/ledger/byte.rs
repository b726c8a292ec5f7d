//! The credit byte in the match bits of every message, and what a message costs.
//!
//! ```text
//!    63..60   59  58..56  55..52   51..32     31..0
//!   +------+----+-------+--------+---------+---------+
//!   | type | E  |  XXX  |  NNNN  | peer id |   tag   |
//!   +------+----+-------+--------+---------+---------+
//!     UNEXPECTED   XXX: credits the sender was short of      NNNN: credits used, 15 for more
//!     EXPECTED     XXX: credits lent on top                  NNNN: credits going home
//!                  E: the sender, as a lender, has ended an epoch since it last said so
//! ```
//!
//! XXX is a code: 0, 1, 2, 4, 8, 16, 32, 64. Every bit pattern has a meaning, so reading cannot fail.
//!
//! Knows nothing of: who has how many credits.

use crate::ids::MatchBits;

/// Bytes of a message's contents that one credit pays for.
pub const CREDIT_BYTES: u32 = 256;

/// Bytes of memory that one credit stands for: its contents, and 64 of bookkeeping.
pub const CREDIT_COST: usize = CREDIT_BYTES as usize + 64;

/// Credits that a message of `len` bytes costs when it goes with its data; at least 1.
#[inline]
pub fn cost(len: u32) -> u32 {
    len.div_ceil(CREDIT_BYTES).max(1)
}

/// What a message says about credits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditByte {
    /// The sender, as a lender, has ended an epoch since it last told this peer.
    pub epoch: bool,
    /// Credits of the code table: 0, 1, 2, 4, ... 64. Others are sent as the next lower one.
    pub extra: u16,
    /// 0 to 15. More is sent as 15.
    pub count: u8,
}

impl CreditByte {
    /// The match bits it lies in.
    pub const MASK: u64 = 0xff << SHIFT;

    /// Of a message that has nothing to do with credits.
    pub const NONE: Self = Self {
        epoch: false,
        extra: 0,
        count: 0,
    };

    /// The largest `extra`.
    pub const EXTRA_MAX: u16 = 64;

    /// The largest `count`.
    pub const COUNT_MAX: u8 = 15;

    /// Reads it from a message's match bits.
    #[inline]
    pub fn of(bits: MatchBits) -> Self {
        let byte = (bits.0 >> SHIFT) as u8;
        let code = byte >> 4 & 7;
        Self {
            epoch: byte & 0x80 != 0,
            extra: (1 << code) >> 1,
            count: byte & 0xf,
        }
    }

    /// `bits` with this byte in it instead of what was there.
    #[inline]
    #[must_use]
    pub fn put(self, bits: MatchBits) -> MatchBits {
        let extra = self.extra.min(Self::EXTRA_MAX);
        // 0 -> 0, 1 -> 1, 2 and 3 -> 2, 4 to 7 -> 3, ...
        let code = (u16::BITS - extra.leading_zeros()) as u64;
        let count = u64::from(self.count.min(Self::COUNT_MAX));
        let byte = u64::from(self.epoch) << 7 | code << 4 | count;
        MatchBits(bits.0 & !Self::MASK | byte << SHIFT)
    }
}

/// The largest number of the code table that is not above `credits`.
#[inline]
pub(super) fn code_within(credits: u16) -> u16 {
    let credits = credits.min(CreditByte::EXTRA_MAX);
    match credits {
        0 => 0,
        some => 1 << some.ilog2(),
    }
}

/// The smallest number of the code table that is not below `credits`; at most 64.
#[inline]
pub(super) fn code_covering(credits: u16) -> u16 {
    match credits.min(CreditByte::EXTRA_MAX) {
        0 => 0,
        some => some.next_power_of_two(),
    }
}

/// Where it lies in the match bits.
const SHIFT: u32 = 52;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_meaning_and_comes_back_as_it_was() {
        for byte in 0..=255u64 {
            let bits = MatchBits(0xd00f_1234_5678_9abc & !CreditByte::MASK | byte << 52);
            let read = CreditByte::of(bits);
            assert_eq!(read.put(MatchBits(!0)).0 >> 52 & 0xff, byte);
            assert_eq!(read.put(bits), bits);
            assert_eq!(read.put(MatchBits(0)).0 & !CreditByte::MASK, 0);
        }
    }

    #[test]
    fn the_layout_is_that_of_the_notes() {
        let byte = CreditByte {
            epoch: true,
            extra: 16,
            count: 9,
        };
        assert_eq!(byte.put(MatchBits(0)).0 >> 52, 0b1101_1001);
        assert_eq!(CreditByte::NONE.put(MatchBits(!0)).0, !CreditByte::MASK);
        let table: Vec<u16> = (0..8u64)
            .map(|code| CreditByte::of(MatchBits(code << 56)).extra)
            .collect();
        assert_eq!(table, [0, 1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn what_does_not_fit_is_sent_as_the_next_lower() {
        let sent = |extra, count| {
            let byte = CreditByte {
                epoch: false,
                extra,
                count,
            };
            let read = CreditByte::of(byte.put(MatchBits(0)));
            (read.extra, read.count)
        };
        assert_eq!(sent(3, 16), (2, 15));
        assert_eq!(sent(63, 255), (32, 15));
        assert_eq!(sent(u16::MAX, 0), (64, 0));
        for credits in 0..200 {
            assert_eq!(sent(credits, 0).0, code_within(credits));
            assert!(code_covering(credits) >= credits.min(64));
            assert_eq!(sent(code_covering(credits), 0).0, code_covering(credits));
        }
    }

    #[test]
    fn a_message_costs_a_credit_for_every_256_bytes() {
        let costs = [0, 1, 255, 256, 257, 512, 513, u32::MAX].map(cost);
        assert_eq!(costs, [1, 1, 1, 1, 2, 2, 3, 1 << 24]);
    }
}
