//! One remote endpoint: its session and the links to it.
//!
//! ```text
//!   by id:    table  --> Remote --> Queues, while something waits to go there
//!   by name:  hash of (interface, number) --> id
//! ```
//!
//! Messages go out on one link for the whole session (`tx`), so that they keep their order. A
//! second link exists only when both sides connected at the same time; we listen on both.
//!
//! Knows nothing of: requests' contents, matching, the port. Cost: what a quiet remote takes here
//! is measured in `tests/bounds`.

use crate::event::Identity;
use crate::flow::{Borrower, Lane, Lender};
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, Route, SessionId, Target};
use crate::ops::List;
use crate::origin::Source;
use crate::port::Limits;
use crate::queues::{Control, Queues};
use crate::shares::Shares;
use crate::supply::Claim;
use crate::table::Table;
use crate::timer::TimerId;
use crate::wire::Kind;
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;

/// The address of an endpoint.
pub(crate) type Name = (NicId, EndpointId);

/// A remote endpoint.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Its address. Until it has answered: the one we know it by.
    pub(crate) name: Name,
    /// Our number for this acquaintance: credits count for the pair of it and the peer's.
    pub(crate) epoch: u16,
    /// In whose share of the places it counts.
    pub(crate) source: Source,
    /// The upper layer's word.
    pub(crate) context: u64,
    pub(crate) links: SmallVec<[Link; 1]>,
    /// What we lend it.
    pub(crate) lends: Lender,
    /// What we have lent it first, as our introductions say.
    pub(crate) opening: u32,
    /// What waits to go out; `None` when nothing does, and sometimes an empty set.
    pub(crate) queues: Option<Box<Queues>>,
    /// Connects that wait for an answer.
    pub(crate) connects: List,
    /// All other operations with it, in the order in which they became that.
    pub(crate) kin: List,
    pub(crate) life: Life,
}

/// How far the acquaintance has got.
#[derive(Debug)]
pub(crate) enum Life {
    /// It has neither answered nor called. `over`: the session and number of the peer's that the call was
    /// made to, and that is over.
    Connecting {
        over: Option<(SessionId, u16)>,
    },
    Met(Met),
    /// It is only the name of a sender that has gone, on so many messages that wait here.
    Tombstone {
        session: SessionId,
        messages: u32,
    },
}

/// What is known of whoever has introduced itself.
#[derive(Debug)]
pub(crate) struct Met {
    /// Which life of it.
    pub(crate) session: SessionId,
    /// What that life has said to us when it introduced itself, and nobody else knows.
    pub(crate) token: u64,
    /// Its number for this acquaintance.
    pub(crate) epoch: u16,
    pub(crate) tx: Tx,
    pub(crate) reach: Reach,
    /// What it lends us.
    pub(crate) borrows: Borrower,
    /// Steps that have ended since something came from it; see `endpoint/liveness.rs`.
    pub(crate) silent: u8,
    /// The end of the present step, while it is monitored.
    pub(crate) step: Option<TimerId>,
}

/// Where messages go out, the same link all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tx {
    /// It has room, as far as we know.
    Open(LinkId),
    /// It has none.
    Blocked(LinkId),
    /// The peer has closed it, so it is leaving.
    Closed(LinkId),
}

impl Tx {
    /// Whichever link it is, or was.
    pub(crate) fn link(self) -> LinkId {
        let (Self::Open(link) | Self::Blocked(link) | Self::Closed(link)) = self;
        link
    }
}

/// One link to a remote, and how far it has got.
pub(crate) type Link = (LinkId, LinkState);

/// None goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LinkState {
    /// Ours, and cannot carry packets yet.
    Dialled,
    /// We have introduced ourselves there.
    Up,
    /// The peer has proven there that it knows the site's secret. Without a secret nobody asks.
    Proven,
    /// The peer has introduced itself there: it leads to the acquaintance that the remote stands for.
    Met,
}

/// What a link can do, of its [`Limits`] what is asked for with messages; sizes are at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// Largest message that goes with its data.
    pub(crate) eager_max: u32,
    pub(crate) data_max: u32,
    pub(crate) pull_block: u32,
    pub(crate) remote_read: bool,
}

impl Reach {
    /// Of one that has not been asked yet.
    pub(crate) const UNKNOWN: Self = Self {
        eager_max: 0,
        data_max: u32::MAX,
        pull_block: u32::MAX,
        remote_read: false,
    };

    /// `eager_max`: what we send with its data at most, wherever it goes.
    pub(crate) fn of(limits: Limits, eager_max: usize) -> Self {
        // No message is longer than 2^32 - 1 bytes.
        let size = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        Self {
            eager_max: size(eager_max.min(limits.eager_max())),
            data_max: size(limits.data_max).max(1),
            pull_block: size(limits.pull_block).max(1),
            remote_read: limits.remote_read,
        }
    }
}

impl Remote {
    pub(crate) fn new(name: Name, epoch: u16, source: Source, opening: u32) -> Self {
        Self {
            name,
            epoch,
            source,
            context: 0,
            links: SmallVec::new(),
            lends: Lender::default(),
            opening,
            queues: None,
            connects: List::EMPTY,
            kin: List::EMPTY,
            life: Life::Connecting { over: None },
        }
    }

    /// The name that stays on so many `messages` of this one.
    pub(crate) fn tombstone(&self, messages: u32) -> Self {
        let session = self.identity().session;
        Self {
            context: self.context,
            life: Life::Tombstone { session, messages },
            ..Self::new(self.name, 0, self.source, 0)
        }
    }

    /// What is known of it once it has introduced itself.
    #[inline]
    pub(crate) fn met(&self) -> Option<&Met> {
        match &self.life {
            Life::Met(met) => Some(met),
            _ => None,
        }
    }

    /// Has it introduced itself as that one?
    pub(crate) fn is(&self, who: &Identity) -> bool {
        self.met().is_some() && self.identity() == *who
    }

    /// Is it only the name of a sender that has gone?
    #[inline]
    pub(crate) fn is_tombstone(&self) -> bool {
        matches!(self.life, Life::Tombstone { .. })
    }

    /// The link is one of its, which has got that far by now.
    pub(crate) fn advance(&mut self, link: LinkId, state: LinkState) {
        for (_, known) in self.links.iter_mut().filter(|(id, _)| *id == link) {
            *known = state.max(*known);
        }
    }

    /// How far that link of its has got. `None`: it has no such link.
    #[inline]
    pub(crate) fn state_of(&self, link: LinkId) -> Option<LinkState> {
        let known = self.links.iter().find(|(id, _)| *id == link)?;
        Some(known.1)
    }

    /// Is this one of its links?
    #[inline]
    pub(crate) fn owns(&self, link: LinkId) -> bool {
        let first = self.links.first().is_some_and(|(first, _)| *first == link);
        first || self.state_of(link).is_some()
    }

    /// A link on which we have introduced ourselves, if there is one.
    pub(crate) fn link_up(&self) -> Option<LinkId> {
        let mut all = self.links.iter();
        Some(all.find(|(_, state)| *state >= LinkState::Up)?.0)
    }

    /// Where messages go out, once it has introduced itself.
    #[inline]
    pub(crate) fn tx(&self) -> Option<Tx> {
        self.met().map(|met| met.tx)
    }

    /// The link of that, unless it has ended.
    pub(crate) fn live_tx(&self) -> Option<LinkId> {
        match self.tx()? {
            Tx::Open(link) | Tx::Blocked(link) => Some(link),
            Tx::Closed(_) => None,
        }
    }

    /// Is `epoch` of the peer's `session` known to be over, because it has begun another one since or
    /// has ended it? Nobody goes through half of all numbers while a packet is on its way.
    pub(crate) fn is_over(&self, session: SessionId, epoch: u16) -> bool {
        let before = |other: u16| other.wrapping_sub(epoch).wrapping_sub(1) < u16::MAX / 2;
        match &self.life {
            Life::Met(met) => session == met.session && before(met.epoch),
            Life::Connecting {
                over: Some((last, over)),
            } => session == *last && (epoch == *over || before(*over)),
            _ => false,
        }
    }

    /// Something can go out, and it has no place yet among those that wait for their turn.
    pub(crate) fn takes_turn(&mut self) -> bool {
        let (Life::Met(met), Some(queues)) = (&self.life, &mut self.queues) else {
            return false;
        };
        let takes = matches!(met.tx, Tx::Open(_)) && !queues.ready && met.may_send(queues);
        queues.ready |= takes;
        takes
    }

    /// Is there room on its link and no credit for what waits?
    pub(crate) fn is_stalled(&self) -> bool {
        let (Some(met), Some(queues)) = (self.met(), self.queues()) else {
            return false;
        };
        matches!(met.tx, Tx::Open(_)) && queues.has_messages() && !met.moves(queues)
    }

    /// The packet of that kind that waits, if one at a time is enough of it.
    pub(crate) fn standing(&mut self, kind: Kind) -> Option<&mut Control> {
        self.queues_mut()?.standing(kind)
    }

    /// A message posted now would not overtake another.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        let clear = |queues: &Queues| {
            !queues.has_messages() && queues.partial.is_none() && queues.control.is_empty()
        };
        self.queues.as_deref().is_none_or(clear)
    }

    /// What waits to go out, if anything does.
    #[inline]
    pub(crate) fn queues(&self) -> Option<&Queues> {
        self.queues.as_deref()
    }

    /// The same to take something out.
    #[inline]
    pub(crate) fn queues_mut(&mut self) -> Option<&mut Queues> {
        self.queues.as_deref_mut()
    }

    /// Messages wait for their turn.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.queues().is_some_and(Queues::has_messages)
    }

    /// To call it.
    pub(crate) fn target(&self, route: Route) -> Target {
        Target {
            nic: self.name.0,
            endpoint: self.name.1,
            route,
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            nic: self.name.0,
            endpoint: self.name.1,
            session: match self.life {
                Life::Connecting { .. } => SessionId(0),
                Life::Met(Met { session, .. }) | Life::Tombstone { session, .. } => session,
            },
        }
    }
}

impl Met {
    /// Something of these could go out, or is worth a packet that says so.
    fn may_send(&self, queues: &Queues) -> bool {
        queues.partial.is_some()
            || !queues.control.is_empty()
            || !queues.streams.is_empty()
            || self.moves(queues)
            || self.borrows.asks(queues.cost)
    }

    /// A message of these could go.
    fn moves(&self, queues: &Queues) -> bool {
        Lane::ALL.iter().any(|lane| {
            let any = !queues.lanes[*lane as usize].is_empty();
            queues.has_copy(*lane) || any && self.borrows.means(1, *lane).is_some()
        })
    }
}

/// All remotes of one endpoint, by id and by address.
#[derive(Debug)]
pub(crate) struct Remotes {
    table: Table<Remote>,
    by_name: HashMap<Name, RemoteId, RandomState>,
    next_epoch: u16,
    places: Shares,
    room: Claim,
}

impl Remotes {
    pub(crate) fn new(places: Shares, room: Claim) -> Self {
        Self {
            table: Table::new(),
            by_name: HashMap::default(),
            next_epoch: 1,
            places,
            room,
        }
    }

    /// Is there a place for another one from there, and memory?
    pub(crate) fn may_add(&mut self, source: Source) -> bool {
        self.places.may_take(source, 1) && self.room.admits(self.table.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// A new acquaintance, which is lent so much first.
    pub(crate) fn add(&mut self, name: Name, source: Source, opening: u32) -> RemoteId {
        let epoch = self.next_epoch;
        self.next_epoch = epoch.checked_add(1).unwrap_or(1);
        self.add_as(epoch, name, source, opening)
    }

    /// One that the peer knows, or will know, by this epoch.
    pub(crate) fn add_as(
        &mut self,
        epoch: u16,
        name: Name,
        source: Source,
        opening: u32,
    ) -> RemoteId {
        let id = self.add_tombstone(Remote::new(name, epoch, source, opening));
        self.by_name.insert(name, id);
        id
    }

    /// A name that nobody is reached by.
    pub(crate) fn add_tombstone(&mut self, tombstone: Remote) -> RemoteId {
        self.places.take(tombstone.source, 1);
        let (index, generation) = self.table.insert(tombstone);
        RemoteId::new(index, generation)
    }

    #[inline]
    pub(crate) fn of(&self, id: RemoteId) -> Option<&Remote> {
        self.table.get(id.index(), id.generation())
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, id: RemoteId) -> Option<&mut Remote> {
        self.table.get_mut(id.index(), id.generation())
    }

    /// One that is not only a name.
    pub(crate) fn living(&self, id: RemoteId) -> Option<&Remote> {
        self.of(id).filter(|remote| !remote.is_tombstone())
    }

    /// What is known of one once it has introduced itself.
    #[inline]
    pub(crate) fn met_mut(&mut self, id: RemoteId) -> Option<&mut Met> {
        match &mut self.of_mut(id)?.life {
            Life::Met(met) => Some(met),
            _ => None,
        }
    }

    /// What a remote's sending link can do.
    pub(crate) fn reach(&self, id: RemoteId) -> Reach {
        let met = self.of(id).and_then(Remote::met);
        met.map_or(Reach::UNKNOWN, |met| met.reach)
    }

    /// The remote at a place in the table.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Remote> {
        self.table.at_mut(index)
    }

    /// Who has a place in the table.
    pub(crate) fn at(&self, index: u32) -> Option<RemoteId> {
        let generation = self.table.generation_of(index)?;
        Some(RemoteId::new(index, generation))
    }

    pub(crate) fn find(&self, name: Name) -> Option<RemoteId> {
        self.by_name.get(&name).copied()
    }

    /// Who is known under a name, in whichever life.
    pub(crate) fn namesake(&self, who: &Identity) -> Option<(RemoteId, &Remote)> {
        let id = self.find(who.name())?;
        Some((id, self.of(id)?))
    }

    pub(crate) fn take(&mut self, id: RemoteId) -> Option<Remote> {
        let remote = self.table.remove(id.index(), id.generation())?;
        let operations = [remote.kin, remote.connects];
        debug_assert_eq!(operations, [List::EMPTY; 2], "operations with {id:?}");
        self.places.give_back(remote.source, 1);
        self.forget_name(remote.name, id);
        Some(remote)
    }

    /// That name is not this one's any more.
    fn forget_name(&mut self, name: Name, id: RemoteId) {
        if self.by_name.get(&name) == Some(&id) {
            self.by_name.remove(&name);
        }
    }

    /// Gives a remote the address it says it has.
    pub(crate) fn rename(&mut self, id: RemoteId, name: Name) {
        if let Some(remote) = self.of_mut(id) {
            let old = std::mem::replace(&mut remote.name, name);
            self.forget_name(old, id);
            self.by_name.insert(name, id);
        }
    }

    pub(crate) fn ids(&self) -> Vec<RemoteId> {
        self.table
            .iter()
            .map(|((index, generation), _)| RemoteId::new(index, generation))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_known_across_the_wrap_of_epochs() {
        let (session, other) = (SessionId(7), SessionId(8));
        for now in [1, 2, 40_000, u16::MAX] {
            let mut remote = Remote::new((NicId(1), EndpointId(0)), 1, Source::TRUSTED, 0);
            assert!(!remote.is_over(session, now));
            remote.life = Life::Met(Met {
                session,
                token: 0,
                epoch: now,
                tx: Tx::Open(LinkId::new(0, 1)),
                reach: Reach::UNKNOWN,
                borrows: Borrower::default(),
                silent: 0,
                step: None,
            });
            let later = |by: u16| now.wrapping_add(by);
            assert!(!remote.is_over(session, now));
            assert!(!remote.is_over(session, later(1)) && !remote.is_over(session, later(1000)));
            assert!(remote.is_over(session, later(u16::MAX)));
            assert!(remote.is_over(session, now.wrapping_sub(1000)));
            // Half of all numbers are before.
            let half = u16::MAX / 2;
            assert!(remote.is_over(session, now.wrapping_sub(half)));
            assert!(!remote.is_over(session, now.wrapping_sub(half + 1)));
            assert!(!remote.is_over(other, now.wrapping_sub(1)));
            // It has ended: so has its number.
            let over = Some((session, now));
            remote.life = Life::Connecting { over };
            assert!(remote.is_over(session, now));
            assert!(remote.is_over(session, now.wrapping_sub(1)));
            assert!(!remote.is_over(session, later(1)) && !remote.is_over(other, now));
        }
    }
}
