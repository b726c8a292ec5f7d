//! Implementation of [`DatagramPort`] for [`FabricDatagrams`].
//!
//! ```text
//!   send   peers: place of the name --> line: inject, or buffers
//!   poll   command, then data: completions --> frames --> names --> the layer above
//!   arm    both queues allow sleeping, or a timer wakes
//! ```
//!
//! Not here: the contents of datagrams.

use super::line::Line;
use super::name::FabricAddress;
use super::peers::NoPlace;
use super::{FabricDatagrams, Open};
use mx_port_fabric::FabricError;
use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming};
use mx_proto::{Instant, Target};
use std::net::SocketAddr;

/// Completions read at a time.
const BATCH: usize = 64;

/// The order of polling: the command channel first.
const CHANNELS: [Channel; 2] = [Channel::Command, Channel::Data];

impl DatagramPort for FabricDatagrams {
    type Address = FabricAddress;

    fn resolve(&mut self, target: Target) -> Result<FabricAddress, ConnectError> {
        let port = self.ports.port(target.endpoint);
        let port = port.map_err(|_| ConnectError::BadEndpoint)?;
        if self.asks {
            return Ok(FabricAddress::sought(target));
        }
        let addresses = (self.addresses)(target.nic, port);
        if addresses.is_empty() {
            return Err(ConnectError::UnknownNic);
        }
        self.nearest(&addresses).ok_or(ConnectError::NoRoute)
    }

    fn data_name(&self) -> &[u8] {
        self.names[1].bytes()
    }

    fn data_address(&mut self, command: FabricAddress, name: &[u8]) -> Option<FabricAddress> {
        let format = self.plan().terms.address_format;
        let name = FabricAddress::read(name, format, &self.names[1])?;
        match (command.ip(), name.port()) {
            // A peer must not redirect us to another machine.
            (Some(ip), Some(port)) => name.elsewhere((ip, port).into()),
            _ => Some(name).filter(|name| name.is_beside(&command, format)),
        }
    }

    fn is_safe(&self, address: FabricAddress) -> bool {
        let plan = self.plan();
        let here = || {
            let ip = address.ip();
            ip.is_some_and(|ip| ip.is_loopback() || Some(ip) == self.names[0].ip())
        };
        plan.checked || (plan.software && here())
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        self.capacity_of(channel)
    }

    fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    #[inline]
    fn now(&self) -> Instant {
        Self::now()
    }

    fn send(
        &mut self,
        channel: Channel,
        to: FabricAddress,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        let capacity = self.capacity_of(channel);
        if batch.segment.min(batch.bytes.len()) > capacity.datagram_max {
            return Err(DatagramError::TooLarge(capacity.datagram_max));
        }
        if to.is_sought() {
            return Err(DatagramError::Unreachable);
        }
        debug_assert!(batch.bytes.len().div_ceil(batch.segment) <= capacity.batch_max);
        let Some(open) = &mut self.open else {
            return Err(DatagramError::Unreachable);
        };
        let peer = match open.peers.take(&open.domain, &to) {
            Ok(peer) => peer,
            Err(NoPlace::Full) => return Err(DatagramError::WouldBlock),
            Err(NoPlace::Refused(error)) => {
                log::debug!("dgram: {to:?} is no address: {error}");
                return Err(DatagramError::Unreachable);
            }
        };
        let line = &mut open.lines[channel as usize];
        line.send((&mut open.peers, peer), batch, &mut self.stats)
    }

    fn poll(
        &mut self,
        budget: usize,
        mut receive: impl FnMut(Incoming<'_, FabricAddress>),
    ) -> bool {
        let told = !self.answers.is_empty();
        for (at, name) in self.answers.drain(..) {
            receive(match name {
                Some(is) => Incoming::Found { at, is },
                None => Incoming::NotFound { at },
            });
        }
        if !self.is_open() {
            return told;
        }
        let format = self.plan().terms.address_format;
        let (mut left, mut any) = (budget, told);
        for channel in CHANNELS {
            let polled = self.poll_channel(channel, format, left.max(1), &mut receive);
            match polled {
                Ok(polled) => {
                    left = left.saturating_sub(polled.taken);
                    any |= polled.did;
                }
                Err(error) => {
                    self.broke(&error);
                    return true;
                }
            }
        }
        if any {
            self.poll_timer.quicken();
        }
        if self.stats.foreign > 0 && !self.told_foreign {
            self.told_foreign = true;
            log::warn!(
                "dgram: something comes in at {:?} that does not use libfabric: peers must use \
                 the same service",
                self.names[0]
            );
        }
        any
    }

    fn drain_data(
        &mut self,
        budget: usize,
        mut receive: impl FnMut(Incoming<'_, FabricAddress>),
    ) -> bool {
        if !self.is_open() {
            return true;
        }
        let format = self.plan().terms.address_format;
        match self.poll_channel(Channel::Data, format, budget.max(1), &mut receive) {
            Ok(polled) => polled.empty,
            Err(error) => {
                self.broke(&error);
                true
            }
        }
    }

    fn arm(&mut self) -> bool {
        if !self.answers.is_empty() {
            return false;
        }
        let Some(open) = &self.open else {
            // Checked again when reopening is due.
            return self.sleep_on_timer();
        };
        if !open.lines.iter().all(Line::may_sleep) {
            return false;
        }
        match (open.lines[0].wait_fd(), open.lines[1].wait_fd()) {
            (Some(command), Some(data)) => self.watch(&[command, data]),
            _ => self.sleep_on_timer(),
        }
    }

    fn disarm(&mut self) {
        self.poll_timer.stop();
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: None,
            data: Some(self.nest.raw()),
        }
    }
}

impl FabricDatagrams {
    /// The first of a machine's addresses that our endpoint can send to. An endpoint bound to
    /// loopback reaches only loopback, and others do not reach it.
    fn nearest(&self, addresses: &[SocketAddr]) -> Option<FabricAddress> {
        let ours = self.names[0];
        let loopback = ours.ip()?.is_loopback();
        let fitting = addresses
            .iter()
            .filter(|at| at.ip().is_loopback() == loopback);
        fitting.copied().find_map(|at| ours.elsewhere(at))
    }

    /// Hands out what has arrived on one channel.
    fn poll_channel(
        &mut self,
        channel: Channel,
        format: u32,
        budget: usize,
        receive: &mut impl FnMut(Incoming<'_, FabricAddress>),
    ) -> Result<Polled, FabricError> {
        let Self { open, stats, .. } = self;
        let Some(open) = open else {
            return Ok(Polled::default());
        };
        let Open {
            peers,
            domain,
            lines,
        } = open;
        let line = &mut lines[channel as usize];
        let ours = *line.name();
        let (mut taken, mut did) = (0, false);
        loop {
            while taken < budget {
                let handed = line.hand_out(stats, |name, bytes| {
                    let Some(from) = FabricAddress::read(name, format, &ours) else {
                        return false;
                    };
                    receive(Incoming::Datagrams {
                        channel,
                        from,
                        bytes,
                        segment: bytes.len(),
                    });
                    true
                });
                match handed {
                    Some(good) => {
                        stats.damaged += u64::from(!good);
                        taken += 1;
                    }
                    None => break,
                }
            }
            line.push(domain, peers, stats)?;
            let empty = taken < budget && line.read(peers, BATCH.min(budget - taken), stats)? == 0;
            if empty || taken >= budget {
                did |= taken > 0;
                return Ok(Polled { taken, did, empty });
            }
            did = true;
        }
    }

    /// Arms the poll timer for sleepers.
    fn sleep_on_timer(&mut self) -> bool {
        let timer = [self.poll_timer.raw()];
        self.watch(&timer) && self.poll_timer.start()
    }
}

/// The result of polling one channel.
#[derive(Clone, Copy, Default, Debug)]
struct Polled {
    /// Number of datagrams.
    taken: usize,
    /// True if anything happened.
    did: bool,
    /// True if nothing is left.
    empty: bool,
}
