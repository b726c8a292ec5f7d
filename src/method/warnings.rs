//! Limits that have been hit, each told once in the life of a method.
//!
//! ```text
//!   a limit is hit ---raise---> Alarms: raised, told ---next progress---> one warning, with the
//!       again: nothing                                                   setting and its value
//! ```
//!
//! How often each has been hit is counted elsewhere (`gauges`); the warning is for who reads logs and
//! not counters.
//!
//! Owns: which have been told. Knows nothing of: how a limit is kept.

use super::Method;
use mx_proto::Clock;
use mx_proto::port::Port;
use mx_sys::UserMemory;

/// A limit that has been hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alarm {
    /// There are no credits for somebody who wants some, or for a message that was offered.
    Bank,
    /// A send of ours found no ticket.
    Tickets,
    /// A message of a peer that knows no credits is held.
    Held,
    /// A message that was not paid for has been refused.
    Unpaid,
    /// Most of what unexpected messages may take up is taken.
    Unexpected,
    /// Most of what messages before their receives may take up is promised or taken.
    Early,
}

/// All of them.
const ALARMS: [Alarm; 6] = [
    Alarm::Bank,
    Alarm::Tickets,
    Alarm::Held,
    Alarm::Unpaid,
    Alarm::Unexpected,
    Alarm::Early,
];

/// Which limits have been hit, and of which of them it has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarms {
    raised: u8,
    told: u8,
}

impl Alarms {
    /// A limit has been hit.
    #[inline]
    pub(crate) fn raise(&mut self, alarm: Alarm) {
        self.raised |= bit(alarm);
    }

    /// Has it been hit before?
    #[inline]
    pub(crate) fn is_raised(self, alarm: Alarm) -> bool {
        self.raised & bit(alarm) != 0
    }

    /// Is there one to be told?
    #[inline]
    pub(super) fn pending(self) -> bool {
        self.raised != self.told
    }
}

const fn bit(alarm: Alarm) -> u8 {
    1 << alarm as u8
}

/// Nine tenths of what may be lent of `limit`, which is seven eighths.
pub(super) const fn most_of_lent(limit: usize) -> usize {
    most_of(limit - limit / 8)
}

/// Most of `limit`: nine tenths.
pub(crate) const fn most_of(limit: usize) -> usize {
    limit - limit / 10
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// How much is promised or taken for messages before their receives?
    #[inline]
    pub(super) fn watch_memory(&mut self) {
        if self.endpoint.unexpected_usage().0 > self.early_alarm {
            self.inbox_mut().alarms.raise(Alarm::Early);
            self.early_alarm = usize::MAX;
        }
    }

    /// Tells of limits that have been hit for the first time.
    #[cold]
    pub(super) fn warn(&mut self) {
        let Alarms { raised, told } = self.inbox().alarms;
        self.inbox_mut().alarms.told = raised;
        let news = ALARMS
            .iter()
            .filter(|alarm| raised & !told & bit(**alarm) != 0);
        for alarm in news {
            let (what, setting, value) = self.told_of(*alarm);
            log::warn!("{what}: {setting}={value}; further ones are only counted");
        }
    }

    /// What is said of a limit, which setting it is, and its value.
    fn told_of(&self, alarm: Alarm) -> (&'static str, &'static str, u64) {
        let credits = &self.settings.credits;
        let memory = self.settings.unexpected_memory as u64;
        match alarm {
            Alarm::Bank => (
                "no credits are left, and unexpected messages wait at their senders",
                "BMI_MX_UNEXPECTED_MEMORY",
                memory,
            ),
            Alarm::Tickets => (
                "a send waits until others have left",
                "BMI_MX_SEND_TICKETS",
                self.settings.send_tickets.into(),
            ),
            Alarm::Held => (
                "unexpected messages of a peer that knows no credits have to wait",
                "BMI_MX_CREDITS_FIXED",
                credits.fixed.into(),
            ),
            Alarm::Unpaid => (
                "an unexpected message is refused, as its sender had no credits for it",
                "BMI_MX_CREDITS_STRIKES",
                credits.strikes.into(),
            ),
            Alarm::Unexpected => (
                "unexpected messages that wait take up nine tenths of what they may",
                "BMI_MX_UNEXPECTED_MEMORY",
                memory,
            ),
            Alarm::Early => (
                "messages before their receives, and what is lent to peers for them, take up nine tenths \
                 of what they may",
                "MX_UNEXPECTED_BYTES",
                self.endpoint.unexpected_usage().1 as u64,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alarm_is_told_once() {
        let mut alarms = Alarms::default();
        assert!(!alarms.pending());
        for (count, alarm) in ALARMS.into_iter().enumerate() {
            assert!(!alarms.is_raised(alarm));
            alarms.raise(alarm);
            assert!(alarms.pending() && alarms.is_raised(alarm));
            assert_eq!(alarms.raised.count_ones() as usize, count + 1);
            alarms.told = alarms.raised;
            alarms.raise(alarm);
            assert!(!alarms.pending());
        }
    }

    #[test]
    fn most_of_a_limit_is_nine_tenths() {
        assert_eq!([most_of(0), most_of(9), most_of(100)], [0, 9, 90]);
        assert!(most_of(usize::MAX) < usize::MAX);
    }
}
