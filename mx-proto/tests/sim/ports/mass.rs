//! Many packets of one size, to be counted, not looked at: for tests of how fast and how fair.
//!
//! ```text
//!   Mass --- as many as the link takes, on each of its links ---> Mass: packets and bytes by link
//! ```

use super::peer::{Greeting, header, len_of, target};
use super::{ReliablePeer, reliable};
use mx_proto::memory::Source;
use mx_proto::port::{
    Body, Destination, HeaderBytes, Limits, LinkControl, Place, Port, SendError, Sent,
};
use mx_proto::reliability::ReliableConfig;
use mx_proto::{Clock, Instant, LinkId};
use mx_sim::{Buffer, Cluster, DatagramNet, Drive, Ear, Hearing, NodeId, VirtualClock, World};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Packets and bytes that came on one link.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Got {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Counts what comes.
pub(crate) struct Counted {
    /// They have introduced themselves, and are to be bound and answered.
    strange: Vec<LinkId>,
    answered: BTreeSet<u32>,
    /// By the order in which links were first heard of.
    pub(crate) got: Vec<(LinkId, Got)>,
    writable: BTreeMap<u32, bool>,
    scratch: Buffer,
}

impl Counted {
    fn count(&mut self, link: LinkId, header: &HeaderBytes) {
        let known = self.got.iter().position(|(of, _)| *of == link);
        let at = known.unwrap_or_else(|| {
            self.got.push((link, Got::default()));
            self.got.len() - 1
        });
        let got = &mut self.got[at].1;
        got.packets += 1;
        got.bytes += len_of(header) as u64;
    }
}

impl Ear<Buffer> for Counted {
    fn on_up(&mut self, link: LinkId) {
        self.writable.insert(link.index(), true);
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        assert_eq!(body.len(), len_of(header));
        match Greeting::of(header) {
            Some(Greeting::Introduction) => self.strange.push(link),
            Some(Greeting::Answer) => {
                self.answered.insert(link.index());
            }
            None => self.count(link, header),
        }
    }

    fn place(&mut self, _: LinkId, header: &HeaderBytes) -> Option<Place<'_, Buffer>> {
        if Greeting::of(header).is_some() {
            return None;
        }
        let memory = &mut self.scratch;
        Some(Place {
            memory: Destination::Memory(memory),
            offset: 0,
        })
    }

    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        self.count(link, header);
    }

    fn on_writable(&mut self, link: LinkId) {
        self.writable.insert(link.index(), true);
    }
}

/// Packets that are still to be sent on a link.
pub(crate) struct Load {
    pub(crate) link: LinkId,
    /// Bytes of each packet.
    pub(crate) len: usize,
    pub(crate) left: u64,
    introduced: bool,
}

/// One node.
pub(crate) struct Mass {
    pub(crate) port: ReliablePeer,
    clock: VirtualClock,
    pub(crate) counted: Counted,
    pub(crate) loads: Vec<Load>,
    memory: Buffer,
    /// It looks at its port only so often.
    every: Duration,
    next: Instant,
}

impl Mass {
    pub(crate) fn new(
        net: &DatagramNet,
        world: &World,
        node: NodeId,
        config: ReliableConfig,
    ) -> Self {
        let port = reliable(net, node, config, 1);
        let most = config.data_max.max(config.packet_max);
        Self {
            port,
            clock: world.clock(),
            counted: Counted {
                strange: Vec::new(),
                answered: BTreeSet::new(),
                got: Vec::new(),
                writable: BTreeMap::new(),
                scratch: Buffer::new(vec![0; most]),
            },
            loads: Vec::new(),
            memory: Buffer::new(vec![0x5a; most]),
            every: Duration::ZERO,
            next: Instant::default(),
        }
    }

    /// From now on it runs only so often.
    pub(crate) fn slow_down(&mut self, every: Duration) {
        self.every = every;
    }

    /// Begins to send `left` packets of `len` bytes to a node.
    pub(crate) fn load(&mut self, to: NodeId, len: usize, left: u64) {
        let link = self.port.connect(target(to), self.clock.now());
        let link = link.expect("a known name");
        self.loads.push(Load {
            link,
            len,
            left,
            introduced: false,
        });
    }

    /// Everything it received.
    pub(crate) fn got(&self) -> Got {
        let sum = |sum: Got, (_, got): &(LinkId, Got)| Got {
            packets: sum.packets + got.packets,
            bytes: sum.bytes + got.bytes,
        };
        self.counted.got.iter().fold(Got::default(), sum)
    }

    fn send_some(&mut self) -> bool {
        let mut any = false;
        for load in &mut self.loads {
            let index = load.link.index();
            if !self.counted.answered.contains(&index) {
                if !load.introduced && self.counted.writable.get(&index) == Some(&true) {
                    load.introduced = Greeting::Introduction.send(&mut self.port, load.link);
                    self.counted.writable.insert(index, load.introduced);
                    any = true;
                }
                continue;
            }
            while load.left > 0 && self.counted.writable.get(&index) == Some(&true) {
                let body = Body::Memory {
                    memory: &self.memory,
                    offset: 0,
                    len: load.len,
                };
                match self.port.send(load.link, &header(0, load.len), body) {
                    Ok(Sent::Whole) => load.left -= 1,
                    Ok(other) => panic!("only wholes are taken, not {other:?}"),
                    Err(SendError::WouldBlock) => {
                        self.counted.writable.insert(index, false);
                    }
                    Err(SendError::Down) => panic!("the link is down"),
                }
                any = true;
            }
        }
        any
    }

    pub(crate) fn limits(&self) -> Limits {
        self.port.limits(LinkId::new(0, 0))
    }
}

impl Drive for Mass {
    fn progress(&mut self) -> bool {
        let now = self.clock.now();
        if now < self.next {
            return false;
        }
        let mut busy = self.port.poll(now, 64, &mut Hearing(&mut self.counted));
        let port = &mut self.port;
        self.counted.strange.retain(|link| {
            port.bind(*link, 1);
            !Greeting::Answer.send(port, *link)
        });
        busy |= self.send_some();
        if !busy && !self.every.is_zero() {
            self.next = now.after(self.every);
        }
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        if self.every.is_zero() {
            self.port.deadline()
        } else {
            // It polls then, even if packets arrive before.
            Some(self.next)
        }
    }
}

/// Steps until `until` says so; how long that took.
pub(crate) fn run_until(
    cluster: &mut Cluster<Mass>,
    most: Duration,
    mut done: impl FnMut(&mut Cluster<Mass>) -> bool,
) -> Duration {
    let began = cluster.world().now();
    for id in 0..cluster.len() {
        cluster.poke(id);
    }
    let going = |cluster: &mut Cluster<Mass>| {
        let took = cluster.world().now().since(began);
        assert!(took < most, "not done in {most:?}");
        !done(cluster)
    };
    assert!(cluster.run_while(50_000_000, going), "nothing moves");
    cluster.world().now().since(began)
}

/// Lets time pass.
pub(crate) fn run_for(cluster: &mut Cluster<Mass>, span: Duration) {
    let until = cluster.world().now().after(span);
    for id in 0..cluster.len() {
        cluster.poke(id);
    }
    assert!(cluster.run_until(until, 50_000_000));
}
