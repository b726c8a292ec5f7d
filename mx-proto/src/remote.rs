//! A session with a remote endpoint, and its link.
//!
//! ```text
//!   by id:      table  --> Remote --> Queues, while something waits to go there
//!   by target:  hash of (interface, number, route) --> id     of those called from here
//!   by name:    hash of (interface, number)        --> ids
//!   by life:    hash of the life said              --> ids     of those met that are joined with others
//! ```
//!
//! A remote has one link, and ends with it. Several may have one name or one life.
//!
//! Out of scope: requests' contents, matching, the port.
//! Cost: the memory of an idle remote is measured in `tests/bounds`.

use crate::data_link::{DataLinkSet, Stage};
use crate::event::Identity;
use crate::flow::{Borrower, CreditFields, Lane, Lender};
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, Route, SessionId, Target};
use crate::ops::List;
use crate::origin::Source;
use crate::port::Limits;
use crate::queues::{Control, Queues};
use crate::regions::Transfers;
use crate::secret::Nonce;
use crate::shares::Shares;
use crate::supply::Claim;
use crate::table::Table;
use crate::timer::TimerId;
use crate::wire::{Hello, Kind};
use foldhash::fast::RandomState;
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
    /// In whose share of the places it counts.
    pub(crate) source: Source,
    /// The upper layer's word.
    pub(crate) context: u64,
    /// The way on which it was called from here; `None`: it has called us.
    pub(crate) called: Option<Route>,
    pub(crate) link: Option<Link>,
    /// The credits lent to it.
    pub(crate) lends: Lender,
    /// The credits lent to it first, as announced in our hellos.
    pub(crate) opening: u32,
    /// Waiting packets and messages; `None` when there are none, and sometimes an empty set.
    pub(crate) queues: Option<Box<Queues>>,
    /// Connects that wait for an answer.
    pub(crate) connects: List,
    /// All other operations with it, in the order in which they became that.
    pub(crate) operations: List,
    /// Gets and puts of either side; `None`: there has not been any.
    pub(crate) transfers: Option<Box<Transfers>>,
    pub(crate) state: RemoteState,
}

/// The state of the association.
#[derive(Debug)]
pub(crate) enum RemoteState {
    /// The remote has not answered our call.
    Connecting {
        /// The session on which its peer has said that this one is its, too.
        claimed: Option<RemoteId>,
    },
    Connected(Connected),
    /// The remote is only the name of a sender that has gone, on so many messages that wait here.
    Tombstone {
        session: SessionId,
        messages: u32,
    },
}

impl RemoteState {
    /// The session on which the peer of a call without an answer has said that this one is its, too.
    pub(crate) fn claimed(&self) -> Option<RemoteId> {
        match self {
            Self::Connecting { claimed } => *claimed,
            _ => None,
        }
    }
}

/// The state of a remote whose hello has come.
#[derive(Debug)]
pub(crate) struct Connected {
    /// Its session.
    pub(crate) session: SessionId,
    /// The nonce that it has drawn for this session: that of its call, or of its answer.
    pub(crate) nonce: Nonce,
    /// Its number for this association.
    pub(crate) epoch: u16,
    /// The link on which the two sides have met: our nonce is about it.
    pub(crate) meeting_link: LinkId,
    /// The command link.
    pub(crate) tx: Tx,
    /// Its data links; `None`: it has never had one.
    pub(crate) data: Option<Box<DataLinkSet>>,
    /// Our limit of data links at a time; 0: one side offers none.
    pub(crate) data_links: u32,
    /// Pulls have numbers, as both sides offered data links when they met.
    pub(crate) numbered: bool,
    pub(crate) link_limits: LinkLimits,
    /// The credits it lends us.
    pub(crate) borrows: Borrower,
    /// The longest time that a message waited before it was sent with its data, in microseconds.
    pub(crate) longest_wait: u32,
    /// Steps that have ended since something came from it; see `endpoint/liveness.rs`.
    pub(crate) silent: u8,
    /// The end of the present step, while it is monitored.
    pub(crate) step: Option<TimerId>,
    /// The remote has been asked whether it is there, as another one has come with its name.
    pub(crate) asked: bool,
    /// The session is joined with others of its process.
    pub(crate) joins: bool,
    /// Each side may reach registered memory of the other one.
    pub(crate) regions: bool,
}

/// The sending link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tx {
    /// The link has room, as far as we know.
    Open(LinkId),
    /// The link has no room.
    Blocked(LinkId),
    /// Our Fence has been sent there: nothing else is.
    Fenced(LinkId),
}

impl Tx {
    /// The link, in any state.
    pub(crate) fn link(self) -> LinkId {
        let (Self::Open(link) | Self::Blocked(link) | Self::Fenced(link)) = self;
        link
    }

    pub(crate) fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced(_))
    }
}

/// Number of the command link among those of a session.
pub(crate) const COMMAND_LINK: u32 = 0;

/// A link to a remote, and how far it has got.
pub(crate) type Link = (LinkId, LinkState);

/// None goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LinkState {
    /// Ours, and cannot carry packets yet.
    Dialled,
    /// We have introduced ourselves there.
    Up,
    /// The peer has called there, or has proven the site's secret; skipped without a secret.
    Proven,
}

/// The part of a link's [`Limits`] that is needed with each message; sizes are at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkLimits {
    /// Largest message that goes with its data.
    pub(crate) eager_max: u32,
    /// Largest part of a message in a packet of this link.
    pub(crate) data_max: u32,
    pub(crate) pull_block: u32,
    pub(crate) remote_read: bool,
    pub(crate) refusal_ends_link: bool,
}

impl LinkLimits {
    /// The limits of a link that has not been asked yet.
    pub(crate) const UNKNOWN: Self = Self {
        eager_max: 0,
        data_max: u32::MAX,
        pull_block: u32::MAX,
        remote_read: false,
        refusal_ends_link: false,
    };

    /// `eager_max`: what we send with its data at most, wherever it goes. `data_links`: the session may have data links; then
    /// small messages wait for no larger packet of data than for a message that goes with its data.
    pub(crate) fn of(limits: Limits, eager_max: usize, data_links: bool) -> Self {
        // No message is longer than 2^32 - 1 bytes.
        let size = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let data_max = if data_links {
            limits.data_max.min(limits.eager_max())
        } else {
            limits.data_max
        };
        Self {
            eager_max: size(eager_max.min(limits.eager_max())),
            data_max: size(data_max).max(1),
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
            source,
            context: 0,
            called: None,
            link: None,
            lends: Lender::default(),
            opening,
            queues: None,
            connects: List::EMPTY,
            operations: List::EMPTY,
            transfers: None,
            state: RemoteState::Connecting { claimed: None },
        }
    }

    /// The name that stays on messages of this one.
    pub(crate) fn tombstone(&self) -> Self {
        let (session, messages) = (self.identity().session, 0);
        Self {
            context: self.context,
            state: RemoteState::Tombstone { session, messages },
            ..Self::new(self.name, 0, self.source, 0)
        }
    }

    /// The state once its hello has come.
    #[inline]
    pub(crate) fn connected(&self) -> Option<&Connected> {
        match &self.state {
            RemoteState::Connected(met) => Some(met),
            _ => None,
        }
    }

    /// Whether it is met, and its silence is watched.
    #[inline]
    pub(crate) fn is_monitored(&self) -> bool {
        self.connected().is_some_and(|met| met.step.is_some())
    }

    /// Whether it is the tombstone of a gone sender.
    #[inline]
    pub(crate) fn is_tombstone(&self) -> bool {
        matches!(self.state, RemoteState::Tombstone { .. })
    }

    /// The link, if it is this remote's, has got that far by now.
    pub(crate) fn advance(&mut self, link: LinkId, state: LinkState) {
        if let Some((own, known)) = &mut self.link
            && *own == link
        {
            *known = state.max(*known);
        }
    }

    /// The state of that link; `None` if it is not the link of this remote.
    #[inline]
    pub(crate) fn state_of(&self, link: LinkId) -> Option<LinkState> {
        let (own, state) = self.link?;
        (own == link).then_some(state)
    }

    /// Notes that a packet has come from it, with these credit fields, once it is met. Returns whether it has its turn now.
    #[inline(always)]
    pub(crate) fn hears(&mut self, fields: &CreditFields) -> bool {
        if let RemoteState::Connected(met) = &mut self.state {
            met.silent = 0;
        }
        self.takes_turn_for(fields)
    }

    /// Reads credit fields that have come from it. Returns whether it has its turn now, as there are credits for what waits.
    #[inline(always)]
    pub(crate) fn takes_turn_for(&mut self, fields: &CreditFields) -> bool {
        let RemoteState::Connected(met) = &mut self.state else {
            return false;
        };
        met.borrows.on_credit_fields(fields) && self.has_pending() && self.takes_turn()
    }

    /// Whether this is its link.
    #[inline]
    pub(crate) fn owns(&self, link: LinkId) -> bool {
        self.state_of(link).is_some()
    }

    /// The link, if we have introduced ourselves on it.
    pub(crate) fn link_up(&self) -> Option<LinkId> {
        let (link, state) = self.link?;
        (state >= LinkState::Up).then_some(link)
    }

    /// The sending link, once its hello has come.
    #[inline]
    pub(crate) fn tx(&self) -> Option<Tx> {
        self.connected().map(|met| met.tx)
    }

    /// The link of that.
    pub(crate) fn tx_link(&self) -> Option<LinkId> {
        Some(self.tx()?.link())
    }

    /// Something can go out, and it has no place yet among those that wait for their turn.
    pub(crate) fn takes_turn(&mut self) -> bool {
        let Some(queues) = &mut self.queues else {
            return false;
        };
        let can = match &self.state {
            RemoteState::Connected(met) => met.may_send(queues),
            RemoteState::Connecting { .. } => !queues.control.is_empty(),
            RemoteState::Tombstone { .. } => false,
        };
        let takes = can && !queues.ready;
        queues.ready |= takes;
        takes
    }

    /// The link of a call without an answer on which something is still to be said.
    pub(crate) fn introduces(&self) -> Option<LinkId> {
        let RemoteState::Connecting { .. } = self.state else {
            return None;
        };
        let waits = self.queues().is_some_and(|all| !all.control.is_empty());
        self.link_up().filter(|_| waits)
    }

    /// Whether its link has room and there are no credits for the waiting messages.
    pub(crate) fn is_stalled(&self) -> bool {
        let (Some(met), Some(queues)) = (self.connected(), self.queues()) else {
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
            !queues.has_messages()
                && queues.control.is_empty()
                && queues.partial(COMMAND_LINK).is_none()
        };
        self.queues.as_deref().is_none_or(clear)
    }

    /// The queues, if anything waits.
    #[inline]
    pub(crate) fn queues(&self) -> Option<&Queues> {
        self.queues.as_deref()
    }

    /// The queues, if anything waits, to take something out.
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
            session: match self.state {
                RemoteState::Connecting { .. } => SessionId(0),
                RemoteState::Connected(Connected { session, .. })
                | RemoteState::Tombstone { session, .. } => session,
            },
        }
    }
}

impl Connected {
    /// A hello is of this session.
    pub(crate) fn is(&self, hello: &Hello) -> bool {
        (self.session, self.epoch) == (hello.identity.session, hello.epoch)
    }

    /// The open data links, by number.
    #[inline]
    pub(crate) fn open_links(&self) -> impl Iterator<Item = (u32, Tx)> {
        let all = self.data.as_deref().map_or(&[][..], |of| &of.links);
        let open = all.iter().filter(|of| of.stage == Stage::Open);
        open.map(|of| (of.number, of.tx))
    }

    /// The open data links for parts of a message of that length: none if it is small, even if it is offered, as one is that
    /// must be matched or for which there are no credits.
    pub(crate) fn links_for(&self, length: u32) -> impl Iterator<Item = (u32, Tx)> {
        let apart = length > self.link_limits.eager_max;
        self.open_links().filter(move |_| apart)
    }

    /// Whether the session may have data links, and none has failed lately: one is soon to be there.
    pub(crate) fn expects_link(&self) -> bool {
        self.data_links > 0 && self.data.as_ref().is_none_or(|of| of.failures == 0)
    }

    /// Returns all links by number, the command link first.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u32, Tx)> {
        [(COMMAND_LINK, self.tx)]
            .into_iter()
            .chain(self.open_links())
    }

    /// Returns the link of that number, if there is one.
    pub(crate) fn link(&self, number: u32) -> Option<Tx> {
        let (_, tx) = self.links().find(|(of, _)| *of == number)?;
        Some(tx)
    }

    /// Records that data has gone on a data link.
    pub(crate) fn note_sent(&mut self, number: u32) {
        if let Some(of) = self.data.as_mut().and_then(|of| of.of(number)) {
            of.unused = 0;
        }
    }

    /// Notes whether a link has room.
    pub(crate) fn set_tx(&mut self, now: Tx) {
        if self.tx.link() == now.link() {
            if !self.tx.is_fenced() {
                self.tx = now;
            }
        } else if let Some(of) = self.data.as_mut().and_then(|of| of.by_link(now.link())) {
            of.tx = now;
        }
    }

    /// Something of these could go out, or is worth a packet that says so.
    fn may_send(&self, queues: &Queues) -> bool {
        let commands = matches!(self.tx, Tx::Open(_))
            && (!queues.control.is_empty() || self.moves(queues) || self.borrows.asks(queues.cost));
        let has_bulk = |(number, tx)| matches!(tx, Tx::Open(_)) && queues.has_bulk(number);
        commands || self.links().any(has_bulk)
    }

    /// A message of these could go.
    fn moves(&self, queues: &Queues) -> bool {
        Lane::ALL.iter().any(|lane| {
            let any = !queues.lanes[*lane as usize].is_empty();
            queues.has_copy(*lane) || any && self.borrows.payment(1, *lane).is_some()
        })
    }
}

/// All remotes of one endpoint, by id, target, name and life.
#[derive(Debug)]
pub(crate) struct Remotes {
    table: Table<RemoteId, Remote>,
    calls: HashMap<Target, RemoteId, RandomState>,
    by_name: Index<Name>,
    by_life: Index<SessionId>,
    next_epoch: u16,
    places: Shares,
    room: Claim,
}

/// The remotes with each key, oldest first.
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

    /// Adds a remote with that key.
    fn add(&mut self, key: K, id: RemoteId) {
        if *self.first.entry(key).or_insert(id) != id {
            self.others.entry(key).or_default().push(id);
        }
    }

    /// Removes a remote that is gone.
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
            calls: HashMap::default(),
            by_name: Index::new(),
            by_life: Index::new(),
            next_epoch: 1,
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

    /// A new session, which is lent so much first. `called`: the way on which we call it; `None`: it has called us.
    pub(crate) fn add(
        &mut self,
        name: Name,
        source: Source,
        called: Option<Route>,
        opening: u32,
    ) -> RemoteId {
        let epoch = self.next_epoch;
        self.next_epoch = epoch.checked_add(1).unwrap_or(1);
        let remote = Remote {
            called,
            ..Remote::new(name, epoch, source, opening)
        };
        let target = called.map(|route| remote.target(route));
        let id = self.add_tombstone(remote);
        self.by_name.add(name, id);
        if let Some(target) = target {
            self.calls.entry(target).or_insert(id);
        }
        id
    }

    /// Adds a remote that cannot be found by name.
    pub(crate) fn add_tombstone(&mut self, tombstone: Remote) -> RemoteId {
        self.places.take(tombstone.source, 1);
        self.table.insert(tombstone)
    }

    /// The remote's hello has come.
    pub(crate) fn set_connected(&mut self, id: RemoteId, met: Connected) {
        let (session, joins) = (met.session, met.joins);
        if let Some(remote) = self.of_mut(id) {
            remote.state = RemoteState::Connected(met);
            if joins {
                self.by_life.add(session, id);
            }
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

    /// The remote of an id, if it is not only a name.
    pub(crate) fn living(&self, id: RemoteId) -> Option<&Remote> {
        self.of(id).filter(|remote| !remote.is_tombstone())
    }

    /// The state of a remote once its hello has come.
    #[inline]
    pub(crate) fn connected(&self, id: RemoteId) -> Option<&Connected> {
        self.of(id)?.connected()
    }

    /// The state of a remote once its hello has come, to change it.
    #[inline]
    pub(crate) fn connected_mut(&mut self, id: RemoteId) -> Option<&mut Connected> {
        match &mut self.of_mut(id)?.state {
            RemoteState::Connected(met) => Some(met),
            _ => None,
        }
    }

    /// The data links of a remote that has had one.
    pub(crate) fn data_mut(&mut self, id: RemoteId) -> Option<&mut DataLinkSet> {
        self.connected_mut(id)?.data.as_deref_mut()
    }

    /// The state, the queues and the lent credits of a remote whose hello has come, for sending to it. `None`: it has not, or
    /// nothing waits.
    #[inline]
    pub(crate) fn sending(
        &mut self,
        id: RemoteId,
    ) -> Option<(&mut Connected, &mut Queues, &mut Lender)> {
        let remote = self.of_mut(id)?;
        match (&mut remote.state, &mut remote.queues) {
            (RemoteState::Connected(met), Some(queues)) => Some((met, queues, &mut remote.lends)),
            _ => None,
        }
    }

    /// The limits of a remote's sending link.
    pub(crate) fn link_limits(&self, id: RemoteId) -> LinkLimits {
        let met = self.of(id).and_then(Remote::connected);
        met.map_or(LinkLimits::UNKNOWN, |met| met.link_limits)
    }

    /// The remote at a place in the table.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Remote> {
        self.table.at_mut(index)
    }

    /// The remote at an index of the table.
    pub(crate) fn at(&self, index: u32) -> Option<RemoteId> {
        Some(self.table.at(index)?.0)
    }

    /// The session that was begun from here with that target.
    pub(crate) fn called(&self, target: Target) -> Option<RemoteId> {
        self.calls.get(&target).copied()
    }

    /// All remotes with that name, oldest first.
    pub(crate) fn all_named(&self, name: Name) -> impl Iterator<Item = RemoteId> {
        self.by_name.all(name)
    }

    /// All remotes that say they are of that life and are joined with others of it, oldest first.
    pub(crate) fn all_of_life(&self, session: SessionId) -> impl Iterator<Item = RemoteId> {
        self.by_life.all(session)
    }

    pub(crate) fn take(&mut self, id: RemoteId) -> Option<Remote> {
        let remote = self.table.remove(id)?;
        let operations = [remote.operations, remote.connects];
        debug_assert_eq!(operations, [List::EMPTY; 2], "operations with {id:?}");
        self.places.give_back(remote.source, 1);
        if remote.is_tombstone() {
            return Some(remote);
        }
        self.by_name.remove(remote.name, id);
        if let Some(target) = remote.called.map(|route| remote.target(route))
            && self.called(target) == Some(id)
        {
            self.calls.remove(&target);
        }
        if let Some(met) = remote.connected().filter(|met| met.joins) {
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
        assert_eq!(index.all('k').collect::<Vec<_>>(), [a, b, c]);
        index.remove('k', b);
        assert_eq!(index.all('k').collect::<Vec<_>>(), [a, c]);
        index.remove('k', a);
        assert_eq!((index.get('k'), index.others.len()), (Some(c), 0));
        index.remove('k', c);
        assert_eq!(index.get('k'), None);
    }
}
