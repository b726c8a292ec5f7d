//! Sessions: connecting and disconnecting.
//!
//! ```text
//!   us                                    them
//!   connect(): link --------------------> (a stranger's link)
//!   link_up: Connect(who, nonce) -------> version, key, source, room? -> remote
//!   remote <------- Reply(accepted, who) -
//! ```
//!
//! A remote is one session: credits begin and end with it, and with its link. The called side answers on that link and
//! never calls back. Two endpoints that call each other have two sessions; `claims` tells their owners that both belong
//! to one process.

use super::Endpoint;
use super::introductions::Distrust;
use super::outbound::{UNREAD_ALL, unread_max};
use crate::event::Identity;
use crate::flow::Borrower;
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, RequestId};
use crate::ops::{List, ListKind, State};
use crate::origin::Source;
use crate::owner::{GreetingRole, Owner};
use crate::port::{Close, LinkDown, Port, SendError};
use crate::remote::{Connected, LinkLimits, LinkState, Name, Remote, RemoteState, Tx};
use crate::secret::Nonce;
use crate::status::{DownReason, Status, Violation};
use crate::time::{Clock, Instant};
use crate::wire::{self, ClaimBody, GREETING_MAX, Header, Hello, OLDEST, VERSION};
use smallvec::SmallVec;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Handles a link that we dialled and that can carry packets: introduces this endpoint.
    pub(super) fn link_up(&mut self, link: LinkId, id: RemoteId) {
        match self.remotes.of_mut(id) {
            Some(remote) if remote.owns(link) => {
                remote.advance(link, LinkState::Up);
                self.introduce_all(id, link);
            }
            _ => self.close_link(link, Close::Now),
        }
    }

    /// Sends the Connect packet of every connect that waits for an answer.
    pub(super) fn introduce_all(&mut self, id: RemoteId, link: LinkId) {
        for connect in self.connects_to(id) {
            self.send_connect(id, link, connect);
        }
    }

    pub(super) fn link_down(&mut self, link: LinkId, id: RemoteId, reason: LinkDown) {
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        remote.link.take_if(|known| known.0 == link);
        if let (RemoteState::Connecting { .. }, LinkDown::Elsewhere(route)) =
            (&remote.state, reason)
        {
            // Packets not sent on the old link are built again for the new one.
            let queues = remote.queues_mut();
            let unsaid = queues.map(|queues| std::mem::take(&mut queues.control).len());
            self.controls -= unsaid.unwrap_or(0);
            self.connect_elsewhere(id, route);
        } else if !self.moves_without_meeting_link(id) {
            self.fail_remote(id, DownReason::Link(reason));
        }
    }

    /// Sends the Connect packet of one connect request.
    pub(super) fn send_connect(&mut self, id: RemoteId, link: LinkId, connect: RequestId) {
        let key = match self.ops.get(connect).map(|record| &record.state) {
            Some(State::Connecting { key, .. }) => *key,
            _ => return,
        };
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let mut header = Header::new(wire::Kind::Connect, connect.to_word(), 0);
        header.credit_fields.credit = remote.opening;
        let hello = self.hello_of_call(id, remote, link, key);
        let body = self.hello_body(hello, GreetingRole::Called(connect), None);
        self.push_control(id, header, &body);
    }

    /// Returns the body of a hello: the hello, the owner's greeting, and perhaps a claim.
    fn hello_body(&self, hello: Hello, to: GreetingRole, claim: Option<ClaimBody>) -> Vec<u8> {
        let mut greeting = self.owner.greeting(&self.ops, to);
        greeting.truncate(GREETING_MAX);
        let hello = Hello {
            greeting: greeting.len() as u8,
            ..hello
        };
        let mut body = hello.emit().to_vec();
        body.extend_from_slice(&greeting);
        if let Some(claim) = claim {
            body.extend_from_slice(&claim.emit());
        }
        body
    }

    /// Returns our hello for the call of a remote on that link.
    pub(super) fn hello_of_call(
        &self,
        id: RemoteId,
        remote: &Remote,
        link: LinkId,
        key: u32,
    ) -> Hello {
        Hello {
            key,
            nonce: self.call_nonce(id, link),
            ..self.hello(remote.epoch, Some(remote.name), link)
        }
    }

    /// Returns a hello without nonce and key. `name`: the peer that it is for.
    fn hello(&self, epoch: u16, name: Option<Name>, link: LinkId) -> Hello {
        Hello {
            version: VERSION,
            oldest: OLDEST,
            features: self.features(link),
            greeting: 0,
            epoch,
            key: 0,
            identity: self.identity,
            to: name.unwrap_or((NicId(0), EndpointId(0))),
            nonce: Nonce::default(),
        }
    }

    /// Handles a hello. `from`: the remote to which the link already belongs.
    pub(super) fn on_connect(
        &mut self,
        link: LinkId,
        from: Option<RemoteId>,
        header: &Header,
        body: &[u8],
    ) {
        let hello = match Hello::parse(body) {
            Ok(hello) => hello,
            Err(what) => return self.violation(link, what),
        };
        let Some(from) = from else {
            return match hello.behind(body) {
                Some((greeting, _)) => self.on_introduction(link, header, hello, greeting),
                None if hello.is_understood() => self.violation(link, Violation::Introduction),
                None => self.on_introduction(link, header, hello, &[]),
            };
        };
        if self.unread_sessions(from) {
            return self.violation(link, Violation::UnreadIntroductions);
        }
        if !self.trusts(link, from) {
            return self.distrust(from, Some(hello.identity), Distrust::Unasked);
        }
        if !self.challenges.vouches(link, &hello.identity, true) {
            return self.distrust(from, Some(hello.identity), Distrust::Unvouched);
        }
        self.connect_on(link, from, header, &hello);
    }

    /// Handles a further hello on the link of a remote.
    pub(super) fn connect_on(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        hello: &Hello,
    ) {
        if !self
            .remotes
            .connected(from)
            .is_some_and(|met| met.is(hello))
        {
            return self.violation(link, Violation::AnotherName);
        }
        self.reply_to(from, link, header.word, hello.key);
    }

    /// Answers a hello on the link of a remote: only its key can be wrong.
    pub(super) fn reply_to(&mut self, to: RemoteId, link: LinkId, connect: u64, key: u32) {
        let status = if key == self.key {
            Status::Success
        } else {
            self.stats.refused += 1;
            Status::BadKey
        };
        self.send_reply(Some(to), link, connect, status);
    }

    /// Makes a stranger a remote: its source is proven, and its hello carries the confirmed name.
    pub(super) fn admit(
        &mut self,
        link: LinkId,
        source: Source,
        header: &Header,
        (hello, greeting): (&Hello, &[u8]),
    ) {
        if !self.remotes.may_add(source) {
            return self.refuse(link, header.word, Status::NoResources);
        }
        let name = hello.identity.name();
        let id = self.add_remote(name, source, None);
        self.bind(link, id);
        if let Some(remote) = self.remotes.of_mut(id) {
            remote.link = Some((link, LinkState::Proven));
        }
        self.establish(id, (hello, greeting), link, header);
        let from = GreetingRole::Caller(0);
        let who = &hello.identity;
        match (self.owner).greeted(&self.ops, from, who, id, greeting) {
            Ok(context) => {
                self.set_remote_context(id, context);
            }
            Err(status) => {
                self.remove_remote(id, (status, None), false);
                self.bound.forget(link);
                return self.refuse(link, header.word, status);
            }
        }
        // The reply carries the first claim.
        self.send_reply(Some(id), link, header.word, Status::Success);
        self.send_claims(id, 1);
        self.offer_move(id, link, hello.features);
        let now = self.clock.now();
        self.ping_remotes_named(id, name, now);
    }

    /// Handles a remote's first hello, on this link, with its initial credits.
    fn establish(
        &mut self,
        id: RemoteId,
        (hello, greeting): (&Hello, &[u8]),
        link: LinkId,
        header: &Header,
    ) {
        // So a session's messages need not be asked for the site's secret again.
        debug_assert!(self.trusts(link, id));
        let data_links = if hello.features & wire::DATA_LINKS == 0 {
            0
        } else {
            self.port.limits(link).data_links
        };
        let met = Connected {
            session: hello.identity.session,
            nonce: hello.nonce,
            epoch: hello.epoch,
            meeting_link: link,
            tx: Tx::Open(link),
            data: None,
            data_links,
            numbered: data_links > 0,
            link_limits: LinkLimits::UNKNOWN,
            borrows: Borrower::open(header.credit_fields.credit),
            longest_wait: 0,
            silent: 0,
            step: None,
            asked: false,
            joins: O::joins(greeting),
            regions: self.config.regions && hello.features & wire::REGIONS != 0,
        };
        self.remotes.set_connected(id, met);
        self.join_own(id);
        self.stats.remotes_up += 1;
        self.learn_limits(id, link);
        let remote = self.remotes.of(id);
        if remote.is_some_and(|remote| !remote.operations.is_empty()) {
            // Of operations that were posted before this remote was met.
            self.begin_monitoring(id);
        }
        self.begin_transfers(id);
    }

    pub(super) fn on_reply(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        body: &[u8],
        now: Instant,
    ) {
        let hello = match Hello::parse(body) {
            Ok(hello) => hello,
            Err(what) => return self.violation(link, what),
        };
        if self.unread_sessions(from) {
            return self.violation(link, Violation::UnreadReplies);
        }
        if !self.trusts(link, from) {
            return self.refused_by(from, header, &hello);
        }
        let status = match reply_status(header.aux) {
            Status::Success if !hello.is_understood() => Status::BadEndpoint,
            status => status,
        };
        let welcome = status == Status::Success;
        if !self.challenges.vouches(link, &hello.identity, welcome) {
            return self.distrust(from, Some(hello.identity), Distrust::Unvouched);
        }
        let connect = RequestId::from_word(header.word);
        if status == Status::BadSecret && self.awaits(from, connect) {
            self.log_distrust(Some(hello.identity), from, Distrust::Refused);
        }
        if welcome {
            match self.remotes.of(from).map(Remote::connected) {
                Some(Some(met)) if met.is(&hello) => {}
                Some(Some(_)) => return self.violation(link, Violation::OtherReply),
                Some(None) => {
                    let Some(behind) = hello.behind(body) else {
                        return self.violation(link, Violation::Introduction);
                    };
                    if !self.answered(link, from, header, (&hello, behind), now) {
                        return;
                    }
                }
                None => return,
            }
        }
        if welcome && self.moves.holds(from) {
            return self.moves.hold(from, connect);
        }
        self.end_connect(from, connect, status);
        self.make_ready(from);
    }

    /// Handles the answer of a peer that has not proven the site's secret: only a refusal is accepted.
    fn refused_by(&mut self, from: RemoteId, header: &Header, hello: &Hello) {
        let status = reply_status(header.aux);
        if status == Status::Success {
            return self.distrust(from, Some(hello.identity), Distrust::Unasked);
        }
        if status == Status::BadSecret {
            return self.distrust(from, Some(hello.identity), Distrust::Refused);
        }
        self.end_connect(from, RequestId::from_word(header.word), status);
    }

    /// Handles the first acceptance of our call of a remote. Returns false if the remote has been removed.
    fn answered(
        &mut self,
        link: LinkId,
        id: RemoteId,
        header: &Header,
        (hello, (greeting, behind)): (&Hello, (&[u8], &[u8])),
        now: Instant,
    ) -> bool {
        // Our own life is a right answer only to a call that came to this endpoint.
        let life = self.identity.session;
        let is_called = |of| {
            self.remotes
                .connected(of)
                .is_some_and(|met| met.session == life)
        };
        if hello.identity.session == life && !self.call_with(&hello.nonce).is_some_and(is_called) {
            self.violation(link, Violation::OwnHello);
            return false;
        }
        let Some(remote) = self.remotes.of(id) else {
            return false;
        };
        let (name, claimed) = (remote.name, remote.state.claimed());
        if !self.expect_move(id, link, hello.features) {
            self.fail_remote(id, DownReason::Link(LinkDown::Unreachable));
            return false;
        }
        self.establish(id, (hello, greeting), link, header);
        let from = GreetingRole::Called(RequestId::from_word(header.word));
        let identity = Identity {
            nic: name.0,
            ..hello.identity
        };
        match (self.owner).greeted(&self.ops, from, &identity, id, greeting) {
            Ok(context) => {
                self.set_remote_context(id, context);
            }
            Err(status) => {
                self.end_connect(id, RequestId::from_word(header.word), status);
                self.leave(id);
                return false;
            }
        }
        self.ping_remotes_named(id, name, now);
        self.claim_others(id, ClaimBody::parse(behind), claimed);
        true
    }

    /// Logs why a peer refused our call: each reason once, and then at growing intervals.
    fn log_refused(&mut self, id: RemoteId, status: Status) {
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let called = self.config.name(&remote.identity());
        if let Some(times) = self.introductions.refused_us.again((remote.name, status)) {
            let why = refusal(status);
            log::warn!("{called} rejected our call: {why} (rejection {times})");
        }
    }

    pub(super) fn end_connect(&mut self, id: RemoteId, connect: RequestId, status: Status) {
        if !self.awaits(id, connect) {
            self.stats.stale += 1;
        } else {
            if status != Status::Success {
                self.log_refused(id, status);
            }
            self.complete(connect, status, 0);
        }
        self.drop_if_unwanted(id);
    }

    /// Returns the connects that wait for a remote's answer, oldest first.
    fn connects_to(&self, id: RemoteId) -> SmallVec<[RequestId; 1]> {
        let remote = self.remotes.of(id);
        let connects = remote.map_or(List::EMPTY, |remote| remote.connects);
        self.ops.of_list(ListKind::State, &connects).collect()
    }

    /// Returns whether this connect waits for a remote's answer.
    fn awaits(&self, id: RemoteId, connect: RequestId) -> bool {
        let record = self.ops.get(connect).filter(|record| record.remote == id);
        record.is_some_and(|record| matches!(record.state, State::Connecting { .. }))
    }

    /// Removes a remote to which no connect waits any more, if it has never answered, or still has to move.
    pub(super) fn drop_if_unwanted(&mut self, id: RemoteId) {
        let held = self.moves.holds(id);
        let unwanted = |it: &Remote| (held || it.connected().is_none()) && it.connects.is_empty();
        if self.remotes.of(id).is_some_and(unwanted) {
            self.leave(id);
        }
    }

    pub(super) fn leave(&mut self, id: RemoteId) {
        if let Some(remote) = self.remove_remote(id, (Status::Unreachable, None), false) {
            self.close_link_of(&remote, Close::Now);
        }
    }

    pub(super) fn send_reply(
        &mut self,
        to: Option<RemoteId>,
        link: LinkId,
        connect: u64,
        status: Status,
    ) {
        let remote = to.and_then(|id| self.remotes.of(id));
        let epoch = remote.map_or(0, |remote| remote.epoch);
        let remote = remote.filter(|_| status == Status::Success);
        let accepted = to.filter(|_| remote.is_some());
        let nonce = accepted.map_or_else(Nonce::default, |id| self.call_nonce(id, link));
        let hello = Hello {
            nonce,
            ..self.hello(epoch, remote.map(|remote| remote.name), link)
        };
        let mut header = Header::new(wire::Kind::Reply, connect, 0);
        header.aux = reply_code(status);
        header.credit_fields.credit = remote.map_or(0, |remote| remote.opening);
        let claim = accepted.and_then(|id| self.claims_of(id).next());
        let to_caller = GreetingRole::Caller(remote.map_or(0, |remote| remote.context));
        let body = match accepted {
            Some(_) => self.hello_body(hello, to_caller, claim),
            None => hello.emit().to_vec(),
        };
        match to {
            Some(id) => self.push_control(id, header, &body),
            // A stranger that reads no answers loses its link.
            None if self.answer(link, header, &body) == Err(SendError::WouldBlock) => {
                self.close_link(link, Close::Flush);
            }
            None => {}
        }
    }

    /// Returns whether so many session packets wait for a remote that it cannot be reading. They cost no credits, so
    /// answers must not be kept without limit.
    pub(super) fn unread_sessions(&self, from: RemoteId) -> bool {
        // Other control packets do not count.
        let most = unread_max(self.controls, UNREAD_ALL);
        let queues = self.remotes.of(from).and_then(Remote::queues);
        queues.is_some_and(|queues| {
            queues.control.len() >= most && queues.count(&SESSION_PACKETS) >= most
        })
    }
}

/// Packets that answer the peer's and cost no credits.
const SESSION_PACKETS: [wire::Kind; 3] =
    [wire::Kind::Connect, wire::Kind::Reply, wire::Kind::Prove];

/// Returns the reason for a refusal, for the log.
fn refusal(status: Status) -> &'static str {
    match status {
        Status::BadKey => "connection keys differ",
        Status::BadEndpoint => "it uses another protocol version",
        Status::BadSecret => "it requires proof of the site's secret",
        Status::Refused => {
            "the network does not tell it who we are, or that we have called it; its log says more"
        }
        _ => "it has no room for another peer",
    }
}

/// Returns a connect's status as its code in a Reply packet.
fn reply_code(status: Status) -> u32 {
    match status {
        Status::Success => 0,
        Status::BadKey => 1,
        Status::BadEndpoint => 2,
        Status::BadSecret => 5,
        Status::Refused => 6,
        _ => 3,
    }
}

/// Returns the status of a code; unknown codes mean a lack of resources.
fn reply_status(code: u32) -> Status {
    match code {
        0 => Status::Success,
        1 => Status::BadKey,
        2 => Status::BadEndpoint,
        5 => Status::BadSecret,
        6 => Status::Refused,
        _ => Status::NoResources,
    }
}
