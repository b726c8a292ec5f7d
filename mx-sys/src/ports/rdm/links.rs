//! Links over the fabric: who they lead to, and how they live and end.
//!
//! ```text
//!   reserve            peer's card            HelloAck
//!  ---------> Locating ----------> Greeting ------------.
//!                | no card            | no answer       v           Bye, silence, error
//!                `---> down           `---> down        Up ----------------------------> down
//!                                                       ^ |
//!   answer (its card)            first frame            | | close
//!  ------------------> Waiting -------------------------' `----> Closing ----> gone
//!                         | silence         (without a word      what was accepted has left,
//!                         `---> gone         to the endpoint:    or a second is over
//!                                            down after 10 s)
//! ```
//!
//! Owns: the table of links, what each has waiting, when its peer was last heard.
//! Knows nothing of: libfabric's objects, the endpoint, how frames are sent.
//! Cost: a few hundred bytes a link; looking one up is O(1).

use super::card::Card;
use super::frame::{Frame, Kind};
use super::sequence::Sequence;
use mx_proto::port::LinkDown;
use mx_proto::{Instant, LinkId, Route};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// How long the fabric may take to answer a Hello. rxm over TCP needs 130 ms on a busy host.
const GREETING: Duration = Duration::from_secs(5);

/// How long a link waits for its first frame. Longer than the other side tries.
const WAITING: Duration = Duration::from_secs(10);

/// How long a link may be up without the endpoint having anything to do with it: its peer has said
/// nothing but that the fabric works.
const UNKNOWN: Duration = Duration::from_secs(10);

/// How long what was accepted has to leave a link that is being closed.
const CLOSING: Duration = Duration::from_secs(1);

/// How long the locator has. It has a time-out of its own; this one is for safety.
const LOCATING: Duration = Duration::from_secs(60);

/// Links of one port, those of strangers included; as many as the TCP port has.
const LINKS_MAX: usize = 16 << 10;

/// Links that have been answered and not heard of. Each costs its asker a TCP connection and us a
/// table entry; what is more than this is a storm, and told to come over TCP.
const WAITING_MAX: usize = 4096;

/// Bytes of frames before their turn, on all links: what a few fast senders have on the way, and as
/// much as many strangers together can make us keep.
const HELD_MAX: usize = 64 << 20;

/// One link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) state: State,
    /// What frames to us must carry.
    pub(super) cookie: u64,
    /// The endpoint's word.
    pub(super) word: u64,
    /// `None` only while locating.
    pub(super) peer: Option<Peer>,
    /// Where its peer got our card. Frames with our cookie come from there, or from whom it told.
    pub(super) from: Option<SocketAddr>,
    /// The order of its frames.
    pub(super) sequence: Sequence,
    /// Send slots with the provider.
    pub(super) slots: u32,
    /// Small frames that wait to go out, before anything else.
    pub(super) control: VecDeque<Control>,
    /// It stands in the port's queue of links that had no room.
    pub(super) blocked: bool,
    /// The endpoint was refused room and has to be told when there is some.
    pub(super) wanted: bool,
    /// Before that the provider is not asked for room again, unless something has happened ...
    pub(super) retry_at: Instant,
    /// ... and how long that was the last time. Nothing, once it has had room.
    pub(super) pause: Duration,
    heard: Instant,
    /// It has been asked whether it is there.
    pinged: bool,
    /// Where to look for the peer when the fabric does not answer.
    detour: Option<Route>,
    /// Somebody else's, and up: the endpoint has to know it by then.
    known_by: Option<Instant>,
}

/// What a link is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The peer's card is not known yet.
    Locating {
        /// Not longer than this.
        until: Instant,
    },
    /// We have said Hello.
    Greeting {
        /// Not longer than this.
        until: Instant,
    },
    /// The peer has our card.
    Waiting {
        /// Not longer than this.
        until: Instant,
    },
    /// It carries packets.
    Up,
    /// The endpoint has done with it; what it accepted is leaving.
    Closing {
        /// Not longer than this.
        until: Instant,
        /// The peer has to say that it knows. A connection that is closed with bytes in it that
        /// nobody has read takes the Bye down with it, so they are taken in until then.
        answer: bool,
    },
}

/// The other side of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Its address in the provider's address vector.
    pub(super) address: u64,
    /// Its number for the link.
    pub(super) link: u32,
    /// What frames to it must carry.
    pub(super) cookie: u64,
}

impl Peer {
    pub(super) fn new(address: u64, card: &Card) -> Self {
        Self {
            address,
            link: card.link,
            cookie: card.cookie,
        }
    }
}

/// A frame without a packet, waiting to be sent.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) kind: Kind,
    pub(super) body: SmallVec<[u8; 64]>,
}

/// What a frame means for its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// The link carries packets.
    Carries,
    /// It does from now on, and the endpoint waits for that.
    CameUp,
    /// Nobody is interested any more.
    Ignored,
    /// Both sides have done with it.
    Over,
}

/// Something a clock tick found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Alarm {
    /// The peer is to be asked whether it is there.
    Ping(LinkId),
    /// It is over; the endpoint has to be told.
    Down(LinkId, LinkDown),
    /// It is over; nobody knows of it.
    Gone(LinkId),
}

/// All links of a port.
#[derive(Debug)]
pub(super) struct Links {
    slots: Vec<Option<Link>>,
    free: Vec<u32>,
    next_generation: u32,
    /// Links that are not up and have to be looked at often.
    young: Vec<LinkId>,
    waiting: usize,
    /// Bytes of frames that came before their turn, on all links.
    held: usize,
    keepalive: Duration,
    next_look: Instant,
    next_round: Instant,
}

/// Time between two looks at links that are not up.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Links {
    /// A peer that has been silent for `keepalive` has gone.
    pub(super) fn new(keepalive: Duration) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            next_generation: 1,
            young: Vec::new(),
            waiting: 0,
            held: 0,
            keepalive,
            next_look: Instant(0),
            next_round: Instant(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.slots.iter().flatten().map(|link| link.id).collect()
    }

    #[inline]
    pub(super) fn of(&self, id: LinkId) -> Option<&Link> {
        let link = self.slots.get(id.index() as usize)?.as_ref()?;
        (link.id == id).then_some(link)
    }

    #[inline]
    pub(super) fn of_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        let link = self.slots.get_mut(id.index() as usize)?.as_mut()?;
        (link.id == id).then_some(link)
    }

    /// The link a frame is for. It has been heard.
    #[inline]
    pub(super) fn addressed(&mut self, index: u32, cookie: u64, now: Instant) -> Option<&mut Link> {
        let link = self.slots.get_mut(index as usize)?.as_mut()?;
        if link.cookie != cookie || link.peer.is_none() {
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

    /// A link whose peer is not known yet.
    pub(super) fn reserve(&mut self, cookie: u64, detour: Option<Route>, now: Instant) -> LinkId {
        let until = now.after(LOCATING);
        self.add(State::Locating { until }, cookie, None, detour, now)
    }

    /// A link for somebody who has introduced itself. `None` when too many of that kind wait.
    pub(super) fn answer(
        &mut self,
        cookie: u64,
        peer: Peer,
        from: SocketAddr,
        now: Instant,
    ) -> Option<LinkId> {
        if self.waiting >= WAITING_MAX || self.is_full() {
            return None;
        }
        self.waiting += 1;
        let until = now.after(WAITING);
        let id = self.add(State::Waiting { until }, cookie, Some(peer), None, now);
        self.of_mut(id)?.from = Some(from);
        Some(id)
    }

    /// What is left of a link that is no more, until its peer has been told.
    pub(super) fn depart(&mut self, peer: Peer, now: Instant) -> LinkId {
        let until = now.after(CLOSING);
        let state = State::Closing {
            until,
            answer: false,
        };
        self.add(state, peer.cookie, Some(peer), None, now)
    }

    /// Who believes that there is a link with us.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        let links = self.slots.iter().flatten();
        links
            .filter(|link| matches!(link.state, State::Up | State::Closing { .. }))
            .filter_map(|link| link.peer)
    }

    fn add(
        &mut self,
        state: State,
        cookie: u64,
        peer: Option<Peer>,
        detour: Option<Route>,
        now: Instant,
    ) -> LinkId {
        let generation = self.next_generation;
        self.next_generation = generation.checked_add(1).unwrap_or(1);
        // More links than fit into 30 bits would not fit into memory.
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let id = LinkId::new(index, generation);
        self.slots[index as usize] = Some(Link {
            id,
            state,
            cookie,
            word: 0,
            peer,
            from: None,
            sequence: Sequence::default(),
            slots: 0,
            control: VecDeque::new(),
            blocked: false,
            wanted: false,
            retry_at: now,
            pause: Duration::ZERO,
            heard: now,
            pinged: false,
            detour,
            known_by: None,
        });
        self.young.push(id);
        id
    }

    /// The peer of a reserved link is known; it is to be greeted. False when the link is gone, or
    /// was not waiting for that.
    pub(super) fn greet(&mut self, id: LinkId, peer: Peer, from: SocketAddr, now: Instant) -> bool {
        let Some(link) = self.of_mut(id) else {
            return false;
        };
        if !matches!(link.state, State::Locating { .. }) {
            return false;
        }
        (link.peer, link.from) = (Some(peer), Some(from));
        link.heard = now;
        link.state = State::Greeting {
            until: now.after(GREETING),
        };
        true
    }

    /// A frame of that kind has come: what it means for its link.
    #[inline]
    pub(super) fn on_frame(&mut self, id: LinkId, kind: Kind) -> Heard {
        let Some(link) = self.of_mut(id) else {
            return Heard::Ignored;
        };
        match link.state {
            State::Up => Heard::Carries,
            State::Greeting { .. } => {
                link.state = State::Up;
                Heard::CameUp
            }
            State::Waiting { .. } => {
                link.state = State::Up;
                link.known_by = Some(link.heard.after(UNKNOWN));
                self.waiting -= 1;
                Heard::Carries
            }
            State::Closing { .. } if kind == Kind::Bye => Heard::Over,
            State::Locating { .. } | State::Closing { .. } => Heard::Ignored,
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
            // Nothing follows a Hello that has not been answered, and nobody waits for more on a
            // link that is being closed.
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
    pub(super) fn next_held(&mut self, id: LinkId, now: Instant) -> Option<(Kind, Box<[u8]>)> {
        if self.held == 0 {
            return None;
        }
        let link = self.of_mut(id)?;
        let before = link.sequence.held_bytes();
        let next = link.sequence.next_held(now);
        let after = link.sequence.held_bytes();
        self.held = self.held - before + after;
        next
    }

    /// The endpoint has done with a link, but not all it accepted has left.
    pub(super) fn closing(&mut self, id: LinkId, now: Instant) {
        let Some(link) = self.of_mut(id) else { return };
        let until = now.after(CLOSING);
        let state = State::Closing {
            until,
            answer: true,
        };
        let was = std::mem::replace(&mut link.state, state);
        self.waiting -= usize::from(matches!(was, State::Waiting { .. }));
        self.young.push(id);
    }

    /// Takes a link out.
    pub(super) fn take(&mut self, id: LinkId) -> Option<Link> {
        self.of(id)?;
        let link = self.slots.get_mut(id.index() as usize)?.take()?;
        self.held -= link.sequence.held_bytes();
        self.waiting -= usize::from(matches!(link.state, State::Waiting { .. }));
        self.free.push(id.index());
        Some(link)
    }

    /// We have been away for so long that silence means little: it counts no more than
    /// [`Links::patience`]. (Something, so that who is always away for long finds out too.)
    pub(super) fn forgive(&mut self, away: Duration, now: Instant) {
        let excused = away.saturating_sub(self.patience());
        for link in self.slots.iter_mut().flatten() {
            link.heard = link.heard.after(excused).min(now);
        }
    }

    /// How long we may be away before silence means little.
    pub(super) fn patience(&self) -> Duration {
        self.keepalive / 8
    }

    /// How often a peer must hear of us while we do not listen.
    pub(super) fn sign_every(&self) -> Duration {
        self.keepalive / 4
    }

    /// When [`Links::tick`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.len() == 0 {
            None
        } else if self.young.is_empty() {
            Some(self.next_round)
        } else {
            Some(self.next_look.min(self.next_round))
        }
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
                // Whoever falls silent at the same time is found in the same round.
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
                State::Up => match link.known_by {
                    Some(until) if link.word == 0 => (until, Alarm::Down(*id, LinkDown::TimedOut)),
                    _ => return false,
                },
                State::Locating { until } => (until, Alarm::Down(*id, LinkDown::TimedOut)),
                State::Greeting { until } => {
                    let reason = link.detour.map_or(LinkDown::TimedOut, LinkDown::Elsewhere);
                    (until, Alarm::Down(*id, reason))
                }
                State::Waiting { until } => (until, Alarm::Gone(*id)),
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
        for link in self.slots.iter_mut().flatten() {
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
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const PEER: Peer = Peer {
        address: 1,
        link: 2,
        cookie: 3,
    };

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    fn from() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 7], 40_000))
    }

    fn alarms(links: &mut Links, now: Instant) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        links.tick(now, &mut alarms);
        alarms
    }

    #[test]
    fn a_fabric_that_does_not_answer_sends_the_endpoint_on_its_detour() {
        let mut links = Links::new(Duration::from_secs(20));
        let id = links.reserve(7, Some(Route(2)), at(0));
        assert!(links.greet(id, PEER, from(), at(1)));
        assert!(!links.greet(id, PEER, from(), at(1)));
        assert_eq!(alarms(&mut links, at(5)), []);
        let down = Alarm::Down(id, LinkDown::Elsewhere(Route(2)));
        assert_eq!(alarms(&mut links, at(6)), [down]);
    }

    #[test]
    fn a_silent_peer_is_asked_once_and_failed_after_the_configured_time() {
        let mut links = Links::new(Duration::from_secs(20));
        let id = links.answer(7, PEER, from(), at(0)).unwrap();
        assert!(links.addressed(id.index(), 8, at(0)).is_none());
        assert!(links.addressed(id.index(), 7, at(0)).is_some());
        assert_eq!(links.on_frame(id, Kind::Hello), Heard::Carries);
        links.of_mut(id).unwrap().word = 1;
        assert_eq!(alarms(&mut links, at(4)), []);
        assert_eq!(alarms(&mut links, at(6)), [Alarm::Ping(id)]);
        assert_eq!(alarms(&mut links, at(12)), []);
        let down = Alarm::Down(id, LinkDown::TimedOut);
        assert_eq!(alarms(&mut links, at(20)), [down]);
        assert!(links.addressed(id.index(), 7, at(20)).is_some());
        assert_eq!(alarms(&mut links, at(22)), []);
    }

    #[test]
    fn a_death_is_noticed_when_its_time_is_over_and_not_a_round_later() {
        for millis in [100, 1_000, 20_000, 1_000_000] {
            let keepalive = Duration::from_millis(millis);
            let mut links = Links::new(keepalive);
            let id = links.answer(7, PEER, from(), at(1)).unwrap();
            let last = at(1).after(keepalive / 37);
            links.addressed(id.index(), 7, last).unwrap();
            links.on_frame(id, Kind::Packet);
            links.of_mut(id).unwrap().word = 1;
            let (mut now, mut seen) = (last, Vec::new());
            while seen
                .last()
                .is_none_or(|(alarm, _)| *alarm == Alarm::Ping(id))
            {
                now = links.deadline().unwrap().max(now);
                let found = alarms(&mut links, now);
                seen.extend(found.into_iter().map(|alarm| (alarm, now.since(last))));
            }
            let down = Alarm::Down(id, LinkDown::TimedOut);
            let [(ping, pinged), (end, ended)] = seen[..] else {
                panic!("{seen:?}");
            };
            assert_eq!((ping, end), (Alarm::Ping(id), down));
            let late = pinged.checked_sub(keepalive / 4).unwrap();
            assert!(late <= LOOK_EVERY, "{keepalive:?}: asked {late:?} late");
            let late = ended.checked_sub(keepalive).unwrap();
            assert!(late <= LOOK_EVERY, "{keepalive:?}: noticed {late:?} late");
        }
    }

    #[test]
    fn a_stranger_that_never_gets_to_know_the_endpoint_keeps_no_link() {
        let mut links = Links::new(Duration::from_secs(1000));
        let [stranger, known] =
            [7, 8].map(|cookie| links.answer(cookie, PEER, from(), at(0)).unwrap());
        for (id, cookie) in [(stranger, 7), (known, 8)] {
            links.addressed(id.index(), cookie, at(3)).unwrap();
            links.on_frame(id, Kind::Ping);
        }
        links.of_mut(known).unwrap().word = 1;
        // It goes on talking.
        links.addressed(stranger.index(), 7, at(12)).unwrap();
        links.on_frame(stranger, Kind::Ping);
        assert_eq!(alarms(&mut links, at(12)), []);
        let down = Alarm::Down(stranger, LinkDown::TimedOut);
        assert_eq!(alarms(&mut links, at(13)), [down]);
        links.take(stranger).unwrap();
        assert_eq!(alarms(&mut links, at(100)), []);
        assert!(links.young.is_empty() && links.of(known).is_some());
    }

    #[test]
    fn who_never_shows_up_is_dropped_in_silence() {
        let mut links = Links::new(Duration::from_secs(20));
        let id = links.answer(7, PEER, from(), at(0)).unwrap();
        assert_eq!(alarms(&mut links, at(9)), []);
        assert_eq!(alarms(&mut links, at(10)), [Alarm::Gone(id)]);
        links.take(id).unwrap();
        assert_eq!((links.len(), links.waiting), (0, 0));
        assert_eq!(links.deadline(), None);
    }

    #[test]
    fn those_who_wait_are_bounded() {
        let mut links = Links::new(Duration::from_secs(20));
        for _ in 0..WAITING_MAX {
            links.answer(7, PEER, from(), at(0)).unwrap();
        }
        assert!(links.answer(7, PEER, from(), at(0)).is_none());
        let first = links.ids()[0];
        links.on_frame(first, Kind::Hello);
        assert!(links.answer(7, PEER, from(), at(0)).is_some());
    }

    #[test]
    fn a_closing_link_goes_when_its_peer_knows_and_all_has_left_or_its_time_is_over() {
        let mut links = Links::new(Duration::from_secs(20));
        let told = links.answer(7, PEER, from(), at(0)).unwrap();
        links.on_frame(told, Kind::Hello);
        links.closing(told, at(1));
        let (left, leaving) = (links.depart(PEER, at(1)), links.depart(PEER, at(1)));
        links.of_mut(leaving).unwrap().slots = 1;
        let gone = alarms(&mut links, at(1));
        assert!(gone.contains(&Alarm::Gone(left)));
        assert!(!gone.contains(&Alarm::Gone(told)) && !gone.contains(&Alarm::Gone(leaving)));
        let gone = alarms(&mut links, at(2));
        assert!(gone.contains(&Alarm::Gone(told)) && gone.contains(&Alarm::Gone(leaving)));
    }

    #[test]
    fn frames_before_their_turn_are_bounded_on_all_links_together() {
        let mut links = Links::new(Duration::from_secs(20));
        let early = Frame {
            kind: Kind::Packet,
            number: 1,
            link: 0,
            cookie: 7,
        };
        let body = vec![0; 4_000_000];
        let mut kept = Vec::new();
        for _ in 0..16 {
            let id = links.answer(7, PEER, from(), at(0)).unwrap();
            let before = links.held;
            assert!(!links.hold(id, &early, &body, at(0)), "of a stranger");
            assert_eq!(links.held, before);
            links.on_frame(id, Kind::Hello);
            assert!(links.hold(id, &early, &body, at(0)));
            kept.push(id);
        }
        let id = links.answer(7, PEER, from(), at(0)).unwrap();
        links.on_frame(id, Kind::Hello);
        assert!(!links.hold(id, &early, &body, at(0)), "one too many");
        links.take(id).unwrap();
        let next = links.of_mut(kept[0]).unwrap().sequence.arrived(0);
        assert_eq!(next, crate::ports::rdm::sequence::Turn::Now);
        assert!(links.next_held(kept[0], at(0)).is_some());
        assert!(links.next_held(kept[0], at(0)).is_none());
        for id in kept {
            links.take(id).unwrap();
        }
        assert_eq!(links.held, 0);
    }

    #[test]
    fn an_old_name_leads_nowhere() {
        let mut links = Links::new(Duration::from_secs(20));
        let old = links.reserve(7, None, at(0));
        links.take(old).unwrap();
        let new = links.reserve(7, None, at(0));
        assert_eq!(old.index(), new.index());
        assert!(links.of(old).is_none() && links.take(old).is_none());
        assert!(links.of(new).is_some());
    }
}
