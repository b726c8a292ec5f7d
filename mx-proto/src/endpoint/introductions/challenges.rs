//! Proof of the site's secret in an introduction.
//!
//! ```text
//!   us                                            them
//!   Connect(hello, nonce) ----------------------> CHALLENGED
//!   on_challenge <--- Challenge(who, nonce, proof)
//!      | right: the link is proven                  | on_prove
//!      `----------------------- Prove(proof) -----> right: goes on as CLAIMED
//!   wrong: distrusted, left                         wrong: refused, closed
//! ```
//!
//! On a link begun here only a refusal is accepted before a right Challenge.
//!
//! Owns: what has been proven on links, the count of nonces.
//! Cost: nothing without a secret, and nothing once a link is proven.

use super::Stage;
use super::reasons::{Distrust, Rejection};
use crate::endpoint::Endpoint;
use crate::event::Identity;
use crate::ids::{LinkId, NicId, RemoteId, SessionId};
use crate::log_limit::LogLimit;
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{LinkState, Remote};
use crate::secret::{self, Binding, Purpose, Role, Words};
use crate::status::{DownReason, Status, Violation};
use crate::time::Clock;
use crate::wire::{self, ChallengeBody, HELLO_LEN, Header, Hello};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Challenges under way on links without an introduction.
#[derive(Debug, Default)]
pub(in crate::endpoint) struct Challenges {
    /// The identity that has proven the secret on a link, until its hello comes there: on one that we
    /// have begun, or on a stranger's that is to introduce itself once more.
    vouched: HashMap<LinkId, Identity, RandomState>,
    /// The number of the last nonce.
    nonces: u64,
    /// The interfaces that we have called in vain.
    distrusted: LogLimit<NicId>,
}

impl Challenges {
    /// That one has proven the secret on this link.
    pub(in crate::endpoint) fn vouch(&mut self, link: LinkId, who: Identity) {
        self.vouched.insert(link, who);
    }

    /// The life that has, on a stranger's link.
    pub(super) fn take(&mut self, link: LinkId) -> Option<SessionId> {
        Some(self.vouched.remove(&link)?.session)
    }

    /// Whether a hello on a link that we have begun is from the endpoint that has proven the secret
    /// there. `settled`: the proof is not needed any more.
    pub(in crate::endpoint) fn vouches(
        &mut self,
        link: LinkId,
        who: &Identity,
        settled: bool,
    ) -> bool {
        let right = self.vouched.get(&link).is_none_or(|of| of == who);
        if right && settled {
            self.vouched.remove(&link);
        }
        right
    }

    /// A link is no more.
    #[inline]
    pub(in crate::endpoint) fn forget(&mut self, link: LinkId) {
        self.vouched.remove(&link);
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Asks a stranger for the site's secret.
    pub(super) fn challenge(&mut self, link: LinkId, binding: Binding) {
        let Self {
            introductions,
            challenges,
            config,
            identity,
            ..
        } = self;
        let Some(secret) = &config.secret else {
            return;
        };
        let Some(introduction) = introductions.waiting.get_mut(&link) else {
            return;
        };
        challenges.nonces += 1;
        let number = challenges.nonces;
        introduction.stage = Stage::Challenged(number, binding);
        let nonce = secret::nonce(&config.key.0, number);
        let said = ChallengeBody::said(identity, &nonce);
        let caller = caller(&introduction.hello);
        let proof = secret.prove(Role::Called, &words(&caller, &said, binding));
        let body = ChallengeBody {
            identity: *identity,
            nonce,
            proof,
        };
        let header = Header::new(wire::Kind::Challenge, 0, 0);
        // A Connect with a wrong key may have been refused before this one.
        self.unmet.set_closes(link, false);
        self.send_session(None, link, header, &body.emit());
    }

    /// A stranger answers that.
    pub(in crate::endpoint) fn on_prove(&mut self, link: LinkId, proof: &[u8]) {
        let Self {
            introductions,
            config,
            identity,
            ..
        } = self;
        let waiting = introductions.waiting.get_mut(&link);
        let asked = waiting.and_then(|of| match of.stage {
            Stage::Challenged(number, binding) => Some((of, number, binding)),
            _ => None,
        });
        let (Some(secret), Some((introduction, number, binding))) = (&config.secret, asked) else {
            return self.violation(link, Violation::Proof);
        };
        let said = ChallengeBody::said(identity, &secret::nonce(&config.key.0, number));
        let caller = caller(&introduction.hello);
        let words = words(&caller, &said, binding);
        introduction.stage = Stage::Claimed;
        if secret.verify(Role::Caller, &words, proof) {
            introduction.trusted = true;
            return self.look_at(link);
        }
        self.turn_away(link, Status::BadSecret, Rejection::Secret);
    }

    /// The peer that we connected to sends a challenge.
    pub(in crate::endpoint) fn on_challenge(&mut self, link: LinkId, from: RemoteId, body: &[u8]) {
        if self.unread_sessions(link, Some(from)) {
            return self.violation(link, Violation::UnreadQuestions);
        }
        let Some(body) = ChallengeBody::parse(body) else {
            return self.violation(link, Violation::Challenge);
        };
        self.answer_challenge(link, from, &body);
    }

    /// It has proven that it knows it, or has not.
    fn answer_challenge(&mut self, link: LinkId, from: RemoteId, body: &ChallengeBody) {
        let binding = self.port.binding(link);
        let Some(remote) = self.remotes.of(from) else {
            return;
        };
        let name = remote.name;
        let hello = self.call(from, remote, link, 0);
        let who = Some(body.identity);
        let Some(secret) = &self.config.secret else {
            return self.distrust(from, who, Distrust::Wanted);
        };
        // A relay: our own hello comes back to us, with our proof of it.
        if body.identity == self.identity && name != self.identity.name() {
            return self.distrust(from, who, Distrust::Echo);
        }
        let (caller, said) = (
            caller(&hello),
            ChallengeBody::said(&body.identity, &body.nonce),
        );
        let words = words(&caller, &said, binding);
        if !secret.verify(Role::Called, &words, &body.proof) {
            return self.distrust(from, who, Distrust::Another);
        }
        let proof = secret.prove(Role::Caller, &words);
        self.challenges.vouch(link, body.identity);
        if let Some(remote) = self.remotes.of_mut(from) {
            remote.advance(link, LinkState::Proven);
        }
        let header = Header::new(wire::Kind::Prove, 0, 0);
        self.send_session(Some(from), link, header, &proof);
    }

    /// May what comes on this link of a remote's be believed, as far as the site's secret goes?
    #[inline]
    pub(in crate::endpoint) fn trusts(&self, link: LinkId, from: RemoteId) -> bool {
        let proven = |remote: &Remote| remote.state_of(link) >= Some(LinkState::Proven);
        self.config.secret.is_none() || self.remotes.of(from).is_some_and(proven)
    }

    /// Our connect has reached a peer without the site's secret.
    #[cold]
    pub(in crate::endpoint) fn distrust(
        &mut self,
        from: RemoteId,
        who: Option<Identity>,
        why: Distrust,
    ) {
        self.log_distrust(who, from, why);
        self.stats.refused += 1;
        self.fail_remote(from, DownReason::Secret);
    }

    /// Says what to do about the secret, once for each interface called and then ever more rarely.
    pub(in crate::endpoint) fn log_distrust(
        &mut self,
        who: Option<Identity>,
        from: RemoteId,
        why: Distrust,
    ) {
        let Some(remote) = self.remotes.of(from) else {
            return;
        };
        let Some(times) = self.challenges.distrusted.again(remote.name.0) else {
            return;
        };
        let called = self.config.name(&Identity {
            session: SessionId(0),
            ..remote.identity()
        });
        let who = who.map_or_else(String::new, |who| {
            format!(" and reached {}", self.config.name(&who))
        });
        log::warn!("called {called}{who}, which {why} (MX_SECRET_FILE; call {times})");
    }
}

/// A caller's words. Its key is no part of them: a link has one proof and may have several keys.
fn caller(hello: &Hello) -> [u8; HELLO_LEN] {
    Hello { key: 0, ..*hello }.emit()
}

fn words<'a>(caller: &'a [u8], called: &'a [u8], binding: Binding) -> Words<'a> {
    Words {
        purpose: Purpose::Introduction,
        caller,
        called,
        binding,
    }
}
