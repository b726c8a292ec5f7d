//! The command line.

use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

const ABOUT: &str = "\
Runs random programs on real processes, one after the other, until the time is over or a promise is
broken. Program number n has the seed K + n.";

const AFTER: &str = "\
A connection is reset from inside one of its two processes, over tcp only. Networks are not cut.";

/// Ports of the method, by their names in `MX_PORT`.
pub(crate) const PORTS: [&str; 4] = ["local", "tcp", "rdm", "dgram"];

/// A node and its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) life: u32,
    /// Number of nodes in the program.
    pub(crate) nodes: usize,
    /// Endpoint number of node 0.
    pub(crate) base: u32,
}

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(about = ABOUT, after_help = AFTER)]
pub(crate) struct Args {
    /// The method's library
    #[arg(long, value_name = "FILE", default_value = "libbmi_mx.so.0")]
    pub(crate) library: OsString,
    /// The nodes' port: local, tcp, rdm or dgram
    #[arg(long, value_name = "NAME", default_value = PORTS[0], value_parser = port)]
    pub(crate) port: &'static str,
    /// First seed
    #[arg(long, value_name = "K", default_value = "1")]
    pub(crate) seed: u64,
    /// Begin no program after this time
    #[arg(long, value_name = "N", default_value = "60")]
    pub(crate) seconds: u64,
    /// Exit after this number of programs
    #[arg(long, value_name = "N")]
    pub(crate) programs: Option<u64>,
    /// Shape of all programs: calm, cancels, deaths, frozen, storm or random
    #[arg(long, value_name = "NAME")]
    pub(crate) shape: Option<String>,
    /// Directory for the flight recorders of a failed program
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub(crate) logs: PathBuf,
    /// Print the steps of the first program, and exit
    #[arg(long)]
    pub(crate) steps: bool,
    /// Print a line for each program
    #[arg(long)]
    pub(crate) verbose: bool,
    // Arguments of a process that another one of this program has started.
    #[arg(long, hide = true, num_args = 4)]
    node: Option<Vec<u32>>,
}

impl Args {
    /// Returns the node that this process is, or `None` for the director.
    pub(crate) fn place(&self) -> Option<Place> {
        let &[index, life, nodes, base] = self.node.as_deref()? else {
            return None;
        };
        Some(Place {
            index: index as usize,
            life,
            nodes: nodes as usize,
            base,
        })
    }
}

fn port(name: &str) -> Result<&'static str, String> {
    let known = PORTS.into_iter().find(|port| *port == name);
    known.ok_or_else(|| format!("it is one of {}", PORTS.join(", ")))
}

#[cfg(test)]
mod unit {
    use super::*;

    fn read(line: &str) -> Option<Args> {
        Args::try_parse_from(std::iter::once("x").chain(line.split_whitespace())).ok()
    }

    #[test]
    fn a_director_and_a_node_are_told_apart() {
        let args = read("--port rdm --seed 7 --seconds 3").unwrap();
        assert_eq!((args.place(), args.port, args.seed), (None, "rdm", 7));
        let place = Place {
            index: 2,
            life: 1,
            nodes: 3,
            base: 99,
        };
        assert_eq!(
            read("--node 2 1 3 99 --seed 5").unwrap().place(),
            Some(place)
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in [
            "--port ib",
            "--seed",
            "--seconds soon",
            "--what",
            "--node 2 1 3",
            "--node 2 --node 5",
        ] {
            assert!(read(wrong).is_none(), "{wrong}");
        }
    }
}
