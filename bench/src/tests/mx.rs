//! The MX C API beside the method: the same round trips, and matching with many receives posted.
//!
//! ```text
//!   bmi_mx_perf mx    repeat:  BMI ---- peer (method)      libmyriexpress ---- peer (MX)
//!                              `------------- ratio -------------'
//! ```
//!
//! Both libraries are in this process, each with a peer process of its own; one sleeps while the
//! other is measured.
//!
//! Owns: the pairing.
//! Out of scope: the round trips, see `latency`.

use super::latency::{GROUPS, echoed};
use super::{SIZES, group, matching, spawn_peer, start_peer};
use crate::args::{Args, Port};
use crate::bmi::Bmi;
use crate::buffer::Layout;
use crate::bursts::Bursts;
use crate::figures::{Spread, percentile};
use crate::messages::{Messages, Side};
use crate::mx::Mx;
use crate::peer::Request;
use crate::ports;
use crate::report::{self, Row};
use std::process::Child;

/// Measures over every available port.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    if !args.json {
        println!("{}", report::heading());
    }
    ports::each(args, |port| {
        let (method, address) = start_peer(args, port)?;
        let mut peers = vec![method];
        let outcome = start_mx_peer(args, port).and_then(|(child, endpoint)| {
            peers.push(child);
            measure(args, port, &address, endpoint)
        });
        for peer in &mut peers {
            if outcome.is_err() {
                let _ = peer.kill();
            }
            peer.wait().map_err(|error| error.to_string())?;
        }
        outcome
    })
}

fn start_mx_peer(args: &Args, port: Port) -> Result<(Child, u32), String> {
    let peer = spawn_peer(args, port, &["mx-peer"])?;
    let (mut child, place) = peer.ok_or("no MX peer could be started")?;
    match place.parse() {
        Ok(endpoint) => Ok((child, endpoint)),
        Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("the MX peer is on '{place}'"))
        }
    }
}

fn measure(args: &Args, port: Port, address: &str, endpoint: u32) -> Result<(), String> {
    let (bmi, mx) = (
        Bmi::start(&args.library, None)?,
        Mx::start(&args.mx_library)?,
    );
    let method = Side {
        messages: &bmi,
        peer: bmi.lookup(address)?,
    };
    let mx = Side {
        messages: &mx,
        peer: mx.connect(endpoint)?,
    };
    let sizes = args.sizes.clone().unwrap_or_else(|| SIZES.to_vec());
    for size in sizes {
        report::print(&latency(args, port, size, &method, &mx)?, args.json);
    }
    let row = matching::measured(&mx, "mx_match", port, args.repeats)?;
    report::print(&row, args.json);
    method.ask(Request::QUIT)?;
    mx.ask(Request::QUIT)
}

fn latency(
    args: &Args,
    port: Port,
    size: usize,
    method: &Side<'_, impl Messages>,
    mx: &Side<'_, impl Messages>,
) -> Result<Row, String> {
    let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let (layout, group) = (Layout::whole(size), group(size));
    for _ in 0..args.repeats {
        let beside = echoed(method, layout, GROUPS, group, 0)?;
        let times = echoed(mx, layout, GROUPS, group, 0)?;
        ratios.push(percentile(&times, 50.0) / percentile(&beside, 50.0));
        ours.extend(times);
        theirs.extend(beside);
    }
    Ok(Row {
        test: "mx",
        port: port.name(),
        size,
        unit: "median_us",
        value: Spread::of(&ours),
        p99_us: Some(percentile(&ours, 99.0)),
        reference: Some(("BMI method".into(), Spread::of(&theirs))),
        ratio: Some(Spread::of(&ratios)),
        loss_percent: None,
        pieces: None,
        bursts: Bursts::default(),
    })
}
