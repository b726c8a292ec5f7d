//! Datagrams in memory: what two ports send lies on a wire until the program says what becomes of it.
//!
//! ```text
//!   End 0 --\                            /--> End 0     inbox: arrived, not polled
//!   End 1 ----> wire: sent, in order ----+--> End 1
//!                 `- to strangers: counted, shown to the program, gone
//! ```
//!
//! Owns: all datagrams, the time, and the counts of bytes by sender and receiver.

use crate::forge::{HEADER, Seen};
use crate::meter::within;
use mx_proto::ids::Target;
use mx_proto::port::ConnectError;
use mx_proto::reliability::{
    Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming, Quote,
};
use mx_proto::time::Instant;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A host and one of its channels. Hosts 0 and 1 are the ends, others are strangers.
pub(crate) type Address = (u8, u8);

/// A datagram in flight.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) bytes: Vec<u8>,
}

/// An event that a service will tell its port.
#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    Datagrams {
        channel: Channel,
        from: Address,
        bytes: Vec<u8>,
        segment: usize,
    },
    Refused(Address, Option<Quote>),
    TooLarge(Address, usize, Option<Quote>),
}

#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) wire: VecDeque<Datagram>,
    pub(crate) inbox: [VecDeque<Arrival>; 2],
    /// The last true datagrams, for replays and as patterns.
    pub(crate) log: VecDeque<Datagram>,
    pub(crate) seen: Seen,
    /// Bytes an end sent to an address, and those that reached it from there.
    pub(crate) out: [BTreeMap<Address, u64>; 2],
    pub(crate) into: [BTreeMap<Address, u64>; 2],
    /// So many of the next calls of `send` fail like this.
    pub(crate) faults: (u8, Option<DatagramError>),
    pub(crate) datagram_max: usize,
    pub(crate) safe: bool,
}

/// Datagrams that can be on the wire; more are lost.
const WIRE_MAX: usize = 512;
const LOG_MAX: usize = 32;

impl Net {
    pub(crate) fn new(datagram_max: usize, safe: bool) -> Self {
        Self {
            now: Instant(100_000_000_000),
            wire: VecDeque::new(),
            inbox: Default::default(),
            log: VecDeque::new(),
            seen: Seen::default(),
            out: Default::default(),
            into: Default::default(),
            faults: (0, None),
            datagram_max,
            safe,
        }
    }

    fn take(&mut self, datagram: Datagram) {
        *self.out[usize::from(datagram.from.0)]
            .entry(datagram.to)
            .or_default() += datagram.bytes.len() as u64;
        self.seen.note(&datagram);
        if datagram.to.0 < 2 {
            if self.log.len() == LOG_MAX {
                self.log.pop_front();
            }
            self.log.push_back(datagram.clone());
            if self.wire.len() < WIRE_MAX {
                self.wire.push_back(datagram);
            }
        }
    }

    /// One arrives as the only one of its GSO batch.
    pub(crate) fn arrive(&mut self, datagram: Datagram) {
        let segment = datagram.bytes.len().max(1);
        self.arrive_cut(datagram, segment);
    }

    /// The same, cut into datagrams of `segment` bytes, which is not 0.
    pub(crate) fn arrive_cut(&mut self, datagram: Datagram, segment: usize) {
        let Datagram { from, to, bytes } = datagram;
        let Some(inbox) = self.inbox.get_mut(usize::from(to.0)) else {
            return;
        };
        *self.into[usize::from(to.0)].entry(from).or_default() += bytes.len() as u64;
        inbox.push_back(Arrival::Datagrams {
            channel: if to.1 == 0 {
                Channel::Command
            } else {
                Channel::Data
            },
            from,
            bytes,
            segment,
        });
    }

    /// Everything on the wire arrives.
    pub(crate) fn arrive_all(&mut self) -> bool {
        let mut any = false;
        while let Some(datagram) = self.wire.pop_front() {
            any = true;
            self.arrive(datagram);
        }
        any
    }

    /// Bytes that `end` sent to `address` beyond those that came from there.
    pub(crate) fn excess(&self, end: usize, address: Address) -> i64 {
        let of = |book: &BTreeMap<Address, u64>| book.get(&address).copied().unwrap_or(0) as i64;
        of(&self.out[end]) - of(&self.into[end])
    }
}

/// One end's datagram service.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) net: Rc<RefCell<Net>>,
    pub(crate) own: usize,
}

const NAME: &[u8] = b"data";

impl DatagramPort for End {
    type Address = Address;

    fn resolve(&mut self, target: Target) -> Result<Address, ConnectError> {
        Ok((target.endpoint.0 as u8, 0))
    }

    fn data_name(&self) -> &[u8] {
        NAME
    }

    fn data_address(&mut self, command: Address, name: &[u8]) -> Option<Address> {
        (name == NAME).then_some((command.0, 1))
    }

    fn is_safe(&self, _: Address) -> bool {
        self.net.borrow().safe
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        let datagram_max = match channel {
            Channel::Command => 1472,
            Channel::Data => self.net.borrow().datagram_max,
        };
        Capacity {
            datagram_max,
            batch_max: 16,
            batch_bytes: 60_000,
        }
    }

    fn receive_buffer(&self) -> usize {
        256 << 10
    }

    fn now(&self) -> Instant {
        self.net.borrow().now
    }

    fn send(
        &mut self,
        channel: Channel,
        to: Address,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        within(0, || {
            let mut net = self.net.borrow_mut();
            if let (count @ 1.., Some(fault)) = net.faults {
                net.faults.0 = count - 1;
                return Err(fault);
            }
            assert!(
                batch.segment > 0 && !batch.bytes.is_empty(),
                "an empty GSO batch"
            );
            let capacity_max = if channel == Channel::Command {
                1472
            } else {
                net.datagram_max
            };
            assert!(
                batch.segment.min(batch.bytes.len()) <= capacity_max && batch.bytes.len() <= 65_507,
                "larger than the service can send: {} of {}",
                batch.segment,
                batch.bytes.len()
            );
            for bytes in batch.bytes.chunks(batch.segment) {
                assert!(bytes.len() >= HEADER, "a datagram without a header");
                net.take(Datagram {
                    from: (self.own as u8, channel as u8),
                    to,
                    bytes: bytes.to_vec(),
                });
            }
            Ok(())
        })
    }

    fn poll(&mut self, budget: usize, mut receive: impl FnMut(Incoming<'_, Address>)) -> bool {
        let mut any = false;
        for _ in 0..budget.max(1) {
            let next = within(0, || self.net.borrow_mut().inbox[self.own].pop_front());
            let Some(arrival) = next else { break };
            any = true;
            match &arrival {
                Arrival::Datagrams {
                    channel,
                    from,
                    bytes,
                    segment,
                } => receive(Incoming::Datagrams {
                    channel: *channel,
                    from: *from,
                    bytes,
                    segment: *segment,
                }),
                Arrival::Refused(to, quote) => receive(Incoming::Refused {
                    to: *to,
                    quote: *quote,
                }),
                Arrival::TooLarge(to, most, quote) => receive(Incoming::TooLarge {
                    to: *to,
                    most: *most,
                    quote: *quote,
                }),
            }
            within(0, || drop(arrival));
        }
        any
    }

    fn drain_data(&mut self, budget: usize, receive: impl FnMut(Incoming<'_, Address>)) -> bool {
        // Arrivals have one order, whatever the channel.
        self.poll(budget, receive);
        self.arm()
    }

    fn arm(&mut self) -> bool {
        self.net.borrow().inbox[self.own].is_empty()
    }

    fn disarm(&mut self) {}
}
