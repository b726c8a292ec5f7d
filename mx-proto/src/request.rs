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

use crate::ids::{MatchBits, PartnerId, RequestId};
use crate::matching::{Position, PostedKey};
use crate::moves::{self, Stage};
use crate::port::RemoteKey;
use crate::table::Table;
use crate::timer::TimerId;
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

#[derive(Debug)]
pub(crate) enum State {
    /// A send waiting for its turn.
    Queued { to: PartnerId, synchronous: bool },
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
    /// Every change of its state.
    #[inline]
    pub(crate) fn become_next(&mut self, next: State) {
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
pub(crate) type Requests<M> = Table<Request<M>>;

impl<M> Requests<M> {
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
        let (index, generation) = self.insert(request);
        RequestId::new(index, generation)
    }

    #[inline]
    pub(crate) fn of(&self, id: RequestId) -> Option<&Request<M>> {
        self.get(id.index(), id.generation())
    }

    #[inline]
    pub(crate) fn of_mut(&mut self, id: RequestId) -> Option<&mut Request<M>> {
        self.get_mut(id.index(), id.generation())
    }

    #[inline]
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Request<M>> {
        self.remove(id.index(), id.generation())
    }

    /// Every operation.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        self.iter()
            .map(|((index, generation), _)| RequestId::new(index, generation))
            .collect()
    }

    /// Every operation that involves `partner`.
    pub(crate) fn with_partner(&self, partner: PartnerId) -> Vec<RequestId> {
        self.iter()
            .filter(|(_, request)| request.state.partner() == Some(partner))
            .map(|((index, generation), _)| RequestId::new(index, generation))
            .collect()
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
