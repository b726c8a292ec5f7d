//! A library between two processes of the benchmark, without a layer between it and the
//! measurement.
//!
//! ```text
//!   bmi_mx_perf ---- lines ---->  side 0 (core 0) --.
//!        |                                          | the library
//!        `---------- lines ---->  side 1 (core 1) --'
//! ```
//!
//! Both sides are processes of their own, so that neither the library's threads nor its memory are
//! in the process that measures the method.
//!
//! Owns: the two processes, and their commands.
//! Out of scope: any library; the sides' work (see `side`).

mod side;
mod timeout;

pub(crate) use side::{Tagged, serve};
pub(crate) use timeout::Timeout;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Messages under way at a time in a stream, as many as the method has posted.
pub(crate) const WINDOW: usize = crate::peer::WINDOW;
/// Buffers of a stream's receives in turn, like the method's.
pub(crate) const BUFFERS: usize = crate::peer::BUFFERS;

/// Time that a process has to end.
const ENDING: Duration = Duration::from_secs(5);

/// A process of the pair.
struct Side {
    child: Child,
    /// Input of the process; dropping it ends the process.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Side {
    fn start(command: &mut Command, pin: bool) -> Result<Self, String> {
        if !pin {
            command.arg("--no-pin");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("starting a reference: {error}"))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a reference without pipes".into());
        };
        Ok(Self {
            child,
            orders: Some(orders),
            answers: BufReader::new(answers),
        })
    }

    fn tell(&mut self, line: &str) -> Result<(), String> {
        let Some(orders) = &mut self.orders else {
            return Err("a reference that was told to end".into());
        };
        writeln!(orders, "{line}").map_err(|_| GONE.into())
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(n) if n > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(GONE.into()),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // The process ends with its input, and gives up by itself while it waits for the other
        // side. A library that waits for something when it is closed is not waited for.
        self.orders = None;
        let start = Instant::now();
        while start.elapsed() < ENDING && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const GONE: &str = "a reference process ended";

/// A library between two processes.
pub(crate) struct Sides {
    sides: [Side; 2],
    name: String,
    version: String,
}

impl Sides {
    /// Starts both sides and connects them. `arguments` returns a side's command line, from its
    /// number and the name that the first side reported. An error tells why the library cannot be
    /// measured.
    pub(crate) fn start(
        arguments: impl Fn(&mut Command, &str, Option<&str>),
        pin: bool,
    ) -> Result<Self, String> {
        let start = |number: &str, name: Option<&str>| {
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            let mut command = Command::new(program);
            arguments(&mut command, number, name);
            Side::start(&mut command, pin)
        };
        let mut first = start("0", None)?;
        let (address, name) = introduced(&first.answer()?)?;
        let (name, version) = name.rsplit_once(' ').unwrap_or((&name, "?"));
        let mut second = start("1", Some(name))?;
        let (other, _) = introduced(&second.answer()?)?;
        first.tell(&format!("peer {other}"))?;
        second.tell(&format!("peer {address}"))?;
        let mut sides = Self {
            name: name.into(),
            version: version.into(),
            sides: [first, second],
        };
        sides.answers()?;
        Ok(sides)
    }

    /// Returns the library's name of the transport.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the library's version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Measures half a round trip of `size` bytes, in microseconds, one value per group of round
    /// trips.
    pub(crate) fn latency(
        &mut self,
        size: usize,
        groups: usize,
        group: usize,
    ) -> Result<Vec<f64>, String> {
        let times = self.run(&format!("latency {size} {groups} {group}"))?;
        times
            .split(' ')
            .map(|time| time.parse().map_err(|_| format!("a time of '{time}'")))
            .collect()
    }

    /// Measures messages of `size` bytes per second, one way.
    pub(crate) fn stream(&mut self, size: usize, count: usize) -> Result<f64, String> {
        let rate = self.run(&format!("stream {size} {count}"))?;
        rate.parse().map_err(|_| format!("a rate of '{rate}'"))
    }

    fn run(&mut self, order: &str) -> Result<String, String> {
        for side in self.sides.iter_mut().rev() {
            side.tell(order)?;
        }
        self.answers()
    }

    /// Waits for both answers; returns the first side's.
    fn answers(&mut self) -> Result<String, String> {
        let [first, second] = &mut self.sides;
        let answer = first.answer()?;
        second.answer()?;
        Ok(answer)
    }
}

/// Returns address and name from a side's first line, or its error.
fn introduced(line: &str) -> Result<(String, String), String> {
    if let Some(why) = line.strip_prefix("error ") {
        return Err(why.into());
    }
    let fields = line.strip_prefix("address ").and_then(|rest| {
        let (address, name) = rest.split_once(' ')?;
        Some((address.to_owned(), name.to_owned()))
    });
    fields.ok_or_else(|| format!("a reference said '{line}'"))
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    // Digits only: `from_str_radix` would accept a sign, too.
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || text.len() % 2 != 0 {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn addresses_survive_the_pipe_and_nonsense_is_refused() {
        let address: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&address)), Some(address));
        for bad in ["1", "zz", "é", "+1"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_first_line_has_an_address_a_name_and_a_version() {
        let said = introduced("address 0a0b tcp;ofi_rxm 1.17");
        assert_eq!(said, Ok(("0a0b".into(), "tcp;ofi_rxm 1.17".into())));
        assert_eq!(introduced("error no libfabric"), Err("no libfabric".into()));
        assert!(introduced("hello").is_err());
    }
}
