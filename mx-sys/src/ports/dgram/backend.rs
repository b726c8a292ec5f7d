//! One datagram service out of several, chosen when the port is opened.
//!
//! ```text
//!   Datagrams --+-- Plain  --+           +-- Udp       kernel sockets
//!               `-- Faulty --+-- Backend-+
//!                                        `-- Fabric    libfabric
//! ```
//!
//! Every call is a `match` and a call that the compiler knows, so that what is not used costs
//! nothing.
//!
//! Owns: nothing of its own.
//! Knows nothing of: what is in the datagrams.

use super::fabric::{FabricAddress, FabricDatagrams};
use super::faults::Faulty;
use super::udp::{Address, UdpDatagrams};
use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{Capacity, Channel, DatagramError, DatagramPort, Incoming, Train};
use mx_proto::{Instant, Target};

/// What carries datagrams.
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

/// An address of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnyAddress {
    /// Of kernel UDP.
    Udp(Address),
    /// Of a fabric.
    Fabric(FabricAddress),
}

/// The same, with faults or without.
#[allow(
    clippy::large_enum_variant,
    reason = "a port has one of it, which its packets go through"
)]
#[derive(Debug)]
pub enum Datagrams {
    /// As it is.
    Plain(Backend),
    /// Harmed on purpose.
    Faulty(Box<Faulty<Backend>>),
}

impl Backend {
    /// What it is called, for people.
    pub fn name(&self) -> &str {
        match self {
            Self::Udp(_) => "udp",
            Self::Fabric(fabric) => fabric.provider(),
        }
    }
}

impl Datagrams {
    /// What carries them.
    pub fn backend(&self) -> &Backend {
        match self {
            Self::Plain(backend) => backend,
            Self::Faulty(faulty) => faulty.inner(),
        }
    }

    /// The same, to change it.
    pub fn backend_mut(&mut self) -> &mut Backend {
        match self {
            Self::Plain(backend) => backend,
            Self::Faulty(faulty) => faulty.inner_mut(),
        }
    }
}

/// One call on whichever of `$kind` it is.
macro_rules! each {
    ($self:ident: $kind:ident { $($variant:ident),+ }, $inner:ident => $call:expr) => {
        match $self {
            $($kind::$variant($inner) => $call),+
        }
    };
}

impl DatagramPort for Backend {
    type Address = AnyAddress;

    fn resolve(&self, target: Target) -> Result<AnyAddress, ConnectError> {
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

    fn data_name(&self) -> &[u8] {
        each!(self: Self { Udp, Fabric }, it => it.data_name())
    }

    fn data_address(&mut self, command: AnyAddress, name: &[u8]) -> Option<AnyAddress> {
        match (self, command) {
            (Self::Udp(udp), AnyAddress::Udp(command)) => {
                udp.data_address(command, name).map(AnyAddress::Udp)
            }
            (Self::Fabric(fabric), AnyAddress::Fabric(command)) => {
                fabric.data_address(command, name).map(AnyAddress::Fabric)
            }
            // Addresses come from the service itself.
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

    fn capacity(&self, channel: Channel) -> Capacity {
        each!(self: Self { Udp, Fabric }, it => it.capacity(channel))
    }

    fn receive_buffer(&self) -> usize {
        each!(self: Self { Udp, Fabric }, it => it.receive_buffer())
    }

    #[inline]
    fn now(&self) -> Instant {
        each!(self: Self { Udp, Fabric }, it => it.now())
    }

    #[inline]
    fn send(
        &mut self,
        channel: Channel,
        to: AnyAddress,
        train: Train<'_>,
    ) -> Result<(), DatagramError> {
        match (self, to) {
            (Self::Udp(udp), AnyAddress::Udp(to)) => udp.send(channel, to, train),
            (Self::Fabric(fabric), AnyAddress::Fabric(to)) => fabric.send(channel, to, train),
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

    fn arm(&mut self) -> bool {
        each!(self: Self { Udp, Fabric }, it => it.arm())
    }

    fn disarm(&mut self) {
        each!(self: Self { Udp, Fabric }, it => it.disarm());
    }

    fn descriptors(&self) -> WakeDescriptors {
        each!(self: Self { Udp, Fabric }, it => it.descriptors())
    }
}

/// The same news with another kind of address.
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
        Incoming::Refused { to } => Incoming::Refused { to: name(to) },
        Incoming::TooLarge { to, most } => Incoming::TooLarge { to: name(to), most },
        Incoming::Found { at, is } => Incoming::Found {
            at: name(at),
            is: name(is),
        },
    }
}

impl DatagramPort for Datagrams {
    type Address = AnyAddress;

    fn resolve(&self, target: Target) -> Result<AnyAddress, ConnectError> {
        each!(self: Self { Plain, Faulty }, it => it.resolve(target))
    }

    #[inline]
    fn same_host(one: AnyAddress, other: AnyAddress) -> bool {
        Backend::same_host(one, other)
    }

    fn data_name(&self) -> &[u8] {
        each!(self: Self { Plain, Faulty }, it => it.data_name())
    }

    fn data_address(&mut self, command: AnyAddress, name: &[u8]) -> Option<AnyAddress> {
        each!(self: Self { Plain, Faulty }, it => it.data_address(command, name))
    }

    fn is_safe(&self, address: AnyAddress) -> bool {
        each!(self: Self { Plain, Faulty }, it => it.is_safe(address))
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        each!(self: Self { Plain, Faulty }, it => it.capacity(channel))
    }

    fn receive_buffer(&self) -> usize {
        each!(self: Self { Plain, Faulty }, it => it.receive_buffer())
    }

    #[inline]
    fn now(&self) -> Instant {
        each!(self: Self { Plain, Faulty }, it => it.now())
    }

    #[inline]
    fn send(
        &mut self,
        channel: Channel,
        to: AnyAddress,
        train: Train<'_>,
    ) -> Result<(), DatagramError> {
        each!(self: Self { Plain, Faulty }, it => it.send(channel, to, train))
    }

    #[inline]
    fn poll(&mut self, budget: usize, receive: impl FnMut(Incoming<'_, AnyAddress>)) -> bool {
        each!(self: Self { Plain, Faulty }, it => it.poll(budget, receive))
    }

    fn arm(&mut self) -> bool {
        each!(self: Self { Plain, Faulty }, it => it.arm())
    }

    fn disarm(&mut self) {
        each!(self: Self { Plain, Faulty }, it => it.disarm());
    }

    fn descriptors(&self) -> WakeDescriptors {
        each!(self: Self { Plain, Faulty }, it => it.descriptors())
    }
}
