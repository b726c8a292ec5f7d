//! Datagram service over libfabric's `FI_EP_DGRAM` endpoints.
//!
//! ```text
//!   Reliable<FabricDatagrams>
//!       |  DatagramPort                     service.rs
//!   FabricDatagrams --- choice   the provider and its limits
//!       |           `-- Open     one domain:
//!       |                peers     names --> places in the address vector
//!       |                command   line: endpoint, queue, buffers
//!       |                data      line: likewise
//!       v
//!   ports/fabric --> libfabric-sys --> libfabric.so.1, or the fake of the tests
//! ```
//!
//! **Finding a peer.** A session starts over TCP, as for `rdm`, and moves here: the called side announces the name of
//! its command endpoint, assigned when that opens, and its Welcome carries the name of its data endpoint.
//!
//! **The sender of a datagram** is named in it ([`frame`]), so both sides must use this service, not kernel UDP at one
//! end. Foreign datagrams are counted, and logged once.
//!
//! A domain whose queue fails is reopened at the same ports; names stay, datagrams in flight are lost.
//!
//! Out of scope: the contents of datagrams.

mod channel;
mod choice;
mod frame;
mod name;
mod peers;
mod poll_timer;
mod service;
mod sockets;

#[cfg(test)]
mod fake_tests;
#[cfg(test)]
mod reliable_tests;
#[cfg(test)]
mod tests;

pub use name::FabricAddress;

use super::DgramOptions;
use channel::{Depth, FabricChannel};
use choice::{Choice, Plan};
use libfabric_sys::Library;
use mx_port_base::clock::MonotonicClock;
use mx_port_base::epoll::Epoll;
use mx_port_fabric::RdmError;
use mx_port_fabric::{Domain, FabricError};
use mx_proto::reliability::{Capacity, Channel, DATA_NAME_MAX};
use mx_proto::{Clock, Instant};
use peers::Peers;
use poll_timer::PollTimer;
use service::Poll;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Counters of the service.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FabricStats {
    /// Datagrams that the provider accepted.
    pub sent: u64,
    /// Datagrams that were injected, a part of `sent`.
    pub injected: u64,
    /// Datagrams that the provider rejected, or accepted and failed to send.
    pub send_errors: u64,
    /// Datagrams received.
    pub received: u64,
    /// Receives that failed, including completions with an impossible length.
    pub receive_errors: u64,
    /// Received packets that no service like this one sent.
    pub foreign: u64,
    /// Received packets that were damaged, or named an impossible sender.
    pub damaged: u64,
    /// Completions that belong to no outstanding operation.
    pub strays: u64,
    /// Number of times the domain was reopened.
    pub reopened: u64,
}

/// Datagram service over two `FI_EP_DGRAM` endpoints of a provider, for commands and for data. Reopens its domain if
/// that breaks.
pub struct FabricDatagrams {
    library: Arc<Library>,
    choice: Choice,
    poll: Poll,
    /// `None` while the domain is broken.
    open: Option<Open>,
    retry_at: Instant,
    /// Names of our command and data endpoints.
    names: [FabricAddress; 2],
    receive_buffer: usize,
    nest: Epoll,
    poll_timer: PollTimer,
    /// Descriptors that have been added to the nest.
    watched: Vec<RawFd>,
    told_foreign: bool,
    stats: FabricStats,
}

/// Open domain and its objects.
struct Open {
    peers: Peers,
    /// Declared before the lines: the domain closes before their memory is freed.
    domain: Domain,
    /// Command and data channels.
    lines: Vec<FabricChannel>,
}

// The Welcome has room for the name of a data endpoint.
const _: () = assert!(name::NAME_MAX <= DATA_NAME_MAX);

/// Maximum bytes of the data channel's receive buffers: arrivals between two polls a millisecond apart at 25 Gbit/s.
const RECEIVE_BYTES: usize = 4 << 20;

/// Maximum number of receive buffers of the data channel: `udp` has room for a thousand.
const RECEIVES: usize = 1024;

/// Receive buffers of the command channel, whose datagrams are small and acknowledge many.
const COMMAND_RECEIVES: usize = 256;

/// Send buffers of the data channel, and of the command channel.
const SENDS: usize = 256;
const COMMAND_SENDS: usize = 64;

/// Delay before a broken domain is reopened, and between attempts.
const RETRY_OPEN: Duration = Duration::from_secs(1);

/// Member number of the descriptors in a nest.
const MEMBER: u8 = 3;

impl FabricDatagrams {
    /// Loads libfabric, chooses a provider and opens it.
    ///
    /// # Errors
    ///
    /// Fails if libfabric or the provider is missing or unusable; the error lists the providers.
    pub fn open(options: DgramOptions) -> Result<Self, RdmError> {
        let library = Arc::new(match &options.library {
            Some(library) => library.clone(),
            None => Library::get()?.clone(),
        });
        let bind = options.bind.or(options.device);
        let mut choice = Choice::make(&library, options.provider.as_deref(), bind)?;
        choice.plan.terms.wait = options.wait;
        let open = Open::new(&library, &choice, [0; 2])?;
        let names = open.names();
        for name in &names {
            if choice.plan.datagram_max(name) < choice::DATAGRAM_MIN {
                let provider = choice.plan.terms.provider.clone();
                let why = "its messages are too short".to_owned();
                return Err(RdmError::Unfit { provider, why });
            }
        }
        let receive_buffer = if choice.plan.software {
            socket_buffer()
        } else {
            open.lines[1].receives() * choice.plan.datagram_max(&names[1])
        };
        Ok(Self {
            library,
            choice,
            poll: Poll::NONE,
            open: Some(open),
            retry_at: Instant(0),
            names,
            receive_buffer,
            nest: Epoll::new().map_err(RdmError::System)?,
            poll_timer: PollTimer::new().map_err(RdmError::System)?,
            watched: Vec::new(),
            told_foreign: false,
            stats: FabricStats::default(),
        })
    }

    /// Returns the provider's exact name.
    pub fn provider(&self) -> &str {
        &self.choice.plan.terms.provider
    }

    /// Returns the address of our own endpoint of a channel.
    pub fn address(&self, channel: Channel) -> FabricAddress {
        self.names[channel as usize]
    }

    /// Returns libfabric's number for the provider's address format.
    pub fn address_format(&self) -> u32 {
        self.plan().terms.address_format
    }

    /// Returns the address at which peers call us: all bytes that `fi_getname` returns.
    pub fn command_name(&self) -> &[u8] {
        self.names[0].bytes()
    }

    /// Parses the full name of a peer's command endpoint; `None` if it cannot be one on this fabric.
    pub(super) fn whole(&self, name: &[u8]) -> Option<FabricAddress> {
        let ours = &self.names[0];
        let whole = name.len() == ours.bytes().len();
        FabricAddress::read(name, self.address_format(), ours).filter(|_| whole)
    }

    /// Returns the counters.
    pub fn stats(&self) -> FabricStats {
        self.stats
    }

    /// Makes sleepers wait on this epoll instance from now on, instead of the service's own. Descriptors are added to
    /// it directly: providers nest their own, and the kernel allows five levels.
    pub fn wake_through(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.watch_nothing();
        self.nest = Epoll::of(epoll)?;
        Ok(())
    }

    fn plan(&self) -> &Plan {
        &self.choice.plan
    }

    fn capacity_of(&self, channel: Channel) -> Capacity {
        let plan = self.plan();
        let datagram_max = plan.datagram_max(&self.address(channel));
        Capacity {
            datagram_max,
            batch_max: plan.batch_max,
            batch_bytes: plan.batch_max * datagram_max,
        }
    }

    fn now() -> Instant {
        MonotonicClock.now()
    }

    /// Closes the domain after a failure and schedules its reopening.
    fn broke(&mut self, error: &FabricError) {
        log::warn!(
            "dgram: {} has broken down ({error}); it is opened again in {RETRY_OPEN:?}",
            self.provider()
        );
        self.watch_nothing();
        self.open = None;
        self.retry_at = Self::now().after(RETRY_OPEN);
    }

    /// Reopens a broken domain when due. Returns whether it is open.
    fn is_open(&mut self) -> bool {
        if self.open.is_some() {
            return true;
        }
        let now = Self::now();
        if now < self.retry_at {
            return false;
        }
        self.retry_at = now.after(RETRY_OPEN);
        let ports = self.names.map(|name| name.port().unwrap_or(0));
        match Open::new(&self.library, &self.choice, ports) {
            Ok(open) => {
                log::info!("dgram: {} is open again", self.provider());
                self.names = open.names();
                self.open = Some(open);
                self.stats.reopened += 1;
                true
            }
            Err(error) => {
                log::debug!("dgram: {} does not open again: {error}", self.provider());
                false
            }
        }
    }

    /// Adds the descriptors to the nest. Returns false if one cannot be added.
    fn watch(&mut self, fds: &[RawFd]) -> bool {
        if self.watched == fds {
            return true;
        }
        self.watch_nothing();
        for &fd in fds {
            if let Err(error) = self.nest.join(MEMBER, Some(fd)) {
                log::warn!("dgram: cannot sleep on a descriptor of libfabric's: {error}");
                return false;
            }
            self.watched.push(fd);
        }
        true
    }

    fn watch_nothing(&mut self) {
        for fd in std::mem::take(&mut self.watched) {
            self.nest.remove(&fd);
        }
    }
}

impl Open {
    /// Opens both endpoints, at these ports if their addresses have ports.
    fn new(library: &Arc<Library>, choice: &Choice, ports: [u16; 2]) -> Result<Self, RdmError> {
        let plan = &choice.plan;
        let mut open = Self {
            peers: Peers::default(),
            domain: Domain::open(Arc::clone(library), &choice.info, plan.terms.clone())?,
            lines: Vec::new(),
        };
        for (port, command) in ports.into_iter().zip([true, false]) {
            let line = FabricChannel::open(&open.domain, plan, port, depth(plan, command))?;
            open.lines.push(line);
        }
        for line in &mut open.lines {
            line.push(&open.domain, &mut open.peers, &mut FabricStats::default())?;
        }
        Ok(open)
    }

    fn names(&self) -> [FabricAddress; 2] {
        [0, 1].map(|channel| *self.lines[channel].name())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Fields drop in order: the domain next, then the buffers.
        self.lines.iter_mut().for_each(FabricChannel::close);
    }
}

/// Returns the number of buffers of a channel.
fn depth(plan: &Plan, command: bool) -> Depth {
    let terms = &plan.terms;
    let size = plan.buffer_len();
    let (receives, sends) = if command {
        (
            COMMAND_RECEIVES.min(RECEIVE_BYTES / 4 / size),
            COMMAND_SENDS,
        )
    } else {
        (RECEIVES.min(RECEIVE_BYTES / size), SENDS)
    };
    Depth {
        receive: receives.clamp(1, terms.rx_depth),
        send: sends.clamp(1, terms.tx_depth),
    }
}

/// Returns the payload bytes that the kernel buffers for a socket of `udp`, whose only buffer it is: half the default
/// limit; the other half is kernel overhead.
fn socket_buffer() -> usize {
    let text = fs::read_to_string("/proc/sys/net/core/rmem_default");
    let bytes = text.ok().and_then(|text| text.trim().parse::<usize>().ok());
    bytes.unwrap_or(212_992) / 2
}

impl fmt::Debug for FabricDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FabricDatagrams")
            .field("provider", &self.provider())
            .field("names", &self.names)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
