//! What the link is to be like.
//!
//! ```text
//!   A B  --delay 1ms --loss 1%   --forth --rate 10mbit --queue 64K   --back --loss 0
//!        both directions         only from A to B                    only from B to A
//! ```
//!
//! Owns: the command line.
//! Knows nothing of: interfaces.

use lexopt::prelude::{Long, Short, Value, ValueExt};
use mx_sim::Faults;
use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

/// A frame is so much longer than the IP packet in it.
const ETHERNET_HEADER: usize = 14;

/// What is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Task {
    Help,
    /// Switch these interfaces' offloads off, no more.
    Plain(Vec<String>),
    /// Be the link between these two.
    Link(Box<Plan>),
}

/// A link between two interfaces.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    pub(crate) ends: [String; 2],
    /// From the first to the second, and from the second to the first.
    pub(crate) ways: [Way; 2],
    pub(crate) seed: u64,
}

/// One direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Way {
    pub(crate) faults: Faults,
    pub(crate) garble: f64,
    /// The largest frame that gets through.
    pub(crate) frame_max: usize,
}

impl Default for Way {
    /// A cable.
    fn default() -> Self {
        let faults = Faults {
            latency: Duration::ZERO,
            ..Faults::default()
        };
        Self {
            faults,
            garble: 0.0,
            frame_max: usize::MAX,
        }
    }
}

/// Reads a command line, without the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Task, lexopt::Error> {
    let mut parser = lexopt::Parser::from_iter(["mx_shaper".into()].into_iter().chain(args));
    let mut names: Vec<String> = Vec::new();
    let mut ways = [Way::default(); 2];
    // Which of them an option concerns.
    let mut meant = 0..2;
    let (mut seed, mut plain) = (1, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Task::Help),
            Long("plain") => plain = true,
            Long("seed") => seed = parser.value()?.parse()?,
            Long("forth") => meant = 0..1,
            Long("back") => meant = 1..2,
            Long(option) => {
                let option = option.to_owned();
                let value = parser.value()?;
                for way in &mut ways[meant.clone()] {
                    set(way, &option, &value)?;
                }
            }
            Value(name) => names.push(name.string()?),
            Short(_) => return Err(argument.unexpected()),
        }
    }
    if plain {
        return Ok(Task::Plain(names));
    }
    let ends = names
        .try_into()
        .map_err(|_| "a link has two ends: name two interfaces")?;
    Ok(Task::Link(Box::new(Plan { ends, ways, seed })))
}

fn set(way: &mut Way, option: &str, value: &OsString) -> Result<(), lexopt::Error> {
    let Way {
        faults,
        garble,
        frame_max,
    } = way;
    match option {
        "delay" => faults.latency = value.parse_with(duration)?,
        "jitter" => faults.jitter = value.parse_with(duration)?,
        "loss" => faults.loss = value.parse_with(probability)?,
        "duplicate" => faults.duplicate = value.parse_with(probability)?,
        "reorder" => faults.reorder = value.parse_with(probability)?,
        "corrupt" => faults.corrupt = value.parse_with(probability)?,
        "garble" => *garble = value.parse_with(probability)?,
        "rate" => faults.bandwidth = Some(value.parse_with(rate)?),
        "queue" => faults.queue = value.parse_with(size)?,
        "mtu-black-hole" => {
            *frame_max = value.parse_with(size)?.saturating_add(ETHERNET_HEADER);
        }
        _ => return Err(format!("there is no option --{option}").into()),
    }
    Ok(())
}

/// A number and the unit behind it.
fn number<T: FromStr>(text: &str) -> Result<(T, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = digits
        .parse()
        .map_err(|_| format!("'{text}' does not begin with a number"))?;
    Ok((number, unit))
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit): (f64, _) = number(text)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => return Err(format!("'{text}' is no time: us, ms or s")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// `0.01` or `1%`.
fn probability(text: &str) -> Result<f64, String> {
    let (number, unit): (f64, _) = number(text)?;
    let chance = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(format!("'{text}' is no probability")),
    };
    if chance > 1.0 {
        return Err(format!("'{text}' is more than certain"));
    }
    Ok(chance)
}

/// Bytes a second, from bits a second.
fn rate(text: &str) -> Result<u64, String> {
    let (number, unit): (u64, _) = number(text)?;
    let unit = match unit {
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return Err(format!("'{text}' is no rate: kbit, mbit or gbit")),
    };
    match number.checked_mul(unit).map(|bits| bits / 8) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("no link has a rate of '{text}'")),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let (number, unit): (usize, _) = number(text)?;
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return Err(format!("'{text}' is no size: bytes, K or M")),
    };
    number
        .checked_mul(unit)
        .ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Task, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    fn link(line: &str) -> Plan {
        match read(line) {
            Ok(Task::Link(plan)) => *plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_options_it_is_a_cable() {
        let plan = link("one two");
        assert_eq!(plan.ends, ["one", "two"]);
        assert_eq!(plan.ways, [Way::default(); 2]);
    }

    #[test]
    fn options_concern_both_directions_until_one_is_named() {
        let plan =
            link("a b --delay 1.5ms --forth --rate 10mbit --queue 64K --back --loss 0.5% --seed 9");
        let [forth, back] = plan.ways.map(|way| way.faults);
        assert_eq!(forth.latency, Duration::from_micros(1500));
        assert_eq!(back.latency, forth.latency);
        assert_eq!((forth.bandwidth, back.bandwidth), (Some(1_250_000), None));
        assert_eq!((forth.queue, back.queue), (65_536, usize::MAX));
        assert_eq!((forth.loss, back.loss), (0.0, 0.005));
        assert_eq!(plan.seed, 9);
    }

    #[test]
    fn a_black_hole_swallows_ip_packets_of_more_than_its_size() {
        let plan = link("a b --mtu-black-hole 1300 --garble 0.25");
        assert_eq!(plan.ways[0].frame_max, 1314);
        assert_eq!(plan.ways[1].garble, 0.25);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "a",
            "a b c",
            "a b --loss 101%",
            "a b --loss -1",
            "a b --loss few",
            "a b --delay 3",
            "a b --rate 0mbit",
            "a b --rate 99999999999999999999gbit",
            "a b --queue 1Q",
            "a b --luck 3",
            "a b --delay",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn plain_takes_any_number_of_interfaces() {
        assert_eq!(
            read("--plain x y z"),
            Ok(Task::Plain(vec!["x".into(), "y".into(), "z".into()]))
        );
        assert_eq!(read("a --help"), Ok(Task::Help));
    }
}
