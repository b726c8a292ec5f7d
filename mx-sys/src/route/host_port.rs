//! Tasks of each port for an endpoint beside carrying packets: the table of ports, in code.
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

/// A port to which nothing is sent (RFC 863).
const DISCARD: u16 = 9;

/// A port of an endpoint.
pub(super) trait HostPort<M: Memory>: Port<M> + Any + Send {
    /// Begins a link. `fallback`: the route of another port over which the link is made if it does not come up.
    fn begin_link(
        &mut self,
        target: Target,
        _fallback: Option<Route>,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        self.connect(target, now)
    }

    /// Returns the provider's name if sessions over this port are met over TCP and move to its links.
    fn fabric(&self) -> Option<&str> {
        None
    }

    /// Whether a session with a target may move to this port's fabric, as far as can be told before it is met.
    fn may_move(&mut self, _target: Target, _now: Instant) -> bool {
        true
    }

    /// Makes an end of a link for a peer from there, if there has to be one before it is used. Returns our address.
    fn offer_link(
        &mut self,
        _from: Origin,
        _now: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        Err(MoveRefusal::Failed)
    }

    /// Begins a link to the peer that has offered this address.
    fn call_offered(&mut self, _address: &[u8], _now: Instant) -> Result<LinkId, MoveRefusal> {
        Err(MoveRefusal::Failed)
    }

    /// Lets sleepers on `nest` wait for this port, as `member`.
    fn wake_through(&mut self, nest: &Epoll, member: u8) -> io::Result<()> {
        nest.join(member, self.descriptors().data)
    }

    /// Whether the port has a turn in a round. `every`: each port that may have work has one; `any`: something has
    /// happened in this round.
    fn has_turn(&self, quiet: bool, _every: bool, _any: bool) -> bool {
        !quiet
    }

    /// Returns the origin of a link, or the address it was made to.
    fn origin(&self, link: LinkId) -> Origin;

    /// Returns the figures of a link, for tools, if it goes over a network.
    fn figures(&self, _link: LinkId, _now: Instant) -> Option<LinkFigures> {
        None
    }

    /// [`Rounds::body`], as bytes.
    fn bytes(&self) -> &[u8];

    /// Follows a change of the interfaces: those of now, and the device that ports over a fabric are to use. `settled`:
    /// addresses that are gone will not come back.
    fn follow(&mut self, _interfaces: &Interfaces, _device: &Device, _settled: bool) {}

    /// Copies the counters to their place.
    fn count<'a>(&'a self, _view: &mut PortView<'a>) {}
}

/// The ports of one endpoint, by number, and which of them are quiet.
#[derive(Debug)]
pub(super) struct PortList<M> {
    /// `None` where Unix sockets cannot be had. A field of its own: sends and polls are inlined down to the ring.
    pub(super) local: Option<LocalPort>,
    /// A field of its own: sessions are met over this port.
    pub(super) tcp: TcpPort,
    /// A field of its own: every poll asks whether this port has anything.
    pub(super) loopback: LoopbackPort,
    /// All others, by number from [`RDM`] on.
    pub(super) lazy: [Lazy<M>; LAZY],
    /// Bits of the ports that are quiet, by number.
    quiet: u16,
}

/// Number of ports that may be opened later: those from [`RDM`] on.
pub(super) const LAZY: usize = PORTS.len() - RDM as usize;

impl<M: Memory + 'static> PortList<M> {
    /// Puts opened ports together. `lazy` in the order of their numbers; what it does not have cannot be had.
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

    /// A port by its number ([`LinkId::port`]), if it is open.
    pub(super) fn get(&self, number: u8) -> Option<&dyn HostPort<M>> {
        match number {
            LOCAL => self.local.as_ref().map(|port| port as _),
            TCP => Some(&self.tcp),
            LOOPBACK => Some(&self.loopback),
            _ => self.lazy.get(lazy_index(number))?.port.as_deref(),
        }
    }

    /// A port by its number, if it is open, to do something with it.
    pub(super) fn get_mut(&mut self, number: u8) -> Option<&mut dyn HostPort<M>> {
        match number {
            LOCAL => self.local.as_mut().map(|port| port as _),
            TCP => Some(&mut self.tcp),
            LOOPBACK => Some(&mut self.loopback),
            _ => self.lazy.get_mut(lazy_index(number))?.port.as_deref_mut(),
        }
    }

    /// A port that may be opened later, by its number.
    pub(super) fn lazy_mut(&mut self, number: u8) -> Option<&mut Lazy<M>> {
        self.lazy.get_mut(lazy_index(number))
    }

    /// All ports that are open, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &dyn HostPort<M>)> {
        let open = |number| Some((number, self.get(number)?));
        (0..PORTS.len() as u8).filter_map(open)
    }

    /// All ports that are open, to do something with them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u8, &mut dyn HostPort<M>)> {
        let local = self.local.as_mut().map(|port| (LOCAL, port as _));
        let always: [(u8, &mut dyn HostPort<M>); 2] =
            [(TCP, &mut self.tcp), (LOOPBACK, &mut self.loopback)];
        let lazy = (RDM..).zip(&mut self.lazy);
        let lazy = lazy.filter_map(|(number, lazy)| Some((number, lazy.port.as_deref_mut()?)));
        local.into_iter().chain(always).chain(lazy)
    }

    /// Whether no port but local has anything to look at, as far as is known.
    pub(super) fn are_others_quiet(&self) -> bool {
        self.is_quiet(TCP) && self.lazy.iter().all(|lazy| lazy.port.is_none())
    }

    pub(super) fn is_quiet(&self, number: u8) -> bool {
        self.quiet & (1 << number) != 0
    }

    pub(super) fn set_quiet(&mut self, number: u8, quiet: bool) {
        self.quiet = self.quiet & !(1 << number) | u16::from(quiet) << number;
    }

    /// Ends the quiet of the ports with these bits.
    pub(super) fn unquiet(&mut self, bits: u16) {
        self.quiet &= !bits;
    }

    /// Makes a port quiet whose poll found nothing (`some` is false), if it has no link and no deadline.
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
    /// Looks at sockets where nothing else has happened, or now and then: each look is a system call.
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
            // The route there counts; nothing is sent.
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

    /// Returns no origin: an address of a fabric proves nothing about an interface, and no peer is met there.
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

    /// Looks now and then for strangers, too: no control descriptor says that there are some.
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

/// The counters of all ports, by port, in the order they are shown.
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
            /// Bits of all ports that are open.
            pub(crate) open: u32,
            /// Number of links of all of them.
            pub links: usize,
        }

        const COUNT: usize = 0 $(+ $stats::COUNTERS.len())+;

        impl PortView<'_> {
            /// Names of the counters of all ports.
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
