//! The rdm port in virtual time, with the address exchange's part done by letters.
//!
//! ```text
//!   poll:  letters --> answer, greet      disarm, RdmPort::poll, arm --> asleep, or look again
//! ```
//!
//! Sleeping is real: who has armed its port is run when a descriptor becomes readable or a
//! deadline is over, and otherwise not. So a wake-up that is missing stops the simulation.

use super::network::{FakeNetwork, Letter, refused};
use mx_port_fabric::Addresses;
use mx_port_rdm::{RdmOptions, RdmPort};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, LinkDown, Place, Port, RemoteKey,
    RemoteMemory, RemoteRead, SendError, Sent, WakeDescriptors,
};
use mx_proto::round::{Next, Rounds};
use mx_proto::{EndpointId, Instant, LinkId, NicId, Route, Target};
use mx_sim::{Buffer, NodeId, World};
use std::net::SocketAddr;
use std::time::Duration;

/// The TCP address of a node.
fn address_of(node: NodeId) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], 1))
}

/// The rdm port does not ask which.
const NO_TARGET: Target = Target {
    nic: NicId(1),
    endpoint: EndpointId(0),
    route: Route::AUTO,
};

pub(crate) struct SimRdm {
    /// `None` only while it is dropped.
    port: Option<Box<RdmPort>>,
    network: FakeNetwork,
    world: World,
    node: NodeId,
    life: u64,
    /// Links whose peer has been asked, and how long it has to answer.
    asked: Vec<(LinkId, Instant)>,
    /// The round began with an answer of the address exchange's.
    had_letters: bool,
    asleep: bool,
    /// Polls in a row that were wanted and found nothing.
    vain: u32,
}

impl SimRdm {
    pub(crate) fn open(network: &FakeNetwork, node: NodeId, options: RdmOptions) -> Self {
        let port = RdmPort::open(options).unwrap_or_else(|error| panic!("{error}"));
        let data = port.descriptors().data;
        let life = network.list(node, data.unwrap_or(-1));
        Self {
            port: Some(Box::new(port)),
            network: network.clone(),
            world: network.world(),
            node,
            life,
            asked: Vec::new(),
            had_letters: false,
            asleep: false,
            vain: 0,
        }
    }

    fn port(&mut self) -> &mut RdmPort {
        self.port.as_mut().expect("it is open")
    }

    fn look(&self) -> &RdmPort {
        self.port.as_ref().expect("it is open")
    }

    fn read_letters(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(letter) = self.network.letter(self.node) {
            any = true;
            match letter {
                Letter::Locate {
                    from,
                    link,
                    endpoint_address,
                } => {
                    let from_address = address_of(from.0);
                    let answer = self.port().answer(&endpoint_address, from_address, now);
                    let endpoint_address = answer.map(|(_, ours)| ours);
                    let answer = Letter::Answer {
                        from: self.node,
                        link,
                        endpoint_address,
                    };
                    self.network.post(self.node, from, answer);
                }
                Letter::Answer {
                    from,
                    link,
                    endpoint_address,
                } => {
                    self.asked.retain(|(asked, _)| *asked != link);
                    match endpoint_address {
                        Ok(endpoint_address) => self.port().greet(
                            (link, NO_TARGET),
                            &endpoint_address,
                            address_of(from),
                            now,
                        ),
                        Err(refusal) => self.port().give_up((link, NO_TARGET), refused(refusal)),
                    }
                }
            }
        }
        let late: Vec<LinkId> = (self.asked.extract_if(.., |(_, until)| *until <= now))
            .map(|(link, _)| link)
            .collect();
        for link in late {
            any = true;
            self.port().give_up((link, NO_TARGET), LinkDown::TimedOut);
        }
        any
    }
}

impl LinkControl for SimRdm {
    fn limits(&self, link: LinkId) -> Limits {
        self.look().limits(link)
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        let to = target.endpoint.0 as NodeId;
        let life = self.network.life_at(to).ok_or(ConnectError::Refused)?;
        let from = (self.node, self.life);
        let link = self.port().reserve(now, None)?;
        let endpoint_address = self
            .port()
            .endpoint_address(link)
            .ok_or(ConnectError::NoResources)?;
        self.asked.push((link, now.after(LOCATE)));
        let letter = Letter::Locate {
            from,
            link,
            endpoint_address,
        };
        self.network.post(self.node, (to, life), letter);
        Ok(link)
    }

    fn accept(&mut self, link: LinkId) {
        self.port().accept(link);
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.port().close(link, how);
    }

    fn deadline(&self) -> Option<Instant> {
        let again = (!self.asleep).then(|| self.world.now().after(LOOK));
        let asked = self.asked.iter().map(|(_, until)| *until).min();
        let port = self.look().deadline();
        let letter = self.network.next_letter(self.node);
        [again, asked, port, letter].into_iter().flatten().min()
    }

    fn arm(&mut self) -> bool {
        self.port().arm()
    }

    fn disarm(&mut self) {
        self.port().disarm();
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.look().descriptors()
    }
}

impl Port<Buffer> for SimRdm {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, Buffer>,
    ) -> Result<Sent, SendError> {
        self.port().send(link, header, body)
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &Buffer,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.port().resume(link, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &Buffer, offset: usize, len: usize) {
        self.port().detach(link, memory, offset, len);
    }

    fn remote_memory(&mut self, _link: LinkId) -> Option<&mut dyn RemoteMemory<Buffer>> {
        Some(self)
    }
}

impl SimRdm {
    /// A round has ended: the port sleeps if there was nothing.
    fn end_round(&mut self, any: bool) {
        self.asleep = !any && self.port().arm();
        self.vain = if any || self.asleep { 0 } else { self.vain + 1 };
        assert!(
            self.vain < VAIN_MAX,
            "it is polled for ever: {:?}",
            self.look()
        );
        self.network.sleeps(self.node, self.asleep);
        self.network.look_at_memory();
        self.network.rouse();
    }
}

impl Rounds<Buffer> for SimRdm {
    type Lent<'a> = &'a [u8];

    fn begin(&mut self, now: Instant, budget: usize) {
        self.had_letters = self.read_letters(now);
        self.port().disarm();
        Rounds::<Buffer>::begin(self.port(), now, budget);
    }

    fn next(&mut self) -> Next {
        let next = Rounds::<Buffer>::next(self.port());
        let Next::End { any } = next else {
            return next;
        };
        let any = any | self.had_letters;
        self.end_round(any);
        Next::End { any }
    }

    fn body(&self) -> &[u8] {
        Rounds::<Buffer>::body(self.look())
    }

    fn read(&mut self, place: Place<'_, Buffer>) {
        Rounds::<Buffer>::read(self.port(), place);
    }

    fn skip(&mut self) {
        Rounds::<Buffer>::skip(self.port());
    }
}

impl RemoteMemory<Buffer> for SimRdm {
    fn recall(&mut self, link: LinkId, token: u64) {
        RemoteMemory::<Buffer>::recall(self.port(), link, token);
    }

    fn register(&mut self, link: LinkId, memory: &Buffer, token: u64) -> Option<RemoteKey> {
        let key = self.port().register(link, memory, token)?;
        self.network.lend(memory);
        Some(key)
    }

    fn deregister(&mut self, link: LinkId, key: RemoteKey) {
        RemoteMemory::<Buffer>::deregister(self.port(), link, key);
    }

    fn read(&mut self, link: LinkId, read: RemoteRead<'_, Buffer>) -> Result<(), SendError> {
        let memory = read.memory.share();
        RemoteMemory::read(self.port(), link, read)?;
        self.network.lend(&memory);
        Ok(())
    }

    fn stop(&mut self, link: LinkId, token: u64) {
        RemoteMemory::<Buffer>::stop(self.port(), link, token);
    }
}

impl Drop for SimRdm {
    fn drop(&mut self) {
        self.port = None;
        self.network.unlist(self.node, self.life);
        if !std::thread::panicking() {
            self.network.rouse();
        }
    }
}

/// The address exchange gives up after that.
const LOCATE: Duration = Duration::from_secs(2);

/// Time between two polls of one who may not sleep.
const LOOK: Duration = Duration::from_micros(3);

/// Nothing keeps a port from sleeping for so many polls.
const VAIN_MAX: u32 = 100_000;
