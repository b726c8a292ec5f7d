//! The data links of one session: their state, without what leads to it.
//!
//! ```text
//!   DataLinkSet --> DataLink, DataLink, ...      by number: 1, 2, 3, ... in the order in which they were begun
//!                      `- stage, room        Open ones carry parts of large messages
//! ```
//!
//! Owns: the links that a session has now, and the history that decides when the next one is dialled.
//! Cost: a session without data links holds one empty pointer.

use crate::ids::LinkId;
use crate::remote::Tx;
use crate::time::Instant;
use smallvec::SmallVec;
use std::time::Duration;

/// The data links of a session, and what is known of its last ones.
#[derive(Debug)]
pub(crate) struct DataLinkSet {
    /// The links, in the order in which they were begun.
    pub(crate) links: SmallVec<[DataLink; 1]>,
    /// Number of the last one; 0: there has been none.
    pub(crate) last: u32,
    /// Limit of links at a time, the smaller one of both sides, once the first answer has told that of the peer; 1 before.
    pub(crate) most: usize,
    /// Links that have failed one after the other.
    pub(crate) failures: u32,
    /// The time before which none is dialled.
    pub(crate) again_at: Instant,
    /// A timer is set for the next look at the links.
    pub(crate) watched: bool,
}

/// A data link of the session.
#[derive(Debug)]
pub(crate) struct DataLink {
    pub(crate) number: u32,
    pub(crate) tx: Tx,
    pub(crate) stage: Stage,
    /// Looks since it opened.
    pub(crate) looks: u32,
    /// Looks since bytes last came or went.
    pub(crate) unused: u32,
    /// Looks since bytes last came, while some were awaited.
    pub(crate) stalled: u32,
}

/// The state of a data link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The port has not connected it yet.
    Dialled,
    /// Its Attach has gone.
    Asked,
    /// Data goes over the link: both sides have proven that it is the session's.
    Open,
}

impl DataLinkSet {
    /// No link yet.
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

    /// Adds a link, whose number is the last one from now on.
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

    /// The link of a number.
    pub(crate) fn of(&mut self, number: u32) -> Option<&mut DataLink> {
        self.links.iter_mut().find(|of| of.number == number)
    }

    /// The link that the port calls `link`.
    pub(crate) fn by_link(&mut self, link: LinkId) -> Option<&mut DataLink> {
        self.links.iter_mut().find(|of| of.tx.link() == link)
    }

    /// Takes the link of a number out.
    pub(crate) fn take(&mut self, number: u32) -> Option<DataLink> {
        let nth = self.links.iter().position(|of| of.number == number)?;
        Some(self.links.remove(nth))
    }

    /// Records that a link has failed: the next one is dialled at once, and after two failures in a row later and later. A
    /// row ends when the session has worked for a while without another one.
    pub(crate) fn fail(&mut self, now: Instant) {
        self.failures += 1;
        let pause = match self.failures {
            1 => Duration::ZERO,
            more => Duration::from_secs(1 << (more - 2).min(6)),
        };
        self.again_at = now.after(pause);
    }
}
