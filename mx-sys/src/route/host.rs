//! All ports of a machine behind one.
//!
//! ```text
//!   control nest {local, tcp}    data nest {control, loopback, local's links, tcp, dgram, rdm's while
//!                                           it is armed}
//!   a link's name says whose it is ([`LinkId::port`])
//! ```
//!
//! `choice` says which ports may carry a link. A link over rdm begins with an address exchange over TCP
//! (`address_exchange`), which the endpoint does not see, and so does one over datagrams where addresses do
//! not follow from host and number.
//!
//! A port without a link is *quiet*: it is not polled, so that TCP costs nothing to a process that
//! uses only shared memory. It is polled again when its control descriptor is readable: a sleeping
//! thread reports that ([`HostPorts::note_control`]), and polls check it within a few milliseconds.
//! The rdm port may have work without a link, which arming it reports. The dgram port, which has no
//! control descriptor, is polled now and then for strangers.
//!
//! The ports follow this machine's interfaces ([`HostPorts::follow`]):
//!
//! ```text
//!   the kernel says so, or a connect begins --> other ones?  at once: the list; what had no link
//!                                                            1 s later: links of what is gone end
//! ```
//!
//! Owns: the ports.

use super::dgram::Dgram;
use mx_port_dgram::{self as dgram, DgramPort};
use mx_port_local::LocalPort;

use super::address_exchange::AddressExchange;
use super::choice::{Location, choose};
use super::interface::Interface;
use super::lazy::Lazy;
use super::loopback::LoopbackPort;
use super::open::BOARD;
use super::round::Round;
use super::seen::seen;
use crate::nic::{self, Watching};
use mx_port_base::cancellation::Off;
use mx_port_base::endpoint_port::PortMap;
use mx_port_base::epoll::Epoll;
use mx_port_base::nest;
use mx_port_base::netlink::Watch;
use mx_port_base::origin::Origin;
use mx_port_base::ports::{self, DGRAM, LOCAL, LOOPBACK, PORTS, RDM, ROUTE_TCP, TCP};
use mx_port_base::random;
use mx_port_rdm::{Device, FabricPort, RdmPort};
use mx_port_tcp::TcpPort;
use mx_proto::origin::Seen;
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, LinkFigures, PACKET_LEAST, Port,
    RemoteMemory, SendError, Sent, WakeDescriptors,
};
use mx_proto::round::Rounds;
use mx_proto::secret::{Binding, Secret};
use mx_proto::{Config, Identity, Instant, Key, LinkId, Memory, NicId, Route, Target};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A member of the data nest, beside the ports: the control nest.
const CONTROL: u8 = PORTS.len() as u8;

/// A member of the control nest, beside the ports: the kernel's word that interfaces have changed.
const INTERFACES: u8 = CONTROL + 1;

/// An address that is gone may come back within this time, and links that go from it stay: a service of the
/// machine that starts anew takes all of them away for a moment.
const SETTLE: Duration = Duration::from_secs(1);

/// Every so many polls look at everything, and not only at links through shared memory that were active
/// lately: at other ports, which cost system calls, and what is quiet. Where there are no such links every
/// poll does so, and then every so many look at what is worth less than that.
pub(super) const ROUND: u32 = 16;

/// Interval between two checks of quiet ports' control descriptors: the first and the longest. It
/// doubles while there are no events. Long against the cost of the system call, short against
/// making a connection; threads that sleep on the descriptors do not wait for it.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// The ports of one endpoint. `R` is the one over libfabric, or what stands for it in a test.
#[derive(Debug)]
pub struct HostPorts<R = RdmPort> {
    own: Identity,
    policy: Route,
    map: PortMap,
    pub(super) loopback: LoopbackPort,
    /// `None` where Unix sockets cannot be had.
    pub(super) local: Option<LocalPort>,
    pub(super) tcp: TcpPort,
    pub(super) rdm: Lazy<R>,
    pub(super) dgram: Dgram,
    pub(super) exchange: AddressExchange,
    interface: Interface,
    /// The device that options ask for.
    device: Device,
    /// Wakes this endpoint; the list itself is the process's.
    watch: Watch,
    _watching: Watching,
    /// The number of changes of the interfaces when the ports were last told.
    followed: u64,
    /// From then on what is gone will not come back.
    settled_at: Option<Instant>,
    secret: Option<Secret>,
    /// Bits of the ports that are quiet, by number.
    quiet: u8,
    /// The next poll looks at the control descriptors.
    pub(super) look: bool,
    /// The kernel has just told what there is: the next poll does not ask.
    pub(super) told: bool,
    /// Polls so far. A sleeper begins with one that is a round. 0 for ever once descriptors are lost.
    pub(super) turn: u32,
    /// The host has closed descriptors: they are used no more.
    pub(super) lost: bool,
    next_look: Instant,
    look_every: Duration,
    /// All ports that are not quiet are armed ...
    armed: bool,
    /// ... and more has been done with them since than sending through shared memory.
    pub(super) touched: bool,
    control: Epoll,
    data: Epoll,
    pub(super) round: Round,
    /// No other data nest of this process has it.
    number: u64,
}

/// The order in which ports are armed: those first for which it is cheap.
const ARMING: [u8; PORTS.len()] = [LOOPBACK, TCP, LOCAL, RDM, DGRAM];

/// Data nests so far.
static NESTS: AtomicU64 = AtomicU64::new(0);

/// The limits of a link of a port that is not open.
const NO_LIMITS: Limits = Limits {
    packet_max: PACKET_LEAST,
    streamed_max: 0,
    data_max: 4 << 10,
    pull_block: 4 << 10,
    remote_read: false,
    refusal_ends_link: false,
    data_links: false,
};

/// A port by its number, if it is open.
macro_rules! by_number {
    ($self:ident, $number:ident, $get:ident $(, $mut:tt)?) => {
        match $number {
            LOCAL => $self.local.$get().map(|port| port as _),
            TCP => Some(&$($mut)? $self.tcp),
            LOOPBACK => Some(&$($mut)? $self.loopback),
            RDM => $self.rdm.port.$get().map(|port| port as _),
            DGRAM => $self.dgram.port.$get().map(|port| port as _),
            _ => None,
        }
    };
}

impl<R: FabricPort> HostPorts<R> {
    /// Puts opened ports together; [`HostPorts::open`] opens them.
    pub(super) fn new(
        own: Identity,
        policy: Route,
        map: PortMap,
        local: Option<LocalPort>,
        tcp: TcpPort,
        mut rdm: Lazy<R>,
        mut dgram: Dgram,
    ) -> io::Result<Self> {
        let loopback = LoopbackPort::new()?;
        let control = Epoll::new()?;
        let data = match &local {
            Some(local) => Epoll::of(local.data())?,
            None => Epoll::new()?,
        };
        let add = |member, fds: WakeDescriptors| {
            control.join(member, fds.control)?;
            data.join(member, fds.data)
        };
        if let Some(local) = &local {
            control.join(LOCAL, local.descriptors().control)?;
        }
        let watch = Watch::new();
        control.join(INTERFACES, watch.raw())?;
        data.join(CONTROL, Some(control.raw()))?;
        add(TCP, tcp.descriptors())?;
        add(LOOPBACK, loopback.descriptors())?;
        if let Some(rdm) = &mut rdm.port {
            rdm.wake_through(data.as_fd())?;
        }
        dgram.wake_through(&data, DGRAM)?;
        let exchange = AddressExchange::new(tcp.places());
        Ok(Self {
            own,
            policy,
            map,
            loopback,
            local,
            tcp,
            rdm,
            dgram,
            exchange,
            interface: Interface::default(),
            device: Device::default(),
            watch,
            _watching: Watching::begin(),
            followed: nic::look_again(),
            settled_at: None,
            secret: None,
            quiet: 1 << LOCAL | 1 << TCP | 1 << RDM,
            look: true,
            told: false,
            turn: 0,
            lost: false,
            next_look: Instant(0),
            look_every: LOOK_EVERY.0,
            armed: false,
            touched: false,
            control,
            data,
            round: Round::new(),
            number: NESTS.fetch_add(1, Ordering::Relaxed) + 1,
        })
    }

    /// This is asked for, of which the interfaces of each time have to be found.
    pub(super) fn stay_under(&mut self, interface: Interface, device: Device) {
        (self.interface, self.device) = (interface, device);
    }

    /// From now on peers have to know this.
    pub(super) fn keep(&mut self, secret: Secret) -> io::Result<()> {
        self.exchange.guard(secret.clone(), random::key()?);
        self.secret = Some(secret);
        Ok(())
    }

    /// These settings for the endpoint on these ports: with a key of its own, and with what its peers have to
    /// know. Fails when the kernel has no random numbers.
    pub fn endpoint_config(&self, settings: &Config) -> io::Result<Config> {
        Ok(Config {
            key: Key(random::key()?),
            secret: self.secret.clone(),
            ..settings.clone()
        })
    }

    /// The identity of this endpoint.
    pub fn identity(&self) -> Identity {
        self.own
    }

    /// The control descriptor is readable: the next poll sees to it.
    pub fn note_control(&mut self) {
        self.look = true;
    }

    /// The thread that slept in the data nest was given exactly these tokens, so the next poll need
    /// not ask the kernel.
    pub fn note_ready(&mut self, tokens: &[u64]) {
        if tokens.is_empty() {
            // The time was up: something is due.
            return;
        }
        let mut tcp = false;
        for token in tokens {
            match (nest::member(*token), &mut self.local) {
                (Some(CONTROL), _) => self.look = true,
                (Some(member), _) => tcp |= member == TCP,
                (None, Some(local)) => {
                    local.note_doorbell(*token);
                }
                (None, None) => {}
            }
        }
        self.told = true;
        self.tcp.note_told(tcp);
        if let Some(local) = &mut self.local {
            local.note_told();
        }
    }

    /// The data nest, which is an epoll instance, and its number.
    pub fn set(&self) -> (RawFd, u64) {
        (self.data.raw(), self.number)
    }

    /// False when the host has closed descriptors, as far as those tell that every endpoint has.
    pub fn is_intact(&self) -> bool {
        !self.lost && self.control.is_intact() && self.tcp.is_intact()
    }

    /// Returns whether the ports are used no more ([`HostPorts::lose`]).
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Gives up the ports, whose descriptors the host has closed: they go nowhere from now on, and make no
    /// system call.
    pub fn lose(&mut self) {
        // Each poll comes to where it finds that.
        (self.lost, self.look, self.turn) = (true, true, 0);
    }

    /// The number of polls; a little more, as some numbers are skipped.
    #[inline]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// The port over shared memory, where there is one.
    pub fn local(&self) -> Option<&LocalPort> {
        self.local.as_ref()
    }

    /// The port over TCP.
    pub fn tcp(&self) -> &TcpPort {
        &self.tcp
    }

    /// The TCP port peers find this endpoint at.
    pub fn tcp_port(&self) -> u16 {
        self.tcp.local_port()
    }

    /// The port over libfabric, when it is open.
    pub fn rdm(&self) -> Option<&R> {
        self.rdm.port.as_ref()
    }

    /// The port over libfabric of a test.
    #[cfg(test)]
    pub(super) fn rdm_mut(&mut self) -> &mut R {
        self.rdm.port.as_mut().unwrap()
    }

    /// The port over datagrams, when it is open.
    pub fn dgram(&self) -> Option<&DgramPort> {
        self.dgram.port.as_ref()
    }

    /// The figures of a link, for tools, if it goes over a network.
    pub fn figures(&self, link: LinkId, now: Instant) -> Option<LinkFigures> {
        match link.port() {
            TCP => self.tcp.figures(link, now),
            DGRAM => self.dgram.port.as_ref()?.figures(link),
            _ => None,
        }
    }

    /// Links of all ports at the moment that others have an end of.
    pub fn link_count(&self) -> usize {
        let links: usize = PORTS.iter().map(|port| self.links_of(port.number)).sum();
        links.saturating_sub(self.exchange.watch_count())
    }

    fn links_of(&self, port: u8) -> usize {
        match port {
            LOCAL => self.local.as_ref().map_or(0, LocalPort::link_count),
            TCP => self.tcp.link_count(),
            RDM => self.rdm.port.as_ref().map_or(0, R::link_count),
            DGRAM => self.dgram.port.as_ref().map_or(0, DgramPort::sessions),
            _ => 0,
        }
    }

    pub(super) fn is_quiet(&self, port: u8) -> bool {
        self.quiet & (1 << port) != 0
    }

    pub(super) fn set_quiet(&mut self, port: u8, quiet: bool) {
        self.quiet = self.quiet & !(1 << port) | u8::from(quiet) << port;
    }

    /// Makes a port quiet whose poll found nothing (`some` is false), if it has no link and no deadline.
    pub(super) fn note_poll(&mut self, port: u8, some: bool) -> bool {
        let deadline = || self.port(port).and_then(LinkControl::deadline);
        let quiet = !some && self.links_of(port) == 0 && deadline().is_none();
        self.set_quiet(port, quiet);
        some
    }

    /// The largest message that goes with its data over whichever port is open.
    pub fn eager_max(&self) -> usize {
        // A port's links all carry the same.
        let link = LinkId::new(0, 0);
        let all = self.ports().map(|port| port.limits(link).eager_max());
        all.min().unwrap_or(NO_LIMITS.packet_max)
    }

    /// A port by its number ([`LinkId::port`]), if it is open.
    pub(crate) fn port(&self, number: u8) -> Option<&dyn LinkControl> {
        by_number!(self, number, as_ref)
    }

    /// The same, to do something with its links.
    fn port_mut(&mut self, number: u8) -> Option<&mut dyn LinkControl> {
        by_number!(self, number, as_mut, mut)
    }

    /// The port that carries the packets of a link, to which something is done.
    fn carrier<M: Memory>(&mut self, link: LinkId) -> Option<&mut dyn Port<M>>
    where
        R: Port<M>,
    {
        self.touched = true;
        self.carrier_of(link.port())
    }

    /// A port by its number, to do something with packets.
    pub(super) fn carrier_of<M: Memory>(&mut self, number: u8) -> Option<&mut dyn Port<M>>
    where
        R: Port<M>,
    {
        by_number!(self, number, as_mut, mut)
    }

    /// All that are open.
    fn ports(&self) -> impl Iterator<Item = &dyn LinkControl> {
        PORTS.iter().filter_map(|port| self.port(port.number))
    }

    /// [`Port::send`] of whatever has not a link of the local port.
    #[inline(never)]
    fn send_elsewhere<M: Memory>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError>
    where
        R: Port<M>,
    {
        let _off = Off::new();
        let port = self.carrier(link).ok_or(SendError::Down)?;
        port.send(link, header, body)
    }

    /// Starts a link over the port of that number. `strict`: a link that does not come up is not made over
    /// another port.
    fn connect_over(
        &mut self,
        port: u8,
        target: Target,
        strict: bool,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        let link = match port {
            LOOPBACK => self.loopback.connect(target, now),
            LOCAL => self.connect_local((target, strict), now),
            RDM => self.connect_rdm((target, strict), now),
            DGRAM => self.connect_dgram((target, strict), now),
            _ => self.tcp.connect(target, now),
        }?;
        self.set_quiet(link.port(), false);
        Ok(link)
    }

    /// Starts a link over shared memory.
    fn connect_local(&mut self, to: (Target, bool), now: Instant) -> Result<LinkId, ConnectError> {
        let (target, strict) = to;
        let local = self.local.as_mut().ok_or(ConnectError::NoRoute)?;
        if strict {
            local.connect_to(BOARD, target.endpoint.0, now)
        } else {
            local.connect_or(BOARD, target.endpoint.0, ROUTE_TCP, now)
        }
    }

    /// Starts a link over libfabric. Not inlined, as `connect_dgram`.
    #[inline(never)]
    fn connect_rdm(&mut self, to: (Target, bool), now: Instant) -> Result<LinkId, ConnectError> {
        let (target, strict) = to;
        let data = self.data.as_fd();
        let rdm = self.rdm.get("rdm", |port| port.wake_through(data))?;
        if let Some(mut peer) = nic::address(target.nic) {
            peer.set_port(self.tcp.local_port());
            rdm.face(peer);
        }
        let link = rdm.reserve(now, (!strict).then_some(ROUTE_TCP))?;
        self.search(link, to, now)
    }

    /// Starts a link over datagrams.
    ///
    /// Not inlined: its stack frame would be `connect`'s, below the log lines of every other port.
    #[inline(never)]
    fn connect_dgram(&mut self, to: (Target, bool), now: Instant) -> Result<LinkId, ConnectError> {
        let wake = |port: &mut _| dgram::wake_through(port, &self.data, DGRAM);
        let link = self.dgram.get("dgram", wake)?.connect(to.0, now)?;
        if !self.dgram.asks() {
            self.exchange.expect(link, to);
            return Ok(link);
        }
        self.search(link, to, now)
    }

    /// Asks the peer of a new link for its endpoint address. The link is closed if that fails.
    fn search(
        &mut self,
        link: LinkId,
        target: (Target, bool),
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        let asked = self.exchange.search(link, target, &mut self.tcp, now);
        self.set_quiet(TCP, false);
        if asked.is_err()
            && let Some(port) = self.port_mut(link.port())
        {
            port.close(link, Close::Now);
        }
        asked.map(|()| link)
    }

    fn arm_port(&mut self, port: u8) -> bool {
        // Quiet ports have no link, and control descriptors need no arming. Over a fabric something
        // may come all the same, for a link that is gone; its descriptor would stay readable.
        if matches!(port, LOCAL | TCP) && self.is_quiet(port) {
            return true;
        }
        let ready = self.port_mut(port).is_none_or(LinkControl::arm);
        if !ready {
            self.set_quiet(port, false);
        }
        ready
    }

    /// The origin of a link, or the address it was made to.
    fn origin(&self, link: LinkId) -> Origin {
        let origin = match link.port() {
            LOOPBACK => Some(Origin::Oneself),
            TCP => Some(self.tcp.origin(link)),
            LOCAL => self.local.as_ref().map(|local| local.origin(link)),
            DGRAM => self.dgram.origin(link),
            RDM => {
                // An address of a fabric proves nothing about an interface.
                let address = self.rdm.port.as_ref().and_then(|rdm| rdm.address(link));
                address.map(Origin::Address)
            }
            _ => None,
        };
        origin.unwrap_or(Origin::Unknown)
    }

    /// If this machine's interfaces have changed, so many times by now, the ports are told.
    fn follow(&mut self, now: Instant, changes: u64) {
        if changes == self.followed {
            return;
        }
        self.followed = changes;
        self.settled_at.get_or_insert_with(|| now.after(SETTLE));
        self.touched = true;
        let interfaces = nic::interfaces();
        log::info!("network interfaces now: {interfaces}");
        self.dgram.follow(&interfaces);
        self.follow_fabric(false);
    }

    fn follow_fabric(&mut self, settled: bool) {
        if let Some(rdm) = &mut self.rdm.port {
            rdm.follow(self.interface.device(&self.device), settled);
            rdm.provider().clone_into(&mut self.rdm.provider);
            self.set_quiet(RDM, false);
        }
    }

    /// Addresses that were gone a while ago are gone for good.
    #[cold]
    fn settle(&mut self) {
        self.settled_at = None;
        self.touched = true;
        self.tcp.leave_old_addresses();
        self.dgram.leave_old_addresses();
        self.set_quiet(DGRAM, false);
        self.follow_fabric(true);
    }

    /// Polls that are not an everyday matter: looking at what is quiet, and at interfaces.
    #[cold]
    pub(super) fn look_around(&mut self, now: Instant) {
        if self.settled_at.is_some_and(|at| at <= now) {
            self.settle();
        }
        if !self.look && now < self.next_look {
            return;
        }
        self.look = false;
        if !self.is_intact() {
            self.lose();
            return;
        }
        let readable = self.control.readable();
        self.look_every = match readable {
            0 => (self.look_every * 2).min(LOOK_EVERY.1),
            _ => LOOK_EVERY.0,
        };
        self.next_look = now.after(self.look_every);
        if (readable & (1 << INTERFACES) != 0 || self.watch.raw().is_none()) && self.watch.changed()
        {
            self.watch.let_go();
            self.follow(now, nic::look_at_once());
        }
        self.quiet &= !readable;
        if readable & (1 << LOCAL) != 0
            && let Some(local) = &mut self.local
        {
            local.note_control();
        }
        if readable & (1 << TCP) != 0 {
            self.tcp.note_control();
        }
    }
}

impl<R> HostPorts<R> {
    /// Whether polls look at memory alone nearly always; without active links through memory they make system calls.
    pub fn looks_at_memory(&self) -> bool {
        self.local.as_ref().is_some_and(LocalPort::has_active)
    }
}

impl HostPorts {
    /// The name of the port that carries `link`, for people.
    pub fn port_name(link: LinkId) -> &'static str {
        ports::name(link.port()).unwrap_or("no port")
    }
}

impl<R: FabricPort> LinkControl for HostPorts<R> {
    #[inline]
    fn limits(&self, link: LinkId) -> Limits {
        self.port(link.port())
            .map_or(NO_LIMITS, |port| port.limits(link))
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        let _off = Off::new();
        if self.lost {
            return Err(ConnectError::NoRoute);
        }
        self.touched = true;
        let Ok(tcp_port) = self.map.port(target.endpoint) else {
            return Err(ConnectError::BadEndpoint);
        };
        self.follow(now, nic::look_again());
        let location = match (nic::is_local(target.nic), target.endpoint) {
            (true, endpoint) if endpoint == self.own.endpoint => Location::Oneself,
            (true, _) => Location::ThisMachine,
            (false, _) => Location::Elsewhere,
        };
        let Some(choice) = choose(self.policy, target.route, location, self.rdm.offered) else {
            let known = !nic::socket_addresses(target.nic, tcp_port).is_empty();
            return Err(if known {
                ConnectError::NoRoute
            } else {
                ConnectError::UnknownNic
            });
        };
        let only = choice.fallback.is_none();
        self.connect_over(choice.first, target, only, now)
            .or_else(|error| match choice.after(error) {
                Some(port) => self.connect_over(port, target, true, now),
                None => Err(error),
            })
    }

    fn connect_beside(&mut self, link: LinkId, now: Instant) -> Result<LinkId, ConnectError> {
        let _off = Off::new();
        if self.lost {
            return Err(ConnectError::NoRoute);
        }
        self.touched = true;
        let port = self.port_mut(link.port()).ok_or(ConnectError::NoRoute)?;
        let beside = port.connect_beside(link, now)?;
        self.set_quiet(beside.port(), false);
        Ok(beside)
    }

    fn has_places_beside(&self, link: LinkId) -> bool {
        self.port(link.port())
            .is_some_and(|port| port.has_places_beside(link))
    }

    fn accept(&mut self, link: LinkId) {
        let _off = Off::new();
        if let Some(port) = self.port_mut(link.port()) {
            port.accept(link);
        }
        if link.port() == RDM {
            self.exchange.keep(link, &mut self.tcp);
        }
    }

    fn seen(&self, link: LinkId, claimed: &Identity) -> Seen {
        let _off = Off::new();
        // The port has compared the users.
        let user_has = |_user: u32| {
            let endpoint = self.local.as_ref().and_then(|it| it.endpoint(link));
            endpoint == Some(claimed.endpoint.0)
        };
        seen(self.origin(link), &self.own, user_has)
    }

    fn has_interface(&self, nic: NicId) -> bool {
        let _off = Off::new();
        nic::look_again();
        nic::is_local(nic)
    }

    fn binding(&self, link: LinkId) -> Binding {
        self.port(link.port())
            .map_or([0; 2], |port| port.binding(link))
    }

    fn has_room(&mut self, link: LinkId) -> bool {
        self.port_mut(link.port())
            .is_some_and(|port| port.has_room(link))
    }

    fn close(&mut self, link: LinkId, how: Close) {
        let _off = Off::new();
        self.touched = true;
        self.exchange.forget(link, &mut self.tcp);
        if let Some(port) = self.port_mut(link.port()) {
            port.close(link, how);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.lost {
            return None;
        }
        let ports = self.ports().map(LinkControl::deadline);
        Instant::earliest(ports.chain([self.exchange.deadline(), self.settled_at]))
    }

    /// Only for datagrams: a dead peer is noticed only when something is sent.
    fn monitor(&mut self, link: LinkId, wanted: bool) {
        if let (DGRAM, Some(dgram)) = (link.port(), self.dgram.port.as_mut()) {
            self.touched = true;
            dgram.monitor(link, wanted);
        }
    }

    fn heard_at(&self, link: LinkId) -> Option<Instant> {
        self.port(link.port())?.heard_at(link)
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        if self.lost {
            return None;
        }
        self.ports().filter_map(LinkControl::keep_alive_due).min()
    }

    fn keep_alive(&mut self, now: Instant) {
        let _off = Off::new();
        if self.lost {
            return;
        }
        for port in PORTS {
            if let Some(port) = self.port_mut(port.number) {
                port.keep_alive(now);
            }
        }
    }

    fn arm(&mut self) -> bool {
        let _off = Off::new();
        if self.lost {
            return true;
        }
        self.turn |= ROUND - 1;
        // A sleeper stays armed while other threads post; arming again costs system calls, and a
        // packet that shared memory took whole changes nothing about it.
        if self.armed && !self.touched && !self.look {
            return true;
        }
        let ready = !self.look && ARMING.into_iter().all(|port| self.arm_port(port));
        if !ready {
            self.disarm();
        }
        (self.armed, self.touched) = (ready, false);
        ready
    }

    fn disarm(&mut self) {
        let _off = Off::new();
        if self.lost {
            return;
        }
        self.turn |= ROUND - 1;
        self.armed = false;
        for port in PORTS {
            if let Some(port) = self.port_mut(port.number) {
                port.disarm();
            }
        }
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: Some(self.control.raw()),
            data: Some(self.data.raw()),
        }
    }
}

impl<M: Memory, R: FabricPort + Port<M>> Port<M> for HostPorts<R>
where
    for<'a> R: Rounds<M, Lent<'a> = &'a [u8]> + 'a,
{
    #[inline(always)]
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        if let (LOCAL, Some(local)) = (link.port(), &mut self.local) {
            return match local.send(link, header, &body) {
                Ok(Sent::Whole) => Ok(Sent::Whole),
                other => {
                    self.touched = true;
                    other
                }
            };
        }
        self.send_elsewhere(link, header, body)
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let _off = Off::new();
        let port = self.carrier(link).ok_or(SendError::Down)?;
        port.resume(link, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize) {
        let _off = Off::new();
        if let Some(port) = self.carrier(link) {
            port.detach(link, memory, offset, len);
        }
    }

    fn remote_memory(&mut self, link: LinkId) -> Option<&mut dyn RemoteMemory<M>> {
        // It turns cancellation off by itself.
        self.carrier(link)?.remote_memory(link)
    }
}
