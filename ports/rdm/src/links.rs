//! Links over the fabric and their states.
//!
//! ```text
//!   offer                  Hello, with the caller's address
//!  -------> Offered ---------------------.
//!                                        v        Bye, silence, error
//!                                       Up ----------------------------> down
//!   call, the peer's address     HelloAck ^ |
//!  -------> Greeting ---------------------' | close
//!              `---> down: no answer        `----> Closing ----> removed
//!                                              all accepted frames have left, or a second has passed
//! ```
//!
//! A link belongs to a session that began on another port, and both its cookies were sent over that session: strangers
//! have no link.
//!
//! A peer whose process may have ended ([`Links::probe_peer`]) is probed, and its link ends after a quarter of a second
//! of silence instead of the keep-alive time.
//!
//! Owns: the table of links, their queued frames, the time of the last frame from each peer.
//! Out of scope: libfabric's objects, the endpoint.
//! Cost: a few hundred bytes a link; lookup is O(1).

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

/// Timeout of a Hello. rxm over TCP needs 130 ms on a busy machine.
const GREETING: Duration = Duration::from_secs(5);

/// Time for accepted packets to leave a link that is being closed.
const CLOSING: Duration = Duration::from_secs(1);

/// Maximum number of links of a port: more than the 10 000 clients that one machine runs.
const LINKS_MAX: usize = 32 << 10;

/// Maximum bytes of early frames on all links: as many as a few fast senders have in flight.
const HELD_MAX: usize = 64 << 20;

/// Meaning of a frame for its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameEffect {
    /// The link carries packets.
    Carries,
    /// The link has come up, which the endpoint is told.
    CameUp,
    /// The frame is ignored: this side has closed the link.
    Ignored,
    /// Both sides have closed the link.
    Over,
}

/// Finding of [`Links::tick`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Alarm {
    /// The peer has to be pinged.
    Ping(LinkId),
    /// The link has ended; the endpoint has to be told.
    Down(LinkId, LinkDown),
    /// The link has ended; the endpoint need not be told.
    Gone(LinkId),
}

/// All links of a port.
#[derive(Debug)]
pub(super) struct Links {
    table: Table<LinkId, Link>,
    /// Links that are not up, or whose peer is being probed; checked often.
    young: Vec<LinkId>,
    /// Bytes of early frames on all links.
    held: usize,
    keepalive: Duration,
    next_look: Instant,
    next_round: Instant,
}

/// Silence after which the link of a probed peer ends: by then the last frames of a dead process have arrived, and a
/// live one has answered, unless it is stopped just when its TCP connection breaks.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Interval of checks of links that are not up, or whose peer is being probed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Links {
    /// Creates an empty table; `keepalive`: silence after which a peer counts as dead.
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

    /// Returns the link that a frame is for, and records that its peer is alive.
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

    /// Returns true if there is no room for another link.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= LINKS_MAX
    }

    /// Adds the called side's end of a link, whose peer will send Hello.
    pub(super) fn offer(&mut self, cookie: u64, now: Instant) -> LinkId {
        let id = self.add(State::Offered, cookie, None, now);
        if let Some(link) = self.of_mut(id) {
            link.called = true;
        }
        id
    }

    /// Adds the caller's end of a link, whose peer has to be sent Hello.
    pub(super) fn call(&mut self, cookie: u64, peer: Peer, now: Instant) -> LinkId {
        let until = now.after(GREETING);
        self.add(State::Greeting { until }, cookie, Some(peer), now)
    }

    /// Records the Hello of a link's caller.
    pub(super) fn greeted(&mut self, id: LinkId, peer: Peer) {
        if let Some(link) = self.of_mut(id) {
            (link.peer, link.state) = (Some(peer), State::Up);
        }
    }

    /// Keeps the remains of a removed link until its peer has been told.
    pub(super) fn depart(&mut self, peer: Peer, now: Instant) -> LinkId {
        let until = now.after(CLOSING);
        let state = State::Closing {
            until,
            answer: false,
        };
        self.add(state, peer.cookie, Some(peer), now)
    }

    /// Returns the peers with a link to us.
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

    /// Starts probing a peer whose process may have ended. Returns true if it has to be pinged.
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

    /// Ends the probing of a peer that has responded.
    #[cold]
    pub(super) fn trust(&mut self, id: LinkId) {
        if let Some(link) = self.of_mut(id) {
            link.doubted = None;
        }
    }

    /// Applies a frame of this kind to its link.
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

    /// Keeps an early frame. Returns false if the peer must not have sent it, or if there are too many.
    #[cold]
    pub(super) fn hold(&mut self, id: LinkId, frame: &Frame, body: &[u8], now: Instant) -> bool {
        let Some(link) = self.of_mut(id) else {
            return true;
        };
        if !matches!(link.state, State::Up | State::Greeting { .. }) {
            // Nothing follows an unanswered Hello, and a link that is being closed drops frames.
            return matches!(link.state, State::Closing { .. });
        }
        let before = link.sequence.held_bytes();
        let few = link.sequence.hold(frame.number, frame.kind, body, now);
        let after = link.sequence.held_bytes();
        self.held = self.held - before + after;
        few && self.held <= HELD_MAX
    }

    /// Returns the next frame of a link, if it arrived early and is next in sequence now.
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

    /// Marks a link as closed by the endpoint, while accepted frames are still leaving. Nothing of the link is reported
    /// any more.
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

    /// Removes a link.
    pub(super) fn take(&mut self, id: LinkId) -> Option<Link> {
        let link = self.table.remove(id)?;
        self.held -= link.sequence.held_bytes();
        Some(link)
    }

    /// After an absence of this process, limits the silence that counts to [`Links::absence_max`] (which counts so that
    /// a process that is often absent detects dead peers, too).
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

    /// Longest absence that counts fully as silence.
    pub(super) fn absence_max(&self) -> Duration {
        self.keepalive / 8
    }

    /// Interval of keep-alives while this process does not poll.
    pub(super) fn sign_every(&self) -> Duration {
        self.keepalive / 4
    }

    /// Time at which [`Links::tick`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.len() == 0 {
            return None;
        }
        let look = (!self.young.is_empty()).then_some(self.next_look);
        Instant::earliest([Some(self.next_round), look])
    }

    /// Returns true if [`Links::tick`] is due.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Checks links whose time has come, and appends the findings.
    pub(super) fn tick(&mut self, now: Instant, alarms: &mut Vec<Alarm>) {
        if now >= self.next_look {
            self.next_look = now.after(LOOK_EVERY);
            self.look(now, alarms);
        }
        if now >= self.next_round {
            self.next_round = now.after(self.keepalive / 16);
            if let Some(due) = self.round(now, alarms) {
                // Peers that fall silent at about the same time are found in one round.
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

    /// Checks every link that is up. Returns the time of the next finding.
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
