//! Short bursts of a reference and the method in turn, with the distance of the two cores during
//! each.
//!
//! ```text
//!   burst    bare ring, 8 B | reference | method        next burst ...
//!           its time         `---- ratio ---'
//!           just before
//! ```
//!
//! Two virtual cores are sometimes two threads of one core and sometimes far apart, which makes the
//! same ring take four times as long. A ratio is meaningful within one burst only.
//!
//! Owns: the order, and the figures.

use crate::buffer::Layout;
use crate::figures::{Spread, percentile};
use crate::reference::{self, ring};

/// A turn: the reference and the method, one right after the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Burst {
    /// Time of 8 B one way through a bare ring just before, in microseconds.
    pub(crate) ring_us: f64,
    pub(crate) reference: f64,
    pub(crate) method: f64,
}

impl Burst {
    pub(crate) fn ratio(&self) -> f64 {
        self.method / self.reference
    }
}

/// All turns of one measurement.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Bursts(pub(crate) Vec<Burst>);

impl Bursts {
    /// Measures `count` turns.
    pub(crate) fn take(
        count: usize,
        pin: bool,
        mut reference: impl FnMut() -> Result<f64, String>,
        mut method: impl FnMut() -> Result<f64, String>,
    ) -> Result<Self, String> {
        let turn = |_| {
            Ok(Burst {
                ring_us: ring_us(pin),
                reference: reference()?,
                method: method()?,
            })
        };
        (0..count).map(turn).collect::<Result<_, _>>().map(Self)
    }

    /// Spread of the method's figures.
    pub(crate) fn method(&self) -> Spread {
        self.spread(|burst| burst.method)
    }

    /// Spread of the reference's figures.
    pub(crate) fn reference(&self) -> Spread {
        self.spread(|burst| burst.reference)
    }

    /// Spread of the ratios within the bursts.
    pub(crate) fn ratio(&self) -> Spread {
        self.spread(Burst::ratio)
    }

    fn spread(&self, figure: impl FnMut(&Burst) -> f64) -> Spread {
        Spread::of(&self.0.iter().map(figure).collect::<Vec<_>>())
    }
}

/// Measures 8 bytes one way through a bare ring, in microseconds.
fn ring_us(pin: bool) -> f64 {
    const GROUPS: usize = 5;
    const GROUP: usize = 200;
    percentile(
        &reference::latency(ring::pair(), Layout::whole(8), GROUPS, GROUP, pin),
        50.0,
    )
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn ratios_are_those_within_bursts() {
        // Cores near, far, near: ratios across bursts would differ.
        let turns = [(0.2, 0.6), (0.4, 0.8), (0.3, 0.6)];
        let (mut references, mut methods) = (turns.iter(), turns.iter());
        let bursts = Bursts::take(
            turns.len(),
            false,
            || Ok(references.next().map_or(0.0, |turn| turn.0)),
            || Ok(methods.next().map_or(0.0, |turn| turn.1)),
        )
        .unwrap();
        let medians = (bursts.reference().median, bursts.method().median);
        assert_eq!(medians, (0.3, 0.6));
        let Spread { median, min, max } = bursts.ratio();
        for (figure, wanted) in [(median, 2.0), (min, 2.0), (max, 3.0)] {
            assert!((figure - wanted).abs() < 1e-9, "{figure} {wanted}");
        }
        assert!(bursts.0.iter().all(|burst| burst.ring_us > 0.0));
    }

    #[test]
    fn what_fails_ends_the_measurement() {
        let failed = Bursts::take(3, false, || Err("gone".into()), || Ok(1.0));
        assert_eq!(failed, Err("gone".into()));
    }
}
