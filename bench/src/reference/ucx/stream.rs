//! A stream as in `ucx_perftest`'s `tag_bw`, with as many messages under way as the method has.
//!
//! ```text
//!   source   <------------------- first receives posted   sink
//!            64 sends under way   ------------------->    64 receives posted
//!            <------------------- all received
//! ```

use super::endpoint::Endpoint;
use crate::reference::sides::{BUFFERS, Tagged, Timeout, WINDOW};
use std::time::Instant;

/// Sends `count` messages; returns messages per second until the other side has received them all.
pub(super) fn source(endpoint: &mut Endpoint, size: usize, count: usize) -> Result<f64, String> {
    endpoint.make_buffers(2, size)?;
    endpoint.recv(1)?;
    endpoint.wait(1, 0)?;
    endpoint.recv(1)?;
    let start = Instant::now();
    let mut pending = 0;
    let mut timeout = Timeout::default();
    for _ in 0..count {
        pending += endpoint.send(0)?;
        while pending > WINDOW {
            endpoint.poll()?;
            match endpoint.take_sent() {
                0 => timeout.try_again(super::NAME)?,
                some => {
                    pending -= some;
                    timeout = Timeout::default();
                }
            }
        }
    }
    endpoint.wait(1, pending)?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Receives what `source` sends.
pub(super) fn sink(endpoint: &mut Endpoint, size: usize, count: usize) -> Result<(), String> {
    endpoint.make_buffers(BUFFERS + 1, size)?;
    let post = |endpoint: &mut Endpoint, posted: &mut usize, done: usize| {
        while *posted < count && *posted - done < WINDOW {
            endpoint.recv(*posted % BUFFERS)?;
            *posted += 1;
        }
        Ok::<(), String>(())
    };
    let (mut posted, mut done) = (0, 0);
    post(endpoint, &mut posted, done)?;
    let sends = endpoint.send(BUFFERS)?;
    endpoint.wait(0, sends)?;
    let mut timeout = Timeout::default();
    while done < count {
        endpoint.poll()?;
        match endpoint.take_received() {
            0 => timeout.try_again(super::NAME)?,
            some => {
                done += some;
                timeout = Timeout::default();
                post(endpoint, &mut posted, done)?;
            }
        }
    }
    let sends = endpoint.send(BUFFERS)?;
    endpoint.wait(0, sends)
}
