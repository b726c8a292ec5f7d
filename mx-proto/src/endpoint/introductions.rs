//! Introductions: the first hello on a stranger's link, until a remote is made.
//!
//! ```text
//!   hello --the network confirms its name, version and key match--> admit: remote, Reply (sessions.rs)
//!     |        secret |                                                   ^
//!     |               v                                                   |
//!     |          CHALLENGED ---------right--------------------------------'
//!     v               | wrong, silent
//!   refused, closed <-'
//! ```
//!
//! Without a secret the introduction ends with the hello. `challenges` checks the secret.
//!
//! Owns: introductions that wait for a proof, and the record of logged refusals.
//! Out of scope: addresses.
//! Cost: O(1) for each introduction.

mod challenges;
mod reasons;

pub(super) use challenges::Challenges;
pub(super) use reasons::Distrust;

use super::Endpoint;
use crate::config::NetworkId;
use crate::ids::{LinkId, NicId, RemoteId};
use crate::log_limit::LogLimit;
use crate::origin::Source;
use crate::owner::Owner;
use crate::port::{Body, Close, LinkDown, Port, SendError};
use crate::remote::{LinkState, Name};
use crate::secret::{self, Binding};
use crate::status::{Status, Violation};
use crate::time::{Clock, Instant};
use crate::wire::{Header, Hello};
use foldhash::fast::RandomState;
use reasons::Rejection;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Introductions {
    /// Links of strangers refused in this round.
    refused_links: Vec<LinkId>,
    /// Introductions that wait for a proof of the site's secret.
    challenged: HashMap<LinkId, Introduction, RandomState>,
    /// Logged refusals, by source and claimed name.
    refused: LogLimit<(Source, Name)>,
    sources: LogLimit<Source>,
    /// Logged refusals of our own calls.
    pub(super) refused_us: LogLimit<(Name, Status)>,
}

/// Introduction of a peer that has sent a hello.
#[derive(Debug)]
struct Introduction {
    header: Header,
    hello: Hello,
    greeting: Vec<u8>,
    /// Further Connects of the same stranger.
    more: Vec<(Header, Hello)>,
    /// The stranger's source, from the port.
    source: Source,
    /// The stranger's user id on this machine, from the port; `None` if the port does not know it.
    user: Option<u32>,
    /// The stranger's interface, from the port if known, otherwise from the hello.
    nic: NicId,
    /// Number of the nonce in the challenge, and the binding of the link that the proof must cover.
    challenge: (u64, Binding),
    /// Whether the challenge has been sent.
    asked: bool,
}

impl Introductions {
    /// Returns whether a stranger has been refused in this round.
    #[inline]
    pub(super) fn has_refused(&self) -> bool {
        !self.refused_links.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.challenged.len()
    }

    /// Returns whether a stranger has sent a hello on a link that waits for a proof, or has been refused in this round.
    pub(super) fn has(&self, link: LinkId) -> bool {
        self.challenged.contains_key(&link) || self.refused_links.contains(&link)
    }

    fn take(&mut self, link: LinkId) -> Option<Introduction> {
        let introduction = self.challenged.remove(&link)?;
        if self.challenged.is_empty() && self.challenged.capacity() > KEPT {
            self.challenged = HashMap::default();
        }
        Some(introduction)
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Handles the hello of a stranger.
    pub(super) fn on_introduction(
        &mut self,
        link: LinkId,
        header: &Header,
        hello: Hello,
        greeting: &[u8],
    ) {
        if let Some(introduction) = self.introductions.challenged.get_mut(&link) {
            if introduction.hello.identity != hello.identity {
                return self.violation(link, Violation::AnotherName);
            }
            if introduction.more.len() < MORE_MAX {
                introduction.more.push((*header, hello));
                return;
            }
            self.stats.refused += 1;
            return self.send_reply(None, link, header.word, Status::NoResources);
        }
        let seen = self.port.link_origin(link, &hello.identity);
        let introduction = Introduction {
            header: *header,
            hello,
            greeting: greeting.to_vec(),
            more: Vec::new(),
            source: seen.source,
            user: seen.user,
            nic: seen.nic.unwrap_or(hello.identity.nic),
            challenge: Default::default(),
            asked: false,
        };
        if seen.nic.is_none() {
            self.stats.unproven += 1;
            return self.turn_away(link, introduction, Status::Refused, Rejection::Unproven);
        }
        if !hello.is_understood() {
            let why = Rejection::Version(hello.version, hello.oldest);
            return self.put_off(link, &introduction, Status::BadEndpoint, why);
        }
        if hello.key != self.key {
            return self.put_off(link, &introduction, Status::BadKey, Rejection::Key);
        }
        if hello.identity.session == self.identity.session {
            // Our own hello: on a link to ourselves, or passed on by a relay.
            let call = self.call_with(&hello.nonce).filter(|_| seen.oneself);
            let Some(call) = call.and_then(|id| self.remotes.of_mut(id)) else {
                return self.violation(link, Violation::OwnHello);
            };
            if let Some((ours, _)) = call.link {
                call.advance(ours, LinkState::Proven);
            }
        } else if self.config.secret.is_some() {
            let (nic, endpoint) = hello.to;
            if endpoint != self.identity.endpoint || !self.port.has_interface(nic) {
                self.stats.unproven += 1;
                return self.turn_away(link, introduction, Status::Refused, Rejection::Relayed);
            }
            return self.challenge(link, introduction);
        }
        self.admit_all(link, introduction);
    }

    /// Makes a stranger a remote, and handles its further Connects as that remote's.
    fn admit_all(&mut self, link: LinkId, introduction: Introduction) {
        let Introduction {
            header,
            mut hello,
            greeting,
            more,
            source,
            nic,
            ..
        } = introduction;
        hello.identity.nic = nic;
        self.admit(link, source, &header, (&hello, &greeting));
        for (header, hello) in more {
            let bound = self.remote_on(link);
            if self.remotes.of(bound).is_some() {
                self.connect_on(link, bound, &header, &hello);
            }
        }
    }

    /// Asks all other remotes of that name whether they are still alive: `newcomer` may be the next life of the same
    /// process.
    pub(super) fn ping_remotes_named(&mut self, newcomer: RemoteId, name: Name, now: Instant) {
        let is_to_be_asked = |id: &RemoteId| {
            *id != newcomer && self.remotes.connected(*id).is_some_and(|met| !met.asked)
        };
        let asked = self.remotes.all_named(name).filter(is_to_be_asked);
        let asked: Vec<_> = asked.take(ASKED_MAX).collect();
        for id in asked {
            self.stats.same_name_pings += 1;
            self.ask_whether_there(id, now);
        }
    }

    /// Refuses a Connect that no proof could make acceptable. Another Connect may follow on the link.
    fn put_off(
        &mut self,
        link: LinkId,
        introduction: &Introduction,
        status: Status,
        why: Rejection,
    ) {
        self.log_refusal(introduction, why);
        self.refuse(link, introduction.header.word, status);
    }

    /// Refuses a Connect of a stranger. Its link is closed at the end of the round, unless another Connect on it is
    /// accepted.
    pub(super) fn refuse(&mut self, link: LinkId, connect: u64, status: Status) {
        self.stats.refused += 1;
        self.introductions.refused_links.push(link);
        self.send_reply(None, link, connect, status);
    }

    /// Closes the links of strangers refused in this round. Returns true if there were any.
    pub(super) fn close_refused(&mut self) -> bool {
        let any = self.introductions.has_refused();
        while let Some(link) = self.introductions.refused_links.pop() {
            let challenged = self.introductions.challenged.contains_key(&link);
            if !challenged && self.bound.get(link).is_none() {
                self.close_link(link, Close::Flush);
            }
        }
        any
    }

    /// Sends a packet to a stranger at once. If the link has no room, the packet is not kept.
    pub(super) fn answer(
        &mut self,
        link: LinkId,
        mut header: Header,
        body: &[u8],
    ) -> Result<(), SendError> {
        header.body_len = body.len() as u32;
        self.port.send(link, &header.emit(), Body::Bytes(body))?;
        self.stats.packets_out += 1;
        Ok(())
    }

    /// Refuses an introduction: tells its peer and closes the link.
    fn turn_away(
        &mut self,
        link: LinkId,
        introduction: Introduction,
        status: Status,
        why: Rejection,
    ) {
        self.put_off(link, &introduction, status, why);
        for (header, _) in &introduction.more {
            self.stats.refused += 1;
            self.send_reply(None, link, header.word, status);
        }
        self.close_link(link, Close::Flush);
    }

    /// Returns the nonce of our call of a remote on that link, or of our answer to its call.
    pub(super) fn call_nonce(&self, id: RemoteId, link: LinkId) -> secret::Nonce {
        secret::call_nonce(&self.config.key.0, id.to_word(), link.to_word())
    }

    /// Returns the remote for which we have drawn that nonce.
    pub(super) fn call_with(&self, nonce: &secret::Nonce) -> Option<RemoteId> {
        let id = RemoteId::from_word(secret::call_of(nonce));
        (self.nonce_of(id)? == *nonce).then_some(id)
    }

    /// Returns the nonce that we have drawn for a remote.
    pub(super) fn nonce_of(&self, id: RemoteId) -> Option<secret::Nonce> {
        let remote = self.remotes.of(id)?;
        let met_on = remote.connected().map(|met| met.meeting_link);
        let link = met_on.or_else(|| remote.link.map(|(link, _)| link))?;
        Some(self.call_nonce(id, link))
    }

    /// Logs that a stranger's link closed before it was introduced, as the link of a peer without the site's secret
    /// does.
    pub(super) fn log_silent(&mut self, link: LinkId, reason: LinkDown) {
        if let LinkDown::Closed | LinkDown::Reset = reason
            && let Some(introduction) = self.introductions.take(link)
        {
            self.stats.refused += 1;
            self.log_refusal(&introduction, Rejection::Silent);
        }
    }

    /// Forgets the introduction on a link that is down or about to be closed.
    pub(super) fn forget_introduction(&mut self, link: LinkId) {
        self.introductions.take(link);
        self.introductions.refused_links.retain(|of| *of != link);
    }

    /// Logs the refusal of an introduction: each claim of a source once and then at growing intervals, and ever fewer
    /// of a source with many claims.
    fn log_refusal(&mut self, introduction: &Introduction, why: Rejection) {
        let Introductions {
            refused, sources, ..
        } = &mut self.introductions;
        let (source, who) = (introduction.source, &introduction.hello.identity);
        if let Some(times) = refused.again((source, who.name()))
            && sources.is_rare(source, CLAIMS_MAX)
        {
            let place = introduction
                .user
                .map_or(NetworkId::Source(source), NetworkId::User);
            let source = (self.config.name_of)(place);
            let who = self.config.name(who);
            log::warn!("{source} claims to be {who}, {why}: rejected (rejection {times})");
        }
    }
}

/// Maximum number of remotes of one name that are asked because of a newcomer.
const ASKED_MAX: usize = 8;
/// Maximum number of Connects that wait behind a stranger's first.
const MORE_MAX: usize = 16;
/// Number of claims of one source that are each logged; later ones ever more rarely.
const CLAIMS_MAX: u64 = 64;
/// Capacity kept when no introduction waits.
const KEPT: usize = 64;
