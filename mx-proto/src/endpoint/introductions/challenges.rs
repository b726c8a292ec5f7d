//! Proof of the site's secret in an introduction.
//!
//! ```text
//!   us                                            them
//!   Connect(hello, nonce) ----------------------> CHALLENGED
//!   on_challenge <--- Challenge(who, nonce, proof)
//!      | right: the link is proven                  | on_prove
//!      `----------------------- Prove(proof) -----> right: admitted
//!   wrong: distrusted, dropped                      wrong: refused, closed
//! ```
//!
//! On a link that we began, only a refusal is accepted before a right Challenge.
//!
//! Owns: identities that have proven the secret, and the count of nonces.
//! Cost: nothing without a secret, and nothing once a link is proven.

use super::Introduction;
use super::reasons::{Distrust, Rejection};
use crate::endpoint::Endpoint;
use crate::event::Identity;
use crate::ids::{LinkId, NicId, RemoteId, SessionId};
use crate::log_limit::LogLimit;
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{LinkState, Remote};
use crate::secret::{self, Binding, ProofTranscript, Purpose, Role};
use crate::status::{DownReason, Status, Violation};
use crate::time::Clock;
use crate::wire::{self, ChallengeBody, HELLO_LEN, Header, Hello};
use foldhash::fast::RandomState;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(in crate::endpoint) struct Challenges {
    /// Identity that has proven the secret on a link, until its hello arrives there.
    vouched: HashMap<LinkId, Identity, RandomState>,
    /// Number of the last nonce.
    nonces: u64,
    /// Logged failures, by the interface called.
    distrusted: LogLimit<NicId>,
}

impl Challenges {
    /// Returns whether a hello on a link that we began is from the endpoint that has proven the secret there.
    /// `settled`: the proof is not needed any more.
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

    /// Forgets a link that is down or about to be closed.
    #[inline]
    pub(in crate::endpoint) fn forget(&mut self, link: LinkId) {
        self.vouched.remove(&link);
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Asks a stranger to prove that it knows the site's secret.
    pub(super) fn challenge(&mut self, link: LinkId, mut introduction: Introduction) {
        self.challenges.nonces += 1;
        introduction.challenge = (self.challenges.nonces, self.port.binding(link));
        self.introductions.challenged.insert(link, introduction);
        self.send_challenge(link);
    }

    /// Sends the challenge of the introduction on a link, if one waits to be sent. If the link has no room, the
    /// challenge is sent when there is room.
    pub(in crate::endpoint) fn send_challenge(&mut self, link: LinkId) {
        let challenged = self.introductions.challenged.get(&link);
        let challenged = challenged.filter(|introduction| !introduction.asked);
        let (Some(secret), Some(introduction)) = (&self.config.secret, challenged) else {
            return;
        };
        let (number, binding) = introduction.challenge;
        let nonce = secret::nonce(&self.config.key.0, number);
        let said = ChallengeBody::said(&self.identity, &nonce);
        let caller = caller(&introduction.hello);
        let proof = secret.prove(Role::Called, &transcript(&caller, &said, binding));
        let body = ChallengeBody {
            identity: self.identity,
            nonce,
            proof,
        };
        let header = Header::new(wire::Kind::Challenge, 0, 0);
        let asked = self.answer(link, header, &body.emit()).is_ok();
        if let Some(introduction) = self.introductions.challenged.get_mut(&link) {
            introduction.asked = asked;
        }
    }

    /// Handles a stranger's answer to the challenge.
    pub(in crate::endpoint) fn on_prove(&mut self, link: LinkId, proof: &[u8]) {
        let asked = self.introductions.take(link);
        let (Some(secret), Some(introduction)) = (&self.config.secret, asked) else {
            return self.violation(link, Violation::Proof);
        };
        let (number, binding) = introduction.challenge;
        let nonce = secret::nonce(&self.config.key.0, number);
        let said = ChallengeBody::said(&self.identity, &nonce);
        let caller = caller(&introduction.hello);
        if secret.verify(Role::Caller, &transcript(&caller, &said, binding), proof) {
            return self.admit_all(link, introduction);
        }
        self.turn_away(link, introduction, Status::BadSecret, Rejection::Secret);
    }

    /// Handles the challenge of a peer that we called.
    pub(in crate::endpoint) fn on_challenge(&mut self, link: LinkId, from: RemoteId, body: &[u8]) {
        if self.unread_sessions(from) {
            return self.violation(link, Violation::UnreadQuestions);
        }
        let Some(body) = ChallengeBody::parse(body) else {
            return self.violation(link, Violation::Challenge);
        };
        self.answer_challenge(link, from, &body);
    }

    /// Checks the peer's proof that it knows the secret, and answers with ours.
    fn answer_challenge(&mut self, link: LinkId, from: RemoteId, body: &ChallengeBody) {
        let binding = self.port.binding(link);
        let Some(remote) = self.remotes.of(from) else {
            return;
        };
        let name = remote.name;
        let hello = self.hello_of_call(from, remote, link, 0);
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
        let words = transcript(&caller, &said, binding);
        if !secret.verify(Role::Called, &words, &body.proof) {
            return self.distrust(from, who, Distrust::Another);
        }
        let proof = secret.prove(Role::Caller, &words);
        self.challenges.vouched.insert(link, body.identity);
        if let Some(remote) = self.remotes.of_mut(from) {
            remote.advance(link, LinkState::Proven);
        }
        let header = Header::new(wire::Kind::Prove, 0, 0);
        self.push_control(from, header, &proof);
    }

    /// Returns whether packets on this link of a remote may be believed, as far as the site's secret goes.
    #[inline]
    pub(in crate::endpoint) fn trusts(&self, link: LinkId, from: RemoteId) -> bool {
        let proven = |remote: &Remote| remote.state_of(link) >= Some(LinkState::Proven);
        self.config.secret.is_none() || self.remotes.of(from).is_some_and(proven)
    }

    /// Ends a remote that we called and that does not know the site's secret.
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

    /// Logs how to fix the secret: once for each interface called, and then ever more rarely.
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

/// Returns the caller's part of the transcript. Key and greeting are left out, because a link has one proof and may
/// have several of each.
fn caller(hello: &Hello) -> [u8; HELLO_LEN] {
    Hello {
        key: 0,
        greeting: 0,
        ..*hello
    }
    .emit()
}

fn transcript<'a>(caller: &'a [u8], called: &'a [u8], binding: Binding) -> ProofTranscript<'a> {
    ProofTranscript {
        purpose: Purpose::Introduction,
        caller,
        called,
        binding,
    }
}
