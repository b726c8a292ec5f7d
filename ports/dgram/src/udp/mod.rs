//! Datagrams over kernel UDP: two sockets, batches sent with GSO and received with GRO.
//!
//! ```text
//!   command socket   the endpoint's number, as its TCP port   every poll, first
//!   connected socket sends tiny datagrams to the current peer (`connected`)
//!   data socket      a port chosen by the kernel              every poll while datagrams arrive,
//!                                                             every 8th otherwise
//!
//!   data name:  'U' and that port      the peer combines it with the address it knows us by
//!
//!   begin ------> Command --> Data, if it is read --> Failures --> End      a read fills buffers, and
//!   begin_data -------------> Data -----------------------------> End      next returns one at a time
//! ```
//!
//! The command socket has its own queue in the kernel, so that acknowledgements neither wait behind a window of data
//! nor get lost with it. Reading an empty socket costs a system call, which an exchange of tiny messages must not pay
//! twice.
//!
//! Owns: the sockets and receive buffers.
//! Out of scope: the contents of datagrams, sessions.
//! Cost: a tiny datagram is one `sendto` here and one `recvmsg` there; a batch of up to 64 KiB is one system call on
//! either side. No allocation.

mod address;
mod connected;
mod control;
mod local_address;
mod socket;
mod sys;

pub use address::Address;

use super::DgramOptions;
use connected::ConnectedSocket;
use control::{Arrival, Failure};
use local_address::LocalAddresses;
use mx_port_base::Resolver;
use mx_port_base::clock::MonotonicClock;
use mx_port_base::epoll::Epoll;
use mx_port_base::interfaces::Interfaces;
use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{
    Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming, Received,
};
use mx_proto::{Clock, Instant, Target};
use quinn_udp::RecvMeta;
use smallvec::SmallVec;
use socket::{Opening, Socket};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::ops::Range;

/// Largest datagram of the command channel, in bytes: a full acknowledgement, a tiny segment, or anything sent before
/// the data channel is proven.
const COMMAND_MAX: usize = 2048;

/// Largest UDP payload over IPv4, in bytes. Over IPv6 the kernel reports datagrams that are too large.
const DATA_MAX: usize = 65_507;

/// Largest batch in bytes: fits with the headers of IPv6, so one limit serves both families.
const GSO_BATCH_BYTES: usize = 65_535 - 48;

/// Datagrams in a batch without GSO: a compromise between the number of calls and the loss if the socket's buffer fills
/// up halfway.
const BATCH_WITHOUT_GSO: usize = 8;

/// Size in bytes of a receive buffer, which holds whatever GRO joins: no datagram is truncated.
const BUFFER: usize = 64 << 10;

/// Buffers of one read of either socket. Most commands need little of a buffer. Four full ones fit a second-level cache.
const COMMAND_BATCH: usize = 8;
const DATA_BATCH: usize = 4;

/// Successful reads in a row after which the next read asks for many datagrams, which costs more than asking for one.
const STREAK: u32 = 2;

/// Reads of the command socket per poll after recent arrivals.
const LOOKS: u32 = 4;

/// Empty reads in a row after which the data socket is read only in ...
const ACTIVE_LOOKS: u32 = 64;
/// ... each 8th poll: every few microseconds.
const DATA_EVERY: u32 = 8;

/// Receive buffer of the command socket, in bytes: holds the acknowledgements of a thousand peers.
const COMMAND_BUFFER: usize = 1 << 20;

/// First byte of a data name.
const NAME_TAG: u8 = b'U';
const NAME_LEN: usize = 3;

const MEMBER_COMMAND: u8 = 0;
const MEMBER_DATA: u8 = 1;

/// Datagram service over two kernel UDP sockets, for commands and for data.
pub struct UdpDatagrams {
    command: Socket,
    data: Socket,
    name: [u8; NAME_LEN],
    /// Only address of this machine to use; `None`: all of them.
    bound: Option<IpAddr>,
    resolver: Resolver,
    is_here: fn(IpAddr) -> bool,
    express: ConnectedSocket,
    spoken: LocalAddresses,
    nest: Epoll,
    look: Look,
    poll: Poll,
    /// Receive buffers, which the sockets use in turn. Memory for the largest batches is untouched until they arrive.
    buffers: Box<[u8]>,
    metas: Box<[RecvMeta]>,
}

/// Decision which sockets to read.
#[derive(Clone, Copy, Debug)]
struct Look {
    polls: u32,
    /// Successful reads of the command socket in a row.
    streak: u32,
    /// Empty polls of the command socket in a row.
    quiet: u32,
    /// Empty reads of the data socket in a row.
    idle: u32,
    /// True after a thread slept: the next poll reads all sockets.
    everywhere: bool,
}

/// Position within a poll.
#[derive(Debug)]
struct Poll {
    stage: Stage,
    /// Approximate number of datagrams that may still be read on the stage's channel.
    left: usize,
    /// Buffers of that channel that have been filled.
    buffers: usize,
    /// Buffers filled by the last read that have not been handed out.
    filled: Range<usize>,
    /// Location of the datagrams handed out last.
    given: Range<usize>,
    /// Budget of the data channel, in datagrams; `None`: not read in this poll.
    data_room: Option<usize>,
    /// True if only the data channel is polled.
    data_alone: bool,
    /// True after a thread slept: all sockets are read.
    everywhere: bool,
    any: bool,
    drained: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Command,
    Data,
    Failures,
    End,
}

impl Poll {
    fn new(stage: Stage, left: usize) -> Self {
        Self {
            stage,
            left,
            buffers: 0,
            filled: 0..0,
            given: 0..0,
            data_room: None,
            data_alone: false,
            everywhere: false,
            any: false,
            drained: false,
        }
    }
}

impl UdpDatagrams {
    /// Opens the command socket on `options.port` (0: any free port) and the data socket on any free port. Fails with
    /// `AddrInUse` if `options.port` is taken, otherwise with the kernel's error.
    pub fn open(options: &DgramOptions, resolver: Resolver) -> io::Result<Self> {
        let tells = options.bind.is_none() && local_address::has_choice(&Interfaces::now());
        Self::open_telling(options, resolver, tells)
    }

    /// Opens the sockets; `tells`: peers are answered from the address they send to, whatever the route's source is.
    fn open_telling(options: &DgramOptions, resolver: Resolver, tells: bool) -> io::Result<Self> {
        let opening = Opening {
            ip: options.bind,
            port: options.port,
            receive_buffer: COMMAND_BUFFER,
            tells,
        };
        let command = Socket::open(opening)?;
        let data = Socket::open(Opening {
            port: 0,
            receive_buffer: options.receive_buffer,
            ..opening
        })?;
        if data.receive_buffer() < options.receive_buffer {
            log::info!(
                "udp: the receive buffer is {} instead of {} bytes (net.core.rmem_max)",
                data.receive_buffer(),
                options.receive_buffer
            );
        }
        let [low, high] = data.port().to_le_bytes();
        let nest = Epoll::new()?;
        nest.join(MEMBER_COMMAND, Some(command.raw()))?;
        nest.join(MEMBER_DATA, Some(data.raw()))?;
        Ok(Self {
            command,
            data,
            name: [NAME_TAG, low, high],
            bound: options.bind.filter(|ip| !ip.is_unspecified()),
            resolver,
            is_here: options.is_here,
            express: ConnectedSocket::new(options.bind.filter(|ip| !ip.is_unspecified())),
            spoken: LocalAddresses::default(),
            nest,
            look: Look {
                polls: 0,
                streak: 0,
                quiet: ACTIVE_LOOKS,
                idle: ACTIVE_LOOKS,
                everywhere: true,
            },
            poll: Poll::new(Stage::End, 0),
            buffers: vec![0; COMMAND_BATCH * BUFFER].into_boxed_slice(),
            metas: vec![RecvMeta::default(); COMMAND_BATCH].into_boxed_slice(),
        })
    }

    /// Follows a change of interfaces: if the machine now has several addresses, peers are answered from the address
    /// that they send to. Does nothing if the service is bound to one address.
    pub fn follow(&mut self, interfaces: &Interfaces) {
        if self.bound.is_none() && local_address::has_choice(interfaces) {
            self.command.tell_addresses();
            self.data.tell_addresses();
        }
    }

    /// Checks which of the local addresses that peers send to are lost for good; from then on such a peer's address
    /// counts as cut off ([`DatagramPort::is_cut_off`]).
    pub fn look_again(&mut self) {
        self.spoken.look_again();
    }

    /// Returns the port number of the command socket.
    pub fn local_port(&self) -> u16 {
        self.command.port()
    }

    fn socket(&mut self, channel: Channel) -> &mut Socket {
        match channel {
            Channel::Command => &mut self.command,
            Channel::Data => &mut self.data,
        }
    }

    fn reaches(&self, address: Address) -> bool {
        match self.bound {
            Some(bound) => bound.is_ipv4() == address.ip().is_ipv4(),
            None => self.command.carries_both() || address.ip().is_ipv4(),
        }
    }

    /// Returns the next network error to report.
    #[cold]
    fn next_failure(&mut self) -> Option<Incoming<Address>> {
        let sockets = [&mut self.command, &mut self.data];
        sockets
            .into_iter()
            .find_map(|socket| std::iter::from_fn(|| socket.next_failure()).find_map(told))
    }

    /// Receives into one buffer on the command channel. Tries again at once during an exchange, which costs less than
    /// another poll.
    #[inline]
    fn look_for_one(&mut self) -> Option<Arrival> {
        let looks = match self.look.quiet {
            ..ACTIVE_LOOKS => LOOKS,
            _ => 1,
        };
        (0..looks).find_map(|_| self.command.receive_one(&mut self.buffers[..BUFFER]))
    }

    /// Takes what one buffer receives on the command channel, and ends its stage.
    #[inline]
    fn take_one(&mut self) -> Option<Incoming<Address>> {
        let one = self.look_for_one();
        if one.is_some() {
            self.look.streak += 1;
            self.look.quiet = 0;
            self.poll.any = true;
        } else {
            self.look.streak = 0;
            self.look.quiet = self.look.quiet.saturating_add(1);
        }
        let given = one.and_then(|arrival| self.give(Channel::Command, 0, arrival));
        self.end_command();
        given
    }

    /// Reads many buffers of the command channel in one call.
    fn read_command(&mut self) {
        let batch = self.poll.left.min(COMMAND_BATCH);
        let metas = &mut self.metas[..batch];
        let got = receive_batch(&mut self.command, &mut self.buffers, metas);
        self.note_read(got, batch);
        if self.poll.buffers == 0 {
            self.look.streak = 0;
        }
    }

    /// Reads many buffers of the data channel in one call.
    #[inline]
    fn read_data(&mut self) {
        let batch = self.poll.left.min(DATA_BATCH);
        let metas = &mut self.metas[..batch];
        let got = receive_batch(&mut self.data, &mut self.buffers, metas);
        self.note_read(got, batch);
        self.poll.drained = got < batch;
    }

    /// Records that a read has filled `got` of `batch` buffers. A partial read was the channel's last.
    #[inline]
    fn note_read(&mut self, got: usize, batch: usize) {
        let poll = &mut self.poll;
        poll.filled = 0..got;
        poll.buffers += got;
        poll.any |= got > 0;
        if got < batch {
            poll.left = 0;
        }
    }

    /// Returns the datagrams of the next filled buffer.
    #[inline]
    fn next_filled(&mut self) -> Option<Incoming<Address>> {
        while let Some(nth) = self.poll.filled.next() {
            let channel = match self.poll.stage {
                Stage::Command => Channel::Command,
                _ => Channel::Data,
            };
            let RecvMeta {
                addr,
                stride,
                len,
                dst_ip,
                ..
            } = self.metas[nth];
            let arrival = Arrival {
                len,
                segment: stride,
                from: Address::new(addr),
                at: dst_ip.map(|ip| ip.to_canonical()),
            };
            let given = self.give(channel, nth, arrival);
            if given.is_some() {
                return given;
            }
        }
        None
    }

    /// Hands out the datagrams in the buffer `nth`; `None` if there are no bytes.
    #[inline]
    fn give(
        &mut self,
        channel: Channel,
        nth: usize,
        arrival: Arrival,
    ) -> Option<Incoming<Address>> {
        let Arrival { len, from, at, .. } = arrival;
        let segment = arrival.segment.max(1);
        let count = len.div_ceil(segment).max(1);
        self.poll.left = self.poll.left.saturating_sub(count);
        if len == 0 {
            return None;
        }
        self.poll.given = nth * BUFFER..nth * BUFFER + len;
        Some(Incoming::Datagrams {
            channel,
            from: from.spoken_to(self.spoken.note(at)),
            segment,
        })
    }

    /// Ends the command channel's stage.
    #[inline]
    fn end_command(&mut self) {
        let poll = &mut self.poll;
        let Some(room) = poll.data_room else {
            return self.end_channels();
        };
        (poll.stage, poll.left, poll.buffers) = (Stage::Data, room, 0);
    }

    /// Ends the data channel's stage.
    #[inline]
    fn end_data(&mut self) {
        self.look.idle = match self.poll.buffers {
            0 => self.look.idle.saturating_add(1),
            _ => 0,
        };
        if self.poll.data_alone {
            self.poll.stage = Stage::End;
        } else {
            self.end_channels();
        }
    }

    /// Moves on to reporting network errors, if there are any.
    #[inline]
    fn end_channels(&mut self) {
        if self.poll.everywhere && !self.poll.any {
            // Something woke the thread, perhaps a network error.
            self.command.take_failures();
            self.data.take_failures();
        }
        self.poll.stage = Stage::End;
        if self.command.has_failures() || self.data.has_failures() {
            (self.poll.stage, self.poll.any) = (Stage::Failures, true);
        }
    }
}

/// Reads a socket once. Returns how many of the buffers were filled, at most one for each of `metas`.
#[inline]
fn receive_batch(socket: &mut Socket, buffers: &mut [u8], metas: &mut [RecvMeta]) -> usize {
    let mut slices: SmallVec<[IoSliceMut<'_>; COMMAND_BATCH]> = buffers
        .chunks_exact_mut(BUFFER)
        .take(metas.len())
        .map(IoSliceMut::new)
        .collect();
    socket.receive(&mut slices, metas)
}

/// Converts a failure for the layer above. Other errors are transient and count as loss.
fn told(failure: Failure) -> Option<Incoming<Address>> {
    let Failure { to, quote, .. } = failure;
    match failure.errno {
        libc::ECONNREFUSED => Some(Incoming::Refused { to, quote }),
        libc::EMSGSIZE => {
            let most = (failure.mtu as usize).checked_sub(to.headers())?;
            Some(Incoming::TooLarge { to, most, quote })
        }
        errno => {
            log::debug!("udp: {to:?}: {}", io::Error::from_raw_os_error(errno));
            None
        }
    }
}

impl DatagramPort for UdpDatagrams {
    type Address = Address;

    fn resolve(&mut self, target: Target) -> Result<Address, ConnectError> {
        let found = (self.resolver)(target)?;
        let mut reachable = found
            .into_iter()
            .map(Address::new)
            .filter(|address| self.reaches(*address));
        let first = reachable.next().ok_or(ConnectError::NoRoute)?;
        // Addresses of this machine are the loopback's and the interface's. Peers of a socket bound to the latter
        // expect the same of others.
        let bound = self.bound.is_some_and(|bound| !bound.is_loopback());
        let mut others = std::iter::once(first).chain(reachable);
        let outward = others.find(|address| bound && !address.ip().is_loopback());
        let found = outward.unwrap_or(first);
        if (self.is_here)(found.ip()) {
            return Ok(found);
        }
        Ok(found.spoken_to(self.spoken.note_route(found.socket_address())))
    }

    fn same_host(one: Address, other: Address) -> bool {
        one.with_port(0) == other.with_port(0)
    }

    fn data_name(&self) -> &[u8] {
        &self.name
    }

    fn data_address(&mut self, command: Address, name: &[u8]) -> Option<Address> {
        match *name {
            [NAME_TAG, low, high] => match u16::from_le_bytes([low, high]) {
                0 => None,
                port => Some(command.with_port(port)),
            },
            _ => None,
        }
    }

    fn is_safe(&self, address: Address) -> bool {
        (self.is_here)(address.ip())
    }

    fn is_cut_off(&self, address: Address) -> bool {
        self.spoken.is_gone(address.here())
    }

    fn refuses_at_once(&self, address: Address) -> bool {
        (self.is_here)(address.ip())
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        let (datagram_max, socket) = match channel {
            Channel::Command => (COMMAND_MAX, &self.command),
            Channel::Data => (DATA_MAX, &self.data),
        };
        Capacity {
            datagram_max,
            // The kernel may later accept less; batches are then split here.
            batch_max: socket.batch_max().max(BATCH_WITHOUT_GSO),
            batch_bytes: GSO_BATCH_BYTES,
        }
    }

    fn receive_buffer(&self) -> usize {
        self.data.receive_buffer()
    }

    #[inline]
    fn now(&self) -> Instant {
        MonotonicClock.now()
    }

    #[inline]
    fn send(
        &mut self,
        channel: Channel,
        to: Address,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        debug_assert!(batch.segment > 0);
        let most = match channel {
            Channel::Command => COMMAND_MAX,
            Channel::Data => DATA_MAX,
        };
        let largest = batch.segment.min(batch.bytes.len());
        if largest > most {
            return Err(DatagramError::TooLarge(most));
        }
        debug_assert!(batch.bytes.len() <= GSO_BATCH_BYTES.max(largest));
        let source = self.spoken.address(to.here());
        if batch.express && self.express.send(to, source, batch.bytes) {
            return Ok(());
        }
        self.socket(channel).send(to, source, batch)
    }

    #[inline]
    fn begin(&mut self, budget: usize) {
        self.look.polls = self.look.polls.wrapping_add(1);
        let everywhere = std::mem::take(&mut self.look.everywhere);
        let looks =
            everywhere || self.look.idle < ACTIVE_LOOKS || self.look.polls % DATA_EVERY == 0;
        // A flood on one socket leaves part of the budget for the other.
        let share = (budget / 4).max(1);
        self.poll = Poll {
            data_room: looks.then(|| share.max(budget / 2)),
            everywhere,
            ..Poll::new(Stage::Command, budget.saturating_sub(share).max(1))
        };
    }

    fn begin_data(&mut self, budget: usize) {
        self.poll = Poll {
            data_alone: true,
            ..Poll::new(Stage::Data, budget.max(1))
        };
    }

    #[inline]
    fn next(&mut self) -> Received<Address> {
        loop {
            if let Some(incoming) = self.next_filled() {
                return Received::Incoming(incoming);
            }
            match self.poll.stage {
                Stage::Command if self.poll.left == 0 => self.end_command(),
                Stage::Command if self.look.streak >= STREAK => self.read_command(),
                Stage::Command => {
                    if let Some(incoming) = self.take_one() {
                        return Received::Incoming(incoming);
                    }
                }
                Stage::Data if self.poll.left == 0 => self.end_data(),
                Stage::Data => self.read_data(),
                Stage::Failures => match self.next_failure() {
                    Some(incoming) => return Received::Incoming(incoming),
                    None => self.poll.stage = Stage::End,
                },
                Stage::End => {
                    return Received::End {
                        any: self.poll.any,
                        drained: self.poll.drained,
                    };
                }
            }
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.buffers.get(self.poll.given.clone()).unwrap_or(&[])
    }

    fn arm(&mut self) -> bool {
        // Sockets stay readable while anything is queued.
        self.look.everywhere = true;
        !self.command.has_failures() && !self.data.has_failures()
    }

    fn disarm(&mut self) {}

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: None,
            data: Some(self.nest.raw()),
        }
    }
}

impl fmt::Debug for UdpDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpDatagrams")
            .field("command", &self.command.port())
            .field("data", &self.data.port())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod here_tests;
#[cfg(test)]
mod tests;
