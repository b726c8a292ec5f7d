//! Datagrams in memory: what two ports send stays on a wire until the program decides about it.
//!
//! ```text
//!   end 0 --\                            /--> end 0     arrived, not polled
//!   end 1 ----> wire: sent, in order ----+--> end 1
//!                 `- to strangers: counted, shown to the program, dropped
//! ```
//!
//! The ends are the simulator's, whose network delivers what this net passes to it, and nothing
//! else.
//!
//! Owns: all datagrams, the time, and the counts of bytes by sender and receiver.

use crate::forge::Seen;
use mx_proto::reliability::{Channel, DatagramError, Quote};
use mx_proto::time::Instant;
use mx_proto::{Clock, EndpointId, NicId};
use mx_sim::datagram::header::HEADER;
use mx_sim::datagram::{Passage, Terms};
use mx_sim::{DatagramNet, SimAddress, SimDatagrams, VirtualClock, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// A host and one of its channels. Hosts 0 and 1 are the ends, all others are strangers.
pub(crate) type Address = (u8, u8);

/// A datagram in flight.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) bytes: Vec<u8>,
}

fn sim_address((host, channel): Address) -> SimAddress {
    let command = SimAddress::command(NicId(1), EndpointId(host.into()));
    if channel == Channel::Command as u8 {
        command
    } else {
        command.data(host.into())
    }
}

/// Converts an address; `None` for one that a forger made up.
fn address(of: SimAddress) -> Option<Address> {
    let host = u8::try_from(of.number()).ok()?;
    Some((host, of.channel() as u8))
}

#[derive(Debug)]
pub(crate) struct Net {
    datagrams: DatagramNet,
    clock: VirtualClock,
    pub(crate) wire: VecDeque<Datagram>,
    /// Latest true datagrams, for replays and as patterns.
    pub(crate) log: VecDeque<Datagram>,
    pub(crate) seen: Seen,
    /// Bytes that an end sent to an address, and those that reached it from there.
    pub(crate) out: [BTreeMap<Address, u64>; 2],
    pub(crate) into: [BTreeMap<Address, u64>; 2],
    /// Number of the next calls of `send` that fail, and their error.
    pub(crate) faults: (u8, Option<DatagramError>),
}

/// Maximum number of datagrams on the wire; more are lost.
const WIRE_MAX: usize = 512;
const LOG_MAX: usize = 32;

impl Net {
    pub(crate) fn new(datagram_max: usize, safe: bool) -> Rc<RefCell<Self>> {
        let world = World::new(1);
        let terms = Terms {
            datagram_max,
            command_max: 1472,
            batch_max: 16,
            receive_buffer: 256 << 10,
            safe,
            coalesce: 0.0,
            answers_refused: false,
            ..Terms::default()
        };
        let datagrams = DatagramNet::new(&world, terms);
        world.clock().advance_to(Instant(100_000_000_000));
        Rc::new_cyclic(|net: &Weak<RefCell<Self>>| {
            let net = net.clone();
            datagrams.set_gate(Box::new(move |from, to, batch| {
                let Some(net) = net.upgrade() else {
                    return Passage::Sent;
                };
                let net = &mut *net.borrow_mut();
                if let (count @ 1.., Some(fault)) = net.faults {
                    net.faults.0 = count - 1;
                    return Passage::Failed(fault);
                }
                for bytes in batch.bytes.chunks(batch.segment) {
                    assert!(bytes.len() >= HEADER, "a datagram without a header");
                    if let (Some(from), Some(to)) = (address(from), address(to)) {
                        let bytes = bytes.to_vec();
                        net.take(Datagram { from, to, bytes });
                    }
                }
                Passage::Taken
            }));
            RefCell::new(Self {
                clock: world.clock(),
                datagrams,
                wire: VecDeque::new(),
                log: VecDeque::new(),
                seen: Seen::default(),
                out: Default::default(),
                into: Default::default(),
                faults: (0, None),
            })
        })
    }

    /// Returns the datagram service of one end.
    pub(crate) fn open(&self, end: u8) -> SimDatagrams {
        let [command, data] = [0, 1].map(|channel| sim_address((end, channel)));
        SimDatagrams::open_at(&self.datagrams, end.into(), command, data).expect("a free name")
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn pass(&self, span: Duration) {
        self.clock.advance(span);
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

    /// Delivers a datagram as the only one of its GSO batch.
    pub(crate) fn arrive(&mut self, datagram: Datagram) {
        let segment = datagram.bytes.len().max(1);
        self.arrive_cut(datagram, segment);
    }

    /// Delivers a datagram cut into datagrams of `segment` bytes, which is not 0.
    pub(crate) fn arrive_cut(&mut self, datagram: Datagram, segment: usize) {
        let Datagram { from, to, bytes } = datagram;
        let Some(into) = self.into.get_mut(usize::from(to.0)) else {
            return;
        };
        *into.entry(from).or_default() += bytes.len() as u64;
        let [from, to] = [from, to].map(sim_address);
        self.datagrams.inject_batch(from, to, &bytes, segment);
    }

    /// Reports to `end` an error of a datagram to that address; with `most`, that it was too large.
    pub(crate) fn report(&self, end: u8, to: Address, most: Option<usize>, quote: Option<Quote>) {
        let [from, to] = [(end, 0), to].map(sim_address);
        self.datagrams.inject_error(from, to, most, quote);
    }

    /// Delivers everything on the wire.
    pub(crate) fn arrive_all(&mut self) -> bool {
        let mut any = false;
        while let Some(datagram) = self.wire.pop_front() {
            any = true;
            self.arrive(datagram);
        }
        any
    }

    /// Returns the bytes that `end` sent to `address` beyond those that came from there.
    pub(crate) fn excess(&self, end: usize, address: Address) -> i64 {
        let of = |book: &BTreeMap<Address, u64>| book.get(&address).copied().unwrap_or(0) as i64;
        of(&self.out[end]) - of(&self.into[end])
    }
}
