//! Costs of a start: initialize and finalize, each time in a process that has just begun.
//!
//! ```text
//!   bmi_mx_perf startup     repeat:   probe (--against)    probe (--library)    probe ...
//!                                     `----- difference -----'   median of all
//!   probe:  load the method, initialize, open a context | is libfabric mapped? | close, finalize
//! ```
//!
//! A process that uses only local or tcp must not notice that there is an rdm port: libfabric is
//! not in it, and it starts within 5 ms of a build without that port. The run fails otherwise.
//!
//! Owns: the probes, and that promise.
//! Not here: peers, messages.

use crate::args::{Args, Port};
use crate::bmi::Bmi;
use crate::figures::Spread;
use crate::report;
use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The time that a start may take longer than one of a build that knows no libfabric.
const ALLOWANCE_MS: f64 = 5.0;
/// Starts for each repeat asked for: one takes little time.
const STARTS: usize = 5;

/// The result of one probe.
struct Start {
    ms: f64,
    libfabric: bool,
}

/// Is started, starts the method, stops it, and says how long that took.
pub(crate) fn probe(args: &Args) -> Result<(), String> {
    let begin = Instant::now();
    let bmi = Bmi::start(&args.library, None)?;
    let started = begin.elapsed();
    let libfabric = libfabric_is_mapped()?;
    let begin = Instant::now();
    drop(bmi);
    let ms = (started + begin.elapsed()).as_secs_f64() * 1e3;
    println!("{ms} {}", u8::from(libfabric));
    Ok(())
}

/// Runs the probes of every port, beside those of another build if there is one.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let against = args.against.as_deref();
    if !args.json {
        println!(
            "{:<8} {:<8} {:>10} {:>22} {:>12} {:>12}  libfabric",
            "test", "port", "ms", "(min .. max)", "against, ms", "difference"
        );
    }
    // A process that says nothing of ports is the usual one.
    let unnamed = args.port.is_none().then_some(None);
    let ports = unnamed
        .into_iter()
        .chain(args.ports().into_iter().map(Some));
    let mut broken = Vec::new();
    for port in ports {
        // The other build may never have heard of these.
        let other = against.filter(|_| !matches!(port, Some(Port::Rdm | Port::Dgram)));
        let name = name(port);
        match measure(args, port, other) {
            Ok(result) => {
                result.print(name, args.json);
                broken.extend(result.broken_promise(port));
            }
            Err(why) if port == Some(Port::Rdm) && args.port.is_none() => {
                report::not_measured(name, &why, args.json);
            }
            Err(why) => return Err(why),
        }
    }
    if broken.is_empty() {
        Ok(())
    } else {
        Err(broken.join("; "))
    }
}

/// `MX_PORT` as it is shown.
fn name(port: Option<Port>) -> &'static str {
    port.map_or("unset", Port::name)
}

/// Many starts of one port.
struct Starts {
    ms: Spread,
    /// Of the other build, and how much longer each of ours took than the one before.
    against: Option<(Spread, Spread)>,
    libfabric: bool,
}

fn measure(args: &Args, port: Option<Port>, against: Option<&OsStr>) -> Result<Starts, String> {
    let (mut ours, mut theirs, mut more) = (Vec::new(), Vec::new(), Vec::new());
    let mut libfabric = false;
    for _ in 0..args.repeats * STARTS {
        let before = match against {
            Some(library) => Some(start(args, port, library)?.ms),
            None => None,
        };
        let start = start(args, port, &args.library)?;
        libfabric |= start.libfabric;
        ours.push(start.ms);
        theirs.extend(before);
        more.extend(before.map(|before| start.ms - before));
    }
    Ok(Starts {
        ms: Spread::of(&ours),
        against: against.map(|_| (Spread::of(&theirs), Spread::of(&more))),
        libfabric,
    })
}

fn start(args: &Args, port: Option<Port>, library: &OsStr) -> Result<Start, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg("probe").arg("--library").arg(library);
    match port {
        Some(port) => command.env("MX_PORT", port.name()),
        None => command.env_remove("MX_PORT"),
    };
    if let Some(provider) = &args.provider {
        command.env("MX_PROVIDER", provider);
    }
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("starting a probe: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let fields = said.trim_end().split_once(' ').and_then(|(ms, mapped)| {
        Some(Start {
            ms: ms.parse().ok()?,
            libfabric: mapped == "1",
        })
    });
    fields.ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        format!("no start with {}: {}", library.display(), why.trim_end())
    })
}

impl Starts {
    fn difference(&self) -> Option<f64> {
        self.against.map(|(_, more)| more.median)
    }

    fn broken_promise(&self, port: Option<Port>) -> Option<String> {
        // Where there is fabric hardware, a process that names no port uses rdm as well.
        let uses_rdm = port == Some(Port::Rdm) || port.is_none() && self.libfabric;
        if uses_rdm {
            return None;
        }
        let port = name(port);
        if self.libfabric {
            return Some(format!("{port}: libfabric was loaded"));
        }
        let more = self.difference().filter(|more| *more > ALLOWANCE_MS)?;
        Some(format!(
            "{port}: {more:.2} ms more than without libfabric, {ALLOWANCE_MS} are allowed"
        ))
    }

    fn print(&self, port: &str, json: bool) {
        let Spread { median, min, max } = self.ms;
        if json {
            let mut line = format!(
                r#"{{"test":"startup","port":"{port}","ms":{median:.4},"min":{min:.4},"max":{max:.4}"#
            );
            if let Some((against, more)) = self.against {
                let (against, more) = (against.median, more.median);
                line += &format!(r#","against_ms":{against:.4},"difference_ms":{more:.4}"#);
            }
            println!(r#"{line},"libfabric_loaded":{}}}"#, self.libfabric);
            return;
        }
        let spread = format!("({min:.2} .. {max:.2})");
        let against = self.against.map_or(String::new(), |(against, _)| {
            format!("{:.3}", against.median)
        });
        let more = self
            .difference()
            .map_or(String::new(), |more| format!("{more:+.3}"));
        let loaded = if self.libfabric {
            "loaded"
        } else {
            "not loaded"
        };
        println!(
            "{:<8} {port:<8} {median:>10.3} {spread:>22} {against:>12} {more:>12}  {loaded}",
            "startup"
        );
    }
}

/// Whether any file of libfabric's is mapped into this process.
fn libfabric_is_mapped() -> Result<bool, String> {
    let maps = std::fs::read_to_string("/proc/self/maps")
        .map_err(|error| format!("/proc/self/maps: {error}"))?;
    // The last field of a line is a path; directories may be called what they like.
    Ok(maps
        .lines()
        .filter_map(|line| line.rsplit('/').next())
        .any(|file| file.starts_with("libfabric") && file.contains(".so")))
}

#[cfg(test)]
mod unit {
    use super::*;

    fn starts(ms: f64, against: f64, libfabric: bool) -> Starts {
        Starts {
            ms: Spread::of(&[ms]),
            against: Some((Spread::of(&[against]), Spread::of(&[ms - against]))),
            libfabric,
        }
    }

    #[test]
    fn a_loaded_libfabric_or_a_slow_start_breaks_the_promise_of_local_and_tcp() {
        let tcp = Some(Port::Tcp);
        assert_eq!(starts(7.0, 2.0, false).broken_promise(tcp), None);
        assert!(starts(7.1, 2.0, false).broken_promise(tcp).is_some());
        assert!(starts(2.0, 2.0, true).broken_promise(tcp).is_some());
        assert_eq!(
            starts(300.0, 2.0, true).broken_promise(Some(Port::Rdm)),
            None
        );
        assert_eq!(starts(300.0, 2.0, true).broken_promise(None), None);
        assert!(starts(300.0, 2.0, false).broken_promise(None).is_some());
    }

    #[test]
    fn this_process_has_no_libfabric() {
        assert_eq!(libfabric_is_mapped(), Ok(false));
    }
}
