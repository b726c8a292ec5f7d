//! A round of all ports, one after the other.
//!
//! ```text
//!   begin_active --> local's active links, and nothing else
//!   begin        --> loopback --> rdm --> dgram --> local --> tcp
//!                    quiet ports are left out; so are dgram and tcp, unless it is their turn or nothing has
//!                    happened
//! ```
//!
//! Owns: the position among the ports.

use super::host::{HostPorts, LONE_ROUND, ROUND};
use mx_port_base::cancellation::CancellationDisabled;
use mx_port_base::ports::{DGRAM, LOCAL, LOOPBACK, PORTS};
use mx_port_local::{Lent, LocalPort};
use mx_proto::port::{HeaderBytes, Place};
use mx_proto::round::{Begun, Next, PortEvent, Rounds};
use mx_proto::{Instant, LinkId, Memory, Source};

/// Port with the first turn. The others follow in the order of their numbers, so that TCP, where each poll is a system
/// call, is last.
const FIRST: usize = LOOPBACK as usize;

/// Position within a round.
#[derive(Debug)]
pub(super) struct Round {
    now: Instant,
    budget: usize,
    /// Whether only local's active links are polled.
    active: bool,
    /// Number of ports passed so far.
    at: usize,
    /// Whether the current port's own round has begun.
    begun: bool,
    any: bool,
    /// Number of the port that returned the last event.
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
    fn begin_active(&mut self, budget: usize) -> Begun {
        self.touched = true;
        self.turn = self.turn.wrapping_add(1);
        let Some(local) = self.ports.local.as_mut().filter(|local| local.is_active()) else {
            return Begun::Elsewhere;
        };
        if self.turn & self.round_mask == 0 || self.look || !self.ports.loopback.is_idle() {
            return Begun::Elsewhere;
        }
        if !local.begin_active(budget) {
            return Begun::Nothing;
        }
        (self.round.active, self.round.of) = (true, LOCAL);
        Begun::Active
    }

    #[inline(never)]
    fn begin(&mut self, now: Instant, budget: usize) {
        let _off = CancellationDisabled::new();
        self.end_batches();
        let told = std::mem::take(&mut self.told);
        if !self.lost && (self.look || (self.turn % ROUND == 0 && !told)) {
            self.poll_quiet_ports(now);
        }
        let calm = self.ports.local.as_ref().is_some_and(LocalPort::is_calm);
        let lone = calm && self.ports.are_others_quiet();
        self.round_mask = if lone { LONE_ROUND } else { ROUND } - 1;
        let round = &mut self.round;
        (round.now, round.budget, round.any) = (now, budget, false);
        (round.active, round.at, round.begun) = (false, 0, false);
        if self.lost {
            (self.turn, round.at) = (0, PORTS.len());
        }
    }

    #[inline(never)]
    fn next(&mut self) -> Next {
        if self.round.active
            && let Some(local) = &mut self.ports.local
        {
            return local.next_event();
        }
        self.next_of_all()
    }

    #[inline(always)]
    fn take_packets(
        &mut self,
        take: impl FnMut(LinkId, &HeaderBytes, &dyn Source) -> bool,
    ) -> Option<bool> {
        match &mut self.ports.local {
            Some(local) if self.round.active => local.take_packets(take),
            _ => None,
        }
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
        let _off = CancellationDisabled::new();
        if let Some(port) = self.ports.get_mut(self.round.of) {
            port.read(place);
        }
    }

    fn skip(&mut self) {
        let _off = CancellationDisabled::new();
        if let Some(port) = self.ports.get_mut(self.round.of) {
            port.skip();
        }
    }
}

impl<M: Memory + 'static> HostPorts<M> {
    /// Returns the body of a packet of another port than local.
    #[inline(never)]
    fn body_elsewhere(&self) -> &[u8] {
        let port = self.ports.get(self.round.of);
        port.map_or(&[], |port| port.bytes())
    }

    fn next_of_all(&mut self) -> Next {
        let _off = CancellationDisabled::new();
        loop {
            if self.round.at == PORTS.len() {
                // Packets that the round sends are not messages in a row.
                self.sends = 0;
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
                    return Next::Event(self.look_at(of, event));
                }
                Next::End { any } => {
                    self.round.begun = false;
                    self.round.at += 1;
                    self.round.any |= any;
                    self.ports.note_poll(of, any);
                }
            }
        }
    }

    /// Begins the round of a port. Returns false if it is not polled.
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

    /// Records the outcome of outgoing connections. Returns the event for the endpoint.
    #[inline]
    fn look_at(&mut self, of: u8, event: PortEvent) -> PortEvent {
        match (of, event) {
            (LOCAL, event) => event,
            (DGRAM, PortEvent::Up(link)) => {
                self.fabrics.end_call(link, None);
                event
            }
            (DGRAM, PortEvent::Down(link, reason)) => {
                let outcome = self.fabrics.end_call(link, Some(reason));
                PortEvent::Down(link, outcome.unwrap_or(reason))
            }
            (_, PortEvent::Down(link, _)) => {
                self.fabrics.forget(link);
                event
            }
            (_, event) => event,
        }
    }
}
