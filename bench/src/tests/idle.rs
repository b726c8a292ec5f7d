//! Processor time of a process that is blocked in a test call with a peer connected.

use super::Bench;
use crate::buffer::Layout;
use crate::bursts::Bursts;
use crate::figures::Spread;
use crate::messages::Messages;
use crate::peer::{Request, What};
use crate::report::Row;
use std::time::{Duration, Instant};

const SPAN: Duration = Duration::from_secs(1);
const IDLE_MS: i32 = 10;
const TAG: i32 = 400;

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    // One exchange connects both sides.
    bench.ask(Request {
        what: What::Echo,
        layout: Layout::whole(1),
        count: 1,
        idle_ms: IDLE_MS,
        tag: TAG,
    })?;
    let mut back = [0u8];
    // SAFETY: waited for right below.
    let mut pending = usize::from(!unsafe { bench.bmi.recv(bench.peer, &mut back, TAG)? });
    // SAFETY: as above.
    pending += usize::from(!unsafe { bench.bmi.send(bench.peer, &[1], TAG)? });
    bench.bmi.wait(pending, IDLE_MS)?;
    let mut shares = Vec::new();
    for _ in 0..bench.args.repeats.min(3) {
        let (start, before) = (Instant::now(), processor_time());
        while start.elapsed() < SPAN {
            // Like a server without requests: OrangeFS waits 10 ms at a time.
            bench.bmi.test(IDLE_MS)?;
        }
        let used = processor_time().saturating_sub(before).as_secs_f64();
        shares.push(used / start.elapsed().as_secs_f64() * 100.0);
    }
    emit(Row {
        test: "idle",
        port: bench.port.name(),
        size: 0,
        unit: "cpu_percent",
        value: Spread::of(&shares),
        p99_us: None,
        reference: None,
        ratio: None,
        loss_percent: None,
        pieces: None,
        bursts: Bursts::default(),
    });
    Ok(())
}

/// Returns the processor time of all threads of this process.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
