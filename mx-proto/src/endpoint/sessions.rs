//! Connecting and disconnecting.
//!
//! ```text
//!   us                                    them
//!   connect(): link --------------------> (a stranger's link)
//!   on_up: Connect(who, nonce) ---------> version, key, source, room? -> remote
//!   remote <------- Reply(accepted, who) -
//!
//!   they have remotes of our life:
//!       <---------- Reply(known, proof) - the first of them
//!       we have it, too: the connect goes on there, this link is closed
//!       or not: Connect(not that) ------> Reply(known) of the next; none is left: another remote of our life
//!   those that are named so are asked whether they are there
//!
//!   both at once: two links, two remotes of one life on both sides
//!       smaller session: the remote that we have called stays
//!       larger:          Confirm(nonce of their call) on the link of ours
//!       Confirmed(yes) <------------------ our connect goes on with the remote that has called us
//! ```
//!
//! A remote is one association with a peer: credits begin and end with it, and with its link. It is found
//! by its address (the interface that the network has proven or that was called, and the endpoint number)
//! and by its life (session).

use super::Endpoint;
use super::introductions::Distrust;
use super::outbound::{UNREAD_ALL, unread_max};
use crate::flow::Borrower;
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, RequestId, SessionId};
use crate::ops::{List, State, Strand};
use crate::origin::Source;
use crate::owner::Owner;
use crate::port::{Close, LinkDown, Port};
use crate::queues::Control;
use crate::remote::{Candidate, Life, LinkState, Met, Name, Reach, Remote, Tx};
use crate::secret::{self, Nonce};
use crate::status::{DownReason, Status, Violation};
use crate::time::{Clock, Instant};
use crate::wire::{self, Header, Hello, VERSION};
use smallvec::SmallVec;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// A link we asked for can carry packets: introduce ourselves.
    pub(super) fn link_up(&mut self, link: LinkId, id: RemoteId) {
        match self.remotes.of_mut(id) {
            Some(remote) if remote.owns(link) => {
                remote.advance(link, LinkState::Up);
                self.introduce_all(id, link);
            }
            _ => self.close_link(link, Close::Now),
        }
    }

    /// Sends the Connects of all connects that wait for an answer.
    pub(super) fn introduce_all(&mut self, id: RemoteId, link: LinkId) {
        for connect in self.connects_to(id) {
            self.send_connect(id, link, connect, Candidate::default());
        }
    }

    pub(super) fn link_down(&mut self, link: LinkId, id: RemoteId, reason: LinkDown) {
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        remote.links.retain(|known| known.0 != link);
        match (&remote.life, reason) {
            // The other end of a link to ourselves.
            (Life::Met(met), _) if met.tx.link() != link => {}
            (Life::Connecting, LinkDown::Elsewhere(route)) => {
                self.connect_elsewhere(id, route);
            }
            _ => self.fail_remote(id, DownReason::Link(reason)),
        }
    }

    /// Sends the Connect packet that belongs to one connect request. `denied`: the last remote that the peer has
    /// named and that is not ours.
    pub(super) fn send_connect(
        &mut self,
        id: RemoteId,
        link: LinkId,
        connect: RequestId,
        denied: Candidate,
    ) {
        let key = match self.ops.get(connect).map(|record| &record.state) {
            Some(State::Connecting { key, .. }) => *key,
            _ => return,
        };
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let mut header = Header::new(wire::Kind::Connect, connect.to_word(), denied.to_word());
        header.credit_fields.credit = remote.opening;
        let hello = self.call(id, remote, link, key);
        self.send_session(Some(id), link, header, &hello.emit());
    }

    /// Our hello in the call of a remote, on that link.
    pub(super) fn call(&self, id: RemoteId, remote: &Remote, link: LinkId, key: u32) -> Hello {
        Hello {
            key,
            nonce: self.call_nonce(id, link),
            ..self.hello(remote.epoch, Some(remote.name))
        }
    }

    /// `name`: its destination.
    fn hello(&self, epoch: u16, name: Option<Name>) -> Hello {
        Hello {
            version: VERSION,
            epoch,
            key: 0,
            identity: self.identity,
            to: name.unwrap_or((NicId(0), EndpointId(0))),
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
        let hello = match Hello::parse(body) {
            Ok(hello) => hello,
            Err(what) => return self.violation(link, what),
        };
        if self.unread_sessions(link, from) {
            return self.violation(link, Violation::UnreadIntroductions);
        }
        let Some(from) = from else {
            return self.come(link, header, hello);
        };
        if !self.trusts(link, from) {
            return self.distrust(from, Some(hello.identity), Distrust::Unasked);
        }
        if !self.challenges.vouches(link, &hello.identity, true) {
            return self.distrust(from, Some(hello.identity), Distrust::Unvouched);
        }
        self.connect_on(link, from, header, &hello);
    }

    /// Handles a hello on a link of a remote's.
    pub(super) fn connect_on(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        hello: &Hello,
    ) {
        let known = self.remotes.of(from).and_then(Remote::met);
        let is_own = hello.identity.session == self.identity.session;
        if !is_own && !known.is_some_and(|met| met.is(hello)) {
            return self.violation(link, Violation::AnotherName);
        }
        // An answer would have the peer use what is perhaps given up.
        if let Some(met) = self.remotes.met_mut(from)
            && met.asks.is_some()
            && met.held.len() < HELD_MAX
        {
            met.held.push((header.word, hello.key));
            return;
        }
        self.reply_to(from, link, header.word, hello.key);
    }

    /// Answers a hello on a link of a remote's: only its key can be wrong.
    pub(super) fn reply_to(&mut self, to: RemoteId, link: LinkId, connect: u64, key: u32) {
        let status = if key == self.key {
            Status::Success
        } else {
            self.stats.refused += 1;
            Status::BadKey
        };
        self.send_reply(Some(to), link, connect, status);
    }

    /// A stranger's source is proven, and its hello has that as its name.
    pub(super) fn admit(
        &mut self,
        link: LinkId,
        source: Source,
        header: &Header,
        hello: &Hello,
        now: Instant,
    ) {
        let life = hello.identity.session;
        let denied = Candidate::from_word(header.length);
        if let Some(known) = self.remotes.next_of_life(life, denied, false) {
            if self.config.secret.is_some() {
                self.challenges.vouch(link, hello.identity);
            }
            self.reply_known(link, header, known, hello);
            return self.ask_whether_there(known, now);
        }
        if !self.remotes.may_add(source) {
            self.stats.refused += 1;
            self.send_reply(None, link, header.word, Status::NoResources);
            return self.unmet.set_closes(link, true);
        }
        let id = self.add_remote(hello.identity.name(), source);
        self.bind(link, id);
        if let Some(remote) = self.remotes.of_mut(id) {
            remote.links.push((link, LinkState::Met));
        }
        self.establish(id, hello, link, header, true, None);
        self.send_reply(Some(id), link, header.word, Status::Success);
    }

    /// A stranger says that it is of the life of a remote that we have. If it is, it has that, too.
    pub(super) fn reply_known(
        &mut self,
        link: LinkId,
        asked: &Header,
        known: RemoteId,
        to: &Hello,
    ) {
        let remote = self.remotes.of(known);
        let name = remote.map(|it| it.name);
        let met = remote.and_then(Remote::met);
        // Only the peer and we know its nonce, and it has no other remote with that. One that is not met is this
        // endpoint itself, which answers at the other end of the link.
        let theirs = met.map(|met| met.nonce).or_else(|| {
            let (link, _) = remote?.links.get(1)?;
            Some(self.call_nonce(known, *link))
        });
        let (serial, theirs) = (met.map_or(0, |met| met.serial), theirs.unwrap_or_default());
        let denied = Candidate::from_word(asked.length).denied;
        let is = Candidate { serial, denied };
        let from_there = name.is_some_and(|name| name.0 == to.identity.nic);
        let length = is.to_word() << 1 | u32::from(from_there);
        let mut header = Header::new(wire::Kind::Reply, asked.word, length);
        header.aux = REPLY_KNOWN;
        let hello = Hello {
            nonce: secret::known_proof(&theirs, &to.nonce),
            ..self.hello(0, name)
        };
        self.send_session(None, link, header, &hello.emit());
    }

    /// The peer that we have called says that we have a remote of its life, which `is` that one there.
    /// `ours`: it has that under an address of ours, or under the one that it sees us at now, so no other
    /// passes on what we say there.
    pub(super) fn on_known(
        &mut self,
        link: LinkId,
        connect: RequestId,
        hello: &Hello,
        (is, ours): (Candidate, bool),
        now: Instant,
    ) {
        let from = self.remote_on(link);
        if !self.awaits(from, connect) {
            self.stats.stale += 1;
            return;
        }
        if self.remotes.of(from).is_some_and(|it| it.met().is_some()) {
            // A later connect has been accepted: the peer has lost meanwhile what it has named.
            return self.send_connect(from, link, connect, Candidate::default());
        }
        if let Some(remote) = self.remotes.of_mut(from) {
            remote.told += 1;
            if remote.told > TOLD_MAX {
                return self.violation(link, Violation::Repeated);
            }
        }
        let about = self.call_nonce(from, link);
        let is_it = |id: &RemoteId| {
            // One that is this endpoint itself has drawn a nonce for each end of its link.
            let links = self.remotes.of(*id).map(|it| it.links.as_slice());
            let mut nonces = links.unwrap_or_default().iter();
            nonces.any(|(link, _)| {
                secret::known_proof(&self.call_nonce(*id, *link), &about) == hello.nonce
            })
        };
        let mut all = self.remotes.all_of_life(hello.identity.session);
        let met = all.find(is_it);
        drop(all);
        // Or one that has been called as well, and whose answer has been overtaken.
        let called = || {
            let unmet = |id: &RemoteId| {
                let remote = self.remotes.of(*id);
                *id != from && remote.is_some_and(|it| it.met().is_none())
            };
            let mut ids = self.remotes.ids().into_iter();
            ids.find(|id| unmet(id) && is_it(id))
        };
        match met.or_else(called).filter(|_| ours) {
            Some(known) => {
                log::debug!("link {link:?}: {from:?} is {known:?} under another address");
                self.go_on_as(connect, from, known);
                self.drop_if_unwanted(from);
                self.ask_whether_there(known, now);
            }
            // The peer has one that we have ended, or that another has begun in our name.
            None => self.send_connect(from, link, connect, is.deny()),
        }
    }

    /// The remote's first hello has come on this link, with its initial credits.
    fn establish(
        &mut self,
        id: RemoteId,
        hello: &Hello,
        link: LinkId,
        header: &Header,
        called_us: bool,
        asks: Option<Candidate>,
    ) {
        let early = self.unmet.take(link).packets;
        if let Some(remote) = self.remotes.of_mut(id) {
            remote.advance(link, LinkState::Met);
            if !early.is_empty() {
                self.controls += early.len();
                self.spares.fill(&mut remote.queues).control.extend(early);
            }
        }
        let met = Met {
            session: hello.identity.session,
            called_us,
            used: false,
            nonce: hello.nonce,
            serial: 0,
            asks,
            held: Vec::new(),
            epoch: hello.epoch,
            tx: Tx::Open(link),
            reach: Reach::UNKNOWN,
            borrows: Borrower::open(header.credit_fields.credit),
            silent: 0,
            step: None,
        };
        let leads = !called_us && asks.is_none();
        self.remotes.meet(id, met, leads);
        self.stats.remotes_up += 1;
        self.learn_limits(id, link);
    }

    /// The answer to a Connect of ours.
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
        if self.unread_sessions(link, Some(from)) {
            return self.violation(link, Violation::UnreadReplies);
        }
        if !self.trusts(link, from) {
            return self.refused_by(from, header, &hello);
        }
        let welcome = reply_status(header.aux) == Status::Success;
        if !self.challenges.vouches(link, &hello.identity, welcome) {
            return self.distrust(from, Some(hello.identity), Distrust::Unvouched);
        }
        self.reply_on(link, from, header, &hello, now);
    }

    /// Our connect is answered by a peer that has not proven the site's secret: only a refusal is
    /// accepted.
    fn refused_by(&mut self, from: RemoteId, header: &Header, hello: &Hello) {
        let status = reply_status(header.aux);
        if header.aux == REPLY_KNOWN || status == Status::Success {
            return self.distrust(from, Some(hello.identity), Distrust::Unasked);
        }
        if status == Status::BadSecret {
            return self.distrust(from, Some(hello.identity), Distrust::Refused);
        }
        self.end_connect(from, RequestId::from_word(header.word), status);
    }

    /// The same for a proven answer.
    fn reply_on(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        hello: &Hello,
        now: Instant,
    ) {
        let connect = RequestId::from_word(header.word);
        if header.aux == REPLY_KNOWN {
            let ours = header.length & 1 == 1 || self.port.has_interface(hello.to.0);
            let said = (Candidate::from_word(header.length >> 1), ours);
            return self.on_known(link, connect, hello, said, now);
        }
        let status = reply_status(header.aux);
        if status == Status::BadSecret && self.awaits(from, connect) {
            self.log_distrust(Some(hello.identity), from, Distrust::Refused);
        }
        if status == Status::Success {
            let Some(remote) = self.remotes.of(from) else {
                return;
            };
            match remote.met() {
                Some(met) if met.is(hello) => {}
                Some(_) => return self.violation(link, Violation::OtherReply),
                None => {
                    if !self.answered(link, from, header, hello, now) {
                        return;
                    }
                }
            }
            let asks = self.remotes.met_mut(from).and_then(|met| met.asks);
            if asks.is_some() {
                // The connects wait for the answer.
                return self.make_ready(from);
            }
        }
        self.end_connect(from, connect, status);
        self.make_ready(from);
    }

    /// Our call of a remote has been accepted for the first time. False: it is over.
    fn answered(
        &mut self,
        link: LinkId,
        id: RemoteId,
        header: &Header,
        hello: &Hello,
        now: Instant,
    ) -> bool {
        let theirs = hello.identity.session;
        let is_to_oneself = self.remotes.of(id).is_some_and(|of| of.links.len() > 1);
        if (theirs == self.identity.session) != is_to_oneself {
            self.violation(link, Violation::OwnHello);
            return false;
        }
        let known = self.remotes.of_life(theirs);
        let asks = if self.identity.session.0 > theirs.0 {
            self.caller_after(Candidate::default(), theirs)
        } else {
            None
        };
        self.establish(id, hello, link, header, false, asks);
        match (asks, known) {
            (Some(_), _) => self.ask_caller(id),
            (None, Some(known)) => self.ask_whether_there(known, now),
            (None, None) => {}
        }
        true
    }

    /// The next remote of that life that has called us.
    fn caller_after(&self, before: Candidate, session: SessionId) -> Option<Candidate> {
        let next = self.remotes.next_of_life(session, before, true)?;
        let serial = self.remotes.of(next)?.met()?.serial;
        Some(Candidate { serial, ..before })
    }

    /// The remote that has called us which this one, that we have called, is being asked about.
    pub(super) fn asked_about(&self, id: RemoteId) -> Option<RemoteId> {
        let met = self.remotes.of(id)?.met()?;
        let asks = met.asks?;
        let mut all = self.remotes.all_of_life(met.session);
        all.find(|id| {
            let caller = self.remotes.of(*id).and_then(Remote::met);
            caller.is_some_and(|caller| caller.serial == asks.serial)
        })
    }

    /// A remote says whether it is the one that has called us.
    pub(super) fn on_confirmed(&mut self, id: RemoteId, yes: bool) {
        let caller = self.asked_about(id);
        let met = self.remotes.met_mut(id);
        let Some((session, asked)) = met.and_then(|met| Some((met.session, met.asks.take()?)))
        else {
            self.stats.stale += 1;
            return;
        };
        if let Some(caller) = caller.filter(|_| yes) {
            log::debug!("{id:?} is {caller:?}, which has called us");
            self.go_on_with(id, caller);
            return self.leave(id);
        }
        let waits = |met: &Met| !met.held.is_empty();
        let is_wanted = self.remotes.of(id).and_then(Remote::met).is_some_and(waits)
            || !self.connects_to(id).is_empty();
        if asked != Candidate::NONE && !is_wanted {
            return self.leave(id);
        }
        let next = self.caller_after(asked.deny(), session);
        if let (Some(_), Some(met)) = (next, self.remotes.met_mut(id)) {
            met.asks = next;
            return self.ask_caller(id);
        }
        self.remotes.lead(id);
        let met = self.remotes.met_mut(id);
        let held = met.map_or_else(Vec::new, |met| std::mem::take(&mut met.held));
        if let Some(link) = self.remotes.of(id).and_then(Remote::tx_link) {
            for (connect, key) in held {
                self.reply_to(id, link, connect, key);
            }
            self.introduce_all(id, link);
        }
    }

    /// Says why a peer has refused our call, each reason once and then at growing intervals.
    fn log_refused(&mut self, id: RemoteId, status: Status) {
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let called = self.config.name(&remote.identity());
        if let Some(times) = self.introductions.refused_us.again((remote.name, status)) {
            let why = refusal(status);
            log::warn!("{called} has refused our call: {why} (refusal {times})");
        }
    }

    /// A connect is over, unless it has been before.
    fn end_connect(&mut self, id: RemoteId, connect: RequestId, status: Status) {
        if !self.awaits(id, connect) {
            self.stats.stale += 1;
        } else {
            if status != Status::Success {
                self.log_refused(id, status);
            } else if let Some(met) = self.remotes.met_mut(id) {
                met.used = true;
            }
            self.complete(connect, status, 0);
        }
        self.drop_if_unwanted(id);
    }

    /// A message has come from a remote that is being asked which it is: then it is another one.
    #[cold]
    pub(super) fn use_while_asked(&mut self, id: RemoteId) {
        if let Some(met) = self.remotes.met_mut(id) {
            met.asks = met.asks.map(|_| Candidate::NONE);
        }
        self.on_confirmed(id, false);
    }

    /// All connects to one remote go on as connects to another, of the same life.
    pub(super) fn go_on_with(&mut self, from: RemoteId, id: RemoteId) {
        for connect in self.connects_to(from) {
            self.go_on_as(connect, from, id);
        }
    }

    /// A connect to one remote goes on as one to another, of the same life.
    fn go_on_as(&mut self, connect: RequestId, from: RemoteId, id: RemoteId) {
        if let Some(remote) = self.remotes.of_mut(from) {
            let connects = &mut remote.connects;
            self.ops.leave(Strand::Own, connects, connect.index());
        }
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        self.ops.record_mut(connect.index()).remote = id;
        let connects = &mut remote.connects;
        self.ops.join(Strand::Own, connects, connect.index());
        if let Some(link) = remote.link_up() {
            self.send_connect(id, link, connect, Candidate::default());
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
        let unwanted = |it: &Remote| it.met().is_none() && it.connects.is_empty();
        if self.remotes.of(id).is_some_and(unwanted) {
            self.leave(id);
        }
    }

    /// Removes a remote that the owner does not know.
    pub(super) fn leave(&mut self, id: RemoteId) {
        if let Some(remote) = self.dissolve(id, (Status::Unreachable, None), false) {
            for (link, _) in &remote.links {
                self.close_link(*link, Close::Now);
            }
            self.forget_asked(id);
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
            ..self.hello(epoch, remote.map(|remote| remote.name))
        };
        let mut header = Header::new(wire::Kind::Reply, connect, 0);
        header.aux = reply_code(status);
        header.credit_fields.credit = remote.map_or(0, |remote| remote.opening);
        self.send_session(to, link, header, &hello.emit());
    }

    /// Whether so many session packets wait on this link that its peer cannot be reading. They cost
    /// no credits, so an answer to each must not be kept without limit.
    pub(super) fn unread_sessions(&self, link: LinkId, from: Option<RemoteId>) -> bool {
        let remote = from.and_then(|id| self.remotes.of(id));
        let Some(remote) = remote.filter(|remote| remote.tx_link() == Some(link)) else {
            return !self.unmet.has_room(link);
        };
        // Packets for our own operations do not count.
        let most = unread_max(self.controls, UNREAD_ALL);
        remote.queues().is_some_and(|queues| {
            queues.control.len() >= most && queues.count(&SESSION_PACKETS) >= most
        })
    }

    /// On the remote's sending link a session packet keeps its place among the others.
    pub(super) fn send_session(
        &mut self,
        to: Option<RemoteId>,
        link: LinkId,
        header: Header,
        body: &[u8],
    ) {
        let remote = to.and_then(|id| self.remotes.of(id));
        if let (Some(id), Some(remote)) = (to, remote)
            && remote.tx_link() == Some(link)
        {
            return self.push_control(id, header, body);
        }
        self.unmet.push(link, Control::new(header, body));
    }
}

/// Answers *known* to the calls of one remote: each connect denies a few.
const TOLD_MAX: u16 = 256;

/// Connects of a peer that wait until it is settled which remote it is; later ones are answered at once.
const HELD_MAX: usize = 16;

/// The packets that answer others of the peer's and cost no credits.
const SESSION_PACKETS: [wire::Kind; 4] = [
    wire::Kind::Connect,
    wire::Kind::Reply,
    wire::Kind::Confirmed,
    wire::Kind::Prove,
];

/// In a reply: a remote of your life is here already.
const REPLY_KNOWN: u32 = 4;

/// The reason in a reply that refuses, in words.
fn refusal(status: Status) -> &'static str {
    match status {
        Status::BadKey => "our connection key is not its own",
        Status::BadEndpoint => "it speaks another version of the protocol",
        Status::BadSecret => "it wants a proof of the site's secret",
        Status::Refused => {
            "the network does not tell it who we are, or that we have called it; its log says more"
        }
        _ => "it has no room for another peer",
    }
}

/// A connect's end as the number it has in a reply packet.
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

/// The inverse; what it does not know counts as a want of resources.
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
