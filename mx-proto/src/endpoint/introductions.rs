//! Links between their first hello and a partner: what is asked before anybody believes it.
//!
//! ```text
//!   hello --> CLAIMED --proof of the port--> (ASKING) --------> (NEWCOMER) ------> partner, Reply
//!                |                           the claimed        an old life of
//!                | refuted                   address            that name: Ping
//!                |                              | no, silent       | it answers
//!                `------------------------------+------------------+------------> refused, closed
//! ```
//!
//! Most hellos pass all of this in the poll that brings them: what the network proves is not asked
//! about, and where nobody is known under a name there is no old life. The hello of a stranger always
//! comes here; the answer to a call of ours when it names somebody else than whom we called. What
//! comes behind such an answer waits, and is taken in when that has been.
//!
//! The port must not be called while it is polled: what comes is noted, and looked at after the poll.
//!
//! Owns: hellos that wait, the links that lead to claimed addresses, old partners that are asked.
//! Knows nothing of: addresses, what a partner is. Cost: nothing while nobody comes; O(1) for each.

use super::inbound::Inbound;
use super::{Core, Endpoint, Errand};
use crate::event::{Handler, Identity};
use crate::ids::{EndpointId, LinkId, NicId, PartnerId, Route, Target};
use crate::memory::{Memory, Source as Bytes};
use crate::origin::{Claim, Proof, Source};
use crate::partner::Partner;
use crate::port::{Close, HEADER_LEN, HeaderBytes, LinkDown, Port, Sink};
use crate::queues::Control;
use crate::request::NOBODY;
use crate::secret::{self, Purpose, Role, Words};
use crate::shares::Shares;
use crate::status::{DownReason, Status};
use crate::time::{Clock, Instant};
use crate::timer::{TimerId, Wheel};
use crate::wire::{self, ChallengeBody, ConfirmBody, HELLO_LEN, Header, Hello};
use foldhash::fast::RandomState;
use siphasher::sip::SipHasher24;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hasher;
use std::time::Duration;

/// All introductions of an endpoint.
#[derive(Debug)]
pub(super) struct Introductions {
    waiting: HashMap<LinkId, Introduction, RandomState>,
    /// Our links to claimed addresses: whose introduction each is about.
    asking: HashMap<LinkId, LinkId, RandomState>,
    /// Partners in whose place somebody else would be.
    doubts: HashMap<PartnerId, Doubt, RandomState>,
    /// What is to be done after the poll.
    due: VecDeque<Due>,
    ends: Wheel<End>,
    /// Who has how many of the introductions that wait for somebody.
    shares: Shares,
    refusals: Refusals,
    /// The number of the last question to an old partner.
    serial: u64,
    /// With a secret: what we have said where whom we called has not proven it yet.
    said: HashMap<LinkId, Hello, RandomState>,
    /// Strangers' links with the secret proven, where they are to introduce themselves once more.
    shown: HashSet<LinkId, RandomState>,
    /// The number of the last nonce, ours as callers and as called ones.
    nonces: u64,
    /// Whom we have called in vain, for want of a secret.
    distrusted: Refusals,
}

/// One link whose peer has said who it is.
#[derive(Debug)]
struct Introduction {
    /// Whom we have called there; `None` for a stranger's link.
    from: Option<PartnerId>,
    header: Header,
    hello: Hello,
    /// Further Connects of the same stranger.
    more: Vec<(Header, Hello)>,
    /// What has come behind the answer to our call.
    behind: Vec<(HeaderBytes, Vec<u8>)>,
    behind_bytes: usize,
    /// It has proven the site's secret, or is not asked.
    trusted: bool,
    /// Whose share it counts in, once it waits for somebody.
    place: Option<Source>,
    stage: Stage,
}

/// How far an introduction has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is to be looked at.
    Claimed,
    /// It has been asked for the site's secret, with the nonce of that number.
    Challenged(u64, Source),
    /// The claimed address is being asked, on that link of ours.
    Asking(LinkId, TimerId),
    /// It is who it says; whether an old life of it is over is being asked.
    Newcomer(PartnerId),
}

/// A partner that is asked whether it is still there.
#[derive(Debug)]
struct Doubt {
    serial: u64,
    timer: TimerId,
    /// Who waits for its place.
    newcomers: Vec<LinkId>,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Look(LinkId),
    /// A claimed address has answered, or does not.
    Asked(LinkId, bool),
    /// It is to be tried another way.
    AskElsewhere(LinkId, Route),
    /// A partner is to be asked whether it is still there.
    Doubt(PartnerId),
    /// It is, or it is not.
    Answered(PartnerId, bool),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Ask(LinkId),
    Doubt(PartnerId),
}

impl Introductions {
    /// `share`: percent of the places that others leave, for introductions from one source.
    pub(super) fn new(share: u8) -> Self {
        Self {
            waiting: HashMap::default(),
            asking: HashMap::default(),
            doubts: HashMap::default(),
            due: VecDeque::new(),
            ends: Wheel::new(LATENESS),
            shares: Shares::new(WAITING_MAX, share),
            refusals: Refusals::default(),
            serial: 0,
            said: HashMap::default(),
            shown: HashSet::default(),
            nonces: 0,
            distrusted: Refusals::default(),
        }
    }

    /// Nothing waits for anybody.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_empty() && self.ends.is_empty()
    }

    /// Something is to be done at once.
    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// When somebody has been waited for long enough.
    pub(super) fn next(&self) -> Option<Instant> {
        self.ends.next()
    }

    /// What comes on this link waits for its introduction.
    pub(super) fn holds(&self, link: LinkId) -> bool {
        self.waiting.contains_key(&link)
    }

    fn begin(&mut self, link: LinkId, from: Option<PartnerId>, header: Header, hello: Hello) {
        let introduction = Introduction {
            from,
            header,
            hello,
            more: Vec::new(),
            behind: Vec::new(),
            behind_bytes: 0,
            // Whoever answers a call has proven it before.
            trusted: from.is_some() || self.shown.remove(&link),
            place: None,
            stage: Stage::Claimed,
        };
        self.waiting.insert(link, introduction);
        self.due.push_back(Due::Look(link));
    }

    /// A packet that came behind an answer that waits. False when there are too many.
    pub(super) fn put_behind<B: Bytes + ?Sized>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &B,
        most: usize,
    ) -> bool {
        let Some(introduction) = self.waiting.get_mut(&link) else {
            return false;
        };
        let bytes = introduction.behind_bytes + body.len() + HEADER_LEN + size_of::<Vec<u8>>();
        if bytes > most {
            return false;
        }
        introduction.behind_bytes = bytes;
        introduction.behind.push((*header, body.to_vec()));
        true
    }

    /// Takes an introduction out. The link of ours that was asking about it is to be closed.
    fn take(&mut self, link: LinkId) -> Option<(Introduction, Option<LinkId>)> {
        let introduction = self.waiting.remove(&link)?;
        if let Some(source) = introduction.place {
            self.shares.give_back(source, 1);
        }
        let mut ours = None;
        if let Stage::Asking(link, timer) = introduction.stage {
            self.ends.clear(timer);
            self.asking.remove(&link);
            ours = Some(link);
        }
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT {
            self.waiting = HashMap::default();
        }
        Some((introduction, ours))
    }

    /// It waits for somebody from now on, if its source may have another place.
    fn may_wait(&mut self, link: LinkId, source: Source) -> bool {
        let Some(introduction) = self.waiting.get_mut(&link) else {
            return false;
        };
        // Calls are our own, and as many as we have begun.
        let free = introduction.from.is_some() || self.shares.may_take(source, 1);
        if introduction.place.is_none() && free {
            introduction.place = Some(source);
            self.shares.take(source, 1);
        }
        introduction.place.is_some()
    }

    /// A stranger's link, with the secret proven, stays one.
    pub(super) fn keep_shown(&mut self, link: LinkId) {
        self.shown.insert(link);
    }

    /// A link is no more, or it is ours and proven.
    #[inline]
    pub(super) fn forget_proof(&mut self, link: LinkId) {
        if !self.shown.is_empty() {
            self.shown.remove(&link);
        }
        if !self.said.is_empty() {
            self.said.remove(&link);
            if self.said.is_empty() && self.said.capacity() > KEPT {
                self.said = HashMap::default();
            }
        }
    }

    /// A partner is no more.
    #[inline]
    pub(super) fn gone(&mut self, id: PartnerId) {
        if !self.doubts.is_empty() && self.doubts.contains_key(&id) {
            self.due.push_back(Due::Answered(id, false));
        }
    }

    /// A partner has answered the question of that number.
    pub(super) fn answered(&mut self, id: PartnerId, serial: u64) {
        if self.doubts.get(&id).is_some_and(|of| of.serial == serial) {
            self.due.push_back(Due::Answered(id, true));
        }
    }

    /// A call of ours has led to another life than this partner's.
    pub(super) fn doubt(&mut self, id: PartnerId) {
        self.due.push_back(Due::Doubt(id));
    }

    /// A claimed address has said whether it knows of the claim. False: it has not been asked.
    pub(super) fn confirmed(&mut self, ours: LinkId, yes: bool) -> bool {
        let asked = self.asking.contains_key(&ours);
        if asked {
            self.due.push_back(Due::Asked(ours, yes));
        }
        asked
    }

    /// A link of ours to a claimed address is down. False: it is no such link.
    pub(super) fn ask_failed(&mut self, ours: LinkId, reason: LinkDown) -> bool {
        let asked = self.asking.contains_key(&ours);
        if asked {
            self.due.push_back(match reason {
                LinkDown::Elsewhere(route) => Due::AskElsewhere(ours, route),
                _ => Due::Asked(ours, false),
            });
        }
        asked
    }
}

impl<P: Port<M>, M: Memory, C: Clock> Endpoint<P, M, C> {
    /// Goes on with all introductions that can.
    #[cold]
    pub(super) fn see_to_introductions<H: Handler<M>>(&mut self, handler: &mut H) -> bool {
        let now = self.clock.now();
        let introductions = &mut self.core.introductions;
        while let Some((end, _)) = introductions.ends.expired(now) {
            introductions.due.push_back(match end {
                End::Ask(ours) => Due::Asked(ours, false),
                End::Doubt(old) => Due::Answered(old, false),
            });
        }
        let mut busy = false;
        while let Some(due) = self.core.introductions.due.pop_front() {
            busy = true;
            match due {
                Due::Look(link) => self.look_at(link, now, handler),
                Due::Asked(ours, yes) => self.asked(ours, yes, now, handler),
                Due::AskElsewhere(ours, route) => self.ask_elsewhere(ours, route, now),
                Due::Doubt(old) => self.core.ask_old(old, None, now),
                Due::Answered(old, alive) => self.old_answered(old, alive, now, handler),
            }
        }
        busy
    }

    /// What does the network say about a claim?
    fn look_at<H: Handler<M>>(&mut self, link: LinkId, now: Instant, handler: &mut H) {
        let Some(claim) = self.core.claim_on(link) else {
            return;
        };
        if self.core.challenges(link, self.port.source(link)) {
            return;
        }
        match self.port.proof(link, &claim) {
            Proof::Proven => self.proven(link, now, handler),
            Proof::Refuted => self.refute(link, "it comes from elsewhere"),
            Proof::Ask(target) => self.ask(link, target, now),
        }
    }

    fn ask(&mut self, link: LinkId, target: Target, now: Instant) {
        let source = self.port.source(link);
        if !self.core.introductions.may_wait(link, source) {
            return self.core.turn_away(link, Status::NoResources);
        }
        match self.port.connect(target, &self.clock) {
            Ok(ours) => {
                self.core.stats.confirms += 1;
                // It is nobody's, and no stranger's.
                self.port.bind(ours, NOBODY.to_word());
                self.core.introductions.ask_on(link, ours, now);
            }
            Err(error) => {
                log::debug!("link {link:?}: the claimed address cannot be asked: {error}");
                self.refute(link, "it comes from elsewhere, and cannot be asked there");
            }
        }
    }

    fn ask_elsewhere(&mut self, ours: LinkId, route: Route, now: Instant) {
        let Some(link) = self.core.introductions.ended_asking(ours) else {
            return;
        };
        if let Some(claim) = self.core.claim_on(link) {
            let target = Target {
                nic: claim.nic,
                endpoint: claim.endpoint,
                route,
            };
            self.ask(link, target, now);
        }
    }

    fn asked<H: Handler<M>>(&mut self, ours: LinkId, yes: bool, now: Instant, handler: &mut H) {
        let Some(link) = self.core.introductions.ended_asking(ours) else {
            return;
        };
        self.core.session_out.forget(ours);
        self.port.close(ours, Close::Now);
        if yes {
            self.proven(link, now, handler);
        } else {
            self.refute(
                link,
                "it comes from elsewhere, and nobody there knows of it",
            );
        }
    }

    /// The peer of a link is who it says.
    fn proven<H: Handler<M>>(&mut self, link: LinkId, now: Instant, handler: &mut H) {
        let Some(introduction) = self.core.introductions.waiting.get(&link) else {
            return;
        };
        let (from, hello) = (introduction.from, introduction.hello);
        if let Some(old) = self.core.old_life(from, &hello) {
            let live = self.core.partners.of(old).and_then(|of| of.live_tx());
            if live.is_some() {
                let source = self.port.source(link);
                if !self.core.introductions.may_wait(link, source) {
                    return self.core.turn_away(link, Status::NoResources);
                }
                return self.core.ask_old(old, Some(link), now);
            }
            // Its link is down.
            self.core.fail_partner(old, DownReason::Restarted);
        }
        if from.is_some() && self.core.claim_on(link).is_none() {
            return;
        }
        let source = self.port.source(link);
        let Some((introduction, _)) = self.core.introductions.take(link) else {
            return;
        };
        let Some(from) = from else {
            return self.core.admit_all(link, source, introduction);
        };
        let Introduction { header, behind, .. } = introduction;
        if header.kind == wire::Kind::Reply {
            self.core.reply_on(link, from, &header, &hello);
        } else {
            self.core.connect_on(link, from, &header, &hello);
        }
        for (header, body) in behind {
            // Not after its link has been given up.
            let owner = self.core.partner_of(link, from.to_word());
            if self.core.partners.of(owner).is_none() {
                break;
            }
            let mut sink = Inbound {
                core: &mut self.core,
                handler,
                clock: &self.clock,
            };
            sink.on_packet(link, owner.to_word(), &header, &body[..]);
        }
    }

    /// The network does not bear out what the peer of a link says.
    fn refute(&mut self, link: LinkId, why: &str) {
        let source = self.port.source(link);
        self.core.stats.unproven += 1;
        if let Some(introduction) = self.core.introductions.waiting.get(&link) {
            let identity = introduction.hello.identity;
            self.core.introductions.refusals.log(source, |times| {
                log::warn!(
                    "{source:?} says it is {identity:?}, but {why}: refused (refusal {times})"
                );
            });
        }
        self.core.turn_away(link, Status::NoResources);
    }

    /// An old partner is there, or it is not.
    fn old_answered<H: Handler<M>>(
        &mut self,
        old: PartnerId,
        alive: bool,
        now: Instant,
        handler: &mut H,
    ) {
        let Some(doubt) = self.core.introductions.doubts.remove(&old) else {
            return;
        };
        self.core.introductions.ends.clear(doubt.timer);
        if !alive {
            self.core.fail_partner(old, DownReason::Restarted);
        }
        for link in doubt.newcomers {
            let waits = self.core.introductions.waiting.get(&link);
            let Some(identity) = waits
                .filter(|of| of.stage == Stage::Newcomer(old))
                .map(|of| of.hello.identity)
            else {
                continue;
            };
            if !alive {
                self.proven(link, now, handler);
                continue;
            }
            let source = self.port.source(link);
            self.core.stats.intruders += 1;
            self.core.introductions.refusals.log(source, |times| {
                log::warn!(
                    "{source:?} says it is {identity:?}, which is there in another life: refused \
                     (refusal {times})"
                );
            });
            self.core.turn_away(link, Status::NoResources);
        }
    }
}

impl Introductions {
    fn ask_on(&mut self, link: LinkId, ours: LinkId, now: Instant) {
        if let Some(introduction) = self.waiting.get_mut(&link) {
            let timer = self.ends.set(now, now.after(ASK_TIME), End::Ask(ours));
            introduction.stage = Stage::Asking(ours, timer);
            self.asking.insert(ours, link);
        }
    }

    /// Nobody is asked on that link of ours any more. Whose introduction it was about.
    fn ended_asking(&mut self, ours: LinkId) -> Option<LinkId> {
        let link = self.asking.remove(&ours)?;
        if let Some(introduction) = self.waiting.get_mut(&link)
            && let Stage::Asking(_, timer) = introduction.stage
        {
            self.ends.clear(timer);
            introduction.stage = Stage::Claimed;
        }
        Some(link)
    }
}

impl<M: Memory> Core<M> {
    /// A stranger introduces itself.
    pub(super) fn come(&mut self, link: LinkId, header: &Header, hello: Hello) {
        let Some(introduction) = self.introductions.waiting.get_mut(&link) else {
            return self.introductions.begin(link, None, *header, hello);
        };
        if introduction.hello.identity != hello.identity {
            return self.violation(link, 0, "an introduction under another name");
        }
        if introduction.more.len() < MORE_MAX {
            introduction.more.push((*header, hello));
            return;
        }
        self.stats.refused += 1;
        self.send_reply(None, link, header.word, Status::NoResources, false);
    }

    /// Whom we have called says it is somebody else than whom we meant, or another than we know under
    /// that name: that waits until it is proven. False: it is neither.
    pub(super) fn waits_for_proof(
        &mut self,
        link: LinkId,
        from: PartnerId,
        header: &Header,
        hello: &Hello,
    ) -> bool {
        let who = &hello.identity;
        let waits = self.partners.of(from).is_some_and(|partner| {
            partner.session.is_none()
                && ((partner.nic, partner.endpoint) != (who.nic, who.endpoint)
                    || self.old_life(Some(from), hello).is_some())
        });
        if waits {
            self.introductions.begin(link, Some(from), *header, *hello);
        }
        waits
    }

    /// What is said on a link, unless that is no more.
    fn claim_on(&mut self, link: LinkId) -> Option<Claim> {
        let introduction = self.introductions.waiting.get(&link)?;
        let stays = introduction.from.is_none_or(|from| {
            let partner = self.partners.of(from);
            partner.is_some_and(|partner| partner.owns(link))
        });
        let Hello { identity, to, .. } = introduction.hello;
        if !stays {
            self.forget_introduction(link);
            return None;
        }
        Some(Claim {
            nic: identity.nic,
            endpoint: identity.endpoint,
            to,
        })
    }

    /// Who is known under the name of a hello, in another life.
    fn old_life(&self, from: Option<PartnerId>, hello: &Hello) -> Option<PartnerId> {
        let who = &hello.identity;
        let known = self.partners.find(who.nic, who.endpoint)?;
        let session = self.partners.of(known)?.session?;
        (Some(known) != from && session != who.session).then_some(known)
    }

    /// Asks a partner whether it is still there; `newcomer` waits for its place.
    fn ask_old(&mut self, old: PartnerId, newcomer: Option<LinkId>, now: Instant) {
        if self.partners.of(old).is_none() {
            return;
        }
        let Introductions {
            waiting,
            doubts,
            ends,
            serial,
            ..
        } = &mut self.introductions;
        if let Some(introduction) = newcomer.and_then(|link| waiting.get_mut(&link)) {
            introduction.stage = Stage::Newcomer(old);
        }
        if let Some(doubt) = doubts.get_mut(&old) {
            return doubt.newcomers.extend(newcomer);
        }
        *serial += 1;
        let doubt = Doubt {
            serial: *serial,
            timer: ends.set(now, now.after(OLD_TIME), End::Doubt(old)),
            newcomers: newcomer.into_iter().collect(),
        };
        doubts.insert(old, doubt);
        let ping = Header::new(wire::Kind::Ping, *serial, 0);
        self.push_control(old, ping, &[]);
    }

    /// Whoever has introduced itself on a link is not let in.
    fn turn_away(&mut self, link: LinkId, status: Status) {
        let Some((introduction, ours)) = self.introductions.take(link) else {
            return;
        };
        self.errands
            .extend(ours.map(|ours| Errand::Close(ours, Close::Now)));
        if let Some(from) = introduction.from {
            self.errands.push(Errand::Close(link, Close::Now));
            return self.link_down(link, from, LinkDown::Protocol);
        }
        let last = introduction.more.len();
        let first = [(introduction.header, introduction.hello)];
        for (at, (header, _)) in first.iter().chain(&introduction.more).enumerate() {
            self.stats.refused += 1;
            self.send_reply(None, link, header.word, status, at == last);
        }
    }

    /// A stranger becomes a partner.
    fn admit_all(&mut self, link: LinkId, source: Source, introduction: Introduction) {
        let Introduction {
            header,
            hello,
            more,
            ..
        } = introduction;
        for (header, hello) in [(header, hello)].into_iter().chain(more) {
            let bound = self.partner_of(link, 0);
            match self.partners.of(bound) {
                Some(_) => self.connect_on(link, bound, &header, &hello),
                None => self.admit(link, source, &header, &hello),
            }
        }
    }

    /// A link is no more, or is about to be closed.
    pub(super) fn forget_introduction(&mut self, link: LinkId) {
        let Some((introduction, ours)) = self.introductions.take(link) else {
            return;
        };
        if let Stage::Challenged(_, source) = introduction.stage {
            self.log_stranger(source, introduction.hello.identity, "went");
        }
        if let Some(ours) = ours {
            self.session_out.forget(ours);
            self.errands.push(Errand::Close(ours, Close::Now));
        }
    }

    /// Asks a stranger for the site's secret, if there is one and it has not proven it. False: it need
    /// not prove anything.
    fn challenges(&mut self, link: LinkId, source: Source) -> bool {
        let Self {
            introductions,
            config,
            session_out,
            identity,
            ..
        } = self;
        let Some(secret) = &config.secret else {
            return false;
        };
        let Some(introduction) = introductions.waiting.get_mut(&link) else {
            return false;
        };
        if introduction.trusted {
            return false;
        }
        introductions.nonces += 1;
        let number = introductions.nonces;
        introduction.stage = Stage::Challenged(number, source);
        let nonce = secret::nonce(&config.key.0, number);
        let said = ChallengeBody::said(identity, &nonce);
        let proof = secret.prove(Role::Called, &words(&caller(&introduction.hello), &said));
        let body = ChallengeBody {
            identity: *identity,
            nonce,
            proof,
        };
        let header = Header::new(wire::Kind::Challenge, 0, 0);
        // A Connect with a wrong key may have been refused before this one.
        session_out.keep_open(link);
        session_out.push(link, Control::new(header, &body.emit()), false);
        true
    }

    /// A stranger answers that.
    pub(super) fn on_prove(&mut self, link: LinkId, proof: &[u8]) {
        let Self {
            introductions,
            config,
            identity,
            ..
        } = self;
        let waiting = introductions.waiting.get_mut(&link);
        let asked = waiting.and_then(|of| match of.stage {
            Stage::Challenged(number, source) => Some((of, number, source)),
            _ => None,
        });
        let (Some(secret), Some((introduction, number, source))) = (&config.secret, asked) else {
            return self.violation(link, 0, "a proof that nobody has asked for");
        };
        let said = ChallengeBody::said(identity, &secret::nonce(&config.key.0, number));
        let caller = caller(&introduction.hello);
        let words = words(&caller, &said);
        introduction.stage = Stage::Claimed;
        if secret.verify(Role::Caller, &words, proof) {
            introduction.trusted = true;
            introductions.due.push_back(Due::Look(link));
            return;
        }
        let who = introduction.hello.identity;
        self.log_stranger(source, who, "has another, or none,");
        self.turn_away(link, Status::BadSecret);
    }

    /// Whom we have called asks for the site's secret, and proves that it knows it.
    pub(super) fn on_challenge(&mut self, link: LinkId, from: PartnerId, body: &[u8]) {
        let Some(body) = ChallengeBody::parse(body) else {
            return self.violation(link, from.to_word(), "a malformed challenge");
        };
        let who = Some(body.identity);
        let Some(secret) = &self.config.secret else {
            return self.distrust(link, from, who, WANTED);
        };
        let Some(hello) = self.introductions.said.get(&link) else {
            return self.violation(link, from.to_word(), "a challenge to nothing we have said");
        };
        // Somebody else's address, where our own words are passed on to us, and our proof of them.
        let own = (self.identity.nic, self.identity.endpoint);
        if body.identity == self.identity && hello.to != own {
            return self.distrust(link, from, who, ECHO);
        }
        let (caller, said) = (
            caller(hello),
            ChallengeBody::said(&body.identity, &body.nonce),
        );
        let words = words(&caller, &said);
        if !secret.verify(Role::Called, &words, &body.proof) {
            return self.distrust(link, from, who, ANOTHER);
        }
        let proof = secret.prove(Role::Caller, &words);
        self.introductions.forget_proof(link);
        let links = self.partners.of_mut(from).map(|partner| &mut partner.links);
        for known in links.into_iter().flatten() {
            known.proven |= known.id == link;
        }
        let header = Header::new(wire::Kind::Prove, 0, 0);
        self.session_out
            .push(link, Control::new(header, &proof), false);
    }

    /// May what comes on this link of a partner's be believed, as far as the site's secret goes?
    #[inline]
    pub(super) fn trusts(&self, link: LinkId, from: PartnerId) -> bool {
        let proven = |partner: &Partner| partner.proven_on(link);
        self.config.secret.is_none() || self.partners.of(from).is_some_and(proven)
    }

    /// With a secret: what is said on a link of ours where nothing is proven yet. The same each time,
    /// but for the key, so that one challenge is for all of it.
    pub(super) fn say(&mut self, link: LinkId, hello: Hello) -> Hello {
        let Introductions { said, nonces, .. } = &mut self.introductions;
        let key = &self.config.key.0;
        let first = said.entry(link).or_insert_with(|| {
            *nonces += 1;
            Hello {
                nonce: secret::nonce(key, *nonces),
                ..hello
            }
        });
        Hello {
            key: hello.key,
            ..*first
        }
    }

    /// The link of a call of ours leads to somebody with whom we do not share the site's secret. Who
    /// has reached us meanwhile on a link of its own has nothing to do with that.
    #[cold]
    pub(super) fn distrust(
        &mut self,
        link: LinkId,
        from: PartnerId,
        who: Option<Identity>,
        why: &str,
    ) {
        self.log_distrust(who, from, why);
        self.stats.refused += 1;
        let known = self.partners.of(from);
        if known.is_some_and(|partner| partner.session.is_some()) {
            return self.leave_link(link, from);
        }
        self.fail_partner(from, DownReason::Secret);
    }

    /// Says what to do about the secret, once for each interface called and then ever more rarely.
    pub(super) fn log_distrust(&mut self, who: Option<Identity>, from: PartnerId, why: &str) {
        let Some(partner) = self.partners.of(from) else {
            return;
        };
        let (nic, endpoint) = (partner.nic, partner.endpoint);
        self.introductions
            .distrusted
            .log(Source(nic.0), |times| match who {
                Some(who) => log::warn!(
                    "called {nic:?} {endpoint:?}, and {who:?} {why} (MX_SECRET_FILE; call {times})"
                ),
                None => log::warn!(
                    "called {nic:?} {endpoint:?}, which {why} (MX_SECRET_FILE; call {times})"
                ),
            });
    }

    fn log_stranger(&mut self, source: Source, who: Identity, how: &str) {
        self.introductions.refusals.log(source, |times| {
            log::warn!(
                "{source:?}, which says it is {who:?}, {how} when asked for the site's secret: not \
                 let in; give it the same file (MX_SECRET_FILE; refusal {times})"
            );
        });
    }

    /// A link of ours to a claimed address is up. False: it is no such link.
    pub(super) fn ask_now(&mut self, ours: LinkId) -> bool {
        let Some(link) = self.introductions.asking.get(&ours) else {
            return false;
        };
        if let Some(introduction) = self.introductions.waiting.get(link) {
            let body = ConfirmBody {
                identity: introduction.hello.identity,
                to: introduction.hello.to,
                token: introduction.hello.token,
            };
            let header = Header::new(wire::Kind::Confirm, 0, 0);
            let control = Control::new(header, &body.emit());
            self.session_out.push(ours, control, false);
        }
        true
    }

    /// Somebody asks whether a hello was ours.
    pub(super) fn on_confirm(&mut self, link: LinkId, body: &[u8]) {
        let Some(asked) = ConfirmBody::parse(body) else {
            return self.violation(link, 0, "a malformed question");
        };
        if !self.session_out.has_room(link) {
            return self.violation(link, 0, "questions without reading the answers");
        }
        let yes = asked.identity == self.identity && asked.token == self.token(asked.to);
        let header = Header::new(wire::Kind::Confirmed, 0, yes.into());
        self.session_out.push(link, Control::new(header, &[]), true);
    }

    /// What a hello for whoever has that name carries: nobody else can know it.
    pub(super) fn token(&self, to: (NicId, EndpointId)) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.config.key.0);
        hasher.write(&to.0.0.to_le_bytes());
        hasher.write(&to.1.0.to_le_bytes());
        hasher.finish()
    }

    /// The number under which a source's share is kept; a secret one, so that nobody can choose to
    /// share with somebody else.
    pub(super) fn share_of(&self, source: Source) -> u32 {
        if source == Source::TRUSTED {
            return 0;
        }
        let mut hasher = SipHasher24::new_with_key(&self.config.key.0);
        hasher.write(&source.0.to_le_bytes());
        (hasher.finish() as u32).max(1)
    }
}

/// Which sources have been refused, so that a flood of them is a few lines.
#[derive(Debug, Default)]
struct Refusals {
    recent: VecDeque<(Source, u64)>,
}

impl Refusals {
    /// Logs the first refusal of a source, the second, the fourth, and so on.
    fn log(&mut self, source: Source, line: impl FnOnce(u64)) {
        let known = self.recent.iter_mut().find(|(of, _)| *of == source);
        let times = match known {
            Some((_, times)) => {
                *times += 1;
                *times
            }
            None => {
                if self.recent.len() == RECENT {
                    self.recent.pop_front();
                }
                self.recent.push_back((source, 1));
                1
            }
        };
        if times.is_power_of_two() {
            line(times);
        }
    }
}

/// A caller's words. Its key is no part of them: a link has one proof and may have several keys.
fn caller(hello: &Hello) -> [u8; HELLO_LEN] {
    Hello { key: 0, ..*hello }.emit()
}

fn words<'a>(caller: &'a [u8], called: &'a [u8]) -> Words<'a> {
    Words {
        purpose: Purpose::Introduction,
        caller,
        called,
        binding: [0; 2],
    }
}

/// Why whom we have called is left again.
pub(super) const UNASKED: &str =
    "does not ask for the site's secret, so it has none: it needs the same file as we";
pub(super) const REFUSED: &str = "says we do not know the site's secret: both need the same file";
const ECHO: &str = "is ourselves: what we say there comes back to us";
const ANOTHER: &str = "has another secret than we: both need the same file";
const WANTED: &str = "asks for the site's secret, and we have none: we need the same file";

/// How long a claimed address may take to answer. A port drops a stranger's link after 5 s.
const ASK_TIME: Duration = Duration::from_secs(3);
/// How long a partner may take to say that it is still there, when somebody with proof of its name
/// wants its place.
const OLD_TIME: Duration = Duration::from_secs(1);
/// How late these may be.
const LATENESS: Duration = Duration::from_millis(16);
/// Introductions that wait for somebody, all sources together.
const WAITING_MAX: usize = 1024;
/// Connects that wait behind the first of the same stranger.
const MORE_MAX: usize = 16;
/// Places kept when nobody waits.
const KEPT: usize = 64;
/// Sources whose refusals are counted.
const RECENT: usize = 64;
