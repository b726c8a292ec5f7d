//! Latency, bandwidth and message rate of the BMI/MX method, through its C entry points, beside
//! bare references measured in the same run.
//!
//! ```text
//!   bmi_mx_perf latency            repeat:  reference  method  reference  method ...
//!        |                                      `--ratio--'       `--ratio--'
//!        +-- peer process (itself, again)   median of the ratios, smallest and largest
//! ```
//!
//! The bare references know no tags, peers or errors: a ring in shared memory, and a polled TCP
//! socket. They show what the hardware allows; the ratio shows what the method costs. Where UCX is
//! installed, its tagged messages are measured beside local and tcp as well; beside the rdm port
//! libfabric's, on the same provider; beside the dgram port a UDP socket and libfabric's own
//! reliable datagrams.
//!
//! `scale` compares a server of many peers with a server of one; `instructions` counts the calls'
//! instructions; `busy` counts sleeps and processor time beside bare TCP.

mod args;
mod bmi;
mod buffer;
mod bursts;
mod busy;
mod figures;
mod functions;
mod instructions;
mod messages;
mod mx;
mod peer;
mod pin;
mod ports;
mod reference;
mod report;
mod scale;
mod setting;
mod targets;
mod tests;

use args::{Alone, Args, Role, What};
use bmi_host::library;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (args, what) = Args::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let outcome = match (&args.role, &args.listen) {
        (Some(role), _) => play(&args, role),
        (None, Some(address)) => peer::serve(&args, address, true),
        (None, None) => measure(&args, &what),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bmi_mx_perf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args, what: &What) -> Result<(), String> {
    // Missing libraries are reported before anything else.
    let mx = matches!(what, What::Alone(Alone::Mx)).then_some(&args.mx_library);
    for library in [&args.library].into_iter().chain(mx) {
        library::Library::open(library)?;
    }
    match what {
        What::Tests(tests) => tests::run(args, tests),
        What::Alone(Alone::Mx) => tests::mx(args),
        What::Alone(Alone::Instructions) => instructions::run(args),
        What::Alone(Alone::Scale) => scale::run(args),
        What::Alone(Alone::Busy) => busy::run(args),
    }
}

fn play(args: &Args, role: &Role) -> Result<(), String> {
    match role {
        Role::Peer { address } => peer::serve(args, address, false),
        Role::MxPeer => peer::serve_mx(args),
        Role::Idler { server } => tests::idler(args, server),
        Role::FabricSide { side } => {
            be_side(args, *side);
            reference::fabric::serve(*side == 1, args.provider.as_deref())
        }
        Role::UcxSide { side } => {
            be_side(args, *side);
            reference::ucx::serve(*side == 1)
        }
        Role::Counted { subject } => instructions::count(args, *subject),
        Role::CountedPeer { subject, address } => instructions::answer(args, *subject, address),
        Role::Crowd { server } => scale::clients(args, server),
        Role::CrowdServer { address } => scale::serve(args, address),
        Role::BusySide {
            side,
            place,
            way,
            size,
            count,
        } => busy::side(args, side == "server", place, way, *size, *count),
    }
}

/// Becomes one of the two processes between which a library is measured.
fn be_side(args: &Args, side: usize) {
    if args.pin {
        pin::to_core(side);
    }
    peer::end_with_parent();
}
