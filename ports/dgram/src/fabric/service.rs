//! Implementation of [`DatagramPort`] for [`FabricDatagrams`].
//!
//! ```text
//!   send   peers: place of the name --> line: inject, or buffers
//!   next   command, then data: completions --> frames --> names --> the layer above
//!   arm    both queues allow sleeping, or a timer wakes
//! ```
//!
//! Out of scope: the contents of datagrams.

use super::channel::FabricChannel;
use super::name::FabricAddress;
use super::peers::NoPlace;
use super::{FabricDatagrams, Open};
use mx_port_fabric::FabricError;
use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{
    Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming, Received,
};
use mx_proto::{Instant, Target};

/// Maximum number of completions read in one call.
const BATCH: usize = 64;

/// Position within a poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    /// Channel that is being read.
    channel: Channel,
    stage: Stage,
    /// True if only the data channel is polled.
    data_alone: bool,
    /// Datagrams that may still be read on this channel.
    left: usize,
    any: bool,
    drained: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Channel,
    End,
}

impl Poll {
    pub(super) const NONE: Self = Self::new(Channel::Data, Stage::End, 0);

    const fn new(channel: Channel, stage: Stage, left: usize) -> Self {
        Self {
            channel,
            stage,
            data_alone: false,
            left,
            any: false,
            drained: false,
        }
    }
}

impl DatagramPort for FabricDatagrams {
    type Address = FabricAddress;

    /// Fails always: sessions start over TCP.
    fn resolve(&mut self, _target: Target) -> Result<FabricAddress, ConnectError> {
        Err(ConnectError::NoRoute)
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
        debug_assert!(batch.bytes.len().div_ceil(batch.segment) <= capacity.batch_max);
        let Some(open) = &mut self.open else {
            return Err(DatagramError::Unreachable);
        };
        let peer = match open.peers.take(&open.domain, &to) {
            Ok(peer) => peer,
            Err(NoPlace::Full) => return Err(DatagramError::WouldBlock),
            Err(NoPlace::Refused(error)) => {
                log::debug!("dgram: {to:?} is not a valid address: {error}");
                return Err(DatagramError::Unreachable);
            }
        };
        let line = &mut open.lines[channel as usize];
        line.send((&mut open.peers, peer), batch, &mut self.stats)
    }

    fn begin(&mut self, budget: usize) {
        self.poll = Poll::new(Channel::Command, Stage::Channel, budget.max(1));
        if !self.is_open() {
            self.poll.stage = Stage::End;
        }
    }

    fn begin_data(&mut self, budget: usize) {
        self.poll = Poll {
            data_alone: true,
            ..Poll::new(Channel::Data, Stage::Channel, budget.max(1))
        };
        if !self.is_open() {
            (self.poll.stage, self.poll.drained) = (Stage::End, true);
        }
    }

    fn next(&mut self) -> Received<FabricAddress> {
        loop {
            match self.poll.stage {
                Stage::Channel => match self.next_of_channel() {
                    Ok(Some(incoming)) => return Received::Incoming(incoming),
                    Ok(None) => self.end_channel(),
                    Err(error) => {
                        self.broke(&error);
                        self.poll.stage = Stage::End;
                        (self.poll.any, self.poll.drained) = (true, true);
                    }
                },
                Stage::End => {
                    let Poll { any, drained, .. } = self.poll;
                    return Received::End { any, drained };
                }
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        let open = self.open.as_ref();
        open.map_or(&[], |open| open.lines[self.poll.channel as usize].bytes())
    }

    fn arm(&mut self) -> bool {
        let Some(open) = &self.open else {
            // Reopening is attempted at the next expiry.
            return self.sleep_on_timer();
        };
        if !open.lines.iter().all(FabricChannel::may_sleep) {
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
    /// Returns the next datagram of the current channel; `None` when it is exhausted.
    fn next_of_channel(&mut self) -> Result<Option<Incoming<FabricAddress>>, FabricError> {
        let format = self.plan().terms.address_format;
        let Self {
            open, stats, poll, ..
        } = self;
        let Some(open) = open else {
            return Ok(None);
        };
        let Open {
            peers,
            domain,
            lines,
        } = open;
        let channel = poll.channel;
        let line = &mut lines[channel as usize];
        let ours = *line.name();
        loop {
            line.take_back();
            while poll.left > 0 {
                let handed = line.hand_out(stats, |name| FabricAddress::read(name, format, &ours));
                let Some(from) = handed else { break };
                poll.left -= 1;
                poll.any = true;
                if let Some(from) = from {
                    let segment = line.bytes().len();
                    return Ok(Some(Incoming::Datagrams {
                        channel,
                        from,
                        segment,
                    }));
                }
                stats.damaged += 1;
                line.take_back();
            }
            line.push(domain, peers, stats)?;
            if poll.left == 0 {
                return Ok(None);
            }
            if line.read(peers, BATCH.min(poll.left), stats)? == 0 {
                poll.drained = true;
                return Ok(None);
            }
            poll.any = true;
        }
    }

    /// Moves on to the next channel, or ends the poll.
    fn end_channel(&mut self) {
        let poll = &mut self.poll;
        if poll.channel == Channel::Command {
            *poll = Poll {
                any: poll.any,
                ..Poll::new(Channel::Data, Stage::Channel, poll.left.max(1))
            };
            return;
        }
        poll.stage = Stage::End;
        if poll.data_alone {
            return;
        }
        if poll.any {
            self.poll_timer.quicken();
        }
        if self.stats.foreign > 0 && !self.told_foreign {
            self.told_foreign = true;
            log::warn!(
                "dgram: received a datagram at {:?} that is not from libfabric: peers must use the \
                 same backend",
                self.names[0]
            );
        }
    }

    /// Arms the poll timer for a sleeper.
    fn sleep_on_timer(&mut self) -> bool {
        let timer = [self.poll_timer.raw()];
        self.watch(&timer) && self.poll_timer.start()
    }
}
