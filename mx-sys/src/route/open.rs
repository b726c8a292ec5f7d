//! Opening an endpoint on this machine: its number is claimed on every port.
//!
//! ```text
//!   Exact(3)   Unix name "..-3"  and  TCP port base+3     both, or "endpoint 3 is in use"
//!   Any        TCP port of the kernel's choice, and the Unix name of that number
//!   Lowest     Exact(0), Exact(1), ... Exact(1023), the first that is free; then Any
//! ```
//!
//! Endpoint numbers are per machine: two boards of one machine cannot both have an endpoint 3. The board, or the
//! address, only selects the NIC id of the endpoint and the device of ports that have one (`interface`).
//!
//! ```text
//!   policy      rdm port
//!     rdm         opened, or opening the endpoint fails
//!     auto        opened if there is an adapter (`hardware`), else as the others
//!     the others  opened for the first address that asks for it
//! ```
//!
//! Without shared memory, `auto` becomes `rdm` if that port is opened, and `tcp` if not, but the Unix name is claimed
//! all the same and peers may connect through it.
//!
//! libfabric is loaded only when the rdm port is opened.
//!
//! Out of scope: links.

use super::host::HostPorts;
use super::interface::Interface;
use super::lazy::Lazy;
use crate::nic::{self, ResolveError};
use crate::secret_file::{self, SecretError};
use mx_port_base::Resolver;
use mx_port_base::descriptors::{self, DescriptorShortage};
use mx_port_base::endpoint_port::{EndpointRange, PortMap, SMALL_IDS};
use mx_port_base::limits::of_descriptors;
use mx_port_base::ports::{ROUTE_DGRAM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP};
use mx_port_base::random;
use mx_port_dgram::{self as dgram, DgramError, DgramOptions, DgramPort};
use mx_port_local::{LocalOptions, LocalPort};
use mx_port_rdm::{RdmOptions, RdmPort, hardware};
use mx_port_tcp::{TcpOptions, TcpPort};
use mx_proto::port::ConnectError;
use mx_proto::reliability::ReliableConfig;
use mx_proto::{EndpointId, Identity, Memory, Route, SessionId};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The endpoint number to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointChoice {
    /// The given number.
    Exact(EndpointId),
    /// Any free number.
    Any,
    /// The lowest free number below [`SMALL_IDS`]; if none is free, as [`Any`](Self::Any).
    Lowest,
}

/// Options for opening an endpoint.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Number of the endpoint's interface; `None`: the first, unless `address` names one.
    pub board: Option<u32>,
    /// Address of the endpoint's interface, which takes precedence over `board` and need not exist yet.
    pub address: Option<IpAddr>,
    /// Endpoint number.
    pub endpoint: EndpointChoice,
    /// Port for targets that do not ask for one ([`Route::AUTO`]: shared memory on this machine; to others libfabric if
    /// open, else TCP).
    pub policy: Route,
    /// Whether [`Route::AUTO`] uses shared memory on this machine.
    pub shared_memory: bool,
    /// Options of the port over shared memory.
    pub local: LocalOptions,
    /// Share of the remaining links and shared memory that one source may use, in percent, 1 to 100.
    pub source_share: u8,
    /// Mapping between endpoint numbers and TCP ports.
    pub ports: PortMap,
    /// The only address that TCP and datagrams listen on; `None`: all addresses.
    pub tcp_bind: Option<IpAddr>,
    /// File with the secret that peers have to know; `None`: no secret.
    pub secret_file: Option<PathBuf>,
    /// Time without a packet after which the kernel takes a TCP peer's machine for dead.
    pub tcp_keepalive: Duration,
    /// Maximum number of TCP connections for bulk data per session; 0: none.
    pub tcp_links: u32,
    /// Bytes of incomplete packets that all TCP links together may keep.
    pub tcp_kept_bytes: usize,
    /// Route over a port that must be open whatever the policy; [`Route::AUTO`]: none.
    pub required: Route,
    /// Options of the port over libfabric.
    pub rdm: RdmOptions,
    /// Options of the port over datagrams.
    pub dgram: DgramOptions,
}

impl OpenOptions {
    /// Returns the defaults: first interface, ports chosen by target, listening everywhere.
    pub fn new(endpoint: EndpointChoice) -> Self {
        Self {
            board: None,
            address: None,
            endpoint,
            policy: Route::AUTO,
            shared_memory: true,
            local: LocalOptions::default(),
            source_share: 50,
            ports: PortMap::default(),
            tcp_bind: None,
            secret_file: None,
            tcp_keepalive: Duration::from_secs(20),
            tcp_links: 1,
            tcp_kept_bytes: 2 << 20,
            required: Route::AUTO,
            rdm: RdmOptions::default(),
            dgram: DgramOptions::default(),
        }
    }
}

/// Reason why an endpoint cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The requested board (network interface) does not exist.
    Board(ResolveError),
    /// The endpoint number is out of range.
    Endpoint(EndpointRange),
    /// Another endpoint, of this or another process, has the number.
    InUse {
        /// Endpoint number.
        endpoint: EndpointId,
        /// TCP port, and UDP port if there is one.
        port: u16,
    },
    /// No endpoint number is free.
    NoneFree,
    /// The kernel rejects the listening address.
    Listen {
        /// Rejected address.
        address: SocketAddr,
        /// Error of the kernel.
        error: io::Error,
    },
    /// A transport that was requested by name, such as `rdm`, cannot be opened: its name, and the cause.
    Port(&'static str, Box<dyn Error + Send + Sync>),
    /// The site's shared secret, which authenticates peers, cannot be used.
    Secret(SecretError),
    /// Too few descriptors to serve a peer.
    Descriptors(DescriptorShortage),
    /// Descriptors, memory or random numbers are not available.
    System(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Board(error) => error.fmt(f),
            Self::Endpoint(error) => error.fmt(f),
            Self::InUse { endpoint, port } => {
                write!(f, "endpoint {} is in use (port {port})", endpoint.0)
            }
            Self::NoneFree => f.write_str("no endpoint number is free"),
            Self::Listen { address, error } => {
                write!(
                    f,
                    "cannot listen on {address}: {error}{}",
                    of_descriptors(error)
                )
            }
            Self::Port(name, error) => write!(f, "no {name} port: {error}"),
            Self::Secret(error) => error.fmt(f),
            Self::Descriptors(error) => error.fmt(f),
            Self::System(error) => write!(
                f,
                "no descriptors, memory or random numbers: {error}{}",
                of_descriptors(error)
            ),
        }
    }
}

impl Error for OpenError {}

/// Descriptors of an endpoint and one peer on the port that needs fewest. Checked first, so that one message says so,
/// whichever part would fail.
const LEAST_DESCRIPTORS: usize = 14;

/// Descriptors of a page of counters and of a peer: over shared memory its socket and the memory handed over, over rdm
/// two connections. With fewer, servers started and accepted no connection (`c_tests/bmi/no_syscalls.c`).
const PEERS_DESCRIPTORS: usize = 3;

/// Attempts to draw another number if the kernel's choice is taken on another port.
const DRAWS: u32 = 64;

impl<M: Memory + 'static> HostPorts<M> {
    /// Opens an endpoint on all ports of this machine, with a new session. Returns the ports and the endpoint's
    /// identity. The ports are boxed because they are large, and callers' stacks may be small.
    pub fn open(options: OpenOptions) -> Result<(Box<Self>, Identity), OpenError> {
        descriptors::room_for(LEAST_DESCRIPTORS).map_err(OpenError::Descriptors)?;
        let secret = options.secret_file.as_deref().map(secret_file::read);
        let secret = secret.transpose().map_err(OpenError::Secret)?;
        let of_board = nic::own_nic(options.board).map_err(OpenError::Board)?;
        let interface = Interface::asked_for(&options);
        let nic = match interface.address() {
            Some(address) if !address.is_loopback() => nic::remember(address),
            _ => of_board,
        };
        let claim = match options.endpoint {
            EndpointChoice::Exact(endpoint) => claim(&options, endpoint)?,
            EndpointChoice::Any => claim_any(&options)?,
            EndpointChoice::Lowest => claim_lowest(&options, SMALL_IDS)?,
        };
        let policies = (options.policy, options.required);
        let rdm = open_rdm(policies, options.rdm.clone(), interface)?;
        let session = random::nonzero().map_err(OpenError::System)?;
        let own = Identity {
            nic,
            endpoint: claim.endpoint,
            session: SessionId(session),
        };
        let mut ports = put_together(own, &options, claim, rdm)?;
        ports.stay_under(interface, options.rdm.device);
        if let Some(secret) = secret {
            ports.keep(secret);
        }
        descriptors::room_for(PEERS_DESCRIPTORS).map_err(OpenError::Descriptors)?;
        Ok((ports, own))
    }
}

/// Combines the ports of an endpoint.
#[inline(never)]
fn put_together<M: Memory + 'static>(
    own: Identity,
    options: &OpenOptions,
    claim: Box<Claim>,
    rdm: Lazy<M>,
) -> Result<Box<HostPorts<M>>, OpenError> {
    let local = shared_memory(options, own.endpoint, claim.local)?;
    let dgram = match claim.dgram {
        Some(port) => Lazy::open(port),
        None => dgram_later(options, claim.tcp.local_port()),
    };
    let policy = match options.policy {
        Route::AUTO if !options.shared_memory && rdm.offered => ROUTE_RDM,
        Route::AUTO if !options.shared_memory => ROUTE_TCP,
        policy => policy,
    };
    let ports = HostPorts::new(own, policy, options.ports, local, claim.tcp, [rdm, dgram]);
    ports.map(Box::new).map_err(OpenError::System)
}

/// Opens the port over libfabric now, leaves it for later, or fails if it is required.
#[inline(never)]
fn open_rdm<M: Memory + 'static>(
    (policy, required): (Route, Route),
    options: RdmOptions,
    interface: Interface,
) -> Result<Lazy<M>, OpenError> {
    let now = move |options: &RdmOptions| RdmOptions {
        device: interface.device(&options.device),
        ..options.clone()
    };
    let wanted = [policy, required].contains(&ROUTE_RDM);
    let adapters = match policy {
        Route::AUTO if !wanted => hardware::adapters(),
        _ => Vec::new(),
    };
    let names = adapters.join(", ");
    if wanted {
        let port = RdmPort::open(now(&options));
        let port = port.map_err(|error| OpenError::Port("rdm", error.into()))?;
        log::info!("rdm port over {}", port.provider());
        return Ok(Lazy::open(port));
    }
    if !adapters.is_empty() {
        let of_adapter = RdmOptions {
            hardware_only: true,
            ..now(&options)
        };
        match RdmPort::open(of_adapter) {
            Ok(port) => {
                log::info!("rdm port over {} ({names})", port.provider());
                return Ok(Lazy::open(port));
            }
            Err(error) => {
                log::warn!("using tcp instead of {names}: the rdm port cannot be opened: {error}")
            }
        }
    }
    let open = move || RdmPort::open(now(&options));
    Ok(Lazy::later("rdm", open, RdmPort::provider))
}

/// Returns the port over datagrams, to be opened for the first address that asks for it. Any UDP port serves: an
/// endpoint that peers are to find over datagrams has opened the port from the start.
fn dgram_later<M: Memory + 'static>(options: &OpenOptions, number: u16) -> Lazy<M> {
    let mut options = dgram_options(options, number);
    let open = move || match dgram::open(&options, resolver(options.ports)) {
        Err(DgramError::InUse(_)) => {
            options.port = 0;
            dgram::open(&options, resolver(options.ports))
        }
        other => other,
    };
    Lazy::later("dgram", open, |port: &DgramPort| port.datagrams().name())
}

fn dgram_options(options: &OpenOptions, port: u16) -> DgramOptions {
    DgramOptions {
        port,
        addresses: nic::socket_addresses,
        is_here: nic::has,
        bind: options.dgram.bind.or(options.tcp_bind),
        device: Interface::asked_for(options).address(),
        ports: options.ports,
        reliable: ReliableConfig {
            source_share: options.source_share,
            ..options.dgram.reliable
        },
        ..options.dgram.clone()
    }
}

/// An endpoint number and the ports claimed for it.
struct Claim {
    endpoint: EndpointId,
    /// An error if Unix sockets are not available.
    local: io::Result<LocalPort>,
    tcp: TcpPort,
    /// `None` unless the port is to be opened with the endpoint.
    dgram: Option<DgramPort>,
}

#[inline(never)]
fn claim(options: &OpenOptions, endpoint: EndpointId) -> Result<Box<Claim>, OpenError> {
    let port = options.ports.port(endpoint).map_err(OpenError::Endpoint)?;
    claim_number(options, (endpoint, port), || {
        listen(options, port).map_err(|error| match error {
            OpenError::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
                if options.endpoint == EndpointChoice::Exact(endpoint)
                    && let Some(advice) = ephemeral_advice(port)
                {
                    log::warn!("{advice}");
                }
                OpenError::InUse { endpoint, port }
            }
            other => other,
        })
    })
}

/// Explains who may hold a port that no endpoint has: the kernel gives ephemeral ports to connections and to
/// libfabric's listeners. `None` if `port` is not ephemeral.
fn ephemeral_advice(port: u16) -> Option<String> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let (low, high) = ephemeral_range(&range)?;
    (low..=high).contains(&port).then(|| {
        format!(
            "TCP port {port} is in use, but not by an endpoint: the kernel gives {low} to {high} to any \
             program, libfabric's listeners included; reserve it \
             (sysctl net.ipv4.ip_local_reserved_ports={port}) or choose another"
        )
    })
}

/// Parses net.ipv4.ip_local_port_range.
fn ephemeral_range(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[inline(never)]
fn claim_any(options: &OpenOptions) -> Result<Box<Claim>, OpenError> {
    for _ in 0..DRAWS {
        let tcp = listen(options, 0)?;
        let port = tcp.local_port();
        let Some(endpoint) = options.ports.endpoint(port) else {
            continue;
        };
        match claim_number(options, (endpoint, port), || Ok(tcp)) {
            Err(OpenError::InUse { .. }) => {}
            other => return other,
        }
    }
    Err(OpenError::NoneFree)
}

/// Claims a number on all ports. The Unix name comes first, so that two racing servers cannot each get half.
fn claim_number(
    options: &OpenOptions,
    (endpoint, port): (EndpointId, u16),
    listen: impl FnOnce() -> Result<TcpPort, OpenError>,
) -> Result<Box<Claim>, OpenError> {
    let local = claim_name(options, endpoint, port)?;
    let tcp = listen()?;
    Ok(Box::new(Claim {
        endpoint,
        local,
        tcp,
        dgram: claim_dgram(options, endpoint, port)?,
    }))
}

/// Claims the lowest free number below `end`, else any. A taken number costs a few system calls.
fn claim_lowest(options: &OpenOptions, end: u32) -> Result<Box<Claim>, OpenError> {
    for id in 0..end {
        match claim(options, EndpointId(id)) {
            Err(OpenError::InUse { .. }) => {}
            other => return other,
        }
    }
    claim_any(options)
}

/// Claims the Unix name. Only a name in use is an error of the endpoint.
fn claim_name(
    options: &OpenOptions,
    endpoint: EndpointId,
    port: u16,
) -> Result<io::Result<LocalPort>, OpenError> {
    let local = LocalOptions {
        share: options.source_share,
        ..options.local
    };
    match LocalPort::with_options(options.ports.base(), BOARD, endpoint.0, local) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(OpenError::InUse { endpoint, port })
        }
        other => Ok(other),
    }
}

/// Opens the port over datagrams if it is to exist from the start.
fn claim_dgram(
    options: &OpenOptions,
    endpoint: EndpointId,
    port: u16,
) -> Result<Option<DgramPort>, OpenError> {
    if ![options.policy, options.required].contains(&ROUTE_DGRAM) {
        return Ok(None);
    }
    match dgram::open(&dgram_options(options, port), resolver(options.ports)) {
        Ok(dgram) => {
            log::info!("dgram port over {}", dgram.datagrams().name());
            Ok(Some(dgram))
        }
        Err(DgramError::InUse(_)) => Err(OpenError::InUse { endpoint, port }),
        Err(error) => Err(OpenError::Port("dgram", error.into())),
    }
}

/// Returns the port over shared memory, or `None`, with a warning, if TCP can replace it.
fn shared_memory(
    options: &OpenOptions,
    endpoint: EndpointId,
    local: io::Result<LocalPort>,
) -> Result<Option<LocalPort>, OpenError> {
    match local {
        Ok(local) => Ok(Some(local)),
        Err(error)
            if options.policy == ROUTE_LOCAL
                || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) =>
        {
            Err(OpenError::System(error))
        }
        Err(error) => {
            log::warn!(
                "endpoint {}: shared memory is not available, using TCP only: {error}{}",
                endpoint.0,
                of_descriptors(&error)
            );
            Ok(None)
        }
    }
}

/// Board number of local ports: endpoint numbers are per machine.
pub(super) const BOARD: u32 = 0;

fn listen(options: &OpenOptions, port: u16) -> Result<TcpPort, OpenError> {
    let everywhere = [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    let here = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let addresses: &[IpAddr] = match &options.tcp_bind {
        // The number is claimed all the same, but only on the loopback.
        _ if options.policy == ROUTE_LOCAL => &here,
        Some(only) => std::slice::from_ref(only),
        None => &everywhere,
    };
    let listen: Vec<SocketAddr> = addresses
        .iter()
        .map(|ip| SocketAddr::new(*ip, port))
        .collect();
    let address = listen[0];
    let tcp = TcpOptions {
        dead_after: options.tcp_keepalive,
        data_links: options.tcp_links,
        kept_bytes: options.tcp_kept_bytes,
        source_share: options.source_share,
        ..TcpOptions::new(listen, resolver(options.ports))
    };
    TcpPort::open(tcp).map_err(|error| OpenError::Listen { address, error })
}

/// Returns the function that resolves a target to its listening addresses.
fn resolver(ports: PortMap) -> Resolver {
    Box::new(move |target| {
        let port = ports
            .port(target.endpoint)
            .map_err(|_| ConnectError::BadEndpoint)?;
        let addresses = nic::socket_addresses(target.nic, port);
        if addresses.is_empty() {
            Err(ConnectError::UnknownNic)
        } else {
            Ok(addresses.into_iter().collect())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::sync::atomic::{AtomicU16, Ordering};

    /// Returns options with a block of numbers that no other test uses.
    fn lowest() -> OpenOptions {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = 1024 + std::process::id() as u16 % 20_000 + 1024 * nth;
        OpenOptions {
            tcp_bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            ports: PortMap::new(base).unwrap(),
            ..OpenOptions::new(EndpointChoice::Lowest)
        }
    }

    fn open(options: &OpenOptions) -> (Box<HostPorts>, u32) {
        let (ports, identity) = HostPorts::open(options.clone()).unwrap();
        (ports, identity.endpoint.0)
    }

    fn has_secret(ports: &HostPorts) -> bool {
        let config = ports.endpoint_config(&mx_proto::Config::default());
        config.unwrap().secret.is_some()
    }

    #[test]
    fn unusable_secret_opens_nothing_and_a_usable_one_is_kept() {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let name = format!("mx_open_secret_{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = OpenOptions {
            secret_file: Some(path.clone()),
            ..lowest()
        };
        let refused = <HostPorts>::open(options.clone());
        assert!(matches!(refused, Err(OpenError::Secret(_))));
        let mut file = std::fs::OpenOptions::new();
        let file = file.write(true).create_new(true).mode(0o600).open(&path);
        file.unwrap().write_all(b"0123456789abcdef").unwrap();
        let kept = HostPorts::open(options).map(|(ports, _)| has_secret(&ports));
        std::fs::remove_file(&path).unwrap();
        assert!(kept.unwrap());
        assert!(!has_secret(&open(&lowest()).0));
    }

    /// Returns whether all `numbers` are in use.
    fn all_taken(options: &OpenOptions, mut numbers: std::ops::Range<u32>) -> bool {
        numbers.all(|id| {
            let taken = claim(options, EndpointId(id));
            matches!(taken, Err(OpenError::InUse { .. }))
        })
    }

    #[test]
    fn lowest_numbers_are_assigned_in_order_and_reused() {
        let options = lowest();
        let (_a, first) = open(&options);
        let (b, second) = open(&options);
        let (_c, third) = open(&options);
        assert!(first < second && second < third);
        // Other programs' ports may lie in the block.
        assert!(all_taken(&options, 0..third));
        drop(b);
        assert_eq!(open(&options).1, second);
    }

    #[test]
    fn a_number_of_which_anything_is_in_use_is_passed_over() {
        let options = lowest();
        let base = options.ports.base();
        let _name = LocalPort::open(base, BOARD, 0).unwrap();
        // If this fails, another process listens there.
        let _port = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 1));
        let (_held, third) = open(&options);
        assert!(third >= 2 && all_taken(&options, 0..third));
    }

    #[test]
    fn where_no_low_number_is_free_any_is_taken() {
        let options = lowest();
        let _names = [0, 1].map(|id| LocalPort::open(options.ports.base(), BOARD, id).unwrap());
        let claim = claim_lowest(&options, 2).unwrap();
        assert!(claim.endpoint.0 >= 2 && claim.local.is_ok() && claim.dgram.is_none());
        let port = options.ports.port(claim.endpoint);
        assert_eq!(port, Ok(claim.tcp.local_port()));
        let other = claim_lowest(&options, 0).unwrap();
        assert_ne!(other.endpoint, claim.endpoint);
    }

    #[test]
    fn number_with_a_taken_udp_port_is_skipped() {
        let mut options = lowest();
        let base = options.ports.base();
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, base)).unwrap();
        assert_eq!(claim_lowest(&options, 1).unwrap().endpoint, EndpointId(0));
        options.policy = ROUTE_DGRAM;
        let refused = claim(&options, EndpointId(0)).err().unwrap();
        assert!(matches!(refused, OpenError::InUse { port, .. } if port == base));
        let second = claim_lowest(&options, 3).unwrap();
        assert!(second.endpoint.0 > 0 && second.dgram.is_some());
        drop(taken);
        assert_eq!(claim_lowest(&options, 1).unwrap().endpoint, EndpointId(0));
        let any = claim_any(&options).unwrap();
        let bound = UdpSocket::bind((Ipv4Addr::LOCALHOST, any.tcp.local_port()));
        assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_port_that_the_kernel_gives_out_comes_with_advice() {
        assert_eq!(ephemeral_range("32768\t60999\n"), Some((32768, 60999)));
        assert_eq!(ephemeral_range("32768 all\n"), None);
        let ephemeral = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = ephemeral.local_addr().unwrap().port();
        let advice = ephemeral_advice(port).expect("the kernel chose it");
        assert!(advice.contains(&format!("net.ipv4.ip_local_reserved_ports={port}")));
        assert_eq!(ephemeral_advice(1023), None);
    }

    #[test]
    fn another_reason_than_being_in_use_ends_the_search() {
        let mut options = lowest();
        // Reserved for documentation (RFC 5737): no machine has it.
        let foreign = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        options.tcp_bind = Some(foreign);
        let error = <HostPorts>::open(options.clone()).unwrap_err();
        let first = SocketAddr::new(foreign, options.ports.base());
        assert!(
            matches!(&error, OpenError::Listen { address, .. } if *address == first),
            "{error}"
        );
    }
}
