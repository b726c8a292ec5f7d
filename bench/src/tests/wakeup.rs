//! The time in which a blocked test call wakes up, beside a bare eventfd.

use super::Bench;
use crate::buffer::Layout;
use crate::bursts::Bursts;
use crate::figures::{Spread, percentile};
use crate::messages::Messages;
use crate::peer::{Request, What};
use crate::reference::eventfd;
use crate::report::Row;
use std::time::{Duration, Instant};

const ROUNDS: usize = 300;
const IDLE_MS: i32 = 1000;
const TAG: i32 = 300;

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.args.repeats {
        let bare = eventfd::wakeup(ROUNDS, bench.args.pin).map_err(|error| error.to_string())?;
        let times = method(bench)?;
        ratios.push(percentile(&times, 50.0) / percentile(&bare, 50.0));
        ours.extend(times);
        theirs.extend(bare);
    }
    emit(Row {
        test: "wakeup",
        port: bench.port.name(),
        size: 8,
        unit: "median_us",
        value: Spread::of(&ours),
        p99_us: Some(percentile(&ours, 99.0)),
        reference: Some(("bare eventfd".into(), Spread::of(&theirs))),
        ratio: Some(Spread::of(&ratios)),
        loss_percent: None,
        pieces: None,
        bursts: Bursts::default(),
    });
    Ok(())
}

/// As `latency`, but each message finds the other side asleep.
fn method(bench: &Bench<'_>) -> Result<Vec<f64>, String> {
    let bmi = bench.bmi;
    bench.ask(Request {
        what: What::Echo,
        layout: Layout::whole(8),
        count: ROUNDS,
        idle_ms: IDLE_MS,
        tag: TAG,
    })?;
    let data = [1u8; 8];
    let mut back = [0u8; 8];
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        // Longer than either side spins before it goes to sleep.
        std::thread::sleep(Duration::from_micros(300));
        let start = Instant::now();
        // SAFETY: both buffers outlive the operations, which are waited for right below.
        let mut pending = usize::from(!unsafe { bmi.recv(bench.peer, &mut back, TAG)? });
        // SAFETY: as above.
        pending += usize::from(!unsafe { bmi.send(bench.peer, &data, TAG)? });
        bmi.wait(pending, IDLE_MS)?;
        times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    Ok(times)
}
