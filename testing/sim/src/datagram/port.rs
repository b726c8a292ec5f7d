//! A node's end of the service.
//!
//! ```text
//!   arrived at command, arrived at data --> single, or equal ones of one sender as a GSO batch
//!
//!   begin -------> Command --glances--> Data --> End          next returns one letter of the channel
//!   begin_data ------------------------> Data --> End
//! ```

use super::address::SimAddress;
use super::mailbox::{Letter, Mailbox};
use super::net::{DatagramNet, Inner};
use super::terms::Terms;
use crate::aside::aside;
use crate::world::NodeId;
use mx_proto::origin::Source;
use mx_proto::port::ConnectError;
use mx_proto::reliability::{
    Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming, Received,
};
use mx_proto::{EndpointId, Instant, NicId, Target};
use std::time::Duration;

/// Maximum bytes of a GSO batch, as of one packet of the Internet.
const GSO_BATCH_BYTES: usize = 65_507;

/// Time until a node polls again after it skipped a channel, like applications that test briefly
/// between other work.
const AFTER_A_GLANCE: Duration = Duration::from_millis(3);

/// An end with two open names. Dropping it closes them.
#[derive(Debug)]
pub struct SimDatagrams {
    net: DatagramNet,
    node: NodeId,
    command: SimAddress,
    data: SimAddress,
    name: [u8; 4],
    /// GSO batch that is lent.
    batch: Vec<u8>,
    /// Polls since the last look at the data channel.
    glances: u32,
    poll: Poll,
}

/// Position within a poll.
#[derive(Debug)]
struct Poll {
    /// Channel whose letters are returned; `None` at the end.
    channel: Option<Channel>,
    /// Whether only the data channel is polled.
    data_alone: bool,
    /// Number of datagrams that may still be returned.
    budget: usize,
    left: usize,
}

impl SimDatagrams {
    /// Opens a name for `node`, and the name of a data channel. `None` if another node has it.
    pub fn open(net: &DatagramNet, node: NodeId, nic: NicId, endpoint: EndpointId) -> Option<Self> {
        net.inner.borrow_mut().drawn += 1;
        let command = SimAddress::command(nic, endpoint);
        // The same numbers in each run, none of them in two lives.
        let data = command.data(30_000 + net.inner.borrow().drawn);
        Self::open_at(net, node, command, data)
    }

    /// Opens an end with a data channel chosen by the test.
    pub fn open_at(
        net: &DatagramNet,
        node: NodeId,
        command: SimAddress,
        data: SimAddress,
    ) -> Option<Self> {
        let mut inner = net.inner.borrow_mut();
        let (now, limit) = (inner.world.now(), inner.terms.receive_buffer);
        for address in [command, data] {
            let new = || Mailbox::new(node, limit);
            let mailbox = inner.boxes.entry(address).or_insert_with(new);
            if mailbox.open {
                return None;
            }
            for at in mailbox.reopen(now, node) {
                inner.world.wake(at, node);
            }
        }
        Some(Self {
            net: net.clone(),
            node,
            command,
            data,
            name: data.name(),
            batch: Vec::new(),
            glances: 0,
            poll: Poll {
                channel: None,
                data_alone: false,
                budget: 0,
                left: 0,
            },
        })
    }

    fn terms(&self) -> Terms {
        self.net.inner.borrow().terms
    }

    fn of(&self, channel: Channel) -> SimAddress {
        match channel {
            Channel::Command => self.command,
            Channel::Data => self.data,
        }
    }

    /// Returns the next letter of a channel, if another may be returned.
    fn take(&mut self, channel: Channel) -> Option<Incoming<SimAddress>> {
        let left = self.poll.left;
        if left == 0 {
            return None;
        }
        let (letter, segment, count) = aside(|| self.open_letter(channel, left))?;
        self.poll.left -= count.min(left);
        let incoming = match letter {
            Letter::Datagram(from, _) | Letter::Batch(from, ..) => Incoming::Datagrams {
                channel,
                from,
                segment: segment.max(1),
            },
            Letter::Refused(to, quote) => Incoming::Refused { to, quote },
            Letter::TooLarge(to, most, quote) => Incoming::TooLarge { to, most, quote },
        };
        aside(|| drop(letter));
        Some(incoming)
    }

    /// Returns the channel that follows another one.
    fn channel_after(&mut self, channel: Channel) -> Option<Channel> {
        if channel == Channel::Command {
            self.glances = (self.glances + 1) % (self.terms().glances + 1);
            if self.glances == 0 {
                return Some(Channel::Data);
            }
            if !self.is_empty(Channel::Data) {
                // A node that never sleeps polls again after a while, whatever it has found.
                self.net.wake_after(AFTER_A_GLANCE, self.node);
            }
        }
        if self.poll.left == 0 && !self.poll.data_alone {
            // There may be more.
            self.net.wake_after(Duration::ZERO, self.node);
        }
        None
    }

    fn is_empty(&self, channel: Channel) -> bool {
        self.net.waiting(self.of(channel)) == 0
    }

    /// Takes the oldest letter of a channel; puts its datagrams into `self.batch`, as many as fit
    /// into a GSO batch and at most `budget`. Returns it, the size of each, and their number.
    fn open_letter(&mut self, channel: Channel, budget: usize) -> Option<(Letter, usize, usize)> {
        let address = self.of(channel);
        let mut inner = self.net.inner.borrow_mut();
        inner.up_to_date(address)?;
        let Inner {
            boxes, rng, terms, ..
        } = &mut *inner;
        let mailbox = boxes.get_mut(&address)?;
        let letter = mailbox.take()?;
        self.batch.clear();
        let (from, bytes) = match &letter {
            Letter::Datagram(from, bytes) => (from, bytes),
            Letter::Batch(_, bytes, segment) => {
                self.batch.extend_from_slice(bytes);
                let segment = *segment;
                return Some((letter, segment, self.batch.len().div_ceil(segment)));
            }
            _ => return Some((letter, 0, 1)),
        };
        self.batch.extend_from_slice(bytes);
        let (segment, mut count, mut last) = (bytes.len(), 1, bytes.len());
        while last == segment && count < budget && rng.chance(terms.coalesce) {
            let room = GSO_BATCH_BYTES.saturating_sub(self.batch.len());
            let Some(more) = mailbox.take_more(*from, segment, room) else {
                break;
            };
            self.batch.extend_from_slice(&more);
            last = more.len();
            count += 1;
        }
        Some((letter, segment, count))
    }
}

impl Drop for SimDatagrams {
    fn drop(&mut self) {
        aside(|| {
            let mut inner = self.net.inner.borrow_mut();
            // No socket will have that name again.
            inner.boxes.remove(&self.data);
            if let Some(mailbox) = inner.boxes.get_mut(&self.command) {
                mailbox.open = false;
            }
            self.batch = Vec::new();
        });
    }
}

impl DatagramPort for SimDatagrams {
    type Address = SimAddress;

    fn resolve(&mut self, target: Target) -> Result<SimAddress, ConnectError> {
        Ok(SimAddress::command(target.nic, target.endpoint))
    }

    fn source(address: SimAddress) -> Source {
        address.source()
    }

    fn data_name(&self) -> &[u8] {
        &self.name
    }

    fn data_address(&mut self, command: SimAddress, name: &[u8]) -> Option<SimAddress> {
        command.named(name)
    }

    fn is_safe(&self, _address: SimAddress) -> bool {
        self.terms().safe
    }

    fn refuses_at_once(&self, _address: SimAddress) -> bool {
        self.terms().answers_refused
    }

    fn is_cut_off(&self, address: SimAddress) -> bool {
        self.net.inner.borrow().cut_off == Some(address)
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        let terms = self.terms();
        let datagram_max = match channel {
            Channel::Command => terms.datagram_max.min(terms.command_max),
            Channel::Data => terms.datagram_max,
        };
        Capacity {
            datagram_max,
            batch_max: terms.batch_max,
            batch_bytes: GSO_BATCH_BYTES.max(terms.datagram_max),
        }
    }

    fn receive_buffer(&self) -> usize {
        self.terms().receive_buffer
    }

    fn now(&self) -> Instant {
        self.net.inner.borrow().world.now()
    }

    fn send(
        &mut self,
        channel: Channel,
        to: SimAddress,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        let Capacity {
            datagram_max,
            batch_max,
            batch_bytes,
        } = self.capacity(channel);
        let count = batch.bytes.len().div_ceil(batch.segment);
        assert!((1..=batch_max).contains(&count), "a GSO batch of {count}");
        assert!(
            batch.segment.min(batch.bytes.len()) <= datagram_max,
            "a datagram larger than the service takes"
        );
        assert!(batch.bytes.len() <= batch_bytes, "too long a GSO batch");
        let from = (self.node, self.of(channel));
        aside(|| self.net.inner.borrow_mut().send(from, to, batch))
    }

    fn begin(&mut self, budget: usize) {
        self.poll = Poll {
            channel: Some(Channel::Command),
            data_alone: false,
            budget,
            left: budget,
        };
    }

    fn begin_data(&mut self, budget: usize) {
        self.poll = Poll {
            channel: Some(Channel::Data),
            data_alone: true,
            budget,
            left: budget,
        };
    }

    fn next(&mut self) -> Received<SimAddress> {
        while let Some(channel) = self.poll.channel {
            if let Some(incoming) = self.take(channel) {
                return Received::Incoming(incoming);
            }
            self.poll.channel = self.channel_after(channel);
        }
        Received::End {
            any: self.poll.left < self.poll.budget,
            drained: self.poll.left > 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.batch
    }

    fn arm(&mut self) -> bool {
        self.is_empty(Channel::Command) && self.is_empty(Channel::Data)
    }

    fn disarm(&mut self) {}
}
