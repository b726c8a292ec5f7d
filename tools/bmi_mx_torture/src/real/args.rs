//! The command line.

use lexopt::prelude::{Long, Short, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: bmi_mx_torture [OPTIONS]

Runs random programs on real processes, one after the other, until the time is over or a promise is
broken. Program number n has the seed K + n.

  --library FILE        the method's library (default: libbmi_mx.so.0)
  --port local|tcp|rdm|dgram
                        what the nodes talk over (default: local)
  --seed K              the first seed (default: 1)
  --seconds N           begin no program after so long (default: 60)
  --programs N          end after so many programs
  --shape NAME          calm, cancels, deaths, frozen, storm or random for all of them
  --logs DIRECTORY      where the flight recorders of a failed program go (default: .)
  --steps               print the steps of the first program, and do nothing
  --verbose             a line for each program

A connection is reset from inside one of its two processes, over tcp only. Networks are not cut.
";

/// The ports of the method, by the names `MX_PORT` has for them.
pub(crate) const PORTS: [&str; 4] = ["local", "tcp", "rdm", "dgram"];

/// What this process is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The one that was started.
    Director,
    /// One it has started.
    Node(Place),
}

/// Which node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) life: u32,
    /// All of the program.
    pub(crate) nodes: usize,
    /// The endpoint number of node 0.
    pub(crate) base: u32,
}

/// All of the command line.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) role: Role,
    pub(crate) library: OsString,
    pub(crate) port: &'static str,
    pub(crate) seed: u64,
    pub(crate) span: Duration,
    pub(crate) programs: u64,
    pub(crate) shape: Option<String>,
    pub(crate) logs: PathBuf,
    pub(crate) only_print: bool,
    pub(crate) verbose: bool,
}

impl Args {
    /// Reads the command line; `None` when help was asked for.
    pub(crate) fn parse(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, lexopt::Error> {
        let mut args = Self {
            role: Role::Director,
            library: "libbmi_mx.so.0".into(),
            port: PORTS[0],
            seed: 1,
            span: Duration::from_secs(60),
            programs: u64::MAX,
            shape: None,
            logs: PathBuf::from("."),
            only_print: false,
            verbose: false,
        };
        let mut parser = lexopt::Parser::from_iter(words);
        while let Some(arg) = parser.next()? {
            match arg {
                Long("library") => args.library = parser.value()?,
                Long("port") => {
                    let name = parser.value()?.string()?;
                    let known = PORTS.into_iter().find(|port| *port == name);
                    args.port = known.ok_or_else(|| format!("no port '{name}'"))?;
                }
                Long("seed") => args.seed = parser.value()?.parse()?,
                Long("seconds") => args.span = Duration::from_secs(parser.value()?.parse()?),
                Long("programs") => args.programs = parser.value()?.parse()?,
                Long("shape") => args.shape = Some(parser.value()?.string()?),
                Long("logs") => args.logs = parser.value()?.into(),
                Long("steps") => args.only_print = true,
                Long("verbose") => args.verbose = true,
                Long("node") => {
                    let mut next = || -> Result<u32, lexopt::Error> { parser.value()?.parse() };
                    args.role = Role::Node(Place {
                        index: next()? as usize,
                        life: next()?,
                        nodes: next()? as usize,
                        base: next()?,
                    });
                }
                Long("help") | Short('h') => return Ok(None),
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(args))
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn parse(text: &str) -> Result<Option<Args>, lexopt::Error> {
        Args::parse(text.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_director_and_a_node_are_told_apart() {
        let args = parse("x --port rdm --seed 7 --seconds 3").unwrap().unwrap();
        assert_eq!(
            (args.role, args.port, args.seed),
            (Role::Director, "rdm", 7)
        );
        let args = parse("x --node 2 --node 5").map(|_| ()).unwrap_err();
        assert!(!args.to_string().is_empty());
    }

    #[test]
    fn nonsense_is_refused_and_help_is_no_error() {
        for wrong in ["x --port ib", "x --seed", "x --seconds soon", "x --what"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("x --help").unwrap().is_none());
    }
}
