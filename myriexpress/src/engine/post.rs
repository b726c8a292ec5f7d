//! What the program asks of an endpoint: posting, cancelling, forgetting.
//!
//! ```text
//!   isend --> peer connected?  yes --> Endpoint::send --> done at once, or pending: a small one
//!                |  no: dead           done: unreachable          is copied then, and done all the same
//!                `- oneself            connect first; what is to be sent waits in order
//! ```
//!
//! Posting succeeds whatever the state of the peer; the request tells.

use super::requests::{Owner, Request, Stage, to_word};
use super::{Engine, Peers, check_mask, posted};
use crate::error::{Code, Error};
use crate::handles::{Address, RequestHandle, RequestKey};
use crate::status::{Status, StatusCode};
use mx_proto::port::{ConnectError, Port};
use mx_proto::{
    Clock, EndpointId, Kind, MatchBits, MatchMask, Memory, NicId, PartnerId, Posted, Received,
    Route, SendMode, Target,
};
use mx_sys::UserMemory;
use std::collections::VecDeque;

/// Sends to oneself that were posted before there was a connection to oneself.
#[derive(Debug, Default)]
pub(super) struct ToSelf {
    waiting: VecDeque<(RequestKey, UserMemory, SendMode)>,
    /// A connect is under way for them.
    connecting: bool,
}

/// The context word of the connect to oneself; requests' words are smaller.
pub(super) const TO_SELF: u64 = u64::MAX;

/// The context word of a small send that has been copied.
pub(super) const COPIED: u64 = u64::MAX - 1;

/// Bytes of copies at which small sends have to wait like others: as many as 256 of the largest.
pub(super) const COPIES_MAX: usize = 8 << 20;

/// What a copy counts for at least: the request that holds it.
const COPY_WEIGHT: usize = 256;

impl<P: Port<UserMemory>, C: Clock> Engine<P, C> {
    /// Sends all of `memory`.
    #[inline]
    pub(crate) fn isend(
        &mut self,
        memory: UserMemory,
        to: Address,
        bits: u64,
        context: usize,
        mode: SendMode,
    ) -> Result<RequestHandle, Error> {
        let length = u32::try_from(memory.len()).map_err(|_| too_long(memory.len()))?;
        let peer = self.peer_of(to)?;
        let status = posted(to, bits, length, context);
        self.check_room()?;
        let key = self.add(Kind::Send, Owner::Program, status)?;
        if mode == SendMode::Standard
            && length as usize <= self.options.eager_max
            && let Some(request) = self.requests.get_mut(key)
        {
            request.eager = true;
        }
        let partner = self.peers.get(peer).and_then(|peer| peer.partner);
        match partner {
            // What waits for a connection to oneself is not overtaken, whoever else has made one.
            _ if peer == Peers::OWN && (partner.is_none() || self.to_self.connecting) => {
                self.send_to_self(key, memory, mode);
            }
            Some(partner) => self.send(key, partner, memory, bits, length, mode),
            None => self.finish(key, StatusCode::EndpointUnreachable, 0),
        }
        Ok(self.name(key))
    }

    #[inline]
    fn send(
        &mut self,
        key: RequestKey,
        partner: PartnerId,
        memory: UserMemory,
        bits: u64,
        length: u32,
        mode: SendMode,
    ) {
        let bits = MatchBits(bits);
        match self
            .endpoint
            .send(partner, bits, memory, to_word(key), mode)
        {
            Ok(Posted::Complete) => self.finish(key, StatusCode::Success, length),
            Ok(Posted::Pending(id)) => match self.copy_small(key, id, length) {
                true => {
                    self.finish(key, StatusCode::Success, length);
                    self.drain();
                }
                false => self.pending(key, id),
            },
            // The length has been checked, and a send has no mask.
            Err(_) => self.finish(key, StatusCode::EndpointUnreachable, 0),
        }
    }

    /// A small send is done without its receiver, even if it has to wait for room, a slow peer or
    /// one that has been stopped: programs send to each other, wait for that, and then receive.
    #[cold]
    fn copy_small(&mut self, key: RequestKey, id: mx_proto::RequestId, length: u32) -> bool {
        let small = self.requests.get(key).is_some_and(|request| request.eager);
        // A message without bytes takes up room, too.
        let weight = (length as usize).max(COPY_WEIGHT);
        if !small || self.copies + weight > COPIES_MAX {
            return false;
        }
        let copied = self.endpoint.buffer(id, COPIED, UserMemory::to_owned_copy);
        if copied {
            // It is out of the program's hands: whatever else is given up, this is not.
            self.endpoint.set_timeout_of(id, None);
            self.copies += weight;
        }
        copied
    }

    /// A copy is not needed any more.
    #[cold]
    pub(super) fn on_copy_sent(&mut self, length: u32, code: StatusCode) {
        self.copies = self
            .copies
            .saturating_sub((length as usize).max(COPY_WEIGHT));
        if !matches!(code, StatusCode::Success | StatusCode::Truncated) {
            log::debug!("a small message of {length} bytes was not delivered: {code:?}");
        }
    }

    #[inline]
    fn pending(&mut self, key: RequestKey, id: mx_proto::RequestId) {
        if let Some(request) = self.requests.get_mut(key) {
            request.stage = Stage::Pending(id);
        }
        // It may have ended meanwhile.
        self.drain();
    }

    #[cold]
    fn send_to_self(&mut self, key: RequestKey, memory: UserMemory, mode: SendMode) {
        self.to_self.waiting.push_back((key, memory, mode));
        if self.to_self.connecting {
            return;
        }
        let identity = self.identity();
        let target = Target {
            nic: identity.nic,
            endpoint: identity.endpoint,
            route: Route::AUTO,
        };
        let own_key = self.options.key;
        match self
            .endpoint
            .connect(target, own_key, MatchBits(0), TO_SELF)
        {
            Ok(_) => {
                self.to_self.connecting = true;
                self.drain();
            }
            Err(error) => self.fail_to_self(refusal(error)),
        }
    }

    /// The connect to oneself has ended.
    #[cold]
    pub(super) fn on_connected_to_self(&mut self, partner: PartnerId, code: StatusCode) {
        self.to_self.connecting = false;
        if code != StatusCode::Success {
            return self.fail_to_self(code);
        }
        self.peer_of_partner(partner);
        for (key, memory, mode) in std::mem::take(&mut self.to_self.waiting) {
            let Some(status) = self.requests.get(key).map(|request| request.status) else {
                continue;
            };
            let length = status.msg_length;
            self.send(key, partner, memory, status.match_info, length, mode);
        }
    }

    #[cold]
    pub(super) fn fail_to_self(&mut self, code: StatusCode) {
        for (key, memory, _) in std::mem::take(&mut self.to_self.waiting) {
            drop(memory);
            self.finish(key, code, 0);
        }
    }

    /// Receives the oldest message whose bits agree with `bits` where `mask` has ones.
    #[inline]
    pub(crate) fn irecv(
        &mut self,
        memory: UserMemory,
        bits: u64,
        mask: u64,
        context: usize,
    ) -> Result<RequestHandle, Error> {
        check_mask(bits, mask)?;
        if let Some(ids) = self.options.context_ids
            && mask & ids.field() != ids.field()
        {
            return Err(Error::new(
                Code::BadMatchingForContextIdMask,
                format!(
                    "the mask {mask:#x} does not cover the context id {:#x}",
                    ids.field()
                ),
            ));
        }
        let status = posted(Address::NOBODY, bits, 0, context);
        let (bits, mask) = (MatchBits(bits), MatchMask(mask));
        if let Err(refused) = self.check_room()
            && self.endpoint.probe(bits, mask).is_none()
        {
            return Err(refused);
        }
        let key = self.add(Kind::Recv, Owner::Program, status)?;
        match self.endpoint.recv(bits, mask, memory, to_word(key)) {
            Ok(Received::Pending(id)) => self.pending(key, id),
            Ok(Received::Complete(outcome)) => {
                self.on_completion(&outcome.at_once(to_word(key)));
                self.drain();
            }
            // The mask has been checked, and a receive has no length.
            Err(_) => self.finish(key, StatusCode::Aborted, 0),
        }
        Ok(self.name(key))
    }

    /// Starts talking to an endpoint. Hidden ones are reported to nobody but the call that waits for them.
    pub(crate) fn iconnect(
        &mut self,
        (nic, endpoint): (NicId, u32),
        key: u32,
        bits: u64,
        context: usize,
        hidden: bool,
    ) -> Result<RequestHandle, Error> {
        if nic > NicId::MAX {
            let what = format!("{:#x} is no NIC id: it has more than 48 bits", nic.0);
            return Err(Error::new(Code::NicNotFound, what));
        }
        let owner = match hidden {
            true => Owner::Hidden,
            false => Owner::Program,
        };
        let status = posted(Address::NOBODY, bits, 0, context);
        self.check_room()?;
        let request = self.add(Kind::Connect, owner, status)?;
        let target = Target {
            nic,
            endpoint: EndpointId(endpoint),
            route: Route::AUTO,
        };
        match self
            .endpoint
            .connect(target, key, MatchBits(bits), to_word(request))
        {
            Ok(id) => self.pending(request, id),
            Err(ConnectError::UnknownNic) => {
                self.requests.remove(request);
                let what = format!("nobody knows the NIC id {:#x}", nic.0);
                return Err(Error::new(Code::NicNotFound, what));
            }
            Err(error) => {
                log::debug!("connect to {:#x} endpoint {endpoint}: {error}", nic.0);
                self.finish(request, refusal(error), 0);
            }
        }
        Ok(self.name(request))
    }

    /// Calls a receive or a connect off. False: something has answered it, it has to be tested.
    /// Sends cannot be called off.
    pub(crate) fn cancel(&mut self, handle: RequestHandle) -> Result<bool, Error> {
        let (key, request) = self.find(handle)?;
        if request.kind == Kind::Send {
            return Err(Error::new(
                Code::CancelNotSupported,
                "sends cannot be cancelled",
            ));
        }
        Ok(self.call_off(key))
    }

    fn call_off(&mut self, key: RequestKey) -> bool {
        let Some(Stage::Pending(id)) = self.requests.get(key).map(|request| request.stage) else {
            return false;
        };
        let gone = self.endpoint.cancel_unmatched(id);
        if gone && let Some(request) = self.requests.remove(key) {
            self.tell_waiters(request.status.match_info);
        }
        self.drain();
        gone
    }

    /// Lets a request end without anybody being told, or throws away its end.
    pub(crate) fn forget(&mut self, handle: RequestHandle) -> Result<(), Error> {
        let (key, request) = self.find(handle)?;
        let match_info = request.status.match_info;
        match request.stage {
            Stage::Done(_) => {
                self.take(key);
            }
            _ => {
                if let Some(request) = self.requests.get_mut(key) {
                    request.owner = Owner::Nobody;
                }
            }
        }
        self.tell_waiters(match_info);
        Ok(())
    }

    /// A request has gone without having ended: another thread that waits for it has to look.
    fn tell_waiters(&mut self, match_info: u64) {
        self.produced |= self.class(match_info);
    }

    /// Gives up a hidden request. If it has ended meanwhile, this is how.
    pub(crate) fn abandon(&mut self, handle: RequestHandle) -> Option<Status> {
        let key = handle.key();
        if self.call_off(key) {
            return None;
        }
        if let Some(Stage::Done(_)) = self.requests.get(key).map(|request| request.stage) {
            return self.take(key);
        }
        if let Some(request) = self.requests.get_mut(key) {
            request.owner = Owner::Nobody;
        }
        None
    }

    /// Is there memory for one more request? A receive for a message that lies here needs none: it
    /// gives some back.
    #[inline]
    fn check_room(&mut self) -> Result<(), Error> {
        let waiting = self.requests.len().max(self.endpoint.requests());
        match self.room.admits(waiting) {
            true => Ok(()),
            false => Err(no_memory(waiting)),
        }
    }

    #[inline]
    fn add(&mut self, kind: Kind, owner: Owner, status: Status) -> Result<RequestKey, Error> {
        let stage = Stage::Posted;
        let request = Request {
            kind,
            owner,
            eager: false,
            stage,
            status,
        };
        self.requests.insert(request).ok_or_else(|| {
            let what = format!("{} requests are waiting to be tested", self.requests.len());
            Error::new(Code::NoResources, what)
        })
    }
}

#[cold]
fn no_memory(waiting: usize) -> Error {
    let what = format!("no memory for a request beside {waiting} others");
    Error::new(Code::NoResources, what)
}

#[cold]
fn too_long(len: usize) -> Error {
    let what = format!("a message of {len} bytes exceeds 4294967295");
    Error::new(Code::BadSegList, what)
}

/// The status of a connect that could not even be started.
fn refusal(error: ConnectError) -> StatusCode {
    match error {
        ConnectError::UnknownNic | ConnectError::NoRoute => StatusCode::EndpointUnreachable,
        ConnectError::BadEndpoint => StatusCode::BadEndpoint,
        ConnectError::Refused => StatusCode::EndpointClosed,
        ConnectError::NoResources => StatusCode::NoResources,
    }
}
