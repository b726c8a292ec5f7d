//! The knobs of a lender, and which values of them contradict each other.
//!
//! ```text
//!   total  |<- reserve ->|<----------- may be lent ------------------------>|
//!                        |<- low ->|          |<- lent at connect (percent)->|
//!   a loan      0 ... minimum ........... initial ............... maximum
//! ```
//!
//! Knows nothing of: environment variables, where the values come from.

use super::byte::CREDIT_COST;
use std::fmt;
use std::time::Duration;

/// How credits are lent. Counts are in credits unless they say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LenderSettings {
    /// All there are.
    pub total: u32,
    /// What a peer is lent at connect, while there is room; see `lent_percent`.
    pub initial: u16,
    /// What a quiet peer may keep as long as nobody waits without any.
    pub minimum: u16,
    /// The most a peer is lent.
    pub maximum: u16,
    /// Never lent: kept for pulling offered messages. At least the cost of the largest message.
    pub reserve: u32,
    /// The part of `total` that is lent at connect, in percent; all that can be lent when that is
    /// less. Loans get smaller as it is used up.
    pub lent_percent: u8,
    /// The most a peer is lent on top within an epoch (what was lent in earlier ones decays).
    pub lend_limit: u16,
    /// The most that is taken back from a peer within an epoch (likewise).
    pub revoke_limit: u16,
    /// An epoch ends after so many unexpected messages, or four for each peer, whichever is more.
    pub epoch_messages: u32,
    /// An epoch ends after this time.
    pub epoch_time: Duration,
    /// The bank is low when less than this part of `total`, in percent, can be lent.
    pub low_percent: u8,
    /// How many peers are asked for credits at once.
    pub scavenge: u16,
    /// How long a peer may take to answer when it is asked for credits.
    pub revoke_timeout: Duration,
    /// How many lies a peer is forgiven before it is failed; 255 at most.
    pub strikes: u16,
    /// What may wait here at once from a peer that knows no credits.
    pub fixed: u16,
}

impl Default for LenderSettings {
    fn default() -> Self {
        Self {
            total: (64 << 20) / CREDIT_COST as u32,
            initial: 64,
            minimum: 4,
            maximum: 8192,
            // An eighth.
            reserve: (8 << 20) / CREDIT_COST as u32,
            lent_percent: 50,
            lend_limit: 1024,
            revoke_limit: 1024,
            epoch_messages: 4096,
            epoch_time: Duration::from_secs(1),
            low_percent: 5,
            scavenge: 32,
            revoke_timeout: Duration::from_secs(10),
            strikes: 16,
            fixed: 64,
        }
    }
}

impl LenderSettings {
    /// Refuses values that contradict each other, or are out of their range.
    pub fn check(&self) -> Result<(), Impossible> {
        let at_least_one = [
            ("total", self.total != 0),
            ("reserve", self.reserve != 0),
            ("maximum", self.maximum != 0),
            ("lend_limit", self.lend_limit != 0),
            ("revoke_limit", self.revoke_limit != 0),
            ("epoch_messages", self.epoch_messages != 0),
            ("epoch_time", !self.epoch_time.is_zero()),
            ("scavenge", self.scavenge != 0),
            ("revoke_timeout", !self.revoke_timeout.is_zero()),
            ("strikes", self.strikes != 0),
            ("fixed", self.fixed != 0),
        ];
        if let Some((knob, _)) = at_least_one.iter().find(|(_, sensible)| !sensible) {
            return Err(Impossible::Zero { knob });
        }
        let lendable = u64::from(self.total.saturating_sub(self.reserve));
        // A percentage is compared as the credits that it stands for.
        let at_most = [
            ("scavenge", self.scavenge.into(), "its range", SCAVENGE_MAX),
            ("strikes", self.strikes.into(), "its range", STRIKES_MAX),
            ("lent_percent", self.lent_percent.into(), "its range", 100),
            ("low_percent", self.low_percent.into(), "its range", 100),
            (
                "minimum",
                self.minimum.into(),
                "maximum",
                self.maximum.into(),
            ),
            (
                "initial",
                self.initial.into(),
                "maximum",
                self.maximum.into(),
            ),
            // One credit at least can be lent, or nobody ever sends anything.
            (
                "reserve",
                self.reserve.into(),
                "total - 1",
                u64::from(self.total) - 1,
            ),
            ("fixed", self.fixed.into(), "total", self.total.into()),
            (
                "low_percent of total",
                self.low().into(),
                "total - reserve",
                lendable,
            ),
        ];
        for (knob, value, bound, limit) in at_most {
            if value > limit {
                return Err(Impossible::Above {
                    knob,
                    value,
                    bound,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Credits that are lent at connect, in all.
    pub(super) fn lent_at_connect(&self) -> u32 {
        percent(self.total, self.lent_percent)
    }

    /// The bank is low when fewer can be lent.
    pub(super) fn low(&self) -> u32 {
        percent(self.total, self.low_percent)
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Impossible {
    /// It has to be at least one.
    Zero {
        /// The field of [`LenderSettings`].
        knob: &'static str,
    },
    /// It is above what something else allows.
    Above {
        /// The field of [`LenderSettings`], or what it stands for.
        knob: &'static str,
        /// What it is.
        value: u64,
        /// What it may not exceed.
        bound: &'static str,
        /// And what that is.
        limit: u64,
    },
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { knob } => write!(f, "{knob} is 0"),
            Self::Above {
                knob,
                value,
                bound,
                limit,
            } => write!(f, "{knob} is {value}, more than {bound}, which is {limit}"),
        }
    }
}

impl std::error::Error for Impossible {}

fn percent(of: u32, percent: u8) -> u32 {
    (u64::from(of) * u64::from(percent) / 100).min(u32::MAX.into()) as u32
}

/// Answers are looked up one by one among those that are asked at once.
const SCAVENGE_MAX: u64 = 256;

/// Strikes are counted in a byte.
const STRIKES_MAX: u64 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut LenderSettings)) -> String {
        let mut settings = LenderSettings::default();
        change(&mut settings);
        settings.check().expect_err("refused").to_string()
    }

    #[test]
    fn the_defaults_are_64_mebibytes_and_do_not_contradict_each_other() {
        let settings = LenderSettings::default();
        assert_eq!(settings.check(), Ok(()));
        assert_eq!(settings.total, 209_715);
        assert_eq!(settings.reserve, 26_214);
    }

    #[test]
    fn a_contradiction_is_named_with_both_values() {
        assert_eq!(
            refused(|s| s.minimum = 9000),
            "minimum is 9000, more than maximum, which is 8192"
        );
        assert_eq!(
            refused(|s| s.initial = 8193),
            "initial is 8193, more than maximum, which is 8192"
        );
        assert_eq!(
            refused(|s| s.total = 26_214),
            "reserve is 26214, more than total - 1, which is 26213"
        );
        assert_eq!(
            refused(|s| s.low_percent = 99),
            "low_percent of total is 207617, more than total - reserve, which is 183501"
        );
        assert_eq!(
            refused(|s| s.epoch_time = Duration::ZERO),
            "epoch_time is 0"
        );
    }

    #[test]
    fn every_knob_has_a_range() {
        assert_eq!(refused(|s| s.total = 0), "total is 0");
        assert_eq!(refused(|s| s.reserve = 0), "reserve is 0");
        assert_eq!(refused(|s| s.maximum = 0), "maximum is 0");
        assert_eq!(refused(|s| s.lend_limit = 0), "lend_limit is 0");
        assert_eq!(refused(|s| s.revoke_limit = 0), "revoke_limit is 0");
        assert_eq!(refused(|s| s.epoch_messages = 0), "epoch_messages is 0");
        assert_eq!(refused(|s| s.scavenge = 0), "scavenge is 0");
        assert_eq!(refused(|s| s.strikes = 0), "strikes is 0");
        assert_eq!(refused(|s| s.fixed = 0), "fixed is 0");
        assert_eq!(
            refused(|s| s.revoke_timeout = Duration::ZERO),
            "revoke_timeout is 0"
        );
        assert!(refused(|s| s.scavenge = 257).contains("257"));
        assert!(refused(|s| s.strikes = 256).contains("256"));
        assert!(refused(|s| s.lent_percent = 101).contains("101"));
        assert!(refused(|s| s.low_percent = 101).contains("101"));
    }
}
