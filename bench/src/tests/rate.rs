//! Small messages per second, one way, one pair of processes.

use super::Bench;
use super::beside::Beside;
use crate::bmi::Bmi;
use crate::buffer::{Buffer, Layout};
use crate::messages::{Messages, Side};
use crate::peer::{Request, WINDOW, What};
use crate::report::Row;
use std::time::Instant;

const MESSAGE: Layout = Layout::whole(8);
/// Messages of a burst.
const COUNT: usize = 100_000;
const TAG: i32 = 200;

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    for beside in Beside::stream(bench, MESSAGE) {
        emit(paired(bench, beside)?);
    }
    Ok(())
}

fn paired(bench: &Bench<'_>, beside: Beside) -> Result<Row, String> {
    let bursts = bench.in_turn(
        || beside.rate(bench, MESSAGE, COUNT),
        || stream(&bench.side(), MESSAGE, COUNT),
    )?;
    Ok(bench.row("rate", MESSAGE.size, "msg_s", beside, bursts))
}

/// Sends `count` messages as fast as the method takes them; messages per second until the other
/// side has them all.
pub(super) fn stream(side: &Side<'_, Bmi>, layout: Layout, count: usize) -> Result<f64, String> {
    let (bmi, peer) = (side.messages, side.peer);
    let data = Buffer::new(layout);
    let mut done = [0u8];
    // SAFETY: waited for below; an error ends the process.
    let mut pending = usize::from(!unsafe { bmi.recv(peer, &mut done, TAG)? });
    side.ask(Request {
        what: What::Sink,
        layout,
        count,
        idle_ms: 0,
        tag: TAG,
    })?;
    let start = Instant::now();
    let mut sent = 0;
    while sent < count {
        // SAFETY: `data` outlives the sends, which are waited for below.
        pending += usize::from(!unsafe { bmi.send_buffer(peer, &data, TAG)? });
        sent += 1;
        while pending > WINDOW {
            pending -= bmi.test(0)?;
        }
    }
    bmi.wait(pending, 0)?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
