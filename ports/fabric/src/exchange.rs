//! The interface of a port to the address exchange.
//!
//! An endpoint address proves nothing by itself, as its sender chooses its contents. Proven is the
//! address at the other end of the TCP connection, to which alone our endpoint address was sent: a
//! peer that uses it is at that address.

use super::endpoint_address::{EndpointAddress, Refusal};
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId, Target};
use std::net::SocketAddr;

/// The interface of the address exchange to a port. Links have the port's ids.
pub trait Addresses {
    /// The provider's name. Sides with different ones are not compatible.
    fn provider(&self) -> &str;
    /// Peers of new links have to be asked for their addresses: those do not follow from host and number.
    fn asks(&self) -> bool {
        true
    }
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
