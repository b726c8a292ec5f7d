//! Lanes: one endpoint more for a peer, with a queue of its own, which can be closed at any time.
//!
//! ```text
//!        link's frames (shared endpoint)             lanes (an endpoint each, same domain)
//!   A   Lane(a, 0) ---------------------->  B        A: opened, proposed
//!   A   <---------------------- Lane(b, a)  B        B: opened, both know each other's address
//!   A   ==================== hello ======>  B        the lower address speaks first, because two
//!   A   <=================== hello =======  B          that connect at once get stuck in 1.18
//!   A   Ask(piece, tag) ----------------->  B        warm: reads go this way
//!   A   <=================== piece =======  B
//!   A   Gone(a) ------------------------->  B        closed, and so B closes b
//! ```
//!
//! Software providers do not return the memory of a send or receive that does not come to its
//! end: cancelling a send does nothing, and a dead peer is never reported. But closing an endpoint
//! returns all of its memory within milliseconds, and leaves others alone. So memory of the
//! application goes to the provider only through an endpoint that serves this peer alone, and
//! whoever needs the memory back (a time-out, a cancel, a peer that died) closes it. What was
//! under way then is read the ordinary way, and a new lane follows after a pause.
//!
//! Each has a completion queue of its own because the queue of 1.17 goes on using endpoints that
//! were bound to it and are closed. It is looked at while anything is under way.
//!
//! A lane costs descriptors, memory and tens of milliseconds until it works, so a link gets one
//! when it has shown that it moves much, and loses it when it has been idle.
//!
//! Owns: lanes, their endpoints and addresses; what peers may read.
//! Knows nothing of: how pieces move (`flow`), what links are.
//! Cost: a link without a lane is about 100 bytes; `poll` looks at nothing when nothing is due.

mod one;
mod opening;

use super::exposure::{Exposures, span_of};
use super::flow::{Broken, Pace, Standing};
use super::ops::Op;
use super::plan::Plan;
use super::remote::{LaneOp, News, Outcome, Outlet, Patience, RemoteOp, Report, Segments, Wish};
use super::remote_frame::RemoteFrame;
use mx_proto::port::{RemoteKey, SendError};
use mx_proto::{Instant, LinkId};
use one::{CANCEL_MAX, Lane, Said, calm};
use opening::Proposal;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::RandomState;
use std::os::fd::RawFd;
use std::time::Duration;

/// The lanes of a port.
pub(super) struct Lanes {
    links: HashMap<LinkId, Side>,
    exposures: Exposures,
    /// Links with something to do in the next poll.
    work: Vec<LinkId>,
    /// Links whose lanes are looked at in each poll.
    active: Vec<LinkId>,
    /// Their queues' descriptors have to be waited for.
    wake: bool,
    /// What has arrived is handled before one is closed.
    calm: bool,
    /// When the first time-out may be.
    alarm: Option<Instant>,
    open: usize,
    most: usize,
    /// Of the newest lane; 0 stands for none.
    generation: u32,
    tags: RandomState,
    tag_mask: u64,
    /// As of the last poll.
    now: Instant,
}

/// What there is of lanes on one link.
#[derive(Default)]
struct Side {
    lane: Option<Lane>,
    /// The peer's, not yet answered.
    proposal: Option<Proposal>,
    /// A lane would be worth it.
    wanted: bool,
    /// What has gone the copied way since there was a lane last.
    messages: u32,
    bytes: usize,
    /// No lane of our wish before that, and none of the peer's before this.
    not_before: Instant,
    answer_after: Instant,
    /// How long the next pause is.
    pause: Duration,
    /// In `work`.
    queued: bool,
}

/// Why a lane is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// Nothing has moved for long, or another peer needs one more.
    Idle,
    /// Memory had to be given back at once.
    Recalled,
    /// Something went wrong.
    Broken(Broken),
    /// The peer has closed its own.
    PeerGone,
    /// The peer does not want one.
    Declined,
    /// The link is gone.
    LinkDown,
}

impl Lanes {
    pub(super) fn new(plan: &Plan, most: usize) -> Self {
        Self {
            links: HashMap::new(),
            exposures: Exposures::new(plan.iov_limit),
            work: Vec::new(),
            active: Vec::new(),
            wake: plan.lanes_wake,
            calm: plan.lanes_calm,
            alarm: None,
            open: 0,
            most: most.min(plan.lanes_max),
            generation: 0,
            tags: RandomState::new(),
            tag_mask: u64::MAX >> 64u32.saturating_sub(plan.tag_bits).min(63),
            now: Instant::default(),
        }
    }

    /// A key is given whenever lanes are possible at all: whether there is one is seen only when
    /// the receiver reads.
    pub(super) fn expose(
        &mut self,
        link: LinkId,
        segments: Segments,
        token: u64,
    ) -> Option<RemoteKey> {
        if !self.links.contains_key(&link) {
            return None;
        }
        self.exposures.add(link, segments, token)
    }

    pub(super) fn conceal(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        link: LinkId,
        key: RemoteKey,
    ) {
        let Some(id) = self.exposures.find(link, key) else {
            return;
        };
        if let Some((lane, _)) = self.lane(link) {
            let dropped = lane.flow.drop_asked(id);
            if let Some(peer) = lane.peer {
                let lane = peer.generation;
                for tag in dropped {
                    let refused = RemoteFrame::Refused { lane, tag };
                    outlet.out.push_back((link, refused));
                }
            }
        }
        let mut patience = Patience::new();
        while self.exposures.is_sending(id) {
            self.look(outlet, news, link);
            if self.exposures.is_sending(id) && !patience.again() {
                self.shut(outlet, news, link, Cause::Recalled);
            }
        }
        if let Some(token) = self.exposures.token(id) {
            news.forget_exposure(link, token);
        }
        self.exposures.remove(id);
    }

    pub(super) fn read(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        link: LinkId,
        wish: Wish,
    ) -> Result<(), SendError> {
        let span = span_of(wish.key).ok_or(SendError::Down)?;
        let now = self.now;
        let side = self.links.get_mut(&link).ok_or(SendError::Down)?;
        match &mut side.lane {
            Some(lane) if lane.is_warm() => {
                if !lane.flow.begin(wish, span) {
                    return Err(SendError::Down);
                }
                lane.used = now;
                self.drive(outlet, news, link);
                Ok(())
            }
            lane => {
                side.messages = side.messages.saturating_add(1);
                side.bytes = side.bytes.saturating_add(wish.len);
                let worth = side.messages >= WORTH_MESSAGES || side.bytes >= WORTH_BYTES;
                if worth && lane.is_none() && !side.wanted {
                    side.wanted = true;
                    self.queue(link);
                }
                Err(SendError::WouldBlock)
            }
        }
    }

    pub(super) fn recall(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        link: LinkId,
        token: u64,
    ) {
        let mut looks = 0;
        while let Some((lane, _)) = self.lane(link)
            && lane.flow.recall(token) == Standing::Posted
        {
            // A completion that is there saves the lane; nothing is waited for.
            looks += 1;
            if looks > RECALL_LOOKS || !self.look(outlet, news, link) {
                self.shut(outlet, news, link, Cause::Recalled);
            }
        }
    }

    pub(super) fn on_link_up(&mut self, link: LinkId) {
        self.links.entry(link).or_default();
    }

    pub(super) fn on_link_down(&mut self, outlet: &mut Outlet<'_>, news: &mut News, link: LinkId) {
        self.shut(outlet, news, link, Cause::LinkDown);
        self.links.remove(&link);
        self.exposures.remove_link(link);
    }

    pub(super) fn on_frame(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        link: LinkId,
        frame: &RemoteFrame,
    ) {
        match frame {
            RemoteFrame::Lane {
                generation,
                with,
                tag_mask,
                address,
            } => {
                let proposal = Proposal {
                    generation: *generation,
                    tag_mask: *tag_mask,
                    address: address.clone(),
                };
                self.on_lane(outlet, news, link, *with, proposal);
            }
            RemoteFrame::NoLane { generation } => {
                if let Some((lane, _)) = self.lane(link)
                    && lane.generation == *generation
                    && lane.peer.is_none()
                {
                    self.shut(outlet, news, link, Cause::Declined);
                }
            }
            RemoteFrame::Gone { generation } => self.on_gone(outlet, news, link, *generation),
            RemoteFrame::Ask(ask) => {
                let now = self.now;
                let Some(side) = self.links.get_mut(&link) else {
                    return;
                };
                let Some(lane) = &mut side.lane else {
                    return;
                };
                // What was meant for an earlier lane has been answered with `Gone`.
                let Some(peer) = lane.peer.filter(|_| lane.generation == ask.lane) else {
                    return;
                };
                lane.used = now;
                if lane.flow.on_ask(&self.exposures, link, ask) {
                    self.drive(outlet, news, link);
                } else if pending(outlet, link) < UNSENT_MAX {
                    let (lane, tag) = (peer.generation, ask.tag);
                    let refused = RemoteFrame::Refused { lane, tag };
                    outlet.out.push_back((link, refused));
                }
            }
            RemoteFrame::Refused { lane: of, tag } => {
                let now = self.now;
                if let Some((lane, _)) = self.lane(link)
                    && lane.generation == *of
                    && let Some(peer) = lane.peer
                {
                    let (flow, via) = lane.parts(link, peer);
                    flow.on_refused(news, via, *tag, now);
                    self.wake_at(now.after(CANCEL_MAX));
                }
            }
            RemoteFrame::Reading { .. } => {}
        }
    }

    pub(super) fn on_event(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        op: RemoteOp,
        outcome: Outcome,
    ) {
        let RemoteOp::Lane {
            link,
            lane: generation,
            what,
        } = op
        else {
            return;
        };
        let now = self.now;
        let Some(side) = self.links.get_mut(&link) else {
            return;
        };
        // What is left of a lane that is closed concerns nobody.
        let Some(lane) = side
            .lane
            .as_mut()
            .filter(|lane| lane.generation == generation)
        else {
            return;
        };
        lane.used = now;
        let result = match what {
            LaneOp::Hear => {
                lane.hello.heard = true;
                outcome.map_err(|errno| Broken("the peer was not heard", errno))
            }
            LaneOp::Say => {
                lane.hello.said = Said::Done;
                outcome.map_err(|errno| Broken("the peer was not reached", errno))
            }
            LaneOp::Receive { piece } => lane
                .flow
                .on_received(news, link, piece, outcome)
                .map(|()| side.pause = Duration::ZERO)
                .map(|()| 0),
            LaneOp::Send { exposure } => {
                lane.flow.on_sent();
                self.exposures.end_send(exposure);
                if outcome.is_ok()
                    && let Some(token) = self.exposures.token(exposure)
                {
                    news.report(Report::Exposed { link, token });
                }
                outcome.map_err(|errno| Broken("a send failed", errno))
            }
        };
        match result {
            Ok(_) => self.drive(outlet, news, link),
            Err(broken) => self.shut(outlet, news, link, Cause::Broken(broken)),
        }
    }

    pub(super) fn poll(&mut self, outlet: &mut Outlet<'_>, news: &mut News, now: Instant) -> bool {
        self.now = now;
        let mut any = self.look_at_active(outlet, news);
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            self.time_out(outlet, news);
        }
        if self.work.is_empty() {
            return any;
        }
        // Opening takes milliseconds, so one a poll.
        let mut may_open = true;
        for link in std::mem::take(&mut self.work) {
            if let Some(side) = self.links.get_mut(&link) {
                side.queued = false;
                self.attend(outlet, news, link, &mut may_open);
                any |= !may_open;
            }
        }
        any
    }

    /// Adds the descriptors of the lanes at work. The others have nothing outstanding.
    pub(super) fn wait_fds(&self, fds: &mut SmallVec<[RawFd; 4]>) {
        if self.wake {
            let lanes = self.active.iter().filter_map(|link| self.links.get(link));
            fds.extend(lanes.filter_map(|side| side.lane.as_ref()?.ep.wait_fd()));
        }
    }

    /// May one sleep until that is readable? Lanes that have something to read are looked at in
    /// the next poll.
    pub(super) fn may_sleep(&mut self) -> bool {
        let mut may = true;
        for (&link, side) in &mut self.links {
            if let Some(lane) = &mut side.lane
                && lane.ep.wait_fd().is_some()
                && !lane.ep.may_sleep()
            {
                may = false;
                if !lane.active {
                    lane.active = true;
                    self.active.push(link);
                }
            }
        }
        may
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.work.is_empty() {
            self.alarm
        } else {
            Some(self.now.after(RETRY))
        }
    }

    /// Lanes that are open.
    #[cfg(test)]
    pub(super) fn open_lanes(&self) -> usize {
        self.open
    }

    /// Is the link's lane ready for reads?
    #[cfg(test)]
    pub(super) fn is_warm(&self, link: LinkId) -> bool {
        self.links
            .get(&link)
            .and_then(|side| side.lane.as_ref())
            .is_some_and(Lane::is_warm)
    }

    /// Of the link's lane.
    #[cfg(test)]
    pub(super) fn generation(&self, link: LinkId) -> Option<u32> {
        Some(self.links.get(&link)?.lane.as_ref()?.generation)
    }

    /// Exposures of all links.
    #[cfg(test)]
    pub(super) fn exposures(&self) -> usize {
        self.exposures.len()
    }

    /// Reads of all links.
    #[cfg(test)]
    pub(super) fn reads(&self) -> usize {
        let lanes = self.links.values().filter_map(|side| side.lane.as_ref());
        lanes.map(|lane| lane.flow.reads()).sum()
    }

    fn lane(&mut self, link: LinkId) -> Option<(&mut Lane, &mut Exposures)> {
        let lane = self.links.get_mut(&link)?.lane.as_mut()?;
        Some((lane, &mut self.exposures))
    }

    fn queue(&mut self, link: LinkId) {
        if let Some(side) = self.links.get_mut(&link)
            && !side.queued
        {
            side.queued = true;
            self.work.push(link);
        }
    }

    fn wake_at(&mut self, at: Instant) {
        self.alarm = Some(self.alarm.map_or(at, |alarm| alarm.min(at)));
    }

    /// Takes in what has happened on a link's lane. False when nothing had.
    fn look(&mut self, outlet: &mut Outlet<'_>, news: &mut News, link: LinkId) -> bool {
        let Some((lane, _)) = self.lane(link) else {
            return false;
        };
        match news.look_at(&lane.ep, outlet.ops) {
            Ok(found) => {
                self.settle(outlet, news);
                found
            }
            Err(error) => {
                let why = Broken("its queue is broken", error.code);
                self.shut(outlet, news, link, Cause::Broken(why));
                true
            }
        }
    }

    /// Looks at the lanes that may have something to tell, and finds out which have not any more.
    fn look_at_active(&mut self, outlet: &mut Outlet<'_>, news: &mut News) -> bool {
        let now = self.now;
        let mut any = false;
        let mut at = 0;
        while let Some(&link) = self.active.get(at) {
            any |= self.look(outlet, news, link);
            match self.lane(link) {
                Some((lane, _)) if lane.may_move(now) => at += 1,
                Some((lane, _)) => {
                    lane.active = false;
                    self.active.swap_remove(at);
                }
                // `shut` has taken it out.
                None => {}
            }
        }
        any
    }

    fn settle(&mut self, outlet: &mut Outlet<'_>, news: &mut News) {
        while let Some((op, outcome)) = news.next_met() {
            self.on_event(outlet, news, op, outcome);
        }
    }

    /// Gives a link's provider all it can take.
    fn drive(&mut self, outlet: &mut Outlet<'_>, news: &mut News, link: LinkId) {
        let now = self.now;
        let Some((lane, exposures)) = self.lane(link) else {
            return;
        };
        let Some(peer) = lane.peer else {
            return;
        };
        let advanced = lane.advance(outlet, exposures, link, peer);
        if !lane.active && lane.may_move(now) {
            lane.active = true;
            self.active.push(link);
        }
        match advanced {
            Ok(Pace::Rest) => {}
            Ok(Pace::Retry) => self.queue(link),
            Err(broken) => self.shut(outlet, news, link, Cause::Broken(broken)),
        }
    }

    /// Closes a link's lane, which gives back all memory the provider had through it.
    fn shut(&mut self, outlet: &mut Outlet<'_>, news: &mut News, link: LinkId, cause: Cause) {
        let now = self.now;
        let Some(side) = self.links.get_mut(&link) else {
            return;
        };
        let Some(lane) = side.lane.take() else {
            return;
        };
        let Lane {
            ep,
            generation,
            peer,
            flow,
            hello,
            ..
        } = lane;
        match cause {
            Cause::Broken(Broken(what, errno)) => {
                log::debug!("link {link:?}: lane {generation}: {what} ({errno}); closed");
            }
            _ => log::debug!("link {link:?}: lane {generation} closed: {cause:?}"),
        }
        self.active.retain(|active| *active != link);
        if self.calm {
            calm(&ep, outlet, news);
        }
        if let Err(code) = ep.close() {
            log::warn!("link {link:?}: lane {generation} cannot be closed (error {code})");
            news.demand_renewal();
            // Somebody may still write there.
            let _ = std::mem::ManuallyDrop::new(hello);
        }
        outlet.ops.abandon(
            |op| matches!(op, Op::Remote(RemoteOp::Lane { lane, .. }) if lane == generation),
        );
        self.open -= 1;
        self.exposures.end_sends(link);
        if let Some(peer) = peer {
            outlet.domain.remove(peer.address);
        }
        flow.fail(news, link);
        let tell = !matches!(cause, Cause::LinkDown | Cause::Declined | Cause::PeerGone);
        if tell {
            outlet
                .out
                .push_back((link, RemoteFrame::Gone { generation }));
        }
        match cause {
            Cause::Idle => (side.messages, side.bytes) = (0, 0),
            Cause::PeerGone => side.not_before = now.after(PAUSE_MIN),
            Cause::Recalled | Cause::Broken(_) | Cause::Declined => side.put_off(now),
            Cause::LinkDown => {}
        }
    }

    /// Closes what is idle, stuck or never got warm, and finds out when to look again.
    fn time_out(&mut self, outlet: &mut Outlet<'_>, news: &mut News) {
        let now = self.now;
        self.alarm = None;
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        for (&link, side) in &mut self.links {
            let (at, cause) = match &side.lane {
                None if side.wanted => {
                    if side.not_before <= now && !side.queued {
                        side.queued = true;
                        self.work.push(link);
                    }
                    (side.not_before, None)
                }
                None => continue,
                Some(lane) => {
                    let (at, cause) = lane.ends_at();
                    (at, Some(cause))
                }
            };
            if at > now {
                next = Some(next.map_or(at, |next| next.min(at)));
            } else if let Some(cause) = cause {
                due.push((link, cause));
            }
        }
        // Closing one may take milliseconds, and somebody may be waiting to cancel: one a poll.
        if due.len() > 1 {
            next = Some(now);
        }
        self.alarm = next;
        if let Some((link, cause)) = due.pop() {
            self.shut(outlet, news, link, cause);
        }
    }
}

impl Side {
    /// No new lane for a while, and longer each time in a row.
    fn put_off(&mut self, now: Instant) {
        self.wanted = false;
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.not_before = now.after(self.pause);
    }
}

/// Frames of a link that wait to be sent.
fn pending(outlet: &Outlet<'_>, link: LinkId) -> usize {
    if outlet.out.len() < UNSENT_MAX {
        return 0;
    }
    outlet.out.iter().filter(|(to, _)| *to == link).count()
}

/// A link is worth a lane with its second large message, or one that is longer than the time a
/// lane takes to get ready: 1 MiB is about a millisecond on a slow network.
const WORTH_MESSAGES: u32 = 2;
const WORTH_BYTES: usize = 1 << 20;

/// The first pause after a lane that ended badly, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How soon to try again what the provider had no room for. Mostly its descriptor wakes us
/// earlier; a connection in the making does not always.
const RETRY: Duration = Duration::from_millis(1);

/// Looks for a completion that may be there already. Each lets the provider move what has come, so
/// that more of them would take longer than to close.
const RECALL_LOOKS: u32 = 2;

/// Answers of ours that may wait on a link. A peer that has more coming asks without listening.
const UNSENT_MAX: usize = 256;
