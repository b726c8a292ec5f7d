//! What chance decides before a program begins: the settings, and what peers are like.
//!
//! ```text
//!   seed -> settings, scarce in every way -> peers, most of them honest
//! ```
//!
//! Knows nothing of: what they do.

use super::Nature;
use mx_proto::ledger::LenderSettings;
use mx_sim::Rng;
use std::time::Duration;

pub(super) fn nature(rng: &mut Rng, liars: bool) -> Nature {
    let natures = [Nature::Liar, Nature::Deaf, Nature::Miser];
    match rng.below(10) {
        0 => Nature::Plain,
        1..5 if liars => rng.pick(&natures),
        _ => Nature::Honest,
    }
}

/// Settings that are scarce in every way.
pub(super) fn settings(rng: &mut Rng) -> LenderSettings {
    let reserve = rng.within(1..=40) as u32;
    let total = reserve + rng.within(1..=400) as u32;
    let maximum = rng.pick(&[1, 2, 16, 64, u16::MAX]);
    let most = 100 * (total - reserve) / total;
    LenderSettings {
        total,
        reserve,
        maximum,
        minimum: rng.within(0..=usize::from(maximum.min(8))) as u16,
        initial: rng.within(0..=usize::from(maximum.min(32))) as u16,
        lent_percent: rng.within(0..=most as usize) as u8,
        low_percent: rng.within(0..=most as usize) as u8,
        lend_limit: rng.pick(&[1, 4, 64, u16::MAX]),
        revoke_limit: rng.pick(&[1, 4, 64, u16::MAX]),
        epoch_messages: rng.pick(&[1, 5, 50, 1000]),
        epoch_time: rng.pick(&[Duration::from_millis(5), Duration::from_secs(1)]),
        scavenge: rng.pick(&[1, 2, 8]),
        // A step takes 10 ms at most, and there are 4000.
        revoke_timeout: Duration::from_secs(60),
        strikes: rng.pick(&[1, 5]),
        fixed: rng.within(1..=total as usize) as u16,
    }
}
