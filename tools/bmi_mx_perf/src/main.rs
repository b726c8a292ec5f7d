//! Latency, bandwidth and message rate of the BMI/MX method, through its C entry points, beside
//! bare references measured in the same run.
//!
//! ```text
//!   bmi_mx_perf latency            repeat:  reference  method  reference  method ...
//!        |                                      `--ratio--'       `--ratio--'
//!        +-- peer process (itself, again)   median of the ratios, smallest and largest
//! ```
//!
//! The bare references know no tags, no peers and no errors: a ring in shared memory, and a TCP socket
//! that is polled. They are what the hardware allows; the ratio says what the method costs. Beside
//! local and tcp UCX's tagged messages are measured as well, where it is installed; beside the rdm
//! port libfabric's, on the same provider; beside the dgram port a UDP socket and libfabric's own
//! reliable datagrams.
//!
//! What failure costs has nothing to be compared with: `cancel` and `recovery` print limits instead.
//! `scale` compares a server of many peers with one of one; `instructions` counts what the calls run.

mod args;
mod bmi;
mod bursts;
mod curves;
mod failure;
mod figures;
mod functions;
mod instructions;
mod messages;
mod mx;
mod page;
mod peer;
mod pin;
mod plot;
mod ports;
mod reference;
mod report;
mod scale;
mod setting;
mod startup;
mod targets;
mod tests;

use args::{Args, Role};
use bmi_host::{abi, library};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os()) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("bmi_mx_perf: {error}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    let outcome = match &args.role {
        Role::Peer { address } => peer::serve(&args, address, false),
        Role::Listen { address } => peer::serve(&args, address, true),
        Role::Measure { .. } => tests::run(&args),
        Role::Idler { server } => tests::idler(&args, server),
        Role::MxPeer => peer::serve_mx(&args),
        Role::Fabric => tests::fabric(&args),
        Role::Mx => tests::mx(&args),
        Role::Startup { against } => startup::run(&args, against.as_deref()),
        Role::Probe => startup::probe(&args),
        Role::FabricSide { second } => {
            side(&args, *second);
            reference::fabric::serve(*second, args.provider.as_deref())
        }
        Role::UcxSide { second } => {
            side(&args, *second);
            reference::ucx::serve(*second)
        }
        Role::Instructions => instructions::run(&args),
        Role::Counted { subject } => instructions::count(&args, *subject),
        Role::CountedPeer { subject, address } => instructions::answer(&args, *subject, address),
        Role::Cancel { peer, count } => failure::cancel(&args, *peer, *count),
        Role::Recovery { part, kills } => failure::recovery(&args, *part, *kills),
        Role::Counterpart { address } => failure::counterpart(&args, address),
        Role::Storm { server } => failure::storm(&args, server),
        Role::Victim { server } => failure::victim(&args, server),
        Role::Control { spend_us } => failure::control(*spend_us),
        Role::Scale { peers } => scale::run(&args, peers),
        Role::Crowd { server } => scale::clients(&args, server),
        Role::CrowdServer { address } => scale::serve(&args, address),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bmi_mx_perf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Becomes one of the two processes that a library is measured between.
fn side(args: &Args, second: bool) {
    if args.pin {
        pin::to_core(usize::from(second));
    }
    peer::end_with_parent();
}
