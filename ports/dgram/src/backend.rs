//! The datagram service in use, chosen when the port is opened.
//!
//! ```text
//!   Backend --+-- Udp       kernel sockets
//!             `-- Fabric    libfabric
//! ```
//!
//! Each call is a `match` and a static call, so the unused service costs nothing.
//!
//! Not here: the contents of datagrams.

use super::fabric::{FabricAddress, FabricDatagrams};
use super::udp::{Address, UdpDatagrams};
use mx_port_base::origin::Origin;
use mx_proto::origin::Source;
use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming};
use mx_proto::{Instant, Target};

/// A service that carries datagrams.
#[allow(
    clippy::large_enum_variant,
    reason = "a port has one of it, which its packets go through"
)]
#[derive(Debug)]
pub enum Backend {
    /// Kernel UDP.
    Udp(UdpDatagrams),
    /// libfabric.
    Fabric(Box<FabricDatagrams>),
}

/// An address of either service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnyAddress {
    /// An address of kernel UDP.
    Udp(Address),
    /// An address on a fabric.
    Fabric(FabricAddress),
}

impl AnyAddress {
    /// The origin of what comes from this address. It is proven for a session: only its holder can
    /// have received what was sent there.
    pub fn origin(self) -> Origin {
        match self {
            Self::Udp(address) => Origin::Address(address.socket_address()),
            Self::Fabric(address) => {
                let address = address.ip().zip(address.port());
                address.map_or(Origin::Unknown, |address| Origin::Address(address.into()))
            }
        }
    }
}

impl Backend {
    /// The name for log lines.
    pub fn name(&self) -> &str {
        match self {
            Self::Udp(_) => "udp",
            Self::Fabric(fabric) => fabric.provider(),
        }
    }
}

/// Makes the same call on whichever it is.
macro_rules! each {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self {
            Self::Udp($inner) => $call,
            Self::Fabric($inner) => $call,
        }
    };
}

impl DatagramPort for Backend {
    type Address = AnyAddress;

    fn resolve(&mut self, target: Target) -> Result<AnyAddress, ConnectError> {
        match self {
            Self::Udp(udp) => udp.resolve(target).map(AnyAddress::Udp),
            Self::Fabric(fabric) => fabric.resolve(target).map(AnyAddress::Fabric),
        }
    }

    #[inline]
    fn same_host(one: AnyAddress, other: AnyAddress) -> bool {
        match (one, other) {
            (AnyAddress::Udp(one), AnyAddress::Udp(other)) => UdpDatagrams::same_host(one, other),
            _ => one == other,
        }
    }

    fn source(address: AnyAddress) -> Source {
        address.origin().source()
    }

    fn data_name(&self) -> &[u8] {
        each!(self, it => it.data_name())
    }

    fn data_address(&mut self, command: AnyAddress, name: &[u8]) -> Option<AnyAddress> {
        match (self, command) {
            (Self::Udp(udp), AnyAddress::Udp(command)) => {
                udp.data_address(command, name).map(AnyAddress::Udp)
            }
            (Self::Fabric(fabric), AnyAddress::Fabric(command)) => {
                fabric.data_address(command, name).map(AnyAddress::Fabric)
            }
            // Addresses come from this very service.
            _ => None,
        }
    }

    fn is_safe(&self, address: AnyAddress) -> bool {
        match (self, address) {
            (Self::Udp(udp), AnyAddress::Udp(address)) => udp.is_safe(address),
            (Self::Fabric(fabric), AnyAddress::Fabric(address)) => fabric.is_safe(address),
            _ => false,
        }
    }

    fn is_cut_off(&self, address: AnyAddress) -> bool {
        match (self, address) {
            (Self::Udp(udp), AnyAddress::Udp(address)) => udp.is_cut_off(address),
            _ => false,
        }
    }

    fn refuses_at_once(&self, address: AnyAddress) -> bool {
        match (self, address) {
            (Self::Udp(udp), AnyAddress::Udp(address)) => udp.refuses_at_once(address),
            (Self::Fabric(fabric), AnyAddress::Fabric(address)) => fabric.refuses_at_once(address),
            _ => false,
        }
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        each!(self, it => it.capacity(channel))
    }

    fn receive_buffer(&self) -> usize {
        each!(self, it => it.receive_buffer())
    }

    #[inline]
    fn now(&self) -> Instant {
        each!(self, it => it.now())
    }

    #[inline]
    fn send(
        &mut self,
        channel: Channel,
        to: AnyAddress,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        match (self, to) {
            (Self::Udp(udp), AnyAddress::Udp(to)) => udp.send(channel, to, batch),
            (Self::Fabric(fabric), AnyAddress::Fabric(to)) => fabric.send(channel, to, batch),
            _ => Err(DatagramError::Unreachable),
        }
    }

    #[inline]
    fn poll(&mut self, budget: usize, mut receive: impl FnMut(Incoming<'_, AnyAddress>)) -> bool {
        match self {
            Self::Udp(udp) => udp.poll(budget, |incoming| receive(of(incoming, AnyAddress::Udp))),
            Self::Fabric(fabric) => {
                fabric.poll(budget, |incoming| receive(of(incoming, AnyAddress::Fabric)))
            }
        }
    }

    fn drain_data(
        &mut self,
        budget: usize,
        mut receive: impl FnMut(Incoming<'_, AnyAddress>),
    ) -> bool {
        match self {
            Self::Udp(udp) => {
                udp.drain_data(budget, |incoming| receive(of(incoming, AnyAddress::Udp)))
            }
            Self::Fabric(fabric) => {
                fabric.drain_data(budget, |incoming| receive(of(incoming, AnyAddress::Fabric)))
            }
        }
    }

    fn arm(&mut self) -> bool {
        each!(self, it => it.arm())
    }

    fn disarm(&mut self) {
        each!(self, it => it.disarm());
    }

    fn descriptors(&self) -> WakeDescriptors {
        each!(self, it => it.descriptors())
    }
}

/// Converts the address in a lookup's answer.
#[inline]
fn of<A, B>(incoming: Incoming<'_, A>, name: impl Fn(A) -> B) -> Incoming<'_, B> {
    match incoming {
        Incoming::Datagrams {
            channel,
            from,
            bytes,
            segment,
        } => Incoming::Datagrams {
            channel,
            from: name(from),
            bytes,
            segment,
        },
        Incoming::Refused { to, quote } => Incoming::Refused {
            to: name(to),
            quote,
        },
        Incoming::TooLarge { to, most, quote } => Incoming::TooLarge {
            to: name(to),
            most,
            quote,
        },
        Incoming::NotFound { at } => Incoming::NotFound { at: name(at) },
        Incoming::Found { at, is } => Incoming::Found {
            at: name(at),
            is: name(is),
        },
    }
}
