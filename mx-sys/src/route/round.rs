//! A round of all ports, one after the other.
//!
//! ```text
//!   begin_active --> local's active links, and nothing else
//!   begin        --> loopback --> local --> rdm --> dgram --> tcp, and what follows for the address exchange
//!                    a port that is quiet is left out; so are dgram and tcp, unless it is their turn or nothing has
//!                    happened
//! ```
//!
//! What belongs to the address exchange does not leave: its TCP links, and the reasons for which links over rdm and
//! dgram do not come up.
//!
//! Owns: the position among the ports.

use super::address_exchange::{Askers, What, recognise};
use super::dgram::Dgram;
use super::host::{HostPorts, ROUND};
use super::lazy::Lazy;
use mx_port_base::cancellation::Off;
use mx_port_base::ports::{DGRAM, LOCAL, LOOPBACK, PORTS, RDM, TCP};
use mx_port_local::{Lent, LocalPort};
use mx_port_rdm::FabricPort;
use mx_proto::port::{LinkDown, Place, Port};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::{Instant, Memory};

/// The order in which ports have their turns: those first for which it is cheap.
const TURNS: [u8; PORTS.len()] = [LOOPBACK, LOCAL, RDM, DGRAM, TCP];

/// The position within a round.
#[derive(Debug)]
pub(super) struct Round {
    now: Instant,
    budget: usize,
    /// Only local's active links have a turn.
    active: bool,
    /// The turn in [`TURNS`].
    at: usize,
    /// That port is in a round of its own.
    begun: bool,
    any: bool,
    /// The port that has given out the last event.
    of: u8,
}

impl Round {
    pub(super) fn new() -> Self {
        Self {
            now: Instant(0),
            budget: 0,
            active: false,
            at: TURNS.len(),
            begun: false,
            any: false,
            of: LOOPBACK,
        }
    }
}

impl<M: Memory, R: FabricPort + Port<M>> Rounds<M> for HostPorts<R>
where
    for<'a> R: Rounds<M, Lent<'a> = &'a [u8]> + 'a,
{
    type Lent<'a>
        = Lent<'a>
    where
        Self: 'a;

    #[inline(always)]
    fn begin_active(&mut self, budget: usize) -> bool {
        self.touched = true;
        self.turn = self.turn.wrapping_add(1);
        let Some(local) = self.local.as_mut().filter(|local| local.is_active()) else {
            return false;
        };
        if self.turn % ROUND == 0 || self.look || !self.loopback.is_idle() {
            return false;
        }
        (self.round.active, self.round.of) = (true, LOCAL);
        local.begin_active(budget);
        true
    }

    #[inline(never)]
    fn begin(&mut self, now: Instant, budget: usize) {
        let _off = Off::new();
        let told = std::mem::take(&mut self.told);
        if !self.lost && (self.look || (self.turn % ROUND == 0 && !told)) {
            self.look_around(now);
        }
        let round = &mut self.round;
        (round.now, round.budget, round.any) = (now, budget, false);
        (round.active, round.at, round.begun) = (false, 0, false);
        if self.lost {
            (self.turn, round.at) = (0, TURNS.len());
        }
    }

    #[inline(always)]
    fn next(&mut self) -> Next {
        if self.round.active
            && let Some(local) = &mut self.local
        {
            return local.next_event();
        }
        self.next_of_all()
    }

    #[inline(always)]
    fn body(&self) -> Lent<'_> {
        match self.round.of {
            LOCAL => self
                .local
                .as_ref()
                .map_or(Lent::Bytes(&[]), LocalPort::lent),
            of => Lent::Bytes(self.bytes_of(of)),
        }
    }

    fn read(&mut self, place: Place<'_, M>) {
        let _off = Off::new();
        if let Some(port) = self.carrier_of(self.round.of) {
            port.read(place);
        }
    }

    fn skip(&mut self) {
        let _off = Off::new();
        if let Some(port) = self.carrier_of(self.round.of) {
            port.skip();
        }
    }
}

impl<R: FabricPort> HostPorts<R> {
    #[inline(never)]
    fn next_of_all<M: Memory>(&mut self) -> Next
    where
        for<'a> R: Port<M> + Rounds<M, Lent<'a> = &'a [u8]> + 'a,
    {
        let _off = Off::new();
        loop {
            let Some(&of) = TURNS.get(self.round.at) else {
                let any = self.round.any;
                return Next::End { any };
            };
            if !self.round.begun && !self.begin_port(of) {
                self.round.at += 1;
                continue;
            }
            self.round.begun = true;
            match self.next_of(of) {
                Next::Event(event) => {
                    self.round.of = of;
                    if let Some(event) = self.sift(of, event) {
                        return Next::Event(event);
                    }
                }
                Next::End { any } => {
                    self.round.begun = false;
                    self.round.at += 1;
                    self.end_port(of, any);
                }
            }
        }
    }

    /// Begins the round of a port. False: it has no turn.
    fn begin_port<M: Memory>(&mut self, of: u8) -> bool
    where
        R: Port<M>,
    {
        let (now, budget) = (self.round.now, self.round.budget);
        let round = self.turn % ROUND == 0;
        let has_turn = match of {
            LOOPBACK => !self.loopback.is_idle(),
            DGRAM => round || !(self.round.any || self.is_quiet(DGRAM)),
            TCP => !self.is_quiet(TCP) && (round || !self.round.any),
            of => !self.is_quiet(of),
        };
        if !has_turn {
            return false;
        }
        if let (LOCAL, Some(local)) = (of, &mut self.local) {
            local.begin_round(self.turn, now, budget);
            return true;
        }
        match self.carrier_of(of) {
            Some(port) => {
                port.begin(now, budget);
                true
            }
            None => {
                self.set_quiet(of, true);
                false
            }
        }
    }

    fn next_of<M: Memory>(&mut self, of: u8) -> Next
    where
        R: Port<M>,
    {
        if let (LOCAL, Some(local)) = (of, &mut self.local) {
            return local.next_event();
        }
        match self.carrier_of(of) {
            Some(port) => port.next(),
            None => Next::End { any: false },
        }
    }

    /// The bytes that a port other than local lends.
    #[inline(never)]
    fn bytes_of<M: Memory>(&self, of: u8) -> &[u8]
    where
        for<'a> R: Rounds<M, Lent<'a> = &'a [u8]> + 'a,
    {
        match of {
            LOOPBACK => Rounds::<M>::body(&self.loopback),
            TCP => Rounds::<M>::body(&self.tcp),
            RDM => self.rdm.port.as_ref().map_or(&[], R::body),
            DGRAM => self.dgram.port.as_ref().map_or(&[], Rounds::<M>::body),
            _ => &[],
        }
    }

    /// A port has had its turn, in which it found something or not.
    fn end_port(&mut self, of: u8, mut some: bool) {
        if of == TCP {
            let ports = askers(&mut self.rdm, &mut self.dgram);
            if self.exchange.run(ports, &mut self.tcp, self.round.now) {
                some = true;
                self.expect_asked();
            }
        }
        self.round.any |= if of == LOOPBACK {
            some
        } else {
            self.note_poll(of, some)
        };
    }

    /// The event for the endpoint, if it is not the address exchange's.
    #[inline]
    fn sift(&mut self, of: u8, event: PortEvent) -> Option<PortEvent> {
        match of {
            TCP => self.sift_tcp(event),
            RDM => Some(self.end_attempt(event, RDM)),
            DGRAM => Some(self.end_attempt(event, DGRAM)),
            _ => Some(event),
        }
    }

    /// The exchange hears of its TCP links, and of the first packets of strangers.
    fn sift_tcp(&mut self, event: PortEvent) -> Option<PortEvent> {
        let (exchange, link) = (&self.exchange, event.link());
        let is_own = exchange.is_asking(link) || exchange.is_watching(link);
        let question = match event {
            PortEvent::Packet { header, .. } if !is_own && self.tcp.is_stranger(link) => {
                recognise(&header)
            }
            _ => None,
        };
        if !is_own && question.is_none() {
            return Some(event);
        }
        self.exchange_on(event, question)
    }

    /// An event of a TCP link of the exchange's, or a stranger's question.
    #[cold]
    fn exchange_on(
        &mut self,
        event: PortEvent,
        question: Option<(What, bool)>,
    ) -> Option<PortEvent> {
        let (link, now) = (event.link(), self.round.now);
        let asking = self.exchange.is_asking(link);
        let ports = askers(&mut self.rdm, &mut self.dgram);
        let (exchange, tcp) = (&mut self.exchange, &mut self.tcp);
        let ended = match (event, question) {
            (PortEvent::Up(_) | PortEvent::Writable(_), _) if asking => {
                exchange.ask((ports, tcp), link, now);
                false
            }
            (PortEvent::Down(_, reason), _) => {
                exchange.lost(ports, link, reason, now);
                false
            }
            (PortEvent::Packet { header, .. }, _) if asking => {
                exchange.on_answer((ports, tcp), link, &header, now);
                false
            }
            (_, Some((What::Question(of), known))) => {
                exchange.on_question((ports, tcp), (of, known), link, now)
            }
            (_, Some((What::Hail(of), true))) => exchange.on_hail((ports, tcp), of, link),
            (_, Some(_)) => return Some(event),
            // What comes on a link that watches means nothing.
            (_, None) => false,
        };
        self.round.any = true;
        self.expect_asked();
        ended.then_some(PortEvent::Down(link, LinkDown::Closed))
    }

    /// The exchange has done something, so the ports whose peers are asked for may have work.
    fn expect_asked(&mut self) {
        self.set_quiet(RDM, false);
        self.set_quiet(DGRAM, false);
    }

    /// Notes the ends of attempts to connect on the rdm or the dgram port.
    fn end_attempt(&mut self, event: PortEvent, of: u8) -> PortEvent {
        let ours = match of {
            RDM => &self.rdm.provider,
            _ => &self.dgram.provider,
        };
        match event {
            PortEvent::Up(link) => {
                self.exchange.end_attempt(ours, link, None);
                event
            }
            PortEvent::Down(link, reason) => {
                self.exchange.on_link_down(link);
                let outcome = self.exchange.end_attempt(ours, link, Some(reason));
                PortEvent::Down(link, outcome.unwrap_or(reason))
            }
            _ => event,
        }
    }
}

/// The ports for whose peers the exchange asks, as far as they are open.
fn askers<'a, R: FabricPort>(rdm: &'a mut Lazy<R>, dgram: &'a mut Dgram) -> Askers<'a> {
    Askers {
        rdm: rdm.port.as_mut().map(|rdm| rdm as _),
        dgram: dgram.endpoint_addresses(),
    }
}
