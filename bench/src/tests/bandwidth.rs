//! Bytes per second, one way.

use super::beside::Beside;
use super::rate::stream;
use super::{Bench, SIZES};
use crate::buffer::Layout;
use crate::report::Row;

/// Bytes moved in one burst.
const VOLUME: usize = 32 << 20;

/// Returns the number of messages of `size` bytes, not 0, that make the volume.
pub(super) fn count(size: usize) -> usize {
    (VOLUME / size).clamp(16, 100_000)
}

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    for layout in bench.layouts(&SIZES[2..]) {
        if layout.size == 0 {
            continue;
        }
        for beside in Beside::stream(bench, layout) {
            emit(paired(bench, layout, beside)?);
        }
    }
    Ok(())
}

fn paired(bench: &Bench<'_>, layout: Layout, beside: Beside) -> Result<Row, String> {
    let size = layout.size;
    let count = count(size);
    let megabytes = size as f64 / 1e6;
    let bursts = bench.in_turn(
        || Ok(megabytes * beside.rate(bench, layout, count)?),
        || Ok(megabytes * stream(&bench.side(), layout, count)?),
    )?;
    Ok(bench.row("bandwidth", size, "mb_s", beside, bursts))
}
