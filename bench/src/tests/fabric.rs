//! libfabric alone: the figures the rdm port is measured beside, to be compared with those of
//! libfabric's own programs (`fi_pingpong -e rdm`, `fi_rdm_tagged_pingpong`, `fi_rdm_tagged_bw`).

use super::{SIZES, bandwidth, group, latency};
use crate::args::Args;
use crate::bursts::Bursts;
use crate::figures::{Spread, percentile};
use crate::reference::fabric;
use crate::report::{self, Row};

/// Measures latency and bandwidth of the provider that `--provider`, or the order, names.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let mut fabric = fabric::start(args.provider.as_deref(), args.pin)?;
    if !args.json {
        println!("libfabric {}, {}", fabric.version(), fabric.name());
        println!("{}", report::heading());
    }
    let sizes = args.sizes.clone().unwrap_or_else(|| SIZES.to_vec());
    let emit = |row: Row| report::print(&row, args.json);
    for &size in &sizes {
        let mut times = Vec::new();
        for _ in 0..args.repeats {
            times.extend(fabric.latency(size, latency::GROUPS, group(size))?);
        }
        emit(Row {
            test: "latency",
            port: "fabric",
            size,
            unit: "median_us",
            value: Spread::of(&times),
            p99_us: Some(percentile(&times, 99.0)),
            reference: None,
            ratio: None,
            loss_percent: None,
            pieces: None,
            bursts: Bursts::default(),
        });
    }
    for &size in sizes.iter().filter(|size| **size > 0) {
        let mut speeds = Vec::new();
        for _ in 0..args.repeats {
            let rate = fabric.stream(size, bandwidth::count(size))?;
            speeds.push(rate * size as f64 / 1e6);
        }
        emit(Row {
            test: "bandwidth",
            port: "fabric",
            size,
            unit: "mb_s",
            value: Spread::of(&speeds),
            p99_us: None,
            reference: None,
            ratio: None,
            loss_percent: None,
            pieces: None,
            bursts: Bursts::default(),
        });
    }
    Ok(())
}
