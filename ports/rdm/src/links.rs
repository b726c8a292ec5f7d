//! Links over the fabric and their states.
//!
//! ```text
//!   offer                  Hello, with the caller's address
//!  -------> Offered ---------------------.
//!                                        v        Bye, silence, error
//!                                       Up ----------------------------> down
//!   call, the other's address    HelloAck ^ |
//!  -------> Greeting ---------------------' | close
//!              `---> down: no answer        `----> Closing ----> gone
//!                                              what was accepted has left, or a second is over
//! ```
//!
//! A link belongs to a session that has been met elsewhere, and both its cookies have gone over that session: strangers
//! have no link.
//!
//! A peer whose process may have gone ([`Links::probe_peer`]) is asked, and its link ends after a quarter of a second of
//! silence, not after the time for keep-alive.
//!
//! Owns: the table of links, their waiting frames, the time of the last frame from each peer.
//! Out of scope: libfabric's objects, the endpoint.
//! Cost: a few hundred bytes a link; looking one up is O(1).

mod link;

pub(super) use link::{Control, Link, Peer, State};

use super::frame::{Frame, FrameKind};
use super::sequence::Sequence;
use mx_port_base::ports;
use mx_proto::port::LinkDown;
use mx_proto::table::Table;
use mx_proto::{Instant, LinkId};
use std::collections::VecDeque;
use std::time::Duration;

/// The time-out of a Hello. rxm over TCP needs 130 ms on a busy machine.
const GREETING: Duration = Duration::from_secs(5);

/// The time that accepted packets have to leave a link that is being closed.
const CLOSING: Duration = Duration::from_secs(1);

/// Links of one port: more than the clients that one machine brings, 10 000.
const LINKS_MAX: usize = 32 << 10;

/// Bytes of frames before their turn, on all links: what a few fast senders have on the way.
const HELD_MAX: usize = 64 << 20;

/// The meaning of a frame for its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameEffect {
    /// The link carries packets.
    Carries,
    /// The link carries packets from now on, and the endpoint waits for that.
    CameUp,
    /// The frame is ignored: this side does not use the link.
    Ignored,
    /// Both sides have done with it.
    Over,
}

/// Something a clock tick found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Alarm {
    /// The peer is to be asked whether it is there.
    Ping(LinkId),
    /// The link is over; the endpoint has to be told.
    Down(LinkId, LinkDown),
    /// The link is over; it was never reported.
    Gone(LinkId),
}

/// All links of a port.
#[derive(Debug)]
pub(super) struct Links {
    table: Table<LinkId, Link>,
    /// Links that are not up, or doubted, and have to be looked at often.
    young: Vec<LinkId>,
    /// Bytes of frames that came before their turn, on all links.
    held: usize,
    keepalive: Duration,
    next_look: Instant,
    next_round: Instant,
}

/// The silence after which the link of a doubted peer ends: what a dead process has sent last has come by
/// then, and a living one has answered, unless it is stopped just when its TCP connection breaks.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Time between two looks at links that are not up, or doubted.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Links {
    /// A peer that has been silent for `keepalive` has gone.
    pub(super) fn new(keepalive: Duration) -> Self {
        Self {
            table: Table::default(),
            young: Vec::new(),
            held: 0,
            keepalive,
            next_look: Instant(0),
            next_round: Instant(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.table.iter().map(|(_, link)| link.id).collect()
    }

    #[inline]
    pub(super) fn of(&self, id: LinkId) -> Option<&Link> {
        self.table.get(id)
    }

    #[inline]
    pub(super) fn of_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.table.get_mut(id)
    }

    /// The link a frame is for. It has been heard.
    #[inline]
    pub(super) fn addressed(&mut self, index: u32, cookie: u64, now: Instant) -> Option<&mut Link> {
        let link = self.table.at_mut(index)?;
        if link.cookie != cookie {
            return None;
        }
        link.heard = now;
        link.pinged = false;
        Some(link)
    }

    /// There are as many links as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= LINKS_MAX
    }

    /// The called side's end of a link, whose peer says Hello.
    pub(super) fn offer(&mut self, cookie: u64, now: Instant) -> LinkId {
        let id = self.add(State::Offered, cookie, None, now);
        if let Some(link) = self.of_mut(id) {
            link.called = true;
        }
        id
    }

    /// The caller's end of a link: its peer is to be greeted.
    pub(super) fn call(&mut self, cookie: u64, peer: Peer, now: Instant) -> LinkId {
        let until = now.after(GREETING);
        self.add(State::Greeting { until }, cookie, Some(peer), now)
    }

    /// The caller of a link has said Hello.
    pub(super) fn greeted(&mut self, id: LinkId, peer: Peer) {
        if let Some(link) = self.of_mut(id) {
            (link.peer, link.state) = (Some(peer), State::Up);
        }
    }

    /// Keeps the rest of a removed link until its peer has been told.
    pub(super) fn depart(&mut self, peer: Peer, now: Instant) -> LinkId {
        let until = now.after(CLOSING);
        let state = State::Closing {
            until,
            answer: false,
        };
        self.add(state, peer.cookie, Some(peer), now)
    }

    /// The peers that have a link with us.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        let links = self.table.iter().map(|(_, link)| link);
        links
            .filter(|link| matches!(link.state, State::Up | State::Closing { .. }))
            .filter_map(|link| link.peer)
    }

    fn add(&mut self, state: State, cookie: u64, peer: Option<Peer>, now: Instant) -> LinkId {
        let link = |id: LinkId| Link {
            id: id.at_port(ports::RDM),
            state,
            cookie,
            peer,
            called: false,
            sequence: Sequence::default(),
            incoming: None,
            midway: false,
            slots: 0,
            control: VecDeque::new(),
            blocked: false,
            wanted: false,
            retry_at: now,
            pause: Duration::ZERO,
            heard: now,
            pinged: false,
            doubted: None,
        };
        let id = self.table.insert_with(link).at_port(ports::RDM);
        self.young.push(id);
        id
    }

    /// The peer's process may have gone. True: it has to be asked.
    #[cold]
    pub(super) fn probe_peer(&mut self, id: LinkId, now: Instant) -> bool {
        let Some(link) = self.of_mut(id) else {
            return false;
        };
        match &mut link.state {
            State::Greeting { until } => {
                *until = (*until).min(now.after(LAST_WORDS));
                false
            }
            State::Up => {
                let first = link.doubted.replace(now).is_none();
                if first {
                    self.young.push(id);
                }
                first
            }
            State::Offered | State::Closing { .. } => false,
        }
    }

    /// The peer has answered at once.
    #[cold]
    pub(super) fn trust(&mut self, id: LinkId) {
        if let Some(link) = self.of_mut(id) {
            link.doubted = None;
        }
    }

    /// A frame of that kind has come: what it means for its link.
    #[inline]
    pub(super) fn on_frame(&mut self, id: LinkId, kind: FrameKind) -> FrameEffect {
        let Some(link) = self.of_mut(id) else {
            return FrameEffect::Ignored;
        };
        match link.state {
            State::Up => FrameEffect::Carries,
            State::Greeting { .. } => {
                link.state = State::Up;
                FrameEffect::CameUp
            }
            State::Closing { .. } if kind == FrameKind::Bye => FrameEffect::Over,
            State::Offered | State::Closing { .. } => FrameEffect::Ignored,
        }
    }

    /// Keeps a frame that came before its turn. False when it must not have been sent, or that is
    /// one too many.
    #[cold]
    pub(super) fn hold(&mut self, id: LinkId, frame: &Frame, body: &[u8], now: Instant) -> bool {
        let Some(link) = self.of_mut(id) else {
            return true;
        };
        if !matches!(link.state, State::Up | State::Greeting { .. }) {
            // Nothing follows an unanswered Hello, and a link that is being closed wants no more.
            return matches!(link.state, State::Closing { .. });
        }
        let before = link.sequence.held_bytes();
        let few = link.sequence.hold(frame.number, frame.kind, body, now);
        let after = link.sequence.held_bytes();
        self.held = self.held - before + after;
        few && self.held <= HELD_MAX
    }

    /// The next frame of a link if it came before its turn, which is now.
    #[inline]
    pub(super) fn next_held(&mut self, id: LinkId, now: Instant) -> Option<(FrameKind, Box<[u8]>)> {
        if self.held == 0 {
            return None;
        }
        let link = self.of_mut(id)?;
        let before = link.sequence.held_bytes();
        let next = link.sequence.next_held(now);
        self.held -= before - link.sequence.held_bytes();
        next
    }

    /// The endpoint has done with a link, but not all it accepted has left. Nothing of the link is told any more.
    pub(super) fn closing(&mut self, id: LinkId, now: Instant) {
        let Some(link) = self.of_mut(id) else { return };
        let until = now.after(CLOSING);
        let state = State::Closing {
            until,
            answer: true,
        };
        link.state = state;
        (link.incoming, link.wanted) = (None, false);
        self.young.push(id);
    }

    /// Takes a link out.
    pub(super) fn take(&mut self, id: LinkId) -> Option<Link> {
        let link = self.table.remove(id)?;
        self.held -= link.sequence.held_bytes();
        Some(link)
    }

    /// After an absence of this process silence counts no more than [`Links::absence_max`]. (It
    /// counts that much so that a process that is often absent detects dead peers, too.)
    pub(super) fn forgive(&mut self, away: Duration, now: Instant) {
        let excused = away.saturating_sub(self.absence_max());
        for (_, link) in self.table.iter_mut() {
            link.heard = link.heard.after(excused).min(now);
            link.sequence.exclude_pause(excused, now);
            match &mut link.state {
                State::Greeting { until } | State::Closing { until, .. } => {
                    *until = until.after(excused);
                }
                State::Offered | State::Up => {}
            }
        }
    }

    /// The longest absence after which silence counts.
    pub(super) fn absence_max(&self) -> Duration {
        self.keepalive / 8
    }

    /// The interval of keep-alives while we do not poll.
    pub(super) fn sign_every(&self) -> Duration {
        self.keepalive / 4
    }

    /// The time at which [`Links::tick`] should be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.len() == 0 {
            return None;
        }
        let look = (!self.young.is_empty()).then_some(self.next_look);
        Instant::earliest([Some(self.next_round), look])
    }

    /// Something may be due.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Looks what time has done.
    pub(super) fn tick(&mut self, now: Instant, alarms: &mut Vec<Alarm>) {
        if now >= self.next_look {
            self.next_look = now.after(LOOK_EVERY);
            self.look(now, alarms);
        }
        if now >= self.next_round {
            self.next_round = now.after(self.keepalive / 16);
            if let Some(due) = self.round(now, alarms) {
                // Peers that fall silent at about the same time are found in the same round.
                let due = due.max(now.after(LOOK_EVERY));
                self.next_round = self.next_round.min(due);
            }
        }
    }

    fn look(&mut self, now: Instant, alarms: &mut Vec<Alarm>) {
        let mut young = std::mem::take(&mut self.young);
        young.retain(|id| {
            let Some(link) = self.of(*id) else {
                return false;
            };
            let (until, alarm) = match link.state {
                State::Up => match link.doubted {
                    Some(since) => (
                        since.max(link.heard).after(LAST_WORDS),
                        Alarm::Down(*id, LinkDown::Reset),
                    ),
                    None => return false,
                },
                State::Offered => return false,
                State::Greeting { until } => (until, Alarm::Down(*id, LinkDown::TimedOut)),
                State::Closing { until, answer }
                    if answer || link.slots > 0 || !link.control.is_empty() =>
                {
                    (until, Alarm::Gone(*id))
                }
                State::Closing { .. } => (now, Alarm::Gone(*id)),
            };
            if now >= until {
                alarms.push(alarm);
            }
            true
        });
        self.young.append(&mut young);
    }

    /// Looks at every link that is up, and says when the first of them may have something due.
    fn round(&mut self, now: Instant, alarms: &mut Vec<Alarm>) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for (_, link) in self.table.iter_mut() {
            if link.state != State::Up {
                continue;
            }
            let missing = link.sequence.missing_since();
            let lost_at = missing.map(|since| since.after(self.keepalive / 4));
            let (ping_at, dead_at) = (
                link.heard.after(self.keepalive / 4),
                link.heard.after(self.keepalive),
            );
            if lost_at.is_some_and(|at| at <= now) {
                log::debug!("link {:?}: a frame has been lost", link.id);
                alarms.push(Alarm::Down(link.id, LinkDown::Reset));
            } else if dead_at <= now {
                alarms.push(Alarm::Down(link.id, LinkDown::TimedOut));
            } else {
                if ping_at <= now && !link.pinged {
                    link.pinged = true;
                    alarms.push(Alarm::Ping(link.id));
                }
                let due = if link.pinged { dead_at } else { ping_at };
                let due = lost_at.map_or(due, |lost| lost.min(due));
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        next
    }
}

#[cfg(test)]
mod tests;
