//! Data links: a second link of a session, for bulk data.
//!
//! ```text
//!   caller:  none --> Dialled --Attach--> Asked --Attached--> Open      the Data of large messages goes here;
//!              ^          |                 |                  |        all else on the command link
//!              `----------+-----------------+------------------'
//!                 lost, unused             Lost, Pull again ------> on the command link
//!   called:  none --Attach, a right proof--> Open
//! ```
//!
//! A packet of a data link is about an operation by its id and offset, so its order towards the command link does not
//! matter. The end of a data link is no end of its session: what is missing is asked for again. Each side says on the
//! command link that a data link is lost, so that both forget what was under way on it.
//!
//! Owns: the data links of sessions, and when one is dialled again.
//! Not here: the choice of a link for each packet (`outbound`).
//! Cost: an entry for each session that has had a data link; a look-up for each packet of one.

use super::Endpoint;
use super::deadlines::Deadline;
use crate::ids::{LinkId, RemoteId, RequestId};
use crate::memory::Source;
use crate::ops::{State, Strand};
use crate::owner::Owner;
use crate::port::{Body, Close, LinkDown, Port};
use crate::remote::{Remote, Tx};
use crate::secret::{self, Nonce, Role};
use crate::status::Violation;
use crate::time::{Clock, Instant};
use crate::wire::{self, Header};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::time::Duration;

/// The data links of an endpoint.
#[derive(Debug, Default)]
pub(super) struct DataLinks {
    sessions: HashMap<RemoteId, DataLink, RandomState>,
    /// The number of the last attempt to pull a message.
    attempts: u32,
    by_link: HashMap<LinkId, RemoteId, RandomState>,
}

/// The data link of a session, or what is known of the last one.
#[derive(Debug)]
struct DataLink {
    /// The link and its state; `None`: there is none at present.
    link: Option<(LinkId, Stage)>,
    /// The number of the link, or of the last one; 0: there has been none.
    number: u32,
    /// Links that have failed one after the other.
    failures: u32,
    /// The time before which none is dialled.
    again_at: Instant,
    /// A [`Deadline::DataLink`] is set.
    watched: bool,
    /// Looks since bytes last came or went.
    unused: u32,
    /// Looks since bytes last came, while some were awaited.
    stalled: u32,
}

/// The state of a data link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It cannot carry packets yet.
    Dialled,
    /// Its Attach has gone.
    Asked,
    /// It carries data.
    Open,
}

impl DataLinks {
    /// The session of a data link, whose packets these are.
    pub(super) fn session_of(&self, link: LinkId) -> Option<RemoteId> {
        self.by_link.get(&link).copied()
    }

    /// The number of one more attempt to pull a message.
    pub(super) fn next_attempt(&mut self) -> u32 {
        self.attempts = self.attempts.wrapping_add(1);
        self.attempts
    }

    /// Whether a session's data link carries data: both sides have proven that it is the session's.
    fn is_open(&self, id: RemoteId) -> bool {
        let link = self.sessions.get(&id).and_then(|of| of.link);
        link.is_some_and(|(_, stage)| stage == Stage::Open)
    }

    /// Notes that data has come on a session's data link, or has gone there.
    pub(super) fn note(&mut self, id: RemoteId, came: bool) {
        if let Some(of) = self.sessions.get_mut(&id) {
            of.unused = 0;
            if came {
                of.stalled = 0;
            }
        }
    }

    /// Takes a session's link out. Returns its number and state too.
    fn take(&mut self, id: RemoteId) -> Option<(LinkId, u32, Stage)> {
        let of = self.sessions.get_mut(&id)?;
        let (link, stage) = of.link.take()?;
        self.by_link.remove(&link);
        Some((link, of.number, stage))
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The features that we offer in a hello on that link.
    pub(super) fn features(&self, link: LinkId) -> u32 {
        if self.port.limits(link).data_links {
            wire::DATA_LINKS
        } else {
            0
        }
    }

    /// A message of that length is offered to a remote, or pulled from it: for a large one the session should have a data link.
    /// The side that has called dials it.
    #[inline]
    pub(super) fn want_data_link(&mut self, id: RemoteId, length: u32) {
        if let Some(remote) = self.remotes.of(id)
            && let Some(met) = remote.met()
            && met.data_links
            && met.data.is_none()
            && length > met.reach.eager_max
            && remote.called.is_some()
        {
            let command = met.tx.link();
            self.dial_data_link(id, command);
        }
    }

    #[cold]
    fn dial_data_link(&mut self, id: RemoteId, command: LinkId) {
        let now = self.clock.now();
        let of = self.data_links.sessions.entry(id).or_insert(DataLink {
            link: None,
            number: 0,
            failures: 0,
            again_at: now,
            watched: false,
            unused: 0,
            stalled: 0,
        });
        if of.link.is_some() || now < of.again_at {
            return;
        }
        match self.port.connect_beside(command, now) {
            Ok(link) => {
                of.number += 1;
                of.link = Some((link, Stage::Dialled));
                self.data_links.by_link.insert(link, id);
            }
            Err(error) => {
                log::debug!("no data link to remote {id:?}: {error}");
                of.fail(now);
            }
        }
    }

    /// A data link that we have dialled can carry packets: says whose it is.
    pub(super) fn data_link_up(&mut self, link: LinkId, id: RemoteId) {
        let Some(of) = self.data_links.sessions.get_mut(&id) else {
            return;
        };
        let number = of.number;
        of.link = Some((link, Stage::Asked));
        self.watch_data_link(id);
        let session = self.remotes.met(id).map(|met| secret::call_of(&met.nonce));
        let header = Header::new(wire::Kind::Attach, session.unwrap_or_default(), number);
        if !self.send_proof(link, id, Role::Caller, header) {
            self.lose_data_link(id, true);
        }
    }

    /// Sends a packet whose body is our proof. False: it has not gone.
    fn send_proof(&mut self, link: LinkId, id: RemoteId, role: Role, mut header: Header) -> bool {
        let Some(proof) = self.data_link_proof(link, id, role, header.length) else {
            return false;
        };
        header.body_len = proof.len() as u32;
        let sent = self.port.send(link, &header.emit(), Body::Bytes(&proof));
        self.stats.packets_out += u64::from(sent.is_ok());
        sent.is_ok()
    }

    /// The proof of one side that a data link is that session's.
    fn data_link_proof(
        &self,
        link: LinkId,
        id: RemoteId,
        role: Role,
        number: u32,
    ) -> Option<Nonce> {
        let remote = self.remotes.of(id)?;
        let (ours, theirs) = (self.nonce_of(id)?, remote.met()?.nonce);
        let nonces = if remote.called.is_some() {
            [&ours, &theirs]
        } else {
            [&theirs, &ours]
        };
        let secret = self.config.secret.as_ref();
        let binding = self.port.binding(link);
        Some(secret::data_link_proof(
            secret, role, number, binding, nonces,
        ))
    }

    /// A stranger's link says that it is a data link of a session.
    #[cold]
    pub(super) fn on_attach(&mut self, link: LinkId, header: &Header, proof: &[u8]) {
        let (id, number) = (RemoteId::from_word(header.word), header.length);
        let is_called = |remote: &Remote| {
            remote.called.is_none() && remote.met().is_some_and(|met| met.data_links)
        };
        let last = self.data_links.sessions.get(&id).map_or(0, |of| of.number);
        let right = self.remotes.of(id).is_some_and(is_called)
            && number > last
            && self
                .data_link_proof(link, id, Role::Caller, number)
                .is_some_and(|right| right == proof);
        if !right {
            return self.violation(link, Violation::Attach);
        }
        if !self.port.has_places_beside(link) {
            log::debug!("no place for a data link of remote {id:?}");
            return self.close_link(link, Close::Now);
        }
        // Who dials again has lost the last one.
        self.lose_data_link(id, true);
        let now = self.clock.now();
        self.data_links.sessions.insert(
            id,
            DataLink {
                link: Some((link, Stage::Asked)),
                number,
                failures: 0,
                again_at: now,
                watched: self
                    .data_links
                    .sessions
                    .get(&id)
                    .is_some_and(|of| of.watched),
                unused: 0,
                stalled: 0,
            },
        );
        self.data_links.by_link.insert(link, id);
        self.port.accept(link);
        let answer = Header::new(wire::Kind::Attached, 0, number);
        if self.send_proof(link, id, Role::Called, answer) {
            self.open_data_link(id, link);
        } else {
            self.lose_data_link(id, true);
        }
    }

    /// A packet that is no data has come on a data link.
    #[cold]
    pub(super) fn on_data_link(&mut self, link: LinkId, id: RemoteId, header: &Header) {
        let of = self.data_links.sessions.get(&id);
        let asked = of
            .is_some_and(|of| of.link == Some((link, Stage::Asked)) && of.number == header.length);
        let said = self.port.body().to_vec();
        let proof = self.data_link_proof(link, id, Role::Called, header.length);
        let right = proof.is_some_and(|proof| proof[..] == said);
        if header.kind == wire::Kind::Attached && asked && right {
            self.open_data_link(id, link);
        } else {
            self.stats.malformed += 1;
            log::debug!("link {link:?}: {}; closing it", Violation::Attach);
            self.lose_data_link(id, true);
        }
    }

    /// Bulk data goes over that link from now on.
    fn open_data_link(&mut self, id: RemoteId, link: LinkId) {
        let Some(of) = self.data_links.sessions.get_mut(&id) else {
            return;
        };
        of.link = Some((link, Stage::Open));
        (of.unused, of.stalled) = (0, 0);
        self.watch_data_link(id);
        self.stats.data_links += 1;
        if let Some(met) = self.remotes.met_mut(id) {
            met.data = Some(Tx::Open(link));
        }
        self.make_ready(id);
    }

    /// Sets the time of the next look at a data link.
    fn watch_data_link(&mut self, id: RemoteId) {
        if let Some(of) = self.data_links.sessions.get_mut(&id)
            && !std::mem::replace(&mut of.watched, true)
        {
            let now = self.clock.now();
            self.wheel.set(now, now.after(LOOK), Deadline::DataLink(id));
        }
    }

    /// Whether packets of data say of which attempt they are: those of a peer that may have data links.
    pub(super) fn counts_attempts(&self, id: RemoteId) -> bool {
        self.remotes.met(id).is_some_and(|met| met.data_links)
    }

    /// The remote whose data comes on a link.
    #[inline]
    pub(super) fn sender_of_data(&mut self, link: LinkId) -> Option<RemoteId> {
        let bound = self.remote_on(link);
        if self.remotes.of(bound).is_some() {
            return self.trusts(link, bound).then_some(bound);
        }
        let session = self.data_links.session_of(link);
        let id = session.filter(|id| self.data_links.is_open(*id))?;
        self.data_links.note(id, true);
        Some(id)
    }

    /// A data link is down. The caller closes one that is not used.
    pub(super) fn data_link_down(&mut self, id: RemoteId, reason: LinkDown) {
        if reason == LinkDown::Closed && !self.is_used(id) {
            return self.retire_data_link(id);
        }
        log::debug!("the data link of remote {id:?} is lost: {reason}");
        self.lose_data_link(id, true);
    }

    /// Ends a data link that is not used.
    fn retire_data_link(&mut self, id: RemoteId) {
        if let Some((link, ..)) = self.data_links.take(id) {
            self.port.close(link, Close::Flush);
        }
        if let Some(met) = self.remotes.met_mut(id) {
            met.data = None;
        }
    }

    /// Whether bulk data is awaited of a remote, or waits to be sent there.
    fn is_used(&self, id: RemoteId) -> bool {
        let queues = self.remotes.of(id).and_then(Remote::queues);
        queues.is_some_and(|queues| queues.has_bulk()) || self.awaits_data(id)
    }

    /// The peer says that a data link is lost.
    pub(super) fn on_lost(&mut self, id: RemoteId, number: u32) {
        let of = self.data_links.sessions.get(&id);
        if of.is_some_and(|of| of.number == number) {
            self.lose_data_link(id, false);
        }
    }

    /// Ends a session's data link, if there is one: what was under way on it is asked for again. `tells`: the peer may not know.
    fn lose_data_link(&mut self, id: RemoteId, tells: bool) {
        let Some((link, number, stage)) = self.data_links.take(id) else {
            return;
        };
        self.port.close(link, Close::Now);
        let now = self.clock.now();
        if let Some(of) = self.data_links.sessions.get_mut(&id) {
            of.fail(now);
        }
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        if stage == Stage::Open
            && let Some(queues) = remote.queues_mut()
        {
            queues.forget_bulk();
        }
        if let Some(met) = self.remotes.met_mut(id) {
            met.data = None;
        }
        if stage == Stage::Dialled {
            return;
        }
        self.stats.data_links_lost += u64::from(stage == Stage::Open);
        if tells {
            self.push_control(id, Header::new(wire::Kind::Lost, 0, number), &[]);
        }
        self.pull_all_again(id);
        if self.awaits_data(id) {
            self.want_data_link(id, u32::MAX);
        }
    }

    /// Asks a remote again for all that it has been asked for and that has not come. What is under way does not count any
    /// more.
    fn pull_all_again(&mut self, id: RemoteId) {
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let all: Vec<RequestId> = self.ops.of_list(Strand::Kin, &remote.kin).collect();
        for op in all {
            self.pull_again(op, id);
        }
    }

    fn pull_again(&mut self, op: RequestId, from: RemoteId) {
        if let Some(State::Pulling(pulling)) = self.ops.get_mut(op).map(|record| &mut record.state)
            && pulling.awaits_data()
        {
            pulling.requested = pulling.received;
            pulling.attempt = self.data_links.next_attempt();
            self.pull(op, from);
        }
    }

    /// A packet of data is not the next one of its message. If the data link has been opened meanwhile, it has overtaken those
    /// on the command link: what is missing is asked for again.
    #[cold]
    pub(super) fn out_of_turn(&mut self, from: RemoteId, header: &Header) {
        let id = RequestId::from_word(header.word);
        if self.counts_attempts(from)
            && let Some(record) = self.ops.get(id)
            && let State::Pulling(pulling) = &record.state
            && record.remote == from
            && header.aux == pulling.attempt
            && header.length > pulling.received
        {
            self.pull_again(id, from);
        }
    }

    /// A session is over, and its data link with it.
    pub(super) fn end_data_link(&mut self, id: RemoteId) {
        let taken = self.data_links.take(id);
        self.data_links.sessions.remove(&id);
        if let Some((link, ..)) = taken
            && !self.inherited
        {
            self.port.close(link, Close::Now);
        }
    }

    /// It is time to look after a data link: whether it is used, and whether what is awaited comes.
    pub(super) fn look_at_data_link(&mut self, id: RemoteId) {
        let (awaits, busy) = (self.awaits_data(id), self.is_used(id));
        let remote = self.remotes.of(id);
        let called = remote.is_some_and(|remote| remote.called.is_some());
        let healthy = remote
            .and_then(Remote::met)
            .is_some_and(|met| met.silent <= HEALTHY);
        let Some(of) = self.data_links.sessions.get_mut(&id) else {
            return;
        };
        of.watched = false;
        let Some((_, stage)) = of.link else {
            return;
        };
        let answered = stage == Stage::Open;
        if of.unused == 0 && answered {
            of.failures = 0;
        }
        of.unused += 1;
        of.stalled = if awaits || !answered {
            of.stalled + 1
        } else {
            0
        };
        let (unused, stalled) = (of.unused, of.stalled);
        if stalled >= STALLED && healthy {
            log::warn!("nothing comes on the data link of remote {id:?}: it is given up");
            return self.lose_data_link(id, true);
        }
        if called && unused > UNUSED && !busy {
            return self.retire_data_link(id);
        }
        self.watch_data_link(id);
        if stalled == 1 {
            self.ask(id);
        }
    }

    /// Whether data has been asked for that has not come.
    fn awaits_data(&self, id: RemoteId) -> bool {
        let Some(remote) = self.remotes.of(id) else {
            return false;
        };
        let mut all = self.ops.of_list(Strand::Kin, &remote.kin);
        all.any(|op| match &self.ops.record(op.index()).state {
            State::Pulling(pulling) => pulling.awaits_data(),
            _ => false,
        })
    }
}

impl DataLink {
    /// A link has failed: the next one is dialled at once, and after two in a row later and later.
    fn fail(&mut self, now: Instant) {
        self.failures += 1;
        let pause = match self.failures {
            1 => Duration::ZERO,
            more => Duration::from_secs(1 << (more - 2).min(6)),
        };
        self.again_at = now.after(pause);
    }
}

/// The time between two looks at a data link.
const LOOK: Duration = Duration::from_secs(3);
/// Looks without data that is awaited after which a data link counts as lost.
const STALLED: u32 = 2;
/// Looks without use after which a data link is closed.
const UNUSED: u32 = 3;
/// Silent steps of a command link that is healthy (see `liveness`).
const HEALTHY: u8 = 4;
