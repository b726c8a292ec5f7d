//! One remote endpoint: its session and the links to it.
//!
//! ```text
//!   by id:    table  --> Remote --> Queues, while something waits to go there
//!   by name:  hash of (interface, number) --> id     the first of those that have it
//!   by life:  hash of session             --> id     the first, or the one that we have called
//! ```
//!
//! A remote has one link, and ends with it. A remote that is this endpoint itself has both ends of its
//! link: it sends on the one that it has called on.
//!
//! Not here: requests' contents, matching, the port.
//! Cost: the memory of an idle remote is measured in `tests/bounds`.

use crate::event::Identity;
use crate::flow::{Borrower, CreditFields, Lane, Lender};
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, Route, SessionId, Target};
use crate::ops::List;
use crate::origin::Source;
use crate::port::Limits;
use crate::queues::{Control, Queues};
use crate::secret::Nonce;
use crate::shares::Shares;
use crate::supply::Claim;
use crate::table::Table;
use crate::timer::TimerId;
use crate::wire::{Hello, Kind};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::Hash;

/// The address of an endpoint.
pub(crate) type Name = (NicId, EndpointId);

/// A remote endpoint.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Its address: the one that we have called, or the one that it has called from.
    pub(crate) name: Name,
    /// Our number for this association: credits count for the pair of it and the peer's.
    pub(crate) epoch: u16,
    /// Times that our call has been answered with another remote of its life.
    pub(crate) told: u16,
    /// In whose share of the places it counts.
    pub(crate) source: Source,
    /// The upper layer's word.
    pub(crate) context: u64,
    pub(crate) links: SmallVec<[Link; 1]>,
    /// The credits lent to it.
    pub(crate) lends: Lender,
    /// The credits lent to it first, as announced in our hellos.
    pub(crate) opening: u32,
    /// Waiting packets and messages; `None` when there are none, and sometimes an empty set.
    pub(crate) queues: Option<Box<Queues>>,
    /// Connects that wait for an answer.
    pub(crate) connects: List,
    /// All other operations with it, in the order in which they became that.
    pub(crate) kin: List,
    pub(crate) life: Life,
}

/// The state of the association.
#[derive(Debug)]
pub(crate) enum Life {
    /// It has not answered our call.
    Connecting,
    Met(Met),
    /// It is only the name of a sender that has gone, on so many messages that wait here.
    Tombstone {
        session: SessionId,
        messages: u32,
    },
}

/// The state of a remote whose hello has come.
#[derive(Debug)]
pub(crate) struct Met {
    /// Its session.
    pub(crate) session: SessionId,
    /// It has called us; else we have called it.
    pub(crate) called_us: bool,
    /// A connect of ours has ended with it, so the owner knows it.
    pub(crate) used: bool,
    /// The nonce that it has drawn for this association: that of its call, or of its answer.
    pub(crate) nonce: Nonce,
    /// Its number among all that have been met.
    pub(crate) serial: u32,
    /// We have called it, and it is perhaps another one of its life, which has called us. It is being asked.
    pub(crate) asks: Option<Candidate>,
    /// Its connects that have come meanwhile, with their keys: answered when it is settled that this remote stays.
    pub(crate) held: Vec<(u64, u32)>,
    /// Its number for this association.
    pub(crate) epoch: u16,
    pub(crate) tx: Tx,
    pub(crate) reach: Reach,
    /// The credits it lends us.
    pub(crate) borrows: Borrower,
    /// Steps that have ended since something came from it; see `endpoint/liveness.rs`.
    pub(crate) silent: u8,
    /// The end of the present step, while it is monitored.
    pub(crate) step: Option<TimerId>,
}

/// One of several remotes of a life, about which its peer is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Candidate {
    /// Its [number](Met::serial), 24 bits.
    pub(crate) serial: u32,
    /// The number of those that were denied before.
    pub(crate) denied: u8,
}

impl Candidate {
    /// None of those that there are.
    pub(crate) const NONE: Self = Self {
        serial: SERIALS,
        denied: DENIED_MAX,
    };

    /// From a word of 28 bits on the wire.
    pub(crate) fn from_word(word: u32) -> Self {
        Self {
            serial: word & SERIALS,
            denied: ((word >> SERIAL_BITS) as u8).min(DENIED_MAX),
        }
    }

    /// The inverse.
    pub(crate) fn to_word(self) -> u32 {
        u32::from(self.denied) << SERIAL_BITS | self.serial
    }

    /// It is denied as well. Others can claim a life as often as they like: so no more than a few are.
    pub(crate) fn deny(self) -> Self {
        let denied = self.denied + 1;
        if denied >= DENIED_MAX {
            return Self::NONE;
        }
        Self { denied, ..self }
    }
}

/// Remotes of one life that are denied before the rest is not asked about: a process has one or two.
const DENIED_MAX: u8 = 4;

const SERIAL_BITS: u32 = 24;
const SERIALS: u32 = (1 << SERIAL_BITS) - 1;

/// The sending link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tx {
    /// It has room, as far as we know.
    Open(LinkId),
    /// It has none.
    Blocked(LinkId),
}

impl Tx {
    /// The link, in any state.
    pub(crate) fn link(self) -> LinkId {
        let (Self::Open(link) | Self::Blocked(link)) = self;
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
    /// The peer has proven the site's secret on it; skipped without a secret.
    Proven,
    /// The peer has introduced itself there: it leads to the association that the remote stands for.
    Met,
}

/// The part of a link's [`Limits`] that is needed with each message; sizes are at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// Largest message that goes with its data.
    pub(crate) eager_max: u32,
    pub(crate) data_max: u32,
    pub(crate) pull_block: u32,
    pub(crate) remote_read: bool,
    pub(crate) refusal_ends_link: bool,
}

impl Reach {
    /// Of one that has not been asked yet.
    pub(crate) const UNKNOWN: Self = Self {
        eager_max: 0,
        data_max: u32::MAX,
        pull_block: u32::MAX,
        remote_read: false,
        refusal_ends_link: false,
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
            refusal_ends_link: limits.refusal_ends_link,
        }
    }
}

impl Remote {
    pub(crate) fn new(name: Name, epoch: u16, source: Source, opening: u32) -> Self {
        Self {
            name,
            epoch,
            told: 0,
            source,
            context: 0,
            links: SmallVec::new(),
            lends: Lender::default(),
            opening,
            queues: None,
            connects: List::EMPTY,
            kin: List::EMPTY,
            life: Life::Connecting,
        }
    }

    /// The name that stays on messages of this one.
    pub(crate) fn tombstone(&self) -> Self {
        let (session, messages) = (self.identity().session, 0);
        Self {
            context: self.context,
            life: Life::Tombstone { session, messages },
            ..Self::new(self.name, 0, self.source, 0)
        }
    }

    /// The state once its hello has come.
    #[inline]
    pub(crate) fn met(&self) -> Option<&Met> {
        match &self.life {
            Life::Met(met) => Some(met),
            _ => None,
        }
    }

    /// Whether it is the tombstone of a gone sender.
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

    /// The state of that link; `None` if it is not a link of this remote.
    #[inline]
    pub(crate) fn state_of(&self, link: LinkId) -> Option<LinkState> {
        let known = self.links.iter().find(|(id, _)| *id == link)?;
        Some(known.1)
    }

    /// Reads credit fields that have come from it. Returns whether it has its turn now, as there are credits for what waits.
    #[inline(always)]
    pub(crate) fn takes_turn_for(&mut self, fields: &CreditFields) -> bool {
        let Life::Met(met) = &mut self.life else {
            return false;
        };
        met.borrows.on_credit_fields(fields) && self.has_pending() && self.takes_turn()
    }

    /// Whether this is one of its links.
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

    /// The sending link, once its hello has come.
    #[inline]
    pub(crate) fn tx(&self) -> Option<Tx> {
        self.met().map(|met| met.tx)
    }

    /// The link of that.
    pub(crate) fn tx_link(&self) -> Option<LinkId> {
        Some(self.tx()?.link())
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

    /// Whether its link has room and there are no credits for the waiting messages.
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

    /// The queues, if anything waits.
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
                Life::Connecting => SessionId(0),
                Life::Met(Met { session, .. }) | Life::Tombstone { session, .. } => session,
            },
        }
    }
}

impl Met {
    /// A hello is from the association that the remote stands for.
    pub(crate) fn is(&self, hello: &Hello) -> bool {
        (self.session, self.epoch) == (hello.identity.session, hello.epoch)
    }

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

/// All remotes of one endpoint, by id, by address and by life.
#[derive(Debug)]
pub(crate) struct Remotes {
    table: Table<RemoteId, Remote>,
    by_name: Index<Name>,
    by_life: Index<SessionId>,
    next_epoch: u16,
    met: u32,
    places: Shares,
    room: Claim,
}

/// A way to find remotes: by each key the first that has it, or the one that leads, and then the others.
#[derive(Debug)]
struct Index<K> {
    first: HashMap<K, RemoteId, RandomState>,
    /// More than one with a key are few, and rare.
    others: HashMap<K, Vec<RemoteId>, RandomState>,
}

impl<K: Eq + Hash + Copy> Index<K> {
    fn new() -> Self {
        Self {
            first: HashMap::default(),
            others: HashMap::default(),
        }
    }

    fn get(&self, key: K) -> Option<RemoteId> {
        self.first.get(&key).copied()
    }

    fn all(&self, key: K) -> impl Iterator<Item = RemoteId> {
        let others = self.others.get(&key).into_iter().flatten();
        self.get(key).into_iter().chain(others.copied())
    }

    /// One more with that key.
    fn add(&mut self, key: K, id: RemoteId) {
        if *self.first.entry(key).or_insert(id) != id {
            self.others.entry(key).or_default().push(id);
        }
    }

    /// That one is the first from now on.
    fn lead(&mut self, key: K, id: RemoteId) {
        let before = self.first.insert(key, id).filter(|before| *before != id);
        if let (Some(before), Some(others)) = (before, self.others.get_mut(&key)) {
            others.retain(|other| *other != id);
            others.push(before);
        }
    }

    /// One is gone.
    fn remove(&mut self, key: K, id: RemoteId) {
        let is_first = self.get(key) == Some(id);
        let Some(others) = self.others.get_mut(&key) else {
            if is_first {
                self.first.remove(&key);
            }
            return;
        };
        if is_first {
            self.first.insert(key, others.remove(0));
        } else {
            others.retain(|other| *other != id);
        }
        if others.is_empty() {
            self.others.remove(&key);
        }
    }
}

impl Remotes {
    pub(crate) fn new(places: Shares, room: Claim) -> Self {
        Self {
            table: Table::default(),
            by_name: Index::new(),
            by_life: Index::new(),
            next_epoch: 1,
            met: 0,
            places,
            room,
        }
    }

    /// Whether there is room for another remote of that source, and memory.
    pub(crate) fn may_add(&mut self, source: Source) -> bool {
        self.places.may_take(source, 1) && self.room.admits(self.table.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The end of the places of [`Self::at`].
    pub(crate) fn places_end(&self) -> u32 {
        self.table.capacity() as u32
    }

    /// A new association, which is lent so much first.
    pub(crate) fn add(&mut self, name: Name, source: Source, opening: u32) -> RemoteId {
        let epoch = self.next_epoch;
        self.next_epoch = epoch.checked_add(1).unwrap_or(1);
        let id = self.add_tombstone(Remote::new(name, epoch, source, opening));
        self.by_name.add(name, id);
        id
    }

    /// Adds a remote that cannot be found by name.
    pub(crate) fn add_tombstone(&mut self, tombstone: Remote) -> RemoteId {
        self.places.take(tombstone.source, 1);
        self.table.insert(tombstone)
    }

    /// The remote's hello has come. `leads`: it is the one of its life that is found.
    pub(crate) fn meet(&mut self, id: RemoteId, mut met: Met, leads: bool) {
        let session = met.session;
        // Never the last one, after which there is none.
        self.met = self.met % (SERIALS - 1) + 1;
        met.serial = self.met;
        if let Some(remote) = self.of_mut(id) {
            remote.life = Life::Met(met);
            self.by_life.add(session, id);
            if leads {
                self.by_life.lead(session, id);
            }
        }
    }

    /// The remote is the one of its life that is found from now on.
    pub(crate) fn lead(&mut self, id: RemoteId) {
        if let Some(session) = self.of(id).and_then(|of| Some(of.met()?.session)) {
            self.by_life.lead(session, id);
        }
    }

    #[inline]
    pub(crate) fn of(&self, id: RemoteId) -> Option<&Remote> {
        self.table.get(id)
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, id: RemoteId) -> Option<&mut Remote> {
        self.table.get_mut(id)
    }

    /// One that is not only a name.
    pub(crate) fn living(&self, id: RemoteId) -> Option<&Remote> {
        self.of(id).filter(|remote| !remote.is_tombstone())
    }

    /// The state of a remote once its hello has come.
    #[inline]
    pub(crate) fn met_mut(&mut self, id: RemoteId) -> Option<&mut Met> {
        match &mut self.of_mut(id)?.life {
            Life::Met(met) => Some(met),
            _ => None,
        }
    }

    /// The state, the queues and the lent credits of a remote whose hello has come, for sending to it. `None`: it has not, or
    /// nothing waits.
    #[inline]
    pub(crate) fn sending(&mut self, id: RemoteId) -> Option<(&mut Met, &mut Queues, &mut Lender)> {
        let remote = self.of_mut(id)?;
        match (&mut remote.life, &mut remote.queues) {
            (Life::Met(met), Some(queues)) => Some((met, queues, &mut remote.lends)),
            _ => None,
        }
    }

    /// The limits of a remote's sending link.
    pub(crate) fn reach(&self, id: RemoteId) -> Reach {
        let met = self.of(id).and_then(Remote::met);
        met.map_or(Reach::UNKNOWN, |met| met.reach)
    }

    /// The remote at a place in the table.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Remote> {
        self.table.at_mut(index)
    }

    /// The remote at an index of the table.
    pub(crate) fn at(&self, index: u32) -> Option<RemoteId> {
        Some(self.table.at(index)?.0)
    }

    /// The remote with that address.
    pub(crate) fn find(&self, name: Name) -> Option<RemoteId> {
        self.by_name.get(name)
    }

    /// The same to call it. `own`: the name is this endpoint's own; then it is none that has called us, as
    /// any process on this machine can say that it has our number.
    pub(crate) fn called_by(&self, name: Name, own: bool) -> Option<RemoteId> {
        let fits = |id: &RemoteId| {
            let met = self.of(*id).and_then(Remote::met);
            !own || met.is_none_or(|met| !met.called_us)
        };
        self.by_name.all(name).find(fits)
    }

    /// The remote of that life that leads.
    pub(crate) fn of_life(&self, session: SessionId) -> Option<RemoteId> {
        self.by_life.get(session)
    }

    /// All remotes of that life.
    pub(crate) fn all_of_life(&self, session: SessionId) -> impl Iterator<Item = RemoteId> {
        self.by_life.all(session)
    }

    /// The first remote of that life that was met after `before`. `called`: of those that have called us.
    pub(crate) fn next_of_life(
        &self,
        session: SessionId,
        before: Candidate,
        called: bool,
    ) -> Option<RemoteId> {
        let all = self.all_of_life(session).filter_map(|id| {
            let met = self.of(id)?.met()?;
            let fits = !called || met.called_us;
            (fits && met.serial > before.serial).then_some((met.serial, id))
        });
        Some(all.min_by_key(|(serial, _)| *serial)?.1)
    }

    pub(crate) fn take(&mut self, id: RemoteId) -> Option<Remote> {
        let remote = self.table.remove(id)?;
        let operations = [remote.kin, remote.connects];
        debug_assert_eq!(operations, [List::EMPTY; 2], "operations with {id:?}");
        self.places.give_back(remote.source, 1);
        if remote.is_tombstone() {
            return Some(remote);
        }
        self.by_name.remove(remote.name, id);
        if let Some(met) = remote.met() {
            self.by_life.remove(met.session, id);
        }
        Some(remote)
    }

    pub(crate) fn ids(&self) -> Vec<RemoteId> {
        self.table.iter().map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_with_one_key_one_is_found_and_then_another() {
        let mut index = Index::new();
        let [a, b, c] = [1, 2, 3].map(|n| RemoteId::new(n, 0));
        index.add('k', a);
        index.add('k', b);
        assert_eq!(index.all('k').collect::<Vec<_>>(), [a, b]);
        index.add('k', c);
        index.lead('k', c);
        index.lead('k', c);
        assert_eq!(index.all('k').collect::<Vec<_>>(), [c, b, a]);
        index.remove('k', b);
        assert_eq!(index.all('k').collect::<Vec<_>>(), [c, a]);
        index.remove('k', c);
        assert_eq!((index.get('k'), index.others.len()), (Some(a), 0));
        index.remove('k', a);
        assert_eq!(index.get('k'), None);
        index.lead('k', b);
        assert_eq!(index.get('k'), Some(b));
    }
}
