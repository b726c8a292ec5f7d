//! Channel: an endpoint with its receive and send buffers.
//!
//! ```text
//!   send   inject: copied by the provider, no completion        up to inject_max
//!          buffers: free --> waiting --fi_send--> sending --completion--> free
//!
//!   take   owed --fi_recv--> posted --completion--> arrived --hand_out--> lent --take_back--> owed
//! ```
//!
//! A batch is accepted whole or not at all. Datagrams that the provider does not accept at once stay in their buffers
//! until the next poll.
//!
//! Completions are checked: one counts only for a buffer that the provider holds, and only for as many bytes as fit.
//!
//! Owns: the endpoint and its buffers.
//! Out of scope: peers, except for the numbers of their places.

use super::FabricStats;
use super::choice::Plan;
use super::frame::{Frame, header};
use super::name::FabricAddress;
use super::peers::Peers;
use super::sockets::{self, Sockets};
use libfabric_sys::abi::{FI_RECV, FI_SEND};
use mx_port_fabric::RdmError;
use mx_port_fabric::{Buffers, Contexts, CqEvent, Domain, Done, Ep, FabricError, Prefix, Role};
use mx_proto::reliability::{DatagramError, GsoBatch};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::RawFd;

/// Alignment of buffers in bytes: a cache line, so that no two share one.
const ALIGN: usize = 64;

/// Number of buffers of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub receive: usize,
    pub send: usize,
}

/// An open channel. Closed before it is dropped; the domain closes in between.
pub(super) struct FabricChannel {
    /// Kernel sockets of the provider, if it has any; cleared before the endpoint closes.
    sockets: Sockets,
    /// `None` after closing.
    ep: Option<Ep>,
    buffers: Buffers,
    /// Bytes of each buffer.
    size: usize,
    contexts: Contexts,
    /// Number of receive buffers, which come first; the others send.
    receives: u32,
    with: Vec<With>,
    /// Receive buffers that the provider does not hold.
    owed: Vec<u32>,
    free: Vec<u32>,
    waiting: VecDeque<Waiting>,
    /// Received datagrams not yet handed out: buffer number and length.
    arrived: VecDeque<(u32, usize)>,
    /// Datagram handed out: its buffer number, and its range in the memory of all buffers.
    lent: Option<(u32, Range<usize>)>,
    events: Vec<CqEvent>,
    name: FabricAddress,
    header: Vec<u8>,
    prefix: Prefix,
    inject_max: usize,
    /// True if `FI_MORE` has an effect.
    batches: bool,
    scratch: Vec<u8>,
}

/// Holder of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum With {
    Us,
    /// The provider, to receive into it.
    Receive,
    /// The provider, to send it to the peer at this place.
    Send(u32),
}

/// Filled buffer that the provider has not accepted yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    number: u32,
    len: usize,
    peer: u32,
}

/// Result of passing waiting buffers to the provider.
enum Flushed {
    All,
    /// The provider accepts no more for now.
    Busy,
}

impl FabricChannel {
    /// Opens a channel, at `port` if its addresses have ports. Posts no buffer before the first
    /// [`FabricChannel::push`].
    pub(super) fn open(
        domain: &Domain,
        plan: &Plan,
        port: u16,
        depth: Depth,
    ) -> Result<Self, RdmError> {
        let terms = &plan.terms;
        let entries = depth.receive + depth.send;
        let ep = domain.endpoint(Role::Own { port, entries })?;
        let name = FabricAddress::new(ep.address()).ok_or_else(|| RdmError::Unfit {
            provider: terms.provider.clone(),
            why: format!("its address has {} bytes", ep.address().len()),
        })?;
        let size = plan.buffer_len().next_multiple_of(ALIGN);
        let access = plan.register.then_some(FI_SEND | FI_RECV);
        let buffers = Buffers::new((domain, &ep), size * entries, access)?;
        let receives = depth.receive as u32;
        Ok(Self {
            sockets: if plan.software {
                sockets::of(&name)
            } else {
                Sockets::new()
            },
            ep: Some(ep),
            buffers,
            size,
            contexts: Contexts::new(entries),
            receives,
            with: vec![With::Us; entries],
            owed: (0..receives).rev().collect(),
            free: (receives..entries as u32).rev().collect(),
            waiting: VecDeque::new(),
            arrived: VecDeque::new(),
            lent: None,
            events: Vec::new(),
            name,
            header: header(&name),
            prefix: terms.prefix,
            inject_max: terms.inject_max,
            batches: plan.batch_max > 1,
            scratch: vec![0; terms.prefix.send + terms.inject_max],
        })
    }

    /// Name of the endpoint.
    pub(super) fn name(&self) -> &FabricAddress {
        &self.name
    }

    /// Number of receive buffers.
    pub(super) fn receives(&self) -> usize {
        self.receives as usize
    }

    /// Returns the descriptor that becomes readable after an event, if the provider has one.
    pub(super) fn wait_fd(&self) -> Option<RawFd> {
        self.ep.as_ref()?.wait_fd()
    }

    /// Returns true if nothing is left to do and a wake-up is certain: by the descriptor, or by the poll timer if there
    /// is none.
    pub(super) fn may_sleep(&self) -> bool {
        let idle = self.arrived.is_empty() && self.waiting.is_empty();
        let fd = self.wait_fd().is_some();
        // `fi_trywait` may report that the descriptor is closed; `arm` finds out.
        idle && (!fd || self.ep.as_ref().is_some_and(Ep::may_sleep))
    }

    /// Ends all operations and the registration. The memory stays until the domain has closed too, because an endpoint
    /// that fails to close may still use it.
    pub(super) fn close(&mut self) {
        self.sockets.clear();
        if let Some(Err(code)) = self.ep.take().map(Ep::close) {
            log::debug!("dgram: the endpoint does not close at once (error {code})");
        }
        self.buffers.close_registration();
    }

    /// Sends a GSO batch to the peer at this place.
    pub(super) fn send(
        &mut self,
        (peers, peer): (&mut Peers, u32),
        batch: GsoBatch<'_>,
        stats: &mut FabricStats,
    ) -> Result<(), DatagramError> {
        let count = batch.bytes.len().div_ceil(batch.segment.max(1));
        let single = count == 1 && self.waiting.is_empty();
        if single && self.header.len() + batch.bytes.len() <= self.inject_max {
            return self.inject(peers.address(peer), batch.bytes, stats);
        }
        if self.free.len() < count || !self.waiting.is_empty() {
            self.collect(peers, count, stats);
            self.flush(peers, stats);
        }
        if self.free.len() < count || !self.waiting.is_empty() {
            return Err(DatagramError::WouldBlock);
        }
        for datagram in batch.bytes.chunks(batch.segment.max(1)) {
            // The check above ensures that there are enough.
            let Some(number) = self.free.pop() else { break };
            let frame = &mut self.buffers.bytes_mut()[at(self.size, number)];
            let Some(len) = write(frame, self.prefix.send, &self.header, datagram) else {
                self.free.push(number);
                continue;
            };
            self.waiting.push_back(Waiting { number, len, peer });
            peers.begun(peer);
        }
        let failed = stats.send_errors;
        let whole = self.waiting.len();
        match self.flush(peers, stats) {
            // The provider accepted none of the batch, so all of it is withdrawn.
            Flushed::Busy if self.waiting.len() == whole => {
                for Waiting { number, peer, .. } in self.waiting.drain(..) {
                    self.free.push(number);
                    peers.ended(peer);
                }
                Err(DatagramError::WouldBlock)
            }
            _ if count == 1 && stats.send_errors > failed => Err(DatagramError::Unreachable),
            _ => Ok(()),
        }
    }

    fn inject(
        &mut self,
        address: u64,
        datagram: &[u8],
        stats: &mut FabricStats,
    ) -> Result<(), DatagramError> {
        let len = write(&mut self.scratch, self.prefix.send, &self.header, datagram);
        let (Some(len), Some(ep)) = (len, &self.ep) else {
            return Err(DatagramError::Unreachable);
        };
        match ep.inject(&self.scratch[..len], address) {
            Ok(()) => {
                stats.sent += 1;
                stats.injected += 1;
                Ok(())
            }
            Err(libc::EAGAIN) => Err(DatagramError::WouldBlock),
            Err(code) => {
                stats.send_errors += 1;
                log::trace!("dgram: fi_inject of {len} bytes: error {code}");
                Err(DatagramError::Unreachable)
            }
        }
    }

    /// Passes waiting buffers to the provider, as many as it accepts.
    fn flush(&mut self, peers: &mut Peers, stats: &mut FabricStats) -> Flushed {
        let Some(ep) = &self.ep else {
            return Flushed::Busy;
        };
        while let Some(&Waiting { number, len, peer }) = self.waiting.front() {
            let more = self.batches && self.waiting.len() > 1;
            let start = self.buffers.bytes()[at(self.size, number)].as_ptr();
            let desc = self.buffers.desc();
            let context = self.contexts.at(number as usize);
            let to = peers.address(peer);
            // SAFETY: the buffer is not touched before the completion; it and its context outlive the endpoint.
            let sent = unsafe { ep.send((start, len), desc, to, context, more) };
            match sent {
                Ok(()) => {
                    self.with[number as usize] = With::Send(peer);
                    stats.sent += 1;
                }
                Err(libc::EAGAIN) => return Flushed::Busy,
                // The provider does not know the flag; send without it.
                Err(code) if more && is_about_flags(code) => {
                    log::debug!("dgram: FI_MORE is not known (error {code})");
                    self.batches = false;
                    continue;
                }
                Err(code) => {
                    stats.send_errors += 1;
                    log::trace!("dgram: fi_send of {len} bytes: error {code}");
                    self.free.push(number);
                    peers.ended(peer);
                }
            }
            self.waiting.pop_front();
        }
        Flushed::All
    }

    /// Posts every receive buffer that the provider does not hold.
    fn post(&mut self) -> Result<(), i32> {
        let Some(ep) = &self.ep else { return Ok(()) };
        let (size, desc) = (self.size, self.buffers.desc());
        while let Some(&number) = self.owed.last() {
            let start = self.buffers.bytes_mut()[at(size, number)].as_mut_ptr();
            let context = self.contexts.at(number as usize);
            // SAFETY: the buffer is not touched before the completion; it and its context outlive the endpoint.
            match unsafe { ep.receive(start, size, desc, false, context) } {
                Ok(()) => self.with[number as usize] = With::Receive,
                Err(libc::EAGAIN) => break,
                Err(code) => return Err(code),
            }
            self.owed.pop();
        }
        Ok(())
    }

    /// Passes waiting sends and unposted receive buffers to the provider.
    pub(super) fn push(
        &mut self,
        domain: &Domain,
        peers: &mut Peers,
        stats: &mut FabricStats,
    ) -> Result<(), FabricError> {
        if !self.waiting.is_empty() {
            self.flush(peers, stats);
        }
        if self.owed.is_empty() {
            Ok(())
        } else {
            self.post().map_err(|code| domain.error("fi_recv", code))
        }
    }

    /// Reads up to `most` completions and returns their number. An error means that the queue is broken; the next poll
    /// reports it.
    fn collect(&mut self, peers: &mut Peers, most: usize, stats: &mut FabricStats) -> usize {
        self.read(peers, most, stats).unwrap_or(0)
    }

    /// Reads up to `most` completions and returns their number, or the queue's error.
    pub(super) fn read(
        &mut self,
        peers: &mut Peers,
        most: usize,
        stats: &mut FabricStats,
    ) -> Result<usize, FabricError> {
        let Some(ep) = &self.ep else { return Ok(0) };
        let mut events = std::mem::take(&mut self.events);
        let read = ep.events(&mut events, most);
        for event in events.drain(..) {
            self.ended(event, peers, stats);
        }
        self.events = events;
        read
    }

    /// Handles a completion.
    fn ended(&mut self, event: CqEvent, peers: &mut Peers, stats: &mut FabricStats) {
        // Failed injections have no context, nor do some packets that providers send themselves.
        let with = self
            .contexts
            .number(event.context)
            .and_then(|number| Some((number as u32, self.with.get_mut(number)?)));
        let Some((number, with)) = with else {
            stats.strays += 1;
            return;
        };
        match (std::mem::replace(with, With::Us), event.outcome) {
            (With::Us, _) => stats.strays += 1,
            (With::Receive, Ok(Done { len, .. })) if len <= self.size => {
                self.arrived.push_back((number, len));
            }
            (With::Receive, _) => {
                stats.receive_errors += 1;
                self.owed.push(number);
            }
            (With::Send(peer), outcome) => {
                stats.send_errors += u64::from(outcome.is_err());
                self.free.push(number);
                peers.ended(peer);
            }
        }
    }

    /// Lends the oldest received datagram; `read` gets the sender's name as received. `None` if none is left.
    pub(super) fn hand_out<T>(
        &mut self,
        stats: &mut FabricStats,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        while let Some((number, len)) = self.arrived.pop_front() {
            let place = at(self.size, number);
            let frame = &self.buffers.bytes()[place.clone()];
            let frame = frame.get(self.prefix.receive..len);
            match Frame::parse(frame.unwrap_or(&[])) {
                Frame::Datagram(name, datagram) => {
                    stats.received += 1;
                    let end = place.start + len;
                    self.lent = Some((number, end - datagram.len()..end));
                    return Some(read(name));
                }
                Frame::Foreign => stats.foreign += 1,
                Frame::Damaged => stats.damaged += 1,
            }
            self.owed.push(number);
        }
        None
    }

    /// Returns the datagram that is lent.
    pub(super) fn bytes(&self) -> &[u8] {
        let place = self.lent.as_ref().map_or(0..0, |(_, place)| place.clone());
        &self.buffers.bytes()[place]
    }

    /// Takes back the datagram that is lent; its buffer can be posted again.
    pub(super) fn take_back(&mut self) {
        self.owed.extend(self.lent.take().map(|(number, _)| number));
    }
}

/// Returns the range of a buffer of `size` bytes.
fn at(size: usize, number: u32) -> Range<usize> {
    let start = number as usize * size;
    start..start + size
}

/// Writes a frame and returns its length; `None` if it does not fit.
fn write(to: &mut [u8], prefix: usize, header: &[u8], datagram: &[u8]) -> Option<usize> {
    let body = prefix + header.len();
    let len = body + datagram.len();
    let frame = to.get_mut(..len)?;
    frame[prefix..body].copy_from_slice(header);
    frame[body..].copy_from_slice(datagram);
    Some(len)
}

/// Returns true for the errors with which providers answer unknown flags.
fn is_about_flags(code: i32) -> bool {
    use libfabric_sys::abi::{FI_EBADFLAGS, FI_EINVAL, FI_ENOSYS, FI_EOPNOTSUPP};
    matches!(code, FI_EBADFLAGS | FI_EINVAL | FI_ENOSYS | FI_EOPNOTSUPP)
}
