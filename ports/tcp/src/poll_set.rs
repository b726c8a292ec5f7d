//! Selection of the links to read: active links and two epoll instances.
//!
//! ```text
//!   each poll           active links (at most 8, read lately)                recv, no epoll;
//!                       while they are busy they are not in the data epoll
//!   each k-th poll      data epoll: readable links ---------------------> queue -> active
//!   each 256th poll     control epoll: listeners, connecting links
//!   after arm           everything
//! ```
//!
//! Owns: both epoll instances and the lists of links: active, queued to be read, waiting for room. The lists hold ids;
//! those of removed links are stale.

use super::dial;
use super::link::{Link, Phase, Table};
use super::options::is_worth_a_line;
use super::receive::{LinkFailure, Violation};
use super::staging::Pool;
use super::{TcpPort, reason, sys};
use mx_port_base::epoll::{self, Epoll, ONCE, READABLE, WRITABLE};
use mx_proto::port::LinkDown;
use mx_proto::round::PortEvent;
use mx_proto::{Instant, LinkId};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;

/// Maximum number of links read on each poll: each costs a system call even if nothing has arrived.
const ACTIVE: usize = 8;

/// Consecutive empty polls after which a link is no longer active: about a millisecond.
const IDLE_AFTER: u32 = 4096;

/// Consecutive empty polls after which an active link may be replaced by another one.
const YIELD_AFTER: u32 = 64;

/// Successful polls after which an active link leaves the data epoll: being watched makes each arriving segment some
/// percent slower, and leaving and returning costs a microsecond.
const DETACH_AFTER: u32 = 64;

/// Number of reads between two sleeps that makes and keeps a link active.
const READS: u8 = 2;

/// Maximum number of polls between two looks at the data epoll, with active links (whose polls take longer) and
/// without.
const DATA_EVERY: (u32, u32) = (16, 64);

/// Polls after a sleep that ended with data until the next look at the data epoll: a host makes a few before it sleeps
/// again, and later data wakes it then.
const AFTER_SLEEP: u32 = 8;

/// Polls between two looks at the control epoll, while links are connecting and otherwise.
const CONTROL_EVERY: (u32, u32) = (16, 256);

/// Polls between two looks at the clock.
pub(super) const CLOCK_EVERY: u32 = 64;

/// Maximum number of blocked links that retry per poll.
const TRIES: usize = 8;

/// Maximum number of events read from an epoll instance at once.
const EVENTS: usize = 64;

/// Reasons why a link becomes active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activation {
    /// Bytes arrived.
    Read,
    /// Bytes will probably arrive soon.
    Expected,
}

#[derive(Clone, Copy, Debug)]
struct ActiveLink {
    id: LinkId,
    /// Consecutive polls without bytes.
    idle: u32,
    /// Number of polls with bytes since the port last slept.
    lively: u32,
    /// True if the data epoll does not watch the link.
    detached: bool,
}

/// Watched descriptors.
#[derive(Debug)]
pub(super) struct PollSet {
    /// Epoll instance of listeners and connecting links.
    pub(super) control: Epoll,
    /// Epoll instance of links that carry packets.
    pub(super) data: Epoll,
    /// Number of connecting links.
    pub(super) pending: usize,
    /// True if the next poll looks everywhere.
    pub(super) look: bool,
    /// True if the next look at `data` is made by a thread that it woke.
    woken: bool,
    /// True if the next poll looks at the clock.
    pub(super) alarms_due: bool,
    /// True if the next poll looks at `control`.
    pub(super) control_due: bool,
    active: SmallVec<[ActiveLink; ACTIVE]>,
    /// Links with bytes to read.
    pub(super) ready: VecDeque<LinkId>,
    blocked: VecDeque<LinkId>,
    /// Blocked links for which the kernel reported room.
    roomy: Vec<LinkId>,
    /// Number of sleeps so far.
    sleeps: u32,
    /// Polls until the next look at `data`, and its initial value.
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
            sleeps: 0,
            countdown: 0,
            interval: 1,
        })
    }

    /// Frees unused memory of the lists.
    pub(super) fn shrink(&mut self) {
        self.ready.shrink_to(2 * self.ready.len());
        self.blocked.shrink_to(2 * self.blocked.len());
        self.roomy.shrink_to(2 * self.roomy.len());
    }

    /// Records that the thread that slept was told whether `data` is readable; the next poll of `control` checks that
    /// anyway, so nothing else need be asked.
    pub(super) fn told(&mut self, data: bool) {
        (self.look, self.woken, self.alarms_due) = (false, data, true);
        self.countdown = if data { 0 } else { self.interval.max(1) };
    }

    /// Queues a link for reading in the next poll.
    pub(super) fn queue(&mut self, id: LinkId, link: &mut Link) {
        if !link.queued {
            link.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Records that a link waits for room.
    pub(super) fn block(&mut self, id: LinkId, link: &mut Link) {
        link.blocked = true;
        link.unsent.note_full(&link.fd);
        if !link.listed {
            link.listed = true;
            self.blocked.push_back(id);
        }
    }

    /// Returns the number of rounds between two looks at `control`.
    #[inline]
    pub(super) fn control_every(&self) -> u32 {
        if self.pending > 0 {
            CONTROL_EVERY.0
        } else {
            CONTROL_EVERY.1
        }
    }

    /// Returns true if a poll has something to do without asking the kernel.
    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.roomy.is_empty() || self.control_due
    }

    /// Makes the kernel report all events, room included, and frees buffers of active links. Returns false if the
    /// kernel refuses.
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
            // Idle links, and those whose reader sleeps before each message, are left to epoll, so that polls between
            // sleeps cost nothing for them.
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

    /// Makes a link active, if there is room: each poll reads it from now on.
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
        // If each message wakes a sleeper, epoll reports the link.
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

    /// Returns the number of active links.
    #[inline]
    pub(super) fn active_len(&self) -> usize {
        self.active.len()
    }

    /// Returns the active link `at` places after number `first`, cyclically.
    #[inline]
    pub(super) fn active_at(&self, first: u32, at: usize) -> Option<LinkId> {
        let at = match self.active.len() {
            0 | 1 => 0,
            len => (first as usize + at) % len,
        };
        self.active.get(at).map(|active| active.id)
    }

    /// Counts a read of an active link. Returns true if the link has been idle for long.
    #[inline]
    pub(super) fn note_active(&mut self, id: LinkId, anything: bool, links: &Table) -> bool {
        let Some(active) = self.active.iter_mut().find(|active| active.id == id) else {
            return false;
        };
        if !anything {
            active.idle += 1;
            return active.idle > IDLE_AFTER;
        }
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
        false
    }

    /// Looks at the data epoll if that is due, or if everything is looked at.
    #[inline]
    pub(super) fn take_in_data(&mut self, look: bool, links: &mut Table) {
        if look || self.countdown == 0 {
            self.look_at_data(links);
        } else {
            self.countdown -= 1;
        }
    }

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
            // Edge-triggered events are reported only once, so they are queued.
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

    /// Starts or ends watching a link edge-triggered, while it waits for a whole packet.
    #[cold]
    pub(super) fn watch_waiting(&self, id: LinkId, link: &mut Link) {
        link.watched_by_edge = link.rx.is_waiting();
        // Fails for an active link that is not watched now; the interest applies once it is watched again.
        let _ = self.rewatch(id, link);
    }

    fn rewatch(&self, id: LinkId, link: &Link) -> io::Result<()> {
        self.data.modify(&link.fd, id.to_word(), interest(link))
    }
}

/// Returns the events that `data` reports for a link.
pub(super) fn interest(link: &Link) -> u32 {
    let room = if link.watched_for_room { WRITABLE } else { 0 };
    let edge = if link.watched_by_edge { ONCE } else { 0 };
    READABLE | room | edge
}

/// Makes `data` watch an active link again. Returns false if the kernel has no memory for that.
fn attach(data: &Epoll, active: &mut ActiveLink, link: &Link) -> bool {
    if active.detached {
        let added = data.add(&link.fd, active.id.to_word(), interest(link));
        active.detached = added.is_err();
    }
    !active.detached
}

impl TcpPort {
    /// Deactivates links that have been idle for long.
    #[cold]
    pub(super) fn cool_links(&mut self) {
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

    /// Takes down a link that cannot continue, and logs the reason.
    #[cold]
    pub(super) fn break_link(&mut self, id: LinkId, broken: LinkFailure) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let peer = link.peer;
        let down = match broken {
            LinkFailure::Finished { midway } => {
                let orderly = if midway {
                    LinkDown::Reset
                } else {
                    LinkDown::Closed
                };
                link.failed.unwrap_or(orderly)
            }
            LinkFailure::Failed(error) => {
                log::debug!("tcp: {peer}: {error}");
                reason(&error)
            }
            LinkFailure::Violated(violation) => {
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
        self.announce_down(id, down);
    }

    /// Takes down a link, and announces that if the endpoint knows the link and has not closed it.
    pub(super) fn announce_down(&mut self, id: LinkId, reason: LinkDown) {
        let Some(link) = self.drop_link(id) else {
            return;
        };
        log::debug!("tcp: {}: {reason}", link.peer);
        if link.known && !matches!(link.phase, Phase::Lingering) {
            self.events.push_back(PortEvent::Down(id, reason));
        }
    }

    /// Sends backlogs, and announces the room of links that wait for it.
    #[inline]
    pub(super) fn use_room(&mut self) -> bool {
        if self.poll_set.blocked.is_empty() && self.poll_set.roomy.is_empty() {
            return false;
        }
        let mut did = false;
        for id in std::mem::take(&mut self.poll_set.roomy) {
            did |= self.try_room(id, true);
        }
        for _ in 0..TRIES.min(self.poll_set.blocked.len()) {
            let Some(id) = self.poll_set.blocked.pop_front() else {
                break;
            };
            did |= self.try_room(id, false);
            if let Some(link) = self.links.get_mut(id) {
                link.listed = link.blocked;
                if link.blocked {
                    self.poll_set.blocked.push_back(id);
                }
            }
        }
        did
    }

    /// Retries a blocked link; `sure`: the kernel has reported room.
    fn try_room(&mut self, id: LinkId, sure: bool) -> bool {
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
            self.events.push_back(PortEvent::Writable(id));
        }
        true
    }

    /// Accepts and establishes connections, and queues links that are not open yet for reading.
    pub(super) fn look_at_control(&mut self, now: Instant) -> bool {
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
                self.accept_some(at, now);
                continue;
            }
            match self.links.get_mut(id) {
                Some(link) if matches!(link.phase, Phase::Dialling(_)) => {
                    self.dialled(id, None, now);
                }
                Some(link) => self.poll_set.queue(id, link),
                None => {}
            }
        }
        self.poll_set.control_due |= ready.len() == EVENTS;
        !ready.is_empty()
    }
}
