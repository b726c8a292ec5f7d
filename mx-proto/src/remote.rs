//! Remote: a session with a remote endpoint, and its link.
//!
//! ```text
//!   by id:      table  --> Remote --> Queues, while something waits to be sent
//!   by target:  hash of (interface, number, route) --> id     of sessions that this endpoint began
//!   by name:    hash of (interface, number)        --> ids
//!   by life:    hash of the peer's life            --> ids     of connected sessions that can be joined
//! ```
//!
//! A remote has one link, and ends with it. Several may have the same name or life.
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

pub(crate) type Name = (NicId, EndpointId);

#[derive(Debug)]
pub(crate) struct Remote {
    /// Address that we called, or from which the remote called.
    pub(crate) name: Name,
    /// Our number for this association: credits count for the pair of it and the peer's number.
    pub(crate) epoch: u16,
    /// Source in whose share of slots the remote counts.
    pub(crate) source: Source,
    /// Word of the layer above; 0: none.
    pub(crate) context: u64,
    /// Route on which we called the remote; `None`: it called us.
    pub(crate) called: Option<Route>,
    pub(crate) link: Option<Link>,
    pub(crate) lends: Lender,
    /// Number of credits lent first, as announced in our hellos.
    pub(crate) opening: u32,
    /// Waiting packets and messages; `None` if there are none, though the set may be empty, too.
    pub(crate) queues: Option<Box<Queues>>,
    /// Connects that wait for an answer.
    pub(crate) connects: List,
    /// All other operations with the remote, in the order in which they were attached.
    pub(crate) operations: List,
    /// Gets and puts of either side; `None`: there have been none.
    pub(crate) transfers: Option<Box<Transfers>>,
    pub(crate) state: RemoteState,
}

#[derive(Debug)]
pub(crate) enum RemoteState {
    /// The remote has not answered our call.
    Connecting {
        /// Session on which the peer has claimed this one; `None`: no claim.
        claimed: Option<RemoteId>,
    },
    Connected(Connected),
    /// A tombstone: only the id of a lost sender, for its messages that wait here.
    Tombstone {
        session: SessionId,
        messages: u32,
    },
}

impl RemoteState {
    /// Returns the session on which the peer has claimed this unanswered call.
    pub(crate) fn claimed(&self) -> Option<RemoteId> {
        match self {
            Self::Connecting { claimed } => *claimed,
            _ => None,
        }
    }
}

/// State of a remote whose hello has come.
#[derive(Debug)]
pub(crate) struct Connected {
    /// Life of the peer, from its hello.
    pub(crate) session: SessionId,
    /// Nonce that the peer has drawn for this session: that of its call, or of its answer.
    pub(crate) nonce: Nonce,
    /// Peer's number for this association.
    pub(crate) epoch: u16,
    /// Link on which the session was established; our nonce covers it.
    pub(crate) meeting_link: LinkId,
    pub(crate) tx: Tx,
    /// Data links; `None`: there has been none.
    pub(crate) data: Option<Box<DataLinkSet>>,
    /// Maximum number of data links at a time on this side; 0: one side offers none.
    pub(crate) data_links: u32,
    /// Whether Pulls have numbers, because both sides offered data links in their hellos.
    pub(crate) numbered: bool,
    pub(crate) link_limits: LinkLimits,
    /// Credits that the remote lends us.
    pub(crate) borrows: Borrower,
    /// Longest time that an eager message waited before it was sent, in microseconds.
    pub(crate) longest_wait: u32,
    /// Number of steps without a packet from the remote; see `endpoint/liveness.rs`.
    pub(crate) silent: u8,
    /// Timer of the present step; `None`: the remote is not monitored.
    pub(crate) step: Option<TimerId>,
    /// Whether the remote is being asked if it is alive, because another peer came under its name.
    pub(crate) asked: bool,
    /// Whether the session is joined with others of its process.
    pub(crate) joins: bool,
    /// Whether each side may access registered memory of the other.
    pub(crate) regions: bool,
}

/// Sending link, and whether it accepts packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tx {
    /// The link has room, as far as we know.
    Open(LinkId),
    /// The link has no room.
    Blocked(LinkId),
    /// Our Fence has been sent on the link; nothing else may follow it.
    Fenced(LinkId),
}

impl Tx {
    pub(crate) fn link(self) -> LinkId {
        let (Self::Open(link) | Self::Blocked(link) | Self::Fenced(link)) = self;
        link
    }

    pub(crate) fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced(_))
    }
}

/// Number of the command link among the links of a session.
pub(crate) const COMMAND_LINK: u32 = 0;

pub(crate) type Link = (LinkId, LinkState);

/// State of a link; never moves backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LinkState {
    /// We began the link, and it cannot carry packets yet.
    Dialled,
    /// We have introduced ourselves on the link.
    Up,
    /// The peer has called on the link, or has proven the site's secret; skipped without a secret.
    Proven,
}

/// Part of a link's [`Limits`] that each message needs; sizes are at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkLimits {
    /// Largest message in bytes that is sent eagerly.
    pub(crate) eager_max: u32,
    /// Largest part of a message in bytes in one packet of this link.
    pub(crate) data_max: u32,
    pub(crate) pull_block: u32,
    pub(crate) remote_read: bool,
    pub(crate) refusal_ends_link: bool,
}

impl LinkLimits {
    /// Limits of a link before they are known.
    pub(crate) const UNKNOWN: Self = Self {
        eager_max: 0,
        data_max: u32::MAX,
        pull_block: u32::MAX,
        remote_read: false,
        refusal_ends_link: false,
    };

    /// Makes the limits of a link. `eager_max`: our limit for eager messages over any link. `data_links`: the session
    /// may have data links; data packets of the command link are then no larger than eager messages, because small
    /// messages wait behind them.
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

    pub(crate) fn tombstone(&self) -> Self {
        let (session, messages) = (self.identity().session, 0);
        Self {
            context: self.context,
            state: RemoteState::Tombstone { session, messages },
            ..Self::new(self.name, 0, self.source, 0)
        }
    }

    /// Returns the state of a remote whose hello has come; `None` otherwise.
    #[inline]
    pub(crate) fn connected(&self) -> Option<&Connected> {
        match &self.state {
            RemoteState::Connected(met) => Some(met),
            _ => None,
        }
    }

    /// Returns whether the remote is connected and its silence is monitored.
    #[inline]
    pub(crate) fn is_monitored(&self) -> bool {
        self.connected().is_some_and(|met| met.step.is_some())
    }

    /// Returns whether this is the tombstone of a lost sender.
    #[inline]
    pub(crate) fn is_tombstone(&self) -> bool {
        matches!(self.state, RemoteState::Tombstone { .. })
    }

    /// Advances the state of a link, if it is this remote's.
    pub(crate) fn advance(&mut self, link: LinkId, state: LinkState) {
        if let Some((own, known)) = &mut self.link
            && *own == link
        {
            *known = state.max(*known);
        }
    }

    /// Returns the state of a link; `None` if it is not the link of this remote.
    #[inline]
    pub(crate) fn state_of(&self, link: LinkId) -> Option<LinkState> {
        let (own, state) = self.link?;
        (own == link).then_some(state)
    }

    /// Notes that a packet with these credit fields has come from the remote, if it is connected. Returns whether the
    /// remote gets a turn now.
    #[inline(always)]
    pub(crate) fn hears(&mut self, fields: &CreditFields) -> bool {
        if let RemoteState::Connected(met) = &mut self.state {
            met.silent = 0;
        }
        self.takes_turn_for(fields)
    }

    /// Applies credit fields from the remote. Returns whether the remote gets a turn now, because there are credits for
    /// waiting messages.
    #[inline(always)]
    pub(crate) fn takes_turn_for(&mut self, fields: &CreditFields) -> bool {
        let RemoteState::Connected(met) = &mut self.state else {
            return false;
        };
        met.borrows.on_credit_fields(fields) && self.has_pending() && self.takes_turn()
    }

    #[inline]
    pub(crate) fn owns(&self, link: LinkId) -> bool {
        self.state_of(link).is_some()
    }

    /// Returns the link, if we have introduced ourselves on it.
    pub(crate) fn link_up(&self) -> Option<LinkId> {
        let (link, state) = self.link?;
        (state >= LinkState::Up).then_some(link)
    }

    /// Returns the sending link of a connected remote.
    #[inline]
    pub(crate) fn tx(&self) -> Option<Tx> {
        self.connected().map(|met| met.tx)
    }

    /// Returns the id of the sending link of a connected remote.
    pub(crate) fn tx_link(&self) -> Option<LinkId> {
        Some(self.tx()?.link())
    }

    /// Gives the remote a turn if something can be sent. Returns true if it had none yet.
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

    /// Returns the link of an unanswered call on which packets wait to be sent.
    pub(crate) fn introduces(&self) -> Option<LinkId> {
        let RemoteState::Connecting { .. } = self.state else {
            return None;
        };
        let waits = self.queues().is_some_and(|all| !all.control.is_empty());
        self.link_up().filter(|_| waits)
    }

    /// Returns whether the link has room but there are no credits for the waiting messages.
    pub(crate) fn is_stalled(&self) -> bool {
        let (Some(met), Some(queues)) = (self.connected(), self.queues()) else {
            return false;
        };
        matches!(met.tx, Tx::Open(_)) && queues.has_messages() && !met.moves(queues)
    }

    /// Returns the queued packet of a kind of which one at a time is enough.
    pub(crate) fn standing(&mut self, kind: Kind) -> Option<&mut Control> {
        self.queues_mut()?.standing(kind)
    }

    /// Returns whether a message posted now would not overtake another.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        let clear = |queues: &Queues| {
            !queues.has_messages()
                && queues.control.is_empty()
                && queues.partial(COMMAND_LINK).is_none()
        };
        self.queues.as_deref().is_none_or(clear)
    }

    #[inline]
    pub(crate) fn queues(&self) -> Option<&Queues> {
        self.queues.as_deref()
    }

    #[inline]
    pub(crate) fn queues_mut(&mut self) -> Option<&mut Queues> {
        self.queues.as_deref_mut()
    }

    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.queues().is_some_and(Queues::has_messages)
    }

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
    /// Returns whether a hello belongs to this session.
    pub(crate) fn is(&self, hello: &Hello) -> bool {
        (self.session, self.epoch) == (hello.identity.session, hello.epoch)
    }

    /// Returns the open data links, by number.
    #[inline]
    pub(crate) fn open_links(&self) -> impl Iterator<Item = (u32, Tx)> {
        let all = self.data.as_deref().map_or(&[][..], |of| &of.links);
        let open = all.iter().filter(|of| of.stage == Stage::Open);
        open.map(|of| (of.number, of.tx))
    }

    /// Returns the open data links for parts of a message of this length: none if it is small, even if it was offered
    /// because it must be matched or for lack of credits.
    pub(crate) fn links_for(&self, length: u32) -> impl Iterator<Item = (u32, Tx)> {
        let apart = length > self.link_limits.eager_max;
        self.open_links().filter(move |_| apart)
    }

    /// Returns whether the session may have data links and none has failed lately, so that one will soon be open.
    pub(crate) fn expects_link(&self) -> bool {
        self.data_links > 0 && self.data.as_ref().is_none_or(|of| of.failures == 0)
    }

    /// Returns all links by number, the command link first.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u32, Tx)> {
        [(COMMAND_LINK, self.tx)]
            .into_iter()
            .chain(self.open_links())
    }

    pub(crate) fn link(&self, number: u32) -> Option<Tx> {
        let (_, tx) = self.links().find(|(of, _)| *of == number)?;
        Some(tx)
    }

    /// Records that data has been sent on a data link.
    pub(crate) fn note_sent(&mut self, number: u32) {
        if let Some(of) = self.data.as_mut().and_then(|of| of.of(number)) {
            of.unused = 0;
        }
    }

    /// Records whether a link has room.
    pub(crate) fn set_tx(&mut self, now: Tx) {
        if self.tx.link() == now.link() {
            if !self.tx.is_fenced() {
                self.tx = now;
            }
        } else if let Some(of) = self.data.as_mut().and_then(|of| of.by_link(now.link())) {
            of.tx = now;
        }
    }

    /// Returns whether something in these queues can be sent, or a request for credits is due.
    fn may_send(&self, queues: &Queues) -> bool {
        let commands = matches!(self.tx, Tx::Open(_))
            && (!queues.control.is_empty() || self.moves(queues) || self.borrows.asks(queues.cost));
        let has_bulk = |(number, tx)| matches!(tx, Tx::Open(_)) && queues.has_bulk(number);
        commands || self.links().any(has_bulk)
    }

    /// Returns whether a message in these queues can be sent.
    fn moves(&self, queues: &Queues) -> bool {
        Lane::ALL.iter().any(|lane| {
            let any = !queues.lanes[*lane as usize].is_empty();
            queues.has_copy(*lane) || any && self.borrows.payment(1, *lane).is_some()
        })
    }
}

/// Remotes of one endpoint, by id, target, name and life.
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

/// Remotes with each key, oldest first.
#[derive(Debug)]
struct Index<K> {
    first: HashMap<K, RemoteId, RandomState>,
    /// Further remotes with a key; rarely any.
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

    fn add(&mut self, key: K, id: RemoteId) {
        if *self.first.entry(key).or_insert(id) != id {
            self.others.entry(key).or_default().push(id);
        }
    }

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

    /// Returns whether there is a slot and memory for another remote of that source.
    pub(crate) fn may_add(&mut self, source: Source) -> bool {
        self.places.may_take(source, 1) && self.room.admits(self.table.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the end of the slots of [`Self::at`].
    pub(crate) fn places_end(&self) -> u32 {
        self.table.capacity() as u32
    }

    /// Adds a session, with this many credits lent first. `called`: the route on which we call it; `None`: it called
    /// us.
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

    /// Returns a remote that is no tombstone.
    pub(crate) fn living(&self, id: RemoteId) -> Option<&Remote> {
        self.of(id).filter(|remote| !remote.is_tombstone())
    }

    #[inline]
    pub(crate) fn connected(&self, id: RemoteId) -> Option<&Connected> {
        self.of(id)?.connected()
    }

    /// Returns the state of a remote whose hello has come, for changing.
    #[inline]
    pub(crate) fn connected_mut(&mut self, id: RemoteId) -> Option<&mut Connected> {
        match &mut self.of_mut(id)?.state {
            RemoteState::Connected(met) => Some(met),
            _ => None,
        }
    }

    /// Returns the data links of a remote that has had one.
    pub(crate) fn data_mut(&mut self, id: RemoteId) -> Option<&mut DataLinkSet> {
        self.connected_mut(id)?.data.as_deref_mut()
    }

    /// Returns the state, the queues and the lent credits of a connected remote, for sending to it. `None`: it is not
    /// connected, or nothing waits.
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

    pub(crate) fn link_limits(&self, id: RemoteId) -> LinkLimits {
        let met = self.of(id).and_then(Remote::connected);
        met.map_or(LinkLimits::UNKNOWN, |met| met.link_limits)
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Remote> {
        self.table.at_mut(index)
    }

    /// Returns the id of the remote in a slot of the table.
    pub(crate) fn at(&self, index: u32) -> Option<RemoteId> {
        Some(self.table.at(index)?.0)
    }

    /// Returns the session that this endpoint began with that target.
    pub(crate) fn called(&self, target: Target) -> Option<RemoteId> {
        self.calls.get(&target).copied()
    }

    /// Returns all remotes with that name, oldest first.
    pub(crate) fn all_named(&self, name: Name) -> impl Iterator<Item = RemoteId> {
        self.by_name.all(name)
    }

    /// Returns the remotes of a life that can be joined with others, oldest first.
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
