//! Packets over datagrams: the reliability layer over a datagram service.
//!
//! ```text
//!   Reliable            mx_proto::reliability: order, retransmission, windows
//!      |
//!   Faulty              faults: injected if MX_DGRAM_FAULTS is set
//!      |
//!   Backend             the service, chosen when the port is opened
//!      +-- udp          kernel sockets, everywhere
//!      `-- fabric       libfabric, where it has datagrams
//! ```
//!
//! Not here: links, packets.

mod backend;
pub mod fabric;
pub mod faults;
mod options;
pub mod udp;

pub use backend::{AnyAddress, Backend};
pub use options::{BackendChoice, DgramError, DgramOptions, Hosts};

use fabric::{FabricDatagrams, FabricOptions};
use faults::Faulty;
use mx_port_base::Resolver;
use mx_port_base::interfaces::Interfaces;
use mx_port_base::nest::Nest;
use mx_port_base::{numbers, random};
use mx_proto::reliability::{DatagramPort, Reliable, ReliableConfig};
use nix::sys::socket::SockaddrStorage;
use std::io;
use std::net::{IpAddr, SocketAddr};
use udp::{UdpDatagrams, UdpOptions};

/// The datagram port.
pub type DgramPort = Reliable<Faulty<Backend>>;

/// Opens the port with the command channel at `number`; 0: any.
pub fn open(
    options: &DgramOptions,
    number: u16,
    resolver: Resolver,
    hosts: Hosts,
) -> Result<DgramPort, DgramError> {
    let backend = match options.backend {
        BackendChoice::Udp => open_udp(options, number, resolver, hosts.is_here)?,
        BackendChoice::Fabric => open_fabric(options, number, hosts)?,
        BackendChoice::Auto => match open_udp(options, number, resolver, hosts.is_here) {
            Err(DgramError::Udp(error)) => {
                log::info!("no UDP sockets ({error}): trying libfabric");
                open_fabric(options, number, hosts).map_err(|_| DgramError::Udp(error))?
            }
            other => other?,
        },
    };
    if let Some(plan) = options.faults {
        log::warn!("datagrams get lost on purpose: {plan:?}");
    }
    let datagrams = Faulty::new(backend, options.faults);
    let key = random::key().map_err(DgramError::Udp)?;
    let config = ReliableConfig {
        port: numbers::DGRAM,
        ..options.reliable
    };
    Ok(Reliable::new(datagrams, config, key))
}

fn open_udp(
    options: &DgramOptions,
    number: u16,
    resolver: Resolver,
    is_here: fn(IpAddr) -> bool,
) -> Result<Backend, DgramError> {
    let udp = UdpOptions {
        bind: options.bind,
        port: number,
        resolver,
        is_here,
        receive_buffer: options.receive_buffer,
    };
    match UdpDatagrams::open(udp) {
        Ok(udp) => Ok(Backend::Udp(udp)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(DgramError::InUse(number)),
        Err(error) => Err(DgramError::Udp(error)),
    }
}

fn open_fabric(options: &DgramOptions, number: u16, hosts: Hosts) -> Result<Backend, DgramError> {
    let fabric = FabricOptions {
        bind: options.bind.or(options.device),
        port: number,
        provider: options.provider.clone(),
        ports: options.ports,
        addresses: hosts.addresses,
        ask: options.ask,
        wait: options.wait,
        library: options.library.clone(),
    };
    let fabric = FabricDatagrams::open(fabric).map_err(DgramError::Fabric)?;
    Ok(Backend::Fabric(Box::new(fabric)))
}

/// This machine's interfaces are others now.
pub fn follow(port: &mut DgramPort, interfaces: &Interfaces) {
    match port.datagrams_mut().inner_mut() {
        Backend::Udp(udp) => udp.follow(interfaces),
        Backend::Fabric(_) => {}
    }
}

/// Addresses that this machine has lost will not come back: the next poll takes down the links that go from
/// there.
pub fn leave_old_addresses(port: &mut DgramPort) {
    if let Backend::Udp(udp) = port.datagrams_mut().inner_mut() {
        udp.look_again();
        port.leave_old_addresses();
    }
}

/// Makes sleepers wait on this nest.
pub fn wake_through(port: &mut DgramPort, nest: &Nest, member: u8) -> io::Result<()> {
    match port.datagrams_mut().inner_mut() {
        Backend::Udp(udp) => nest.add(member, udp.descriptors().data),
        // libfabric's own descriptors are deeply nested already.
        Backend::Fabric(fabric) => fabric.wake_through(nest.as_fd()),
    }
}

/// The IP address and port that the kernel has written.
fn socket_address(name: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = name.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| Some(SocketAddr::V6((*name.as_sockaddr_in6()?).into())))
}
