//! The command line: the link's properties.
//!
//! ```text
//!   A B  --delay 1ms --loss 1%   --forth --rate 10mbit --queue 64K   --back --loss 0
//!        both directions         only from A to B                    only from B to A
//! ```
//!
//! Owns: the command line.
//! Out of scope: interfaces.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use mx_sim::Faults;
use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

/// Bytes of a frame before its IP packet.
const ETHERNET_HEADER: usize = 14;

/// Task of the program.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Task {
    /// Switch the offloads of these interfaces off, and nothing else.
    Plain(Vec<String>),
    /// Act as the link between two interfaces.
    Link(Box<Plan>),
}

/// A link between two interfaces.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    pub(crate) ends: [String; 2],
    /// Directions: from the first to the second interface, and back.
    pub(crate) ways: [Way; 2],
    pub(crate) seed: u64,
}

/// A direction of the link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Way {
    pub(crate) faults: Faults,
    pub(crate) garble: f64,
    /// Largest frame that gets through, in bytes.
    pub(crate) frame_max: usize,
}

impl Default for Way {
    /// Returns a perfect cable.
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

const ABOUT: &str = "\
Forwards every Ethernet frame between the interfaces A and B and does to it what bad links do. Says
'ready' when it does, ends when its standard input ends, and says then what became of the frames.
Needs root (CAP_NET_RAW, CAP_NET_ADMIN). Options behind --forth are for the direction from A to B
only, those behind --back for the other.

--plain switches interfaces' checksum and segmentation offloads off, so that what crosses them are the
frames of a cable. Do so at the hosts' ends of veth pairs.";

/// Options before or behind `--forth` and `--back`.
#[derive(Clone, Parser)]
#[command(
    about = ABOUT,
    override_usage = "mx_shaper A B [OPTIONS] [--forth OPTIONS] [--back OPTIONS]\n       \
                      mx_shaper --plain INTERFACE..."
)]
struct Args {
    /// The interfaces
    #[arg(value_name = "INTERFACE")]
    names: Vec<String>,
    /// Switch the interfaces' offloads off, and exit
    #[arg(long)]
    plain: bool,
    /// Delay of every frame (us, ms, s)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<Duration>,
    /// Additional random delay, at most: later frames overtake earlier ones
    #[arg(long, value_name = "TIME", value_parser = duration)]
    jitter: Option<Duration>,
    /// Frames that are lost: 1% or 0.01
    #[arg(long, value_name = "CHANCE", value_parser = probability)]
    loss: Option<f64>,
    /// Frames that arrive twice
    #[arg(long, value_name = "CHANCE", value_parser = probability)]
    duplicate: Option<f64>,
    /// Frames that are delayed, so that later ones overtake them
    #[arg(long, value_name = "CHANCE", value_parser = probability)]
    reorder: Option<f64>,
    /// Frames with a flipped bit
    #[arg(long, value_name = "CHANCE", value_parser = probability)]
    corrupt: Option<f64>,
    /// UDP datagrams with two words exchanged, which their checksum does not detect
    #[arg(long, value_name = "CHANCE", value_parser = probability)]
    garble: Option<f64>,
    /// Bit rate of the link (kbit, mbit, gbit; a frame counts from its addresses on)
    #[arg(long, value_parser = rate)]
    rate: Option<u64>,
    /// Bytes that may wait for the link; further frames are dropped (K, M)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    queue: Option<usize>,
    /// IP packets above this size are dropped, without an error to the sender
    #[arg(long, value_name = "SIZE", value_parser = size)]
    mtu_black_hole: Option<usize>,
    /// Seed of the random numbers
    #[arg(long)]
    seed: Option<u64>,
}

impl Args {
    fn way(&self) -> Way {
        let cable = Way::default();
        let faults = Faults {
            latency: self.delay.unwrap_or_default(),
            jitter: self.jitter.unwrap_or_default(),
            loss: self.loss.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default(),
            reorder: self.reorder.unwrap_or_default(),
            corrupt: self.corrupt.unwrap_or_default(),
            bandwidth: self.rate,
            queue: self.queue.unwrap_or(cable.faults.queue),
        };
        Way {
            faults,
            garble: self.garble.unwrap_or_default(),
            frame_max: self
                .mtu_black_hole
                .map_or(cable.frame_max, |ip| ip.saturating_add(ETHERNET_HEADER)),
        }
    }
}

/// Parses a command line: the options before `--forth` and `--back`, and then for each of them the
/// changes in one direction.
pub(crate) fn read(words: &[OsString]) -> Result<Task, clap::Error> {
    let turns = |word: &OsString| word == "--forth" || word == "--back";
    let mut parts = words.split(turns);
    let both = Args::try_parse_from(parts.next().unwrap_or_default())?;
    let (mut directions, mut seed) = ([both.clone(), both.clone()], both.seed);
    for (turn, part) in words.iter().filter(|word| turns(word)).zip(parts) {
        let one = &mut directions[usize::from(turn == "--back")];
        one.try_update_from(std::iter::once(&words[0]).chain(part))?;
        seed = one.seed.or(seed);
    }
    if both.plain {
        return Ok(Task::Plain(both.names));
    }
    let ends = both.names.try_into().map_err(|_| {
        let why = "a link has two ends: name two interfaces";
        Args::command().error(ErrorKind::WrongNumberOfValues, why)
    })?;
    Ok(Task::Link(Box::new(Plan {
        ends,
        ways: directions.map(|one| one.way()),
        seed: seed.unwrap_or(1),
    })))
}

/// Parses a number and the unit behind it.
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

/// Parses a probability: `0.01` or `1%`.
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

/// Parses bits per second into bytes per second.
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
        let words = std::iter::once("mx_shaper").chain(line.split_whitespace());
        let words: Vec<OsString> = words.map(OsString::from).collect();
        super::read(&words).map_err(|error| error.to_string())
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
        assert!(
            read("a --help")
                .unwrap_err()
                .contains("Usage: mx_shaper A B")
        );
    }
}
