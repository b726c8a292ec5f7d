//! Orders to a crowd and its answers, a line each.
//!
//! | order                             | answer                                        |
//! |-----------------------------------|-----------------------------------------------|
//! | `open N`                          | `done=` endpoints opened, `why=` there are no more |
//! | `connect FIRST COUNT`             | `done=` connected, `times=` of each            |
//! | `ask FIRST COUNT MS spin`/`sleep` | `done=` round trips, `times=`                  |
//! | `flood FIRST COUNT MS`            | `done=` unexpected messages sent               |
//! | `census`                          | a census                                       |
//! | `quit`                            | none                                           |
//!
//! Every answer of work has `failed=` operations that ended with an error, and `us=` the time for all
//! of it.
//!
//! Owns: the text.

use bmi_host::histogram::Histogram;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Clients of one crowd, by their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// The first of them.
    pub first: usize,
    /// Their number.
    pub count: usize,
}

/// An order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Open so many endpoints more.
    Open(usize),
    /// Connect to the server, all at once, and wait for the answer to a first request each.
    Connect(Who),
    /// Send requests of 8 bytes and wait for the answers, one at a time each, for so long.
    Ask {
        /// The clients.
        who: Who,
        /// For how long.
        time: Duration,
        /// Poll instead of sleeping; for one or a few.
        spin: bool,
    },
    /// Send unexpected messages of 8 bytes without answers, as fast as they go, for so long.
    Flood {
        /// The clients.
        who: Who,
        /// For how long.
        time: Duration,
    },
    /// Say what the process uses.
    Census,
    /// End.
    Quit,
}

/// The result of an order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Endpoints, connections, round trips or messages that were made.
    pub done: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// The time for all of it.
    pub time: Duration,
    /// The time for each.
    pub times: Histogram,
    /// Why there was not more, in words; empty: there was.
    pub why: String,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(count) => write!(f, "open {count}"),
            Self::Connect(Who { first, count }) => write!(f, "connect {first} {count}"),
            Self::Ask { who, time, spin } => {
                let (ms, how) = (time.as_millis(), if *spin { "spin" } else { "sleep" });
                write!(f, "ask {} {} {ms} {how}", who.first, who.count)
            }
            Self::Flood { who, time } => {
                write!(f, "flood {} {} {}", who.first, who.count, time.as_millis())
            }
            Self::Census => f.write_str("census"),
            Self::Quit => f.write_str("quit"),
        }
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let bad = || format!("'{}' is no order", line.trim_end());
        let number = |word: &str| word.parse::<usize>().map_err(|_| bad());
        let some = |first: &str, count: &str| {
            Ok::<_, String>(Who {
                first: number(first)?,
                count: number(count)?,
            })
        };
        let time = |ms: &str| Ok::<_, String>(Duration::from_millis(number(ms)? as u64));
        Ok(match words[..] {
            ["open", count] => Self::Open(number(count)?),
            ["connect", first, count] => Self::Connect(some(first, count)?),
            ["ask", first, count, ms, how @ ("spin" | "sleep")] => Self::Ask {
                who: some(first, count)?,
                time: time(ms)?,
                spin: how == "spin",
            },
            ["flood", first, count, ms] => Self::Flood {
                who: some(first, count)?,
                time: time(ms)?,
            },
            ["census"] => Self::Census,
            ["quit"] => Self::Quit,
            _ => return Err(bad()),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            done,
            failed,
            time,
            times,
            why,
        } = self;
        let us = time.as_micros();
        write!(
            f,
            "done={done} failed={failed} us={us} times={times} why={why}"
        )
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let line = line.trim_end();
        let bad = || format!("'{line}' is no outcome");
        let (words, why) = line.split_once(" why=").ok_or_else(bad)?;
        let mut words = words.split_ascii_whitespace();
        let mut word = |name: &str| {
            let word = words.next().and_then(|word| word.strip_prefix(name));
            word.and_then(|word| word.strip_prefix('=')).ok_or_else(bad)
        };
        let number = |word: &str| word.parse::<u64>().map_err(|_| bad());
        Ok(Self {
            done: number(word("done")?)?,
            failed: number(word("failed")?)?,
            time: Duration::from_micros(number(word("us")?)?),
            times: word("times")?.parse()?,
            why: why.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_outcomes_survive_being_told() {
        let who = Who { first: 3, count: 9 };
        let time = Duration::from_millis(250);
        for order in [
            Order::Open(5),
            Order::Connect(who),
            Order::Ask {
                who,
                time,
                spin: true,
            },
            Order::Ask {
                who,
                time,
                spin: false,
            },
            Order::Flood { who, time },
            Order::Census,
            Order::Quit,
        ] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for bad in ["", "open", "open x", "ask 1 2 3 4", "flood 1 2", "quit now"] {
            assert!(bad.parse::<Order>().is_err(), "{bad}");
        }
        let mut outcome = Outcome {
            done: 1,
            failed: 2,
            time,
            why: "no more = none left".into(),
            ..Outcome::default()
        };
        outcome.times.record(time);
        assert_eq!(outcome.to_string().parse(), Ok(outcome));
        assert!("done=1".parse::<Outcome>().is_err());
    }
}
