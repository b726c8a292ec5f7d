//! The steps of introductions, taken after each poll of the port.
//!
//! ```text
//!   look_at --no secret, or known--> examine --> proven --> admit_all, or the answer to our call
//!      `--challenge ... trusted ------^  |         ^ `--> doubt ... old_answered, asked --> proven
//!                                        `--> ask --> asked --'            `--> turn_away
//! ```

use super::challenges::SILENT;
use super::{ASK_TIME, Doubt, Due, Introduction, Introductions, MORE_MAX, OLD_TIME, Stage};
use crate::config::Place;
use crate::endpoint::deadlines::Deadline;
use crate::endpoint::inbound::Inbound;
use crate::endpoint::session_queue::After;
use crate::endpoint::{Core, DeferredAction, Endpoint};
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, Route, Target};
use crate::ops::NO_REMOTE;
use crate::origin::{Address, Claim, Proof};
use crate::owner::Owner;
use crate::port::{Close, LinkDown, Port, Sink};
use crate::queues::Control;
use crate::status::{DownReason, Status};
use crate::time::{Clock, Instant};
use crate::wire::{self, ConfirmBody, Header, Hello};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Goes on with all introductions that can.
    #[cold]
    pub(in crate::endpoint) fn see_to_introductions(&mut self) -> bool {
        let now = self.clock.now();
        let mut busy = false;
        while let Some(due) = self.core.introductions.due.pop_front() {
            busy = true;
            match due {
                Due::Look(link) => self.look_at(link, now),
                Due::Confirm(link, asked) => {
                    let port = &self.port;
                    self.core
                        .confirm(link, &asked, |address| port.has_address(address));
                }
                Due::Trust(link) => self.trusted(link, now),
                Due::Challenge(link, from, body) => {
                    let binding = self.port.binding(link);
                    self.core.answer_challenge(link, from, binding, &body);
                }
                Due::Asked(ours, answer) => self.asked(ours, answer, now),
                Due::AskElsewhere(ours, route) => self.ask_elsewhere(ours, route, now),
                Due::Doubt(old) => self.core.ask_old(old, None, now),
                Due::Answered(old, alive) => self.old_answered(old, alive, now),
            }
        }
        busy
    }

    /// A link has a hello.
    fn look_at(&mut self, link: LinkId, now: Instant) {
        let Some(claim) = self.core.claim_on(link) else {
            return;
        };
        let source = self.port.source(link);
        if let Some(introduction) = self.core.introductions.waiting.get_mut(&link) {
            introduction.source = source;
        }
        let binding = self.port.binding(link);
        if !self.core.challenge(link, binding) {
            self.examine(link, &claim, now);
        }
    }

    /// Its peer has proven the site's secret.
    fn trusted(&mut self, link: LinkId, now: Instant) {
        if let Some(claim) = self.core.claim_on(link) {
            self.examine(link, &claim, now);
        }
    }

    /// Checks a claim against the network.
    fn examine(&mut self, link: LinkId, claim: &Claim, now: Instant) {
        match self.port.proof(link, claim) {
            Proof::Proven => self.proven(link, now),
            Proof::Refuted => self.refute(link, "but it comes from elsewhere"),
            Proof::Ask(target, from) => {
                if let Some(introduction) = self.core.introductions.waiting.get_mut(&link) {
                    introduction.seen_at = from;
                }
                self.ask(link, target, now);
            }
        }
    }

    fn ask(&mut self, link: LinkId, target: Target, now: Instant) {
        if !self.core.introductions.may_wait(link) {
            return self.core.turn_away(link, Status::NoResources);
        }
        if let Some(introduction) = self.core.introductions.waiting.get_mut(&link) {
            introduction.stage = Stage::Asking;
        }
        if !self.dial(link, target, now) {
            self.refute(
                link,
                "but it comes from elsewhere, and cannot be asked there",
            );
        }
    }

    /// Begins to ask there about the claim on a link. False: that cannot be.
    fn dial(&mut self, link: LinkId, target: Target, now: Instant) -> bool {
        if self.core.introductions.asks_on(link) {
            return true;
        }
        match self.port.connect(target, &self.clock) {
            Ok(ours) => {
                self.core.stats.confirms += 1;
                // The link has no remote, and is not a stranger's.
                self.port.bind(ours, NO_REMOTE.to_word());
                let asking = Deadline::Asking(ours);
                let timer = self.core.wheel.set(now, now.after(ASK_TIME), asking);
                self.core.introductions.ask_on(link, ours, timer);
                true
            }
            Err(error) => {
                log::debug!("link {link:?}: the claimed address cannot be asked: {error}");
                false
            }
        }
    }

    fn ask_elsewhere(&mut self, ours: LinkId, route: Route, now: Instant) {
        let Core {
            introductions,
            wheel,
            ..
        } = &mut self.core;
        let Some((link, introduction)) = introductions.ended_asking(ours, wheel) else {
            return;
        };
        if introduction.stage == Stage::Asking
            && let Some(claim) = self.core.claim_on(link)
        {
            let target = Target {
                nic: claim.nic,
                endpoint: claim.endpoint,
                route,
            };
            self.ask(link, target, now);
        }
    }

    /// A claimed address has answered, or does not: `None`.
    fn asked(&mut self, ours: LinkId, answer: Option<bool>, now: Instant) {
        let Core {
            introductions,
            wheel,
            ..
        } = &mut self.core;
        let Some((link, introduction)) = introductions.ended_asking(ours, wheel) else {
            return;
        };
        introduction.confirmed = answer == Some(true);
        let stage = introduction.stage;
        self.core.session_out.forget(ours);
        self.port.close(ours, Close::Now);
        match answer {
            Some(true) => self.proven(link, now),
            Some(false) => self.refute(link, "but the endpoint at that address denies it"),
            // A newcomer waits for what the old one says.
            None if stage != Stage::Asking => {}
            None => self.refute(link, "but that address does not answer"),
        }
    }

    /// The claim on a link has been proven.
    fn proven(&mut self, link: LinkId, now: Instant) {
        let Some(introduction) = self.core.introductions.waiting.get(&link) else {
            return;
        };
        let (from, hello) = (introduction.from, introduction.hello);
        let confirmed = introduction.confirmed;
        if from.is_none()
            && !confirmed
            && self.core.is_a_second_call(&hello)
            && let Some(target) = self.asks_at(link)
        {
            return self.ask(link, target, now);
        }
        if let Some(old) = self.core.old_life(from, &hello) {
            let live = self.core.remotes.of(old).and_then(|of| of.live_tx());
            if live.is_some() && !confirmed {
                return self.doubt(old, link, now);
            }
            // Its link is down, or its address is another's.
            self.core.fail_remote(old, DownReason::Restarted);
        }
        if from.is_some() && self.core.claim_on(link).is_none() {
            return;
        }
        let Some(introduction) = self.core.take_introduction(link) else {
            return;
        };
        let Some(from) = from else {
            return self.core.admit_all(link, introduction);
        };
        let Introduction { header, behind, .. } = introduction;
        if header.kind == wire::Kind::Reply {
            self.core.reply_on(link, from, &header, &hello);
        } else {
            self.core.connect_on(link, from, &header, &hello);
        }
        for (header, body) in behind {
            // Not after its link has been given up.
            let owner = self.core.remote_of(link, from.to_word());
            if self.core.remotes.of(owner).is_none() {
                break;
            }
            let mut sink = Inbound {
                core: &mut self.core,
                clock: &self.clock,
            };
            sink.on_packet(link, owner.to_word(), &header, &body[..]);
        }
    }

    /// Asks whether an old remote is still there, in whose place the peer of `link` would be.
    fn doubt(&mut self, old: RemoteId, link: LinkId, now: Instant) {
        if !self.core.introductions.may_wait(link) {
            return self.core.turn_away(link, Status::NoResources);
        }
        self.core.ask_old(old, Some(link), now);
        if let Some(target) = self.asks_at(link) {
            self.dial(link, target, now);
        }
    }

    /// The address at which a claim on a link can be confirmed, if only its machine is proven
    /// there.
    fn asks_at(&mut self, link: LinkId) -> Option<Target> {
        let claim = self.core.claim_on(link)?;
        self.port.asks_at(link, &claim)
    }

    /// The network does not bear out what the peer of a link says.
    fn refute(&mut self, link: LinkId, why: &str) {
        self.core.stats.unproven += 1;
        self.core.log_refusal(link, why);
        self.core.turn_away(link, Status::NoResources);
    }

    /// An old remote is there, or it is not.
    fn old_answered(&mut self, old: RemoteId, alive: bool, now: Instant) {
        let Some(doubt) = self.core.introductions.doubts.remove(&old) else {
            return;
        };
        let introductions = &mut self.core.introductions;
        self.core.wheel.clear_of(doubt.timer, Deadline::Doubt(old));
        let waits = |link: &LinkId| {
            let waits = introductions.waiting.get(link);
            waits.is_some_and(|of| of.stage == Stage::Newcomer(old))
        };
        let mut newcomers = doubt.newcomers;
        newcomers.retain(waits);
        // A claim without proof is no reason.
        if !alive && (doubt.ours || !newcomers.is_empty()) {
            self.core.fail_remote(old, DownReason::Restarted);
        }
        for link in newcomers {
            if !alive {
                self.proven(link, now);
                continue;
            }
            self.core.stats.intruders += 1;
            self.core
                .log_refusal(link, "which is there in another life");
            self.core.turn_away(link, Status::NoResources);
        }
    }
}

impl<O: Owner> Core<O> {
    /// A stranger introduces itself.
    pub(in crate::endpoint) fn come(&mut self, link: LinkId, header: &Header, hello: Hello) {
        let Some(introduction) = self.introductions.waiting.get_mut(&link) else {
            let trusted = self.challenges.take_shown(link);
            let begins = (*header, hello);
            return self.introductions.begin(link, None, begins, trusted);
        };
        if introduction.hello.identity != hello.identity {
            return self.violation(link, 0, "an introduction under another name");
        }
        if introduction.more.len() < MORE_MAX {
            introduction.more.push((*header, hello));
            return;
        }
        self.stats.refused += 1;
        self.send_reply(None, link, header.word, Status::NoResources, After::Open);
    }

    /// The peer that we connected to claims another name than expected, or another life of a known
    /// name: its answer waits until it is proven. Returns false otherwise.
    pub(in crate::endpoint) fn waits_for_proof(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        hello: &Hello,
    ) -> bool {
        let who = &hello.identity;
        let waits = self.remotes.of(from).is_some_and(|remote| {
            remote.met().is_none()
                && (remote.name != who.name() || self.old_life(Some(from), hello).is_some())
        });
        if waits {
            // The peer of an answer has proven the secret before.
            let begins = (*header, *hello);
            self.introductions.begin(link, Some(from), begins, true);
        }
        waits
    }

    /// The claim on a link, unless the link is gone.
    fn claim_on(&mut self, link: LinkId) -> Option<Claim> {
        let introduction = self.introductions.waiting.get(&link)?;
        let stays = introduction.from.is_none_or(|from| {
            let remote = self.remotes.of(from);
            remote.is_some_and(|remote| remote.owns(link))
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

    /// Whether a stranger claims to be a known remote in its present life, without its token:
    /// session numbers are not secret, tokens are. This is also so for a peer that connects to a
    /// second name of ours.
    fn is_a_second_call(&self, hello: &Hello) -> bool {
        let who = &hello.identity;
        let known = self.remotes.namesake(who);
        let met = known.and_then(|(_, it)| it.met());
        met.is_some_and(|it| it.session == who.session && it.token != hello.token)
    }

    /// The remote with the name of a hello, in another life.
    fn old_life(&self, from: Option<RemoteId>, hello: &Hello) -> Option<RemoteId> {
        let who = &hello.identity;
        let (known, remote) = self.remotes.namesake(who)?;
        (Some(known) != from && remote.met()?.session != who.session).then_some(known)
    }

    /// Asks a remote whether it is still there; `newcomer` waits for its place.
    fn ask_old(&mut self, old: RemoteId, newcomer: Option<LinkId>, now: Instant) {
        if self.remotes.of(old).is_none() {
            return;
        }
        let Introductions {
            waiting,
            doubts,
            serial,
            ..
        } = &mut self.introductions;
        if let Some(introduction) = newcomer.and_then(|link| waiting.get_mut(&link)) {
            introduction.stage = Stage::Newcomer(old);
        }
        let ours = newcomer.is_none();
        if let Some(doubt) = doubts.get_mut(&old) {
            doubt.ours |= ours;
            return doubt.newcomers.extend(newcomer);
        }
        *serial += 1;
        let doubt = Doubt {
            serial: *serial,
            timer: (self.wheel).set(now, now.after(OLD_TIME), Deadline::Doubt(old)),
            ours,
            newcomers: newcomer.into_iter().collect(),
        };
        doubts.insert(old, doubt);
        let ping = Header::new(wire::Kind::Ping, *serial, 0);
        self.push_control(old, ping, &[]);
    }

    /// Refuses an introduction: its peer is told, and the link ends.
    pub(super) fn turn_away(&mut self, link: LinkId, status: Status) {
        let Some(introduction) = self.take_introduction(link) else {
            return;
        };
        if let Some(from) = introduction.from {
            self.actions.push(DeferredAction::Close(link, Close::Now));
            return self.link_down(link, from, LinkDown::Protocol);
        }
        let last = introduction.more.len();
        let first = [(introduction.header, introduction.hello)];
        for (at, (header, _)) in first.iter().chain(&introduction.more).enumerate() {
            self.stats.refused += 1;
            let after = if at == last { After::End } else { After::Open };
            self.send_reply(None, link, header.word, status, after);
        }
    }

    /// A stranger becomes a remote.
    fn admit_all(&mut self, link: LinkId, introduction: Introduction) {
        let Introduction {
            source,
            header,
            hello,
            more,
            ..
        } = introduction;
        for (header, hello) in [(header, hello)].into_iter().chain(more) {
            let bound = self.remote_of(link, 0);
            match self.remotes.of(bound) {
                Some(_) => self.connect_on(link, bound, &header, &hello),
                None => self.admit(link, source, &header, &hello),
            }
        }
    }

    /// The link of an introduction is no more.
    pub(in crate::endpoint) fn lose_introduction(&mut self, link: LinkId, reason: LinkDown) {
        if let LinkDown::Closed | LinkDown::Reset = reason
            && let Some(introduction) = self.introductions.waiting.get(&link)
            && let Stage::Challenged(..) = introduction.stage
        {
            self.log_refusal(link, SILENT);
        }
        self.forget_introduction(link);
    }

    /// The link of an introduction is no more, or is about to be closed.
    pub(in crate::endpoint) fn forget_introduction(&mut self, link: LinkId) {
        self.take_introduction(link);
    }

    /// Takes an introduction out, and ends the question about its claim.
    fn take_introduction(&mut self, link: LinkId) -> Option<Introduction> {
        let (introduction, ours) = self.introductions.take(link, &mut self.wheel)?;
        if let Some(ours) = ours {
            self.session_out.forget(ours);
            self.actions.push(DeferredAction::Close(ours, Close::Now));
        }
        Some(introduction)
    }

    /// A link of ours to a claimed address is up. False: it is no such link.
    pub(in crate::endpoint) fn ask_now(&mut self, ours: LinkId) -> bool {
        let Some(link) = self.introductions.asking.get(&ours) else {
            return false;
        };
        if let Some(introduction) = self.introductions.waiting.get(link) {
            let body = ConfirmBody {
                identity: introduction.hello.identity,
                to: introduction.hello.to,
                token: introduction.hello.token,
                from: introduction.seen_at,
            };
            let header = Header::new(wire::Kind::Confirm, 0, 0);
            let control = Control::new(header, &body.emit());
            self.session_out.push(ours, control, After::Open);
        }
        true
    }

    /// A peer asks whether a hello was ours. The port is asked whether it came from here when it is
    /// not being polled.
    pub(in crate::endpoint) fn on_confirm(&mut self, link: LinkId, body: &[u8]) {
        let Some(asked) = ConfirmBody::parse(body) else {
            return self.violation(link, 0, "a malformed question");
        };
        self.introductions.due.push_back(Due::Confirm(link, asked));
    }

    /// Answers a question about a hello. An eavesdropper can know the hello, so its source must be
    /// right, too.
    fn confirm(&mut self, link: LinkId, asked: &ConfirmBody, here: impl FnOnce(Address) -> bool) {
        if !self.session_out.has_room(link) {
            return self.violation(link, 0, "questions without reading the answers");
        }
        let yes = asked.identity == self.identity
            && asked.token == self.token(asked.to)
            && (asked.from == Address::default() || here(asked.from));
        let header = Header::new(wire::Kind::Confirmed, 0, yes.into());
        let control = Control::new(header, &[]);
        self.session_out.push(link, control, After::Close);
    }

    /// Logs the refusal of an introduction: once for each place, and then at growing intervals.
    pub(super) fn log_refusal(&mut self, link: LinkId, why: &str) {
        let Some(introduction) = self.introductions.waiting.get(&link) else {
            return;
        };
        if let Some(times) = self.introductions.refused.again(introduction.source) {
            let source = (self.config.name_of)(Place::Source(introduction.source));
            let who = self.config.name(&introduction.hello.identity);
            log::warn!("{source} says it is {who}, {why}: refused (refusal {times})");
        }
    }

    /// The token for the endpoint with that name.
    pub(in crate::endpoint) fn token(&self, to: (NicId, EndpointId)) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.config.key.0);
        hasher.write(&to.0.0.to_le_bytes());
        hasher.write(&to.1.0.to_le_bytes());
        hasher.finish()
    }
}
