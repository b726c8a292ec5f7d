//! The begin of links by an exchange of endpoint addresses.
//!
//! ```text
//!   we call:         reserve --> endpoint address --> the address exchange --> greet --> Hello
//!                                                    `--> give_up
//!   we are called:   the address exchange --> answer: a place for a stranger, and our endpoint address
//! ```
//!
//! They come with the peer's address from TCP, see [`Addresses`].

use super::RdmPort;
use super::frame::{AT_ONCE, FrameKind};
use super::links::Vacancy;
use mx_port_base::epoll::Epoll;
use mx_port_base::random;
use mx_port_fabric::Addresses;
use mx_port_fabric::endpoint_address::{EndpointAddress, Refusal};
use mx_proto::port::{ConnectError, LinkDown};
use mx_proto::{Instant, LinkId, Route, Target};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

impl Addresses for RdmPort {
    fn provider(&self) -> &str {
        self.provider()
    }

    fn endpoint_address(&self, link: LinkId) -> Option<EndpointAddress> {
        let (fabric, link) = (self.fabric.as_ref()?, self.links.of(link)?);
        Some(EndpointAddress {
            provider: fabric.plan().terms.provider.clone(),
            format: fabric.plan().terms.address_format,
            address: fabric.main.as_ref()?.address().to_vec(),
            incarnation: self.incarnation,
            link: link.id.index(),
            cookie: link.cookie,
            watched: false,
        })
    }

    fn answer(
        &mut self,
        theirs: &EndpointAddress,
        from: SocketAddr,
        now: Instant,
    ) -> Result<(Option<LinkId>, EndpointAddress), Refusal> {
        self.face(from);
        if !self.is_open(now) {
            return Err(Refusal::Failed);
        }
        let Some(fabric) = &self.fabric else {
            return Err(Refusal::Failed);
        };
        if theirs.provider != fabric.plan().terms.provider {
            return Err(Refusal::Provider);
        }
        if theirs.format != fabric.plan().terms.address_format {
            return Err(Refusal::Format);
        }
        let cookie = random::nonzero().map_err(|_| Refusal::Failed)?;
        if !self.make_room(from) {
            return Err(Refusal::Full);
        }
        let fabric = self.fabric.as_mut().ok_or(Refusal::Failed)?;
        let Some(peer) = fabric.peer_of(theirs) else {
            self.stats.malformed += 1;
            return Err(Refusal::Failed);
        };
        let address = peer.address;
        let id = self.links.answer(cookie, peer, from, now);
        fabric.on_link_up(id, address);
        let ours = self.endpoint_address(id).ok_or(Refusal::Failed)?;
        Ok((Some(id), ours))
    }

    fn greet(
        &mut self,
        (link, _): (LinkId, Target),
        theirs: &EndpointAddress,
        from: SocketAddr,
        now: Instant,
    ) {
        let Some(fabric) = &mut self.fabric else {
            return;
        };
        if self.links.of(link).is_none() {
            return;
        }
        let Some(peer) = fabric.peer_of(theirs) else {
            self.stats.malformed += 1;
            return self.fail(link, LinkDown::Unreachable);
        };
        let address = peer.address;
        if !self.links.greet(link, peer, from, now) {
            fabric.addresses.give(&fabric.domain, address);
            return;
        }
        fabric.on_link_up(link, address);
        self.send_control(link, FrameKind::Hello, &[]);
    }

    fn give_up(&mut self, (link, _): (LinkId, Target), reason: LinkDown) {
        self.fail(link, reason);
    }

    fn has(&self, link: LinkId) -> bool {
        self.links.of(link).is_some()
    }

    fn doubt(&mut self, link: LinkId, now: Instant) {
        if self.links.doubt(link, now) {
            self.send_control(link, FrameKind::Ping, &AT_ONCE);
        }
    }
}

impl RdmPort {
    /// Begins a link that waits for an endpoint address. When the peer does not answer over the fabric, it ends
    /// with the way round it, where there is one.
    pub fn reserve(
        &mut self,
        now: Instant,
        fallback: Option<Route>,
    ) -> Result<LinkId, ConnectError> {
        if !self.is_open(now) {
            return Err(ConnectError::NoRoute);
        }
        if self.links.is_full() {
            return Err(ConnectError::NoResources);
        }
        let cookie = random::nonzero().map_err(|_| ConnectError::NoResources)?;
        Ok(self.links.reserve(cookie, fallback, now))
    }

    /// With what address endpoint addresses were exchanged for a link. `None` before that.
    pub fn address(&self, link: LinkId) -> Option<SocketAddr> {
        self.links.of(link)?.from
    }

    /// Sets the epoll instance on which threads sleep from now on. The port's descriptors are added
    /// directly: providers nest their own three deep, and the kernel allows five.
    pub fn wake_through(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.let_go();
        self.nest = Epoll::of(epoll)?;
        Ok(())
    }

    /// There is a place for a stranger from there, perhaps another one's. False: there is none.
    fn make_room(&mut self, from: SocketAddr) -> bool {
        match self.links.vacancy_for(from) {
            Vacancy::Free => {}
            Vacancy::Of(stranger) => {
                self.stats.evicted += 1;
                self.fail(stranger, LinkDown::Reset);
            }
            Vacancy::None => {
                self.stats.turned_away += 1;
                return false;
            }
        }
        true
    }
}
