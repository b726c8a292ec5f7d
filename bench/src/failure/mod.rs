//! Costs of failure: cancels, deaths, silence and return, between real processes.
//!
//! ```text
//!   bmi_mx_perf cancel       client, timed ------ counterpart: alive, stopped or killed
//!   bmi_mx_perf recovery     client, timed ------ counterpart: killed, started again, stopped
//!                            client, timed ------ counterpart ------ clients that are killed
//! ```
//!
//! Nothing to compare with: the limits are absolute, and printed beside the figures.

mod calls;
mod cancel;
mod child;
mod client;
mod counterpart;
mod dice;
mod kills;
mod orders;
mod recovery;
mod room;
mod storm;
mod table;

pub(crate) use counterpart::serve as counterpart;
pub(crate) use storm::{control, run as storm, victim};

use crate::args::{Args, Part, Peer};
use crate::bmi::Bmi;
use crate::ports;
use client::Client;

/// `bmi_mx_perf cancel`.
pub(crate) fn cancel(args: &Args) -> Result<(), String> {
    if !args.json {
        table::cancel_heading();
    }
    ports::each(args, |port| {
        for &one in Peer::ALL {
            if args.peer.is_none_or(|peer| peer == one) {
                cancel::run(args, port, one, args.count)?;
            }
        }
        Ok(())
    })
}

/// `bmi_mx_perf recovery`.
pub(crate) fn recovery(args: &Args) -> Result<(), String> {
    if !args.json {
        table::recovery_heading();
    }
    ports::each(args, |port| {
        for &one in Part::ALL {
            if args.part.is_some_and(|part| part != one) {
                continue;
            }
            match one {
                Part::Death => recovery::deaths(args, port)?,
                Part::Silence => recovery::freezes(args, port)?,
                Part::Kills => kills::run(args, port, args.kills)?,
            }
        }
        Ok(())
    })
}

/// This process's own method, with some settings.
fn client(args: &Args, settings: &str) -> Result<Client, String> {
    let options = child::options(settings);
    Client::new(Bmi::start_with(&args.library, None, &options)?)
}
