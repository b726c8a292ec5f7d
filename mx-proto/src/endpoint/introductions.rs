//! The first hello on a stranger's link, until there is a remote.
//!
//! ```text
//!   hello --> CLAIMED -----------------------------------> admit: remote, Reply (sessions.rs)
//!               |  ^ |  the port has the source's name       | or Reply: known
//!        secret |  | |                                       |
//!               v  | | another remote has that name          | it answers, or is gone
//!           CHALLENGED `-----------> WAITING ----------------'
//!               `--wrong, silent--> refused, closed
//! ```
//!
//! A hello is looked at when it comes (`look_at`), so most introductions are over with it. The site's secret is
//! checked in `challenges`.
//!
//! Owns: waiting hellos, refusals that have been logged, remotes that are asked whether they are there.
//! Not here: addresses.
//! Cost: O(1) for each introduction.

mod challenges;
mod reasons;

pub(super) use challenges::Challenges;
pub(super) use reasons::Distrust;

use super::Endpoint;
use super::deadlines::Deadline;
use crate::config::PeerPlace;
use crate::event::Identity;
use crate::ids::{LinkId, NicId, RemoteId};
use crate::log_limit::LogLimit;
use crate::ops::NO_REMOTE;
use crate::origin::{Seen, Source};
use crate::owner::Owner;
use crate::port::{LinkDown, Port};
use crate::remote::{Candidate, Life, LinkState, Met, Name, Remote};
use crate::secret::{self, Binding};
use crate::status::{DownReason, Status, Violation};
use crate::time::{Clock, Instant};
use crate::timer::TimerId;
use crate::wire::{self, ConfirmBody, Header, Hello, VERSION};
use foldhash::fast::RandomState;
use reasons::Rejection;
use std::collections::HashMap;
use std::time::Duration;

/// All introductions of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Introductions {
    waiting: HashMap<LinkId, Introduction, RandomState>,
    /// Remotes that have been sent a Ping, because another one has their name or their life.
    asked: HashMap<RemoteId, Question, RandomState>,
    /// The number of the last question.
    serial: u64,
    /// Refusals by source and claim, and by source.
    refused: LogLimit<(Source, Name)>,
    sources: LogLimit<Source>,
    /// Refusals of our calls.
    pub(super) refused_us: LogLimit<(Name, Status)>,
}

/// A question to a remote whether it is there.
#[derive(Debug)]
struct Question {
    serial: u64,
    timer: TimerId,
    /// Times that the answer was late.
    late: u8,
    /// The links whose introductions wait for the answer.
    links: Vec<LinkId>,
}

/// One link whose peer has sent a hello.
#[derive(Debug)]
struct Introduction {
    header: Header,
    hello: Hello,
    /// Further Connects of the same stranger.
    more: Vec<(Header, Hello)>,
    /// It has proven the site's secret on that link before, or is not asked.
    trusted: bool,
    /// Its source, as the port says.
    source: Source,
    /// Its user, likewise.
    user: Option<u32>,
    /// It has waited for what the remote with its name says.
    waited: bool,
    stage: Stage,
}

/// The state of an introduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is to be looked at.
    Claimed,
    /// It has been asked for the site's secret, with the nonce of that number.
    Challenged(u64, Binding),
    /// A remote with its name has been asked whether it is there.
    Waiting,
}

impl Introductions {
    /// The number of waiting links.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn is_trusted(&self, link: LinkId) -> bool {
        self.waiting.get(&link).is_some_and(|it| it.trusted)
    }

    fn take(&mut self, link: LinkId) -> Option<Introduction> {
        let introduction = self.waiting.remove(&link)?;
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT {
            self.waiting = HashMap::default();
        }
        Some(introduction)
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// A link has a hello, or its peer has proven the site's secret.
    #[cold]
    fn look_at(&mut self, link: LinkId) {
        let Some(introduction) = self.introductions.waiting.get_mut(&link) else {
            return;
        };
        if let Stage::Challenged(..) = introduction.stage {
            return;
        }
        let hello = introduction.hello;
        let seen = self.port.seen(link, &hello.identity);
        (introduction.source, introduction.user) = (seen.source, seen.user);
        if hello.identity.session == self.identity.session {
            return self.meet_oneself(link, seen);
        }
        let Some(nic) = seen.nic else {
            self.stats.unproven += 1;
            return self.turn_away(link, Status::Refused, Rejection::Unproven);
        };
        if self.is_unfit(link) {
            return;
        }
        if self.config.secret.is_some() && !self.introductions.is_trusted(link) {
            let (nic, endpoint) = hello.to;
            if endpoint != self.identity.endpoint || !self.port.has_interface(nic) {
                self.stats.unproven += 1;
                return self.turn_away(link, Status::Refused, Rejection::Relayed);
            }
            let binding = self.port.binding(link);
            return self.challenge(link, binding);
        }
        let now = self.clock.now();
        self.admit_all(link, nic, now);
    }

    /// Asks a remote that we have called whether it is the one that has called us.
    pub(super) fn ask_caller(&mut self, id: RemoteId) {
        let caller = self.asked_about(id);
        let caller = caller.and_then(|caller| self.remotes.of(caller));
        let called = caller.and_then(|caller| {
            let nonce = caller.met()?.nonce;
            Some((caller.tx_link()?, caller.identity(), nonce))
        });
        let Some((link, claimed, nonce)) = called else {
            return self.on_confirmed(id, false);
        };
        let from = self.port.seen(link, &claimed).address;
        self.stats.confirms += 1;
        let header = Header::new(wire::Kind::Confirm, 0, 0);
        self.push_control(id, header, &ConfirmBody { nonce, from }.emit());
    }

    /// A stranger introduces itself.
    pub(super) fn come(&mut self, link: LinkId, header: &Header, hello: Hello) {
        let waiting = &mut self.introductions.waiting;
        let Some(introduction) = waiting.get_mut(&link) else {
            let proven = self.challenges.take(link);
            if proven.is_some_and(|life| life != hello.identity.session) {
                return self.violation(link, Violation::AnotherName);
            }
            let introduction = Introduction {
                header: *header,
                hello,
                more: Vec::new(),
                trusted: proven.is_some(),
                source: Source::TRUSTED,
                user: None,
                waited: false,
                stage: Stage::Claimed,
            };
            waiting.insert(link, introduction);
            return self.look_at(link);
        };
        if introduction.hello.identity != hello.identity {
            return self.violation(link, Violation::AnotherName);
        }
        if introduction.more.len() < MORE_MAX {
            introduction.more.push((*header, hello));
            return;
        }
        self.stats.refused += 1;
        self.send_reply(None, link, header.word, Status::NoResources);
    }

    /// Refuses those Connects of a stranger that no answer of its could make good. False: there are others.
    fn is_unfit(&mut self, link: LinkId) -> bool {
        let key = self.key;
        let Some(introduction) = self.introductions.waiting.get_mut(&link) else {
            return true;
        };
        let mut unfit: Vec<(Header, Hello)> = Vec::new();
        let mut fit = Vec::new();
        let first = (introduction.header, introduction.hello);
        for it in [first].into_iter().chain(introduction.more.drain(..)) {
            let is_fit = it.1.version == VERSION && it.1.key == key;
            if is_fit { &mut fit } else { &mut unfit }.push(it);
        }
        let none = fit.is_empty();
        let mut fit = fit.into_iter();
        if let Some((header, hello)) = fit.next() {
            (introduction.header, introduction.hello) = (header, hello);
            introduction.more = fit.collect();
        }
        for (header, hello) in unfit {
            let (status, why) = if hello.version == VERSION {
                (Status::BadKey, Rejection::Key)
            } else {
                (Status::BadEndpoint, Rejection::Version(hello.version))
            };
            self.log_refusal(link, why);
            self.stats.refused += 1;
            self.send_reply(None, link, header.word, status);
        }
        if none {
            self.unmet.set_closes(link, true);
            self.introductions.take(link);
        }
        none
    }

    /// Our own hello has come back: on a link to ourselves, or repeated by another.
    fn meet_oneself(&mut self, link: LinkId, seen: Seen) {
        let Some(introduction) = self.introductions.take(link) else {
            return;
        };
        let Introduction { header, hello, .. } = introduction;
        let call = self.call_with(&hello.nonce).filter(|_| seen.oneself);
        let Some(remote) = call.and_then(|id| self.remotes.of_mut(id)) else {
            return self.violation(link, Violation::OwnHello);
        };
        let ours = remote.links.first().map(|first| first.0);
        if let Some(ours) = ours {
            remote.advance(ours, LinkState::Proven);
        }
        // One whose answer is on its way has both ends as well.
        let met = self.remotes.of_life(hello.identity.session);
        let has_both = |id: &RemoteId| self.remotes.of(*id).is_some_and(|of| of.links.len() > 1);
        let other = met.or_else(|| self.remotes.ids().into_iter().find(has_both));
        if let Some(other) = other.filter(|other| Some(*other) != call) {
            // We have called ourselves under another name as well.
            for (header, hello) in [(header, hello)].into_iter().chain(introduction.more) {
                self.reply_known(link, &header, other, &hello);
            }
            return;
        }
        let id = call.unwrap_or(NO_REMOTE);
        if let Some(remote) = self.remotes.of_mut(id) {
            remote.links.push((link, LinkState::Met));
        }
        self.bind(link, id);
        for (header, hello) in [(header, hello)].into_iter().chain(introduction.more) {
            self.reply_to(id, link, header.word, hello.key);
        }
    }

    /// A stranger, whose interface the network has proven, becomes a remote.
    fn admit_all(&mut self, link: LinkId, nic: NicId, now: Instant) {
        if let Some(before) = self.namesake(link, nic) {
            self.ask_whether_there(before, now);
            let Introductions { asked, waiting, .. } = &mut self.introductions;
            if let (Some(question), Some(it)) = (asked.get_mut(&before), waiting.get_mut(&link)) {
                (it.stage, it.waited) = (Stage::Waiting, true);
                return question.links.push(link);
            }
        }
        let Some(introduction) = self.introductions.take(link) else {
            return;
        };
        let Introduction {
            source,
            header,
            hello,
            more,
            ..
        } = introduction;
        for (header, mut hello) in [(header, hello)].into_iter().chain(more) {
            let bound = self.remote_on(link);
            if self.remotes.of(bound).is_some() {
                self.connect_on(link, bound, &header, &hello);
            } else {
                hello.identity.nic = nic;
                self.admit(link, source, &header, &hello, now);
            }
        }
    }

    /// The remote with the name of a stranger, which will be admitted: it may be the same process before it
    /// came again, and what it has sent comes first. `None`: there is none, or the stranger has waited for it.
    fn namesake(&self, link: LinkId, nic: NicId) -> Option<RemoteId> {
        let introduction = self.introductions.waiting.get(&link)?;
        let Identity {
            endpoint, session, ..
        } = introduction.hello.identity;
        let denied = Candidate::from_word(introduction.header.length);
        if self.remotes.next_of_life(session, denied, false).is_some() {
            return None;
        }
        let met = |id: &RemoteId| self.remotes.of(*id).is_some_and(|it| it.met().is_some());
        let namesake = self.remotes.find((nic, endpoint)).filter(met);
        namesake.filter(|_| !introduction.waited)
    }

    /// Asks a remote whether it is still there: another one has its name or its life.
    pub(super) fn ask_whether_there(&mut self, id: RemoteId, now: Instant) {
        let Introductions { asked, serial, .. } = &mut self.introductions;
        let Some(met) = self.remotes.met_mut(id) else {
            return;
        };
        if asked.contains_key(&id) {
            return;
        }
        self.stats.intruders += 1;
        met.silent = met.silent.max(1);
        *serial += 1;
        let ping = Header::new(wire::Kind::Ping, *serial, 0);
        let end = now.after(ANSWER_TIME);
        let question = Question {
            serial: *serial,
            timer: self.wheel.set(now, end, Deadline::Asked(id)),
            late: 0,
            links: Vec::new(),
        };
        asked.insert(id, question);
        self.push_control(id, ping, &[]);
    }

    /// A remote has answered the question of that number.
    pub(super) fn is_there(&mut self, id: RemoteId, serial: u64) {
        let asked = self.introductions.asked.get(&id);
        if asked.is_some_and(|question| question.serial == serial) {
            self.forget_asked(id);
        }
    }

    /// A remote has not answered in time.
    pub(super) fn is_not_there(&mut self, id: RemoteId, now: Instant) {
        let Some(question) = self.introductions.asked.get_mut(&id) else {
            return;
        };
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        // The question waits here, or something has come since: either side is busy, or it was on its way
        // when the remote ended.
        let waits = remote.standing(wire::Kind::Ping).is_some();
        let Life::Met(met) = &mut remote.life else {
            return;
        };
        let heard = met.silent == 0;
        met.silent = met.silent.max(1);
        question.late += 1;
        let last = question.late >= LATE_MAX;
        if !heard && (last || !waits) {
            return self.fail_remote(id, DownReason::Restarted);
        }
        if last {
            return self.forget_asked(id);
        }
        let end = now.after(ANSWER_TIME);
        question.timer = self.wheel.set(now, end, Deadline::Asked(id));
    }

    /// A remote is there, or is no more: those that wait for that go on.
    #[inline]
    pub(super) fn forget_asked(&mut self, id: RemoteId) {
        let asked = &mut self.introductions.asked;
        if asked.is_empty() {
            return;
        }
        let Some(question) = asked.remove(&id) else {
            return;
        };
        self.wheel.clear_of(question.timer, Deadline::Asked(id));
        for link in question.links {
            self.look_at(link);
        }
    }

    /// A remote asks whether a call with that nonce was ours.
    pub(super) fn on_confirm(&mut self, link: LinkId, from: RemoteId, body: &[u8]) {
        if self.unread_sessions(link, Some(from)) {
            return self.violation(link, Violation::UnreadQuestions);
        }
        match ConfirmBody::parse(body) {
            Some(asked) => {
                let here = self.port.has_address(asked.from);
                self.confirm(from, &asked, here);
            }
            None => self.violation(link, Violation::Question),
        }
    }

    /// Answers that. Others can know the nonce, by whom the call was passed on: so it has to go to the
    /// asker's life, and to come from here.
    fn confirm(&mut self, from: RemoteId, asked: &ConfirmBody, here: bool) {
        let session = self.remotes.of(from).and_then(|of| Some(of.met()?.session));
        let used = |id: RemoteId| {
            let met = self.remotes.of(id).and_then(Remote::met);
            met.is_some_and(|met| met.used)
        };
        let theirs = |id: &RemoteId| {
            let is_it = |met: &Met| !met.called_us && Some(met.session) == session;
            let call = self.remotes.of(*id);
            call.is_some_and(|call| call.met().is_none_or(is_it))
        };
        let call = self.call_with(&asked.nonce).filter(theirs);
        // What our owner uses is not given up, and what it waits for goes on with what stays.
        let mut yes = false;
        if let Some(call) = call.filter(|_| here) {
            if !used(from) {
                yes = true;
                self.go_on_with(from, call);
            } else if !used(call) {
                self.go_on_with(call, from);
                self.leave(call);
            }
        }
        let header = Header::new(wire::Kind::Confirmed, 0, yes.into());
        self.push_control(from, header, &[]);
    }

    /// The nonce of our call of a remote, on that link, or of our answer.
    pub(super) fn call_nonce(&self, id: RemoteId, link: LinkId) -> secret::Nonce {
        secret::call_nonce(&self.config.key.0, id.to_word(), link.to_word())
    }

    /// The remote for which we have drawn that nonce.
    fn call_with(&self, nonce: &secret::Nonce) -> Option<RemoteId> {
        let id = RemoteId::from_word(secret::call_of(nonce));
        let (link, _) = self.remotes.of(id)?.links.first()?;
        (self.call_nonce(id, *link) == *nonce).then_some(id)
    }

    /// Refuses an introduction: its peer is told, and the link ends.
    fn turn_away(&mut self, link: LinkId, status: Status, why: Rejection) {
        self.log_refusal(link, why);
        let Some(introduction) = self.introductions.take(link) else {
            return;
        };
        let more = introduction.more.iter().map(|(header, _)| header);
        for header in [&introduction.header].into_iter().chain(more) {
            self.stats.refused += 1;
            self.send_reply(None, link, header.word, status);
        }
        self.unmet.set_closes(link, true);
        // Nothing counts that comes on it until then.
        self.bound.close(link);
    }

    /// A link is no more, perhaps because its peer has been asked for the site's secret.
    pub(super) fn log_silent(&mut self, link: LinkId, reason: LinkDown) {
        if let LinkDown::Closed | LinkDown::Reset = reason
            && let Some(introduction) = self.introductions.waiting.get(&link)
            && let Stage::Challenged(..) = introduction.stage
        {
            self.stats.refused += 1;
            self.log_refusal(link, Rejection::Silent);
        }
    }

    /// The link of an introduction is no more, or is about to be closed.
    pub(super) fn forget_introduction(&mut self, link: LinkId) {
        self.introductions.take(link);
    }

    /// Logs the refusal of an introduction: each claim of a source once and then at growing intervals,
    /// and of a source with many claims ever fewer.
    fn log_refusal(&mut self, link: LinkId, why: Rejection) {
        let Introductions {
            waiting,
            refused,
            sources,
            ..
        } = &mut self.introductions;
        let Some(introduction) = waiting.get(&link) else {
            return;
        };
        let (source, who) = (introduction.source, &introduction.hello.identity);
        if let Some(times) = refused.again((source, who.name()))
            && sources.is_rare(source, CLAIMS_MAX)
        {
            let place = introduction
                .user
                .map_or(PeerPlace::Source(source), PeerPlace::User);
            let source = (self.config.name_of)(place);
            let who = self.config.name(who);
            log::warn!("{source}, which says it is {who}, {why}: refused (refusal {times})");
        }
    }
}

/// The time-out of the Ping to a remote whose name or life another one claims.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Times that an answer may be late, as something else comes, or the question cannot go out.
const LATE_MAX: u8 = 3;
/// Connects that wait behind the first of the same stranger.
const MORE_MAX: usize = 16;
/// Claims of one source that are logged each; from then on ever fewer.
const CLAIMS_MAX: u64 = 64;
/// Places kept when none waits.
const KEPT: usize = 64;
