//! Receives everything that was sent to this node and not received.
//!
//! ```text
//!   a called peer:         an unexpected message, so that the other node has a peer to post to
//!   each peer, each tag:   receive --- a message came ---> receive again
//!                                  `-- the session is lost: a caller's: done; otherwise from the start
//! ```
//!
//! Unreceived messages use memory for unexpected messages, until a peer may send no more. Also, a
//! message must be unchanged after a long wait.
//!
//! Owns: the receives for this. The caller decides when to stop, and cancels the remaining
//! operations.

use super::operations::Operations;
use bmi_mx_torture::program::UNEXPECTED_TAG;
use bmi_mx_torture::{Peer, Side, Verb};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Peers, and the receives posted for each.
#[derive(Debug)]
pub(crate) struct Drain {
    nodes: Vec<usize>,
    tags: i32,
    len: usize,
    /// Peers with which the drain has begun.
    peers: BTreeSet<Peer>,
    waiting: HashMap<u64, Next>,
    /// Receives to post later.
    later: Vec<(Instant, Next)>,
}

/// Next receive of a peer.
#[derive(Clone, Copy, Debug)]
struct Next {
    peer: Peer,
    tag: i32,
    /// Whether it is the first one, or follows a failed one: a session may begin with it.
    begins: bool,
}

impl Drain {
    /// Begins with all callers, with these nodes, with tags below `tags` and messages of at most
    /// `len` bytes.
    pub(crate) fn begin(nodes: &[usize], tags: i32, len: usize) -> Self {
        Self {
            nodes: nodes.to_vec(),
            tags,
            len,
            peers: BTreeSet::new(),
            waiting: HashMap::new(),
            later: Vec::new(),
        }
    }

    /// Continues the drain.
    pub(crate) fn step(
        &mut self,
        operations: &mut Operations,
        over: &[(u64, i32)],
    ) -> Result<(), String> {
        let now = Instant::now();
        for (label, error) in over {
            if let Some(next) = self.waiting.remove(label) {
                let begins = *error != 0;
                let pause = if begins { PAUSE } else { Duration::ZERO };
                self.later.push((now + pause, Next { begins, ..next }));
            }
        }
        for peer in operations.peers.all() {
            let wanted = peer.side == Side::Caller || self.nodes.contains(&peer.node);
            if wanted && self.peers.insert(peer) {
                let begins = true;
                let first = |tag| (now, Next { peer, tag, begins });
                self.later.extend((0..self.tags).map(first));
            }
        }
        for (then, next) in std::mem::take(&mut self.later) {
            if then > now {
                self.later.push((then, next));
                continue;
            }
            let Next { peer, tag, begins } = next;
            let Some(with) = operations.peer(&peer) else {
                continue;
            };
            match operations.post(Verb::Recv, with, tag, self.len, 1)? {
                Some(label) => {
                    self.waiting.insert(label, next);
                }
                None => self.later.push((now + PAUSE, next)),
            }
            // The other node's host learns of a session by an unexpected message.
            if begins && tag == 0 && peer.side == Side::Called {
                operations.post(Verb::SendUnexpected, with, UNEXPECTED_TAG, 40, 1)?;
            }
        }
        Ok(())
    }
}

/// Pause after an error.
const PAUSE: Duration = Duration::from_millis(20);
