//! Memory of a server for each connected and silent peer.
//!
//! ```text
//!   server ----- FIRST idlers: memory ----- MORE idlers: memory      difference / MORE
//!                                 an idler: one message there and back, then silent
//! ```
//!
//! Bytes are those that the whole process has allocated, including tables that grew; not those that
//! the allocator keeps. The server is a process of its own, so that it contains no other
//! measurement's memory.
//!
//! Owns: the idlers.

use super::{finished, start_peer};
use crate::args::{Args, Port};
use crate::bmi::Bmi;
use crate::buffer::Layout;
use crate::bursts::Bursts;
use crate::figures::Spread;
use crate::messages::{Messages, Side};
use crate::peer::{Request, What, end_with_parent};
use crate::report::Row;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// Number of peers at which tables that double are nearly full, so that their reserve counts
/// little.
const FIRST: usize = 30;
const MORE: usize = 220;
/// Time after which keep-alive has found every peer idle, and memory for connecting has been freed.
const SETTLED: Duration = Duration::from_secs(7);
const TAG: i32 = 500;

pub(super) fn run(args: &Args, port: Port, emit: &mut dyn FnMut(Row)) -> Result<(), String> {
    let (server, address) = start_peer(args, port)?;
    let bytes = finished(server, measure(args, port, &address))?;
    emit(Row {
        test: "peers",
        port: port.name(),
        size: MORE,
        unit: "bytes",
        value: Spread::of(&[bytes]),
        p99_us: None,
        reference: None,
        ratio: None,
        loss_percent: None,
        pieces: None,
        bursts: Bursts::default(),
    });
    Ok(())
}

fn measure(args: &Args, port: Port, address: &str) -> Result<f64, String> {
    let bmi = Bmi::start(&args.library, None)?;
    let side = Side {
        messages: &bmi,
        peer: bmi.lookup(address)?,
    };
    let mut idlers = Vec::new();
    let mut with = |count| {
        for _ in 0..count {
            idlers.push(Idler::start(args, port, address)?);
        }
        std::thread::sleep(SETTLED);
        memory(&side)
    };
    let (before, after) = (with(FIRST)?, with(MORE)?);
    drop(idlers);
    side.ask(Request::QUIT)?;
    Ok((after - before) / MORE as f64)
}

/// Returns the bytes that the server has allocated.
fn memory(side: &Side<'_, Bmi>) -> Result<f64, String> {
    let (bmi, mut bytes) = (side.messages, [0; 8]);
    // SAFETY: waited for right below.
    let pending = usize::from(!unsafe { bmi.recv(side.peer, &mut bytes, TAG)? });
    side.ask(Request {
        what: What::Memory,
        layout: Layout::whole(0),
        count: 0,
        idle_ms: 0,
        tag: TAG,
    })?;
    bmi.wait(pending, 10)?;
    Ok(u64::from_le_bytes(bytes) as f64)
}

/// A process that is connected and idle. It ends with this value.
struct Idler {
    child: Child,
    /// Input of the process; dropping it ends the process.
    input: Option<ChildStdin>,
}

impl Idler {
    fn start(args: &Args, port: Port, server: &str) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(["idler", server])
            .arg("--library")
            .arg(&args.library)
            .env("MX_PORT", port.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting an idle peer: {error}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let idler = Self { child, input };
        let mut said = String::new();
        if let Some(output) = output {
            let _ = BufReader::new(output).read_line(&mut said);
        }
        match said.as_str() {
            "idle\n" => Ok(idler),
            _ => Err("an idle peer did not come up".into()),
        }
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        self.input = None;
        // Ending in order takes long for so many, and is not measured.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to a server, and is idle until its input ends.
pub(crate) fn idler(args: &Args, server: &str) -> Result<(), String> {
    end_with_parent();
    let bmi = Bmi::start(&args.library, None)?;
    let side = Side {
        messages: &bmi,
        peer: bmi.lookup(server)?,
    };
    side.ask(Request {
        what: What::Echo,
        layout: Layout::whole(1),
        count: 1,
        idle_ms: 10,
        tag: TAG,
    })?;
    let mut back = [0u8];
    // SAFETY: waited for right below.
    let mut pending = usize::from(!unsafe { bmi.recv(side.peer, &mut back, TAG)? });
    // SAFETY: as above.
    pending += usize::from(!unsafe { bmi.send(side.peer, &[1], TAG)? });
    bmi.wait(pending, 10)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "idle")
        .and_then(|()| out.flush())
        .map_err(|error| error.to_string())?;
    let _ = std::io::stdin().lock().read(&mut [0]);
    Ok(())
}
