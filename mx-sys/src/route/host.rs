//! All ports of an endpoint behind one.
//!
//! ```text
//!   control nest {control descriptors of local and tcp, interfaces}
//!   data nest    {those, loopback, local's links, tcp, dgram, rdm's while it is armed}
//!   a link's id contains its port ([`LinkId::port`])
//! ```
//!
//! `choice` decides which ports may carry a link. A session over rdm begins on TCP and moves (`fabrics`), and so does
//! one over datagrams where addresses do not follow from host and number.
//!
//! A port without a link is *quiet* and is not polled, so that TCP costs nothing in a process that uses only shared
//! memory. Polling resumes when its control descriptor is readable: a sleeping thread reports that
//! ([`HostPorts::note_control`]), and polls check for it within a few milliseconds. The rdm port may have work without
//! a link, which arming it reports. The dgram port, which has no control descriptor, is polled now and then for
//! strangers.
//!
//! The ports follow this machine's interfaces ([`HostPorts::follow_interfaces`]):
//!
//! ```text
//!   the kernel reports a change, or a connect begins --> addresses differ?  at once: the list; ports without links
//!                                                                           1 s later: links of lost addresses end
//! ```
//!
//! Every difference between ports is in [`HostPort`].
//!
//! Owns: the ports.

use super::choice::{Location, choose};
use super::fabrics::{self, Fabrics};
use super::host_port::{HostPort, PortList, PortView};
use super::interface::Interface;
use super::lazy::Lazy;
use super::link_origin::link_origin;
use super::round::Round;
use crate::nic::{self, Watching};
use crate::published::port_bit;
use crate::user_memory::UserMemory;
use mx_port_base::cancellation::CancellationDisabled;
use mx_port_base::endpoint_port::PortMap;
use mx_port_base::epoll::Epoll;
use mx_port_base::nest;
use mx_port_base::netlink::Watch;
use mx_port_base::origin::Origin;
use mx_port_base::ports::{self, DGRAM, LOCAL, PORTS, RDM, ROUTE_TCP, TCP};
use mx_port_base::random;
use mx_port_local::LocalPort;
use mx_port_rdm::Device;
use mx_port_tcp::TcpPort;
use mx_proto::origin::LinkOrigin;
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, LinkFigures, MoveRefusal,
    PACKET_LEAST, Port, RemoteMemory, SendError, Sent, WakeDescriptors,
};
use mx_proto::secret::{Binding, Secret};
use mx_proto::{Config, Identity, Instant, Key, LinkId, Memory, NicId, Route, Target};
use std::any::Any;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of the first control descriptor in both nests, one for each port; in the data nest the numbers below are
/// the ports' data descriptors.
const CONTROL: u8 = PORTS.len() as u8;

/// Member of both nests: the socket on which the kernel reports changes of interfaces.
const INTERFACES: u8 = 2 * CONTROL;

/// Time within which a removed address may come back; links from that address stay so long. Restarting a network
/// service of the machine removes all addresses for a moment.
const SETTLE: Duration = Duration::from_secs(1);

/// Every so many polls check every port, and not only the links over shared memory that were recently active: other
/// ports cost system calls. While there are no such links, every poll checks the ports, and every so many polls the
/// rest.
pub(super) const ROUND: u32 = 16;

/// [`ROUND`] while every link is an active link over shared memory and none waits for room: only timers and strangers
/// then wait for such a poll.
pub(crate) const LONE_ROUND: u32 = 64;

/// Interval between two checks of quiet ports' control descriptors: the shortest, doubled while there are no events,
/// and the longest. Long against the cost of the system call, short against connection setup; threads that sleep on the
/// descriptors do not wait for it.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// Number of packets in a row, without a round between them, sent at once although they might be held: holding one or
/// two would only wake the helper thread.
const SENT_AT_ONCE: u8 = 2;

/// All ports of one endpoint (shared memory, TCP, libfabric, datagrams, loopback), combined into one.
#[derive(Debug)]
pub struct HostPorts<M = UserMemory> {
    own: Identity,
    policy: Route,
    map: PortMap,
    pub(super) ports: PortList<M>,
    pub(super) fabrics: Fabrics,
    interface: Interface,
    /// Device that the options ask for.
    device: Device,
    /// Notifies this endpoint of changes; the list of interfaces itself is the process's.
    watch: Watch,
    _watching: Watching,
    /// Number of changes of the interfaces when the ports were last told.
    followed: u64,
    /// Time from which lost addresses count as gone; `None` if none is missing.
    settled_at: Option<Instant>,
    secret: Option<Secret>,
    /// Whether the next poll checks the control descriptors.
    pub(super) look: bool,
    /// Whether the kernel has just reported the ready descriptors, so that the next poll need not ask.
    pub(super) told: bool,
    /// Number of polls. A sleeper's next poll is a round. Stays 0 once descriptors are lost.
    pub(super) turn: u32,
    /// Mask of `turn` for rounds: [`ROUND`] or [`LONE_ROUND`], less one; 0 while packets are held.
    pub(super) round_mask: u32,
    /// Whether the host has closed descriptors: they are no longer used.
    pub(super) lost: bool,
    next_look: Instant,
    look_every: Duration,
    /// Whether all ports that are not quiet are armed.
    armed: bool,
    /// Whether anything but sending whole packets over shared memory has happened since.
    pub(super) touched: bool,
    /// Whether small packets may be held ([`LinkControl::hold`]).
    may_hold: bool,
    /// Number of packets since the last round, without those over shared memory; the first ones are not held.
    pub(super) sends: u8,
    /// Whether a port holds packets.
    pub(super) holds: bool,
    control: Epoll,
    data: Epoll,
    pub(super) round: Round,
    /// Number of the data nest, unique in this process.
    number: u64,
}

/// Number of data nests made so far.
static NESTS: AtomicU64 = AtomicU64::new(0);

/// Limits of a link whose port is not open.
const NO_LIMITS: Limits = Limits {
    packet_max: PACKET_LEAST,
    streamed_max: 0,
    data_max: 4 << 10,
    pull_block: 4 << 10,
    remote_read: false,
    refusal_ends_link: false,
    data_links: 0,
};

impl<M: Memory + 'static> HostPorts<M> {
    /// Combines opened ports; [`HostPorts::open`] opens them.
    pub(super) fn new(
        own: Identity,
        policy: Route,
        map: PortMap,
        local: Option<LocalPort>,
        tcp: TcpPort,
        lazy: impl IntoIterator<Item = Lazy<M>>,
    ) -> io::Result<Self> {
        let control = Epoll::new()?;
        let data = match &local {
            Some(local) => Epoll::of(local.data())?,
            None => Epoll::new()?,
        };
        let watch = Watch::new();
        for nest in [&control, &data] {
            nest.join(INTERFACES, watch.raw())?;
        }
        let mut all = Self {
            own,
            policy,
            map,
            fabrics: Fabrics::default(),
            ports: PortList::new(local, tcp, lazy)?,
            interface: Interface::default(),
            device: Device::default(),
            watch,
            _watching: Watching::begin(),
            followed: nic::look_again(),
            settled_at: None,
            secret: None,
            look: true,
            told: false,
            turn: 0,
            round_mask: ROUND - 1,
            lost: false,
            next_look: Instant(0),
            look_every: LOOK_EVERY.0,
            armed: false,
            touched: false,
            may_hold: false,
            sends: 0,
            holds: false,
            control,
            data,
            round: Round::new(),
            number: NESTS.fetch_add(1, Ordering::Relaxed) + 1,
        };
        for (number, port) in all.ports.iter_mut() {
            join((&all.control, &all.data), number, port)?;
        }
        Ok(all)
    }

    /// Stores the interface and the device asked for; the actual ones are looked up after each change.
    pub(super) fn stay_under(&mut self, interface: Interface, device: Device) {
        (self.interface, self.device) = (interface, device);
    }

    /// Requires peers to know this secret.
    pub(super) fn keep(&mut self, secret: Secret) {
        self.secret = Some(secret);
    }

    /// Completes the settings of the protocol endpoint on these ports: returns `settings` with a new random key and the
    /// site's secret. Fails if the kernel has no random numbers.
    pub fn endpoint_config(&self, settings: &Config) -> io::Result<Config> {
        Ok(Config {
            key: Key(random::key()?),
            secret: self.secret.clone(),
            ..settings.clone()
        })
    }

    /// Returns the identity of this endpoint.
    pub fn identity(&self) -> Identity {
        self.own
    }

    /// Passes on the epoll tokens that a sleep on [`HostPorts::set`] returned, so that the next poll need not ask the
    /// kernel which descriptors are ready. An empty list (the sleep timed out) has no effect.
    pub fn note_ready(&mut self, tokens: &[u64]) {
        if tokens.is_empty() {
            // The sleep timed out: a timer is due, and descriptors may be ready, too.
            return;
        }
        let mut tcp = false;
        for token in tokens {
            match (nest::member(*token), &mut self.ports.local) {
                (Some(CONTROL..), _) => self.look = true,
                (Some(member), _) => tcp |= member == TCP,
                (None, Some(local)) => {
                    local.note_doorbell(*token);
                }
                (None, None) => {}
            }
        }
        self.told = true;
        self.ports.tcp.note_told(tcp);
        if let Some(local) = &mut self.ports.local {
            local.note_told();
        }
    }

    /// Returns the epoll instance with the descriptors of all ports, to sleep on, and a number unique to it within the
    /// process.
    pub fn set(&self) -> (RawFd, u64) {
        (self.data.raw(), self.number)
    }

    /// Returns false if the ports are out of use, or if the host has closed one of the few descriptors that every
    /// endpoint has; the others are not checked.
    pub fn is_intact(&self) -> bool {
        !self.lost && self.control.is_intact() && self.ports.tcp.is_intact()
    }

    /// Returns whether the ports are out of use ([`HostPorts::lose`]).
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Stops using the ports, whose descriptors the host has closed: from now on they carry nothing and make no system
    /// call.
    pub fn lose(&mut self) {
        // With `turn` 0 every poll begins a round, which notices `lost`.
        (self.lost, self.look, self.turn) = (true, true, 0);
    }

    /// Returns the number of polls; a little more, because arming skips numbers.
    #[inline]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Returns the TCP port on which peers reach this endpoint.
    pub fn tcp_port(&self) -> u16 {
        self.ports.tcp.local_port()
    }

    /// Returns the port of type `P`; `None` if that port is not open.
    pub fn port_of<P: Any>(&self) -> Option<&P> {
        let mut ports = self.ports.iter();
        ports.find_map(|(_, port)| (port as &dyn Any).downcast_ref())
    }

    /// Returns the transport statistics of a link over a network, for tools; `None` over shared memory.
    pub fn figures(&self, link: LinkId, now: Instant) -> Option<LinkFigures> {
        self.ports.get(link.port())?.figures(link, now)
    }

    /// Returns the counters of all ports.
    pub fn view(&self) -> PortView<'_> {
        let mut view = PortView {
            links: self.link_count(),
            ..PortView::default()
        };
        for (number, port) in self.ports.iter() {
            port.count(&mut view);
            view.open |= port_bit(&PORTS[usize::from(number)]);
        }
        view
    }

    /// Returns the largest message, in bytes, that every open port sends eagerly: the smallest of the ports' limits.
    pub fn eager_max(&self) -> usize {
        // All links of a port have the same limits.
        let link = LinkId::new(0, 0);
        let ports = self.ports.iter();
        let all = ports.map(|(_, port)| port.limits(link).eager_max());
        all.min().unwrap_or(NO_LIMITS.packet_max)
    }

    /// Returns the port of a link, and notes that it is used.
    fn carrier(&mut self, link: LinkId) -> Option<&mut dyn HostPort<M>> {
        self.carrier_of(link.port())
    }

    fn carrier_of(&mut self, number: u8) -> Option<&mut dyn HostPort<M>> {
        self.touched = true;
        self.ports.get_mut(number)
    }

    /// Implements [`Port::send`] for links of every port but local.
    #[inline(never)]
    fn send_elsewhere(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let _off = CancellationDisabled::new();
        self.sends = self.sends.saturating_add(1);
        if self.may_hold && self.sends > SENT_AT_ONCE {
            return self.send_or_hold(link, header, body);
        }
        let port = self.carrier(link).ok_or(SendError::Down)?;
        port.send(link, header, body)
    }

    /// Sends a packet that the port may hold.
    fn send_or_hold(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let port = self.carrier(link).ok_or(SendError::Down)?;
        port.hold(true);
        let sent = port.send(link, header, body);
        port.hold(false);
        if port.holds() {
            // Make the next poll a round.
            (self.holds, self.round_mask) = (true, 0);
        }
        sent
    }

    /// Returns whether so many packets (over shared memory not counted) were sent since the last poll of all ports that
    /// the next one may be held back, to leave together with others.
    #[inline(always)]
    pub fn sends_in_a_row(&self) -> bool {
        self.sends >= SENT_AT_ONCE
    }

    /// Sends the packets that the ports hold.
    pub(super) fn end_batches(&mut self) {
        if std::mem::take(&mut self.holds) {
            for (_, port) in self.ports.iter_mut() {
                port.send_held();
            }
        }
    }

    /// Starts a link over port `number`, opening the port if necessary. `strict`: no fallback if the link does not come
    /// up.
    fn connect_over(
        &mut self,
        number: u8,
        target: Target,
        strict: bool,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        let port = match self.ports.lazy_mut(number) {
            Some(lazy) => {
                let wake =
                    |port: &mut dyn HostPort<M>| join((&self.control, &self.data), number, port);
                lazy.get(PORTS[usize::from(number)].name, wake)?
            }
            None => self.ports.get_mut(number).ok_or(ConnectError::NoRoute)?,
        };
        if port.fabric().is_some() {
            if !port.may_move(target, now) {
                return Err(ConnectError::NoRoute);
            }
            let link = self.ports.tcp.connect(target, now)?;
            self.ports.set_quiet(TCP, false);
            self.fabrics.begin(link, number, (target, strict));
            return Ok(link);
        }
        let link = port.begin_link(target, (!strict).then_some(ROUTE_TCP), now)?;
        self.ports.set_quiet(number, false);
        if number == DGRAM {
            self.fabrics.begin(link, number, (target, strict));
        }
        Ok(link)
    }

    fn arm_port(&mut self, number: u8) -> bool {
        let quiet = self.ports.is_quiet(number);
        // A quiet port with a control descriptor has no link and needs no arming. Over a fabric, frames may still
        // arrive for a link that has closed, and would keep the data descriptor readable.
        let may_sleep = |port: &mut dyn HostPort<M>| {
            (quiet && port.descriptors().control.is_some()) || port.arm()
        };
        let ready = self.ports.get_mut(number).is_none_or(may_sleep);
        if !ready {
            self.ports.set_quiet(number, false);
        }
        ready
    }

    /// Tells the ports if this machine's interfaces have changed since. `changes`: number of changes so far.
    fn follow_interfaces(&mut self, now: Instant, changes: u64) {
        if changes == self.followed {
            return;
        }
        self.followed = changes;
        self.settled_at.get_or_insert_with(|| now.after(SETTLE));
        log::info!("network interfaces changed, now: {}", nic::interfaces());
        self.tell_ports(false);
    }

    /// Tells the ports this machine's interfaces. `settled`: addresses lost a while ago will not come back.
    fn tell_ports(&mut self, settled: bool) {
        self.touched = true;
        let (interfaces, device) = (nic::interfaces(), self.interface.device(&self.device));
        for (_, port) in self.ports.iter_mut() {
            port.follow(&interfaces, &device, settled);
        }
        self.ports.unquiet(u16::MAX);
    }

    /// Checks what does not concern every poll: control descriptors of quiet ports, and interfaces.
    #[cold]
    pub(super) fn poll_quiet_ports(&mut self, now: Instant) {
        if self.settled_at.take_if(|at| *at <= now).is_some() {
            self.tell_ports(true);
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
            self.follow_interfaces(now, nic::look_at_once());
        }
        let controls = readable >> CONTROL;
        self.ports.unquiet(controls);
        for number in (0..CONTROL).filter(|number| controls & (1 << number) != 0) {
            if let Some(port) = self.ports.get_mut(number) {
                port.note_control();
            }
        }
    }
}

/// Lets sleepers wait for a port.
fn join<M: Memory + 'static>(
    (control, data): (&Epoll, &Epoll),
    number: u8,
    port: &mut dyn HostPort<M>,
) -> io::Result<()> {
    for nest in [control, data] {
        nest.join(CONTROL + number, port.descriptors().control)?;
    }
    port.wake_through(data, number)
}

impl<M> HostPorts<M> {
    /// Returns whether polls at present nearly always read memory only, as they do while links over shared memory are
    /// active; otherwise they make system calls.
    pub fn looks_at_memory(&self) -> bool {
        self.ports.local.as_ref().is_some_and(LocalPort::has_active)
    }
}

impl HostPorts {
    /// Returns the name of the port that carries `link`, for messages.
    pub fn port_name(link: LinkId) -> &'static str {
        ports::name(link.port()).unwrap_or("no port")
    }
}

impl<M: Memory + 'static> LinkControl for HostPorts<M> {
    #[inline]
    fn limits(&self, link: LinkId) -> Limits {
        let port = self.ports.get(link.port());
        port.map_or(NO_LIMITS, |port| port.limits(link))
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        let _off = CancellationDisabled::new();
        if self.lost {
            return Err(ConnectError::NoRoute);
        }
        self.touched = true;
        let Ok(tcp_port) = self.map.port(target.endpoint) else {
            return Err(ConnectError::BadEndpoint);
        };
        self.follow_interfaces(now, nic::look_again());
        let location = match (nic::is_local(target.nic), target.endpoint) {
            (true, endpoint) if endpoint == self.own.endpoint => Location::Oneself,
            (true, _) => Location::ThisMachine,
            (false, _) => Location::Elsewhere,
        };
        let rdm_open = self.ports.lazy_mut(RDM).is_some_and(|rdm| rdm.offered);
        let Some(choice) = choose(self.policy, target.route, location, rdm_open) else {
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
        let _off = CancellationDisabled::new();
        if self.lost {
            return Err(ConnectError::NoRoute);
        }
        self.touched = true;
        let port = self.ports.get_mut(link.port());
        let port = port.ok_or(ConnectError::NoRoute)?;
        let beside = port.connect_beside(link, now)?;
        self.ports.set_quiet(beside.port(), false);
        Ok(beside)
    }

    fn has_places_beside(&self, link: LinkId) -> bool {
        let port = self.ports.get(link.port());
        port.is_some_and(|port| port.has_places_beside(link))
    }

    fn accept(&mut self, link: LinkId) {
        let _off = CancellationDisabled::new();
        if let Some(port) = self.ports.get_mut(link.port()) {
            port.accept(link);
        }
    }

    fn fabrics(&self, link: LinkId, called: bool) -> u32 {
        match (called, link.port()) {
            (true, _) => self.fabrics.wanted(link),
            (false, TCP) => fabrics::open(&self.ports),
            (false, _) => 0,
        }
    }

    fn must_move(&self, link: LinkId) -> bool {
        self.fabrics.wanted(link) != 0 && self.fabrics.must_move(link)
    }

    fn offer(
        &mut self,
        link: LinkId,
        fabric: u32,
        now: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        let _off = CancellationDisabled::new();
        let (number, from) = (fabrics::port_of(fabric), self.ports.tcp.origin(link));
        let offered = match self.carrier_of(number) {
            Some(port) => port.offer_link(from, now),
            None => Err(MoveRefusal::Failed),
        };
        self.ports.set_quiet(number, false);
        offered
    }

    fn call(
        &mut self,
        link: LinkId,
        fabric: u32,
        address: &[u8],
        now: Instant,
    ) -> Result<LinkId, MoveRefusal> {
        let _off = CancellationDisabled::new();
        let number = fabrics::port_of(fabric);
        let called = match self.carrier_of(number) {
            Some(port) => port.call_offered(address, now),
            None => Err(MoveRefusal::Failed),
        };
        self.ports.set_quiet(number, false);
        if called == Err(MoveRefusal::Differs) {
            self.fabrics.differs(link, address);
        }
        called
    }

    fn decline_move(&mut self, link: LinkId, why: MoveRefusal) {
        let _off = CancellationDisabled::new();
        let number = fabrics::port_of(self.fabrics.wanted(link));
        let port = self.ports.get(number);
        let ours = port.and_then(|port| port.fabric()).unwrap_or_default();
        self.fabrics.decline_move(ours, link, why);
    }

    fn probe_peer(&mut self, link: LinkId, now: Instant) -> bool {
        let _off = CancellationDisabled::new();
        let port = self.carrier_of(link.port());
        port.is_some_and(|port| port.probe_peer(link, now))
    }

    fn link_count(&self) -> usize {
        self.ports.iter().map(|(_, port)| port.link_count()).sum()
    }

    fn note_control(&mut self) {
        self.look = true;
    }

    fn link_origin(&self, link: LinkId, claimed: &Identity) -> LinkOrigin {
        let _off = CancellationDisabled::new();
        // The port has compared the users already.
        let user_has = |_user: u32| {
            let endpoint = self.ports.local.as_ref().and_then(|it| it.endpoint(link));
            endpoint == Some(claimed.endpoint.0)
        };
        let port = self.ports.get(link.port());
        let origin = port.map_or(Origin::Unknown, |port| port.origin(link));
        link_origin(origin, &self.own, user_has)
    }

    fn has_interface(&self, nic: NicId) -> bool {
        let _off = CancellationDisabled::new();
        nic::look_again();
        nic::is_local(nic)
    }

    fn binding(&self, link: LinkId) -> Binding {
        let port = self.ports.get(link.port());
        port.map_or([0; 2], |port| port.binding(link))
    }

    fn has_room(&mut self, link: LinkId) -> bool {
        let port = self.ports.get_mut(link.port());
        port.is_some_and(|port| port.has_room(link))
    }

    fn close(&mut self, link: LinkId, how: Close) {
        let _off = CancellationDisabled::new();
        self.touched = true;
        self.fabrics.forget(link);
        if let Some(port) = self.ports.get_mut(link.port()) {
            port.close(link, how);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.lost {
            return None;
        }
        let ports = self.ports.iter().map(|(_, port)| port.deadline());
        Instant::earliest(ports.chain([self.settled_at]))
    }

    fn monitor(&mut self, link: LinkId, wanted: bool) {
        // The other ports detect dead peers by themselves.
        if let Some(lazy) = self.ports.lazy_mut(link.port())
            && let Some(port) = &mut lazy.port
        {
            self.touched = true;
            port.monitor(link, wanted);
        }
    }

    fn heard_at(&self, link: LinkId) -> Option<Instant> {
        self.ports.get(link.port())?.heard_at(link)
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        if self.lost {
            return None;
        }
        let due = |(_, port): (u8, &dyn HostPort<M>)| port.keep_alive_due();
        self.ports.iter().filter_map(due).min()
    }

    fn keep_alive(&mut self, now: Instant) {
        let _off = CancellationDisabled::new();
        if self.lost {
            return;
        }
        for (_, port) in self.ports.iter_mut() {
            port.keep_alive(now);
        }
    }

    #[inline(always)]
    fn hold(&mut self, may: bool) {
        self.may_hold = may;
    }

    #[inline(always)]
    fn holds(&self) -> bool {
        self.holds
    }

    fn send_held(&mut self) {
        let _off = CancellationDisabled::new();
        // Packets that the endpoint holds are not messages in a row.
        self.sends = 0;
        self.end_batches();
    }

    fn arm(&mut self) -> bool {
        let _off = CancellationDisabled::new();
        if self.lost {
            return true;
        }
        self.end_batches();
        self.turn |= LONE_ROUND - 1;
        // A sleeper stays armed while other threads post. Arming again would cost system calls, and a packet that
        // shared memory took whole does not change the armed state.
        if self.armed && !self.touched && !self.look {
            return true;
        }
        let ready = !self.look && (0..CONTROL).all(|port| self.arm_port(port));
        if !ready {
            self.disarm();
        }
        (self.armed, self.touched) = (ready, false);
        ready
    }

    fn disarm(&mut self) {
        let _off = CancellationDisabled::new();
        if self.lost {
            return;
        }
        self.turn |= LONE_ROUND - 1;
        self.armed = false;
        for (_, port) in self.ports.iter_mut() {
            port.disarm();
        }
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: Some(self.control.raw()),
            data: Some(self.data.raw()),
        }
    }
}

impl<M: Memory + 'static> Port<M> for HostPorts<M> {
    #[inline(always)]
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        if let (LOCAL, Some(local)) = (link.port(), &mut self.ports.local) {
            return match local.send(link, header, &body) {
                Ok(Sent::Whole) => Ok(Sent::Whole),
                other => {
                    (self.touched, self.round_mask) = (true, ROUND - 1);
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
        let _off = CancellationDisabled::new();
        let port = self.carrier(link).ok_or(SendError::Down)?;
        port.resume(link, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize) {
        let _off = CancellationDisabled::new();
        if let Some(port) = self.carrier(link) {
            port.detach(link, memory, offset, len);
        }
    }

    fn remote_memory(&mut self, link: LinkId) -> Option<&mut dyn RemoteMemory<M>> {
        // The port disables thread cancellation itself.
        self.carrier(link)?.remote_memory(link)
    }
}
