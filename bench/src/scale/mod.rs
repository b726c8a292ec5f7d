//! A server and a growing number of clients: the cost of each, and whether it slows the others
//! down.
//!
//! ```text
//!   server, one peer      <-- asker                     asks, floods
//!   server, N peers       <-- asker, busy, idle ...     asks, floods: the same in turn
//!                                     `-- ratio --'
//! ```
//!
//! Over TCP on 127.0.0.1, because a port of its own for every client is the most expensive case.
//! Clients are whole methods (`bmi_mx_crowd`), without threads of their own.
//!
//! Owns: the processes, their tasks and the durations.

mod measure;
mod show;

use crate::args::Args;
use crate::pin;
use bmi_mx_crowd::crew::Program;
use bmi_mx_crowd::{crowd, limits, server};

/// Measures a server with each of these numbers of peers.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let program = program(args)?;
    // The server has a descriptor for every peer.
    let limit = limits::raise_descriptors(1 << 20);
    let most = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .saturating_sub(BESIDE);
    if !args.json {
        println!("{}", show::heading());
    }
    for &count in &args.peers {
        if count > most {
            show::not_measured(count, most, args.json);
            continue;
        }
        let point = measure::point(&program, count, args.repeats)?;
        show::print(&point, args.json);
    }
    Ok(())
}

/// Runs the server of a measurement.
pub(crate) fn serve(args: &Args, address: &str) -> Result<(), String> {
    if args.pin {
        pin::to_core(0);
    }
    server::serve(bmi_host::method::Method::load(&args.library)?, address)
}

/// Runs a crowd of clients.
pub(crate) fn clients(args: &Args, address: &str) -> Result<(), String> {
    if args.pin {
        pin::to_core(1);
    }
    crowd::serve(address)
}

/// Descriptors of a server in addition to its peers', generously.
const BESIDE: usize = 64;

fn program(args: &Args) -> Result<Program, String> {
    let file = std::env::current_exe().map_err(|why| why.to_string())?;
    let role = |name: &str| {
        let mut words = vec!["--library".into(), args.library.clone()];
        words.extend((!args.pin).then(|| "--no-pin".into()));
        words.push(name.into());
        words
    };
    Ok(Program {
        file: file.into(),
        server: role("crowd-server"),
        crowd: role("crowd"),
        environment: vec![("MX_PORT".into(), "tcp".into())],
    })
}
