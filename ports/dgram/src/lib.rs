//! Packets over datagrams: the reliability layer over a datagram service.
//!
//! ```text
//!   Reliable            mx_proto::reliability: order, retransmission, windows
//!      |
//!   faults              injected if MX_DGRAM_FAULTS is set
//!      |
//!   Backend             the service, chosen when the port is opened
//!      +-- udp          kernel sockets, everywhere
//!      `-- fabric       libfabric, where it has datagrams
//! ```
//!
//! Out of scope: links, packets.

mod backend;
mod endpoint_addresses;
pub mod fabric;
pub mod faults;
mod options;
pub mod udp;

pub use backend::{AnyAddress, Backend, Service};
pub use endpoint_addresses::{call, offer};
pub use options::{BackendChoice, DgramError, DgramOptions};

use fabric::FabricDatagrams;
use faults::Faults;
use mx_port_base::Resolver;
use mx_port_base::epoll::Epoll;
use mx_port_base::interfaces::Interfaces;
use mx_port_base::{ports, random};
use mx_proto::reliability::{DatagramPort, Reliable, ReliableConfig};
use nix::sys::socket::SockaddrStorage;
use std::io;
use std::net::SocketAddr;
use udp::UdpDatagrams;

/// Port over datagrams: the reliability layer over kernel UDP or libfabric's `FI_EP_DGRAM`.
pub type DgramPort = Reliable<Backend>;

/// Opens the port over the requested service; `Auto` tries libfabric if UDP sockets cannot be opened. `resolver` finds
/// peers for kernel UDP.
pub fn open(options: &DgramOptions, resolver: Resolver) -> Result<DgramPort, DgramError> {
    let service = match options.backend {
        BackendChoice::Udp => open_udp(options, resolver)?,
        BackendChoice::Fabric => open_fabric(options)?,
        BackendChoice::Auto => match open_udp(options, resolver) {
            Err(DgramError::Udp(error)) => {
                log::info!("cannot open UDP sockets ({error}): trying libfabric");
                open_fabric(options).map_err(|_| DgramError::Udp(error))?
            }
            other => other?,
        },
    };
    if let Some(plan) = options.faults {
        log::warn!("fault injection is on (MX_DGRAM_FAULTS): {plan:?}");
    }
    let faults = options.faults.map(|plan| Box::new(Faults::new(plan)));
    let key = random::key().map_err(DgramError::Udp)?;
    let config = ReliableConfig {
        port: ports::DGRAM,
        ..options.reliable
    };
    Ok(Reliable::new(Backend { service, faults }, config, key))
}

fn open_udp(options: &DgramOptions, resolver: Resolver) -> Result<Service, DgramError> {
    match UdpDatagrams::open(options, resolver) {
        Ok(udp) => Ok(Service::Udp(udp)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(DgramError::InUse(options.port))
        }
        Err(error) => Err(DgramError::Udp(error)),
    }
}

fn open_fabric(options: &DgramOptions) -> Result<Service, DgramError> {
    let fabric = FabricDatagrams::open(options.clone()).map_err(DgramError::Fabric)?;
    Ok(Service::Fabric(Box::new(fabric)))
}

/// Follows a change of this machine's interfaces; does nothing over libfabric. `settled` is false right after the
/// change, and true later, when addresses that were lost will not come back: the next poll then closes the links that
/// send from them.
pub fn follow(port: &mut DgramPort, interfaces: &Interfaces, settled: bool) {
    let Service::Udp(udp) = &mut port.datagrams_mut().service else {
        return;
    };
    if settled {
        udp.look_again();
        port.leave_old_addresses();
    } else {
        udp.follow(interfaces);
    }
}

/// Adds the port's descriptor, as member number `member` (`mx_port_base::nest`), to the epoll instance on which threads
/// sleep. libfabric's descriptors are added only when a thread is about to sleep, under a fixed number.
pub fn wake_through(port: &mut DgramPort, nest: &Epoll, member: u8) -> io::Result<()> {
    match &mut port.datagrams_mut().service {
        Service::Udp(udp) => nest.join(member, udp.descriptors().data),
        // libfabric's own descriptors are already deeply nested, so it adds them directly.
        Service::Fabric(fabric) => fabric.wake_through(nest.as_fd()),
    }
}

/// Returns the IP address and port of a socket address that the kernel has written.
fn socket_address(name: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = name.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| Some(SocketAddr::V6((*name.as_sockaddr_in6()?).into())))
}
