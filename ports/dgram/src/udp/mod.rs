//! Datagrams over kernel UDP: two sockets, batches sent with GSO and received with GRO.
//!
//! ```text
//!   command socket   the endpoint's number, as its TCP port   every poll, first
//!   connected socket sends tiny datagrams to the current peer (`connected`)
//!   data socket      a number chosen by the kernel            every poll while datagrams arrive,
//!                                                             every 8th otherwise
//!
//!   data name:  'U' and that number    the peer combines it with the address it knows us by
//!
//!   begin ------> Command --> Data, if it is read --> Failures --> End      a read fills buffers, and
//!   begin_data -------------> Data -----------------------------> End      next gives out one after the other
//! ```
//!
//! The command socket has its own queue in the kernel, so that acknowledgements neither wait behind
//! a window of data nor get lost with it. Reading an empty socket costs a system call, which an
//! exchange of tiny messages must not pay twice.
//!
//! Owns: the sockets and receive buffers.
//! Out of scope: the contents of datagrams, sessions.
//! Cost: a tiny datagram is one `sendto` here and one `recvfrom` there; a batch of 64 KiB one
//! system call on either side. No allocation.

mod address;
mod connected;
mod control;
mod local_address;
mod socket;
mod sys;

pub use address::Address;

use super::DgramOptions;
use connected::ConnectedSocket;
use control::Failure;
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

/// The largest datagram of the command channel: an acknowledgement with all its words, a tiny
/// fragment, and anything sent before the data channel is proven.
const COMMAND_MAX: usize = 2048;

/// The largest UDP payload over IPv4. Over IPv6 the kernel reports what is too large.
const DATA_MAX: usize = 65_507;

/// The most bytes of a batch: what fits behind the headers of IPv6, so one limit serves all.
const GSO_BATCH_BYTES: usize = 65_535 - 48;

/// Datagrams in a batch without GSO: a compromise between calls from above and the loss when the
/// socket becomes full halfway.
const BATCH_WITHOUT_GSO: usize = 8;

/// Buffers of one read. Those for data hold a batch that GRO has joined; four of them fit a
/// second-level cache.
const COMMAND_BATCH: usize = 16;
const DATA_BATCH: usize = 4;
const DATA_ROOM: usize = 64 << 10;

/// Successful reads in a row after which the next one asks for many datagrams. That costs more than
/// asking for one.
const STREAK: u32 = 2;

/// Reads of the command socket in a poll after recent arrivals.
const LOOKS: u32 = 4;

/// Empty reads in a row after which the data socket is read less often ...
const ACTIVE_LOOKS: u32 = 64;
/// ... namely in each 8th poll: every few microseconds.
const DATA_EVERY: u32 = 8;

/// Bytes of acknowledgements that may wait: those of a thousand peers.
const COMMAND_BUFFER: usize = 1 << 20;

/// The first byte of a data name.
const NAME_TAG: u8 = b'U';
const NAME_LEN: usize = 3;

const MEMBER_COMMAND: u8 = 0;
const MEMBER_DATA: u8 = 1;

/// Two UDP sockets.
pub struct UdpDatagrams {
    command: Socket,
    data: Socket,
    name: [u8; NAME_LEN],
    /// True if it uses one address of this machine only.
    bound: Option<IpAddr>,
    resolver: Resolver,
    is_here: fn(IpAddr) -> bool,
    express: ConnectedSocket,
    spoken: LocalAddresses,
    nest: Epoll,
    look: Look,
    poll: Poll,
    /// Buffers of the command channel, and of the data channel.
    small: Box<[u8]>,
    large: Box<[u8]>,
    metas: Box<[RecvMeta]>,
}

/// The choice of sockets to read.
#[derive(Clone, Copy, Debug)]
struct Look {
    polls: u32,
    /// Successful reads of the command socket in a row.
    streak: u32,
    /// Empty polls of the command socket in a row.
    quiet: u32,
    /// Empty reads of the data socket in a row.
    idle: u32,
    /// A thread slept: the next poll reads all sockets.
    everywhere: bool,
}

/// The position within a poll.
#[derive(Debug)]
struct Poll {
    stage: Stage,
    /// Datagrams still to take on the channel of the stage, about.
    left: usize,
    /// Buffers of that channel that have been filled.
    buffers: usize,
    /// Buffers filled by the last read that have not been given out.
    filled: Range<usize>,
    /// The channel and the place of the datagrams given out last.
    given: (Channel, Range<usize>),
    /// Room for the data channel; `None`: it is left out.
    data_room: Option<usize>,
    /// The data channel is taken in alone.
    data_alone: bool,
    /// A thread slept: all sockets are read.
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
            given: (Channel::Command, 0..0),
            data_room: None,
            data_alone: false,
            everywhere: false,
            any: false,
            drained: false,
        }
    }
}

impl UdpDatagrams {
    /// Opens the command socket on `options.port` (0: any free port) and the data socket on any free port.
    /// Fails with `AddrInUse` if `options.port` is taken, otherwise with the kernel's error.
    pub fn open(options: &DgramOptions, resolver: Resolver) -> io::Result<Self> {
        let tells = options.bind.is_none() && local_address::has_choice(&Interfaces::now());
        Self::open_telling(options, resolver, tells)
    }

    /// `tells`: peers are answered from the address they send to, whatever the route's source is.
    fn open_telling(options: &DgramOptions, resolver: Resolver, tells: bool) -> io::Result<Self> {
        let opening = Opening {
            ip: options.bind,
            port: options.port,
            receive_buffer: COMMAND_BUFFER,
            together: false,
            tells,
        };
        let command = Socket::open(opening)?;
        let data = Socket::open(Opening {
            port: 0,
            receive_buffer: options.receive_buffer,
            together: true,
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
            small: vec![0; COMMAND_BATCH * COMMAND_MAX].into_boxed_slice(),
            large: vec![0; DATA_BATCH * DATA_ROOM].into_boxed_slice(),
            metas: vec![RecvMeta::default(); COMMAND_BATCH].into_boxed_slice(),
        })
    }

    /// The interfaces are others now: there may be a choice of the address to answer from.
    pub fn follow(&mut self, interfaces: &Interfaces) {
        if self.bound.is_none() && local_address::has_choice(interfaces) {
            self.command.tell_addresses();
            self.data.tell_addresses();
        }
    }

    /// Addresses that this machine has lost will not come back.
    pub fn look_again(&mut self) {
        self.spoken.look_again();
    }

    /// The number of the command socket.
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

    /// The next error that came back.
    #[cold]
    fn next_failure(&mut self) -> Option<Incoming<Address>> {
        let sockets = [&mut self.command, &mut self.data];
        sockets
            .into_iter()
            .find_map(|socket| std::iter::from_fn(|| socket.next_failure()).find_map(told))
    }

    /// Receives one datagram of the command channel. During an exchange it reads again at once,
    /// which costs less than another poll.
    #[inline]
    fn look_for_one(&mut self) -> Option<(Address, usize)> {
        let looks = match self.look.quiet {
            ..ACTIVE_LOOKS => LOOKS,
            _ => 1,
        };
        let (from, len, at) =
            (0..looks).find_map(|_| self.command.receive_one(&mut self.small[..COMMAND_MAX]))?;
        Some((from.spoken_to(self.spoken.note(at)), len))
    }

    /// Takes one datagram of the command channel, which then follows no other read of it.
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
        self.end_command();
        one.and_then(|(from, len)| self.give(Channel::Command, from, 0..len, len))
    }

    /// Reads many datagrams of the command channel at once.
    fn read_command(&mut self) {
        let batch = self.poll.left.min(COMMAND_BATCH);
        let (socket, metas) = (&mut self.command, &mut self.metas[..batch]);
        let got = receive_batch(socket, (&mut self.small, COMMAND_MAX), metas);
        self.note_read(got, batch);
        if self.poll.buffers == 0 {
            self.look.streak = 0;
        }
    }

    /// Reads the data channel once.
    #[inline]
    fn read_data(&mut self) {
        let batch = self.poll.left.min(DATA_BATCH);
        let (socket, metas) = (&mut self.data, &mut self.metas[..batch]);
        let got = receive_batch(socket, (&mut self.large, DATA_ROOM), metas);
        self.note_read(got, batch);
        self.poll.drained = got < batch;
    }

    /// Notes that a read has filled `got` of the buffers in a batch. If not all, it was the channel's last.
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

    /// The datagrams in the next of the buffers that have been filled.
    #[inline]
    fn next_filled(&mut self) -> Option<Incoming<Address>> {
        while let Some(nth) = self.poll.filled.next() {
            let (channel, size) = match self.poll.stage {
                Stage::Command => (Channel::Command, COMMAND_MAX),
                _ => (Channel::Data, DATA_ROOM),
            };
            let RecvMeta {
                addr, stride, len, ..
            } = self.metas[nth];
            let len = if len <= size { len } else { 0 };
            let count = match channel {
                Channel::Command => 1,
                Channel::Data => len.div_ceil(stride.max(1)).max(1),
            };
            self.poll.left = self.poll.left.saturating_sub(count);
            let at = self.metas[nth].dst_ip.map(|ip| ip.to_canonical());
            let from = Address::new(addr).spoken_to(self.spoken.note(at));
            let given = self.give(channel, from, nth * size..nth * size + len, stride);
            if given.is_some() {
                return given;
            }
        }
        None
    }

    /// Gives out the datagrams that lie there; `None` if there are no bytes.
    #[inline]
    fn give(
        &mut self,
        channel: Channel,
        from: Address,
        range: Range<usize>,
        segment: usize,
    ) -> Option<Incoming<Address>> {
        if range.is_empty() {
            return None;
        }
        self.poll.given = (channel, range);
        Some(Incoming::Datagrams {
            channel,
            from,
            segment: segment.max(1),
        })
    }

    /// The command channel has been read.
    #[inline]
    fn end_command(&mut self) {
        let poll = &mut self.poll;
        let Some(room) = poll.data_room else {
            return self.end_channels();
        };
        (poll.stage, poll.left, poll.buffers) = (Stage::Data, room, 0);
    }

    /// The data channel has been read.
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

    /// The channels have been read: errors that came back follow.
    #[inline]
    fn end_channels(&mut self) {
        if self.poll.everywhere && !self.poll.any {
            // Something caused a wake-up, perhaps one of these.
            self.command.take_failures();
            self.data.take_failures();
        }
        self.poll.stage = Stage::End;
        if self.command.has_failures() || self.data.has_failures() {
            (self.poll.stage, self.poll.any) = (Stage::Failures, true);
        }
    }
}

/// Reads a socket once. Returns how many of the buffers, each of `size` bytes, were filled.
#[inline]
fn receive_batch(
    socket: &mut Socket,
    (buffers, size): (&mut [u8], usize),
    metas: &mut [RecvMeta],
) -> usize {
    let mut slices: SmallVec<[IoSliceMut<'_>; COMMAND_BATCH]> = buffers
        .chunks_exact_mut(size)
        .take(metas.len())
        .map(IoSliceMut::new)
        .collect();
    socket.receive(&mut slices, metas)
}

/// Converts a failure for the layer above. Other errors are transient and look like loss.
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
        // Those of this machine are the loopback's and its interface's own. A socket bound to the latter
        // expects others to use it, too.
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
        // A flood on one socket leaves a part of the budget for the other.
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
        let (channel, range) = &self.poll.given;
        let buffers = match channel {
            Channel::Command => &self.small,
            Channel::Data => &self.large,
        };
        buffers.get(range.clone()).unwrap_or(&[])
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
