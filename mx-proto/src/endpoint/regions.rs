//! Gets and puts: access to registered memory of peers.
//!
//! ```text
//!   get: a receive whose Pulls name a region                 put: an offer whose target is a region
//!
//!   Pulling --Get: key, offset ------> Lending               Offered --Put: key, offset ------> Pulling
//!     | <------------- Data ... Data ----' Done              Serving <---------------- Pull ------'
//!     |                                                        | ------------- Data ... Data ---> Done
//!   complete with its last byte                             complete <----------------- Notify ------'
//!
//!   rejected, or deregistered meanwhile: <--- Notify with the reason, for both
//! ```
//!
//! Everything between these packets is the rendezvous of large messages: parts, data links, data packets, cancellation.
//! The target's operations are internal: its owner is not told of them. They end with the region, before
//! [`Endpoint::deregister`] returns, and with the peer.
//!
//! Owns: nothing; regions are in `regions`, gets and puts in the records of operations.
//! Cost: an operation at the target for each part of a get, and for each put.

use super::{Endpoint, PostError, SendPosted};
use crate::config::NetworkId;
use crate::ids::{LinkId, MatchBits, RemoteId, RequestId};
use crate::log_limit::LogLimit;
use crate::memory::Memory;
use crate::ops::{Fetch, ListKind, Part, Pulling, REGION, State};
use crate::owner::{Owner, Posting};
use crate::port::Port;
use crate::queues::Stream;
use crate::regions::{Access, RegionKey, Rights, SERVED_MAX, Transfer};
use crate::remote::{COMMAND_LINK, Remote};
use crate::status::{Status, Violation};
use crate::time::Clock;
use crate::timeouts::TimeOuts;
use crate::unexpected::OfferTarget;
use crate::wire::{self, GetBody, Header, PutBody};
use smallvec::SmallVec;

/// Logged refusals, by peer, reason, and whether this side refused.
pub(super) type Refusals = LogLimit<(RemoteId, Status, bool)>;

/// Registration, and the side that gets or puts.
impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Registers memory for access by all peers that know the returned key, as far as `rights` allow, until it is
    /// [deregistered](Self::deregister). Peers need no call of this side for it but [`Self::progress`]. Needs
    /// [`Config::regions`](crate::Config::regions).
    pub fn register(&mut self, memory: O::Memory, rights: Rights) -> RegionKey {
        debug_assert!(self.config.regions, "no peer is offered the region");
        self.regions.add(&self.config.key.0, memory, rights)
    }

    /// Deregisters a region. When this returns, no peer reads or writes its memory any more, which can be reused;
    /// accesses in progress end with an error for the peer. Returns false if there is no such region.
    pub fn deregister(&mut self, key: RegionKey) -> bool {
        while let Some(list) = self.regions.accesses(key)
            && let Some(op) = self.ops.first(list)
        {
            self.refuse_served(op, Status::NoRegion);
        }
        let known = self.regions.remove(key);
        if self.has_work() {
            self.flush();
        }
        known
    }

    /// Returns the number of registered regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Returns the number of peers' accesses to registered memory that are in progress.
    pub fn accesses(&self) -> usize {
        self.regions.in_use()
    }

    /// Posts a get: reads from a region of a remote, from `offset` on, until `what`'s memory is full. Completes like a
    /// receive, once all bytes have arrived; a refusal by the peer is its status. A get of no bytes is complete at
    /// once.
    pub fn get(
        &mut self,
        from: RemoteId,
        (key, offset): (RegionKey, u64),
        what: impl Posting<O>,
    ) -> Result<SendPosted, PostError> {
        let begins = |memory: O::Memory| {
            let length = u32::try_from(memory.len()).unwrap_or(u32::MAX);
            State::Pulling(Pulling::new(
                memory,
                (REGION, None),
                MatchBits(0),
                length,
                None,
            ))
        };
        self.transfer_new(from, (key, offset), what, begins)
    }

    /// Posts a put: writes all of `what`'s memory into a region of a remote, from `offset` on. Completes like a send,
    /// once the bytes have been written; a refusal by the peer is its status. A put of no bytes is complete at once.
    pub fn put(
        &mut self,
        to: RemoteId,
        (key, offset): (RegionKey, u64),
        what: impl Posting<O>,
    ) -> Result<SendPosted, PostError> {
        let registered = None;
        let begins = |memory| State::Offered { memory, registered };
        self.transfer_new(to, (key, offset), what, begins)
    }

    fn transfer_new(
        &mut self,
        with: RemoteId,
        (key, offset): (RegionKey, u64),
        mut what: impl Posting<O>,
        begins: impl FnOnce(O::Memory) -> State<O::Memory>,
    ) -> Result<SendPosted, PostError> {
        let len = what.memory().len();
        let remote = self.remotes.living(with).ok_or(PostError::UnknownRemote)?;
        if u32::try_from(len).is_err() {
            return Err(PostError::TooLarge(len));
        }
        if !self.config.regions || remote.connected().is_some_and(|met| !met.regions) {
            return Err(PostError::NoRegions);
        }
        if len == 0 {
            return Ok(SendPosted::Complete);
        }
        let op = self.begin(with, MatchBits(0), what, begins);
        let op = op.ok_or(PostError::TooMany)?;
        if let Some(remote) = self.remotes.of_mut(with) {
            let transfers = remote.transfers.get_or_insert_default();
            transfers.wait(Transfer { op, key, offset });
        }
        let now = self.clock.now();
        self.monitor(with, now);
        self.begin_transfers(with);
        self.flush();
        Ok(SendPosted::Pending(op))
    }

    /// Starts the gets and puts of a connected remote whose turn it is.
    pub(super) fn begin_transfers(&mut self, with: RemoteId) {
        let Some(regions) = self.remotes.connected(with).map(|met| met.regions) else {
            return;
        };
        while let Some(transfers) = self.transfers(with)
            && regions
            && let Some(next) = transfers.next()
        {
            // A transfer that waits for its turn has no time-out.
            let now = self.clock.now();
            self.start_timer(next.op, now);
            match self.ops.get(next.op).map(|record| &record.state) {
                Some(State::Pulling(_)) => self.continue_pull(next.op),
                Some(state) => {
                    let length = state.room();
                    let put = PutBody {
                        send_id: next.op.to_word(),
                        offset: next.offset,
                    };
                    let header = Header::new(wire::Kind::Put, next.key.0, length);
                    self.push_control(with, header, &put.emit());
                    self.want_data_link(with, length.into());
                }
                None => {}
            }
        }
        if !regions && let Some(transfers) = self.transfers(with) {
            for transfer in transfers.take_waiting() {
                self.complete(transfer.op, Status::Unsupported, 0);
            }
        }
    }

    fn transfers(&mut self, with: RemoteId) -> Option<&mut crate::regions::Transfers> {
        self.remotes.of_mut(with)?.transfers.as_deref_mut()
    }

    /// Returns the get that this operation is; `None` if it is no get that has been started.
    pub(super) fn transfer(&self, with: RemoteId, op: RequestId) -> Option<Transfer> {
        let transfers = self.remotes.of(with)?.transfers.as_deref()?;
        transfers.asked(op)
    }

    pub(super) fn ask_region(&mut self, from: RemoteId, get: Transfer, part: &Part) {
        let record = self.ops.get(get.op);
        let body = GetBody {
            recv_id: get.op.to_word(),
            len: part.end - part.at,
            link: part.link,
            offset: get.offset,
            whole: record.map_or(0, |record| record.state.room()),
        };
        let mut header = Header::new(wire::Kind::Get, get.key.0, part.at);
        header.aux = part.attempt;
        self.push_control(from, header, &body.emit());
    }

    /// Counts and logs that a remote refused an access.
    pub(super) fn note_refusal(&mut self, by: RemoteId, status: Status) {
        if is_refusal(status) {
            self.stats.refused_accesses += 1;
            self.log_refused_access(by, status, false);
        }
    }

    fn log_refused_access(&mut self, with: RemoteId, status: Status, ours: bool) {
        let Some(times) = self.refused_accesses.again((with, status, ours)) else {
            return;
        };
        let Some(remote) = self.remotes.of(with) else {
            return;
        };
        let peer = (self.config.name_of)(NetworkId::Nic(remote.name.0));
        let endpoint = remote.name.1.0;
        if ours {
            log::warn!(
                "{peer} endpoint {endpoint} asked for memory that it may not reach: {status:?} (refusal {times})"
            );
        } else {
            log::warn!(
                "{peer} endpoint {endpoint} refused an access to its memory: {status:?} (refusal {times})"
            );
        }
    }
}

/// The side whose memory is accessed.
impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Handles a Get: a peer reads a part of a region.
    pub(super) fn on_get(&mut self, link: LinkId, from: RemoteId, header: &Header, body: &[u8]) {
        let Some(get) = GetBody::parse(body).filter(|_| self.offers_regions(from)) else {
            return self.violation(link, Violation::Access);
        };
        let (at, key) = (header.length, RegionKey(header.word));
        let end = at.checked_add(get.len).filter(|end| *end <= get.whole);
        let Some(end) = end.filter(|end| *end > at) else {
            return self.refuse_access(from, get.recv_id, Status::OutOfRange);
        };
        // A new part replaces the earlier parts that it overlaps.
        self.end_lent(from, get.recv_id, |other| at < other.1 && other.0 < end);
        let range = (get.offset, get.whole.into());
        let memory = self.serve(from, key, Access::Get, range);
        let begun = memory.and_then(|memory| {
            let lending = State::Lending {
                memory,
                region: key,
                recv_id: get.recv_id,
                part: (at, end),
            };
            self.begin_served(from, key, lending)
        });
        let op = match begun {
            Ok(op) => op,
            Err(status) => return self.refuse_access(from, get.recv_id, status),
        };
        let Some(remote) = self.remotes.of_mut(from) else {
            return;
        };
        let is_there = remote
            .connected()
            .is_some_and(|met| met.link(get.link).is_some());
        let part = Stream {
            request: op,
            recv_id: get.recv_id,
            attempt: header.aux,
            link: if is_there { get.link } else { COMMAND_LINK },
            at: at as usize,
            end: end as usize,
            length: get.whole as usize,
            passed: 0,
        };
        self.spares
            .get_or_alloc(&mut remote.queues)
            .add_stream(part);
        self.want_data_link(from, get.whole.into());
        self.make_ready(from);
    }

    /// Handles a Put: a peer writes into a region, and its bytes are pulled into it.
    pub(super) fn on_put(&mut self, link: LinkId, from: RemoteId, header: &Header, body: &[u8]) {
        let Some(put) = PutBody::parse(body).filter(|_| self.offers_regions(from)) else {
            return self.violation(link, Violation::Access);
        };
        let (length, key) = (header.length, RegionKey(header.word));
        let memory = self.serve(from, key, Access::Put, (put.offset, length.into()));
        let begun = memory.and_then(|memory| {
            let mut pulling =
                Pulling::new(memory, (put.send_id, None), MatchBits(key.0), length, None);
            pulling.fetch = Some(Fetch::ACCESS);
            self.begin_served(from, key, State::Pulling(pulling))
        });
        match begun {
            Ok(op) => {
                let name = (from, put.send_id);
                self.unexpected.names.insert(name, OfferTarget::Pull(op));
                self.continue_pull(op);
            }
            Err(status) => self.refuse_access(from, put.send_id, status),
        }
    }

    fn offers_regions(&self, to: RemoteId) -> bool {
        self.remotes.connected(to).is_some_and(|met| met.regions)
    }

    /// Returns the memory that a peer may access, or the reason for refusing.
    fn serve(
        &self,
        from: RemoteId,
        key: RegionKey,
        access: Access,
        range: (u64, u64),
    ) -> Result<O::Memory, Status> {
        let remote = self.remotes.of(from);
        let transfers = remote.and_then(|remote| remote.transfers.as_deref());
        if transfers.is_some_and(|all| all.served().len() >= SERVED_MAX)
            || self.config.supply.is_critical()
        {
            return Err(Status::NoResources);
        }
        self.regions.part(key, access, range)
    }

    /// Begins the internal operation of an access to a part of a region.
    fn begin_served(
        &mut self,
        from: RemoteId,
        key: RegionKey,
        state: State<O::Memory>,
    ) -> Result<RequestId, Status> {
        let op = self
            .ops
            .add(O::OpData::default(), MatchBits(0), TimeOuts::NONE, state);
        let op = op.ok_or(Status::NoResources)?;
        self.attach_op(op, from);
        if let Some(list) = self.regions.accesses(key) {
            self.ops.join(ListKind::State, list, op.index());
        }
        if let Some(remote) = self.remotes.of_mut(from) {
            remote.transfers.get_or_insert_default().serve(op);
        }
        self.stats.accesses += 1;
        let now = self.clock.now();
        self.monitor(from, now);
        Ok(op)
    }

    /// Tells a peer that its get or put with this id has failed.
    fn refuse_access(&mut self, from: RemoteId, id: u64, status: Status) {
        self.stats.accesses_refused += 1;
        self.log_refused_access(from, status, true);
        let mut header = Header::new(wire::Kind::Notify, id, 0);
        header.aux = super::rendezvous::notify_code(status);
        self.push_farewell(from, header);
    }

    fn refuse_served(&mut self, op: RequestId, status: Status) {
        let Some(record) = self.ops.get(op) else {
            return;
        };
        let (from, id) = match &record.state {
            State::Lending { recv_id, .. } => (record.remote, *recv_id),
            State::Pulling(pulling) => (record.remote, pulling.send_id),
            _ => return,
        };
        self.complete(op, status, 0);
        self.refuse_access(from, id, status);
    }

    /// Completes the operation of a part that a peer reads, if its last bytes have been sent.
    pub(super) fn end_if_lent(&mut self, to: RemoteId, op: RequestId) {
        let state = self.ops.get(op).map(|record| &record.state);
        if !matches!(state, Some(State::Lending { .. })) {
            return;
        }
        let queues = self.remotes.of(to).and_then(Remote::queues);
        if queues.is_none_or(|queues| !queues.carries(op)) {
            self.complete(op, Status::Success, 0);
        }
    }

    /// Handles the cancellation of a peer's get.
    pub(super) fn on_withdrawn_get(&mut self, from: RemoteId, id: u64) {
        self.end_lent(from, id, |_| true);
    }

    /// Ends those parts of a peer's get for which `ends` returns true.
    fn end_lent(&mut self, from: RemoteId, id: u64, ends: impl Fn((u32, u32)) -> bool) {
        let Some(transfers) = self.transfers(from) else {
            return;
        };
        let served: SmallVec<[RequestId; 8]> = transfers.served().into();
        for op in served {
            if let Some(State::Lending { recv_id, part, .. }) =
                self.ops.get(op).map(|record| &record.state)
                && *recv_id == id
                && ends(*part)
            {
                self.complete(op, Status::Cancelled, 0);
            }
        }
    }

    pub(super) fn end_access(&mut self, op: RequestId) {
        let Some(record) = self.ops.get(op) else {
            return;
        };
        let key = match &record.state {
            State::Lending { region, .. } => *region,
            State::Pulling(pulling) => RegionKey(pulling.bits.0),
            _ => return,
        };
        let from = record.remote;
        if let Some(list) = self.regions.accesses(key) {
            self.ops.leave(ListKind::State, list, op.index());
        }
        if let Some(transfers) = self.transfers(from) {
            transfers.end_served(op);
        }
        let rests = self.release(op);
        if let Some(memory) = self.ops.finish_keeping(op) {
            for (link, rest) in rests {
                self.port.detach(link, &memory, rest.at, rest.end - rest.at);
            }
        }
        self.ops.free(op);
    }
}

/// Returns whether a status means that an access was refused.
fn is_refusal(status: Status) -> bool {
    matches!(
        status,
        Status::NoRegion | Status::OutOfRange | Status::NotAllowed | Status::NoResources
    )
}
