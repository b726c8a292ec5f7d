//! The rdm port in virtual time, which connects to its peers over the fabric itself.
//!
//! ```text
//!   connect:  network --> the other RdmPort: offer --> call(its address)
//!   poll:     disarm, RdmPort::poll, arm --> asleep, or look again
//! ```
//!
//! Sleeping is real: a node that has armed its port runs when a descriptor becomes readable or a
//! deadline is over, and not otherwise. So a missing wake-up stops the simulation.

use super::network::FakeNetwork;
use mx_port_rdm::{RdmOptions, RdmPort};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, Place, Port, RemoteKey,
    RemoteMemory, RemoteRead, SendError, Sent, WakeDescriptors,
};
use mx_proto::round::{Next, Rounds};
use mx_proto::{Instant, LinkId, Target};
use mx_sim::{Buffer, NodeId, World};
use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

pub(crate) struct SimRdm {
    /// The port; `None` only while it is dropped.
    port: Option<Rc<RefCell<RdmPort>>>,
    network: FakeNetwork,
    world: World,
    node: NodeId,
    life: u64,
    asleep: bool,
    /// Number of successive polls that were wanted and found nothing.
    vain: u32,
}

impl SimRdm {
    pub(crate) fn open(network: &FakeNetwork, node: NodeId, options: RdmOptions) -> Self {
        let port = RdmPort::open(options).unwrap_or_else(|error| panic!("{error}"));
        let data = port.descriptors().data;
        let port = Rc::new(RefCell::new(port));
        let life = network.list(node, (data.unwrap_or(-1), Rc::downgrade(&port)));
        Self {
            port: Some(port),
            network: network.clone(),
            world: network.world(),
            node,
            life,
            asleep: false,
            vain: 0,
        }
    }

    fn port(&self) -> RefMut<'_, RdmPort> {
        self.port.as_ref().expect("it is open").borrow_mut()
    }

    fn look(&self) -> Ref<'_, RdmPort> {
        self.port.as_ref().expect("it is open").borrow()
    }
}

impl LinkControl for SimRdm {
    fn limits(&self, link: LinkId) -> Limits {
        self.look().limits(link)
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        let to = target.endpoint.0 as NodeId;
        let peer = self.network.port_at(self.node, to);
        let peer = peer.ok_or(ConnectError::Refused)?;
        let offered = peer.borrow_mut().offer(now);
        let (_, address) = offered.map_err(|_| ConnectError::NoResources)?;
        let link = self.port().call(&address, now);
        link.map_err(|_| ConnectError::NoRoute)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.port().close(link, how);
    }

    fn deadline(&self) -> Option<Instant> {
        let again = (!self.asleep).then(|| self.world.now().after(LOOK));
        let port = self.look().deadline();
        [again, port].into_iter().flatten().min()
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
    /// Ends a round: the port sleeps if nothing came.
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
    type Lent<'a> = Vec<u8>;

    fn begin(&mut self, now: Instant, budget: usize) {
        self.port().disarm();
        Rounds::<Buffer>::begin(&mut *self.port(), now, budget);
    }

    fn next(&mut self) -> Next {
        let next = Rounds::<Buffer>::next(&mut *self.port());
        if let Next::End { any } = next {
            self.end_round(any);
        }
        next
    }

    fn body(&self) -> Vec<u8> {
        Rounds::<Buffer>::body(&*self.look()).to_vec()
    }

    fn read(&mut self, place: Place<'_, Buffer>) {
        Rounds::<Buffer>::read(&mut *self.port(), place);
    }

    fn skip(&mut self) {
        Rounds::<Buffer>::skip(&mut *self.port());
    }
}

impl RemoteMemory<Buffer> for SimRdm {
    fn recall(&mut self, link: LinkId, token: u64) {
        RemoteMemory::<Buffer>::recall(&mut *self.port(), link, token);
    }

    fn register(&mut self, link: LinkId, memory: &Buffer, token: u64) -> Option<RemoteKey> {
        let key = self.port().register(link, memory, token)?;
        self.network.lend(memory);
        Some(key)
    }

    fn deregister(&mut self, link: LinkId, key: RemoteKey) {
        RemoteMemory::<Buffer>::deregister(&mut *self.port(), link, key);
    }

    fn read(&mut self, link: LinkId, read: RemoteRead<'_, Buffer>) -> Result<(), SendError> {
        let memory = read.memory.share();
        RemoteMemory::read(&mut *self.port(), link, read)?;
        self.network.lend(&memory);
        Ok(())
    }

    fn stop(&mut self, link: LinkId, token: u64) {
        RemoteMemory::<Buffer>::stop(&mut *self.port(), link, token);
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

/// Time between two polls of a port that may not sleep.
const LOOK: Duration = Duration::from_micros(3);

/// Number of polls for which nothing keeps a port from sleeping.
const VAIN_MAX: u32 = 100_000;
