//! All ports of a host behind one.
//!
//! ```text
//!   target                        route                     link id
//!     this very endpoint  ------> loopback                  10 | index
//!     this host           ------> local   --Refused--> tcp  00 | index   (as it is)
//!     elsewhere           ------> tcp                       01 | index
//!
//!   control nest {local, tcp}           data nest {loopback, local, tcp}
//! ```
//!
//! A port without a link is *quiet*: it is not polled, so that TCP costs a process that only uses
//! shared memory nothing. It is looked at again when its control descriptor is readable, which
//! somebody who sleeps on it says ([`HostPorts::note_control`]) and which polls find out about
//! within a few milliseconds.
//!
//! Owns: the ports.
//! Knows nothing of: what the ports do.

use super::local::LocalPort;
use super::loopback::LoopbackPort;
use super::nest::Nest;
use super::open::{BOARD, is_oneself};
use super::tcp::TcpPort;
use crate::endpoint_port::PortMap;
use crate::nic;
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkDown, Place, Port, SendError, Sent, Sink,
    WakeDescriptors,
};
use mx_proto::{Clock, Identity, Instant, LinkId, Memory, Route, Source, Target};
use std::io;
use std::time::Duration;

/// Shared memory, or nothing.
pub const ROUTE_LOCAL: Route = Route(1);
/// TCP, also on this host.
pub const ROUTE_TCP: Route = Route(2);

/// Bits of a link's index that say whose it is.
const OWNER_BITS: u32 = 3 << 30;
/// The local port's links keep their names, so that nothing is translated for them.
const LOCAL: u32 = 0;
const TCP: u32 = 1 << 30;
const LOOPBACK: u32 = 2 << 30;

/// Members of the nests.
const MEMBER_LOCAL: u8 = 0;
const MEMBER_TCP: u8 = 1;
const MEMBER_LOOPBACK: u8 = 2;

/// Polls between two looks at the clock, while a port is quiet.
const CLOCK_EVERY: u32 = 16;

/// Time between two looks at quiet ports' control descriptors: the first and the longest. It
/// doubles while there is nothing to see. Long against the cost of the system call, short against a
/// connection being made; whoever sleeps on them does not wait for it.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// While shared memory is busy, TCP is polled every so many polls: its polls cost system calls.
const TCP_TURN: u32 = 8;

/// The ports of one endpoint.
#[derive(Debug)]
pub struct HostPorts {
    own: Identity,
    policy: Route,
    map: PortMap,
    loopback: LoopbackPort,
    /// `None` where Unix sockets cannot be had.
    local: Option<LocalPort>,
    tcp: TcpPort,
    local_quiet: bool,
    tcp_quiet: bool,
    /// Polls in which TCP had to wait for its turn.
    tcp_waits: u32,
    /// The next poll looks at the control descriptors.
    look: bool,
    polls: u32,
    next_look: Instant,
    look_every: Duration,
    /// All ports that are not quiet are armed ...
    armed: bool,
    /// ... and more has been done with them since than sending through shared memory.
    touched: bool,
    control: Nest,
    data: Nest,
}

/// One of the ports and a link's name there.
enum Owner {
    Local(LinkId),
    Tcp(LinkId),
    Loopback(LinkId),
    Nobody,
}

#[inline]
fn owner(link: LinkId) -> Owner {
    let inner = LinkId::new(link.index() & !OWNER_BITS, link.generation());
    match link.index() & OWNER_BITS {
        LOCAL => Owner::Local(link),
        TCP => Owner::Tcp(inner),
        LOOPBACK => Owner::Loopback(inner),
        _ => Owner::Nobody,
    }
}

#[inline]
fn outer(link: LinkId, owner: u32) -> LinkId {
    debug_assert_eq!(link.index() & OWNER_BITS, 0, "a port with 2^30 links");
    LinkId::new(link.index() | owner, link.generation())
}

/// What links nobody owns can carry: nothing in particular.
const NO_LIMITS: Limits = Limits {
    packet_max: 4 << 10,
    data_max: 4 << 10,
    pull_block: 4 << 10,
    remote_read: false,
};

impl HostPorts {
    /// Puts opened ports together; [`HostPorts::open`] opens them.
    pub(super) fn new(
        own: Identity,
        policy: Route,
        map: PortMap,
        local: Option<LocalPort>,
        tcp: TcpPort,
    ) -> io::Result<Self> {
        let loopback = LoopbackPort::new()?;
        let (control, data) = (Nest::new()?, Nest::new()?);
        let add = |member, fds: WakeDescriptors| {
            control.add(member, fds.control)?;
            data.add(member, fds.data)
        };
        if let Some(local) = &local {
            add(MEMBER_LOCAL, local.descriptors())?;
        }
        // The descriptors are the same whatever memory the port works with.
        add(MEMBER_TCP, Port::<Vec<u8>>::descriptors(&tcp))?;
        add(MEMBER_LOOPBACK, Port::<Vec<u8>>::descriptors(&loopback))?;
        Ok(Self {
            own,
            policy,
            map,
            loopback,
            local,
            tcp,
            local_quiet: true,
            tcp_quiet: true,
            tcp_waits: 0,
            look: true,
            polls: 0,
            next_look: Instant(0),
            look_every: LOOK_EVERY.0,
            armed: false,
            touched: false,
            control,
            data,
        })
    }

    /// Who this endpoint is.
    pub fn identity(&self) -> Identity {
        self.own
    }

    /// The control descriptor is readable: the next poll sees to it.
    pub fn note_control(&mut self) {
        self.look = true;
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

    /// The name of the port that carries `link`, for people.
    pub fn port_name(link: LinkId) -> &'static str {
        match owner(link) {
            Owner::Local(_) => "local",
            Owner::Tcp(_) => "tcp",
            Owner::Loopback(_) => "loopback",
            Owner::Nobody => "none",
        }
    }

    fn connect_local(&mut self, target: Target, clock: &dyn Clock) -> Result<LinkId, ConnectError> {
        let local = self.local.as_mut().ok_or(ConnectError::NoRoute)?;
        let link = local.connect_to(BOARD, target.endpoint.0, clock)?;
        self.local_quiet = false;
        Ok(outer(link, LOCAL))
    }

    fn connect_tcp<M: Memory>(
        &mut self,
        target: Target,
        clock: &dyn Clock,
    ) -> Result<LinkId, ConnectError> {
        let link = Port::<M>::connect(&mut self.tcp, target, clock)?;
        self.tcp_quiet = false;
        Ok(outer(link, TCP))
    }

    /// Polls that are not an everyday matter: looking at what is quiet.
    #[cold]
    fn look_around(&mut self, clock: &dyn Clock) {
        let now = clock.now();
        if !self.look && now < self.next_look {
            return;
        }
        self.look = false;
        let readable = self.control.readable();
        self.look_every = match readable {
            0 => (self.look_every * 2).min(LOOK_EVERY.1),
            _ => LOOK_EVERY.0,
        };
        self.next_look = now.after(self.look_every);
        if readable & (1 << MEMBER_LOCAL) != 0
            && let Some(local) = &mut self.local
        {
            local.note_control();
            self.local_quiet = false;
        }
        if readable & (1 << MEMBER_TCP) != 0 {
            self.tcp.note_control();
            self.tcp_quiet = false;
        }
    }
}

impl<M: Memory> Port<M> for HostPorts {
    #[inline]
    fn limits(&self, link: LinkId) -> Limits {
        match (owner(link), &self.local) {
            (Owner::Local(_), Some(local)) => local.limits(),
            (Owner::Tcp(link), _) => Port::<M>::limits(&self.tcp, link),
            (Owner::Loopback(link), _) => Port::<M>::limits(&self.loopback, link),
            _ => NO_LIMITS,
        }
    }

    fn connect(&mut self, target: Target, clock: &dyn Clock) -> Result<LinkId, ConnectError> {
        self.touched = true;
        if self.map.port(target.endpoint).is_err() {
            return Err(ConnectError::BadEndpoint);
        }
        if is_oneself(&self.own, target.nic, target.endpoint) {
            let link = Port::<M>::connect(&mut self.loopback, target, clock)?;
            return Ok(outer(link, LOOPBACK));
        }
        let route = if target.route == Route::AUTO {
            self.policy
        } else {
            target.route
        };
        let here = nic::is_local(target.nic);
        match route {
            Route::AUTO if here => match self.connect_local(target, clock) {
                Err(ConnectError::NoRoute | ConnectError::Refused) => {
                    self.connect_tcp::<M>(target, clock)
                }
                other => other,
            },
            Route::AUTO | ROUTE_TCP => self.connect_tcp::<M>(target, clock),
            ROUTE_LOCAL if here => self.connect_local(target, clock),
            _ => Err(ConnectError::NoRoute),
        }
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        match (owner(link), &mut self.local) {
            (Owner::Local(link), Some(local)) => local.bind(link, cookie),
            (Owner::Tcp(link), _) => Port::<M>::bind(&mut self.tcp, link, cookie),
            (Owner::Loopback(link), _) => Port::<M>::bind(&mut self.loopback, link, cookie),
            _ => {}
        }
    }

    #[inline]
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        match (owner(link), &mut self.local) {
            (Owner::Local(link), Some(local)) => {
                let sent = local.send(link, header, &body);
                self.touched |= sent != Ok(Sent::Whole);
                sent
            }
            (Owner::Tcp(link), _) => {
                self.touched = true;
                self.tcp.send(link, header, body)
            }
            (Owner::Loopback(link), _) => self.loopback.send(link, header, body),
            _ => Err(SendError::Down),
        }
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.touched = true;
        match (owner(link), &mut self.local) {
            (Owner::Local(link), Some(local)) => {
                Port::<M>::resume(local, link, memory, offset, len)
            }
            (Owner::Tcp(link), _) => self.tcp.resume(link, memory, offset, len),
            (Owner::Loopback(link), _) => self.loopback.resume(link, memory, offset, len),
            _ => Err(SendError::Down),
        }
    }

    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize) {
        self.touched = true;
        match (owner(link), &mut self.local) {
            (Owner::Local(link), Some(local)) => local.detach(link, memory, offset, len),
            (Owner::Tcp(link), _) => self.tcp.detach(link, memory, offset, len),
            (Owner::Loopback(link), _) => self.loopback.detach(link, memory, offset, len),
            _ => {}
        }
    }

    fn recall(&mut self, link: LinkId, token: u64) {
        self.touched = true;
        match (owner(link), &mut self.local) {
            (Owner::Local(link), Some(local)) => Port::<M>::recall(local, link, token),
            (Owner::Tcp(link), _) => Port::<M>::recall(&mut self.tcp, link, token),
            (Owner::Loopback(link), _) => Port::<M>::recall(&mut self.loopback, link, token),
            _ => {}
        }
    }

    #[inline]
    fn poll<S: Sink<M>>(&mut self, clock: &dyn Clock, budget: usize, sink: &mut S) -> bool {
        self.touched = true;
        self.polls = self.polls.wrapping_add(1);
        let quiet = self.tcp_quiet || self.local_quiet;
        if self.look || (quiet && self.polls % CLOCK_EVERY == 0) {
            self.look_around(clock);
        }
        let mut any = false;
        if !self.loopback.is_idle() {
            any |= self.loopback.poll(
                clock,
                budget,
                &mut Named {
                    sink,
                    owner: LOOPBACK,
                },
            );
        }
        if !self.local_quiet
            && let Some(local) = &mut self.local
        {
            let some = local.poll(clock, budget, sink);
            any |= some;
            self.local_quiet = !some && local.link_count() == 0 && local.deadline().is_none();
        }
        if !self.tcp_quiet {
            if any && self.tcp_waits < TCP_TURN {
                self.tcp_waits += 1;
                return true;
            }
            self.tcp_waits = 0;
            let some = self
                .tcp
                .poll(clock, budget, &mut Named { sink, owner: TCP });
            any |= some;
            self.tcp_quiet =
                !some && self.tcp.link_count() == 0 && Port::<M>::deadline(&self.tcp).is_none();
        }
        any
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.touched = true;
        match (owner(link), &mut self.local) {
            (Owner::Local(link), Some(local)) => local.close(link, how),
            (Owner::Tcp(link), _) => Port::<M>::close(&mut self.tcp, link, how),
            (Owner::Loopback(link), _) => Port::<M>::close(&mut self.loopback, link, how),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let local = self.local.as_ref().and_then(LocalPort::deadline);
        let tcp = Port::<M>::deadline(&self.tcp);
        match (local, tcp) {
            (Some(local), Some(tcp)) => Some(local.min(tcp)),
            (one, other) => one.or(other),
        }
    }

    fn arm(&mut self) -> bool {
        // Who sleeps is relied on to stay armed while others post; arming again costs system calls,
        // and a packet that shared memory took whole changes nothing about it.
        if self.armed && !self.touched && !self.look {
            return true;
        }
        // Quiet ports have no link, and control descriptors need no arming.
        let ready = !self.look
            && Port::<M>::arm(&mut self.loopback)
            && (self.tcp_quiet || Port::<M>::arm(&mut self.tcp))
            && (self.local_quiet || self.local.as_mut().is_none_or(LocalPort::arm));
        if !ready {
            Port::<M>::disarm(self);
        }
        (self.armed, self.touched) = (ready, false);
        ready
    }

    fn disarm(&mut self) {
        self.armed = false;
        Port::<M>::disarm(&mut self.loopback);
        Port::<M>::disarm(&mut self.tcp);
        if let Some(local) = &mut self.local {
            local.disarm();
        }
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: Some(self.control.raw()),
            data: Some(self.data.raw()),
        }
    }
}

/// Gives links of one port the names they have outside.
struct Named<'a, S> {
    sink: &'a mut S,
    owner: u32,
}

impl<M: Memory, S: Sink<M>> Sink<M> for Named<'_, S> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        self.sink.on_up(outer(link, self.owner), cookie);
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        self.sink.on_down(outer(link, self.owner), cookie, reason);
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        self.sink
            .on_packet(outer(link, self.owner), cookie, header, body);
    }

    #[inline]
    fn place(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) -> Option<Place<'_, M>> {
        self.sink.place(outer(link, self.owner), cookie, header)
    }

    #[inline]
    fn on_placed(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) {
        self.sink.on_placed(outer(link, self.owner), cookie, header);
    }

    fn on_writable(&mut self, link: LinkId, cookie: u64) {
        self.sink.on_writable(outer(link, self.owner), cookie);
    }

    fn on_released(&mut self, link: LinkId, cookie: u64, token: u64) {
        self.sink
            .on_released(outer(link, self.owner), cookie, token);
    }

    fn on_remote_activity(&mut self, link: LinkId, cookie: u64, what: mx_proto::port::RemoteUse) {
        self.sink
            .on_remote_activity(outer(link, self.owner), cookie, what);
    }

    fn on_remote_read(&mut self, link: LinkId, cookie: u64, token: u64, ok: bool) {
        self.sink
            .on_remote_read(outer(link, self.owner), cookie, token, ok);
    }
}
