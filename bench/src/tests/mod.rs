//! Measurements, and the peer process that they need.

mod bandwidth;
mod beside;
mod idle;
mod latency;
mod loss;
mod matching;
mod mx;
mod peers;
mod rate;
mod wakeup;

pub(crate) use mx::run as mx;
pub(crate) use peers::idler;

use crate::args::{Args, Port, Test};
use crate::bmi::Bmi;
use crate::buffer::Layout;
use crate::bursts::Bursts;
use crate::messages::Side;
use crate::peer::Request;
use crate::pin;
use crate::reference::sides::Sides;
use crate::reference::{fabric as libfabric, ucx};
use crate::report::{self, Row};
use crate::setting::Setting;
use beside::Beside;
use bmi_host::method::Address;
use std::cell::{RefCell, RefMut};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Context of a measurement.
pub(crate) struct Bench<'a> {
    args: &'a Args,
    port: Port,
    bmi: &'a Bmi,
    peer: Address,
    references: References,
}

/// References with processes of their own, if they are measured.
struct References {
    /// libfabric: the reference of the rdm port, and one of those of dgram.
    fabric: Option<RefCell<Sides>>,
    /// UCX: one of the references of local and tcp.
    ucx: Option<RefCell<Sides>>,
}

impl Bench<'_> {
    /// Returns libfabric, if it is a reference.
    fn fabric(&self) -> Result<RefMut<'_, Sides>, String> {
        let fabric = self
            .references
            .fabric
            .as_ref()
            .ok_or("libfabric was not started")?;
        Ok(fabric.borrow_mut())
    }

    /// Returns UCX, if it is a reference.
    fn ucx(&self) -> Result<RefMut<'_, Sides>, String> {
        let ucx = self.references.ucx.as_ref().ok_or("UCX was not started")?;
        Ok(ucx.borrow_mut())
    }

    /// Takes as many bursts as the command line says.
    fn in_turn(
        &self,
        reference: impl FnMut() -> Result<f64, String>,
        method: impl FnMut() -> Result<f64, String>,
    ) -> Result<Bursts, String> {
        Bursts::take(self.args.repeats, self.args.pin, reference, method)
    }

    /// Makes a row of some bursts.
    fn row(
        &self,
        test: &'static str,
        size: usize,
        unit: &'static str,
        beside: Beside,
        bursts: Bursts,
    ) -> Row {
        Row {
            test,
            port: self.port.name(),
            size,
            unit,
            value: bursts.method(),
            p99_us: None,
            reference: Some((beside.name(self), bursts.reference())),
            ratio: Some(bursts.ratio()),
            loss_percent: None,
            pieces: self.args.pieces,
            bursts,
        }
    }

    /// Returns the method and its peer.
    fn side(&self) -> Side<'_, Bmi> {
        Side {
            messages: self.bmi,
            peer: self.peer,
        }
    }

    fn ask(&self, request: Request) -> Result<(), String> {
        self.side().ask(request)
    }

    /// Returns the messages to measure; of the default sizes, those that can have the requested
    /// number of pieces.
    fn layouts(&self, default: &[usize]) -> Vec<Layout> {
        let sizes = self.args.sizes.as_deref().unwrap_or(default).iter();
        sizes
            .filter_map(|size| Layout::new(*size, self.args.pieces).ok())
            .collect()
    }
}

/// Runs everything that the command line asks for.
pub(crate) fn run(args: &Args, tests: &[Test]) -> Result<(), String> {
    if args.pin {
        pin::to_core(0);
    }
    if !args.json {
        println!("{}", report::heading());
    }
    // Some tests start their own processes, repeatedly; the others share one peer.
    let (apart, common): (Vec<Test>, Vec<Test>) = tests
        .iter()
        .partition(|test| matches!(test, Test::Peers | Test::Loss));
    // The library warns at every start that datagrams are dropped on purpose. That is suppressed,
    // unless the user has set a log level. A process reads the variable once.
    let words = std::env::var(LOG).ok();
    let quiet = apart.contains(&Test::Loss).then_some("error");
    // SAFETY: no other thread runs yet, and none any more when this function ends.
    let _words = unsafe { Setting::put(LOG, words.as_deref().or(quiet)) };
    if args.connect.is_some() && common.is_empty() {
        return Err("that is measured on one host only".into());
    }
    let mut emit = |row: Row| report::print(&row, args.json);
    for port in &args.ports() {
        if !common.is_empty() {
            beside_one_peer(args, *port, args.connect.as_deref(), &common, &mut emit)?;
        }
        if args.connect.is_some() {
            continue;
        }
        // SAFETY: as in `beside_one_peer`.
        let _port = unsafe { Setting::put("MX_PORT", Some(port.name())) };
        for test in &apart {
            match (test, port) {
                (Test::Loss, Port::Dgram) => loss::run(args, &mut emit)?,
                (Test::Peers, Port::Dgram) => peers::run(args, *port, &mut emit)?,
                // Slow, and not asked for; rdm takes a third of a second per peer.
                (Test::Peers, Port::Local | Port::Tcp) if args.port.is_some() => {
                    peers::run(args, *port, &mut emit)?;
                }
                (test, port) if args.port.is_some() && tests.len() == 1 => {
                    let (test, port) = (test.name(), port.name());
                    return Err(format!(
                        "{test} is not measured over {port}, but over dgram"
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Runs the measurements with one peer, which is started here or is at `connect`.
fn beside_one_peer(
    args: &Args,
    port: Port,
    connect: Option<&str>,
    tests: &[Test],
    emit: &mut dyn FnMut(Row),
) -> Result<(), String> {
    let fabric = match port {
        Port::Rdm => match libfabric::start(args.provider.as_deref(), args.pin) {
            Ok(fabric) => Some(fabric),
            Err(why) if args.port.is_some() => return Err(format!("rdm: {why}")),
            Err(why) => {
                report::not_measured(port.name(), &why, args.json);
                return Ok(());
            }
        },
        // One reference of several: the others remain without it. It has no lists.
        Port::Dgram if args.pieces.is_none() => match libfabric::start(Some(DATAGRAMS), args.pin) {
            Ok(fabric) => Some(fabric),
            Err(why) => {
                report::not_measured(DATAGRAMS, &why, args.json);
                None
            }
        },
        Port::Dgram | Port::Local | Port::Tcp => None,
    };
    let streams = |test: &Test| matches!(test, Test::Latency | Test::Bandwidth | Test::Rate);
    let ucx = match port {
        // Likewise for UCX.
        Port::Local | Port::Tcp if args.pieces.is_none() && tests.iter().any(streams) => {
            match ucx::start(port, args.pin) {
                Ok(ucx) => Some(ucx),
                Err(why) => {
                    report::not_measured(ucx::NAME, &why, args.json);
                    None
                }
            }
        }
        _ => None,
    };
    let references = References {
        fabric: fabric.map(RefCell::new),
        ucx: ucx.map(RefCell::new),
    };
    let provider = match (port, &references.fabric) {
        // The method must use the same provider, or the ratios would mean nothing.
        (Port::Rdm, Some(fabric)) => Some(fabric.borrow().name().to_owned()),
        _ => args.provider.clone(),
    };
    // SAFETY: no other thread runs: the method of the port before has been finalised, and with
    // it its helper thread, and the references have joined theirs. So has that of this port.
    let _provider = unsafe { Setting::put(PROVIDER, provider.as_deref()) };
    // SAFETY: as above.
    let _port = unsafe { Setting::put("MX_PORT", Some(port.name())) };
    // A port that cannot be opened is reported once here, instead of by every peer. Closed again,
    // so that the peer inherits nothing.
    drop(Bmi::start(&args.library, None)?);
    match connect {
        Some(address) => measure(args, port, address, references, tests, emit),
        None => {
            let (child, address) = start_peer(args, port)?;
            let outcome = measure(args, port, &address, references, tests, emit);
            finished(child, outcome)
        }
    }
}

/// Waits for a peer to end, which has been told to unless an error occurred.
fn finished<T>(mut child: Child, outcome: Result<T, String>) -> Result<T, String> {
    if outcome.is_err() {
        let _ = child.kill();
    }
    child.wait().map_err(|error| error.to_string())?;
    outcome
}

fn measure(
    args: &Args,
    port: Port,
    address: &str,
    references: References,
    tests: &[Test],
    emit: &mut dyn FnMut(Row),
) -> Result<(), String> {
    let bmi = Bmi::start(&args.library, None)?;
    let peer = bmi.lookup(address)?;
    let bench = Bench {
        args,
        port,
        bmi: &bmi,
        peer,
        references,
    };
    for test in tests {
        match test {
            Test::Latency => latency::run(&bench, emit)?,
            Test::Bandwidth => bandwidth::run(&bench, emit)?,
            Test::Rate => rate::run(&bench, emit)?,
            Test::Wakeup => wakeup::run(&bench, emit)?,
            Test::Idle => idle::run(&bench, emit)?,
            Test::Matching => matching::run(&bench, emit)?,
            Test::Peers | Test::Loss => {}
        }
    }
    bench.ask(Request::QUIT)
}

/// Starts this program again as the other side, on a free endpoint.
fn start_peer(args: &Args, port: Port) -> Result<(Child, String), String> {
    on_free_endpoint(|address| {
        let peer = spawn_peer(args, port, &["peer", address])?;
        Ok(peer.map(|(child, _)| (child, address.to_owned())))
    })
}

/// Tries addresses of this machine until `start` has found a free endpoint.
pub(crate) fn on_free_endpoint<T>(
    mut start: impl FnMut(&str) -> Result<Option<T>, String>,
) -> Result<T, String> {
    let seed = std::process::id();
    for attempt in 0..20 {
        let endpoint = 1024 + (seed * 31 + attempt * 977) % 5000;
        if let Some(started) = start(&format!("mx://localhost:{endpoint}"))? {
            return Ok(started);
        }
    }
    Err("no peer could be started".into())
}

/// Starts this program as a peer; returns its address, or `None` if it ends without one.
fn spawn_peer(args: &Args, port: Port, role: &[&str]) -> Result<Option<(Child, String)>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(role);
    command.arg("--library").arg(&args.library);
    command.arg("--mx-library").arg(&args.mx_library);
    command.env("MX_PORT", port.name()).stdout(Stdio::piped());
    if !args.pin {
        command.arg("--no-pin");
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("starting the peer: {error}"))?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut said);
    }
    if let Some(place) = said.strip_prefix("ready on ") {
        return Ok(Some((child, place.trim_end().to_owned())));
    }
    child.wait().map_err(|error| error.to_string())?;
    Ok(None)
}

/// libfabric's own reliable datagrams.
const DATAGRAMS: &str = "udp;ofi_rxd";
const LOG: &str = "BMI_MX_LOG";
const PROVIDER: &str = "MX_PROVIDER";

/// Sizes of the table in the design documents.
const SIZES: [usize; 8] = [
    0,
    8,
    1 << 10,
    8 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];

/// Returns the number of round trips of `size` bytes in one group: a burst ends before the
/// scheduler moves the cores.
fn group(size: usize) -> usize {
    ((8 << 20) / (size + 1)).clamp(4, 200)
}
