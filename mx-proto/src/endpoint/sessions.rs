//! How two endpoints get to know each other, and how they part.
//!
//! ```text
//!   us                                    them
//!   connect(): link --------------------> (a stranger's link)
//!   on_up: Connect(who, key) -----------> version, key, room? -> partner, sends on this link
//!   partner <------- Reply(status, who) -
//!
//!   both at once: two links, one partner; each side goes on sending where it began
//!   Connect with another session: the peer restarted, the old partner is dissolved first
//!   Connect with another epoch:   it parted and came back, or comes under a second address:
//!       <---- Reply(known, epoch)     asked, it says which: it knows that epoch and stays with
//!       Connect(afresh) --------->    it, or what was before is over
//! ```
//!
//! A partner is known by the address it claims (interface and endpoint number). Where we reached
//! it under another address, the reply tells, and the two become one.

use super::Core;
use crate::event::Identity;
use crate::ids::{LinkId, PartnerId, RequestId};
use crate::memory::Memory;
use crate::partner::{Link, Partner};
use crate::port::{Close, LinkDown};
use crate::queues::Control;
use crate::request::State;
use crate::status::{DownReason, Status};
use crate::wire::{self, Header, Hello, VERSION};

use super::Errand;

impl<M: Memory> Core<M> {
    /// A link we asked for can carry packets: introduce ourselves.
    pub(super) fn link_up(&mut self, link: LinkId, id: PartnerId) {
        let Some(partner) = self.partners.of_mut(id) else {
            self.errands.push(Errand::Close(link, Close::Now));
            return;
        };
        for known in &mut partner.links {
            known.up |= known.id == link;
        }
        for connect in partner.connects.clone() {
            self.send_connect(id, link, connect, Manner::Plain);
        }
    }

    pub(super) fn link_down(&mut self, link: LinkId, id: PartnerId, reason: LinkDown) {
        self.held.retain(|(held_by, _), _| *held_by != link);
        let Some(partner) = self.partners.of_mut(id) else {
            return;
        };
        let was_up = partner
            .links
            .iter()
            .any(|known| known.id == link && known.up);
        partner.links.retain(|known| known.id != link);
        let other = partner
            .links
            .iter()
            .find(|known| known.up)
            .map(|known| known.id);
        match (partner.session, other) {
            // Our own attempt failed, but the peer has reached us meanwhile.
            (Some(_), Some(other)) if !was_up => {
                for connect in partner.connects.clone() {
                    self.send_connect(id, other, connect, Manner::Plain);
                }
            }
            // One of two, because both sides have connected.
            (Some(_), Some(_)) if partner.tx != Some(link) => {}
            // A peer that goes closes both, and what it sent last may still be in the other one,
            // whose end is the partner's. One that has only called off its own connect, before it
            // had heard from us, has the other one from now on.
            (Some(_), Some(other)) if reason == LinkDown::Closed => {
                if self.under_way(id).is_empty() {
                    self.use_link(id, other);
                }
            }
            // Still others are being tried.
            (None, _) if !partner.links.is_empty() => {}
            (session, _) => match reason {
                LinkDown::Elsewhere(route) if session.is_none() => {
                    self.errands.push(Errand::Connect(id, route));
                }
                _ => self.fail_partner(id, DownReason::Link(reason)),
            },
        }
    }

    /// What has gone out to a partner, connects aside, and waits for something from it.
    fn under_way(&self, id: PartnerId) -> Vec<RequestId> {
        let state = |request: &RequestId| self.requests.of(*request).map(|found| &found.state);
        let waits = |request: &RequestId| !matches!(state(request), Some(State::Queued { .. }));
        let mut all = self.requests.with_partner(id);
        all.retain(waits);
        all
    }

    /// The link of a partner's that packets went out on is no more; another one is.
    fn use_link(&mut self, id: PartnerId, link: LinkId) {
        let Some(partner) = self.partners.of_mut(id) else {
            return;
        };
        partner.tx = Some(link);
        partner.writable = true;
        let connects = partner.connects.clone();
        self.errands.push(Errand::Limits(id, link));
        // They may have gone out on the one that is no more.
        for connect in connects {
            self.send_connect(id, link, connect, Manner::Plain);
        }
        self.make_ready(id);
    }

    /// Sends the Connect packet that belongs to one connect request.
    pub(super) fn send_connect(
        &mut self,
        id: PartnerId,
        link: LinkId,
        connect: RequestId,
        manner: Manner,
    ) {
        let key = match self.requests.of(connect).map(|request| &request.state) {
            Some(State::Connecting { key, .. }) => *key,
            _ => return,
        };
        let hello = self.hello(Some(id), key);
        let header = Header::new(wire::Kind::Connect, connect.to_word(), manner as u32);
        self.send_session(Some(id), link, header, &hello.emit(), false);
    }

    fn hello(&self, to: Option<PartnerId>, key: u32) -> Hello {
        let epoch = to
            .and_then(|id| self.partners.of(id))
            .map_or(0, |partner| partner.epoch);
        Hello {
            version: VERSION,
            epoch,
            key,
            identity: self.identity,
        }
    }

    /// Somebody introduces itself. `from` is the partner the link already belongs to.
    pub(super) fn on_connect(
        &mut self,
        link: LinkId,
        from: Option<PartnerId>,
        header: &Header,
        body: &[u8],
    ) {
        let Some(hello) = Hello::parse(body) else {
            let cookie = from.map_or(0, PartnerId::to_word);
            return self.violation(link, cookie, "a malformed introduction");
        };
        if self.unread_sessions(link, from) {
            let cookie = from.map_or(0, PartnerId::to_word);
            return self.violation(link, cookie, "introductions without reading the answers");
        }
        if self.is_echo(from, &hello) {
            let cookie = from.map_or(0, PartnerId::to_word);
            return self.violation(link, cookie, "our own introduction");
        }
        let refusal = if hello.version != VERSION {
            log::warn!(
                "{:?} speaks protocol version {}, we speak {VERSION}: refused",
                hello.identity,
                hello.version
            );
            Some(Status::BadEndpoint)
        } else if hello.key != self.key {
            log::info!(
                "{:?} came with key {:#x}: refused",
                hello.identity,
                hello.key
            );
            Some(Status::BadKey)
        } else {
            None
        };
        if let Some(status) = refusal {
            return self.refuse(link, from, header, status);
        }
        let id = match from {
            Some(id) => {
                let session = self.partners.of(id).and_then(|partner| partner.session);
                let known = match session {
                    Some(session) => (session == hello.identity.session).then_some(id),
                    // On a link that we called and do not want any more: the answer to our
                    // Connect, which would have told us who this is, is for nobody.
                    None => self.merge(link, id, hello.identity),
                };
                let Some(known) = known else {
                    let what = "an introduction under another name";
                    return self.another_life(link, id, hello.identity, what);
                };
                if session.is_none() {
                    self.establish(known, hello.identity, link);
                }
                known
            }
            None => {
                if let Some(epoch) = self.known_otherwise(&hello, header) {
                    return self.reply_known(link, header.word, epoch);
                }
                let known = self
                    .partners
                    .find(hello.identity.nic, hello.identity.endpoint);
                let known = known.and_then(|id| self.partners.of(id));
                if known.is_some_and(|partner| {
                    partner.session == Some(hello.identity.session)
                        && partner.links.len() >= LINKS_MAX
                }) {
                    return self.refuse(link, from, header, Status::NoResources);
                }
                match self.partner_for(link, hello.identity) {
                    Some(id) => id,
                    None => return self.refuse(link, from, header, Status::NoResources),
                }
            }
        };
        if let Some(partner) = self.partners.of_mut(id) {
            partner.peer_epoch = hello.epoch;
            partner
                .credit
                .on_allowance(header.credit_bytes, header.credit_messages);
        }
        self.send_reply(Some(id), link, header.word, Status::Success, false);
    }

    /// Whoever has the address repeats what we say. When we reach ourselves under some name, the
    /// first that comes back to the caller is an answer.
    fn is_echo(&self, from: Option<PartnerId>, hello: &Hello) -> bool {
        let caller = from.and_then(|id| self.partners.of(id));
        hello.identity == self.identity && caller.is_some_and(|partner| partner.session.is_none())
    }

    /// The peer is our partner already, but as another acquaintance of its own: it has parted and
    /// come back, or it reaches us under a second address. Only it knows which; this is the epoch
    /// to ask it about. If it comes afresh, what was before is over.
    fn known_otherwise(&mut self, hello: &Hello, header: &Header) -> Option<u16> {
        let id = self
            .partners
            .find(hello.identity.nic, hello.identity.endpoint)?;
        let partner = self.partners.of(id)?;
        if partner.session != Some(hello.identity.session) || partner.peer_epoch == hello.epoch {
            return None;
        }
        if header.length != Manner::Afresh as u32 {
            return Some(partner.peer_epoch);
        }
        self.fail_partner(id, DownReason::Disconnected);
        None
    }

    fn reply_known(&mut self, link: LinkId, connect: u64, epoch: u16) {
        let mut header = Header::new(wire::Kind::Reply, connect, epoch.into());
        header.aux = REPLY_KNOWN;
        let hello = self.hello(None, 0);
        self.send_session(None, link, header, &hello.emit(), false);
    }

    /// The peer knows us as `epoch`, which is not `from`.
    fn on_known(
        &mut self,
        link: LinkId,
        from: PartnerId,
        connect: RequestId,
        who: Identity,
        epoch: u32,
    ) {
        let known = self.partners.find(who.nic, who.endpoint).filter(|id| {
            self.partners.of(*id).is_some_and(|partner| {
                *id != from
                    && partner.session == Some(who.session)
                    && u32::from(partner.epoch) == epoch
            })
        });
        let Some(known) = known else {
            // It takes us for one we have parted as, unless it has connected to us meanwhile: then
            // it learns on its own link whom it has reached.
            let partner = self.partners.of(from);
            let adopted = partner.and_then(|partner| partner.session.and(partner.tx));
            return match adopted {
                Some(own) => self.send_connect(from, own, connect, Manner::Plain),
                None => self.send_connect(from, link, connect, Manner::Afresh),
            };
        };
        log::debug!("link {link:?}: {from:?} is {known:?} under another address");
        if let Some(request) = self.requests.of_mut(connect)
            && let State::Connecting { to, .. } = &mut request.state
        {
            *to = known;
        }
        if let Some(partner) = self.partners.of_mut(from) {
            partner.connects.retain(|waiting| *waiting != connect);
        }
        self.complete(connect, Status::Success, 0);
        self.drop_if_unwanted(from);
    }

    fn refuse(&mut self, link: LinkId, from: Option<PartnerId>, header: &Header, status: Status) {
        self.stats.refused += 1;
        self.send_reply(from, link, header.word, status, from.is_none());
    }

    /// The partner a stranger's link belongs to from now on, made if need be.
    fn partner_for(&mut self, link: LinkId, identity: Identity) -> Option<PartnerId> {
        let mut known = self.partners.find(identity.nic, identity.endpoint);
        if let Some(id) = known
            && let Some(session) = self.partners.of(id).and_then(|partner| partner.session)
            && session != identity.session
        {
            self.fail_partner(id, DownReason::Restarted);
            known = None;
        }
        let id = match known {
            Some(id) => id,
            None if self.partners.len() >= self.config.max_partners => return None,
            None => {
                let credit = self.new_credit();
                self.partners.add(identity.nic, identity.endpoint, credit)
            }
        };
        self.errands.push(Errand::Bind(link, id.to_word()));
        self.session_out.keep_open(link);
        self.partners
            .of_mut(id)?
            .links
            .push(Link { id: link, up: true });
        self.establish(id, identity, link);
        Some(id)
    }

    /// The partner has said who it is.
    fn establish(&mut self, id: PartnerId, identity: Identity, link: LinkId) {
        self.partners.rename(id, identity.nic, identity.endpoint);
        let Some(partner) = self.partners.of_mut(id) else {
            return;
        };
        if partner.session.is_none() {
            partner.session = Some(identity.session);
            self.stats.partners_up += 1;
            self.note_use(id);
        }
        let Some(partner) = self.partners.of_mut(id) else {
            return;
        };
        if partner.tx.is_none() {
            partner.tx = Some(link);
            partner.writable = true;
            // Asked of the port as soon as it is not being polled.
            self.errands.push(Errand::Limits(id, link));
        }
    }

    /// The answer to a Connect of ours.
    pub(super) fn on_reply(&mut self, link: LinkId, from: PartnerId, header: &Header, body: &[u8]) {
        let Some(hello) = Hello::parse(body) else {
            return self.violation(link, from.to_word(), "a malformed reply");
        };
        if self.unread_sessions(link, Some(from)) {
            let what = "replies without reading the answers";
            return self.violation(link, from.to_word(), what);
        }
        // A reply to what has been called off meanwhile may be of a session that has ended.
        let session = self.partners.of(from).and_then(|partner| partner.session);
        if session == Some(hello.identity.session) {
            self.allow(from, header);
        }
        let connect = RequestId::from_word(header.word);
        let waiting = self
            .partners
            .of(from)
            .is_some_and(|p| p.connects.contains(&connect));
        if !waiting {
            self.stats.stale += 1;
            return;
        }
        if header.aux == REPLY_KNOWN {
            return self.on_known(link, from, connect, hello.identity, header.length);
        }
        let status = reply_status(header.aux);
        if status != Status::Success {
            log::info!("{:?} refused our connect: {status:?}", hello.identity);
            self.complete(connect, status, 0);
            return self.drop_if_unwanted(from);
        }
        let Some(id) = self.merge(link, from, hello.identity) else {
            let what = "a reply under another name";
            return self.another_life(link, from, hello.identity, what);
        };
        self.establish(id, hello.identity, link);
        self.allow(id, header);
        if let Some(partner) = self.partners.of_mut(id) {
            let before = std::mem::replace(&mut partner.peer_epoch, hello.epoch);
            // It called, thought better of it, and then got our call: nobody reads the link it
            // called on, though we may not have heard of its end.
            if before != hello.epoch && partner.tx != Some(link) {
                for request in self.under_way(id) {
                    self.complete(request, Status::Unreachable, 0);
                }
                self.use_link(id, link);
            }
        }
        if let Some(request) = self.requests.of_mut(connect)
            && let State::Connecting { to, .. } = &mut request.state
        {
            *to = id;
        }
        self.complete(connect, Status::Success, 0);
        self.make_ready(id);
    }

    /// Takes in what a reply of the partner's present session grants.
    fn allow(&mut self, id: PartnerId, header: &Header) {
        if let Some(partner) = self.partners.of_mut(id)
            && partner
                .credit
                .on_allowance(header.credit_bytes, header.credit_messages)
            && partner.has_pending()
        {
            self.make_ready(id);
        }
    }

    /// A partner's link leads to another session than the partner's. Either the peer has restarted
    /// (we called its former life, which reached us on a link of its own, and our call got through
    /// to the new one), or it is none of ours.
    fn another_life(
        &mut self,
        link: LinkId,
        id: PartnerId,
        identity: Identity,
        what: &'static str,
    ) {
        let same_name = self.partners.of(id).is_some_and(|partner| {
            (partner.nic, partner.endpoint) == (identity.nic, identity.endpoint)
        });
        if !same_name {
            return self.violation(link, id.to_word(), what);
        }
        self.errands.push(Errand::Close(link, Close::Now));
        self.fail_partner(id, DownReason::Restarted);
    }

    /// The partner that `from`, reached under some address, turns out to be. `None`: it cannot be.
    fn merge(&mut self, link: LinkId, from: PartnerId, identity: Identity) -> Option<PartnerId> {
        if let Some(session) = self.partners.of(from)?.session {
            return (session == identity.session).then_some(from);
        }
        let Some(known) = self.partners.find(identity.nic, identity.endpoint) else {
            return Some(from);
        };
        if known == from {
            return Some(from);
        }
        match self.partners.of(known)?.session {
            Some(session) if session == identity.session => {}
            // It was reached under both names and has answered under neither yet: the other
            // connect will find this one.
            None => return Some(from),
            Some(_) => {
                self.fail_partner(known, DownReason::Restarted);
                return Some(from);
            }
        }
        let mut other = self.partners.take(from)?;
        self.forget_partner(from, &mut other);
        self.watch.forget(other.vigil.timer);
        if let Some(partner) = self.partners.of_mut(known) {
            partner.credit.absorb(&other.credit, &mut self.budget);
        }
        for connect in &other.connects {
            if let Some(request) = self.requests.of_mut(*connect)
                && let State::Connecting { to, .. } = &mut request.state
            {
                *to = known;
            }
        }
        for moved in &other.links {
            self.errands.push(Errand::Bind(moved.id, known.to_word()));
        }
        let partner = self.partners.of_mut(known)?;
        partner.links.extend(other.links);
        partner.connects.extend(other.connects);
        log::debug!("link {link:?}: {from:?} is {known:?} under another address");
        Some(known)
    }

    /// A partner that never answered and that nobody wants to reach any more is let go.
    pub(super) fn drop_if_unwanted(&mut self, id: PartnerId) {
        let unwanted = self
            .partners
            .of(id)
            .is_some_and(|partner| partner.session.is_none() && partner.connects.is_empty());
        if unwanted && let Some(partner) = self.dissolve(id, Status::Unreachable) {
            for link in &partner.links {
                self.errands.push(Errand::Close(link.id, Close::Now));
            }
        }
    }

    fn send_reply(
        &mut self,
        to: Option<PartnerId>,
        link: LinkId,
        connect: u64,
        status: Status,
        close: bool,
    ) {
        let hello = self.hello(to, 0);
        let mut header = Header::new(wire::Kind::Reply, connect, 0);
        header.aux = reply_code(status);
        self.send_session(to, link, header, &hello.emit(), close);
    }

    /// Does so much wait on this link that nobody who reads it would have let it grow? What a peer
    /// says of itself costs it no credit, so an answer to each must not be kept for ever.
    fn unread_sessions(&self, link: LinkId, from: Option<PartnerId>) -> bool {
        let partner = from.and_then(|id| self.partners.of(id));
        let queues = partner.filter(|partner| partner.tx == Some(link));
        // What our own operations have queued does not count.
        let most = self.unread_max();
        let unread = queues.and_then(Partner::queues).is_some_and(|queues| {
            queues.control.len() >= most
                && queues.count(&[wire::Kind::Connect, wire::Kind::Reply]) >= most
        });
        unread || !self.session_out.has_room(link)
    }

    /// On the partner's sending link a session packet keeps its place among the others.
    fn send_session(
        &mut self,
        to: Option<PartnerId>,
        link: LinkId,
        mut header: Header,
        body: &[u8],
        close: bool,
    ) {
        let unread_max = self.unread_max();
        let Self {
            partners, budget, ..
        } = self;
        if let Some(id) = to
            && let Some(partner) = partners.of_mut(id)
        {
            if partner.tx == Some(link) {
                return self.push_control(id, header, body);
            }
            let queued = partner.queues().map_or(0, |queues| queues.control.len());
            let terms = partner.credit.terms(budget, queued > unread_max);
            terms.put(&mut header);
            // It goes out, or its link goes down, and with that this grant.
            partner.credit.on_told(terms, budget);
        }
        let control = Control::new(header, body);
        self.session_out.push(link, control, close);
    }
}

/// How a Connect is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Manner {
    /// As the peer knows us.
    Plain = 0,
    /// Whatever the peer has of us is over.
    Afresh = 1,
}

/// Links one partner may have: one each way, and as many again that are about to go.
const LINKS_MAX: usize = 16;

/// In a reply: you are my partner already, as this epoch of yours.
const REPLY_KNOWN: u32 = 4;

/// A connect's end as the number it has in a reply packet.
fn reply_code(status: Status) -> u32 {
    match status {
        Status::Success => 0,
        Status::BadKey => 1,
        Status::BadEndpoint => 2,
        _ => 3,
    }
}

/// The inverse; what it does not know counts as a want of resources.
fn reply_status(code: u32) -> Status {
    match code {
        0 => Status::Success,
        1 => Status::BadKey,
        2 => Status::BadEndpoint,
        _ => Status::NoResources,
    }
}
