//! Packets over datagrams that get lost: the reliability layer over whatever carries datagrams.
//!
//! ```text
//!   Reliable            mx_proto::reliability: order, resends, windows
//!      |
//!   Datagrams           backend: which one, decided once
//!      |  faults        loss on purpose, when MX_DGRAM_FAULTS asks for it
//!      +-- udp          kernel sockets, everywhere
//!      `-- fabric       libfabric, where it has datagrams
//! ```
//!
//! Owns: the choice.
//! Knows nothing of: links, packets.

mod backend;
pub mod fabric;
pub mod faults;
mod options;
pub mod udp;

pub use backend::{AnyAddress, Backend, Datagrams};
pub use options::{BackendChoice, DgramError, DgramOptions};

use crate::ports::nest::Nest;
use crate::ports::tcp::Resolver;
use crate::random;
use fabric::{FabricDatagrams, FabricOptions};
use faults::Faulty;
use mx_proto::reliability::{DatagramPort, Reliable};
use std::io;
use udp::{UdpDatagrams, UdpOptions};

/// The port.
pub type DgramPort = Reliable<Datagrams>;

/// Opens the port with the command channel at `number`; 0: wherever.
pub(super) fn open(
    options: &DgramOptions,
    number: u16,
    resolver: Resolver,
) -> Result<DgramPort, DgramError> {
    let backend = match options.backend {
        BackendChoice::Udp => open_udp(options, number, resolver)?,
        BackendChoice::Fabric => open_fabric(options, number)?,
        BackendChoice::Auto => match open_udp(options, number, resolver) {
            Err(DgramError::Udp(error)) => {
                log::info!("no UDP sockets ({error}): trying libfabric");
                open_fabric(options, number).map_err(|_| DgramError::Udp(error))?
            }
            other => other?,
        },
    };
    let datagrams = match options.faults {
        None => Datagrams::Plain(backend),
        Some(plan) => {
            log::warn!("datagrams get lost on purpose: {plan:?}");
            Datagrams::Faulty(Box::new(Faulty::new(backend, plan)))
        }
    };
    let key = random::key().map_err(DgramError::Udp)?;
    Ok(Reliable::new(datagrams, options.reliable, key))
}

fn open_udp(
    options: &DgramOptions,
    number: u16,
    resolver: Resolver,
) -> Result<Backend, DgramError> {
    let udp = UdpOptions {
        bind: options.bind,
        port: number,
        resolver,
        receive_buffer: options.receive_buffer,
    };
    match UdpDatagrams::open(udp) {
        Ok(udp) => Ok(Backend::Udp(udp)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(DgramError::InUse(number)),
        Err(error) => Err(DgramError::Udp(error)),
    }
}

fn open_fabric(options: &DgramOptions, number: u16) -> Result<Backend, DgramError> {
    let fabric = FabricOptions {
        bind: options.bind,
        port: number,
        provider: options.provider.clone(),
        ports: options.ports,
        ask: options.ask,
        wait: options.wait,
        library: options.library.clone(),
    };
    let fabric = FabricDatagrams::open(fabric).map_err(DgramError::Fabric)?;
    Ok(Backend::Fabric(Box::new(fabric)))
}

/// From now on, whoever sleeps does so on this nest.
pub(super) fn wake_through(port: &mut DgramPort, nest: &Nest, member: u8) -> io::Result<()> {
    match port.datagrams_mut().backend_mut() {
        Backend::Udp(udp) => nest.add(member, udp.descriptors().data),
        // Its own descriptors are nested deep already.
        Backend::Fabric(fabric) => fabric.wake_through(nest.as_fd()),
    }
}
