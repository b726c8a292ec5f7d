//! State of the data links of one session.
//!
//! ```text
//!   DataLinkSet --> DataLink, DataLink, ...      by number: 1, 2, 3, ... in the order in which they were begun
//!                      `- stage, room        Open ones carry parts of large messages
//! ```
//!
//! Owns: the session's current data links, and the history that decides when the next one is dialled.
//! Cost: a session without data links holds one empty pointer.

use crate::ids::LinkId;
use crate::remote::Tx;
use crate::time::Instant;
use smallvec::SmallVec;
use std::time::Duration;

/// Data links of a session, and the history of its earlier ones.
#[derive(Debug)]
pub(crate) struct DataLinkSet {
    /// Links, in the order in which they were begun.
    pub(crate) links: SmallVec<[DataLink; 1]>,
    /// Number of the last link begun; 0: none so far.
    pub(crate) last: u32,
    /// Maximum number of links at a time: the smaller limit of both sides, once the first answer has carried the
    /// peer's; 1 before.
    pub(crate) most: usize,
    /// Number of consecutive failed links.
    pub(crate) failures: u32,
    /// Earliest time to dial the next link.
    pub(crate) again_at: Instant,
    /// Whether a timer is set for the next check of the links.
    pub(crate) watched: bool,
}

#[derive(Debug)]
pub(crate) struct DataLink {
    pub(crate) number: u32,
    pub(crate) tx: Tx,
    pub(crate) stage: Stage,
    /// Checks since the link opened.
    pub(crate) looks: u32,
    /// Checks since bytes last came or went.
    pub(crate) unused: u32,
    /// Consecutive checks without a byte of the data awaited, or without the peer's answer.
    pub(crate) stalled: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Waiting for the port to connect the link.
    Dialled,
    /// Attach sent; waiting for the answer.
    Asked,
    /// Carrying data: both sides have proven that the link belongs to the session.
    Open,
}

impl DataLinkSet {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            links: SmallVec::new(),
            last: 0,
            most: 1,
            failures: 0,
            again_at: now,
            watched: false,
        }
    }

    /// Adds a link and records its number as the last one.
    pub(crate) fn add(&mut self, link: LinkId, number: u32, stage: Stage) {
        self.last = number;
        self.links.push(DataLink {
            number,
            tx: Tx::Open(link),
            stage,
            looks: 0,
            unused: 0,
            stalled: 0,
        });
    }

    pub(crate) fn of(&mut self, number: u32) -> Option<&mut DataLink> {
        self.links.iter_mut().find(|of| of.number == number)
    }

    /// Returns the link that the port calls `link`.
    pub(crate) fn by_link(&mut self, link: LinkId) -> Option<&mut DataLink> {
        self.links.iter_mut().find(|of| of.tx.link() == link)
    }

    pub(crate) fn take(&mut self, number: u32) -> Option<DataLink> {
        let nth = self.links.iter().position(|of| of.number == number)?;
        Some(self.links.remove(nth))
    }

    /// Records that a link has failed. The next one is dialled at once after the first failure in a row, and after
    /// growing pauses from the second on. A row ends when the session has worked for a while without another failure.
    pub(crate) fn fail(&mut self, now: Instant) {
        self.failures += 1;
        let pause = match self.failures {
            1 => Duration::ZERO,
            more => Duration::from_secs(1 << (more - 2).min(6)),
        };
        self.again_at = now.after(pause);
    }
}
