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

/// Requested datagram service.
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
    /// Service to use.
    pub backend: BackendChoice,
    /// Only address of this machine to use; `None`: all of them.
    pub bind: Option<IpAddr>,
    /// Port number of the command channel over kernel UDP; 0: any.
    pub port: u16,
    /// Address of the interface for libfabric to use if `bind` is `None`.
    pub device: Option<IpAddr>,
    /// Mapping of endpoint ids to port numbers, equal in the whole cluster.
    pub ports: PortMap,
    /// Returns the addresses of an interface's machine with a port, best first; empty if unknown.
    pub addresses: fn(NicId, u16) -> Vec<SocketAddr>,
    /// Returns true if packets to the address do not leave this machine.
    pub is_here: fn(IpAddr) -> bool,
    /// Options of the reliability layer.
    pub reliable: ReliableConfig,
    /// Requested size of the kernel's receive buffer, in bytes.
    pub receive_buffer: usize,
    /// Faults injected on receive, for tests; `None`: no faults.
    pub faults: Option<FaultPlan>,
    /// Only libfabric provider to use; `None`: the best one.
    pub provider: Option<String>,
    /// Way in which threads wait for libfabric's completions.
    pub wait: Wait,
    /// libfabric to use; `None`: the installed one.
    pub library: Option<Library>,
}

/// Bytes that arrive in about two milliseconds at 40 Gbit/s, while the process is busy elsewhere.
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

/// Errors of opening the dgram port. An endpoint that requires this port fails to open; any other does without it.
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
