//! The command line.

use crate::buffer::Layout;
use clap::error::{Error, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::str::FromStr;

const ABOUT: &str = "\
Measures the BMI method beside bare references.

MEASUREMENT is one or more of these, or all of them:
  latency, bandwidth, rate, wakeup, idle, matching, peers, loss
or one of these, which are measured on their own:
  mx            libmyriexpress beside the method
  instructions  instructions of each call, by callgrind
  scale         a server of ever more clients: memory, connects, latency
  busy          a receiver that works between messages: processor time, sleeps";

/// An enumeration whose variants have names on the command line.
macro_rules! named {
    ($(#[$doc:meta])* $vis:vis enum $type:ident { $($variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $type { $($variant,)* }

        impl $type {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|one| one.name() == name);
                found.copied().ok_or_else(|| format!("it is one of {}", [$($name),*].join(", ")))
            }
        }
    };
}

named! {
    /// A measurement with the method's own processes.
    pub(crate) enum Test {
        Latency = "latency",
        Bandwidth = "bandwidth",
        Rate = "rate",
        Wakeup = "wakeup",
        Idle = "idle",
        Matching = "matching",
        Peers = "peers",
        Loss = "loss",
    }
}

named! {
    /// A measurement that goes with no other.
    pub(crate) enum Alone {
        Mx = "mx",
        Instructions = "instructions",
        Scale = "scale",
        Busy = "busy",
    }
}

named! {
    /// A port of the method, by the name `MX_PORT` has for it.
    pub(crate) enum Port {
        Local = "local",
        Tcp = "tcp",
        Rdm = "rdm",
        Dgram = "dgram",
    }
}

named! {
    /// A library whose calls are counted.
    pub(crate) enum Subject {
        Method = "method",
        Ucx = "ucx",
    }
}

/// The role of a process that another one of this program has started.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Role {
    /// Serves measurements until it is told to quit.
    Peer { address: String },
    /// Serves measurements through libmyriexpress.
    MxPeer,
    /// Sends a message to a server, and is idle afterwards.
    Idler { server: String },
    /// A side of a libfabric reference: 0 or 1.
    FabricSide { side: usize },
    /// A side of the UCX reference: 0 or 1.
    UcxSide { side: usize },
    /// Process whose instructions are counted, under callgrind.
    Counted { subject: Subject },
    /// Peer of the counted process.
    CountedPeer { subject: Subject, address: String },
    /// Many clients of a server.
    Crowd { server: String },
    /// Server of those clients.
    CrowdServer { address: String },
    /// A side of a busy stream: server or client, and the stream's direction.
    BusySide {
        side: String,
        place: String,
        way: String,
        size: usize,
        count: usize,
    },
}

/// The whole command line. Roles take some of the options after their names.
#[derive(Clone, Debug, Parser)]
#[command(
    about = ABOUT,
    override_usage = "bmi_mx_perf MEASUREMENT... [OPTIONS]\n       bmi_mx_perf --listen ADDRESS",
    help_template = "{about}\n\n{usage-heading} {usage}\n\n{options}",
    disable_help_subcommand = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Args {
    #[arg(value_name = "MEASUREMENT", required_unless_present = "listen")]
    what: Vec<String>,
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
    /// local, tcp, rdm or dgram: the port to measure [default: all available]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) port: Option<Port>,
    /// libfabric's provider for rdm, e.g. 'tcp;ofi_rxm' [default: the best available]
    #[arg(
        long,
        value_name = "NAME",
        env = "MX_PROVIDER",
        hide_env_values = true,
        global = true
    )]
    pub(crate) provider: Option<String>,
    /// Message sizes, e.g. 0,8,1K,64K,1M (latency, bandwidth, loss, mx and busy)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub(crate) sizes: Option<Vec<usize>>,
    /// latency, bandwidth: every message is a list of N pieces
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "listen")]
    pub(crate) pieces: Option<usize>,
    /// Repeats of each measurement
    #[arg(long, value_name = "N", default_value = "7", value_parser = repeats)]
    pub(crate) repeats: usize,
    /// loss: percentages of lost datagrams [default: 0,0.1,0.5,1,2,5,10,20]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = percent)]
    pub(crate) percent: Option<Vec<f64>>,
    /// loss: percentage of datagrams reordered, and of those duplicated
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = percent)]
    pub(crate) disorder: f64,
    /// loss, busy: MiB that a stream carries [default: as much as takes 0.3 s, 128]
    #[arg(long, value_name = "MIB", value_parser = number)]
    pub(crate) volume: Option<usize>,
    /// Print a JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure against a bmi_mx_perf --listen on another machine
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) connect: Option<String>,
    /// Listen as the other side, e.g. mx://host:5
    #[arg(long, value_name = "ADDRESS", conflicts_with = "what")]
    pub(crate) listen: Option<String>,
    /// The method's library
    #[arg(
        long,
        value_name = "FILE",
        env = "BMI_MX_LIBRARY",
        hide_env_values = true,
        default_value = "libbmi_mx.so.0",
        global = true
    )]
    pub(crate) library: OsString,
    /// The MX library
    #[arg(
        long,
        value_name = "FILE",
        env = "MYRIEXPRESS_LIBRARY",
        hide_env_values = true,
        default_value = "libmyriexpress.so.1",
        global = true
    )]
    pub(crate) mx_library: OsString,
    /// Do not pin the processes to cores
    #[arg(long = "no-pin", action = clap::ArgAction::SetFalse, global = true)]
    pub(crate) pin: bool,
    // Connecting 2000 clients has a time limit.
    /// scale: numbers of clients
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,10,100,1000,2000,10000",
        value_parser = number
    )]
    pub(crate) peers: Vec<usize>,
    /// loss: seed of the random numbers
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

/// The measurements to make.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum What {
    Alone(Alone),
    Tests(Vec<Test>),
}

impl Args {
    /// Parses the command line.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<(Self, What), Error> {
        let mut args = Self::try_parse_from(words)?;
        args.provider = args
            .provider
            .filter(|name| !matches!(name.as_str(), "" | "auto"));
        let what = args
            .measurements()
            .map_err(|why| Self::command().error(ErrorKind::InvalidValue, why))?;
        Ok((args, what))
    }

    fn measurements(&self) -> Result<What, String> {
        let mut tests = Vec::new();
        for name in &self.what {
            match (name.as_str(), name.parse(), name.parse()) {
                ("all", ..) => tests.extend(Test::ALL),
                (_, Ok(test), _) => tests.push(test),
                (_, _, Ok::<Alone, _>(alone)) if self.pieces.is_some() => {
                    return Err(format!("{} is not measured in pieces", alone.name()));
                }
                (_, _, Ok(alone)) if self.what.len() == 1 => return Ok(What::Alone(alone)),
                (_, _, Ok::<Alone, _>(_)) => return Err(format!("{name} is measured on its own")),
                _ => return Err(format!("no measurement is called '{name}'")),
            }
        }
        self.check_pieces(&tests)?;
        Ok(What::Tests(tests))
    }

    fn check_pieces(&self, tests: &[Test]) -> Result<(), String> {
        if self.pieces.is_none() {
            return Ok(());
        }
        let lists = |test: &Test| matches!(test, Test::Latency | Test::Bandwidth);
        if let Some(test) = tests.iter().find(|test| !lists(test)) {
            return Err(format!("{} is not measured in pieces", test.name()));
        }
        // Checks the number of pieces by itself, whatever the sizes.
        Layout::new(usize::MAX, self.pieces)?;
        let mut sizes = self.sizes.iter().flatten();
        sizes.try_for_each(|size| Layout::new(*size, self.pieces).map(drop))
    }

    /// Returns the ports to measure.
    pub(crate) fn ports(&self) -> Vec<Port> {
        self.port
            .map_or_else(|| Port::ALL.to_vec(), |port| vec![port])
    }
}

fn repeats(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1000) => Ok(n),
        _ => Err(format!("'{text}' is no number from 1 to 1000")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=10_000_000) => Ok(n),
        _ => Err(format!("'{text}' is no number from 1 to 10000000")),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|n| (0.0..=100.0).contains(n));
    percent.ok_or_else(|| format!("'{text}' is no percentage"))
}

/// Parses `8`, `64K` or `4M`; at most 1 GiB.
fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits
        .parse::<usize>()
        .ok()
        .and_then(|n| n.checked_mul(unit));
    bytes
        .filter(|n| *n <= 1 << 30)
        .ok_or_else(|| format!("'{text}' is no size up to 1024M"))
}

#[cfg(test)]
mod unit {
    use super::*;

    fn read(line: &str) -> Option<(Args, What)> {
        let words = std::iter::once("bmi_mx_perf").chain(line.split_whitespace());
        Args::read(words.map(OsString::from)).ok()
    }

    #[test]
    fn percentages_are_between_nothing_and_all() {
        let (args, _) = read("loss --percent 0,0.5,100").unwrap();
        assert_eq!(args.percent, Some(vec![0.0, 0.5, 100.0]));
        for bad in ["", "-1", "101", "x", "1,,2", "NaN"] {
            assert!(read(&format!("loss --percent={bad}")).is_none(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units_and_a_limit() {
        let (args, _) = read("latency --sizes 0,8,1K,16M").unwrap();
        assert_eq!(args.sizes, Some(vec![0, 8, 1024, 16 << 20]));
        for bad in [
            "",
            "K",
            "-1",
            "1G",
            "2048M",
            "1,,2",
            "99999999999999999999K",
        ] {
            assert!(read(&format!("latency --sizes={bad}")).is_none(), "{bad}");
        }
    }

    #[test]
    fn lists_need_a_byte_in_each_piece_and_only_some_tests() {
        let (args, what) = read("latency bandwidth --pieces 64 --sizes 64,1M").unwrap();
        assert_eq!(args.pieces, Some(64));
        assert_eq!(what, What::Tests(vec![Test::Latency, Test::Bandwidth]));
        assert!(read("latency --pieces 65536").is_some());
        for bad in [
            "latency --pieces 64 --sizes 1M,63",
            "latency --pieces 1 --sizes 0",
            "latency --pieces 0",
            "latency --pieces 65537",
            "all --pieces 2",
            "rate --pieces 2",
            "mx --pieces 2",
            "busy --pieces 2",
            "--listen mx://a:1 --pieces 2",
        ] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn all_stands_for_every_measurement() {
        let (args, what) = read("all --port tcp").unwrap();
        assert_eq!(what, What::Tests(Test::ALL.to_vec()));
        assert_eq!(args.ports(), [Port::Tcp]);
        assert!(read("").is_none());
        assert!(read("speed").is_none());
    }

    #[test]
    fn options_stand_before_or_behind_a_measurement() {
        let (args, what) = read("--peers 1,50 scale --repeats 3").unwrap();
        assert_eq!(what, What::Alone(Alone::Scale));
        assert_eq!((args.peers, args.repeats), (vec![1, 50], 3));
        assert!(read("scale --peers 0").is_none());
    }

    #[test]
    fn what_runs_on_its_own_takes_no_other_measurement() {
        let (args, _) = read("busy").unwrap();
        assert_eq!(args.ports(), Port::ALL);
        for bad in [
            "busy latency",
            "mx all",
            "scale latency",
            "--listen mx://a:1 all",
        ] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_role_takes_options_behind_its_name() {
        let (args, _) = read("idler mx://a:1 --port tcp --no-pin").unwrap();
        assert!(matches!(args.role, Some(Role::Idler { .. })));
        assert_eq!((args.port, args.pin), (Some(Port::Tcp), false));
        let (args, _) = read("--library x --no-pin crowd mx://a:1").unwrap();
        assert_eq!((args.library, args.pin), ("x".into(), false));
        assert!(read("latency").unwrap().0.pin);
    }
}
