//! A short exchange with every living node, which shows that connections work both ways.
//!
//! ```text
//!   n0, the caller  -- unexpected, PING + attempt ---------> n1
//!                   <--------- expected, REPLY + attempt --
//! ```
//!
//! A link that broke unnoticed costs an attempt, so there are several.
//!
//! Owns: the nodes with which the exchange is not over.

use super::operations::Operations;
use super::peers::Object;
use bmi_mx_torture::Verb;
use std::time::{Duration, Instant};

/// Exchanges of a node.
#[derive(Debug, Default)]
pub(crate) struct Talk {
    with: Vec<Remote>,
    most: u32,
}

#[derive(Debug)]
struct Remote {
    node: usize,
    attempt: u32,
    receive: Option<u64>,
    /// Time of the next attempt.
    next: Instant,
}

impl Talk {
    /// Begins with all of these nodes.
    pub(crate) fn begin(nodes: &[usize]) -> Self {
        let now = Instant::now();
        let remote = |node: &usize| Remote {
            node: *node,
            attempt: 0,
            receive: None,
            next: now,
        };
        Self {
            with: nodes.iter().map(remote).collect(),
            most: 0,
        }
    }

    /// Continues; returns the largest number of attempts once all exchanges are over.
    pub(crate) fn step(
        &mut self,
        operations: &mut Operations,
        over: &[(u64, i32)],
    ) -> Result<Option<u32>, String> {
        let now = Instant::now();
        for at in (0..self.with.len()).rev() {
            let remote = &mut self.with[at];
            let ended = over
                .iter()
                .find(|(label, _)| Some(*label) == remote.receive);
            match ended {
                Some((_, 0)) => {
                    self.most = self.most.max(remote.attempt);
                    self.with.swap_remove(at);
                    continue;
                }
                Some(_) => {
                    remote.receive = None;
                    remote.next = remote.next.min(now + PAUSE);
                }
                None => {}
            }
            if now >= remote.next {
                remote.next = now + TIMEOUT;
                if let Some(label) = remote.receive.take() {
                    operations.cancel(label)?;
                }
                remote.attempt += 1;
                let tag = remote.attempt as i32;
                let with = operations.called(remote.node)?;
                remote.receive = operations.post(Verb::Recv, with, REPLY + tag, 100, 1)?;
                operations.post(Verb::SendUnexpected, with, PING + tag, 60, 1)?;
                if remote.receive.is_none() {
                    remote.next = now + PAUSE;
                }
            }
        }
        Ok(self.with.is_empty().then_some(self.most))
    }

    /// Returns the nodes with which the exchange is not over.
    pub(crate) fn left(&self) -> Vec<usize> {
        self.with.iter().map(|remote| remote.node).collect()
    }
}

/// Answers a message if it belongs to an exchange.
pub(crate) fn answer(operations: &mut Operations, from: Object, tag: i32) -> Result<(), String> {
    let attempt = tag - PING;
    if (1..REPLY - PING).contains(&attempt) {
        operations.post(Verb::Send, from, REPLY + attempt, 80, 1)?;
    }
    Ok(())
}

const PING: i32 = 1 << 24;
const REPLY: i32 = PING + (1 << 16);
/// Longer than any time-out of the library in these programs.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Pause after an error.
const PAUSE: Duration = Duration::from_millis(20);
