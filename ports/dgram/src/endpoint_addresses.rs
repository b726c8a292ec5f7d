//! Endpoint addresses of datagrams over a fabric, for sessions that move to it.
//!
//! An endpoint address names the command endpoint. The reliability layer identifies links by itself, so an offer
//! creates no link.

use super::{AnyAddress, Backend, DgramPort, FabricDatagrams, Service};
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_proto::port::MoveRefusal;
use mx_proto::{Instant, LinkId};

impl Backend {
    /// Returns the service over libfabric; `None` if another is in use.
    pub fn fabric(&self) -> Option<&FabricDatagrams> {
        match &self.service {
            Service::Fabric(fabric) => Some(fabric),
            Service::Udp(_) => None,
        }
    }
}

/// Returns our endpoint address, encoded, for a peer whose session may move here; creates no link. Fails if the port is
/// over kernel UDP.
pub fn offer(port: &DgramPort) -> Result<Vec<u8>, MoveRefusal> {
    let fabric = port.datagrams().fabric().ok_or(MoveRefusal::Failed)?;
    let address = EndpointAddress {
        provider: fabric.provider().to_owned(),
        format: fabric.address_format(),
        address: fabric.command_name().to_vec(),
        link: 0,
        cookie: 0,
    };
    Ok(address.emit())
}

/// Starts a link to the peer that has offered this address. Fails with [`MoveRefusal::Differs`] if its provider or
/// address format is another, with `Full` if there is no room, else with `Failed`.
pub fn call(port: &mut DgramPort, address: &[u8], now: Instant) -> Result<LinkId, MoveRefusal> {
    let fabric = port.datagrams().fabric().ok_or(MoveRefusal::Failed)?;
    let theirs = EndpointAddress::parse(address).ok_or(MoveRefusal::Differs)?;
    if !theirs.is_on(fabric.provider(), fabric.address_format()) {
        return Err(MoveRefusal::Differs);
    }
    let name = fabric.whole(&theirs.address).ok_or(MoveRefusal::Failed)?;
    let link = port.call_at(AnyAddress::Fabric(name), now);
    link.map_err(|_| MoveRefusal::Full)
}
