//! Receives everything that was ever sent here and not received.
//!
//! ```text
//!   a peer that is called: something unexpected, so that the other node has a peer to post to
//!   each peer, each tag:   receive --- a message came ---> receive once more
//!                                  `-- the session is lost: of a caller, over; else from the start
//! ```
//!
//! Messages that are never received take room for unexpected messages, until a peer may send no more. And
//! one that has waited for long must be as it was.
//!
//! Owns: the receives for this. The caller decides when it is over, and cancels the remaining
//! operations.

use super::operations::Operations;
use bmi_mx_torture::program::UNEXPECTED_TAG;
use bmi_mx_torture::{Peer, Side, Verb};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The peers, and what waits of each.
#[derive(Debug)]
pub(crate) struct Drain {
    nodes: Vec<usize>,
    tags: i32,
    len: usize,
    /// Peers with which the drain has begun.
    peers: BTreeSet<Peer>,
    waiting: HashMap<u64, Next>,
    /// To be posted when it is time.
    later: Vec<(Instant, Next)>,
}

/// A receive.
#[derive(Clone, Copy, Debug)]
struct Next {
    peer: Peer,
    tag: i32,
    /// The message is the first one, or the one before it has failed: a session may begin with it.
    begins: bool,
}

impl Drain {
    /// Begins with all that have called, with these nodes, with tags below `tags` and messages of at most `len` bytes.
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

    /// Goes on.
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
            // The other node's host learns of a session by something unexpected.
            if begins && tag == 0 && peer.side == Side::Called {
                operations.post(Verb::SendUnexpected, with, UNEXPECTED_TAG, 40, 1)?;
            }
        }
        Ok(())
    }
}

/// After an error.
const PAUSE: Duration = Duration::from_millis(20);
