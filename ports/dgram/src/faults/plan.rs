//! Fault plan, parsed from text.
//!
//! Out of scope: datagrams.

/// Faults to inject: the share of each in all received datagrams, 0 to 1 each and at most 1 together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FaultPlan {
    /// Share of lost datagrams.
    pub loss: f64,
    /// Share of duplicated datagrams.
    pub dup: f64,
    /// Share of reordered datagrams.
    pub reorder: f64,
    /// Share of datagrams delayed by up to 2 ms.
    pub delay: f64,
    /// Share of damaged datagrams.
    pub corrupt: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Format of a plan, for error messages.
pub const WANTED: &str = "loss, dup, reorder, delay, corrupt = 0 to 1 and at most 1 \
                          together, seed = a number, as in loss=0.01,reorder=0.02,seed=7";

impl FaultPlan {
    /// Parses `loss=0.01,dup=0.01,seed=7`: parts in any order, separated by commas or semicolons. Returns `None` if the
    /// text is not a plan.
    pub fn parse(text: &str) -> Option<Self> {
        let mut plan = Self::default();
        for part in text.split([',', ';']) {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim(), value.trim());
            let share = match name {
                "loss" => &mut plan.loss,
                "dup" => &mut plan.dup,
                "reorder" => &mut plan.reorder,
                "delay" => &mut plan.delay,
                "corrupt" => &mut plan.corrupt,
                "seed" => {
                    plan.seed = value.parse().ok()?;
                    continue;
                }
                _ => return None,
            };
            *share = value
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))?;
        }
        (plan.shares().iter().sum::<f64>() <= 1.0).then_some(plan)
    }

    pub(super) fn shares(&self) -> [f64; 5] {
        [self.loss, self.dup, self.reorder, self.delay, self.corrupt]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_in_any_order_and_nonsense_is_refused() {
        let expected = FaultPlan {
            loss: 0.25,
            reorder: 0.5,
            seed: 7,
            ..FaultPlan::default()
        };
        for text in [
            "loss=0.25,reorder=0.5,seed=7",
            "seed=7; reorder=.5; loss=25e-2",
        ] {
            assert_eq!(FaultPlan::parse(text), Some(expected));
        }
        for text in [
            "",
            "loss",
            "loss=",
            "loss=-0.1",
            "loss=1.1",
            "loss=nan",
            "loss=0.5,dup=0.6",
            "seed=-1",
            "drop=0.1",
            "loss=0.1,",
            "loss=inf",
        ] {
            assert_eq!(FaultPlan::parse(text), None, "{text:?}");
        }
    }
}
