//! Data links: additional links of a session, for bulk data.
//!
//! ```text
//!   caller:  none --> Dialled --Attach--> Asked --Attached--> Open      the Data of large messages goes here;
//!              ^          |                 |                  |        all else on the command link
//!              `----------+-----------------+------------------'
//!              lost, unused             Lost, Pull again ------> on another link
//!   called:  none --Attach, right proof--> Open
//! ```
//!
//! A packet on a data link belongs to a part of a message that its receiver has requested on this link, so its order
//! relative to other links does not matter. Losing a data link does not end the session: the receiver requests the
//! outstanding parts again. Each side reports the loss of a data link on the command link, so that both drop what was
//! under way on it.
//!
//! Owns: the session of each data link.
//! Out of scope: the state of a session's links (`crate::data_link`), the choice of a link for a part (`rendezvous`).
//! Cost: an entry in a hash table for each data link, and a look-up for each packet of one.

use super::Endpoint;
use super::deadlines::Deadline;
use super::outbound::{UNREAD_ALL, unread_max};
use crate::data_link::{DataLink, DataLinkSet, Stage};
use crate::ids::{LinkId, RemoteId, RequestId};
use crate::memory::Source;
use crate::ops::{ListKind, NO_LINK, Part, State};
use crate::owner::Owner;
use crate::port::{Body, Close, LinkDown, Port};
use crate::remote::{COMMAND_LINK, Remote, Remotes};
use crate::secret::{self, Nonce, Role};
use crate::status::Violation;
use crate::time::{Clock, Instant};
use crate::wire::{self, Header};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct DataLinks {
    /// The number of the last Pull.
    attempts: u32,
    /// Session of each data link.
    sessions: HashMap<LinkId, RemoteId, RandomState>,
}

impl DataLinks {
    pub(super) fn session_of(&self, link: LinkId) -> Option<RemoteId> {
        self.sessions.get(&link).copied()
    }

    /// Returns a new number for a Pull.
    pub(super) fn next_attempt(&mut self) -> u32 {
        self.attempts = self.attempts.wrapping_add(1);
        self.attempts
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Returns the features to offer in a hello on a link.
    pub(super) fn features(&self, link: LinkId) -> u32 {
        let remote = self.remotes.of(self.remote_on(link));
        let called = remote.is_some_and(|remote| remote.called.is_some());
        let fabrics = self.port.fabrics(link, called);
        let offered = [
            (self.port.limits(link).data_links > 0, wire::DATA_LINKS),
            (self.config.regions, wire::REGIONS),
        ];
        let offered = offered.iter().filter(|(offers, _)| *offers);
        offered.fold(fabrics, |all, (_, feature)| all | feature)
    }

    /// Dials a data link, or one more, if the bytes about to move to or from a remote call for it. Only the side that
    /// began the session dials.
    #[inline]
    pub(super) fn want_data_link(&mut self, id: RemoteId, bytes: u64) {
        if let Some(remote) = self.remotes.of(id)
            && let Some(met) = remote.connected()
            && met.open_links().count() < met.data_links as usize
            && bytes > u64::from(met.link_limits.eager_max)
            && remote.called.is_some()
        {
            let command = met.tx.link();
            self.dial_data_link(id, command, bytes);
        }
    }

    #[cold]
    fn dial_data_link(&mut self, id: RemoteId, command: LinkId, bytes: u64) {
        let (now, unread) = (self.clock.now(), self.is_unread(id));
        let Self { port, remotes, .. } = self;
        let Some(session) = data_of(remotes, id, now) else {
            return;
        };
        let links = &session.links;
        // Dial one link at a time.
        let is_enough = self.moves.is_moving(id)
            || links.iter().any(|of| of.stage != Stage::Open)
            || links.len() >= session.most
            || !links.is_empty() && bytes < BYTES_A_LINK * (links.len() as u64 + 1);
        if is_enough || unread || now < session.again_at {
            return;
        }
        match port.connect_beside(command, now) {
            Ok(link) => {
                session.add(link, session.last + 1, Stage::Dialled);
                self.data_links.sessions.insert(link, id);
            }
            Err(error) => {
                log::debug!("no data link to remote {id:?}: {error}");
                session.fail(now);
            }
        }
    }

    /// Returns whether so many packets to a remote wait unread that it gets no further data link; each lost data link
    /// adds packets.
    fn is_unread(&self, id: RemoteId) -> bool {
        let queues = self.remotes.of(id).and_then(Remote::queues);
        queues.is_some_and(|queues| queues.control.len() > unread_max(self.controls, UNREAD_ALL))
    }

    /// Closes a data link whose peer violates the protocol there. Returns false if the link is no data link.
    pub(super) fn distrust_data_link(&mut self, link: LinkId) -> bool {
        let Some((id, of)) = self.data_link(link) else {
            return false;
        };
        let number = of.number;
        self.lose_data_link(id, number, true);
        true
    }

    /// Returns the session of a data link and the link's state.
    fn data_link(&mut self, link: LinkId) -> Option<(RemoteId, &mut DataLink)> {
        let id = self.data_links.session_of(link)?;
        Some((id, self.remotes.data_mut(id)?.by_link(link)?))
    }

    fn take_data_link(&mut self, id: RemoteId, number: u32) -> Option<DataLink> {
        let taken = self.remotes.data_mut(id)?.take(number)?;
        self.data_links.sessions.remove(&taken.tx.link());
        Some(taken)
    }

    /// Sends the Attach on a data link that we dialled and that is up now.
    pub(super) fn data_link_up(&mut self, link: LinkId) {
        let Some((id, of)) = self.data_link(link) else {
            return;
        };
        let number = of.number;
        of.stage = Stage::Asked;
        self.watch_data_links(id);
        let session = self
            .remotes
            .connected(id)
            .map(|met| secret::call_of(&met.nonce));
        let header = Header::new(wire::Kind::Attach, session.unwrap_or_default(), number);
        if !self.send_proof(link, id, Role::Caller, header) {
            self.lose_data_link(id, number, true);
        }
    }

    /// Sends a packet whose body is our proof. Returns false if it was not sent.
    pub(super) fn send_proof(
        &mut self,
        link: LinkId,
        id: RemoteId,
        role: Role,
        mut header: Header,
    ) -> bool {
        let Some(proof) = self.data_link_proof(link, id, role, header.length) else {
            return false;
        };
        header.body_len = proof.len() as u32;
        let sent = self.port.send(link, &header.emit(), Body::Bytes(&proof));
        self.stats.packets_out += u64::from(sent.is_ok());
        sent.is_ok()
    }

    /// Returns one side's proof that a data link belongs to the session.
    pub(super) fn data_link_proof(
        &self,
        link: LinkId,
        id: RemoteId,
        role: Role,
        number: u32,
    ) -> Option<Nonce> {
        let remote = self.remotes.of(id)?;
        let (ours, theirs) = (self.nonce_of(id)?, remote.connected()?.nonce);
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

    /// Handles an Attach: a stranger's link says that it is a data link of a session.
    #[cold]
    pub(super) fn on_attach(&mut self, link: LinkId, header: &Header, proof: &[u8]) {
        let (id, number) = (RemoteId::from_word(header.word), header.length);
        if number == COMMAND_LINK {
            return self.on_attach_move(link, header, proof);
        }
        let is_called = |remote: &&Remote| remote.called.is_none();
        let met = self
            .remotes
            .of(id)
            .filter(is_called)
            .and_then(Remote::connected);
        let most = met.map_or(0, |met| met.data_links);
        let session = met.and_then(|met| met.data.as_deref());
        let last = session.map_or(0, |session| session.last);
        let open = session.map_or(0, |session| session.links.len());
        // A link with a hello that waits for its proof will become a session's command link.
        let right = most > 0
            && (last + 1..NO_LINK).contains(&number)
            && !self.introductions.has(link)
            && self
                .data_link_proof(link, id, Role::Caller, number)
                .is_some_and(|right| right == proof);
        if !right {
            return self.violation(link, Violation::Attach);
        }
        // The peer may have reported another data link as lost in a packet not read yet.
        if open > most as usize || !self.port.has_places_beside(link) || self.is_unread(id) {
            log::debug!("no room for a data link to remote {id:?}");
            return self.close_link(link, Close::Now);
        }
        let now = self.clock.now();
        if let Some(session) = data_of(&mut self.remotes, id, now) {
            session.add(link, number, Stage::Asked);
        }
        self.data_links.sessions.insert(link, id);
        self.port.accept(link);
        let mut answer = Header::new(wire::Kind::Attached, 0, number);
        answer.aux = most;
        if self.send_proof(link, id, Role::Called, answer) {
            self.open_data_link(link);
        } else {
            self.lose_data_link(id, number, true);
        }
    }

    /// Handles a packet other than Data on a data link.
    #[cold]
    pub(super) fn on_data_link(&mut self, link: LinkId, header: &Header) {
        let Some((id, of)) = self.data_link(link) else {
            return;
        };
        let number = of.number;
        let asked = of.stage == Stage::Asked && number == header.length;
        let said = self.port.body().to_vec();
        let proof = self.data_link_proof(link, id, Role::Called, number);
        let right = proof.is_some_and(|proof| proof[..] == said);
        if header.kind == wire::Kind::Attached && asked && right {
            let ours = self.remotes.connected(id).map_or(0, |met| met.data_links);
            if let Some(session) = self.remotes.data_mut(id) {
                session.most = header.aux.min(ours).max(1) as usize;
            }
            self.open_data_link(link);
            self.want_data_link(id, self.bulk_with(id));
        } else {
            self.violation(link, Violation::Attach);
        }
    }

    /// Opens a data link: bulk data may be requested on it from now on.
    fn open_data_link(&mut self, link: LinkId) {
        let Some((id, of)) = self.data_link(link) else {
            return;
        };
        of.stage = Stage::Open;
        (of.looks, of.unused, of.stalled) = (0, 0, 0);
        self.watch_data_links(id);
        self.stats.data_links += 1;
    }

    /// Sets the timer for the next check of a session's data links.
    fn watch_data_links(&mut self, id: RemoteId) {
        if let Some(session) = self.remotes.data_mut(id)
            && !std::mem::replace(&mut session.watched, true)
        {
            let now = self.clock.now();
            self.wheel
                .set(now, now.after(LOOK), Deadline::DataLinks(id));
        }
    }

    /// Whether each part requested from a remote has a number and a link, because the session may have data links.
    pub(super) fn numbers_parts(&self, id: RemoteId) -> bool {
        self.remotes.connected(id).is_some_and(|met| met.numbered)
    }

    /// Returns the remote whose data comes on a link, and the link's number.
    #[inline]
    pub(super) fn sender_of_data(&mut self, link: LinkId) -> Option<(RemoteId, u32)> {
        let bound = self.remote_on(link);
        if self.remotes.of(bound).is_some() {
            return self.trusts(link, bound).then_some((bound, COMMAND_LINK));
        }
        let (id, of) = self.data_link(link)?;
        (of.unused, of.stalled) = (0, 0);
        (of.stage == Stage::Open).then_some((id, of.number))
    }

    /// Handles the end of a data link. The calling side closes data links that are not used.
    pub(super) fn data_link_down(&mut self, link: LinkId, reason: LinkDown) {
        let Some((id, of)) = self.data_link(link) else {
            return;
        };
        let (number, was_open) = (of.number, of.stage == Stage::Open);
        if reason == LinkDown::Closed && was_open && !self.is_used(id, number) {
            return self.retire_data_link(id, number);
        }
        log::debug!("data link {number} of remote {id:?} is lost: {reason}");
        self.lose_data_link(id, number, true);
    }

    fn retire_data_link(&mut self, id: RemoteId, number: u32) {
        if let Some(of) = self.take_data_link(id, number) {
            self.port.close(of.tx.link(), Close::Flush);
        }
    }

    /// Whether bulk data is awaited on a link, or is queued for it.
    fn is_used(&self, id: RemoteId, number: u32) -> bool {
        let queues = self.remotes.of(id).and_then(Remote::queues);
        queues.is_some_and(|queues| queues.has_bulk(number))
            || self.open_parts(id).any(|(_, part)| part.link == number)
    }

    /// Handles the peer's report that a data link is lost.
    pub(super) fn on_lost(&mut self, id: RemoteId, number: u32) {
        if number == COMMAND_LINK {
            return self.on_stays(id);
        }
        self.lose_data_link(id, number, false);
    }

    /// Ends the data link with this number, if there is one, and requests the outstanding parts again. `tells`: the
    /// peer may not know of the loss.
    fn lose_data_link(&mut self, id: RemoteId, number: u32, tells: bool) {
        let Some(lost) = self.take_data_link(id, number) else {
            return;
        };
        self.port.close(lost.tx.link(), Close::Now);
        let now = self.clock.now();
        if let Some(session) = self.remotes.data_mut(id) {
            session.fail(now);
        }
        let queues = self.remotes.of_mut(id).and_then(Remote::queues_mut);
        if let Some(queues) = queues {
            queues.forget_link(number);
        }
        if lost.stage == Stage::Dialled {
            return;
        }
        self.stats.data_links_lost += u64::from(lost.stage == Stage::Open);
        if tells {
            self.push_control(id, Header::new(wire::Kind::Lost, 0, number), &[]);
        }
        let parts = self.open_parts(id).filter(|(_, part)| part.link == number);
        let all: SmallVec<[RequestId; 4]> = parts.map(|(op, _)| op).collect();
        for op in all {
            self.pull_again(op, id, number);
        }
        if self.open_parts(id).next().is_some() {
            self.want_data_link(id, self.bulk_with(id));
        }
    }

    /// Closes the data links of a session that is over.
    pub(super) fn end_data_links(&mut self, id: RemoteId) {
        let session = self
            .remotes
            .connected_mut(id)
            .and_then(|met| met.data.take());
        for of in session.into_iter().flat_map(|session| session.links) {
            self.data_links.sessions.remove(&of.tx.link());
            if !self.inherited {
                self.port.close(of.tx.link(), Close::Now);
            }
        }
    }

    /// Checks the data links of a session: whether they are used, and whether awaited data comes.
    pub(super) fn look_at_data_links(&mut self, id: RemoteId) {
        let remote = self.remotes.of(id);
        let called = remote.is_some_and(|remote| remote.called.is_some());
        let healthy = remote
            .and_then(Remote::connected)
            .is_some_and(|met| met.silent <= HEALTHY);
        let Some(session) = self.remotes.data_mut(id) else {
            return;
        };
        session.watched = false;
        let numbers: SmallVec<[u32; 4]> = session.links.iter().map(|of| of.number).collect();
        let (mut asks, mut works) = (false, false);
        for number in numbers {
            let awaits = self.open_parts(id).any(|(_, part)| part.link == number);
            let session = self.remotes.data_mut(id);
            let Some(of) = session.and_then(|session| session.of(number)) else {
                continue;
            };
            let answered = of.stage == Stage::Open;
            // Bytes that were sent may not have arrived, but then the receiver would have given the link up by now.
            works |= of.unused == 0 && answered && of.looks > STALLED;
            of.looks += 1;
            of.unused += 1;
            of.stalled = if awaits || !answered {
                of.stalled + 1
            } else {
                0
            };
            let (unused, stalled) = (of.unused, of.stalled);
            if stalled >= STALLED && healthy {
                log::warn!("data link {number} of remote {id:?} makes no progress: closing it");
                self.lose_data_link(id, number, true);
            } else if called && unused > UNUSED && !self.is_used(id, number) {
                self.retire_data_link(id, number);
            }
            asks |= stalled == 1;
        }
        let now = self.clock.now();
        if let Some(session) = self.remotes.data_mut(id) {
            if works && now >= session.again_at.after(LOOK) {
                session.failures = 0;
            }
            if !session.links.is_empty() {
                self.watch_data_links(id);
            }
        }
        if asks {
            self.ask(id);
        }
        // A message without requested parts needs no link.
        let queues = self.remotes.of(id).and_then(Remote::queues);
        let waits = queues.is_some_and(|queues| !queues.streams.is_empty());
        if waits || self.open_parts(id).next().is_some() {
            self.want_data_link(id, self.bulk_with(id));
        }
    }

    /// Returns the number of bytes of large messages that are moving to and from a remote.
    fn bulk_with(&self, id: RemoteId) -> u64 {
        let Some(remote) = self.remotes.of(id) else {
            return 0;
        };
        let small = self.remotes.link_limits(id).eager_max;
        let ops = self.ops.of_list(ListKind::Remote, &remote.operations);
        let sizes = ops.map(|op| match &self.ops.record(op.index()).state {
            State::Pulling(pulling) => pulling.length,
            state @ State::Serving { .. } => state.room(),
            _ => 0,
        });
        sizes.filter(|size| *size > small).map(u64::from).sum()
    }

    /// Returns the parts of messages that have been requested from a remote and have not arrived.
    fn open_parts(&self, id: RemoteId) -> impl Iterator<Item = (RequestId, Part)> {
        let remote = self.remotes.of(id);
        let all = remote
            .into_iter()
            .flat_map(|remote| self.ops.of_list(ListKind::Remote, &remote.operations));
        all.flat_map(|op| {
            let parts = match &self.ops.record(op.index()).state {
                State::Pulling(pulling) => pulling.parts.open(),
                _ => &[],
            };
            parts.iter().map(move |part| (op, *part))
        })
    }
}

/// Returns the state of a session's data links, allocated at first use. `None`: the remote is not connected.
fn data_of(remotes: &mut Remotes, id: RemoteId, now: Instant) -> Option<&mut DataLinkSet> {
    let met = remotes.connected_mut(id)?;
    Some(
        met.data
            .get_or_insert_with(|| Box::new(DataLinkSet::new(now))),
    )
}

/// Time between two checks of a data link.
const LOOK: Duration = Duration::from_secs(3);
/// Number of checks without awaited data after which a data link counts as lost.
const STALLED: u32 = 2;
/// Number of checks without use after which the calling side closes a data link.
const UNUSED: u32 = 3;
/// Bytes that must be moving for each data link, the next one included, before another is dialled.
const BYTES_A_LINK: u64 = 1 << 20;
/// Maximum number of silent liveness steps of a healthy command link (see `liveness`).
const HEALTHY: u8 = 4;
