//! Bytes per second, one way.

use super::latency::name;
use super::rate::stream;
use super::{Bench, SIZES};
use crate::args::Port;
use crate::figures::{Spread, percentile};
use crate::reference::{self, ring, tcp};
use crate::report::Row;

/// Bytes moved in one repeat.
const VOLUME: usize = 256 << 20;

pub(super) fn run(bench: &Bench<'_>, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    for size in bench.sizes(&SIZES[2..]) {
        if size == 0 {
            continue;
        }
        let count = (VOLUME / size).clamp(16, 100_000);
        let megabytes = size as f64 / 1e6;
        let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.args.repeats {
            let bare = megabytes
                * match bench.port {
                    Port::Local => reference::stream(ring::pair(), size, count, bench.args.pin),
                    Port::Tcp => {
                        let pair = tcp::pair().map_err(|error| error.to_string())?;
                        reference::stream(pair, size, count, bench.args.pin)
                    }
                };
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
            reference: Some((name(bench.port), percentile(&theirs, 50.0))),
            ratio: Some(Spread::of(&ratios)),
        });
    }
    Ok(())
}
