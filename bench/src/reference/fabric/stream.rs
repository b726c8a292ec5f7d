//! A stream as in `fi_rdm_tagged_bw`: windows, each acknowledged before the next.
//!
//! ```text
//!   source   64 messages ------------------->  sink
//!            <------------- acknowledgement    the next 64 receives are posted
//! ```

use super::endpoint::Endpoint;
use crate::reference::sides::{BUFFERS, Tagged, WINDOW};
use std::time::Instant;

/// Sends `count` messages, a window at a time. Returns messages per second until the last one is
/// acknowledged. The last buffer is for acknowledgements.
pub(super) fn source(endpoint: &mut Endpoint, size: usize, count: usize) -> Result<f64, String> {
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
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// The other side: acknowledges each window, with the next already posted. An acknowledgement is an
/// empty message.
pub(super) fn sink(endpoint: &mut Endpoint, size: usize, count: usize) -> Result<(), String> {
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
    endpoint.wait(0, pending)
}
