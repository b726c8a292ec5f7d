//! Bytes per second, one way.

use super::beside::Beside;
use super::rate::stream;
use super::{Bench, SIZES};
use crate::figures::{Spread, percentile};
use crate::report::Row;

/// Bytes moved in one repeat.
const VOLUME: usize = 256 << 20;

/// How many messages of `size` bytes, which is not 0, make that.
pub(super) fn count(size: usize) -> usize {
    (VOLUME / size).clamp(16, 100_000)
}

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    for size in bench.sizes(&SIZES[2..]) {
        if size == 0 {
            continue;
        }
        for beside in Beside::stream(bench, size) {
            emit(paired(bench, size, beside)?);
        }
    }
    Ok(())
}

fn paired(bench: &Bench<'_>, size: usize, beside: Beside) -> Result<Row, String> {
    let count = count(size);
    let megabytes = size as f64 / 1e6;
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.args.repeats {
        let bare = megabytes * beside.rate(bench, size, count)?;
        let method = megabytes * stream(&bench.side(), size, count)?;
        ratios.push(method / bare);
        ours.push(method);
        theirs.push(bare);
    }
    Ok(Row {
        test: "bandwidth",
        port: bench.port.name(),
        size,
        unit: "mb_s",
        value: percentile(&ours, 50.0),
        p99_us: None,
        reference: Some((beside.name(bench), percentile(&theirs, 50.0))),
        ratio: Some(Spread::of(&ratios)),
        loss_percent: None,
    })
}
