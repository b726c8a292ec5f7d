//! How the port is opened, and why it cannot be.
//!
//! Knows nothing of: environment variables (`settings`).

use super::faults::FaultPlan;
use libfabric_sys::Library;
use mx_port_base::endpoint_port::PortMap;
use mx_port_base::reserve;
use mx_port_fabric::RdmError;
use mx_port_fabric::Wait;
use mx_proto::NicId;
use mx_proto::reliability::ReliableConfig;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// What carries the datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackendChoice {
    /// Kernel UDP; libfabric where that cannot be had.
    #[default]
    Auto,
    /// Kernel UDP.
    Udp,
    /// libfabric.
    Fabric,
}

/// What an administrator decides about the port.
#[derive(Clone, Debug)]
pub struct DgramOptions {
    /// What carries the datagrams.
    pub backend: BackendChoice,
    /// The only address of this host to use, instead of all of them.
    pub bind: Option<IpAddr>,
    /// Endpoint numbers and port numbers.
    pub ports: PortMap,
    /// The reliability layer.
    pub reliable: ReliableConfig,
    /// Bytes of data the kernel is asked to keep until they are taken in.
    pub receive_buffer: usize,
    /// Harm to what is received, for tests.
    pub faults: Option<FaultPlan>,
    /// The only provider of libfabric that will do.
    pub provider: Option<String>,
    /// Peers are asked over TCP where they are on the fabric, also where host and number say it. All
    /// peers do so, or none.
    pub ask: bool,
    /// How threads wait for libfabric.
    pub wait: Wait,
    /// libfabric, instead of the one that is installed.
    pub library: Option<Library>,
}

/// What the process knows about hosts.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// Where an interface's host can be reached at a port, best first; empty: nobody knows.
    pub addresses: fn(NicId, u16) -> Vec<SocketAddr>,
    /// True when packets to the address do not leave this machine.
    pub is_here: fn(IpAddr) -> bool,
}

/// Two milliseconds of 40 Gbit/s: what arrives while a process does something else for a while.
const RECEIVE_BUFFER: usize = 8 << 20;

impl Default for DgramOptions {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Auto,
            bind: None,
            ports: PortMap::default(),
            reliable: ReliableConfig {
                supply: reserve::SUPPLY,
                ..ReliableConfig::default()
            },
            receive_buffer: RECEIVE_BUFFER,
            faults: None,
            provider: None,
            ask: false,
            wait: Wait::Fd,
            library: None,
        }
    }
}

/// Why the port cannot be opened. Other ports are not affected.
#[derive(Debug)]
pub enum DgramError {
    /// Somebody has the UDP number.
    InUse(u16),
    /// The kernel will not open sockets, or there are no descriptors or random numbers.
    Udp(io::Error),
    /// libfabric cannot be used.
    Fabric(RdmError),
}

impl fmt::Display for DgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(port) => write!(f, "UDP port {port} is in use"),
            Self::Udp(error) => write!(f, "no UDP sockets: {error}"),
            Self::Fabric(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DgramError {}
