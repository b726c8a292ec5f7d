//! Views of remotes, for tools.
//!
//! ```text
//!   slot 0 .. view_places --> Remote --> RemoteView     copies of a few words, no list is walked
//! ```

use super::Endpoint;
use crate::ids::{EndpointId, LinkId, NicId};
use crate::ops::{List, ListKind};
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{Remote, RemoteState, Tx};
use crate::time::Clock;
use std::time::Duration;

/// State of a remote at one moment, for tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteView {
    /// Interface under which the remote is known.
    pub nic: NicId,
    /// Endpoint number of the remote on that interface.
    pub endpoint: EndpointId,
    /// State of the session.
    pub phase: Phase,
    /// Link that carries messages; `None` if there is none now.
    pub link: Option<LinkId>,
    /// Number of operations with the remote that have not completed.
    pub operations: u32,
    /// Number of sends of which nothing has been sent yet.
    pub queued: u32,
    /// Id of the oldest operation in progress, so it changes when that one ends; 0: there is none.
    pub oldest: u64,
    /// Free credits that the remote lends to this endpoint.
    pub credits: u32,
    /// Longest time that an eager message has waited for its link or for credits since the session began.
    pub longest_wait: Duration,
}

/// State of the session with a remote, and the obstacle to its sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// The remote has not answered our call.
    Connecting = 1,
    /// Messages can be sent.
    Connected = 2,
    /// The remote's link has no room at present.
    LinkFull = 3,
    /// The remote lends too few credits for the first send.
    NoCredits = 4,
}

impl Phase {
    /// Returns the phase of a number made with `as u8`; `None` for any other number.
    pub fn from_word(word: u8) -> Option<Self> {
        let all = [
            Self::Connecting,
            Self::Connected,
            Self::LinkFull,
            Self::NoCredits,
        ];
        all.into_iter().find(|phase| *phase as u8 == word)
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Returns the end of the range of slot numbers, from 0 on, at which [`Self::view_at`] may find remotes.
    pub fn view_places(&self) -> u32 {
        self.remotes.places_end()
    }

    /// Returns the state of the remote in a slot. `None`: the slot is empty or holds a tombstone, or the remote has no
    /// link.
    pub fn view_at(&self, place: u32) -> Option<RemoteView> {
        let remotes = &self.remotes;
        let remote = remotes.of(remotes.at(place)?)?;
        let phase = phase(remote)?;
        let queues = remote.queues();
        let first = |list: &List, strand| self.ops.of_list(strand, list).next();
        let oldest = first(&remote.connects, ListKind::State)
            .or_else(|| first(&remote.operations, ListKind::Remote));
        Some(RemoteView {
            nic: remote.name.0,
            endpoint: remote.name.1,
            phase,
            link: remote.tx_link().or(Some(remote.link?.0)),
            operations: (remote.connects.len() + remote.operations.len()) as u32,
            queued: queues.map_or(0, |queues| {
                queues.lanes.iter().map(|lane| lane.len() as u32).sum()
            }),
            oldest: oldest.map_or(0, |id| id.to_word()),
            credits: remote.connected().map_or(0, |met| met.borrows.free()),
            longest_wait: Duration::from_micros(
                remote
                    .connected()
                    .map_or(0, |met| u64::from(met.longest_wait)),
            ),
        })
    }

    /// Returns the data links of the remote in a slot, which carry large messages beside the link in its view; none if
    /// the slot is empty.
    pub fn data_links_at(&self, place: u32) -> impl Iterator<Item = LinkId> {
        let remotes = &self.remotes;
        let remote = remotes.at(place).and_then(|id| remotes.of(id));
        let met = remote.and_then(Remote::connected);
        met.into_iter()
            .flat_map(|met| met.open_links().map(|(_, tx)| tx.link()))
    }
}

fn phase(remote: &Remote) -> Option<Phase> {
    Some(match &remote.state {
        RemoteState::Tombstone { .. } => return None,
        RemoteState::Connecting { .. } => Phase::Connecting,
        RemoteState::Connected(met) if !matches!(met.tx, Tx::Open(_)) => Phase::LinkFull,
        RemoteState::Connected(_) if remote.is_stalled() => Phase::NoCredits,
        RemoteState::Connected(_) => Phase::Connected,
    })
}
