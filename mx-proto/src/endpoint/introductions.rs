//! Verification of a link's first hello before it becomes a remote.
//!
//! ```text
//!   hello --> CLAIMED --> (CHALLENGED) --proof of the port--> (ASKING) --> (NEWCOMER) --> remote, Reply
//!                |          |    with a      |                 the claimed   an old life of
//!                |          |    secret      | refuted         address       that name, and
//!                |          |                |                   |           the claimed address
//!                |          | wrong          |                   | no, silent | it answers
//!                `----------+----------------+-------------------+------------+-----> refused, closed
//! ```
//!
//! An old life is over when its link is down, when it has not answered a Ping for a second, or,
//! where a death does not show on its link, when the claimed address confirms the new one.
//!
//! Most hellos pass all steps in the poll that brings them: a claim proven by the network needs no
//! question, and a new name has no old life. Every stranger's hello is handled here, and so is the
//! answer to our connect if it names another peer than the one connected to. Packets behind such an
//! answer wait until it is proven.
//!
//! The port must not be called while it is polled: events are noted here and handled after the poll
//! (`steps`). The site's secret is checked in `challenges`.
//!
//! Owns: waiting hellos, the links to claimed addresses, old remotes that have been sent a Ping.
//! Not here: addresses.
//! Cost: O(1) for each introduction.

mod challenges;
mod steps;

pub(super) use challenges::{Challenges, REFUSED, UNASKED, UNVOUCHED};

use super::deadlines::Deadline;
use crate::ids::{LinkId, RemoteId, Route};
use crate::log_limit::LogLimit;
use crate::memory::Source as Bytes;
use crate::origin::{Address, Source};
use crate::port::{HEADER_LEN, HeaderBytes, LinkDown};
use crate::secret::Binding;
use crate::shares::Shares;
use crate::timer::{TimerId, Wheel};
use crate::wire::{ChallengeBody, ConfirmBody, Header, Hello};
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// All introductions of an endpoint.
#[derive(Debug)]
pub(super) struct Introductions {
    waiting: HashMap<LinkId, Introduction, RandomState>,
    /// Our links to claimed addresses: whose introduction each is about.
    asking: HashMap<LinkId, LinkId, RandomState>,
    /// Old lives that are sent a Ping, because a new one claims their name.
    doubts: HashMap<RemoteId, Doubt, RandomState>,
    /// Work to be done after the poll.
    due: VecDeque<Due>,
    /// Each source's share of the waiting introductions.
    shares: Shares,
    /// Sources that have been refused.
    refused: LogLimit<Source>,
    /// Refusals of other versions.
    versions: LogLimit<()>,
    /// The number of the last question to an old remote.
    serial: u64,
}

/// One link whose peer has sent a hello.
#[derive(Debug)]
struct Introduction {
    /// The remote that we connected to there; `None` for a stranger's link.
    from: Option<RemoteId>,
    header: Header,
    hello: Hello,
    /// Further Connects of the same stranger.
    more: Vec<(Header, Hello)>,
    /// Packets behind the answer to our connect.
    behind: Vec<(HeaderBytes, Vec<u8>)>,
    behind_bytes: usize,
    /// It has proven the site's secret on that link before, or is not asked.
    trusted: bool,
    /// Its source; the port is asked for it after the poll.
    source: Source,
    /// The address that it comes from, where its claim is to be asked elsewhere.
    seen_at: Address,
    /// It waits, and counts in its source's share.
    placed: bool,
    /// The claimed address is being asked, on that link of ours.
    asks: Option<(LinkId, TimerId)>,
    /// It has confirmed the claim.
    confirmed: bool,
    stage: Stage,
}

/// The state of an introduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is to be looked at.
    Claimed,
    /// It has been asked for the site's secret, with the nonce of that number.
    Challenged(u64, Binding),
    /// The claimed address is being asked.
    Asking,
    /// Its identity is proven; an old life has been sent a Ping.
    Newcomer(RemoteId),
}

/// A remote that is asked whether it is still there.
#[derive(Debug)]
struct Doubt {
    serial: u64,
    timer: TimerId,
    /// A call of ours has met another life of it.
    ours: bool,
    /// The links that claim its name.
    newcomers: Vec<LinkId>,
}

/// A step to be done for one introduction.
#[derive(Debug)]
pub(super) enum Due {
    Look(LinkId),
    /// Its peer has proven the site's secret.
    Trust(LinkId),
    /// The peer that we connected to has sent a challenge.
    Challenge(LinkId, RemoteId, Box<ChallengeBody>),
    /// A peer asks whether a hello was ours.
    Confirm(LinkId, ConfirmBody),
    /// A claimed address has answered, or does not.
    Asked(LinkId, Option<bool>),
    /// It is to be tried over another route.
    AskElsewhere(LinkId, Route),
    /// A remote is to be asked whether it is still there.
    Doubt(RemoteId),
    /// It is, or it is not.
    Answered(RemoteId, bool),
}

impl Introductions {
    /// `share`: percent of the places that others leave, for introductions from one source.
    pub(super) fn new(share: u8) -> Self {
        Self {
            waiting: HashMap::default(),
            asking: HashMap::default(),
            doubts: HashMap::default(),
            due: VecDeque::new(),
            shares: Shares::new(WAITING_MAX, share),
            refused: LogLimit::default(),
            versions: LogLimit::default(),
            serial: 0,
        }
    }

    /// The number of waiting links.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Something is to be done at once.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// That is to be done at once.
    pub(super) fn note(&mut self, due: Due) {
        self.due.push_back(due);
    }

    /// Whether packets on this link wait for its introduction.
    pub(super) fn holds(&self, link: LinkId) -> bool {
        self.waiting.contains_key(&link)
    }

    fn begin(
        &mut self,
        link: LinkId,
        from: Option<RemoteId>,
        (header, hello): (Header, Hello),
        trusted: bool,
    ) {
        let introduction = Introduction {
            from,
            header,
            hello,
            more: Vec::new(),
            behind: Vec::new(),
            behind_bytes: 0,
            trusted,
            source: Source::TRUSTED,
            seen_at: Address::default(),
            placed: false,
            asks: None,
            confirmed: false,
            stage: Stage::Claimed,
        };
        self.waiting.insert(link, introduction);
        self.due.push_back(Due::Look(link));
    }

    /// Bytes of packets behind an answer that waits, once there is one more with so long a body.
    pub(super) fn bytes_behind(&self, link: LinkId, len: usize) -> usize {
        let behind = self.waiting.get(&link).map_or(0, |it| it.behind_bytes);
        behind + len + HEADER_LEN + size_of::<Vec<u8>>()
    }

    /// A packet that came there.
    pub(super) fn put_behind<B: Bytes + ?Sized>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &B,
    ) {
        let bytes = self.bytes_behind(link, body.len());
        if let Some(introduction) = self.waiting.get_mut(&link) {
            introduction.behind_bytes = bytes;
            introduction.behind.push((*header, body.to_vec()));
        }
    }

    /// Takes an introduction out. The link of ours that was asking about it is to be closed.
    fn take(
        &mut self,
        link: LinkId,
        wheel: &mut Wheel<Deadline>,
    ) -> Option<(Introduction, Option<LinkId>)> {
        let introduction = self.waiting.remove(&link)?;
        if introduction.placed {
            self.shares.give_back(introduction.source, 1);
        }
        let ours = introduction.asks.map(|(ours, timer)| {
            wheel.clear_of(timer, Deadline::Asking(ours));
            self.asking.remove(&ours);
            ours
        });
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT {
            self.waiting = HashMap::default();
        }
        Some((introduction, ours))
    }

    /// Counts a hello of another version: `Some` if it is to be logged, with how many there were.
    pub(super) fn note_version(&mut self) -> Option<u64> {
        self.versions.again(())
    }

    /// Makes an introduction wait, if its source may have another one.
    fn may_wait(&mut self, link: LinkId) -> bool {
        let Some(introduction) = self.waiting.get_mut(&link) else {
            return false;
        };
        let source = introduction.source;
        // Calls are our own, and as many as we have begun.
        let free = introduction.from.is_some() || self.shares.may_take(source, 1);
        if !introduction.placed && free {
            introduction.placed = true;
            self.shares.take(source, 1);
        }
        introduction.placed
    }

    /// A remote is no more.
    #[inline]
    pub(super) fn gone(&mut self, id: RemoteId) {
        if !self.doubts.is_empty() && self.doubts.contains_key(&id) {
            self.due.push_back(Due::Answered(id, false));
        }
    }

    /// A remote has answered the question of that number.
    pub(super) fn answered(&mut self, id: RemoteId, serial: u64) {
        if self.doubts.get(&id).is_some_and(|of| of.serial == serial) {
            self.due.push_back(Due::Answered(id, true));
        }
    }

    /// A call of ours has led to another life than this remote's.
    pub(super) fn doubt(&mut self, id: RemoteId) {
        self.due.push_back(Due::Doubt(id));
    }

    /// A claimed address has said whether it knows of the claim. False: it has not been asked.
    pub(super) fn confirmed(&mut self, ours: LinkId, yes: bool) -> bool {
        let asked = self.asking.contains_key(&ours);
        if asked {
            self.due.push_back(Due::Asked(ours, Some(yes)));
        }
        asked
    }

    /// A link of ours to a claimed address is down. False: it is no such link.
    pub(super) fn ask_failed(&mut self, ours: LinkId, reason: LinkDown) -> bool {
        let asked = self.asking.contains_key(&ours);
        if asked {
            self.due.push_back(match reason {
                LinkDown::Elsewhere(route) => Due::AskElsewhere(ours, route),
                _ => Due::Asked(ours, None),
            });
        }
        asked
    }

    /// Whether the claim of the introduction on that link is being checked.
    fn asks_on(&self, link: LinkId) -> bool {
        self.waiting.get(&link).is_some_and(|of| of.asks.is_some())
    }

    /// The claim on `link` is asked about on `ours`, which has until `timer`.
    fn ask_on(&mut self, link: LinkId, ours: LinkId, timer: TimerId) {
        if let Some(introduction) = self.waiting.get_mut(&link) {
            introduction.asks = Some((ours, timer));
            self.asking.insert(ours, link);
        }
    }

    /// Ends the question on `ours`, our link to a claimed address. The introduction it was about.
    fn ended_asking(
        &mut self,
        ours: LinkId,
        wheel: &mut Wheel<Deadline>,
    ) -> Option<(LinkId, &mut Introduction)> {
        let link = self.asking.remove(&ours)?;
        let introduction = self.waiting.get_mut(&link)?;
        if let Some((_, timer)) = introduction.asks.take_if(|asks| asks.0 == ours) {
            wheel.clear_of(timer, Deadline::Asking(ours));
        }
        Some((link, introduction))
    }
}

/// The time-out of a question to a claimed address. A port drops a stranger's link after 5 s.
const ASK_TIME: Duration = Duration::from_secs(3);
/// The time-out of the Ping to a remote whose name is claimed with proof.
const OLD_TIME: Duration = Duration::from_secs(1);
/// Limit of waiting introductions, of all sources.
const WAITING_MAX: usize = 1024;
/// Connects that wait behind the first of the same stranger.
const MORE_MAX: usize = 16;
/// Places kept when none waits.
const KEPT: usize = 64;
