//! The command line.

use lexopt::prelude::{Long, Short, Value, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
usage: bmi_mx_perf latency|bandwidth|rate|wakeup|idle|matching|peers|loss|all [OPTIONS]
       bmi_mx_perf mx [OPTIONS]         libmyriexpress beside the method
       bmi_mx_perf fabric [OPTIONS]     libfabric's own ping-pong and bandwidth alone
       bmi_mx_perf instructions [OPTIONS]   instructions of each call, by callgrind
       bmi_mx_perf startup [OPTIONS]    initialize and finalize in fresh processes
       bmi_mx_perf cancel [OPTIONS]     from the call of cancel to the completion
       bmi_mx_perf recovery [OPTIONS]   deaths, returns and silence, and what others notice
       bmi_mx_perf scale [OPTIONS]      a server of ever more clients: memory, connects, latency
       bmi_mx_perf --listen ADDRESS

  --port NAME           local, tcp, rdm or dgram: the port to measure (default: all there are)
  --provider NAME       libfabric's provider for rdm, e.g. 'tcp;ofi_rxm' (default: MX_PROVIDER,
                        or the best one there is); MX_LIBFABRIC names the library
  --sizes LIST          message sizes, e.g. 0,8,1K,64K,1M (latency, bandwidth, loss, mx
                        and fabric)
  --repeats N           how often each measurement is repeated (default 7)
  --percent LIST        loss: datagrams that are lost (default 0,0.1,0.5,1,2,5,10,20)
  --disorder PERCENT    loss: as many more are overtaken, and as many come twice (default 0)
  --volume MIB          loss: how much a stream carries (default: what 0.3 s do)
  --json                one JSON object a line instead of a table
  --plots DIRECTORY     also write index.html there, with plots and tables, and SVGs
  --connect ADDRESS     measure against a bmi_mx_perf --listen elsewhere
  --listen ADDRESS      be that other side, e.g. mx://host:5
  --library FILE        the method's library (default: libbmi_mx.so.0)
  --mx-library FILE     the MX library (default: libmyriexpress.so.1)
  --against FILE        another build of it that startup is compared with
  --no-pin              leave the processes on whatever core they run
  --peer STATE          cancel: the peer is alive, stopped or dead (default: each)
  --count N             cancel: how many operations are called off (default 10000)
  --part PART           recovery: death, silence or kills (default: all)
  --kills N             recovery: how many clients are killed (default 1000)
  --peers LIST          scale: numbers of clients (default 1,10,100,1000,2000,10000)
  --seed N              cancel, recovery: other random numbers (default 1)
";

/// Clients that `scale` measures with: with 2000 there is a limit for how long connecting takes.
const PEERS: [usize; 6] = [1, 10, 100, 1000, 2000, 10_000];

/// A kind of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Latency,
    Bandwidth,
    Rate,
    Wakeup,
    Idle,
    Matching,
    Peers,
    Loss,
}

impl Test {
    const ALL: [Self; 8] = [
        Self::Latency,
        Self::Bandwidth,
        Self::Rate,
        Self::Wakeup,
        Self::Idle,
        Self::Matching,
        Self::Peers,
        Self::Loss,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Wakeup => "wakeup",
            Self::Idle => "idle",
            Self::Matching => "matching",
            Self::Peers => "peers",
            Self::Loss => "loss",
        }
    }
}

/// A port of the method, by the name `MX_PORT` has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Port {
    Local,
    Tcp,
    Rdm,
    Dgram,
}

impl Port {
    pub(crate) const ALL: [Self; 4] = [Self::Local, Self::Tcp, Self::Rdm, Self::Dgram];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Tcp => "tcp",
            Self::Rdm => "rdm",
            Self::Dgram => "dgram",
        }
    }
}

/// What has been done to the peer when operations with it are called off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Alive,
    Stopped,
    Dead,
}

impl Peer {
    pub(crate) const ALL: [Self; 3] = [Self::Alive, Self::Stopped, Self::Dead];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
        }
    }
}

/// A part of recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Death,
    Silence,
    Kills,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Death, Self::Silence, Self::Kills];

    fn name(self) -> &'static str {
        match self {
            Self::Death => "death",
            Self::Silence => "silence",
            Self::Kills => "kills",
        }
    }
}

/// A library whose calls are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Method,
    Ucx,
}

impl Subject {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::Ucx => "ucx",
        }
    }
}

/// What this process is to do.
#[derive(Debug)]
pub(crate) enum Role {
    /// Measure; start a peer, or talk to the one at an address.
    Measure {
        tests: Vec<Test>,
        connect: Option<String>,
    },
    /// Measure libfabric alone.
    Fabric,
    /// Measure libmyriexpress beside the method.
    Mx,
    /// Serve measurements through libmyriexpress; started by the measuring process.
    MxPeer,
    /// Time the start of fresh processes.
    Startup { against: Option<OsString> },
    /// Be such a process.
    Probe,
    /// Be one side of a libfabric reference; started by the measuring process.
    FabricSide { second: bool },
    /// Be one side of the UCX reference; started by the measuring process.
    UcxSide { second: bool },
    /// Count the instructions of the method's calls.
    Instructions,
    /// Be the process whose instructions are counted; started under callgrind.
    Counted { subject: Subject },
    /// Be its peer.
    CountedPeer { subject: Subject, address: String },
    /// Time cancels.
    Cancel { peer: Option<Peer>, count: usize },
    /// Time deaths, returns and silence.
    Recovery { part: Option<Part>, kills: usize },
    /// Be the one that dies or is stopped.
    Counterpart { address: String },
    /// Start and kill clients of a server.
    Storm { server: String },
    /// Be such a client.
    Victim { server: String },
    /// Be a process that only looks like one.
    Control { spend_us: u64 },
    /// Measure a server with each of these numbers of clients.
    Scale { peers: Vec<usize> },
    /// Be many clients of a server; started by the measuring process.
    Crowd { server: String },
    /// Be the server of such clients; started by the measuring process.
    CrowdServer { address: String },
    /// Serve measurements until told to stop; started by the measuring process.
    Peer { address: String },
    /// Say something to a server, and nothing more; started by the measuring process.
    Idler { server: String },
    /// The same, started by a person on another host.
    Listen { address: String },
}

/// The whole command line.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) role: Role,
    pub(crate) ports: Vec<Port>,
    /// Whether the port was named: then it is an error if it cannot be measured.
    pub(crate) port_named: bool,
    pub(crate) provider: Option<String>,
    pub(crate) sizes: Option<Vec<usize>>,
    pub(crate) repeats: usize,
    /// Percents of datagrams that are lost, and of those that are overtaken and doubled.
    pub(crate) percent: Option<Vec<f64>>,
    pub(crate) disorder: f64,
    /// MiB.
    pub(crate) volume: Option<usize>,
    pub(crate) json: bool,
    pub(crate) plots: Option<PathBuf>,
    pub(crate) library: OsString,
    pub(crate) mx_library: OsString,
    pub(crate) pin: bool,
    pub(crate) seed: u64,
}

impl Args {
    /// `None` when help was asked for.
    pub(crate) fn parse(
        args: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, lexopt::Error> {
        let mut parser = lexopt::Parser::from_iter(args);
        let (mut tests, mut connect, mut role) = (Vec::new(), None, None);
        let mut against = None;
        let (mut state, mut count) = (None, 10_000);
        let (mut part, mut kills) = (None, 1000);
        let mut peers = PEERS.to_vec();
        let mut of = Subject::Method;
        let chosen = std::env::var("MX_PROVIDER").ok();
        let mut parsed = Self {
            role: Role::Measure {
                tests: Vec::new(),
                connect: None,
            },
            ports: Port::ALL.to_vec(),
            port_named: false,
            provider: chosen.filter(|name| !matches!(name.as_str(), "" | "auto")),
            sizes: None,
            repeats: 7,
            percent: None,
            disorder: 0.0,
            volume: None,
            json: false,
            plots: None,
            library: std::env::var_os("BMI_MX_LIBRARY").unwrap_or_else(|| "libbmi_mx.so.0".into()),
            mx_library: std::env::var_os("MYRIEXPRESS_LIBRARY")
                .unwrap_or_else(|| "libmyriexpress.so.1".into()),
            pin: true,
            seed: 1,
        };
        while let Some(arg) = parser.next()? {
            match arg {
                Short('h') | Long("help") => return Ok(None),
                Long("port") => {
                    parsed.ports = vec![parser.value()?.parse_with(port)?];
                    parsed.port_named = true;
                }
                Long("provider") => parsed.provider = Some(parser.value()?.string()?),
                Long("against") => against = Some(parser.value()?),
                Long("probe") => role = Some(Role::Probe),
                Long("fabric-side") => {
                    let second = parser.value()? == "1";
                    role = Some(Role::FabricSide { second });
                }
                Long("ucx-side") => {
                    let second = parser.value()? == "1";
                    role = Some(Role::UcxSide { second });
                }
                Long("counted") => {
                    let subject = parser.value()?.parse_with(subject)?;
                    role = Some(Role::Counted { subject });
                }
                Long("counted-peer-of") => of = parser.value()?.parse_with(subject)?,
                Long("counted-peer-on") => {
                    let (subject, address) = (of, parser.value()?.string()?);
                    role = Some(Role::CountedPeer { subject, address });
                }
                Long("sizes") => parsed.sizes = Some(parser.value()?.parse_with(sizes)?),
                Long("repeats") => parsed.repeats = parser.value()?.parse_with(repeats)?,
                Long("percent") => parsed.percent = Some(parser.value()?.parse_with(percents)?),
                Long("disorder") => parsed.disorder = parser.value()?.parse_with(percent)?,
                Long("volume") => parsed.volume = Some(parser.value()?.parse_with(number)?),
                Long("json") => parsed.json = true,
                Long("plots") => parsed.plots = Some(parser.value()?.into()),
                Long("connect") => connect = Some(parser.value()?.string()?),
                Long("listen") => {
                    role = Some(Role::Listen {
                        address: parser.value()?.string()?,
                    })
                }
                Long("peer-on") => {
                    role = Some(Role::Peer {
                        address: parser.value()?.string()?,
                    })
                }
                Long("peer") => state = Some(parser.value()?.parse_with(peer)?),
                Long("part") => part = Some(parser.value()?.parse_with(one_part)?),
                Long("count") => count = parser.value()?.parse_with(number)?,
                Long("kills") => kills = parser.value()?.parse_with(number)?,
                Long("peers") => peers = parser.value()?.parse_with(crowds)?,
                Long("crowd") => {
                    let server = parser.value()?.string()?;
                    role = Some(Role::Crowd { server });
                }
                Long("crowd-server") => {
                    let address = parser.value()?.string()?;
                    role = Some(Role::CrowdServer { address });
                }
                Long("seed") => parsed.seed = parser.value()?.parse()?,
                Long("counterpart") => {
                    let address = parser.value()?.string()?;
                    role = Some(Role::Counterpart { address });
                }
                Long("storm") => {
                    let server = parser.value()?.string()?;
                    role = Some(Role::Storm { server });
                }
                Long("victim") => {
                    let server = parser.value()?.string()?;
                    role = Some(Role::Victim { server });
                }
                Long("control") => {
                    let spend_us = parser.value()?.parse()?;
                    role = Some(Role::Control { spend_us });
                }
                Long("idler") => {
                    let server = parser.value()?.string()?;
                    role = Some(Role::Idler { server });
                }
                Long("mx-peer") => role = Some(Role::MxPeer),
                Long("library") => parsed.library = parser.value()?,
                Long("mx-library") => parsed.mx_library = parser.value()?,
                Long("no-pin") => parsed.pin = false,
                Value(name) if name == "fabric" => role = Some(Role::Fabric),
                Value(name) if name == "mx" => role = Some(Role::Mx),
                Value(name) if name == "startup" => role = Some(Role::Startup { against: None }),
                Value(name) if name == "cancel" => {
                    role = Some(Role::Cancel { peer: None, count });
                }
                Value(name) if name == "recovery" => {
                    role = Some(Role::Recovery { part: None, kills });
                }
                Value(name) if name == "instructions" => role = Some(Role::Instructions),
                Value(name) if name == "scale" => role = Some(Role::Scale { peers: Vec::new() }),
                Value(name) => tests.extend(test(&name.string()?)?),
                other => return Err(other.unexpected()),
            }
        }
        parsed.role = match role {
            Some(_) if !tests.is_empty() => return Err("that is measured on its own".into()),
            Some(Role::Startup { .. }) => Role::Startup { against },
            Some(Role::Cancel { .. }) => Role::Cancel { peer: state, count },
            Some(Role::Recovery { .. }) => Role::Recovery { part, kills },
            Some(Role::Scale { .. }) => Role::Scale { peers },
            Some(role) => role,
            None if tests.is_empty() => return Err("no measurement named".into()),
            None => Role::Measure { tests, connect },
        };
        Ok(Some(parsed))
    }
}

fn test(name: &str) -> Result<Vec<Test>, String> {
    if name == "all" {
        return Ok(Test::ALL.to_vec());
    }
    Test::ALL
        .into_iter()
        .find(|test| test.name() == name)
        .map(|test| vec![test])
        .ok_or_else(|| format!("no measurement is called '{name}'"))
}

fn port(name: &str) -> Result<Port, String> {
    Port::ALL
        .into_iter()
        .find(|port| port.name() == name)
        .ok_or_else(|| format!("no port is called '{name}'"))
}

fn subject(name: &str) -> Result<Subject, String> {
    [Subject::Method, Subject::Ucx]
        .into_iter()
        .find(|subject| subject.name() == name)
        .ok_or_else(|| format!("nothing is counted of '{name}'"))
}

fn repeats(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=1000) => Ok(n),
        _ => Err(format!("'{text}' is no number from 1 to 1000")),
    }
}

fn peer(name: &str) -> Result<Peer, String> {
    Peer::ALL
        .into_iter()
        .find(|peer| peer.name() == name)
        .ok_or_else(|| format!("no peer is called '{name}'"))
}

fn one_part(name: &str) -> Result<Part, String> {
    Part::ALL
        .into_iter()
        .find(|part| part.name() == name)
        .ok_or_else(|| format!("no part is called '{name}'"))
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=10_000_000) => Ok(n),
        _ => Err(format!("'{text}' is no number from 1 to 10000000")),
    }
}

/// Numbers of clients, each at least one.
fn crowds(text: &str) -> Result<Vec<usize>, String> {
    text.split(',').map(number).collect()
}

fn percents(text: &str) -> Result<Vec<f64>, String> {
    text.split(',').map(percent).collect()
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|n| (0.0..=100.0).contains(n));
    percent.ok_or_else(|| format!("'{text}' is no percentage"))
}

fn sizes(text: &str) -> Result<Vec<usize>, String> {
    text.split(',').map(size).collect()
}

/// `8`, `64K` or `4M`; at most 1 GiB.
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

    #[test]
    fn percentages_are_between_nothing_and_all() {
        assert_eq!(percents("0,0.5,100"), Ok(vec![0.0, 0.5, 100.0]));
        for bad in ["", "-1", "101", "x", "1,,2", "NaN"] {
            assert!(percents(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units_and_a_limit() {
        assert_eq!(sizes("0,8,1K,16M"), Ok(vec![0, 8, 1024, 16 << 20]));
        for bad in [
            "",
            "K",
            "-1",
            "1G",
            "2048M",
            "1,,2",
            "99999999999999999999K",
        ] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_stands_for_every_measurement() {
        let parse = |words: &[&str]| Args::parse(words.iter().map(OsString::from));
        let args = parse(&["bmi_mx_perf", "all", "--port", "tcp"])
            .ok()
            .flatten();
        let Some(Args {
            role: Role::Measure { tests, .. },
            ports,
            ..
        }) = args
        else {
            panic!("parsed")
        };
        assert_eq!((tests, ports), (Test::ALL.to_vec(), vec![Port::Tcp]));
        assert!(parse(&["bmi_mx_perf"]).is_err());
        assert!(parse(&["bmi_mx_perf", "speed"]).is_err());
    }

    #[test]
    fn cancel_and_recovery_have_numbers_wherever_they_stand() {
        let parse = |words: &[&str]| Args::parse(words.iter().map(OsString::from));
        let role = |words: &[&str]| parse(words).ok().flatten().map(|args| args.role);
        let cancel = role(&["bmi_mx_perf", "--count", "7", "cancel", "--peer", "dead"]);
        let Some(Role::Cancel { peer, count }) = cancel else {
            panic!("{cancel:?}")
        };
        assert_eq!((peer, count), (Some(Peer::Dead), 7));
        let recovery = role(&["bmi_mx_perf", "recovery"]);
        assert!(matches!(
            recovery,
            Some(Role::Recovery {
                part: None,
                kills: 1000
            })
        ));
        for bad in [
            &["bmi_mx_perf", "cancel", "--peer", "ill"][..],
            &["bmi_mx_perf", "recovery", "--kills", "0"],
            &["bmi_mx_perf", "recovery", "--part", "birth"],
            &["bmi_mx_perf", "cancel", "latency"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn scale_has_numbers_of_clients_and_none_is_zero() {
        let parse = |words: &[&str]| Args::parse(words.iter().map(OsString::from));
        let role = |words: &[&str]| parse(words).ok().flatten().map(|args| args.role);
        for (words, wanted) in [
            (&["bmi_mx_perf", "scale"][..], &PEERS[..]),
            (&["bmi_mx_perf", "--peers", "1,50", "scale"], &[1, 50]),
        ] {
            let Some(Role::Scale { peers }) = role(words) else {
                panic!("{words:?}")
            };
            assert_eq!(peers, wanted);
        }
        assert!(parse(&["bmi_mx_perf", "scale", "--peers", "0"]).is_err());
        assert!(parse(&["bmi_mx_perf", "scale", "latency"]).is_err());
    }

    #[test]
    fn what_runs_on_its_own_takes_no_other_measurement() {
        let parse = |words: &[&str]| Args::parse(words.iter().map(OsString::from));
        let startup = parse(&["bmi_mx_perf", "startup", "--against", "old.so"]);
        let Some(Args { role, ports, .. }) = startup.ok().flatten() else {
            panic!("parsed")
        };
        let Role::Startup { against } = role else {
            panic!("{role:?}")
        };
        assert_eq!(
            (against, ports),
            (Some("old.so".into()), Port::ALL.to_vec())
        );
        assert!(parse(&["bmi_mx_perf", "startup", "latency"]).is_err());
        assert!(parse(&["bmi_mx_perf", "fabric", "all"]).is_err());
    }
}
