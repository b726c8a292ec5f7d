//! Latency with very many posted receives, beside the same with few.

use super::Bench;
use super::latency::echoed;
use crate::args::Port;
use crate::buffer::Layout;
use crate::bursts::Bursts;
use crate::figures::{Spread, percentile};
use crate::messages::{Messages, Side};
use crate::peer::{Request, What};
use crate::report::Row;

const FEW: usize = 10;
const MANY: usize = 100_000;
const GROUPS: usize = 10;
const GROUP: usize = 1000;
const FIRST_TAG: i32 = 1_000_000;

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    let side = bench.side();
    emit(measured(&side, "matching", bench.port, bench.args.repeats)?);
    Ok(())
}

/// Measures many and few in turn, repeatedly, through any library.
pub(super) fn measured<M: Messages>(
    side: &Side<'_, M>,
    test: &'static str,
    port: Port,
    repeats: usize,
) -> Result<Row, String> {
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let few = with_posted(side, FEW)?;
        let many = with_posted(side, MANY)?;
        ratios.push(percentile(&many, 50.0) / percentile(&few, 50.0));
        ours.extend(many);
        theirs.extend(few);
    }
    Ok(Row {
        test,
        port: port.name(),
        size: MANY,
        unit: "median_us",
        value: Spread::of(&ours),
        p99_us: Some(percentile(&ours, 99.0)),
        reference: Some(("10 receives posted".into(), Spread::of(&theirs))),
        ratio: Some(Spread::of(&ratios)),
        loss_percent: None,
        pieces: None,
        bursts: Bursts::default(),
    })
}

/// Measures half round trips of 8 bytes while `count` other receives are posted.
fn with_posted<M: Messages>(side: &Side<'_, M>, count: usize) -> Result<Vec<f64>, String> {
    let Side { messages, peer } = *side;
    let mut pending = 0;
    for n in 0..count {
        // SAFETY: a receive of no bytes has no buffer to outlive.
        pending += usize::from(!unsafe { messages.recv(peer, &mut [], FIRST_TAG + n as i32)? });
    }
    let times = echoed(side, Layout::whole(8), GROUPS, GROUP, 0)?;
    side.ask(Request {
        what: What::Flood,
        layout: Layout::whole(0),
        count,
        idle_ms: 0,
        tag: FIRST_TAG,
    })?;
    messages.wait(pending, 10)?;
    Ok(times)
}
