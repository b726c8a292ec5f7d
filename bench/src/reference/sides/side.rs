//! Process of the two between which a library is measured.
//!
//! | command                   | action                                   | answer         |
//! |---------------------------|------------------------------------------|----------------|
//! | (starts)                  | opens an endpoint                        | address, name  |
//! | peer ADDRESS              | exchanges a first message with the peer  | ready          |
//! | latency SIZE GROUPS GROUP | ping-pong, receive posted first          | times          |
//! | stream SIZE COUNT         | streams as the library's own program     | messages/s     |
//!
//! Commands come line by line on standard input; the process ends with its input. Between two
//! commands it sleeps, so that it takes nothing from the method measured meanwhile.

use super::{from_hex, to_hex};
use std::io::{BufRead, Write};
use std::time::Instant;

/// An endpoint of a library with tagged messages, and one peer.
pub(crate) trait Tagged {
    /// Returns the library's name of the transport, a blank, and its version.
    fn name(&self) -> &str;

    fn address(&self) -> Result<Vec<u8>, String>;

    /// Sets the address of the other side.
    fn connect(&mut self, address: &[u8]) -> Result<(), String>;

    /// Replaces the buffers by `count` buffers of `size` bytes. Nothing is under way.
    fn make_buffers(&mut self, count: usize, size: usize) -> Result<(), String>;

    /// Posts a receive into a buffer.
    fn recv(&mut self, buffer: usize) -> Result<(), String>;

    /// Sends a buffer; returns the number of completions to expect.
    fn send(&mut self, buffer: usize) -> Result<usize, String>;

    /// Waits for that many receives and sends.
    fn wait(&mut self, receives: usize, sends: usize) -> Result<(), String>;

    /// Sends `count` messages; returns messages per second until the other side has received them
    /// all.
    fn source(&mut self, size: usize, count: usize) -> Result<f64, String>;

    /// Receives what `source` sends.
    fn sink(&mut self, size: usize, count: usize) -> Result<(), String>;
}

/// Serves until standard input ends. The second side answers what the first one begins. If opening
/// failed, the error is reported to the parent, which handles it.
pub(crate) fn serve<E: Tagged>(second: bool, opened: Result<E, String>) -> Result<(), String> {
    let mut endpoint = match opened {
        Ok(endpoint) => endpoint,
        Err(why) => return say(&format!("error {}", why.replace('\n', " "))),
    };
    say(&format!(
        "address {} {}",
        to_hex(&endpoint.address()?),
        endpoint.name()
    ))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| -> Result<usize, String> {
            let word = words.get(at).copied().unwrap_or_default();
            word.parse().map_err(|_| format!("not understood: {line}"))
        };
        let answer = match words.first() {
            Some(&"peer") => {
                let address = words.get(1).and_then(|word| from_hex(word));
                endpoint.connect(&address.ok_or("a peer without address")?)?;
                greet(&mut endpoint, second)?;
                "ready".to_owned()
            }
            Some(&"latency") => {
                let (size, groups, group) = (number(1)?, number(2)?, number(3)?);
                if second {
                    answer(&mut endpoint, size, (groups + 1) * group)?
                } else {
                    ask(&mut endpoint, size, groups, group)?
                }
            }
            Some(&"stream") => {
                if second {
                    endpoint.sink(number(1)?, number(2)?)?;
                    "done".to_owned()
                } else {
                    endpoint.source(number(1)?, number(2)?)?.to_string()
                }
            }
            _ => return Err(format!("not understood: {line}")),
        };
        say(&answer)?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| error.to_string())
}

/// Exchanges a first message: libraries connect with it.
fn greet(endpoint: &mut impl Tagged, second: bool) -> Result<(), String> {
    endpoint.make_buffers(2, 1)?;
    endpoint.recv(0)?;
    if second {
        endpoint.wait(1, 0)?;
        let pending = endpoint.send(1)?;
        endpoint.wait(0, pending)
    } else {
        let pending = endpoint.send(1)?;
        endpoint.wait(1, pending)
    }
}

/// Measures half round trips in microseconds, one value per group; one more group comes first.
fn ask(
    endpoint: &mut impl Tagged,
    size: usize,
    groups: usize,
    group: usize,
) -> Result<String, String> {
    endpoint.make_buffers(2, size)?;
    let mut times = Vec::with_capacity(groups);
    for n in 0..=groups {
        let start = Instant::now();
        for _ in 0..group {
            endpoint.recv(1)?;
            let pending = endpoint.send(0)?;
            endpoint.wait(1, pending)?;
        }
        if n > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e6 / (2 * group) as f64);
        }
    }
    let times: Vec<String> = times.iter().map(f64::to_string).collect();
    Ok(times.join(" "))
}

/// The other side: returns each message from the buffer that received it, while the next receive is
/// posted in the other.
fn answer(endpoint: &mut impl Tagged, size: usize, rounds: usize) -> Result<String, String> {
    endpoint.make_buffers(2, size)?;
    endpoint.recv(0)?;
    let mut pending = 0;
    for round in 0..rounds {
        endpoint.wait(1, pending)?;
        let arrived = round % 2;
        if round + 1 < rounds {
            endpoint.recv(1 - arrived)?;
        }
        pending = endpoint.send(arrived)?;
    }
    endpoint.wait(0, pending)?;
    Ok("done".into())
}
