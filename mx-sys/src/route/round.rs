//! A round of all ports, one after the other.
//!
//! ```text
//!   begin_active --> local's active links, and nothing else
//!   begin        --> loopback --> rdm --> dgram --> local --> tcp, and what follows for the address exchange
//!                    a port that is quiet is left out; so are dgram and tcp, unless it is their turn or nothing has
//!                    happened
//! ```
//!
//! What belongs to the address exchange does not leave: its TCP links, and the reasons for which links over rdm and
//! dgram do not come up.
//!
//! Owns: the position among the ports.

use super::address_exchange::{What, recognise};
use super::host::{HostPorts, ROUND};
use mx_port_base::cancellation::Off;
use mx_port_base::ports::{LOCAL, LOOPBACK, PORTS, TCP};
use mx_port_local::{Lent, LocalPort};
use mx_proto::port::{LinkDown, Place};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::{Instant, Memory};

/// The port that has the first turn. The others follow in the order of their numbers, so that TCP, where each look is a system
/// call, is the last.
const FIRST: usize = LOOPBACK as usize;

/// The position within a round.
#[derive(Debug)]
pub(super) struct Round {
    now: Instant,
    budget: usize,
    /// Only local's active links have a turn.
    active: bool,
    /// Number of turns so far.
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
            at: PORTS.len(),
            begun: false,
            any: false,
            of: LOOPBACK,
        }
    }
}

impl<M: Memory + 'static> Rounds<M> for HostPorts<M> {
    type Lent<'a>
        = Lent<'a>
    where
        Self: 'a;

    #[inline(always)]
    fn begin_active(&mut self, budget: usize) -> bool {
        self.touched = true;
        self.turn = self.turn.wrapping_add(1);
        let Some(local) = self.ports.local.as_mut().filter(|local| local.is_active()) else {
            return false;
        };
        if self.turn % ROUND == 0 || self.look || !self.ports.loopback.is_idle() {
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
            (self.turn, round.at) = (0, PORTS.len());
        }
    }

    #[inline(always)]
    fn next(&mut self) -> Next {
        if self.round.active
            && let Some(local) = &mut self.ports.local
        {
            return local.next_event();
        }
        self.next_of_all()
    }

    #[inline(always)]
    fn body(&self) -> Lent<'_> {
        match self.round.of {
            LOCAL => self
                .ports
                .local
                .as_ref()
                .map_or(Lent::Bytes(&[]), LocalPort::lent),
            _ => Lent::Bytes(self.body_elsewhere()),
        }
    }

    fn read(&mut self, place: Place<'_, M>) {
        let _off = Off::new();
        if let Some(port) = self.ports.get_mut(self.round.of) {
            port.read(place);
        }
    }

    fn skip(&mut self) {
        let _off = Off::new();
        if let Some(port) = self.ports.get_mut(self.round.of) {
            port.skip();
        }
    }
}

impl<M: Memory + 'static> HostPorts<M> {
    /// The body of a packet of another port than local.
    #[inline(never)]
    fn body_elsewhere(&self) -> &[u8] {
        let port = self.ports.get(self.round.of);
        port.map_or(&[], |port| port.bytes())
    }

    #[inline(never)]
    fn next_of_all(&mut self) -> Next {
        let _off = Off::new();
        loop {
            if self.round.at == PORTS.len() {
                let any = self.round.any;
                return Next::End { any };
            }
            let turn = self.round.at + FIRST;
            let of = turn.checked_sub(PORTS.len()).unwrap_or(turn) as u8;
            if !self.round.begun && !self.begin_port(of) {
                self.round.at += 1;
                continue;
            }
            self.round.begun = true;
            let next = match (of, &mut self.ports.local) {
                (LOCAL, Some(local)) => local.next_event(),
                _ => match self.ports.get_mut(of) {
                    Some(port) => port.next(),
                    None => Next::End { any: false },
                },
            };
            match next {
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
    fn begin_port(&mut self, of: u8) -> bool {
        let (now, budget, any) = (self.round.now, self.round.budget, self.round.any);
        let (turn, quiet) = (self.turn, self.ports.is_quiet(of));
        if let (LOCAL, Some(local), false) = (of, &mut self.ports.local, quiet) {
            local.begin_round(turn, now, budget);
            return true;
        }
        let Some(port) = self.ports.get_mut(of) else {
            return false;
        };
        let has_turn = port.has_turn(quiet, turn % ROUND == 0, any);
        if has_turn {
            port.begin(now, budget);
        }
        has_turn
    }

    /// A port has had its turn, in which it found something or not.
    fn end_port(&mut self, of: u8, mut some: bool) {
        if of == TCP {
            let now = self.round.now;
            let ((ports, tcp), exchange) = (self.ports.askers(), &mut self.exchange);
            if exchange.run(ports, tcp, now) {
                some = true;
                self.expect_asked();
            }
        }
        self.round.any |= some;
        self.ports.note_poll(of, some);
    }

    /// The event for the endpoint, if it is not the address exchange's.
    #[inline]
    fn sift(&mut self, of: u8, event: PortEvent) -> Option<PortEvent> {
        match of {
            TCP => self.sift_tcp(event),
            LOCAL => Some(event),
            of => Some(self.end_attempt(event, of)),
        }
    }

    /// The exchange hears of its TCP links, and of the first packets of strangers.
    fn sift_tcp(&mut self, event: PortEvent) -> Option<PortEvent> {
        let (exchange, link) = (&self.exchange, event.link());
        let is_own = exchange.is_asking(link) || exchange.is_watching(link);
        let question = match event {
            PortEvent::Packet { header, .. } if !is_own && self.ports.tcp.is_stranger(link) => {
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
        let ((ports, tcp), exchange) = (self.ports.askers(), &mut self.exchange);
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
        self.ports.unquiet(!(1 << LOCAL | 1 << TCP));
    }

    /// Notes the ends of attempts to connect on a port that has a part in the exchange.
    fn end_attempt(&mut self, event: PortEvent, of: u8) -> PortEvent {
        let port = self.ports.get_mut(of).and_then(|port| port.addresses());
        let ours = port.map_or("", |port| port.provider());
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
