//! Functions of each port for an endpoint beside carrying packets.
//!
//! ```text
//!   HostPorts --- number ---> dyn HostPort: begin a link, turns, origin, figures, counters, interfaces
//! ```
//!
//! Name, number and route of each port are in [`mx_port_base::ports`].
//!
//! Out of scope: opening (`open`), the choice of a port (`choice`).

use super::lazy::Lazy;
use super::loopback::LoopbackPort;
use super::open::BOARD;
use crate::nic;
use crate::published::joined;
use mx_port_base::epoll::Epoll;
use mx_port_base::interfaces::Interfaces;
use mx_port_base::origin::Origin;
use mx_port_base::ports::{LOCAL, LOOPBACK, PORTS, RDM, TCP};
use mx_port_dgram::fabric::FabricDatagrams;
use mx_port_dgram::{self as dgram, AnyAddress, DgramPort};
use mx_port_local::{LocalPort, LocalStats};
use mx_port_rdm::{Device, RdmPort, RdmStats};
use mx_port_tcp::{TcpPort, TcpStats};
use mx_proto::port::{ConnectError, LinkFigures, MoveRefusal, Port};
use mx_proto::reliability::ReliableStats;
use mx_proto::round::Rounds;
use mx_proto::{Counter, Instant, LinkId, Memory, Route, Target};
use std::any::Any;
use std::io;

/// UDP port of the discard service (RFC 863), for a route lookup.
const DISCARD: u16 = 9;

/// A port of an endpoint.
pub(super) trait HostPort<M: Memory>: Port<M> + Any + Send {
    /// Begins a link. `fallback`: route of the other port that is tried if the link does not come up.
    fn begin_link(
        &mut self,
        target: Target,
        _fallback: Option<Route>,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        self.connect(target, now)
    }

    /// Returns the provider's name if sessions begin on TCP and move to this port's links.
    fn fabric(&self) -> Option<&str> {
        None
    }

    /// Returns whether a session with a target may move to this port's fabric, as far as that is known before it is
    /// connected.
    fn may_move(&mut self, _target: Target, _now: Instant) -> bool {
        true
    }

    /// Offers a peer at `from` a link. Returns this endpoint's address, and the link if its end has to exist before the
    /// peer connects.
    fn offer_link(
        &mut self,
        _from: Origin,
        _now: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        Err(MoveRefusal::Failed)
    }

    /// Connects to the peer that has offered `address`.
    fn call_offered(&mut self, _address: &[u8], _now: Instant) -> Result<LinkId, MoveRefusal> {
        Err(MoveRefusal::Failed)
    }

    /// Adds the port's descriptors to `nest`, as `member`, for sleepers.
    fn wake_through(&mut self, nest: &Epoll, member: u8) -> io::Result<()> {
        nest.join(member, self.descriptors().data)
    }

    /// Returns whether the port is polled in a round. `every`: the round includes each port that may have work; `any`:
    /// an event has happened in this round.
    fn has_turn(&self, quiet: bool, _every: bool, _any: bool) -> bool {
        !quiet
    }

    /// Returns the origin of a link, or the address it was made to.
    fn origin(&self, link: LinkId) -> Origin;

    /// Returns the transport statistics of a link over a network, for tools.
    fn figures(&self, _link: LinkId, _now: Instant) -> Option<LinkFigures> {
        None
    }

    /// Returns [`Rounds::body`] as bytes.
    fn bytes(&self) -> &[u8];

    /// Handles a change of the interfaces. `interfaces`: the current ones; `device`: the device for ports over a
    /// fabric; `settled`: lost addresses will not come back.
    fn follow(&mut self, _interfaces: &Interfaces, _device: &Device, _settled: bool) {}

    /// Copies the port's counters into `view`.
    fn count<'a>(&'a self, _view: &mut PortView<'a>) {}
}

/// The ports of one endpoint by number, and which of them are quiet.
#[derive(Debug)]
pub(super) struct PortList<M> {
    /// `None` without Unix sockets. A separate field: sends and polls are inlined down to the ring.
    pub(super) local: Option<LocalPort>,
    /// A separate field: sessions over a fabric begin on this port.
    pub(super) tcp: TcpPort,
    /// A separate field: every poll checks whether this port has events.
    pub(super) loopback: LoopbackPort,
    /// The other ports, by number from [`RDM`] on.
    pub(super) lazy: [Lazy<M>; LAZY],
    /// Bits of the quiet ports, by number.
    quiet: u16,
}

/// Number of ports that may be opened later: those from [`RDM`] on.
pub(super) const LAZY: usize = PORTS.len() - RDM as usize;

impl<M: Memory + 'static> PortList<M> {
    /// Combines opened ports. `lazy`: in the order of their numbers; missing ones are never opened.
    pub(super) fn new(
        local: Option<LocalPort>,
        tcp: TcpPort,
        lazy: impl IntoIterator<Item = Lazy<M>>,
    ) -> io::Result<Self> {
        let mut lazy = lazy.into_iter();
        let lazy = std::array::from_fn(|_| lazy.next().unwrap_or_else(Lazy::never));
        Ok(Self {
            local,
            tcp,
            loopback: LoopbackPort::new()?,
            lazy,
            quiet: 1 << LOCAL | 1 << TCP | 1 << RDM,
        })
    }

    /// Returns the open port of that number ([`LinkId::port`]).
    pub(super) fn get(&self, number: u8) -> Option<&dyn HostPort<M>> {
        match number {
            LOCAL => self.local.as_ref().map(|port| port as _),
            TCP => Some(&self.tcp),
            LOOPBACK => Some(&self.loopback),
            _ => self.lazy.get(lazy_index(number))?.port.as_deref(),
        }
    }

    /// Returns the open port of that number.
    pub(super) fn get_mut(&mut self, number: u8) -> Option<&mut dyn HostPort<M>> {
        match number {
            LOCAL => self.local.as_mut().map(|port| port as _),
            TCP => Some(&mut self.tcp),
            LOOPBACK => Some(&mut self.loopback),
            _ => self.lazy.get_mut(lazy_index(number))?.port.as_deref_mut(),
        }
    }

    /// Returns the port of that number that may be opened later.
    pub(super) fn lazy_mut(&mut self, number: u8) -> Option<&mut Lazy<M>> {
        self.lazy.get_mut(lazy_index(number))
    }

    /// Iterates over the open ports with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &dyn HostPort<M>)> {
        let open = |number| Some((number, self.get(number)?));
        (0..PORTS.len() as u8).filter_map(open)
    }

    /// Iterates over the open ports with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u8, &mut dyn HostPort<M>)> {
        let local = self.local.as_mut().map(|port| (LOCAL, port as _));
        let always: [(u8, &mut dyn HostPort<M>); 2] =
            [(TCP, &mut self.tcp), (LOOPBACK, &mut self.loopback)];
        let lazy = (RDM..).zip(&mut self.lazy);
        let lazy = lazy.filter_map(|(number, lazy)| Some((number, lazy.port.as_deref_mut()?)));
        local.into_iter().chain(always).chain(lazy)
    }

    /// Returns whether no port but local needs polling, as far as is known.
    pub(super) fn are_others_quiet(&self) -> bool {
        self.is_quiet(TCP) && self.lazy.iter().all(|lazy| lazy.port.is_none())
    }

    pub(super) fn is_quiet(&self, number: u8) -> bool {
        self.quiet & (1 << number) != 0
    }

    pub(super) fn set_quiet(&mut self, number: u8, quiet: bool) {
        self.quiet = self.quiet & !(1 << number) | u16::from(quiet) << number;
    }

    /// Clears the quiet bits of these ports.
    pub(super) fn unquiet(&mut self, bits: u16) {
        self.quiet &= !bits;
    }

    /// Makes a port quiet after a poll without events (`some` is false) if it has no link and no deadline.
    pub(super) fn note_poll(&mut self, number: u8, some: bool) {
        let idle = |port: &dyn HostPort<M>| port.link_count() == 0 && port.deadline().is_none();
        let quiet = !some && self.get(number).is_none_or(idle);
        self.set_quiet(number, quiet);
    }
}

fn lazy_index(number: u8) -> usize {
    usize::from(number).wrapping_sub(RDM.into())
}

impl<M: Memory> HostPort<M> for LocalPort {
    fn begin_link(
        &mut self,
        target: Target,
        fallback: Option<Route>,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        self.connect_or(BOARD, target.endpoint.0, fallback, now)
    }

    /// Does nothing: the port's own epoll instance is the nest.
    fn wake_through(&mut self, _nest: &Epoll, _member: u8) -> io::Result<()> {
        Ok(())
    }

    fn origin(&self, link: LinkId) -> Origin {
        self.origin(link)
    }

    /// Returns no bytes: this port lends cells ([`LocalPort::lent`]).
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn count(&self, view: &mut PortView<'_>) {
        view.local = self.stats();
    }
}

impl<M: Memory> HostPort<M> for TcpPort {
    /// Checks sockets if nothing else has happened, or occasionally: each check is a system call.
    fn has_turn(&self, quiet: bool, every: bool, any: bool) -> bool {
        !quiet && (every || !any)
    }

    fn origin(&self, link: LinkId) -> Origin {
        self.origin(link)
    }

    fn figures(&self, link: LinkId, now: Instant) -> Option<LinkFigures> {
        self.figures(link, now)
    }

    fn bytes(&self) -> &[u8] {
        Rounds::<M>::body(self)
    }

    fn follow(&mut self, _interfaces: &Interfaces, _device: &Device, settled: bool) {
        if settled {
            self.leave_old_addresses();
        }
    }

    fn count(&self, view: &mut PortView<'_>) {
        view.tcp = self.stats();
    }
}

impl<M: Memory> HostPort<M> for LoopbackPort {
    fn has_turn(&self, _quiet: bool, _every: bool, _any: bool) -> bool {
        !self.is_idle()
    }

    fn origin(&self, _link: LinkId) -> Origin {
        Origin::Oneself
    }

    fn bytes(&self) -> &[u8] {
        Rounds::<M>::body(self)
    }
}

impl<M: Memory> HostPort<M> for RdmPort {
    fn fabric(&self) -> Option<&str> {
        Some(self.provider())
    }

    fn may_move(&mut self, target: Target, now: Instant) -> bool {
        if let Some(mut peer) = nic::address(target.nic) {
            // Only the route to the peer counts; nothing is sent.
            peer.set_port(DISCARD);
            self.face(peer);
        }
        self.is_ready(now)
    }

    fn offer_link(
        &mut self,
        from: Origin,
        now: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        if let Origin::Address(peer) = from {
            self.face(peer);
        }
        let (link, address) = self.offer(now)?;
        Ok((Some(link), address))
    }

    fn call_offered(&mut self, address: &[u8], now: Instant) -> Result<LinkId, MoveRefusal> {
        self.call(address, now)
    }

    fn wake_through(&mut self, nest: &Epoll, _member: u8) -> io::Result<()> {
        self.wake_through(nest.as_fd())
    }

    /// Returns no origin: an address of a fabric proves nothing about an interface, and sessions do not begin on this
    /// port.
    fn origin(&self, _link: LinkId) -> Origin {
        Origin::Unknown
    }

    fn bytes(&self) -> &[u8] {
        Rounds::<M>::body(self)
    }

    fn follow(&mut self, _interfaces: &Interfaces, device: &Device, settled: bool) {
        self.follow(device.clone(), settled);
    }

    fn count<'a>(&'a self, view: &mut PortView<'a>) {
        (view.rdm, view.provider) = (self.stats(), self.provider());
    }
}

impl<M: Memory> HostPort<M> for DgramPort {
    fn fabric(&self) -> Option<&str> {
        let fabric = self.datagrams().fabric();
        fabric.map(FabricDatagrams::provider)
    }

    fn offer_link(
        &mut self,
        _from: Origin,
        _now: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        Ok((None, dgram::offer(self)?))
    }

    fn call_offered(&mut self, address: &[u8], now: Instant) -> Result<LinkId, MoveRefusal> {
        dgram::call(self, address, now)
    }

    fn wake_through(&mut self, nest: &Epoll, member: u8) -> io::Result<()> {
        dgram::wake_through(self, nest, member)
    }

    /// Polls occasionally for strangers, too: no control descriptor reports them.
    fn has_turn(&self, quiet: bool, every: bool, any: bool) -> bool {
        every || !(any || quiet)
    }

    fn origin(&self, link: LinkId) -> Origin {
        let address = self.address(link);
        address.map_or(Origin::Unknown, AnyAddress::origin)
    }

    fn figures(&self, link: LinkId, _now: Instant) -> Option<LinkFigures> {
        self.figures(link)
    }

    fn bytes(&self) -> &[u8] {
        Rounds::<M>::body(self)
    }

    fn follow(&mut self, interfaces: &Interfaces, _device: &Device, settled: bool) {
        dgram::follow(self, interfaces, settled);
    }

    fn count(&self, view: &mut PortView<'_>) {
        view.dgram = *self.stats();
    }
}

/// Counters of all ports, by port, in the order in which they are shown.
macro_rules! port_view {
    ($($port:ident: $stats:ident,)+) => {
        /// Counters of an endpoint's ports; zeros for those that are not open.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct PortView<'a> {
            $(
                /// Counters of this port.
                pub $port: $stats,
            )+
            /// Name of the rdm port's provider; empty while that port is not open.
            pub provider: &'a str,
            /// Bits of the open ports.
            pub(crate) open: u32,
            /// Number of links of all ports.
            pub links: usize,
        }

        const COUNT: usize = 0 $(+ $stats::COUNTERS.len())+;

        impl PortView<'_> {
            /// Labels and descriptions of the counters of all ports, port by port.
            pub const COUNTERS: [Counter; COUNT] = joined(&[$(&$stats::COUNTERS),+]);

            /// Returns the values of all counters, in the order of [`Self::COUNTERS`].
            pub fn values(&self) -> [u64; COUNT] {
                joined(&[$(&self.$port.values()),+])
            }
        }
    };
}

port_view! {
    local: LocalStats,
    tcp: TcpStats,
    rdm: RdmStats,
    dgram: ReliableStats,
}
