//! The interface of a port to the address exchange.
//!
//! An endpoint address proves nothing by itself, as its sender chooses its contents. Proven is the
//! address at the other end of the TCP connection, to which alone our endpoint address was sent: a
//! peer that uses it is at that address.

use mx_port_fabric::endpoint_address::{EndpointAddress, Refusal};
use mx_port_rdm::{Device, RdmPort};
use mx_proto::port::{ConnectError, LinkControl, LinkDown};
use mx_proto::{Instant, LinkId, Route, Target};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The interface of the address exchange to a port. Links have the port's ids.
pub trait Addresses {
    /// The provider's name. Sides with different ones are not compatible.
    fn provider(&self) -> &str;
    /// The endpoint address for the peer of such a link. `None` when the link is gone.
    fn endpoint_address(&self, link: LinkId) -> Option<EndpointAddress>;
    /// A peer at that address wants a link: says where it leads, and makes this side's end of it if
    /// there has to be one before it is used. That link may be watched over.
    fn answer(
        &mut self,
        theirs: &EndpointAddress,
        from: SocketAddr,
        now: Instant,
    ) -> Result<(Option<LinkId>, EndpointAddress), Refusal>;
    /// The endpoint address of a link's peer has come, from that TCP address.
    fn greet(
        &mut self,
        link: (LinkId, Target),
        theirs: &EndpointAddress,
        from: SocketAddr,
        now: Instant,
    );
    /// It will not come: the next poll takes the link down.
    fn give_up(&mut self, link: (LinkId, Target), reason: LinkDown);
    /// Something of the link is left. Only asked of links that are watched over.
    fn has(&self, _link: LinkId) -> bool {
        false
    }
    /// The process of a link's peer may have gone. Only said of links that are watched over.
    fn doubt(&mut self, _link: LinkId, _now: Instant) {}
}

/// The rdm port's interface to the other ports.
pub trait Fabric: Addresses + LinkControl {
    /// Begins a link that waits for an endpoint address. When the peer does not answer over the fabric, it ends
    /// with the way round it, where there is one.
    fn reserve(&mut self, now: Instant, fallback: Option<Route>) -> Result<LinkId, ConnectError>;
    /// Links at the moment.
    fn link_count(&self) -> usize;
    /// With what address endpoint addresses were exchanged for a link. `None` before that.
    fn address(&self, link: LinkId) -> Option<SocketAddr>;
    /// Sets the epoll instance on which threads sleep from now on. The port's descriptors are added
    /// directly: providers nest their own three deep, and the kernel allows five.
    fn wake_through(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()>;
    /// The interfaces are others now, and may stay so (`settled`): goes to the one to be used, if it is not
    /// there.
    fn follow(&mut self, device: Device, settled: bool);
    /// A link with a peer at that address is about to begin.
    fn face(&mut self, peer: SocketAddr);
}

impl Addresses for RdmPort {
    fn provider(&self) -> &str {
        self.provider()
    }

    fn endpoint_address(&self, link: LinkId) -> Option<EndpointAddress> {
        self.endpoint_address(link)
    }

    fn answer(
        &mut self,
        theirs: &EndpointAddress,
        from: SocketAddr,
        now: Instant,
    ) -> Result<(Option<LinkId>, EndpointAddress), Refusal> {
        let (link, ours) = self.answer(theirs, from, now)?;
        Ok((Some(link), ours))
    }

    fn greet(
        &mut self,
        (link, _): (LinkId, Target),
        theirs: &EndpointAddress,
        from: SocketAddr,
        now: Instant,
    ) {
        self.greet(link, theirs, from, now);
    }

    fn give_up(&mut self, (link, _): (LinkId, Target), reason: LinkDown) {
        self.give_up(link, reason);
    }

    fn has(&self, link: LinkId) -> bool {
        self.has(link)
    }

    fn doubt(&mut self, link: LinkId, now: Instant) {
        self.doubt(link, now);
    }
}

impl Fabric for RdmPort {
    fn reserve(&mut self, now: Instant, fallback: Option<Route>) -> Result<LinkId, ConnectError> {
        self.reserve(now, fallback)
    }

    fn link_count(&self) -> usize {
        self.link_count()
    }

    fn address(&self, link: LinkId) -> Option<SocketAddr> {
        self.address(link)
    }

    fn wake_through(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.wake_through(epoll)
    }

    fn follow(&mut self, device: Device, settled: bool) {
        self.follow(device, settled);
    }

    fn face(&mut self, peer: SocketAddr) {
        self.face(peer);
    }
}
