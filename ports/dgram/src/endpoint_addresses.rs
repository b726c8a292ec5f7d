//! Endpoint addresses of datagrams over a fabric, for the address exchange.
//!
//! ```text
//!   a link of ours --> address known? no: the address exchange asks for it --> found, or nowhere
//! ```
//!
//! An endpoint address is that of the command endpoint. The reliability layer identifies links by itself, so answering makes none.

use super::{Backend, FabricDatagrams, Service};
use mx_port_fabric::Addresses;
use mx_port_fabric::endpoint_address::{EndpointAddress, Refusal};
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId, Target};
use std::net::SocketAddr;

/// Provider's name of kernel UDP, which differs from libfabric's `udp`.
const KERNEL: &str = "kernel-udp";

impl Backend {
    /// The service over libfabric, if that is the one in use.
    pub fn fabric(&self) -> Option<&FabricDatagrams> {
        match &self.service {
            Service::Fabric(fabric) => Some(fabric),
            Service::Udp(_) => None,
        }
    }
}

impl Addresses for Backend {
    fn provider(&self) -> &str {
        self.fabric().map_or(KERNEL, FabricDatagrams::provider)
    }

    fn asks(&self) -> bool {
        self.fabric().is_some_and(FabricDatagrams::asks)
    }

    fn endpoint_address(&self, _link: LinkId) -> Option<EndpointAddress> {
        let fabric = self.fabric()?;
        Some(EndpointAddress {
            provider: fabric.provider().to_owned(),
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
        if theirs.provider != self.provider() {
            return Err(Refusal::Provider);
        }
        let ours = self
            .endpoint_address(LinkId::new(0, 0))
            .ok_or(Refusal::NoPort)?;
        if theirs.format != ours.format {
            return Err(Refusal::Format);
        }
        if let Service::Fabric(fabric) = &mut self.service {
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
        let Service::Fabric(fabric) = &mut self.service else {
            return;
        };
        if theirs.format != fabric.address_format() {
            fabric.nowhere(target);
        } else if !fabric.found(target, &theirs.address) {
            log::debug!("{target:?}: its address is none of {}", theirs.provider);
        }
    }

    fn give_up(&mut self, (_link, target): (LinkId, Target), _reason: LinkDown) {
        if let Service::Fabric(fabric) = &mut self.service {
            fabric.nowhere(target);
        }
    }
}
