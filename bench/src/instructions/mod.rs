//! Instructions of the method's calls, and of those of UCX where it is installed: no clock, no noise.
//!
//! ```text
//!   bmi_mx_perf instructions
//!        `-- callgrind -- bmi_mx_perf --counted      the process that is counted
//!                             `------- its peer     runs without callgrind
//! ```
//!
//! 8 B over local (UCX: posix), between two processes. Everything that the library executes within
//! a call counts, in the calling thread; the program's own instructions do not.
//!
//! Owns: the run under callgrind, and the table.
//! Out of scope: the calls, see `calls` and `rounds`; callgrind's file, see `callgrind`.

mod callgrind;
mod calls;
mod rounds;

pub(crate) use rounds::{answer, count};

use crate::args::{Args, Port, Subject};
use crate::reference::ucx::{self, Endpoint};
use crate::report;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

/// Counted calls: names of functions in `rounds`, and their names in the table.
const CALLS: [(&str, &str); 4] = [
    ("counted_post_recv", "post_recv"),
    ("counted_post_send", "post_send"),
    ("counted_test_report", "testcontext that reports a receive"),
    ("counted_test_nothing", "testcontext that finds nothing"),
];
/// Number of calls at the beginning of [`CALLS`] that make a round trip.
const SUMMED: usize = 3;

/// Counts, and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let mut columns = vec![(Subject::Method, figures(args, Subject::Method)?)];
    let ucx = Endpoint::installed().and_then(|()| figures(args, Subject::Ucx));
    match ucx {
        Ok(figures) => columns.push((Subject::Ucx, figures)),
        Err(why) => report::not_measured(ucx::NAME, &why, args.json),
    }
    let names = CALLS.map(|(_, name)| name);
    let (summed, rest) = names.split_at(SUMMED);
    let rows: Vec<&str> = summed.iter().chain(&["sum"]).chain(rest).copied().collect();
    if args.json {
        for (subject, figures) in columns {
            for (call, figure) in rows.iter().zip(figures) {
                let of = subject.name();
                println!(
                    r#"{{"test":"instructions","port":"local","size":8,"of":"{of}","call":"{call}","instructions":{figure:.1}}}"#
                );
            }
        }
        return Ok(());
    }
    let rounds = rounds::ROUNDS;
    println!(
        "instructions a call, mean of {rounds} (callgrind); 8 B over local, between two processes"
    );
    let line = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>9}")).collect();
        println!("  {name:<36}{cells}");
    };
    line(
        "",
        columns
            .iter()
            .map(|(subject, _)| subject.name().into())
            .collect(),
    );
    for (n, name) in rows.iter().enumerate() {
        line(
            name,
            columns
                .iter()
                .map(|(_, figures)| format!("{:.0}", figures[n]))
                .collect(),
        );
    }
    Ok(())
}

/// Returns the figure of each call, with the sum behind those that are summed.
fn figures(args: &Args, subject: Subject) -> Result<Vec<f64>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let costs = counted(args, subject, &program)?;
    let program = program.to_string_lossy();
    let mut figures = Vec::new();
    for (function, name) in CALLS {
        let total = callgrind::within(&costs, &program, function);
        if total == 0 {
            return Err(format!("{name}: nothing of it is in callgrind's file"));
        }
        figures.push(total as f64 / rounds::ROUNDS as f64);
    }
    figures.insert(SUMMED, figures.iter().take(SUMMED).sum());
    Ok(figures)
}

/// Runs the counted process under callgrind; returns the contents of its file.
fn counted(args: &Args, subject: Subject, program: &Path) -> Result<String, String> {
    let file = std::env::temp_dir().join(format!("bmi_mx_perf-{}.callgrind", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--collect-atstart=no"]);
    command.args(["--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--toggle-collect=*{}*", rounds::COUNTED));
    command.arg(format!("--separate-callers={}", callgrind::CALLERS));
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command
        .arg(program)
        .args(["counted", subject.name()])
        .arg("--library")
        .arg(&args.library);
    if !args.pin {
        command.arg("--no-pin");
    }
    if let Some(transport) = ucx::transport(Port::Local) {
        command.env(ucx::TRANSPORT, transport);
    }
    command
        .env("MX_PORT", Port::Local.name())
        .stdin(Stdio::null());
    let status = command.status().map_err(|error| match error.kind() {
        ErrorKind::NotFound => NO_VALGRIND.to_owned(),
        _ => format!("valgrind: {error}"),
    })?;
    let text = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    if !status.success() {
        return Err(format!("valgrind ended with {status}"));
    }
    text.map_err(|error| format!("{}: {error}", file.display()))
}

const NO_VALGRIND: &str = "valgrind is not installed, which counts the instructions \
                           (Debian: apt-get install valgrind)";
