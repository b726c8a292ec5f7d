//! Latency with very many receives posted, beside the same with few.

use super::Bench;
use super::latency::method;
use crate::figures::{Spread, percentile};
use crate::peer::{Request, What};
use crate::report::Row;

const FEW: usize = 10;
const MANY: usize = 100_000;
const GROUPS: usize = 10;
const GROUP: usize = 1000;
const FIRST_TAG: i32 = 1_000_000;

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.args.repeats {
        let few = with_posted(bench, FEW)?;
        let many = with_posted(bench, MANY)?;
        ratios.push(percentile(&many, 50.0) / percentile(&few, 50.0));
        ours.extend(many);
        theirs.extend(few);
    }
    emit(Row {
        test: "matching",
        port: bench.port.name(),
        size: MANY,
        unit: "median_us",
        value: percentile(&ours, 50.0),
        p99_us: Some(percentile(&ours, 99.0)),
        reference: Some(("10 receives posted".into(), percentile(&theirs, 50.0))),
        ratio: Some(Spread::of(&ratios)),
    });
    Ok(())
}

/// Half round trips of 8 bytes while `count` other receives are posted.
fn with_posted(bench: &Bench<'_>, count: usize) -> Result<Vec<f64>, String> {
    let mut pending = 0;
    for n in 0..count {
        // SAFETY: a receive of no bytes has no buffer to outlive.
        pending +=
            usize::from(!unsafe { bench.bmi.recv(bench.peer, &mut [], FIRST_TAG + n as i32)? });
    }
    let times = method(bench, 8, GROUPS, GROUP, 0)?;
    bench.ask(Request {
        what: What::Flood,
        size: 0,
        count,
        idle_ms: 0,
        tag: FIRST_TAG,
    })?;
    bench.bmi.wait(pending, 10)?;
    Ok(times)
}
