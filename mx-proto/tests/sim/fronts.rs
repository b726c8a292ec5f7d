//! Every history is the same with fronts and without.

use crate::endpoint::over_a_reliable_port;
use mx_sim::scenario::Tally;
use mx_sim::{fronts, seeds};

#[test]
fn histories_with_and_without_fronts_are_the_same() {
    let mut answers = 0;
    seeds::each(300, |seed| {
        let run = |on| {
            fronts::with(on, || {
                let mut tally = Tally::new();
                let world = over_a_reliable_port(seed, seed % 3 == 0, &mut tally);
                (world.dump(), tally)
            })
        };
        let ((with, tally), answered) = run(true);
        let ((without, other), none) = run(false);
        assert!(none == 0 && tally == other, "{tally:?}, without {other:?}");
        let differ = with
            .lines()
            .zip(without.lines())
            .find(|(one, other)| one != other);
        assert_eq!((differ, with.len()), (None, without.len()));
        answers += answered;
    });
    assert!(
        answers > 4_000,
        "the fronts have answered {answers} times only"
    );
}
