//! Selection of the links to read: active links and two epoll instances.
//!
//! ```text
//!   each poll           active links (at most 8, something came lately)      recv, no epoll;
//!                       while they are busy they are not in the data epoll
//!   each k-th poll      data epoll: links with something to read -------> queue -> active
//!   each 256th poll     control epoll: listeners, links being made
//!   after arm           everything
//! ```
//!
//! Owns: both epoll instances and the lists of links: active, queued to be read, waiting for room.
//! The lists hold ids; a link that is gone is recognised by its stale id.

use super::dial;
use super::link::{Link, Phase, Table};
use super::options::is_worth_a_line;
use super::receive::{Addressee, Broken, Violation};
use super::staging::Pool;
use super::{TcpPort, reason, sys};
use mx_port_base::epoll::{self, Epoll, ONCE, READABLE, WRITABLE};
use mx_proto::port::{LinkDown, Sink};
use mx_proto::{Instant, LinkId, Memory};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;

/// Links read on each poll: each costs a system call when nothing is there.
const ACTIVE: usize = 8;

/// Polls without anything after which a link is no longer active: about a millisecond.
const IDLE_AFTER: u32 = 4096;

/// Polls without anything after which an active link makes room for another one.
const YIELD_AFTER: u32 = 64;

/// Polls with something after which an active link is taken out of the data epoll: being watched makes
/// each segment that arrives some percent slower, and taking it out and back costs a microsecond.
const DETACH_AFTER: u32 = 64;

/// A link becomes active when it was read so often between two sleeps, and stays so while it is.
const READS: u8 = 2;

/// Most polls between two looks at the data epoll, with active links (whose polls take longer) and
/// without.
const DATA_EVERY: (u32, u32) = (16, 64);

/// Polls after a sleep that ended with data until the next look at the data epoll: a host makes a few before it sleeps
/// again, and what comes meanwhile wakes it then.
const AFTER_SLEEP: u32 = 8;

/// Polls between two looks at the control epoll, while links are being made and otherwise.
const CONTROL_EVERY: (u32, u32) = (16, 256);

/// Polls between two looks at the clock.
const CLOCK_EVERY: u32 = 64;

/// Blocked links tried on each poll.
const TRIES: usize = 8;

/// Events taken from an epoll instance by one look.
const EVENTS: usize = 64;

/// The ways in which a link becomes active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activation {
    /// Something came from it.
    Read,
    /// Something will probably come from it.
    Expected,
}

#[derive(Clone, Copy, Debug)]
struct ActiveLink {
    id: LinkId,
    /// Polls since anything came.
    idle: u32,
    /// Polls that brought something since the port last slept.
    lively: u32,
    /// The data epoll does not watch it.
    detached: bool,
}

/// The watched descriptors.
#[derive(Debug)]
pub(super) struct PollSet {
    /// Listeners, links being made.
    pub(super) control: Epoll,
    /// Links that carry packets.
    pub(super) data: Epoll,
    /// Links being made.
    pub(super) pending: usize,
    /// The next poll looks everywhere.
    pub(super) look: bool,
    /// The next look at `data` is of a thread that was woken by it.
    woken: bool,
    /// The next poll looks at the clock.
    pub(super) alarms_due: bool,
    /// The next poll looks at `control`.
    pub(super) control_due: bool,
    active: SmallVec<[ActiveLink; ACTIVE]>,
    ready: VecDeque<LinkId>,
    blocked: VecDeque<LinkId>,
    /// Blocked links of which the kernel said that they have room.
    roomy: Vec<LinkId>,
    round: u32,
    /// The number of sleeps.
    sleeps: u32,
    /// Polls until the next look at `data`, and how many there were before it.
    countdown: u32,
    interval: u32,
}

impl PollSet {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            control: Epoll::new()?,
            data: Epoll::new()?,
            pending: 0,
            look: true,
            woken: false,
            alarms_due: false,
            control_due: true,
            active: SmallVec::new(),
            ready: VecDeque::new(),
            blocked: VecDeque::new(),
            roomy: Vec::new(),
            round: 0,
            sleeps: 0,
            countdown: 0,
            interval: 1,
        })
    }

    /// Gives back what its lists do not need.
    pub(super) fn shrink(&mut self) {
        self.ready.shrink_to(2 * self.ready.len());
        self.blocked.shrink_to(2 * self.blocked.len());
        self.roomy.shrink_to(2 * self.roomy.len());
    }

    /// The thread that slept on the descriptors was told about `data`, and the next poll of
    /// `control` checks it anyway: nothing else need be asked.
    pub(super) fn told(&mut self, data: bool) {
        (self.look, self.woken, self.alarms_due) = (false, data, true);
        self.countdown = if data { 0 } else { self.interval.max(1) };
    }

    /// The next poll reads from this link.
    pub(super) fn queue(&mut self, id: LinkId, link: &mut Link) {
        if !link.queued {
            link.queued = true;
            self.ready.push_back(id);
        }
    }

    /// This link waits for room.
    pub(super) fn block(&mut self, id: LinkId, link: &mut Link) {
        link.blocked = true;
        if !link.listed {
            link.listed = true;
            self.blocked.push_back(id);
        }
    }

    /// True when a poll has something to do without asking the kernel.
    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.roomy.is_empty() || self.control_due
    }

    /// Lets the kernel report everything, room too, and gives back what active links hold. Returns
    /// false when the kernel will not.
    pub(super) fn prepare_to_sleep(&mut self, links: &mut Table, pool: &mut Pool) -> bool {
        let data = &self.data;
        self.sleeps = self.sleeps.wrapping_add(1);
        let mut attached = true;
        self.active.retain(|active| {
            let Some(link) = links.get_mut(active.id) else {
                return false;
            };
            link.rx.retire(pool);
            let lively = std::mem::take(&mut active.lively) >= READS.into();
            if !attach(data, active, link) {
                attached = false;
                return true;
            }
            // Idle links, and those whose reader sleeps before each message, are left to epoll:
            // polls between sleeps then cost nothing for them.
            link.active = lively && active.idle < YIELD_AFTER;
            link.active
        });
        if !attached {
            return false;
        }
        for &id in &self.blocked {
            let Some(link) = links.get_mut(id) else {
                continue;
            };
            let carries = matches!(link.phase, Phase::Open | Phase::Lingering);
            if carries && !link.watched_for_room {
                link.watched_for_room = true;
                link.watched_for_room = self.rewatch(id, link).is_ok();
            }
        }
        true
    }

    /// Reads from this link on each poll from now on, as far as there is room for that.
    pub(super) fn activate(
        &mut self,
        id: LinkId,
        links: &mut Table,
        pool: &mut Pool,
        why: Activation,
    ) {
        let Some(link) = links.get_mut(id) else {
            return;
        };
        if link.active || !matches!(link.phase, Phase::Open) {
            return;
        }
        if link.read_after != self.sleeps {
            (link.read_after, link.reads) = (self.sleeps, 0);
        }
        link.reads += u8::from(why == Activation::Read && link.reads < READS);
        // If each message finds a sleeper, epoll reports it.
        if link.reads < READS {
            return;
        }
        let new = ActiveLink {
            id,
            idle: 0,
            lively: 0,
            detached: false,
        };
        if self.active.len() < ACTIVE {
            link.active = true;
            self.active.push(new);
            return;
        }
        let Some(idlest) = self.active.iter_mut().max_by_key(|active| active.idle) else {
            return;
        };
        if why == Activation::Expected || idlest.idle < YIELD_AFTER {
            return;
        }
        if let Some(old) = links.get_mut(idlest.id) {
            if !attach(&self.data, idlest, old) {
                return;
            }
            old.active = false;
            old.rx.retire(pool);
        }
        *idlest = new;
        if let Some(link) = links.get_mut(id) {
            link.active = true;
        }
    }

    /// Active link number `at` brought something.
    #[inline]
    fn enliven(&mut self, at: usize, links: &Table) {
        let active = &mut self.active[at];
        active.idle = 0;
        active.lively = active.lively.saturating_add(1);
        if active.lively >= DETACH_AFTER
            && !active.detached
            && let Some(link) = links.get(active.id)
            && !link.watched_for_room
        {
            self.data.remove(&link.fd);
            active.detached = true;
        }
    }

    /// Takes in what the data epoll knows.
    fn look_at_data(&mut self, links: &mut Table) {
        let mut events = epoll::room::<EVENTS>();
        let mut found = false;
        for event in self.data.ready(&mut events) {
            let what = event.events;
            let id = LinkId::from_word(event.u64);
            let Some(link) = links.get_mut(id) else {
                continue;
            };
            if what & WRITABLE != 0 {
                if link.blocked {
                    self.roomy.push(id);
                } else {
                    self.unwatch_room(id, link);
                }
            }
            // New events are reported only once, so they are queued.
            if what != WRITABLE && (!link.active || link.watched_by_edge) {
                found = true;
                self.queue(id, link);
            }
        }
        let most = if self.active.is_empty() {
            DATA_EVERY.1
        } else {
            DATA_EVERY.0
        };
        let woken = std::mem::take(&mut self.woken);
        self.interval = match found {
            true if woken => AFTER_SLEEP,
            true => 1,
            false => (self.interval * 2).min(most),
        };
        self.countdown = self.interval;
    }

    fn unwatch_room(&self, id: LinkId, link: &mut Link) {
        if link.watched_for_room {
            link.watched_for_room = false;
            link.watched_for_room = self.rewatch(id, link).is_err();
        }
    }

    /// The link waits for a whole packet from now on, or no longer.
    #[cold]
    pub(super) fn watch_waiting(&self, id: LinkId, link: &mut Link) {
        link.watched_by_edge = link.rx.is_waiting();
        // Fails for an active link that is not watched now; this applies when it is watched again.
        let _ = self.rewatch(id, link);
    }

    fn rewatch(&self, id: LinkId, link: &Link) -> io::Result<()> {
        self.data.modify(&link.fd, id.to_word(), interest(link))
    }
}

/// The events of a link that `data` reports.
pub(super) fn interest(link: &Link) -> u32 {
    let room = if link.watched_for_room { WRITABLE } else { 0 };
    let edge = if link.watched_by_edge { ONCE } else { 0 };
    READABLE | room | edge
}

/// Lets `data` watch an active link again. Returns false when the kernel has no memory for that.
fn attach(data: &Epoll, active: &mut ActiveLink, link: &Link) -> bool {
    if active.detached {
        let added = data.add(&link.fd, active.id.to_word(), interest(link));
        active.detached = added.is_err();
    }
    !active.detached
}

impl TcpPort {
    /// Takes in what has happened.
    #[inline]
    pub(super) fn poll_links<M: Memory, S: Sink<M>>(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut S,
    ) -> bool {
        let set = &mut self.poll_set;
        set.round = set.round.wrapping_add(1);
        let look = std::mem::take(&mut set.look);
        let every = if set.pending > 0 {
            CONTROL_EVERY.0
        } else {
            CONTROL_EVERY.1
        };
        let mut did = false;
        if look || set.control_due || set.round % every == 0 {
            did |= self.look_at_control(now, sink);
        }
        if self.chores {
            self.do_chores(now);
        }
        let alarms_due = std::mem::take(&mut self.poll_set.alarms_due);
        if look || alarms_due || self.poll_set.round % CLOCK_EVERY == 0 {
            did |= self.ring_alarms(now, sink);
        }
        if !self.fallen.is_empty() {
            did = true;
            for (id, reason) in std::mem::take(&mut self.fallen) {
                self.announce_down(id, reason, sink);
            }
        }
        if self.links.len() == self.poll_set.pending && !self.poll_set.has_work() {
            return did;
        }
        if look || self.poll_set.countdown == 0 {
            self.poll_set.look_at_data(&mut self.links);
        } else {
            self.poll_set.countdown -= 1;
        }
        did | self.read_links(budget, sink) | self.use_room(sink)
    }

    /// Reads from queued and active links.
    #[inline]
    fn read_links<M: Memory, S: Sink<M>>(&mut self, budget: usize, sink: &mut S) -> bool {
        let links = self.poll_set.ready.len() + self.poll_set.active.len();
        let quota = if links > 1 {
            (budget / links).max(4)
        } else {
            budget
        };
        let mut left = budget;
        // The second group gets the rest of the budget, so they take turns.
        let active_first = self.poll_set.round & 1 == 1;
        let mut did = active_first && self.read_active(quota, &mut left, sink);
        did |= self.read_queued(quota, &mut left, sink);
        did |= !active_first && self.read_active(quota, &mut left, sink);
        did
    }

    #[inline]
    fn read_queued<M: Memory, S: Sink<M>>(
        &mut self,
        quota: usize,
        left: &mut usize,
        sink: &mut S,
    ) -> bool {
        let mut did = false;
        for _ in 0..self.poll_set.ready.len() {
            if *left == 0 {
                break;
            }
            let Some(id) = self.poll_set.ready.pop_front() else {
                break;
            };
            if let Some(link) = self.links.get_mut(id) {
                link.queued = false;
            }
            let served = self.serve(id, quota, sink);
            if served.anything {
                did = true;
                self.poll_set
                    .activate(id, &mut self.links, &mut self.pool, Activation::Read);
            }
            *left = left.saturating_sub(served.packets);
        }
        did
    }

    #[inline]
    fn read_active<M: Memory, S: Sink<M>>(
        &mut self,
        quota: usize,
        left: &mut usize,
        sink: &mut S,
    ) -> bool {
        let mut did = false;
        let mut stale = false;
        let active = self.poll_set.active.len();
        for turn in 0..active {
            if *left == 0 {
                break;
            }
            // A different link comes first each time, so that the budget favours none.
            let at = if active == 1 {
                0
            } else {
                (self.poll_set.round as usize / 2 + turn) % active
            };
            let id = self.poll_set.active[at].id;
            match self.links.get(id) {
                Some(link) if link.queued => continue,
                Some(_) => {}
                None => {
                    stale = true;
                    continue;
                }
            }
            let served = self.serve(id, quota, sink);
            if served.anything {
                self.poll_set.enliven(at, &self.links);
                did = true;
            } else {
                let active = &mut self.poll_set.active[at];
                active.idle += 1;
                stale |= active.idle > IDLE_AFTER;
            }
            *left = left.saturating_sub(served.packets);
        }
        if stale {
            self.cool_links();
        }
        did
    }

    #[cold]
    fn cool_links(&mut self) {
        let Self {
            poll_set,
            links,
            pool,
            ..
        } = self;
        let PollSet { active, data, .. } = poll_set;
        active.retain(|active| match links.get_mut(active.id) {
            Some(link) if active.idle > IDLE_AFTER && attach(data, active, link) => {
                link.active = false;
                link.rx.retire(pool);
                false
            }
            Some(_) => true,
            None => false,
        });
    }

    /// Reads from one link and delivers.
    #[inline]
    pub(super) fn serve<M: Memory, S: Sink<M>>(
        &mut self,
        id: LinkId,
        quota: usize,
        sink: &mut S,
    ) -> Served {
        let mut served = Served::default();
        let Some(link) = self.links.get_mut(id) else {
            return served;
        };
        match link.phase {
            Phase::Open | Phase::Greeting => {}
            Phase::Dialling(_) => return served,
            Phase::Lingering => {
                if link.rx.discard(&link.fd, &mut self.pool).is_err() {
                    self.drop_link(id);
                }
                return served;
            }
        }
        let greeting = !link.rx.is_greeted();
        let to = Addressee {
            link: id,
            stranger: link.stranger,
            known: &mut link.known,
            sink,
        };
        let (turn, result) = link.rx.turn(
            &link.fd,
            &mut self.pool,
            quota,
            link.active && !link.stranger,
            to,
        );
        served.packets = turn.packets;
        served.anything = turn.bytes || turn.packets > 0;
        match result {
            Ok(()) => {
                if let (Some(reason), false) = (link.failed, turn.more) {
                    self.announce_down(id, reason, sink);
                    served.anything = true;
                    return served;
                }
                if turn.more {
                    self.poll_set.queue(id, link);
                }
                if link.rx.is_waiting() != link.watched_by_edge {
                    self.poll_set.watch_waiting(id, link);
                    self.stats.awaited += u64::from(link.watched_by_edge);
                }
                if greeting && link.rx.is_greeted() && matches!(link.phase, Phase::Greeting) {
                    self.greeted(id, sink);
                }
            }
            Err(broken) => {
                served.anything = true;
                self.break_link(id, broken, sink);
            }
        }
        served
    }

    /// An accepted link has turned out to be one of ours.
    fn greeted<M: Memory, S: Sink<M>>(&mut self, id: LinkId, sink: &mut S) {
        if self.establish(id) {
            self.poll_set
                .activate(id, &mut self.links, &mut self.pool, Activation::Read);
        } else {
            self.announce_down(id, LinkDown::Reset, sink);
        }
    }

    /// A link cannot go on: says why, once, and takes it down.
    #[cold]
    fn break_link<M: Memory, S: Sink<M>>(&mut self, id: LinkId, broken: Broken, sink: &mut S) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let peer = link.peer;
        let down = match broken {
            Broken::Finished { midway } => {
                let orderly = if midway {
                    LinkDown::Reset
                } else {
                    LinkDown::Closed
                };
                link.failed.unwrap_or(orderly)
            }
            Broken::Failed(error) => {
                log::debug!("tcp: {peer}: {error}");
                reason(&error)
            }
            Broken::Violated(violation) => {
                // Violations are reported to the endpoint for unknown links, too.
                link.known = true;
                let stats = &mut self.stats;
                let count = match violation {
                    Violation::Nonsense(_) => &mut stats.strangers,
                    Violation::OtherVersion(_) => &mut stats.other_versions,
                    Violation::BodyLength(_) => &mut stats.bad_lengths,
                };
                *count += 1;
                if is_worth_a_line(*count) {
                    log::warn!("tcp: {peer} dropped: {violation} ({count} so far)");
                } else {
                    log::debug!("tcp: {peer} dropped: {violation}");
                }
                LinkDown::Protocol
            }
        };
        self.announce_down(id, down, sink);
    }

    /// Takes a link down and tells the endpoint, when that has heard of it.
    pub(super) fn announce_down<M: Memory, S: Sink<M>>(
        &mut self,
        id: LinkId,
        reason: LinkDown,
        sink: &mut S,
    ) {
        let Some(link) = self.drop_link(id) else {
            return;
        };
        log::debug!("tcp: {}: {reason}", link.peer);
        if link.known {
            sink.on_down(id, reason);
        }
    }

    /// Sends waiting bytes, and notifies the links that wait for room.
    #[inline]
    fn use_room<M: Memory, S: Sink<M>>(&mut self, sink: &mut S) -> bool {
        if self.poll_set.blocked.is_empty() && self.poll_set.roomy.is_empty() {
            return false;
        }
        let mut did = false;
        for id in std::mem::take(&mut self.poll_set.roomy) {
            did |= self.try_room(id, true, sink);
        }
        for _ in 0..TRIES.min(self.poll_set.blocked.len()) {
            let Some(id) = self.poll_set.blocked.pop_front() else {
                break;
            };
            did |= self.try_room(id, false, sink);
            if let Some(link) = self.links.get_mut(id) {
                link.listed = link.blocked;
                if link.blocked {
                    self.poll_set.blocked.push_back(id);
                }
            }
        }
        did
    }

    /// `sure`: the kernel has said that there is room.
    fn try_room<M: Memory, S: Sink<M>>(&mut self, id: LinkId, sure: bool, sink: &mut S) -> bool {
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        if !link.blocked || matches!(link.phase, Phase::Dialling(_)) {
            return false;
        }
        let mut sure = sure;
        if link.tx.has_backlog() {
            match link.tx.flush(&link.fd) {
                Ok(true) => sure = true,
                Ok(false) => return false,
                Err(error) => {
                    link.blocked = false;
                    link.waiting = false;
                    self.sending_failed(id, &error);
                    return true;
                }
            }
        }
        if link.waiting && !sure && !sys::writable(&link.fd) {
            return false;
        }
        link.blocked = false;
        self.poll_set.unwatch_room(id, link);
        if matches!(link.phase, Phase::Lingering) {
            sys::finish_sending(&link.fd);
        } else if std::mem::take(&mut link.waiting) {
            sink.on_writable(id);
        }
        true
    }

    fn look_at_control<M: Memory, S: Sink<M>>(&mut self, now: Instant, sink: &mut S) -> bool {
        self.poll_set.control_due = false;
        if self.poll_set.pending == 0 && self.listeners.is_empty() {
            return false;
        }
        self.strangers.next_round();
        let mut events = epoll::room::<EVENTS>();
        let ready = self.poll_set.control.ready(&mut events);
        for event in ready {
            let id = LinkId::from_word(event.u64);
            if let Some(at) = dial::as_listener(id) {
                self.accept_some(at, now, sink);
                continue;
            }
            match self.links.get(id).map(|link| &link.phase) {
                Some(Phase::Dialling(_)) => self.dialled(id, None, now, sink),
                Some(_) => {
                    self.serve(id, EVENTS, sink);
                }
                None => {}
            }
        }
        self.poll_set.control_due |= ready.len() == EVENTS;
        !ready.is_empty()
    }
}

/// The result of serving one link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    packets: usize,
    anything: bool,
}
