//! A stream whose receiver works between messages, as a file system does, beside the same over bare
//! TCP.
//!
//! ```text
//!   repeat:   bare TCP: server, client      the method: server, client     fresh processes, on any core
//!             `---------- wall time, processor time, sleeps: ratios -----------'
//!
//!   sender: WINDOW messages under way ----> receiver: WINDOW receives posted; each message is written
//!                                           to a file in memory, then its buffer is posted again
//! ```
//!
//! In: the client sends. Out: the server sends. Processor time and sleeps (voluntary context
//! switches) are those of both processes and all their threads; they hardly depend on the machine's
//! other load. Buffers are those of a new process: `malloc`'s first blocks.
//!
//! Owns: the processes, their order and the table.

mod side;

pub(crate) use side::run as side;

use crate::args::{Args, Port};
use crate::figures::Spread;
use crate::{ports, tests};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Number of messages under way.
const WINDOW: usize = 4;
const SIZE: usize = 1 << 20;
/// Default MiB of a stream.
const VOLUME: usize = 128;

/// Direction of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Time and sleeps of a stream.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Cost {
    wall_ms: f64,
    /// Milliseconds until the first window had been received and written.
    first_ms: f64,
    /// Processor time of both sides, in milliseconds.
    cpu_ms: f64,
    /// Sleeps of both sides.
    sleeps: f64,
}

/// Runs `bmi_mx_perf busy`.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let mut args = args.clone();
    args.pin = false;
    if !args.json {
        println!("{}", heading());
    }
    ports::each(&args, |port| {
        for size in args.sizes.clone().unwrap_or_else(|| vec![SIZE]) {
            for way in [Way::In, Way::Out] {
                if size > 0 {
                    println!("{}", paired(&args, port, way, size)?.shown(args.json));
                }
            }
        }
        Ok(())
    })
}

fn paired(args: &Args, port: Port, way: Way, size: usize) -> Result<Row, String> {
    let count = (args.volume.unwrap_or(VOLUME) << 20)
        .div_ceil(size)
        .max(WINDOW);
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..args.repeats {
        let server = Side::start(args, &["server", "127.0.0.1:0"], way, size, count)?;
        bare.push(stream(args, server.ok_or("no server")?, way, size, count)?);
        let server = tests::on_free_endpoint(|address| {
            Side::start(args, &["server", address], way, size, count)
        })?;
        ours.push(stream(args, server, way, size, count)?);
    }
    Ok(Row {
        port: port.name(),
        way,
        size,
        bare,
        ours,
    })
}

/// Measures a stream, from or to a server that has just started.
fn stream(args: &Args, server: Side, way: Way, size: usize, count: usize) -> Result<Cost, String> {
    let client = Side::start(args, &["client", &server.place], way, size, count)?;
    let client = client.ok_or("the client did not start")?.cost()?;
    let server = server.cost()?;
    Ok(Cost {
        wall_ms: client.wall_ms,
        first_ms: match way {
            Way::In => server.first_ms,
            Way::Out => client.first_ms,
        },
        cpu_ms: client.cpu_ms + server.cpu_ms,
        sleeps: client.sleeps + server.sleeps,
    })
}

/// A process of the pair, which ends when this value is dropped.
struct Side {
    child: Child,
    out: BufReader<ChildStdout>,
    place: String,
    /// True once the process has reported its cost; it ends by itself then.
    over: bool,
}

impl Side {
    /// Starts a side and waits until it is ready; `None` if it ends before.
    fn start(
        args: &Args,
        role: &[&str],
        way: Way,
        size: usize,
        count: usize,
    ) -> Result<Option<Self>, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .arg("--library")
            .arg(&args.library)
            .arg("busy-side")
            .args(role)
            .args([way.name(), &size.to_string(), &count.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting a side: {error}"))?;
        let out = child.stdout.take().ok_or("no output of a side")?;
        let mut side = Self {
            child,
            out: BufReader::new(out),
            place: String::new(),
            over: false,
        };
        let said = side.line();
        Ok(said.strip_prefix("ready on ").map(|place| {
            side.place = place.to_owned();
            side
        }))
    }

    fn line(&mut self) -> String {
        let mut said = String::new();
        let _ = self.out.read_line(&mut said);
        said.trim_end().to_owned()
    }

    /// Returns the cost that the process reports at its end.
    fn cost(mut self) -> Result<Cost, String> {
        let said = self.line();
        let words = said.split(' ').map(|word| word.parse().ok());
        match words.collect::<Option<Vec<f64>>>().as_deref() {
            Some(&[wall_ms, first_ms, cpu_ms, sleeps]) => {
                self.over = true;
                Ok(Cost {
                    wall_ms,
                    first_ms,
                    cpu_ms,
                    sleeps,
                })
            }
            _ => Err(format!("a side ended early: '{said}'")),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A row of the table.
struct Row {
    port: &'static str,
    way: Way,
    size: usize,
    bare: Vec<Cost>,
    ours: Vec<Cost>,
}

/// A figure of a stream: its name, and its value in a [`Cost`].
type Figure = (&'static str, fn(&Cost) -> f64);

const FIGURES: [Figure; 4] = [
    ("wall_ms", |cost| cost.wall_ms),
    ("cpu_ms", |cost| cost.cpu_ms),
    ("sleeps", |cost| cost.sleeps),
    ("first_ms", |cost| cost.first_ms),
];

fn heading() -> String {
    let mut line = format!("{:<5} {:<6} {:<4} {:>8}", "test", "port", "way", "size");
    for (name, _) in FIGURES {
        line += &format!(" | {name:>8} {:>8} {:>5}", "bare", "ratio");
    }
    line
}

impl Row {
    /// Returns the medians of the method's figures, of bare TCP's, and of the ratios of each turn.
    fn of(&self, figure: fn(&Cost) -> f64) -> [f64; 3] {
        let median = |values: Vec<f64>| Spread::of(&values).median;
        let turns = self.ours.iter().zip(&self.bare);
        [
            median(self.ours.iter().map(figure).collect()),
            median(self.bare.iter().map(figure).collect()),
            median(
                turns
                    .map(|(ours, bare)| figure(ours) / figure(bare))
                    .collect(),
            ),
        ]
    }

    fn shown(&self, json: bool) -> String {
        let (port, way, size) = (self.port, self.way.name(), self.size);
        let mut line = if json {
            format!(r#"{{"test":"busy","port":"{port}","way":"{way}","size":{size}"#)
        } else {
            format!("{:<5} {port:<6} {way:<4} {size:>8}", "busy")
        };
        for (name, figure) in FIGURES {
            let [ours, bare, ratio] = self.of(figure);
            line += &if json {
                format!(r#","{name}":{ours:.2},"bare_{name}":{bare:.2},"{name}_ratio":{ratio:.3}"#)
            } else {
                format!(" | {ours:>8.1} {bare:>8.1} {ratio:>5.2}")
            };
        }
        line + if json { "}" } else { "" }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_row_has_the_medians_and_the_ratios_of_turns() {
        let cost = |wall_ms| Cost {
            wall_ms,
            first_ms: 1.0,
            cpu_ms: 1.0,
            sleeps: 1.0,
        };
        let row = Row {
            port: "local",
            way: Way::In,
            size: 4096,
            bare: [10.0, 20.0, 40.0].map(cost).to_vec(),
            ours: [20.0, 10.0, 60.0].map(cost).to_vec(),
        };
        assert_eq!(row.of(|cost| cost.wall_ms), [20.0, 20.0, 1.5]);
        assert!(row.shown(true).starts_with(
            r#"{"test":"busy","port":"local","way":"in","size":4096,"wall_ms":20.00,"bare_wall_ms":20.00,"wall_ms_ratio":1.500,"#
        ));
        assert_eq!(row.shown(false).len(), heading().len());
    }
}
