//! Goodput of a stream while random datagrams are dropped, beside the same stream without losses.
//!
//! ```text
//!   repeat:   MX_DGRAM_FAULTS not set      MX_DGRAM_FAULTS=loss=0.01,seed=N, on both sides
//!             fresh processes, stream      fresh processes, stream
//!             `--------------------- ratio ---------------------'
//! ```
//!
//! The setting is read when the method is initialized, so every stream has a method and a peer of
//! its own. The first messages are not counted: they find the pace and the size of datagrams. At 0
//! % both streams are the same: the spread of that row is the machine's.
//!
//! Owns: the rates of loss, and the pairing.
//! Out of scope: retransmissions.

use super::rate::stream;
use super::{finished, start_peer};
use crate::args::{Args, Port};
use crate::bmi::Bmi;
use crate::buffer::Layout;
use crate::bursts::Bursts;
use crate::figures::Spread;
use crate::messages::Side;
use crate::peer::Request;
use crate::report::Row;
use crate::setting::Setting;

/// Loss rates, in percent.
const LOSSES: [f64; 8] = [0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0];
const SIZE: usize = 1 << 20;
/// Messages sent before the measurement, and the fewest that are measured: several windows.
const FEWEST: usize = 16;
const MOST: usize = 512;
/// Intended duration of a measured stream, in seconds.
const SECONDS: f64 = 0.3;
const FAULTS: &str = "MX_DGRAM_FAULTS";

pub(super) fn run(args: &Args, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    for size in args.sizes.clone().unwrap_or_else(|| vec![SIZE]) {
        for percent in args.percent.clone().unwrap_or_else(|| LOSSES.to_vec()) {
            if size > 0 {
                emit(paired(args, size, percent)?);
            }
        }
    }
    Ok(())
}

fn paired(args: &Args, size: usize, percent: f64) -> Result<Row, String> {
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for repeat in 0..args.repeats {
        let without = goodput(args, size, None)?;
        let seed = args.seed.wrapping_add(repeat as u64);
        let with = goodput(args, size, faults(percent, args.disorder, seed))
            .map_err(|error| format!("run {} with {percent} % lost: {error}", repeat + 1))?;
        ratios.push(with / without);
        ours.push(with);
        theirs.push(without);
    }
    Ok(Row {
        test: "loss",
        port: Port::Dgram.name(),
        size,
        unit: "mb_s",
        value: Spread::of(&ours),
        p99_us: None,
        reference: Some(("without loss".into(), Spread::of(&theirs))),
        ratio: Some(Spread::of(&ratios)),
        loss_percent: Some(percent),
        pieces: None,
        bursts: Bursts::default(),
    })
}

/// Formats the setting's value; `None` without losses.
fn faults(percent: f64, disorder: f64, seed: u64) -> Option<String> {
    let disorder = if disorder > 0.0 {
        format!("dup={0},reorder={0},", disorder / 100.0)
    } else {
        String::new()
    };
    let wanted = percent > 0.0 || !disorder.is_empty();
    wanted.then(|| format!("loss={},{disorder}seed={seed}", percent / 100.0))
}

/// Measures MB/s of a stream between two new processes.
fn goodput(args: &Args, size: usize, faults: Option<String>) -> Result<f64, String> {
    // SAFETY: no other thread runs: every method before has been finalised, and so is this one.
    let _faults = unsafe { Setting::put(FAULTS, faults.as_deref()) };
    let (child, address) = start_peer(args, Port::Dgram)?;
    finished(child, between(args, size, &address))
}

fn between(args: &Args, size: usize, address: &str) -> Result<f64, String> {
    let bmi = Bmi::start(&args.library, None)?;
    let side = Side {
        messages: &bmi,
        peer: bmi.lookup(address)?,
    };
    let first = stream(&side, Layout::whole(size), FEWEST)?;
    let count = match args.volume {
        Some(volume) => (volume << 20).div_ceil(size),
        None => ((first * SECONDS) as usize).clamp(FEWEST, MOST),
    };
    let rate = stream(&side, Layout::whole(size), count)?;
    side.ask(Request::QUIT)?;
    Ok(rate * size as f64 / 1e6)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn percents_become_parts_of_one() {
        assert_eq!(faults(0.0, 0.0, 1), None);
        let disordered = faults(20.0, 1.0, 3);
        let wanted = "loss=0.2,dup=0.01,reorder=0.01,seed=3";
        assert_eq!(disordered.as_deref(), Some(wanted));
        let said = LOSSES.map(|percent| faults(percent, 0.0, 7).unwrap_or_default());
        let wanted = ["0.001", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2"];
        let wanted = wanted.map(|loss| format!("loss={loss},seed=7"));
        assert_eq!(said[1..], wanted);
    }
}
