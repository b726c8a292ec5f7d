//! Datagram service in use, chosen when the port is opened.
//!
//! ```text
//!   Backend --+-- Udp       kernel sockets
//!      ^      `-- Fabric    libfabric
//!   fault injection on received datagrams, if configured
//! ```
//!
//! Each call is a `match` and a static call, so the unused service costs nothing; without faults, injection costs one
//! branch.
//!
//! Out of scope: the contents of datagrams.

use super::fabric::{FabricAddress, FabricDatagrams};
use super::faults::Faults;
use super::udp::{Address, UdpDatagrams};
use mx_port_base::origin::Origin;
use mx_proto::origin::Source;
use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{
    Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming, Received,
};
use mx_proto::{Instant, Target};

/// A service that carries datagrams, and the faults applied to those it receives.
#[derive(Debug)]
pub struct Backend {
    /// Service that carries the datagrams.
    pub service: Service,
    pub(super) faults: Option<Box<Faults<AnyAddress>>>,
}

/// Kinds of datagram services.
#[allow(
    clippy::large_enum_variant,
    reason = "a port has one of it, which its packets go through"
)]
#[derive(Debug)]
pub enum Service {
    /// Kernel UDP.
    Udp(UdpDatagrams),
    /// libfabric's `FI_EP_DGRAM`.
    Fabric(Box<FabricDatagrams>),
}

/// Address of either service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnyAddress {
    /// Address of kernel UDP.
    Udp(Address),
    /// Address on a fabric.
    Fabric(FabricAddress),
}

impl AnyAddress {
    /// Returns the origin of datagrams from this address; [`Origin::Unknown`] if a fabric's address contains no IP
    /// address. A session's origin is proven: only its holder can have received what was sent there.
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
    /// Returns the service's name for log lines.
    pub fn name(&self) -> &str {
        match &self.service {
            Service::Udp(_) => "udp",
            Service::Fabric(fabric) => fabric.provider(),
        }
    }
}

/// Makes the same call on either service.
macro_rules! each {
    ($service:expr, $inner:ident => $call:expr) => {
        match $service {
            Service::Udp($inner) => $call,
            Service::Fabric($inner) => $call,
        }
    };
}

/// Calls a function of the service that the address belongs to; `$otherwise` if that is not the one in use.
macro_rules! each_with {
    ($service:expr, $address:expr, ($inner:ident, $its:ident) => $call:expr, $otherwise:expr) => {
        match ($service, $address) {
            (Service::Udp($inner), AnyAddress::Udp($its)) => $call,
            (Service::Fabric($inner), AnyAddress::Fabric($its)) => $call,
            _ => $otherwise,
        }
    };
}

impl DatagramPort for Backend {
    type Address = AnyAddress;

    fn resolve(&mut self, target: Target) -> Result<AnyAddress, ConnectError> {
        match &mut self.service {
            Service::Udp(udp) => udp.resolve(target).map(AnyAddress::Udp),
            Service::Fabric(fabric) => fabric.resolve(target).map(AnyAddress::Fabric),
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
        each!(&self.service, it => it.data_name())
    }

    fn data_address(&mut self, command: AnyAddress, name: &[u8]) -> Option<AnyAddress> {
        match (&mut self.service, command) {
            (Service::Udp(udp), AnyAddress::Udp(command)) => {
                udp.data_address(command, name).map(AnyAddress::Udp)
            }
            (Service::Fabric(fabric), AnyAddress::Fabric(command)) => {
                fabric.data_address(command, name).map(AnyAddress::Fabric)
            }
            _ => None,
        }
    }

    fn is_safe(&self, address: AnyAddress) -> bool {
        let damages = self.faults.as_ref().is_some_and(|it| it.damages);
        !damages && each_with!(&self.service, address, (it, address) => it.is_safe(address), false)
    }

    fn is_cut_off(&self, address: AnyAddress) -> bool {
        each_with!(&self.service, address, (it, address) => it.is_cut_off(address), false)
    }

    fn refuses_at_once(&self, address: AnyAddress) -> bool {
        each_with!(&self.service, address, (it, address) => it.refuses_at_once(address), false)
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        each!(&self.service, it => it.capacity(channel))
    }

    fn receive_buffer(&self) -> usize {
        each!(&self.service, it => it.receive_buffer())
    }

    #[inline]
    fn now(&self) -> Instant {
        each!(&self.service, it => it.now())
    }

    #[inline]
    fn send(
        &mut self,
        channel: Channel,
        to: AnyAddress,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        let unreachable = Err(DatagramError::Unreachable);
        each_with!(&mut self.service, to, (it, to) => it.send(channel, to, batch), unreachable)
    }

    #[inline]
    fn begin(&mut self, budget: usize) {
        if let Some(faults) = &mut self.faults {
            faults.begin(each!(&self.service, it => it.now()));
            faults.release();
        }
        each!(&mut self.service, it => it.begin(budget));
    }

    fn begin_data(&mut self, budget: usize) {
        if let Some(faults) = &mut self.faults {
            faults.begin(each!(&self.service, it => it.now()));
        }
        each!(&mut self.service, it => it.begin_data(budget));
    }

    #[inline]
    fn next(&mut self) -> Received<AnyAddress> {
        let Self { service, faults } = self;
        let Some(faults) = faults else {
            return service.next();
        };
        loop {
            if let Some(incoming) = faults.next() {
                return Received::Incoming(incoming);
            }
            match service.next() {
                Received::Incoming(incoming) => faults.take_in(incoming, service.bytes()),
                Received::End { any, drained } => {
                    let any = any | faults.has_released();
                    return Received::End { any, drained };
                }
            }
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        let bytes = self.service.bytes();
        match &self.faults {
            None => bytes,
            Some(faults) => faults.bytes(bytes),
        }
    }

    fn arm(&mut self) -> bool {
        // Nothing would wake a sleeper to release held datagrams.
        let ready = each!(&mut self.service, it => it.arm());
        ready && self.faults.as_ref().is_none_or(|it| it.holds_nothing())
    }

    fn disarm(&mut self) {
        each!(&mut self.service, it => it.disarm());
    }

    fn descriptors(&self) -> WakeDescriptors {
        each!(&self.service, it => it.descriptors())
    }
}

impl Service {
    #[inline]
    fn next(&mut self) -> Received<AnyAddress> {
        match self {
            Self::Udp(udp) => of(udp.next(), AnyAddress::Udp),
            Self::Fabric(fabric) => of(fabric.next(), AnyAddress::Fabric),
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        each!(self, it => it.bytes())
    }
}

/// Converts the addresses of a received event.
#[inline]
fn of<A, B>(received: Received<A>, name: impl Fn(A) -> B) -> Received<B> {
    let incoming = match received {
        Received::Incoming(incoming) => incoming,
        Received::End { any, drained } => return Received::End { any, drained },
    };
    Received::Incoming(match incoming {
        Incoming::Datagrams {
            channel,
            from,
            segment,
        } => Incoming::Datagrams {
            channel,
            from: name(from),
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
    })
}
