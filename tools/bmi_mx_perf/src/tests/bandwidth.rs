//! Bytes per second, one way.

use super::rate::{bare, stream};
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
        let count = count(size);
        let megabytes = size as f64 / 1e6;
        let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.args.repeats {
            let bare = megabytes * bare(bench, size, count)?;
            let method = megabytes * stream(bench, size, count)?;
            ratios.push(method / bare);
            ours.push(method);
            theirs.push(bare);
        }
        emit(Row {
            test: "bandwidth",
            port: bench.port.name(),
            size,
            unit: "mb_s",
            value: percentile(&ours, 50.0),
            p99_us: None,
            reference: Some((bench.reference(), percentile(&theirs, 50.0))),
            ratio: Some(Spread::of(&ratios)),
        });
    }
    Ok(())
}
