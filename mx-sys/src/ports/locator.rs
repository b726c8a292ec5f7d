//! "Who are you on the fabric?": asked over TCP before a link over libfabric can begin.
//!
//! ```text
//!   asker                                         answerer
//!   an rdm link is reserved
//!   a TCP link is made ------------------------->
//!   LOCATE, our card --------------------------->  its locator, not its endpoint
//!                                                  an rdm link is made there
//!   rdm link greets <------- ANSWER, its card ---
//!   the TCP link ends                              the TCP link ends
//!
//!   no card, or no answer in 5 s: the rdm link goes down, Elsewhere(tcp)
//! ```
//!
//! A peer of an older version takes the question for a violation and closes the link, which is an
//! answer too. Whoever asks is a stranger and stays one: its TCP link is closed with the answer,
//! and what it makes the fabric's port reserve is bounded there.
//!
//! Owns: which TCP links are the locator's, and what rdm links wait for.
//! Knows nothing of: libfabric, how a card is made or used ([`Fabric`] does).

use super::host::ROUTE_TCP;
use super::owner::{TCP, outer};
use super::rdm::RdmPort;
use super::rdm::card::{ANSWER_MAX, Answer, CARD_MAX, Card, Refusal};
use super::tcp::TcpPort;
use crate::nic;
use mx_proto::port::{
    BODY_LEN_AT, Body, Close, ConnectError, HEADER_LEN, HeaderBytes, LinkDown, Port, SendError,
    Sent, Sink,
};
use mx_proto::{Clock, EndpointId, Instant, LinkId, Memory, NicId, Route, Source, Target};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long a peer may take to say who it is, once it has accepted our connection: its process has
/// to poll once for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Troubles remembered so that they are logged once. Beyond it they begin to be logged again.
const TOLD_MAX: usize = 4096;

/// The version of the question and its answer. Neither is read when it differs.
const VERSION: u16 = 1;

/// Where packets of the MX protocol have their kind and their magic. No kind of theirs is like it.
const KIND: u8 = b'L';
const MAGIC: [u8; 2] = *b"mx";
const VERSION_AT: usize = 8;

/// What the locator needs of the port whose peers it finds. Links have the names they have there.
pub trait Fabric {
    /// Whom it works with. Sides that name different ones cannot understand each other.
    fn provider(&self) -> &str;
    /// Begins a link that waits for a card. When the peer does not answer over the fabric, it ends
    /// with the detour, where there is one.
    fn reserve(&mut self, clock: &dyn Clock, detour: Option<Route>)
    -> Result<LinkId, ConnectError>;
    /// What to tell the peer of such a link. `None` when it is gone.
    fn card(&self, link: LinkId) -> Option<Card>;
    /// A peer wants a link: makes this side's end of it.
    fn answer(&mut self, theirs: &Card, clock: &dyn Clock) -> Result<Card, Refusal>;
    /// The card has come.
    fn greet(&mut self, link: LinkId, theirs: &Card, clock: &dyn Clock);
    /// It will not come: the next poll takes the link down.
    fn give_up(&mut self, link: LinkId, reason: LinkDown);
    /// Links at the moment.
    fn link_count(&self) -> usize;
    /// From now on, whoever sleeps does so on this epoll instance. The port's descriptors go
    /// straight into it: providers nest their own three deep, and the kernel allows five.
    fn wake_through(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()>;
}

impl Fabric for RdmPort {
    fn provider(&self) -> &str {
        self.provider()
    }

    fn reserve(
        &mut self,
        clock: &dyn Clock,
        detour: Option<Route>,
    ) -> Result<LinkId, ConnectError> {
        self.reserve(clock, detour)
    }

    fn card(&self, link: LinkId) -> Option<Card> {
        self.card(link)
    }

    fn answer(&mut self, theirs: &Card, clock: &dyn Clock) -> Result<Card, Refusal> {
        self.answer(theirs, clock)
    }

    fn greet(&mut self, link: LinkId, theirs: &Card, clock: &dyn Clock) {
        self.greet(link, theirs, clock);
    }

    fn give_up(&mut self, link: LinkId, reason: LinkDown) {
        self.give_up(link, reason);
    }

    fn link_count(&self) -> usize {
        self.link_count()
    }

    fn wake_through(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.wake_through(epoll)
    }
}

/// What a packet of the locator's is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Question = 1,
    Answer = 2,
}

/// What is to be done when the TCP port's poll is over.
#[derive(Debug)]
enum Errand {
    /// The link can carry the question.
    Ask(LinkId),
    /// A stranger asks. `None`: it cannot be understood.
    Reply(LinkId, Option<Card>),
    /// We are answered. `None`: it cannot be understood.
    Take(LinkId, Option<Answer>),
    /// The link went down before there was an answer.
    Lost(LinkId, LinkDown),
}

/// A TCP link that finds somebody.
#[derive(Debug)]
struct Asking {
    rdm: LinkId,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Dialling,
    Asked,
    Answered,
}

/// An rdm link on its way up.
#[derive(Debug)]
struct Attempt {
    target: Target,
    /// The address asks for this port: no other one will do.
    strict: bool,
    tcp: LinkId,
    /// Why it will not get there, and the peer's provider.
    trouble: Option<(Trouble, String)>,
}

/// Why a peer is not reached over the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Trouble {
    /// It says so.
    Refused(Refusal),
    /// It accepted the connection and said nothing.
    Silent,
    /// It closed the link over the question, or answered with something else.
    Puzzled,
    /// It answered, but frames do not get through.
    Unheard,
}

/// Finds peers, and is found.
#[derive(Debug, Default)]
pub(super) struct Locator {
    /// By the TCP link.
    asking: HashMap<LinkId, Asking>,
    /// By the rdm link.
    attempts: HashMap<LinkId, Attempt>,
    /// When to stop waiting for an answer, in order. Some may have come.
    deadlines: VecDeque<(Instant, LinkId)>,
    errands: Vec<Errand>,
    /// Strangers of which the endpoint has heard in this poll.
    introduced: Vec<LinkId>,
    told: HashSet<(NicId, EndpointId, Trouble)>,
}

impl Locator {
    /// Begins a link to `target` and the search for it.
    pub(super) fn connect<M: Memory, R: Fabric + Port<M>>(
        &mut self,
        (target, strict): (Target, bool),
        (rdm, tcp): (&mut R, &mut TcpPort),
        clock: &dyn Clock,
    ) -> Result<LinkId, ConnectError> {
        let detour = (!strict).then_some(ROUTE_TCP);
        let link = rdm.reserve(clock, detour)?;
        let carrier = match Port::<M>::connect(tcp, target, clock) {
            Ok(carrier) => carrier,
            Err(error) => {
                Port::<M>::close(rdm, link, Close::Now);
                return Err(error);
            }
        };
        let asking = Asking {
            rdm: link,
            progress: Progress::Dialling,
        };
        let attempt = Attempt {
            target,
            strict,
            tcp: carrier,
            trouble: None,
        };
        self.asking.insert(carrier, asking);
        self.attempts.insert(link, attempt);
        Ok(link)
    }

    /// The endpoint has closed an rdm link.
    pub(super) fn forget<M: Memory>(&mut self, link: LinkId, tcp: &mut TcpPort) {
        if let Some(attempt) = self.attempts.remove(&link)
            && self.asking.remove(&attempt.tcp).is_some()
        {
            Port::<M>::close(tcp, attempt.tcp, Close::Now);
        }
    }

    /// When [`Locator::run`] wants to be called although nothing arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// Does what the last poll of the TCP port, or time, has left to do. Returns true when there
    /// was anything.
    #[inline]
    pub(super) fn run<M: Memory, R: Fabric, S: Sink<M>>(
        &mut self,
        (rdm, tcp): (Option<&mut R>, &mut TcpPort),
        clock: &dyn Clock,
        sink: &mut S,
    ) -> bool {
        let did = match self.errands.is_empty() && self.deadlines.is_empty() {
            true => false,
            false => self.work::<M, R, S>((rdm, tcp), clock, sink),
        };
        self.introduced.clear();
        did
    }

    #[cold]
    fn work<M: Memory, R: Fabric, S: Sink<M>>(
        &mut self,
        (mut rdm, tcp): (Option<&mut R>, &mut TcpPort),
        clock: &dyn Clock,
        sink: &mut S,
    ) -> bool {
        let errands = std::mem::take(&mut self.errands);
        let mut did = !errands.is_empty();
        for errand in errands {
            match (errand, rdm.as_deref_mut()) {
                (Errand::Reply(link, card), rdm) => {
                    reply::<M, R>(rdm, tcp, link, card, clock);
                    // It introduced itself to the endpoint and asked here in one breath.
                    if self.introduced.contains(&link) {
                        sink.on_down(outer(link, TCP), 0, LinkDown::Protocol);
                    }
                }
                (Errand::Ask(link), Some(rdm)) => self.ask::<M, R>(rdm, tcp, link, clock),
                (Errand::Take(link, answer), Some(rdm)) => {
                    Port::<M>::close(tcp, link, Close::Now);
                    self.take(rdm, link, answer, clock);
                }
                (Errand::Lost(link, reason), Some(rdm)) => self.lost(rdm, link, reason),
                // Only who has a port over a fabric asks.
                (_, None) => {}
            }
        }
        let now = clock.now();
        while let Some(&(at, link)) = self.deadlines.front() {
            if now < at && self.asking.contains_key(&link) {
                break;
            }
            self.deadlines.pop_front();
            if let (Some(asking), Some(rdm)) = (self.asking.remove(&link), rdm.as_deref_mut()) {
                did = true;
                Port::<M>::close(tcp, link, Close::Now);
                self.fail(rdm, asking.rdm, Trouble::Silent, String::new());
            }
        }
        did
    }

    /// Sends our card.
    fn ask<M: Memory, R: Fabric>(
        &mut self,
        rdm: &mut R,
        tcp: &mut TcpPort,
        link: LinkId,
        clock: &dyn Clock,
    ) {
        let Some(asking) = self.asking.get_mut(&link) else {
            return;
        };
        if asking.progress != Progress::Dialling {
            return;
        }
        let Some(card) = rdm.card(asking.rdm) else {
            self.asking.remove(&link);
            Port::<M>::close(tcp, link, Close::Now);
            return;
        };
        match send::<M>(tcp, link, What::Question, &card.emit()) {
            Ok(_) => {
                asking.progress = Progress::Asked;
                self.deadlines
                    .push_back((clock.now().after(PATIENCE), link));
            }
            // It says when there is room, or that it is down.
            Err(SendError::WouldBlock | SendError::Down) => {}
        }
    }

    /// The TCP link is one of those that find somebody.
    #[inline]
    pub(super) fn is_asking(&self, link: LinkId) -> bool {
        !self.asking.is_empty() && self.asking.contains_key(&link)
    }

    /// A stranger has asked on this TCP link and will be answered.
    #[inline]
    pub(super) fn is_answering(&self, link: LinkId) -> bool {
        let of_link = |errand: &Errand| matches!(errand, Errand::Reply(to, _) if *to == link);
        !self.errands.is_empty() && self.errands.iter().any(of_link)
    }

    /// The endpoint hears of a stranger.
    #[inline]
    pub(super) fn on_stranger(&mut self, link: LinkId) {
        self.introduced.push(link);
    }

    /// A link of the locator's can carry something.
    pub(super) fn on_room(&mut self, link: LinkId) {
        self.errands.push(Errand::Ask(link));
    }

    /// A link of the locator's is down.
    pub(super) fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.errands.push(Errand::Lost(link, reason));
    }

    /// A packet has come on a link of the locator's.
    #[cold]
    pub(super) fn on_answer<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &B,
    ) {
        let Some(asking) = self.asking.get_mut(&link) else {
            return;
        };
        if asking.progress == Progress::Answered {
            return;
        }
        asking.progress = Progress::Answered;
        let answer = match recognise(header) {
            Some((What::Answer, true)) => {
                bytes_of(body, ANSWER_MAX).and_then(|bytes| Answer::parse(&bytes))
            }
            _ => None,
        };
        self.errands.push(Errand::Take(link, answer));
    }

    /// A stranger has asked; `known`: in our version.
    #[cold]
    pub(super) fn on_question<B: Source + ?Sized>(&mut self, link: LinkId, known: bool, body: &B) {
        let bytes = bytes_of(body, CARD_MAX).filter(|_| known);
        let card = bytes.and_then(|bytes| Card::parse(&bytes));
        self.errands.push(Errand::Reply(link, card));
    }

    fn take<R: Fabric>(
        &mut self,
        rdm: &mut R,
        link: LinkId,
        answer: Option<Answer>,
        clock: &dyn Clock,
    ) {
        let Some(Asking { rdm: link, .. }) = self.asking.remove(&link) else {
            return;
        };
        match answer {
            Some(Answer::Card(card)) if card.provider == rdm.provider() => {
                rdm.greet(link, &card, clock);
            }
            Some(Answer::Card(card)) => {
                self.fail(
                    rdm,
                    link,
                    Trouble::Refused(Refusal::Provider),
                    card.provider,
                );
            }
            Some(Answer::None { why, provider }) => {
                self.fail(rdm, link, Trouble::Refused(why), provider);
            }
            None => self.fail(rdm, link, Trouble::Puzzled, String::new()),
        }
    }

    fn lost<R: Fabric>(&mut self, rdm: &mut R, link: LinkId, reason: LinkDown) {
        let Some(asking) = self.asking.remove(&link) else {
            return;
        };
        match asking.progress {
            // Nobody is there, by whatever way.
            Progress::Dialling => {
                rdm.give_up(asking.rdm, reason);
            }
            // The answer is dealt with.
            Progress::Answered => {}
            Progress::Asked => {
                self.fail(rdm, asking.rdm, Trouble::Puzzled, String::new());
            }
        }
    }

    fn fail<R: Fabric>(&mut self, rdm: &mut R, link: LinkId, trouble: Trouble, theirs: String) {
        if let Some(attempt) = self.attempts.get_mut(&link) {
            attempt.trouble = Some((trouble, theirs));
        }
        rdm.give_up(link, LinkDown::Elsewhere(ROUTE_TCP));
    }

    /// An rdm link is up or down: how an attempt has ended, and what to tell the endpoint.
    pub(super) fn settle(
        &mut self,
        ours: &str,
        link: LinkId,
        end: Option<LinkDown>,
    ) -> Option<LinkDown> {
        let attempt = self.attempts.remove(&link)?;
        let Some(LinkDown::Elsewhere(route)) = end else {
            return end;
        };
        let Target { nic, endpoint, .. } = attempt.target;
        let (trouble, theirs) = attempt.trouble.unwrap_or((Trouble::Unheard, String::new()));
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        // Each way of failing once for each peer: a peer without a fabric is connected to often.
        if self.told.insert((nic, endpoint, trouble)) {
            let line = Line {
                peer: (nic, endpoint),
                ours,
                theirs: &theirs,
                trouble,
            };
            match attempt.strict {
                true => log::warn!("{line}; its address says /rdm, so there is no connection"),
                false => log::warn!("{line}: falling back to tcp"),
            }
        }
        Some(match attempt.strict {
            true => LinkDown::Unreachable,
            false => LinkDown::Elsewhere(route),
        })
    }
}

/// Answers a stranger, whose link ends with it.
fn reply<M: Memory, R: Fabric>(
    rdm: Option<&mut R>,
    tcp: &mut TcpPort,
    link: LinkId,
    card: Option<Card>,
    clock: &dyn Clock,
) {
    let none = |why, provider: &str| Answer::None {
        why,
        provider: provider.to_owned(),
    };
    let answer = match (rdm, card) {
        (None, _) => none(Refusal::NoPort, ""),
        (Some(rdm), None) => none(Refusal::NotUnderstood, rdm.provider()),
        (Some(rdm), Some(card)) => match rdm.answer(&card, clock) {
            Ok(card) => Answer::Card(card),
            Err(why) => none(why, rdm.provider()),
        },
    };
    log::debug!("link {link:?} asks for the fabric: {answer:?}");
    // Into an empty socket buffer, from which the kernel delivers it. Whoever has filled the buffer
    // before, or sends on after its question, may miss the answer.
    if send::<M>(tcp, link, What::Answer, &answer.emit()).is_err() {
        log::debug!("link {link:?}: no room for the answer");
    }
    Port::<M>::close(tcp, link, Close::Now);
}

fn send<M: Memory>(
    tcp: &mut TcpPort,
    link: LinkId,
    what: What,
    body: &[u8],
) -> Result<Sent, SendError> {
    Port::<M>::send(tcp, link, &header(what, body.len()), Body::Bytes(body))
}

fn header(what: What, body_len: usize) -> HeaderBytes {
    let mut header = [0; HEADER_LEN];
    header[0] = KIND;
    header[1] = what as u8;
    header[2..4].copy_from_slice(&MAGIC);
    // Bodies are a few hundred bytes.
    header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(body_len as u32).to_le_bytes());
    header[VERSION_AT..VERSION_AT + 2].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// What a packet is for the locator, and whether its version is ours. `None`: it is the endpoint's.
#[inline]
pub(super) fn recognise(header: &HeaderBytes) -> Option<(What, bool)> {
    if header[0] != KIND || header[2..4] != MAGIC {
        return None;
    }
    let what = match header[1] {
        1 => What::Question,
        2 => What::Answer,
        _ => return None,
    };
    let known = header[VERSION_AT..VERSION_AT + 2] == VERSION.to_le_bytes();
    Some((what, known))
}

/// The bytes of a body, unless there are more than anything of ours has.
fn bytes_of<B: Source + ?Sized>(body: &B, most: usize) -> Option<Vec<u8>> {
    (body.len() <= most).then(|| body.to_vec())
}

/// One line of the log about a peer.
struct Line<'a> {
    peer: (NicId, EndpointId),
    ours: &'a str,
    theirs: &'a str,
    trouble: Trouble,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nic, endpoint) = self.peer;
        match nic::host_name(nic) {
            Some(host) => write!(f, "mx://{host}:{}: ", endpoint.0)?,
            None => write!(f, "endpoint {} of {:#x}: ", endpoint.0, nic.0)?,
        }
        let Self { ours, theirs, .. } = self;
        match self.trouble {
            Trouble::Refused(Refusal::Provider) => write!(f, "peer uses {theirs}, we use {ours}"),
            Trouble::Refused(why) if theirs.is_empty() => {
                write!(f, "peer has {why}, we use {ours}")
            }
            Trouble::Refused(why) => {
                write!(f, "peer refuses ({why}; it uses {theirs}), we use {ours}")
            }
            Trouble::Silent => write!(
                f,
                "peer did not say within {} s which provider it uses, we use {ours}",
                PATIENCE.as_secs()
            ),
            Trouble::Puzzled => write!(
                f,
                "peer does not know the rdm port (an older version?), we use {ours}"
            ),
            Trouble::Unheard => write!(f, "peer uses {ours} as we do, but is not heard over it"),
        }
    }
}
