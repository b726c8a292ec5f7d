//! Remotes as tools show them.
//!
//! ```text
//!   place 0 .. view_places --> Remote --> RemoteView     copies of a few words, no list is walked
//! ```

use super::Endpoint;
use crate::ids::{EndpointId, LinkId, NicId};
use crate::ops::{List, ListKind};
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{Remote, RemoteState, Tx};
use crate::time::Clock;
use std::time::Duration;

/// A remote at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteView {
    /// The interface it goes under.
    pub nic: NicId,
    /// Its number.
    pub endpoint: EndpointId,
    /// The state of the association.
    pub phase: Phase,
    /// The link that messages take.
    pub link: Option<LinkId>,
    /// Operations with it that have not completed.
    pub operations: u32,
    /// Sends of which nothing has gone yet.
    pub queued: u32,
    /// Differs as soon as the operation that has been under way the longest is another one. 0: there is none.
    pub oldest: u64,
    /// Credits that it lends us and that are not in use.
    pub credits: u32,
    /// The longest time that a message that goes with its data has waited for its link or for credits, since the
    /// peer was connected.
    pub longest_wait: Duration,
}

/// The state of the association with a remote, and the obstacle to its sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// The remote has not answered our call.
    Connecting = 1,
    /// Messages can go.
    Connected = 2,
    /// Its link takes nothing at present.
    LinkFull = 3,
    /// The remote lends too few credits for the first send.
    NoCredits = 4,
}

impl Phase {
    /// The inverse of `as u8`.
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
    /// The end of the places that [`Self::view_at`] has remotes at.
    pub fn view_places(&self) -> u32 {
        self.remotes.places_end()
    }

    /// The remote at that place. `None`: there is none, or only the name of one that has gone.
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

    /// The links that carry the data of large messages to the remote at that place, beside that of its view.
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
