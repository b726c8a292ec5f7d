//! One remote endpoint: its session and the links to it.
//!
//! ```text
//!   by id:    table  --> Partner --> Queues, while something waits to go there
//!   by name:  hash of (interface, number) --> id
//! ```
//!
//! Messages go out on one link for the whole session (`tx`), so that they keep their order. A
//! second link exists only when both sides connected at the same time; we listen on both.
//!
//! Knows nothing of: requests' contents, matching, the port. Cost: what a quiet partner takes here
//! is measured in `tests/bounds`.

use crate::event::Identity;
use crate::flow::{Borrower, Lane, Lender};
use crate::ids::{EndpointId, LinkId, NicId, PartnerId, SessionId, Target};
use crate::ops::List;
use crate::origin::Source;
use crate::port::Limits;
use crate::queues::{Queues, Spares};
use crate::shares::Shares;
use crate::supply::Claim;
use crate::table::Table;
use crate::timer::TimerId;
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;

/// A remote endpoint.
#[derive(Debug)]
pub(crate) struct Partner {
    /// Its address. Until it has answered: the one we know it by.
    pub(crate) nic: NicId,
    pub(crate) endpoint: EndpointId,
    /// Which life of it; `None` until it has answered or called.
    pub(crate) session: Option<SessionId>,
    /// What that life has said to us when it introduced itself, and nobody else knows.
    pub(crate) token: u64,
    /// Our number for this acquaintance, and the peer's: credits count for this pair of them.
    pub(crate) epoch: u16,
    pub(crate) peer_epoch: u16,
    /// The session and number of the peer's that the call of this one was made to, and that is over.
    pub(crate) over: Option<Box<(SessionId, u16)>>,
    /// In whose share of the places it counts.
    pub(crate) source: Source,
    /// The upper layer's word.
    pub(crate) context: u64,
    /// Where messages go out. When the peer has closed it, nothing does any more; see
    /// [`Partner::live_tx`].
    pub(crate) tx: Option<LinkId>,
    pub(crate) links: SmallVec<[Link; 1]>,
    /// The link has room, as far as we know.
    pub(crate) writable: bool,
    /// It stands in the endpoint's queue of partners with something to send.
    pub(crate) ready: bool,
    /// A Credit, or a Return, stands in `control`.
    pub(crate) credit_queued: bool,
    pub(crate) return_queued: bool,
    /// What we lend it, and it us.
    pub(crate) lends: Lender,
    pub(crate) borrows: Borrower,
    /// What we have lent it first, as our introductions say.
    pub(crate) opening: u32,
    /// Largest message that goes with its data; 0 until there is a link.
    pub(crate) eager_max: u32,
    /// What the sending link can do.
    pub(crate) reach: Option<Reach>,
    /// What waits to go out; `None` when nothing does, and sometimes an empty set.
    pub(crate) queues: Option<Box<Queues>>,
    /// Connects that wait for an answer.
    pub(crate) connects: List,
    /// All other operations with it, in the order in which they became that.
    pub(crate) kin: List,
    /// Whether it is still there.
    pub(crate) vigil: Vigil,
    /// It is only the name of a sender that has gone ...
    pub(crate) gone: bool,
    /// ... on so many messages that wait here.
    pub(crate) orphans: u32,
}

/// What is known of a partner's being there; see `endpoint/watch.rs`.
#[derive(Debug, Default)]
pub(crate) struct Vigil {
    /// Something has come from it since the last step.
    pub(crate) heard: bool,
    /// Steps in a row in which nothing came.
    pub(crate) silent: u8,
    /// A ping, or a pong, stands in `control`.
    pub(crate) ping_queued: bool,
    pub(crate) pong_queued: bool,
    /// The end of the step, while it is watched.
    pub(crate) timer: Option<TimerId>,
}

/// One link to a partner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    /// It can carry packets; if it is ours, we have introduced ourselves.
    pub(crate) up: bool,
    /// The peer has introduced itself there: it leads to the acquaintance that the partner stands for.
    pub(crate) met: bool,
    /// The peer has proven there that it knows the site's secret. Without a secret nobody asks.
    pub(crate) proven: bool,
}

/// What a link can do, of its [`Limits`] what is asked for with messages; sizes are at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    pub(crate) data_max: u32,
    pub(crate) pull_block: u32,
    pub(crate) remote_read: bool,
}

impl Reach {
    pub(crate) fn of(limits: Limits) -> Self {
        // No message is longer than 2^32 - 1 bytes.
        let size = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX).max(1);
        Self {
            data_max: size(limits.data_max),
            pull_block: size(limits.pull_block),
            remote_read: limits.remote_read,
        }
    }
}

impl Partner {
    pub(crate) fn new(nic: NicId, endpoint: EndpointId, epoch: u16) -> Self {
        Self {
            nic,
            endpoint,
            session: None,
            token: 0,
            epoch,
            peer_epoch: 0,
            over: None,
            source: Source::TRUSTED,
            context: 0,
            tx: None,
            links: SmallVec::new(),
            writable: true,
            ready: false,
            credit_queued: false,
            return_queued: false,
            lends: Lender::default(),
            borrows: Borrower::default(),
            opening: 0,
            eager_max: 0,
            reach: None,
            queues: None,
            connects: List::EMPTY,
            kin: List::EMPTY,
            vigil: Vigil::default(),
            gone: false,
            orphans: 0,
        }
    }

    /// The name that stays on `orphans` messages of this one.
    pub(crate) fn ghost(&self, orphans: u32) -> Self {
        Self {
            session: self.session,
            source: self.source,
            context: self.context,
            gone: true,
            orphans,
            ..Self::new(self.nic, self.endpoint, 0)
        }
    }

    /// Is this one of its links?
    #[inline]
    pub(crate) fn owns(&self, link: LinkId) -> bool {
        self.links.iter().any(|known| known.id == link)
    }

    /// Has the peer proven the site's secret on that link?
    #[inline]
    pub(crate) fn proven_on(&self, link: LinkId) -> bool {
        self.links
            .iter()
            .any(|known| known.id == link && known.proven)
    }

    /// The link that messages go out on, unless it has ended.
    pub(crate) fn live_tx(&self) -> Option<LinkId> {
        self.tx.filter(|tx| self.owns(*tx))
    }

    /// Is `epoch` of the peer's `session` known to be over, because it has begun another one since or
    /// has ended it? Nobody goes through half of all numbers while a packet is on its way.
    pub(crate) fn is_over(&self, session: SessionId, epoch: u16) -> bool {
        let before = |other: u16| other.wrapping_sub(epoch).wrapping_sub(1) < u16::MAX / 2;
        match (self.session, self.over.as_deref()) {
            (Some(present), _) => session == present && before(self.peer_epoch),
            (None, Some((last, over))) => session == *last && (epoch == *over || before(*over)),
            (None, None) => false,
        }
    }

    /// Something could go out.
    pub(crate) fn wants_out(&self) -> bool {
        self.queues.as_ref().is_some_and(|queues| {
            queues.partial.is_some()
                || !queues.control.is_empty()
                || !queues.streams.is_empty()
                || self.may_speak(queues)
        })
    }

    /// Something in these lanes may be able to go, or is worth a packet that says so.
    fn may_speak(&self, queues: &Queues) -> bool {
        let moves = |lane: &Lane| {
            let any = !queues.lanes[*lane as usize].is_empty();
            queues.has_copy(*lane) || any && self.borrows.means(1, *lane).is_some()
        };
        Lane::ALL.iter().any(moves) || self.borrows.wanted(queues.cost) > 0
    }

    /// A message posted now may go out at once without overtaking another.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        let clear = |queues: &Queues| {
            !queues.has_messages() && queues.partial.is_none() && queues.control.is_empty()
        };
        self.writable && self.queues.as_deref().is_none_or(clear)
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

    /// The same to put something in.
    pub(crate) fn fill_queues(&mut self, spares: &mut Spares) -> &mut Queues {
        spares.fill(&mut self.queues)
    }

    /// Gives empty queues back.
    #[inline]
    pub(crate) fn tidy_queues(&mut self, spares: &mut Spares) {
        spares.tidy(&mut self.queues);
    }

    /// Messages wait for their turn.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.queues().is_some_and(Queues::has_messages)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity {
            nic: self.nic,
            endpoint: self.endpoint,
            session: self.session.unwrap_or(SessionId(0)),
        }
    }
}

/// All partners of one endpoint, by id and by address.
#[derive(Debug)]
pub(crate) struct Partners {
    table: Table<Partner>,
    by_name: HashMap<(NicId, EndpointId), PartnerId, RandomState>,
    next_epoch: u16,
    places: Shares,
    room: Claim,
}

impl Partners {
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

    /// A new acquaintance.
    pub(crate) fn add(&mut self, nic: NicId, endpoint: EndpointId, source: Source) -> PartnerId {
        let epoch = self.next_epoch;
        self.next_epoch = epoch.checked_add(1).unwrap_or(1);
        self.add_as(epoch, nic, endpoint, source)
    }

    /// One that the peer knows, or will know, by this epoch.
    pub(crate) fn add_as(
        &mut self,
        epoch: u16,
        nic: NicId,
        endpoint: EndpointId,
        source: Source,
    ) -> PartnerId {
        let mut partner = Partner::new(nic, endpoint, epoch);
        partner.source = source;
        self.places.take(source, 1);
        let name = (nic, endpoint);
        let (index, generation) = self.table.insert(partner);
        let id = PartnerId::new(index, generation);
        self.by_name.insert(name, id);
        id
    }

    /// A name that nobody is reached by.
    pub(crate) fn add_ghost(&mut self, ghost: Partner) -> PartnerId {
        self.places.take(ghost.source, 1);
        let (index, generation) = self.table.insert(ghost);
        PartnerId::new(index, generation)
    }

    #[inline]
    pub(crate) fn of(&self, id: PartnerId) -> Option<&Partner> {
        self.table.get(id.index(), id.generation())
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, id: PartnerId) -> Option<&mut Partner> {
        self.table.get_mut(id.index(), id.generation())
    }

    /// The partner at a place in the table.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Partner> {
        self.table.at_mut(index)
    }

    /// Who has a place in the table.
    pub(crate) fn at(&self, index: u32) -> Option<PartnerId> {
        let generation = self.table.generation_of(index)?;
        Some(PartnerId::new(index, generation))
    }

    /// See [`crate::Endpoint::is_crowded_by`].
    pub(crate) fn is_crowded_by(&self, id: PartnerId) -> bool {
        self.of(id)
            .is_some_and(|partner| partner.lends.is_over_quota())
    }

    pub(crate) fn find(&self, nic: NicId, endpoint: EndpointId) -> Option<PartnerId> {
        self.by_name.get(&(nic, endpoint)).copied()
    }

    /// Who is known under a name, in whichever life.
    pub(crate) fn namesake(&self, who: &Identity) -> Option<(PartnerId, &Partner)> {
        let id = self.find(who.nic, who.endpoint)?;
        Some((id, self.of(id)?))
    }

    pub(crate) fn find_target(&self, target: Target) -> Option<PartnerId> {
        self.find(target.nic, target.endpoint)
    }

    pub(crate) fn take(&mut self, id: PartnerId) -> Option<Partner> {
        let partner = self.table.remove(id.index(), id.generation())?;
        let operations = [partner.kin, partner.connects];
        debug_assert_eq!(operations, [List::EMPTY; 2], "operations with {id:?}");
        self.places.give_back(partner.source, 1);
        let name = (partner.nic, partner.endpoint);
        if self.by_name.get(&name) == Some(&id) {
            self.by_name.remove(&name);
        }
        Some(partner)
    }

    /// Gives a partner the address it says it has.
    pub(crate) fn rename(&mut self, id: PartnerId, nic: NicId, endpoint: EndpointId) {
        let Some(partner) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        let old = (partner.nic, partner.endpoint);
        (partner.nic, partner.endpoint) = (nic, endpoint);
        if self.by_name.get(&old) == Some(&id) {
            self.by_name.remove(&old);
        }
        self.by_name.insert((nic, endpoint), id);
    }

    pub(crate) fn ids(&self) -> Vec<PartnerId> {
        self.table
            .iter()
            .map(|((index, generation), _)| PartnerId::new(index, generation))
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
            let mut partner = Partner::new(NicId(1), EndpointId(0), 1);
            assert!(!partner.is_over(session, now));
            partner.session = Some(session);
            partner.peer_epoch = now;
            let later = |by: u16| now.wrapping_add(by);
            assert!(!partner.is_over(session, now));
            assert!(!partner.is_over(session, later(1)) && !partner.is_over(session, later(1000)));
            assert!(partner.is_over(session, later(u16::MAX)));
            assert!(partner.is_over(session, now.wrapping_sub(1000)));
            assert!(!partner.is_over(other, now.wrapping_sub(1)));
            // It has ended: so has its number.
            partner.session = None;
            partner.over = Some(Box::new((session, now)));
            assert!(partner.is_over(session, now));
            assert!(partner.is_over(session, now.wrapping_sub(1)));
            assert!(!partner.is_over(session, later(1)) && !partner.is_over(other, now));
        }
    }
}
