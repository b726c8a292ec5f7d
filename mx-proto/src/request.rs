//! The life of one posted operation.
//!
//! ```text
//!   send     Queued --offer--> Offered --pull--> Serving --notify--> done
//!              |  `--data all taken--> done
//!              `-----data taken, memory kept by the port--> Draining --> done
//!   receive  Posted --matches an offer--> Pulling --all there--> done
//!              ^  `--matches data--> done    |
//!              `---- sender withdraws -------'
//!   connect  Connecting --reply--> done
//! ```
//!
//! [`crate::moves`] has all of them as a table.
//!
//! Knows nothing of: queues, the wire, ports.

use crate::by_partner::ByPartner;
use crate::ids::{MatchBits, PartnerId, RequestId};
use crate::matching::{Position, PostedKey};
use crate::moves::{self, Stage};
use crate::port::RemoteKey;
use crate::queues::Place;
use crate::table::Table;
use crate::timer::TimerId;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::time::Duration;

/// The partner of an operation that never had one. A receive that is just being made is a send to
/// nobody, until the tables that name each other both have it.
pub(crate) const NOBODY: PartnerId = PartnerId::new(u32::MAX, 0);

/// One operation that has not completed.
#[derive(Debug)]
pub(crate) struct Request<M> {
    pub(crate) context: u64,
    pub(crate) bits: MatchBits,
    /// `None` for connects.
    pub(crate) memory: Option<M>,
    pub(crate) timer: Option<TimerId>,
    /// Once it has been matched, or if it is a connect.
    pub(crate) patience: Patience,
    /// Before that: a send's wait for its turn and its receiver, a receive's for a message.
    pub(crate) waiting: Patience,
    /// Something has happened since the timer was last looked at.
    pub(crate) touched: bool,
    pub(crate) state: State,
}

/// How long an operation may go without progress, in four bytes: whole milliseconds, not less than
/// asked for; 0 stands for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patience(u32);

impl Patience {
    pub(crate) const FOR_EVER: Self = Self(0);

    /// Spans of more than 49 days are for ever, those below a millisecond are one.
    pub(crate) fn new(span: Option<Duration>) -> Self {
        let millis = span.map(|span| span.as_nanos().div_ceil(1_000_000).max(1));
        Self(millis.map_or(0, |millis| u32::try_from(millis).unwrap_or(0)))
    }

    /// `None`: for ever.
    pub(crate) fn span(self) -> Option<Duration> {
        (self.0 != 0).then(|| Duration::from_millis(self.0.into()))
    }
}

/// The two time-outs of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeOuts {
    /// Of a transfer, or a connect.
    pub(crate) transfer: Patience,
    /// Of what waits to be matched.
    pub(crate) waiting: Patience,
}

impl TimeOuts {
    /// What a posted receive begins with: it waits for ever.
    #[inline]
    pub(crate) fn of_receive(self) -> Self {
        Self {
            waiting: Patience::FOR_EVER,
            ..self
        }
    }
}

/// How a queued message goes when it is its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// With its data if it is small and there is credit, as an offer otherwise.
    Standard,
    /// As an offer.
    Synchronous,
    /// With its data, for which credit has been reserved: its sender takes it for complete.
    Reserved,
}

#[derive(Debug)]
pub(crate) enum State {
    /// A send waiting for its turn.
    Queued {
        to: PartnerId,
        place: Place,
    },
    /// A send whose message the port has taken, but whose memory it still reads.
    Draining { to: PartnerId },
    /// A send the receiver knows of.
    Offered {
        to: PartnerId,
        exposed: Option<RemoteKey>,
    },
    /// A send whose data the receiver has begun to ask for.
    Serving {
        to: PartnerId,
        exposed: Option<RemoteKey>,
    },
    /// A receive no message has matched.
    Posted { key: PostedKey },
    /// A receive whose data is on its way.
    Pulling(Pulling),
    /// A connect.
    Connecting { to: PartnerId, key: u32 },
}

/// A receive that has matched an offer.
#[derive(Debug)]
pub(crate) struct Pulling {
    pub(crate) from: PartnerId,
    /// What the sender calls it.
    pub(crate) send_id: u64,
    /// The sender's match bits.
    pub(crate) bits: MatchBits,
    /// Bytes of the message.
    pub(crate) length: u32,
    /// Bytes we want of it: what fits.
    pub(crate) wanted: u32,
    /// Bytes we have asked for.
    pub(crate) requested: u32,
    /// Bytes that are there.
    pub(crate) received: u32,
    /// Where to read it from by ourselves.
    pub(crate) key: Option<RemoteKey>,
    /// The token of a read under way.
    pub(crate) read: Option<u64>,
    /// The sender has called the message off while we are reading it.
    pub(crate) withdrawn: bool,
    /// Where it stood among the posted receives; `None` if it was made for this very message.
    pub(crate) position: Option<Position>,
}

impl Pulling {
    /// The beginning: nothing has been asked for, and how much is wanted is not known yet.
    pub(crate) fn new(
        from: PartnerId,
        (send_id, key): (u64, Option<RemoteKey>),
        bits: MatchBits,
        length: u32,
        position: Option<Position>,
    ) -> Self {
        Self {
            from,
            send_id,
            bits,
            length,
            wanted: 0,
            requested: 0,
            received: 0,
            key,
            read: None,
            withdrawn: false,
            position,
        }
    }
}

impl<M> Request<M> {
    /// Every change of its state that leaves it with the same partner; for the others, and those to
    /// and from `Pulling` and from `Queued`, see [`Requests::change`].
    #[inline]
    pub(crate) fn become_next(&mut self, next: State) {
        debug_assert!(!self.state.is_queued() || next.is_queued());
        debug_assert_eq!(self.state.owner(), next.owner());
        debug_assert_eq!(self.state.pulled(), next.pulled());
        moves::note(self.state.stage(), next.stage());
        self.state = next;
    }

    /// The time-out that counts in its present state.
    pub(crate) fn limit(&self) -> Patience {
        if self.state.is_waiting() {
            self.waiting
        } else {
            self.patience
        }
    }
}

/// All operations of one endpoint.
#[derive(Debug)]
pub(crate) struct Requests<M> {
    table: Table<Request<M>>,
    /// Those that are with a partner, connects aside: a partner knows its connects.
    by_partner: ByPartner,
    /// Receives whose data is on its way, by its sender and the sender's name for it. Should a sender
    /// give two messages the same name, the younger one has it.
    pulls: HashMap<(PartnerId, u64), RequestId, RandomState>,
}

impl<M> Requests<M> {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            by_partner: ByPartner::default(),
            pulls: HashMap::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Always inlined: a request is built where it will lie, not copied there.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        context: u64,
        bits: MatchBits,
        memory: Option<M>,
        timeouts: TimeOuts,
        state: State,
    ) -> RequestId {
        moves::note(Stage::New, state.stage());
        let (owner, pulled) = (state.owner(), state.pulled());
        let request = Request {
            context,
            bits,
            memory,
            timer: None,
            patience: timeouts.transfer,
            waiting: timeouts.waiting,
            touched: false,
            state,
        };
        let (index, generation) = self.table.insert(request);
        let id = RequestId::new(index, generation);
        self.enter(id, owner, pulled);
        id
    }

    /// A change of its state that gives it another partner or a message to pull, or its turn.
    pub(crate) fn change(&mut self, id: RequestId, next: State) {
        let Some(request) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        moves::note(request.state.stage(), next.stage());
        let (owner, pulled) = (next.owner(), next.pulled());
        let before = std::mem::replace(&mut request.state, next);
        if (before.owner(), before.pulled()) != (owner, pulled) {
            self.exit(id, before.owner(), before.pulled());
            self.enter(id, owner, pulled);
        }
    }

    #[inline]
    fn enter(&mut self, id: RequestId, owner: Option<PartnerId>, pulled: Option<(PartnerId, u64)>) {
        if let Some(partner) = owner {
            self.by_partner.join(partner, id.index());
        }
        if let Some(name) = pulled {
            self.pulls.insert(name, id);
        }
    }

    #[inline]
    fn exit(&mut self, id: RequestId, owner: Option<PartnerId>, pulled: Option<(PartnerId, u64)>) {
        if let Some(partner) = owner {
            self.by_partner.leave(partner, id.index());
        }
        if let Some(name) = pulled
            && self.pulls.get(&name) == Some(&id)
        {
            self.pulls.remove(&name);
        }
    }

    #[inline]
    pub(crate) fn of(&self, id: RequestId) -> Option<&Request<M>> {
        self.table.get(id.index(), id.generation())
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, id: RequestId) -> Option<&mut Request<M>> {
        self.table.get_mut(id.index(), id.generation())
    }

    #[inline]
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Request<M>> {
        // Looked at where it lies, so that it is copied only once.
        let state = &self.of(id)?.state;
        let (owner, pulled) = (state.owner(), state.pulled());
        self.exit(id, owner, pulled);
        self.table.remove(id.index(), id.generation())
    }

    /// The receive that pulls what `from` calls `send_id`.
    pub(crate) fn pulling(&self, from: PartnerId, send_id: u64) -> Option<RequestId> {
        self.pulls.get(&(from, send_id)).copied()
    }

    /// Every operation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Request<M>)> {
        let all = self.table.iter();
        all.map(|((index, generation), request)| (RequestId::new(index, generation), request))
    }

    /// Every operation that involves `partner`, connects aside, oldest first.
    pub(crate) fn with_partner(&self, partner: PartnerId) -> Vec<RequestId> {
        let id = |index| Some(RequestId::new(index, self.table.generation_of(index)?));
        self.by_partner.of(partner).filter_map(id).collect()
    }
}

impl State {
    /// Nothing has matched it.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(
            self,
            Self::Queued { .. } | Self::Offered { .. } | Self::Posted { .. }
        )
    }

    /// A send that waits for its turn.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self, Self::Queued { to, .. } if *to != NOBODY)
    }

    /// A send that the receiver knows of.
    pub(crate) fn is_announced(&self) -> bool {
        matches!(
            self,
            Self::Draining { .. } | Self::Offered { .. } | Self::Serving { .. }
        )
    }

    /// Its name.
    pub(crate) fn stage(&self) -> Stage {
        match self {
            Self::Queued { to, .. } if *to == NOBODY => Stage::New,
            Self::Queued { .. } => Stage::Queued,
            Self::Draining { .. } => Stage::Draining,
            Self::Offered { .. } => Stage::Offered,
            Self::Serving { .. } => Stage::Serving,
            Self::Posted { .. } => Stage::Posted,
            Self::Pulling(_) => Stage::Pulling,
            Self::Connecting { .. } => Stage::Connecting,
        }
    }

    /// Whose it is among [`Requests::with_partner`].
    #[inline]
    fn owner(&self) -> Option<PartnerId> {
        match self {
            Self::Posted { .. } | Self::Connecting { .. } => None,
            Self::Queued { to, .. } if *to == NOBODY => None,
            Self::Queued { to, .. }
            | Self::Draining { to }
            | Self::Offered { to, .. }
            | Self::Serving { to, .. } => Some(*to),
            Self::Pulling(pulling) => Some(pulling.from),
        }
    }

    /// The message whose data is on its way: its sender, and the sender's name for it.
    #[inline]
    fn pulled(&self) -> Option<(PartnerId, u64)> {
        match self {
            Self::Pulling(pulling) => Some((pulling.from, pulling.send_id)),
            _ => None,
        }
    }

    /// The other side, once it is known.
    pub(crate) fn partner(&self) -> Option<PartnerId> {
        match self {
            Self::Queued { to, .. }
            | Self::Draining { to }
            | Self::Offered { to, .. }
            | Self::Serving { to, .. }
            | Self::Connecting { to, .. } => Some(*to),
            Self::Pulling(pulling) => Some(pulling.from),
            Self::Posted { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MatchMask;
    use crate::matching;

    #[test]
    fn those_of_a_partner_are_found_whatever_became_of_them() {
        mx_sim::seeds::each(500, |seed| {
            let mut rng = mx_sim::Rng::new(seed);
            let mut requests = Requests::<Vec<u8>>::new();
            let mut posted = matching::Posted::default();
            let (bits, mask) = (MatchBits(0), MatchMask::EXACT);
            let partner = |n: u64| PartnerId::new(n as u32, 1);
            let timeouts = TimeOuts {
                transfer: Patience::FOR_EVER,
                waiting: Patience::FOR_EVER,
            };
            let mut ids = Vec::new();
            for n in 0..rng.below(100) {
                let to = partner(rng.below(3));
                let pulling = |from| {
                    let position = None;
                    State::Pulling(Pulling::new(from, (n, None), bits, 0, position))
                };
                let any = (!ids.is_empty()).then(|| ids[rng.index(ids.len())]);
                let stage = any.and_then(|id| Some(requests.of(id)?.state.stage()));
                match (rng.below(3), any, stage) {
                    (0, Some(id), _) => {
                        assert!(requests.take(id).is_some());
                        ids.retain(|other| *other != id);
                    }
                    (1, Some(id), Some(Stage::Posted)) => requests.change(id, pulling(to)),
                    (1, Some(id), Some(Stage::Pulling)) => {
                        let key = posted.post(bits, mask, id);
                        requests.change(id, State::Posted { key });
                    }
                    (1, Some(id), Some(Stage::Queued)) => {
                        let to = requests.of(id).and_then(|request| request.state.partner());
                        requests.change(id, State::Draining { to: to.unwrap() });
                    }
                    _ => {
                        let state = match rng.below(3) {
                            0 => State::Queued { to, place: Place::NOWHERE },
                            1 => State::Connecting { to, key: 0 },
                            _ => pulling(to),
                        };
                        ids.push(requests.add(0, bits, None, timeouts, state));
                    }
                }
                for n in 0..3 {
                    let theirs = |state: &State| {
                        state.partner() == Some(partner(n)) && state.stage() != Stage::Connecting
                    };
                    let all = requests.iter();
                    let theirs = all.filter(|(_, request)| theirs(&request.state));
                    let mut expected: Vec<_> = theirs.map(|(id, _)| id.to_word()).collect();
                    let found = requests.with_partner(partner(n)).into_iter();
                    let mut found: Vec<_> = found.map(RequestId::to_word).collect();
                    expected.sort_unstable();
                    found.sort_unstable();
                    assert_eq!(found, expected);
                }
                let all = requests.iter();
                let pulls = all.filter_map(|(id, request)| Some((request.state.pulled()?, id)));
                assert_eq!(requests.pulls, pulls.collect());
            }
        });
    }

    #[test]
    fn patience_is_never_shorter_than_what_was_asked_for() {
        let span = |span| Patience::new(Some(span)).span();
        assert_eq!(Patience::new(None).span(), None);
        let millis = Duration::from_millis;
        assert_eq!(span(Duration::ZERO), Some(millis(1)));
        assert_eq!(span(Duration::from_nanos(1_000_001)), Some(millis(2)));
        let longest = millis(u32::MAX.into());
        assert_eq!(span(longest), Some(longest));
        assert_eq!(span(longest + Duration::from_nanos(1)), None);
        assert_eq!(span(Duration::MAX), None);
    }
}
