//! Receives everything that was ever sent here and not received.
//!
//! ```text
//!   for each node that lives, each tag:   receive --- a message came ---> receive once more
//! ```
//!
//! Messages that are never received take room for early messages, until a peer may send no more. And
//! one that has waited for long must be as it was.
//!
//! Owns: the receives for this. The caller decides when it is over, and cancels the remaining
//! operations.

use super::operations::Operations;
use bmi_mx_torture::Verb;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The streams, and what waits in each.
#[derive(Debug)]
pub(crate) struct Drain {
    len: usize,
    /// By the receive's label: whom from, which tag.
    waiting: HashMap<u64, (usize, i32)>,
    /// To be posted again.
    later: Vec<(Instant, usize, i32)>,
}

impl Drain {
    /// Begins with all of these nodes, tags below `tags`, and messages of at most `len` bytes.
    pub(crate) fn begin(nodes: &[usize], tags: i32, len: usize) -> Self {
        let now = Instant::now();
        let streams = nodes
            .iter()
            .flat_map(|node| (0..tags).map(|tag| (now, *node, tag)));
        Self {
            len,
            waiting: HashMap::new(),
            later: streams.collect(),
        }
    }

    /// Goes on.
    pub(crate) fn step(
        &mut self,
        operations: &mut Operations,
        over: &[(u64, i32)],
    ) -> Result<(), String> {
        let now = Instant::now();
        for (label, error) in over {
            if let Some((node, tag)) = self.waiting.remove(label) {
                let pause = if *error == 0 { Duration::ZERO } else { PAUSE };
                self.later.push((now + pause, node, tag));
            }
        }
        for (then, node, tag) in std::mem::take(&mut self.later) {
            if then > now {
                self.later.push((then, node, tag));
                continue;
            }
            match operations.post(Verb::Recv, node, tag, self.len, 1)? {
                Some(label) => {
                    self.waiting.insert(label, (node, tag));
                }
                None => self.later.push((now + PAUSE, node, tag)),
            }
        }
        Ok(())
    }
}

/// After an error.
const PAUSE: Duration = Duration::from_millis(20);
