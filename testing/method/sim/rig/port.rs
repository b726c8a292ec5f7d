//! A simulated port that reaches every interface under a second name.

use super::{NIC, NOWHERE, OTHER_NIC};
use mx_proto::origin::{Address, Seen};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, Port, RemoteMemory, SendError,
    Sent, Sink, WakeDescriptors,
};
use mx_proto::{EndpointId, Identity, Instant, LinkId, NicId, Target};
use mx_sim::SimPort;
use mx_sys::UserMemory;

/// Targets on [`OTHER_NIC`] are those on [`NIC`].
#[derive(Debug)]
pub struct TwoNames(pub SimPort<UserMemory>);

impl LinkControl for TwoNames {
    fn limits(&self, link: LinkId) -> Limits {
        self.0.limits(link)
    }

    fn connect(&mut self, mut target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        match target.nic {
            OTHER_NIC => target.nic = NIC,
            NOWHERE => target.endpoint = EndpointId(u32::from(u16::MAX)),
            _ => {}
        }
        self.0.connect(target, now)
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        self.0.bind(link, cookie);
    }

    fn seen(&self, link: LinkId, claimed: &Identity) -> Seen {
        self.0.seen(link, claimed)
    }

    fn has_address(&self, address: Address) -> bool {
        self.0.has_address(address)
    }

    fn has_interface(&self, nic: NicId) -> bool {
        nic == OTHER_NIC || self.0.has_interface(nic)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.0.close(link, how);
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.0.descriptors()
    }
}

impl Port<UserMemory> for TwoNames {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, UserMemory>,
    ) -> Result<Sent, SendError> {
        self.0.send(link, header, body)
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &UserMemory,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.0.resume(link, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &UserMemory, offset: usize, len: usize) {
        self.0.detach(link, memory, offset, len);
    }

    fn poll<S: Sink<UserMemory>>(&mut self, now: Instant, budget: usize, sink: &mut S) -> bool {
        self.0.poll(now, budget, sink)
    }

    fn remote_memory(&mut self, link: LinkId) -> Option<&mut dyn RemoteMemory<UserMemory>> {
        self.0.remote_memory(link)
    }
}
