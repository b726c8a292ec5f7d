//! Finds the shortest program that still fails.
//!
//! ```text
//!   [ a b c d e f g h ]  --> without a half, a quarter, ... one step: does it still fail?
//! ```

/// Removes as many of the `steps` as possible while `fails` still returns true, in at most `tries`
/// calls. Returns all `steps` if no shorter program fails.
pub fn shrink<T: Clone>(
    mut steps: Vec<T>,
    mut tries: usize,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut span = steps.len().div_ceil(2);
    while span > 0 {
        let before = steps.len();
        let mut at = 0;
        while at < steps.len() {
            if tries == 0 {
                return steps;
            }
            tries -= 1;
            let end = (at + span).min(steps.len());
            let without = [&steps[..at], &steps[end..]].concat();
            if fails(&without) {
                steps = without;
            } else {
                at = end;
            }
        }
        // A step may have become unnecessary without another one: tries single steps again.
        if span > 1 || steps.len() == before {
            span /= 2;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let fails = |steps: &[u32]| steps.contains(&17) && steps.contains(&60);
        assert_eq!(shrink((0..100).collect(), 1_000, fails), [17, 60]);
    }

    #[test]
    fn what_needs_all_of_it_stays_and_tries_are_counted() {
        let all: Vec<u32> = (0..9).collect();
        assert_eq!(shrink(all.clone(), 1_000, |steps| steps.len() == 9), all);
        let mut calls = 0;
        let count = |_: &[u32]| {
            calls += 1;
            false
        };
        assert_eq!(shrink(all.clone(), 3, count), all);
        assert_eq!(calls, 3);
    }

    #[test]
    fn nothing_at_all_may_fail_too() {
        assert!(shrink(vec![1, 2, 3], 100, |_| true).is_empty());
    }
}
