//! Start of links, by addresses exchanged over a session that has begun on another port.
//!
//! ```text
//!   called side: offer --> our address                    Hello with the caller's --> HelloAck, up
//!   caller:                its address --> call --> Hello with ours                   HelloAck --> up
//! ```

use super::RdmPort;
use super::frame::FrameKind;
use mx_port_base::epoll::Epoll;
use mx_port_base::random;
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_proto::port::MoveRefusal;
use mx_proto::{Instant, LinkId};
use std::io;
use std::os::fd::BorrowedFd;

impl RdmPort {
    /// Returns whether a link can be started or offered now: the fabric is open, its device has a link, and there is
    /// room. Reopens a broken fabric when due.
    pub fn is_ready(&mut self, now: Instant) -> bool {
        self.is_open(now) && !self.links.is_full()
    }

    /// Creates the called side's end of a link, which waits for the caller's hello. Returns the link, and our encoded
    /// address for the caller. Fails with [`MoveRefusal::Full`] without room, else with `Failed`.
    pub fn offer(&mut self, now: Instant) -> Result<(LinkId, Vec<u8>), MoveRefusal> {
        let cookie = self.cookie(now)?;
        let link = self.links.offer(cookie, now);
        let address = self.endpoint_address(link).ok_or(MoveRefusal::Failed)?;
        Ok((link, address.emit()))
    }

    /// Starts a link to a peer that has [offered](Self::offer) one, with its address, and greets it; an event follows
    /// when the peer has answered. Fails with [`MoveRefusal::Differs`] if the address is of another provider or format,
    /// with `Full` without room, else with `Failed`.
    pub fn call(&mut self, address: &[u8], now: Instant) -> Result<LinkId, MoveRefusal> {
        let cookie = self.cookie(now)?;
        let theirs = EndpointAddress::parse(address).ok_or(MoveRefusal::Differs)?;
        let fabric = self.fabric.as_mut().ok_or(MoveRefusal::Failed)?;
        let terms = &fabric.plan().terms;
        if !theirs.is_on(&terms.provider, terms.address_format) {
            return Err(MoveRefusal::Differs);
        }
        let Some(peer) = fabric.peer_of(&theirs) else {
            self.stats.malformed += 1;
            return Err(MoveRefusal::Failed);
        };
        let at = peer.address;
        let link = self.links.call(cookie, peer, now);
        fabric.on_link_up(link, at);
        if let Some(ours) = self.endpoint_address(link) {
            self.send_control(link, FrameKind::Hello, &ours.emit());
        }
        Ok(link)
    }

    /// Handles the Hello of the caller of an offered link.
    pub(super) fn on_hello(&mut self, link: LinkId, theirs: Option<EndpointAddress>) {
        let Some(fabric) = &mut self.fabric else {
            return;
        };
        let terms = &fabric.plan().terms;
        let theirs = theirs.filter(|it| it.is_on(&terms.provider, terms.address_format));
        let Some(peer) = theirs.and_then(|theirs| fabric.peer_of(&theirs)) else {
            self.stats.malformed += 1;
            return self.fail(link, mx_proto::port::LinkDown::Protocol);
        };
        fabric.on_link_up(link, peer.address);
        self.links.greeted(link, peer);
        self.send_control(link, FrameKind::HelloAck, &[]);
    }

    /// Makes threads sleep on this epoll instance from now on, instead of the port's own. The port's descriptors are
    /// added directly: providers nest their own three deep, and the kernel allows five.
    pub fn wake_through(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.let_go();
        self.nest = Epoll::of(epoll)?;
        Ok(())
    }

    /// Generates the cookie of another link, if one is possible.
    fn cookie(&mut self, now: Instant) -> Result<u64, MoveRefusal> {
        if !self.is_open(now) {
            return Err(MoveRefusal::Failed);
        }
        if self.links.is_full() {
            return Err(MoveRefusal::Full);
        }
        random::nonzero().map_err(|_| MoveRefusal::Failed)
    }

    /// Returns our address for the peer of a link; `None` if the link or the fabric is closed.
    fn endpoint_address(&self, link: LinkId) -> Option<EndpointAddress> {
        let (fabric, link) = (self.fabric.as_ref()?, self.links.of(link)?);
        let terms = &fabric.plan().terms;
        Some(EndpointAddress {
            provider: terms.provider.clone(),
            format: terms.address_format,
            address: fabric.main.as_ref()?.address().to_vec(),
            link: link.id.index(),
            cookie: link.cookie,
        })
    }
}
