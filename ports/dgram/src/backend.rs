//! The datagram service in use, chosen when the port is opened.
//!
//! ```text
//!   Backend --+-- Udp       kernel sockets
//!      ^      `-- Fabric    libfabric
//!   faults, on what is received, if there are any
//! ```
//!
//! Each call is a `match` and a static call, so the unused service costs nothing; nor do faults, but a branch.
//!
//! Not here: the contents of datagrams.

use super::fabric::{FabricAddress, FabricDatagrams};
use super::faults::Faults;
use super::udp::{Address, UdpDatagrams};
use mx_port_base::origin::Origin;
use mx_proto::origin::Source;
use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming};
use mx_proto::{Instant, Target};

/// A service that carries datagrams, and what becomes of those that it receives.
#[derive(Debug)]
pub struct Backend {
    /// The service.
    pub service: Service,
    pub(super) faults: Option<Box<Faults<AnyAddress>>>,
}

/// A kind of service.
#[allow(
    clippy::large_enum_variant,
    reason = "a port has one of it, which its packets go through"
)]
#[derive(Debug)]
pub enum Service {
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
        match &self.service {
            Service::Udp(_) => "udp",
            Service::Fabric(fabric) => fabric.provider(),
        }
    }
}

/// Makes the same call on whichever it is.
macro_rules! each {
    ($service:expr, $inner:ident => $call:expr) => {
        match $service {
            Service::Udp($inner) => $call,
            Service::Fabric($inner) => $call,
        }
    };
}

/// The same about an address, which is of this very service; `$otherwise` if it is not.
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
    fn poll(&mut self, budget: usize, mut receive: impl FnMut(Incoming<'_, AnyAddress>)) -> bool {
        let Some(faults) = &mut self.faults else {
            return self.service.poll(budget, receive);
        };
        let now = each!(&self.service, it => it.now());
        let mut any = faults.release(now, &mut receive);
        any |= self.service.poll(budget, |incoming| {
            faults.take_in(now, incoming, &mut receive);
        });
        any
    }

    fn drain_data(
        &mut self,
        budget: usize,
        mut receive: impl FnMut(Incoming<'_, AnyAddress>),
    ) -> bool {
        let Some(faults) = &mut self.faults else {
            return self.service.drain_data(budget, receive);
        };
        let now = each!(&self.service, it => it.now());
        self.service.drain_data(budget, |incoming| {
            faults.take_in(now, incoming, &mut receive);
        })
    }

    fn arm(&mut self) -> bool {
        // No wake-up would release held datagrams.
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
}

/// Converts the addresses.
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
