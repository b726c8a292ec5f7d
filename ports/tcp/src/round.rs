//! Rounds of the port: events, handed out one at a time.
//!
//! ```text
//!   begin   control epoll, chores, alarms, data epoll ----------------> queue: Up, Down, Writable
//!   next    1. the queue                                                  ^         ^
//!           2. the visit of a link, suspended at Packet, Part, Placed ----'         |
//!           3. the next link: queued ones, active ones; which come first alternates |
//!           4. once no link is left: backlogs are sent -----------------------------'
//!           5. End
//! ```
//!
//! Between two calls of `next` the endpoint may call anything. A link that it closes is removed or lingers: its visit
//! is abandoned, and its queued events are removed.
//!
//! Owns: the position within a round.
//! Out of scope: the selection of links (`poll_set`), their bytes (`receive`).

use super::TcpPort;
use super::link::Phase;
use super::poll_set::{Activation, CLOCK_EVERY};
use super::receive::{LinkFailure, Step, TurnFigures};
use mx_proto::port::{LinkDown, Place};
use mx_proto::round::{Next, PortEvent};
use mx_proto::{Instant, LinkId, Memory};

/// Position of the port within a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Number of rounds so far.
    number: u32,
    stage: Stage,
    /// Maximum number of packets of one link in this round.
    quota: usize,
    /// Packets that may still be handed out.
    left: usize,
    /// True once anything has happened.
    any: bool,
    /// True if an active link was removed, or has been idle for long.
    stale: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// The links of a group are read; `done` of `count` have been visited.
    Links {
        group: Group,
        done: usize,
        count: usize,
    },
    /// Links that wait for room come next.
    Room,
    #[default]
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Group {
    /// Links with bytes to read.
    Queued,
    /// Links that are read in every round.
    Active,
}

impl Round {
    /// Returns the group that is read first. The second one gets the rest of the budget, so they alternate.
    fn first(&self) -> Group {
        if self.number & 1 == 1 {
            Group::Active
        } else {
            Group::Queued
        }
    }
}

impl TcpPort {
    /// Begins a round: handles everything but the bytes of links.
    #[inline]
    pub(super) fn begin_round(&mut self, now: Instant, budget: usize) {
        debug_assert!(self.turn.is_none(), "the last round has not ended");
        self.end_batch();
        let number = self.round.number.wrapping_add(1);
        self.round = Round {
            number,
            quota: budget,
            left: budget,
            ..Round::default()
        };
        let set = &mut self.poll_set;
        let look = std::mem::take(&mut set.look);
        if look || set.control_due || number % set.control_every() == 0 {
            self.round.any |= self.look_at_control(now);
        }
        if self.chores {
            self.do_chores(now);
        }
        let alarms_due = std::mem::take(&mut self.poll_set.alarms_due);
        if look || alarms_due || number % CLOCK_EVERY == 0 {
            self.round.any |= self.ring_alarms(now);
        }
        if self.links.len() == self.poll_set.pending && !self.poll_set.has_work() {
            return;
        }
        self.poll_set.take_in_data(look, &mut self.links);
        let links = self.poll_set.ready.len() + self.poll_set.active_len();
        if links > 1 {
            self.round.quota = (budget / links).max(4);
        }
        self.begin_group(self.round.first());
    }

    /// Returns true if no round is in progress and no event is queued.
    pub(super) fn is_between_rounds(&self) -> bool {
        self.events.is_empty() && matches!(self.round.stage, Stage::Over)
    }

    /// Returns the next event of the round.
    #[inline]
    pub(super) fn next_event(&mut self) -> Next {
        loop {
            if let Some(event) = self.events.pop_front() {
                self.round.any = true;
                return Next::Event(event);
            }
            if self.turn.is_some() {
                if let Some(event) = self.go_on() {
                    return Next::Event(event);
                }
                continue;
            }
            match self.round.stage {
                Stage::Links { group, done, count } => {
                    if done == count || self.round.left == 0 {
                        self.end_group(group);
                    } else {
                        self.round.stage = Stage::Links {
                            group,
                            done: done + 1,
                            count,
                        };
                        self.next_link(group, done);
                    }
                }
                Stage::Room => {
                    self.round.stage = Stage::Over;
                    self.round.any |= self.use_room();
                }
                Stage::Over => {
                    return Next::End {
                        any: self.round.any,
                    };
                }
            }
        }
    }

    /// Returns the body of the packet that the round handed out last, valid until the next event is taken; empty after
    /// other events.
    #[inline]
    pub fn lent(&self) -> &[u8] {
        self.turn.as_ref().map_or(&[], |turn| turn.body())
    }

    /// Reads the bytes of the part handed out last to its place.
    #[inline]
    pub(super) fn read_part<M: Memory>(&mut self, place: Place<'_, M>) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        if let Some(link) = self.links.get_mut(turn.link) {
            link.rx.read(&link.fd, turn, place);
        }
    }

    /// Removes the queued events of a link that the endpoint has closed.
    pub(super) fn forget_events(&mut self, id: LinkId) {
        self.events.retain(|event| event.link() != Some(id));
    }

    /// Begins to read the links of a group.
    fn begin_group(&mut self, group: Group) {
        let count = match group {
            Group::Queued => self.poll_set.ready.len(),
            Group::Active => self.poll_set.active_len(),
        };
        self.round.stage = Stage::Links {
            group,
            done: 0,
            count,
        };
    }

    /// Ends a group; the other group follows, then links that wait for room.
    #[inline]
    fn end_group(&mut self, group: Group) {
        if std::mem::take(&mut self.round.stale) {
            self.cool_links();
        }
        match group {
            _ if group != self.round.first() => self.round.stage = Stage::Room,
            Group::Queued => self.begin_group(Group::Active),
            Group::Active => self.begin_group(Group::Queued),
        }
    }

    /// Begins the visit of link number `done` of a group.
    #[inline]
    fn next_link(&mut self, group: Group, done: usize) {
        let next = match group {
            Group::Queued => self.poll_set.ready.pop_front(),
            // A different link comes first each time, so that the budget favours none.
            Group::Active => self.poll_set.active_at(self.round.number / 2, done),
        };
        let Some(id) = next else {
            return;
        };
        let Some(link) = self.links.get_mut(id) else {
            self.round.stale |= group == Group::Active;
            return;
        };
        match group {
            Group::Queued => link.queued = false,
            // The other group visits it.
            Group::Active if link.queued => return,
            Group::Active => {}
        }
        let begun = match link.phase {
            Phase::Open | Phase::Greeting => {
                let (pool, turn) = (&mut self.pool, &mut self.turn);
                let quota = self.round.quota;
                link.rx
                    .begin(&link.fd, pool, turn, id, link.stranger, quota)
            }
            Phase::Dialling(_) => Ok(()),
            Phase::Lingering => {
                if link.rx.discard(&link.fd, &mut self.pool).is_err() {
                    self.drop_link(id);
                }
                Ok(())
            }
        };
        if self.turn.is_none() {
            self.turn_ended(id, TurnFigures::default(), begun);
        }
    }

    /// Continues the current visit, up to its next event or its end.
    #[inline]
    fn go_on(&mut self) -> Option<PortEvent> {
        let turn = self.turn.as_mut()?;
        let id = turn.link;
        let link = self.links.get_mut(id);
        let Some(link) = link.filter(|link| !matches!(link.phase, Phase::Lingering)) else {
            self.abandon_turn();
            return None;
        };
        match link.rx.step(&link.fd, turn, link.stranger, link.known) {
            Ok(Step::Greeted) => {
                let accepted = matches!(link.phase, Phase::Greeting);
                if accepted && !self.establish(id) {
                    self.announce_down(id, LinkDown::Reset);
                }
                None
            }
            Ok(Step::End) => {
                self.end_turn(Ok(()));
                None
            }
            Ok(step) => {
                link.known |= step == Step::Packet;
                link.rx.event(turn, step)
            }
            Err(broken) => {
                self.end_turn(Err(broken));
                None
            }
        }
    }

    /// Ends the current visit, whose link the endpoint has closed.
    #[cold]
    fn abandon_turn(&mut self) {
        if let Some(turn) = &mut self.turn {
            let (id, served) = (turn.link, turn.served);
            turn.abandon(&mut self.pool);
            self.turn = None;
            self.note_served(id, served, true);
        }
    }

    /// Ends the current visit. `result`: the reason why the link cannot continue, if there is one.
    #[inline]
    fn end_turn(&mut self, result: Result<(), LinkFailure>) {
        if let Some(turn) = &mut self.turn
            && let Some(link) = self.links.get_mut(turn.link)
        {
            let (id, served) = (turn.link, turn.served);
            let busy = link.active && !link.stranger;
            link.rx.keep(turn.end(&mut self.pool, busy));
            self.turn = None;
            self.turn_ended(id, served, result);
        }
    }

    /// Finishes a visit that has ended or could not begin: announces the link's end, or queues it for the rest.
    #[inline(always)]
    fn turn_ended(&mut self, id: LinkId, served: TurnFigures, result: Result<(), LinkFailure>) {
        let mut anything = served.bytes || served.packets > 0;
        match (result, self.links.get_mut(id)) {
            (Ok(()), Some(link)) => {
                if let (Some(reason), false) = (link.failed, served.more) {
                    anything = true;
                    self.announce_down(id, reason);
                } else {
                    if served.more {
                        self.poll_set.queue(id, link);
                    }
                    if link.rx.is_waiting() != link.watched_by_edge {
                        self.poll_set.watch_waiting(id, link);
                        self.stats.awaited += u64::from(link.watched_by_edge);
                    }
                }
            }
            (Err(broken), _) => {
                anything = true;
                self.break_link(id, broken);
            }
            (Ok(()), None) => {}
        }
        self.note_served(id, served, anything);
    }

    /// Counts a link's visit, which makes the link active or idle.
    #[inline]
    fn note_served(&mut self, id: LinkId, served: TurnFigures, anything: bool) {
        self.round.any |= anything;
        self.round.left = self.round.left.saturating_sub(served.packets);
        match self.round.stage {
            Stage::Links {
                group: Group::Active,
                ..
            } => self.round.stale |= self.poll_set.note_active(id, anything, &self.links),
            _ if anything => {
                let (links, pool) = (&mut self.links, &mut self.pool);
                self.poll_set.activate(id, links, pool, Activation::Read);
            }
            _ => {}
        }
    }
}
