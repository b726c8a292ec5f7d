//! The dgram port within `HostPorts`: opened on first use.
//!
//! ```text
//!   connect --> open the port --> link --> address known? no: the address exchange asks for it
//! ```
//!
//! Owns: the port, once it is open.
//! Not here: the other ports.

use super::lazy::Lazy;
use mx_port_base::epoll::Epoll;
use mx_port_base::interfaces::Interfaces;
use mx_port_base::origin::Origin;
use mx_port_dgram::fabric::FabricDatagrams;
use mx_port_dgram::{self as dgram, AnyAddress, DgramPort, Service};
use mx_port_fabric::Addresses;
use mx_port_fabric::endpoint_address::{EndpointAddress, Refusal};
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId, Target};
use std::io;
use std::net::SocketAddr;

/// The port, or the way to it.
pub(super) type Dgram = Lazy<DgramPort>;

impl Dgram {
    /// This machine's interfaces are others now.
    pub(super) fn follow(&mut self, interfaces: &Interfaces) {
        if let Some(port) = &mut self.port {
            dgram::follow(port, interfaces);
        }
    }

    /// Addresses that this machine has lost will not come back.
    pub(super) fn leave_old_addresses(&mut self) {
        if let Some(port) = &mut self.port {
            dgram::leave_old_addresses(port);
        }
    }

    /// Sets the nest on which threads sleep from now on.
    pub(super) fn wake_through(&mut self, nest: &Epoll, member: u8) -> io::Result<()> {
        match &mut self.port {
            Some(port) => dgram::wake_through(port, nest, member),
            None => Ok(()),
        }
    }

    /// The peers of its links have to be looked for.
    pub(super) fn asks(&self) -> bool {
        self.fabric().is_some_and(FabricDatagrams::asks)
    }

    /// Returns the origin of a link: an address of a fabric that is none of IP is known by the connection
    /// over which its holder has asked for ours.
    pub(super) fn origin(&self, link: LinkId) -> Option<Origin> {
        let address = self.port.as_ref()?.address(link)?;
        match (address, self.fabric()) {
            (AnyAddress::Fabric(name), Some(fabric)) if address.origin() == Origin::Unknown => {
                fabric.asker(&name).map(Origin::Address)
            }
            _ => Some(address.origin()),
        }
    }

    /// The source of endpoint addresses for the address exchange, if the port is open.
    #[inline]
    pub(super) fn endpoint_addresses(&mut self) -> Option<&mut dyn Addresses> {
        self.port.is_some().then_some(self as _)
    }

    fn fabric(&self) -> Option<&FabricDatagrams> {
        match &self.port.as_ref()?.datagrams().service {
            Service::Fabric(fabric) => Some(fabric),
            Service::Udp(_) => None,
        }
    }

    fn fabric_mut(&mut self) -> Option<&mut FabricDatagrams> {
        match &mut self.port.as_mut()?.datagrams_mut().service {
            Service::Fabric(fabric) => Some(fabric),
            Service::Udp(_) => None,
        }
    }
}

/// The provider's name in an endpoint address: the kernel's `udp` differs from libfabric's.
pub(super) fn provider(port: &DgramPort) -> &str {
    match &port.datagrams().service {
        Service::Fabric(fabric) => fabric.provider(),
        Service::Udp(_) => KERNEL,
    }
}

const KERNEL: &str = "kernel-udp";

/// Addresses are those of the command endpoint. The reliability layer identifies links by itself.
impl Addresses for Dgram {
    fn provider(&self) -> &str {
        &self.provider
    }

    fn endpoint_address(&self, _link: LinkId) -> Option<EndpointAddress> {
        let fabric = self.fabric()?;
        Some(EndpointAddress {
            provider: self.provider.clone(),
            format: fabric.address_format(),
            address: fabric.command_name().to_vec(),
            incarnation: 0,
            link: 0,
            cookie: 0,
            watched: false,
        })
    }

    fn answer(
        &mut self,
        theirs: &EndpointAddress,
        from: SocketAddr,
        _now: Instant,
    ) -> Result<(Option<LinkId>, EndpointAddress), Refusal> {
        if theirs.provider != self.provider {
            return Err(Refusal::Provider);
        }
        let ours = self
            .endpoint_address(LinkId::new(0, 0))
            .ok_or(Refusal::NoPort)?;
        if theirs.format != ours.format {
            return Err(Refusal::Format);
        }
        if let Some(fabric) = self.fabric_mut() {
            fabric.asked(&theirs.address, from);
        }
        Ok((None, ours))
    }

    fn greet(
        &mut self,
        (_link, target): (LinkId, Target),
        theirs: &EndpointAddress,
        _from: SocketAddr,
        _now: Instant,
    ) {
        let Some(fabric) = self.fabric_mut() else {
            return;
        };
        if theirs.format != fabric.address_format() {
            fabric.nowhere(target);
        } else if !fabric.found(target, &theirs.address) {
            log::debug!("{target:?}: its address is none of {}", theirs.provider);
        }
    }

    fn give_up(&mut self, (_link, target): (LinkId, Target), _reason: LinkDown) {
        if let Some(fabric) = self.fabric_mut() {
            fabric.nowhere(target);
        }
    }
}
