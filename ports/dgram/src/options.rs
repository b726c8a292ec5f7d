//! Options of the port, and errors of opening it.
//!
//! Out of scope: environment variables (`settings`).

use super::faults::FaultPlan;
use libfabric_sys::Library;
use mx_port_base::endpoint_port::PortMap;
use mx_port_fabric::RdmError;
use mx_port_fabric::Wait;
use mx_proto::NicId;
use mx_proto::reliability::ReliableConfig;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The requested service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackendChoice {
    /// Kernel UDP; libfabric if that is unavailable.
    #[default]
    Auto,
    /// Kernel UDP.
    Udp,
    /// libfabric.
    Fabric,
}

/// Options of the port.
#[derive(Clone, Debug)]
pub struct DgramOptions {
    /// The service to use.
    pub backend: BackendChoice,
    /// The only address of this machine to use, instead of all of them.
    pub bind: Option<IpAddr>,
    /// The port number of the command channel over kernel UDP; 0: any.
    pub port: u16,
    /// The address of the interface that libfabric is to use, where no other is to be used anyway.
    pub device: Option<IpAddr>,
    /// Maps endpoint numbers to port numbers.
    pub ports: PortMap,
    /// Returns the addresses of an interface's machine with a port, best first; empty if unknown.
    pub addresses: fn(NicId, u16) -> Vec<SocketAddr>,
    /// True when packets to the address do not leave this machine.
    pub is_here: fn(IpAddr) -> bool,
    /// Options of the reliability layer.
    pub reliable: ReliableConfig,
    /// The requested size of the kernel's receive buffer, in bytes.
    pub receive_buffer: usize,
    /// Faults injected on receive, for tests.
    pub faults: Option<FaultPlan>,
    /// The only libfabric provider to use.
    pub provider: Option<String>,
    /// The means by which threads wait for libfabric.
    pub wait: Wait,
    /// The library to use instead of the installed one.
    pub library: Option<Library>,
}

/// Two milliseconds at 40 Gbit/s: what arrives while the process is busy elsewhere.
const RECEIVE_BUFFER: usize = 8 << 20;

impl Default for DgramOptions {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Auto,
            bind: None,
            port: 0,
            device: None,
            ports: PortMap::default(),
            addresses: |_, port| vec![(Ipv4Addr::LOCALHOST, port).into()],
            is_here: |address| address.is_loopback(),
            reliable: ReliableConfig {
                supply: mx_reserve::SUPPLY,
                ..ReliableConfig::default()
            },
            receive_buffer: RECEIVE_BUFFER,
            faults: None,
            provider: None,
            wait: Wait::Fd,
            library: None,
        }
    }
}

/// The error of opening the dgram port: UDP port taken, UDP not available, or libfabric not usable. An endpoint
/// that must have this port fails to open with it; any other only lacks the port.
#[derive(Debug)]
pub enum DgramError {
    /// The UDP port is in use.
    InUse(u16),
    /// The kernel refuses sockets, descriptors or random numbers.
    Udp(io::Error),
    /// libfabric cannot be used.
    Fabric(RdmError),
}

impl fmt::Display for DgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(port) => write!(f, "UDP port {port} is in use"),
            Self::Udp(error) => write!(f, "cannot open UDP sockets: {error}"),
            Self::Fabric(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DgramError {}
