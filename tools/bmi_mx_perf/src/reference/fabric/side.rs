//! One of the two processes that libfabric is measured between.
//!
//! | is told                   | does                                     | says           |
//! |---------------------------|------------------------------------------|----------------|
//! | (starts)                  | opens an endpoint                        | address, name  |
//! | peer ADDRESS              | exchanges a first message with it        | ready          |
//! | latency SIZE GROUPS GROUP | ping-pong, as `fi_rdm_tagged_pingpong`   | times          |
//! | stream SIZE COUNT         | windows, as `fi_rdm_tagged_bw`           | messages/s     |
//!
//! Commands come line by line on standard input; its end is the end. Between two commands the
//! process sleeps, so that it takes nothing from the method measured meanwhile.

use super::endpoint::Endpoint;
use super::{BUFFERS, WINDOW, from_hex, to_hex};
use libfabric_sys::Library;
use std::io::{BufRead, Write};
use std::time::Instant;

/// Serves until standard input ends. The second side answers what the first one begins.
pub(crate) fn serve(second: bool, provider: Option<&str>) -> Result<(), String> {
    // Told to whoever started this, who knows what to make of it.
    let opened = Library::get()
        .map_err(|error| error.to_string())
        .and_then(|library| Endpoint::open(library, provider));
    let mut endpoint = match opened {
        Ok(endpoint) => endpoint,
        Err(why) => return say(&format!("error {}", why.replace('\n', " "))),
    };
    say(&format!(
        "address {} {}",
        to_hex(&endpoint.address()?),
        endpoint.provider()
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
                match second {
                    true => answer(&mut endpoint, size, (groups + 1) * group)?,
                    false => ask(&mut endpoint, size, groups, group)?,
                }
            }
            Some(&"stream") => match second {
                true => sink(&mut endpoint, number(1)?, number(2)?)?,
                false => source(&mut endpoint, number(1)?, number(2)?)?,
            },
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

/// One message there and back: the providers connect with the first.
fn greet(endpoint: &mut Endpoint, second: bool) -> Result<(), String> {
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

/// Half round trips in microseconds, one value per group; one more group goes first.
fn ask(
    endpoint: &mut Endpoint,
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

/// The other side: sends back what came, from the buffer it came into, while the next receive
/// waits in the other.
fn answer(endpoint: &mut Endpoint, size: usize, rounds: usize) -> Result<String, String> {
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

/// Sends `count` messages a window at a time; messages per second until the last is acknowledged.
/// The last buffer is for the acknowledgements.
fn source(endpoint: &mut Endpoint, size: usize, count: usize) -> Result<String, String> {
    endpoint.make_buffers(2, size)?;
    endpoint.recv(1)?;
    // The other side has posted its first window.
    endpoint.wait(1, 0)?;
    let start = Instant::now();
    let mut sent = 0;
    while sent < count {
        let window = WINDOW.min(count - sent);
        endpoint.recv(1)?;
        let mut pending = 0;
        for _ in 0..window {
            pending += endpoint.send(0)?;
        }
        endpoint.wait(1, pending)?;
        sent += window;
    }
    Ok((count as f64 / start.elapsed().as_secs_f64()).to_string())
}

/// The other side: acknowledges each window, with the next already posted. An acknowledgement is a
/// message of no bytes.
fn sink(endpoint: &mut Endpoint, size: usize, count: usize) -> Result<String, String> {
    endpoint.make_buffers(BUFFERS, size)?;
    endpoint.add_empty_buffer();
    let mut posted = 0;
    let mut done = 0;
    let mut post = |endpoint: &mut Endpoint| {
        let window = WINDOW.min(count - posted);
        for n in posted..posted + window {
            endpoint.recv(n % BUFFERS)?;
        }
        posted += window;
        Ok::<usize, String>(window)
    };
    let mut window = post(endpoint)?;
    let mut pending = endpoint.send(BUFFERS)?;
    while done < count {
        endpoint.wait(window, pending)?;
        done += window;
        window = post(endpoint)?;
        pending = endpoint.send(BUFFERS)?;
    }
    endpoint.wait(0, pending)?;
    Ok("done".into())
}
