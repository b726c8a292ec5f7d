//! An rdm port that finds its peers in a table and connects to them over the fabric itself.
//!
//! ```text
//!   connect(target) --> table --> the other RdmPort: offer --> call(its address)
//! ```

pub(crate) mod made_up;
pub(crate) mod nodes;

use mx_port_rdm::{RdmError, RdmOptions, RdmPort};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, Place, Port, RemoteKey,
    RemoteMemory, RemoteRead, SendError, Sent, WakeDescriptors,
};
use mx_proto::round::{Next, Rounds};
use mx_proto::{EndpointId, Instant, LinkId, Memory, Target};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// The ports by endpoint id.
#[derive(Clone, Default)]
pub(crate) struct Directory(Rc<RefCell<HashMap<EndpointId, Weak<RefCell<RdmPort>>>>>);

/// A port of the directory.
pub(crate) struct DirectPort {
    port: Rc<RefCell<RdmPort>>,
    directory: Directory,
    /// The link that began last.
    begun: Option<LinkId>,
}

impl Directory {
    /// Opens a port and lists it.
    pub(crate) fn open(
        &self,
        endpoint: EndpointId,
        options: RdmOptions,
    ) -> Result<DirectPort, RdmError> {
        let port = Rc::new(RefCell::new(RdmPort::open(options)?));
        let listed = Rc::downgrade(&port);
        self.0.borrow_mut().insert(endpoint, listed);
        Ok(DirectPort {
            port,
            directory: self.clone(),
            begun: None,
        })
    }
}

impl DirectPort {
    /// Returns the port.
    pub(crate) fn rdm(&self) -> std::cell::Ref<'_, RdmPort> {
        self.port.borrow()
    }

    /// Returns the port, to change it.
    pub(crate) fn rdm_mut(&self) -> std::cell::RefMut<'_, RdmPort> {
        self.port.borrow_mut()
    }

    /// Checks the peer that was called last, whose process may have ended.
    pub(crate) fn doubt(&self, now: Instant) {
        let link = self.begun.expect("a link that this side has begun");
        self.port.borrow_mut().probe_peer(link, now);
    }
}

impl LinkControl for DirectPort {
    fn limits(&self, link: LinkId) -> Limits {
        self.port.borrow().limits(link)
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        let peer = self.directory.0.borrow().get(&target.endpoint).cloned();
        let peer = peer.and_then(|peer| peer.upgrade());
        let peer = peer.ok_or(ConnectError::Refused)?;
        let offered = peer.borrow_mut().offer(now);
        let (_, address) = offered.map_err(|_| ConnectError::NoResources)?;
        let link = self.port.borrow_mut().call(&address, now);
        let link = link.map_err(|_| ConnectError::NoRoute)?;
        self.begun = Some(link);
        Ok(link)
    }

    fn accept(&mut self, link: LinkId) {
        self.port.borrow_mut().accept(link);
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.port.borrow_mut().close(link, how);
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        self.port.borrow().keep_alive_due()
    }

    fn keep_alive(&mut self, now: Instant) {
        self.port.borrow_mut().keep_alive(now);
    }

    fn deadline(&self) -> Option<Instant> {
        self.port.borrow().deadline()
    }

    fn arm(&mut self) -> bool {
        self.port.borrow_mut().arm()
    }

    fn disarm(&mut self) {
        self.port.borrow_mut().disarm();
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.port.borrow().descriptors()
    }
}

impl<M: Memory> Port<M> for DirectPort {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        self.port.borrow_mut().send(link, header, body)
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.port.borrow_mut().resume(link, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize) {
        self.port.borrow_mut().detach(link, memory, offset, len);
    }

    fn remote_memory(&mut self, _link: LinkId) -> Option<&mut dyn RemoteMemory<M>> {
        Some(self)
    }
}

impl<M: Memory> Rounds<M> for DirectPort {
    type Lent<'a> = Vec<u8>;

    fn begin(&mut self, now: Instant, budget: usize) {
        Rounds::<M>::begin(&mut *self.port.borrow_mut(), now, budget);
    }

    fn next(&mut self) -> Next {
        Rounds::<M>::next(&mut *self.port.borrow_mut())
    }

    fn body(&self) -> Vec<u8> {
        Rounds::<M>::body(&*self.port.borrow()).to_vec()
    }

    fn read(&mut self, place: Place<'_, M>) {
        Rounds::<M>::read(&mut *self.port.borrow_mut(), place);
    }

    fn skip(&mut self) {
        Rounds::<M>::skip(&mut *self.port.borrow_mut());
    }
}

impl<M: Memory> RemoteMemory<M> for DirectPort {
    fn recall(&mut self, link: LinkId, token: u64) {
        RemoteMemory::<M>::recall(&mut *self.port.borrow_mut(), link, token);
    }

    fn register(&mut self, link: LinkId, memory: &M, token: u64) -> Option<RemoteKey> {
        self.port.borrow_mut().register(link, memory, token)
    }

    fn deregister(&mut self, link: LinkId, key: RemoteKey) {
        RemoteMemory::<M>::deregister(&mut *self.port.borrow_mut(), link, key);
    }

    fn read(&mut self, link: LinkId, read: RemoteRead<'_, M>) -> Result<(), SendError> {
        RemoteMemory::read(&mut *self.port.borrow_mut(), link, read)
    }

    fn stop(&mut self, link: LinkId, token: u64) {
        RemoteMemory::<M>::stop(&mut *self.port.borrow_mut(), link, token);
    }
}
