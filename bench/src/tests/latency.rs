//! Half a round trip, with both sides polling.

use super::beside::Beside;
use super::{Bench, SIZES, group};
use crate::buffer::{Buffer, Layout};
use crate::figures::percentile;
use crate::messages::{Messages, Side};
use crate::peer::{Request, What};
use crate::report::Row;
use std::time::Instant;

/// Groups of round trips in one repeat.
pub(super) const GROUPS: usize = 20;
const TAG: i32 = 100;

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    for layout in bench.layouts(&SIZES) {
        for beside in Beside::latency(bench, layout) {
            emit(paired(bench, layout, beside)?);
        }
    }
    Ok(())
}

fn paired(bench: &Bench<'_>, layout: Layout, beside: Beside) -> Result<Row, String> {
    let group = group(layout.size);
    let mut times = Vec::new();
    let bursts = bench.in_turn(
        || Ok(percentile(&beside.times(bench, layout, group)?, 50.0)),
        || {
            let burst = echoed(&bench.side(), layout, GROUPS, group, 0)?;
            times.extend(&burst);
            Ok(percentile(&burst, 50.0))
        },
    )?;
    let row = bench.row("latency", layout.size, "median_us", beside, bursts);
    Ok(Row {
        p99_us: Some(percentile(&times, 99.0)),
        ..row
    })
}

/// Measures half round trips of messages in microseconds, one value per group.
pub(super) fn echoed<M: Messages>(
    side: &Side<'_, M>,
    layout: Layout,
    groups: usize,
    group: usize,
    idle_ms: i32,
) -> Result<Vec<f64>, String> {
    let Side { messages, peer } = *side;
    let count = (groups + 1) * group;
    side.ask(Request {
        what: What::Echo,
        layout,
        count,
        idle_ms,
        tag: TAG,
    })?;
    let data = Buffer::new(layout);
    let mut back = Buffer::new(layout);
    let mut times = Vec::with_capacity(groups);
    for n in 0..=groups {
        let start = Instant::now();
        for _ in 0..group {
            // SAFETY: both buffers outlive the operations, which are waited for right below; an
            // error ends the process.
            let mut pending = usize::from(!unsafe { messages.recv_buffer(peer, &mut back, TAG)? });
            // SAFETY: as above.
            pending += usize::from(!unsafe { messages.send_buffer(peer, &data, TAG)? });
            messages.wait(pending, idle_ms)?;
        }
        if n > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e6 / (2 * group) as f64);
        }
    }
    Ok(times)
}
