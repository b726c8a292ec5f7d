//! Connecting and disconnecting.
//!
//! ```text
//!   us                                    them
//!   connect(): link --------------------> (a stranger's link)
//!   on_up: Connect(who, key) -----------> version, key, room? -> remote, sends on this link
//!   remote <------- Reply(status, who) -
//!
//!   both at once: two links, one remote; each side goes on sending where it began
//!   our connect is answered by another association of the peer's than the one that has reached us
//!       meanwhile: a later one ends the earlier, and the connect continues as a new remote's;
//!       the answer of a former one is dropped
//!   goodbye while our connect is unanswered: the association is over, the connect continues
//!   Connect with another session: the peer restarted, once the old remote is gone (introductions.rs)
//!   Connect with another epoch:   it disconnected and returned, or uses a second address:
//!       <---- Reply(known, epoch)     it either keeps the association with that epoch,
//!       Connect(afresh) --------->    or ends it
//! ```
//!
//! A remote is one association with a peer, on all its links: credits begin and end with it, and
//! packets on a link before the peer's hello belong to no remote. A remote is found by the address
//! it claims (interface and endpoint number). If a connect to another address reaches a known
//! remote, the reply says so, and the waiting connects complete with that remote.

use super::Core;
use super::introductions::{REFUSED, UNASKED, UNVOUCHED};
use super::session_queue::After;
use crate::event::Identity;
use crate::flow::Borrower;
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, RequestId};
use crate::ops::{List, State, Strand};
use crate::origin::Source;
use crate::owner::Owner;
use crate::port::{Close, LinkDown};
use crate::queues::Control;
use crate::remote::{Life, Link, LinkState, Met, Name, Reach, Remote, Tx};
use crate::secret::Nonce;
use crate::status::{DownReason, Status};
use crate::wire::{self, Header, Hello, VERSION};
use smallvec::SmallVec;

use super::DeferredAction;

impl<O: Owner> Core<O> {
    /// A link we asked for can carry packets: introduce ourselves.
    pub(super) fn link_up(&mut self, link: LinkId, id: RemoteId) {
        let remote = self.remotes.of_mut(id);
        let Some(remote) = remote.filter(|remote| remote.owns(link)) else {
            if !self.ask_now(link) {
                self.actions.push(DeferredAction::Close(link, Close::Now));
            }
            return;
        };
        if remote.met().is_some() && remote.connects.is_empty() {
            // The peer has reached us meanwhile, and no connect waits for this link.
            remote.links.retain(|known| known.0 != link);
            self.actions.push(DeferredAction::Close(link, Close::Now));
            return;
        }
        remote.advance(link, LinkState::Up);
        self.introduce_all(id, link);
    }

    /// Sends the Connects of all connects that wait for an answer.
    pub(super) fn introduce_all(&mut self, id: RemoteId, link: LinkId) {
        for connect in self.connects_to(id) {
            self.send_connect(id, link, connect, Manner::Plain);
        }
    }

    pub(super) fn link_down(&mut self, link: LinkId, id: RemoteId, reason: LinkDown) {
        self.held.retain(|(held_by, _), _| *held_by != link);
        let Some(remote) = self.remotes.of_mut(id) else {
            self.introductions.ask_failed(link, reason);
            return;
        };
        remote.links.retain(|known| known.0 != link);
        let (tried, up) = (!remote.links.is_empty(), remote.link_up().is_some());
        match &mut remote.life {
            Life::Met(met) => {
                let sends = met.tx.link() == link;
                if sends {
                    met.tx = Tx::Closed(link);
                }
                match met.tx {
                    // One of two, because both sides have connected, or a call of ours that failed after
                    // the peer had reached us: what has not been answered there is asked here.
                    Tx::Open(tx) | Tx::Blocked(tx) => self.introduce_all(id, tx),
                    Tx::Closed(_) if sends && reason != LinkDown::Closed => {
                        self.fail_remote(id, DownReason::Link(reason));
                    }
                    // The peer is going; nothing goes out to it any more. One that goes closes all
                    // links, and what it sent last may still be in another one, whose end is the
                    // remote's. But one on which it has not answered may have met the peer's next
                    // association: its answer tells.
                    Tx::Closed(_) if up => {}
                    Tx::Closed(_) => self.part_from(id, DownReason::Link(reason)),
                }
            }
            // Still others are being tried.
            _ if tried => {}
            _ => match reason {
                LinkDown::Elsewhere(route) => self.actions.push(DeferredAction::Connect(id, route)),
                _ => self.fail_remote(id, DownReason::Link(reason)),
            },
        }
    }

    /// The peer has ended the association. A connect that it has not answered continues, with the
    /// peer's next association.
    pub(super) fn part_from(&mut self, id: RemoteId, reason: DownReason) {
        let calls = self.remotes.of(id).is_some_and(|remote| {
            let mut links = remote.links.iter();
            let unanswered = links.any(|link| link.1 != LinkState::Met);
            remote.met().is_some() && unanswered && !remote.connects.is_empty()
        });
        if !calls {
            return self.fail_remote(id, reason);
        }
        if let Some(next) = self.begin_anew(id, reason, |link| link.1 != LinkState::Met)
            && let Some(link) = self.remotes.of(next).and_then(Remote::link_up)
        {
            self.introduce_all(next, link);
        }
    }

    /// Ends a remote. Those of its links on which we have called and which lead to the peer's next
    /// association are another remote's from now on, with the connects that wait. That has the
    /// same epoch, and the peer has been promised what it was promised in the Connects that went
    /// out there; all else begins with nothing. `None`: there is no room for what was promised, and
    /// all of its links end.
    fn begin_anew(
        &mut self,
        id: RemoteId,
        reason: DownReason,
        leads_on: impl Fn(&Link) -> bool,
    ) -> Option<RemoteId> {
        let remote = self.remotes.of(id)?;
        let (opening, source) = (remote.opening, remote.source);
        let (epoch, name) = (remote.epoch, remote.name);
        let again = self.connects_again(id, reason);
        // The credits promised come before the tombstone of the old one.
        let next = self.remotes.add_as(epoch, name, source, opening);
        let promise = |core: &mut Self| core.flow.open(&mut core.remotes, next.index(), opening);
        let promised = promise(self);
        let mut connects = self.take_connects(id);
        let old = self.end_remote(id, reason, promised)?;
        if !promised && !promise(self) {
            log::debug!("{id:?} is over, and there is no room for its next association");
            self.remotes.take(next);
            while !again && let Some(connect) = self.ops.first(&connects) {
                self.ops.leave(Strand::Own, &mut connects, connect.index());
                self.complete(connect, reason.status(), 0);
            }
            self.leave_to_others(&old, connects);
            return None;
        }
        let over = old.met().map(|was| (was.session, was.epoch));
        let (kept, gone): (SmallVec<[Link; 1]>, SmallVec<[Link; 1]>) =
            old.links.into_iter().partition(leads_on);
        for (link, _) in &kept {
            self.actions
                .push(DeferredAction::Bind(*link, next.to_word()));
        }
        for (link, _) in gone {
            self.actions.push(DeferredAction::Close(link, Close::Flush));
        }
        let remote = self.remotes.of_mut(next)?;
        remote.life = Life::Connecting { over };
        remote.links = kept;
        remote.connects = connects;
        for connect in self.connects_to(next) {
            self.ops.record_mut(connect.index()).remote = next;
        }
        log::debug!("{id:?} is over, our call goes on as {next:?}");
        Some(next)
    }

    /// Sends the Connect packet that belongs to one connect request.
    pub(super) fn send_connect(
        &mut self,
        id: RemoteId,
        link: LinkId,
        connect: RequestId,
        manner: Manner,
    ) {
        let key = match self.ops.get(connect).map(|record| &record.state) {
            Some(State::Connecting { key, .. }) => *key,
            _ => return,
        };
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let mut header = Header::new(wire::Kind::Connect, connect.to_word(), manner as u32);
        header.credit_fields.credit = remote.opening;
        let mut hello = self.hello(remote.epoch, key, Some(remote.name));
        if !self.trusts(link, id) {
            hello = self.say(link, hello);
        }
        self.send_session(Some(id), link, header, &hello.emit(), After::Open);
    }

    /// `name`: its destination. The hello to a peer that has not proven its name has no token.
    fn hello(&self, epoch: u16, key: u32, name: Option<Name>) -> Hello {
        Hello {
            version: VERSION,
            epoch,
            key,
            identity: self.identity,
            to: name.unwrap_or((NicId(0), EndpointId(0))),
            token: name.map_or(0, |name| self.token(name)),
            nonce: Nonce::default(),
        }
    }

    /// Handles a hello. `from` is the remote the link already belongs to.
    pub(super) fn on_connect(
        &mut self,
        link: LinkId,
        from: Option<RemoteId>,
        header: &Header,
        body: &[u8],
    ) {
        let cookie = from.map_or(0, RemoteId::to_word);
        let hello = match Hello::parse(body) {
            Ok(hello) => hello,
            Err(what) => return self.violation(link, cookie, what),
        };
        if self.unread_sessions(link, from) {
            return self.violation(link, cookie, "introductions without reading the answers");
        }
        if self.is_echo(from, &hello) {
            return self.violation(link, cookie, "our own introduction");
        }
        let refusal = if hello.version != VERSION {
            if let Some(times) = self.introductions.note_version() {
                let (who, version) = (self.config.name(&hello.identity), hello.version);
                log::warn!(
                    "a peer that says it is {who} speaks protocol version {version}, we speak \
                     {VERSION}: refused (refusal {times})"
                );
            }
            Some(Status::BadEndpoint)
        } else if hello.key != self.key {
            let (who, key) = (self.config.name(&hello.identity), hello.key);
            log::info!("{who} came with key {key:#x}: refused");
            Some(Status::BadKey)
        } else {
            None
        };
        if let Some(status) = refusal {
            return self.refuse(link, from, header, status);
        }
        if let Some(from) = from.filter(|from| !self.trusts(link, *from)) {
            return self.distrust(link, from, Some(hello.identity), UNASKED);
        }
        if let Some(from) = from
            && !self.challenges.vouches(link, &hello.identity, true)
        {
            return self.distrust(link, from, Some(hello.identity), UNVOUCHED);
        }
        match from {
            None => self.come(link, header, hello),
            Some(from) if self.waits_for_proof(link, from, header, &hello) => {}
            Some(from) => self.connect_on(link, from, header, &hello),
        }
    }

    /// Handles a hello on a link of a remote's.
    pub(super) fn connect_on(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        hello: &Hello,
    ) {
        let what = "an introduction under another name";
        let Some(id) = self.meet(link, from, hello, what) else {
            return;
        };
        if id != from {
            self.introduce_all(id, link);
        }
        self.associate(id, link, header, hello);
    }

    /// A stranger's claimed identity has been proven.
    pub(super) fn admit(&mut self, link: LinkId, source: Source, header: &Header, hello: &Hello) {
        if let Some(epoch) = self.known_otherwise(hello, header) {
            if self.config.secret.is_some() {
                self.challenges.keep_shown(link);
            }
            return self.reply_known(link, header.word, epoch, hello);
        }
        let known = self.remotes.namesake(&hello.identity);
        if known.is_some_and(|(_, remote)| {
            remote.links.len() >= LINKS_MAX && remote.is(&hello.identity)
        }) {
            return self.refuse(link, None, header, Status::NoResources);
        }
        match self.remote_for(link, source, hello.identity) {
            Some(id) => self.associate(id, link, header, hello),
            None => self.refuse(link, None, header, Status::NoResources),
        }
    }

    /// A remote has called on a link of its.
    fn associate(&mut self, id: RemoteId, link: LinkId, header: &Header, hello: &Hello) {
        self.establish(id, hello, link, header);
        self.send_reply(Some(id), link, header.word, Status::Success, After::Open);
    }

    /// Whether a hello is our own, repeated by a process at that address. If we reach ourselves
    /// under another name, the first one that comes back to the caller is an answer.
    fn is_echo(&self, from: Option<RemoteId>, hello: &Hello) -> bool {
        let caller = from.and_then(|id| self.remotes.of(id));
        hello.identity == self.identity && caller.is_some_and(|remote| remote.met().is_none())
    }

    /// The peer is our remote already, but as another association of its own: it has parted and
    /// come back, or it reaches us under a second address. Only it knows which; this is the epoch
    /// to ask it about. If it comes afresh, what was before is over.
    fn known_otherwise(&mut self, hello: &Hello, header: &Header) -> Option<u16> {
        let (id, remote) = self.remotes.namesake(&hello.identity)?;
        let session = hello.identity.session;
        let is_met = remote.met().is_some();
        let known = match remote.life {
            Life::Met(Met {
                session: of, epoch, ..
            }) if of == session => epoch,
            Life::Connecting {
                over: Some((_, over)),
            } if remote.is_over(session, hello.epoch) => over,
            _ => return None,
        };
        if known == hello.epoch && is_met {
            return None;
        }
        if header.length != Manner::Afresh as u32 {
            return Some(known);
        }
        if is_met {
            self.part_from(id, DownReason::Disconnected);
        }
        None
    }

    fn reply_known(&mut self, link: LinkId, connect: u64, epoch: u16, to: &Hello) {
        let mut header = Header::new(wire::Kind::Reply, connect, epoch.into());
        header.aux = REPLY_KNOWN;
        let hello = self.hello(0, 0, Some(to.identity.name()));
        self.send_session(None, link, header, &hello.emit(), After::Open);
    }

    /// The peer knows us as `epoch`, which is not `from`.
    fn on_known(
        &mut self,
        link: LinkId,
        from: RemoteId,
        connect: RequestId,
        who: Identity,
        epoch: u32,
    ) {
        if let Some(remote) = self.remotes.of(from)
            && remote.met().is_some()
            && remote.identity() != who
        {
            // As in `meet`: no proof of that name has been asked for.
            if remote.state_of(link) == Some(LinkState::Met) {
                return self.violation(link, from.to_word(), "a reply under another name");
            }
            return self.leave_link(link, from);
        }
        let known = self.remotes.namesake(&who).filter(|(id, remote)| {
            *id != from && remote.is(&who) && u32::from(remote.epoch) == epoch
        });
        let Some((known, _)) = known else {
            // The peer refers to an association that we have ended, unless it has connected to us
            // meanwhile: then it finds out on its own link.
            let remote = self.remotes.of(from);
            let adopted = remote.and_then(Remote::live_tx);
            return match adopted {
                Some(own) => self.send_connect(from, own, connect, Manner::Plain),
                None => self.send_connect(from, link, connect, Manner::Afresh),
            };
        };
        log::debug!("link {link:?}: {from:?} is {known:?} under another address");
        self.complete_as(connect, known);
        self.drop_if_unwanted(from);
    }

    fn refuse(&mut self, link: LinkId, from: Option<RemoteId>, header: &Header, status: Status) {
        self.stats.refused += 1;
        let closes = from.is_none() && !self.introductions.holds(link);
        let after = if closes { After::Close } else { After::Open };
        self.send_reply(from, link, header.word, status, after);
    }

    /// The remote a stranger's link belongs to from now on, made if need be.
    fn remote_for(&mut self, link: LinkId, source: Source, identity: Identity) -> Option<RemoteId> {
        let id = match self.remotes.namesake(&identity) {
            Some((id, remote)) => {
                if remote
                    .met()
                    .is_some_and(|met| met.session != identity.session)
                {
                    debug_assert!(false, "an old life has not been asked");
                    return None;
                }
                id
            }
            None => {
                if !self.remotes.may_add(source) {
                    return None;
                }
                self.add_remote(identity.name(), source)
            }
        };
        self.actions.push(DeferredAction::Bind(link, id.to_word()));
        self.session_out.keep_open(link);
        let links = &mut self.remotes.of_mut(id)?.links;
        links.push((link, LinkState::Met));
        Some(id)
    }

    /// The peer's hello has come on a link of a remote's: returns the remote that the link belongs
    /// to from now on. `None`: there is none, and the link has been dealt with.
    ///
    /// A link that the peer has begun, or on which it has answered, keeps its remote. Our connect
    /// may reach another association than the one that has reached us meanwhile: a later one, after
    /// the peer has disconnected and returned, which ends the earlier; or a former one.
    fn meet(
        &mut self,
        link: LinkId,
        id: RemoteId,
        hello: &Hello,
        what: &'static str,
    ) -> Option<RemoteId> {
        let remote = self.remotes.of(id)?;
        let over = remote.is_over(hello.identity.session, hello.epoch);
        let met_here = remote.state_of(link) == Some(LinkState::Met);
        let same_name = remote.name == hello.identity.name();
        let same = remote.is(&hello.identity);
        match remote.met() {
            Some(met) if same && met.epoch == hello.epoch => return Some(id),
            // The answer to our connect is not from the peer that has reached us meanwhile.
            Some(_) if !same_name && !met_here => self.leave_link(link, id),
            Some(_) if same_name && !same => self.another_life(link, id, met_here),
            Some(_) if met_here => self.violation(link, id.to_word(), what),
            _ if over => self.leave_link(link, id),
            Some(_) => return self.begin_anew(id, DownReason::Disconnected, |of| of.0 == link),
            None => return self.resolve(link, id, hello),
        }
        None
    }

    /// The remote's hello has come on this link. Its initial credits count if this is its first.
    fn establish(&mut self, id: RemoteId, hello: &Hello, link: LinkId, header: &Header) {
        let identity = hello.identity;
        self.remotes.rename(id, identity.name());
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        remote.advance(link, LinkState::Met);
        if remote.met().is_some() {
            return;
        }
        remote.life = Life::Met(Met {
            session: identity.session,
            token: hello.token,
            epoch: hello.epoch,
            tx: Tx::Open(link),
            reach: Reach::UNKNOWN,
            borrows: Borrower::open(header.credit_fields.credit),
            silent: 0,
            step: None,
        });
        // Asked of the port as soon as it is not being polled.
        self.actions.push(DeferredAction::Limits(id, link));
        self.stats.remotes_up += 1;
    }

    /// The answer to a Connect of ours.
    pub(super) fn on_reply(&mut self, link: LinkId, from: RemoteId, header: &Header, body: &[u8]) {
        let hello = match Hello::parse(body) {
            Ok(hello) => hello,
            Err(what) => return self.violation(link, from.to_word(), what),
        };
        if self.unread_sessions(link, Some(from)) {
            let what = "replies without reading the answers";
            return self.violation(link, from.to_word(), what);
        }
        if !self.trusts(link, from) {
            return self.refused_by(link, from, header, &hello);
        }
        let welcome = reply_status(header.aux) == Status::Success;
        if !self.challenges.vouches(link, &hello.identity, welcome) {
            return self.distrust(link, from, Some(hello.identity), UNVOUCHED);
        }
        let answers = header.aux == REPLY_KNOWN || welcome;
        if !answers || !self.waits_for_proof(link, from, header, &hello) {
            self.reply_on(link, from, header, &hello);
        }
    }

    /// Our connect is answered by a peer that has not proven the site's secret: only a refusal is
    /// accepted.
    fn refused_by(&mut self, link: LinkId, from: RemoteId, header: &Header, hello: &Hello) {
        let status = reply_status(header.aux);
        if header.aux == REPLY_KNOWN || status == Status::Success {
            return self.distrust(link, from, Some(hello.identity), UNASKED);
        }
        if status == Status::BadSecret {
            return self.distrust(link, from, Some(hello.identity), REFUSED);
        }
        let connect = RequestId::from_word(header.word);
        if self.awaits(from, connect) {
            let who = self.config.name(&hello.identity);
            log::info!("{who} refused our connect: {status:?}");
            self.complete(connect, status, 0);
        } else {
            self.stats.stale += 1;
        }
        self.drop_if_unwanted(from);
    }

    /// The same for a proven answer.
    pub(super) fn reply_on(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        hello: &Hello,
    ) {
        let connect = RequestId::from_word(header.word);
        if header.aux == REPLY_KNOWN {
            if !self.awaits(from, connect) {
                self.stats.stale += 1;
                return;
            }
            return self.on_known(link, from, connect, hello.identity, header.length);
        }
        let status = reply_status(header.aux);
        let id = match status {
            // It is our remote there also if no connect waits for it any more.
            Status::Success => self.meet(link, from, hello, "a reply under another name"),
            _ => Some(from),
        };
        let Some(id) = id else {
            return;
        };
        if status == Status::Success {
            self.establish(id, hello, link, header);
        }
        if self.awaits(id, connect) {
            if status == Status::BadSecret {
                self.log_distrust(Some(hello.identity), from, REFUSED);
            } else if status != Status::Success {
                let who = self.config.name(&hello.identity);
                log::info!("{who} refused our connect: {status:?}");
            }
            self.complete(connect, status, 0);
        } else {
            self.stats.stale += 1;
        }
        if id != from {
            self.introduce_all(id, link);
        }
        self.make_ready(id);
        self.drop_if_unwanted(id);
    }

    /// A remote's link leads to another life of it. On a link that it has introduced itself on it says
    /// so itself. Where it answers a call of ours the peer has restarted, perhaps: the former life had
    /// reached us on a link of its own, which tells, or is asked. Our call goes on there meanwhile.
    fn another_life(&mut self, link: LinkId, id: RemoteId, met: bool) {
        let elsewhere = self.remotes.of(id).and_then(Remote::live_tx);
        if met || elsewhere.is_none_or(|tx| tx == link) {
            self.actions.push(DeferredAction::Close(link, Close::Now));
            return self.fail_remote(id, DownReason::Restarted);
        }
        self.introductions.doubt(id);
        self.leave_link(link, id);
    }

    /// A link that we have begun has reached another peer than its remote.
    pub(super) fn leave_link(&mut self, link: LinkId, id: RemoteId) {
        self.actions.push(DeferredAction::Close(link, Close::Now));
        self.link_down(link, id, LinkDown::Closed);
    }

    /// The peer of a connect by address has introduced itself. `None`: it is a known remote, with
    /// which the waiting connects have completed.
    fn resolve(&mut self, link: LinkId, from: RemoteId, hello: &Hello) -> Option<RemoteId> {
        let identity = hello.identity;
        let known = self.remotes.namesake(&identity);
        let Some((known, remote)) = known.filter(|(known, _)| *known != from) else {
            return Some(from);
        };
        match remote.met() {
            // It was reached under both names and has answered under neither yet: the other
            // connect will find this one.
            None => return Some(from),
            Some(met) if met.session != identity.session => {
                debug_assert!(false, "an old life has not been asked");
                self.leave_link(link, from);
                return None;
            }
            Some(met) if met.epoch != hello.epoch && !remote.is_over(met.session, hello.epoch) => {
                self.fail_remote(known, DownReason::Disconnected);
                return Some(from);
            }
            Some(_) => {}
        }
        log::debug!("link {link:?}: {from:?} is {known:?} under another address");
        for connect in self.connects_to(from) {
            self.complete_as(connect, known);
        }
        self.drop_if_unwanted(from);
        None
    }

    /// A connect has got to a remote, which is not the one that it went to.
    fn complete_as(&mut self, connect: RequestId, known: RemoteId) {
        if let Some(mut outcome) = self.finish_op(connect, Status::Success, 0) {
            outcome.remote = known;
            self.owner.completed(&mut self.ops, connect, outcome);
        }
    }

    /// Connects that wait for a remote's answer, oldest first.
    fn connects_to(&self, id: RemoteId) -> SmallVec<[RequestId; 1]> {
        let remote = self.remotes.of(id);
        let connects = remote.map_or(List::EMPTY, |remote| remote.connects);
        self.ops.of_list(Strand::Own, &connects).collect()
    }

    /// Whether this connect waits for a remote's answer.
    fn awaits(&self, id: RemoteId, connect: RequestId) -> bool {
        let record = self.ops.get(connect).filter(|record| record.remote == id);
        record.is_some_and(|record| matches!(record.state, State::Connecting { .. }))
    }

    /// Removes a remote that never answered and to which no connect waits any more.
    pub(super) fn drop_if_unwanted(&mut self, id: RemoteId) {
        let unwanted = self
            .remotes
            .of(id)
            .is_some_and(|remote| remote.met().is_none() && remote.connects.is_empty());
        if unwanted && let Some(remote) = self.dissolve(id, Status::Unreachable, false) {
            for (link, _) in &remote.links {
                self.actions.push(DeferredAction::Close(*link, Close::Now));
            }
        }
    }

    pub(super) fn send_reply(
        &mut self,
        to: Option<RemoteId>,
        link: LinkId,
        connect: u64,
        status: Status,
        after: After,
    ) {
        let remote = to.and_then(|id| self.remotes.of(id));
        let epoch = remote.map_or(0, |remote| remote.epoch);
        let remote = remote.filter(|_| status == Status::Success);
        let hello = self.hello(epoch, 0, remote.map(|remote| remote.name));
        let mut header = Header::new(wire::Kind::Reply, connect, 0);
        header.aux = reply_code(status);
        header.credit_fields.credit = remote.map_or(0, |remote| remote.opening);
        self.send_session(to, link, header, &hello.emit(), after);
    }

    /// Whether so many session packets wait on this link that its peer cannot be reading. They cost
    /// no credits, so an answer to each must not be kept without limit.
    fn unread_sessions(&self, link: LinkId, from: Option<RemoteId>) -> bool {
        let remote = from.and_then(|id| self.remotes.of(id));
        let queues = remote.filter(|remote| remote.live_tx() == Some(link));
        // Packets for our own operations do not count.
        let most = self.unread_max();
        let unread = queues.and_then(Remote::queues).is_some_and(|queues| {
            queues.control.len() >= most
                && queues.count(&[wire::Kind::Connect, wire::Kind::Reply]) >= most
        });
        unread || !self.session_out.has_room(link)
    }

    /// On the remote's sending link a session packet keeps its place among the others.
    fn send_session(
        &mut self,
        to: Option<RemoteId>,
        link: LinkId,
        header: Header,
        body: &[u8],
        after: After,
    ) {
        let remote = to.and_then(|id| self.remotes.of(id));
        if let (Some(id), Some(remote)) = (to, remote)
            && remote.live_tx() == Some(link)
        {
            return self.push_control(id, header, body);
        }
        let control = Control::new(header, body);
        self.session_out.push(link, control, after);
    }
}

/// The kind of a Connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Manner {
    /// As the peer knows us.
    Plain = 0,
    /// The peer's former association with us is over.
    Afresh = 1,
}

/// Links one remote may have: one each way, and as many again that are about to go.
const LINKS_MAX: usize = 16;

/// In a reply: you are my remote already, as this epoch of yours.
const REPLY_KNOWN: u32 = 4;

/// A connect's end as the number it has in a reply packet.
fn reply_code(status: Status) -> u32 {
    match status {
        Status::Success => 0,
        Status::BadKey => 1,
        Status::BadEndpoint => 2,
        Status::BadSecret => 5,
        _ => 3,
    }
}

/// The inverse; what it does not know counts as a want of resources.
fn reply_status(code: u32) -> Status {
    match code {
        0 => Status::Success,
        1 => Status::BadKey,
        2 => Status::BadEndpoint,
        5 => Status::BadSecret,
        _ => Status::NoResources,
    }
}
