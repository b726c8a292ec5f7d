//! Links: all sessions of one port, by cookie, and the lists of those that need attention.
//!
//! ```text
//!   cookie --> Link: Session (numbers), Reassembly (packets), addresses, state at the layer above
//!                |
//!                +-- dirty    may have something to send: a ring, one turn each
//!                +-- backlog  has packets not delivered yet
//!                +-- starved  waits for memory of the port
//!                `-- wheel    one timer each
//! ```
//!
//! Owns: the links, the send buffer, the answers due to strangers.

use super::cookies::Cookies;
use super::link::{Link, Need, TRIALS_MAX};
use super::packet::{DatagramKind, Header};
use super::reassembly::BodyLimits;
use super::reliable_config::{EAGER_TAKEN, ReliableConfig};
use super::roster::{QUIET, Roster};
use super::round::Round;
use super::send_buffer::SendBuffer;
use super::senders::Senders;
use super::seq::Seq;
use super::service::DATA_NAME_MAX;
use super::session::{Caller, Session};
use crate::ids::LinkId;
use crate::log_limit::LogLimit;
use crate::origin::Source;
use crate::port::{ACCEPTED_WITHIN, LinkDown};
use crate::round::PortEvent;
use crate::shares::Shares;
use crate::stats::ReliableStats;
use crate::time::{Instant, PeerDeadline};
use crate::timer::Wheel;
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// Datagram to a stranger: sent once, and not kept.
#[derive(Debug)]
pub(super) struct Reply<A> {
    pub(super) to: A,
    pub(super) header: Header,
}

/// Deferred bookkeeping of a packet that was delivered first.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) link: LinkId,
    pub(super) arrived_at: Instant,
    pub(super) header: Header,
}

#[derive(Debug)]
pub(super) struct Links<A> {
    pub(super) config: ReliableConfig,
    pub(super) stats: ReliableStats,
    pub(super) limits: BodyLimits,
    /// Size in bytes up to which a packet is taken whole or not at all.
    pub(super) part_max: usize,
    pub(super) send_buffer: SendBuffer,
    pub(super) cookies: Cookies,
    pub(super) table: Roster<A>,
    pub(super) by_cookie: HashMap<u64, LinkId, RandomState>,
    /// Links on trial, not accepted yet, by the source that began them.
    trials: Shares,
    /// All links, by the source that began them.
    places: Shares,
    pub(super) source: fn(A) -> Source,
    /// Number of links that are monitored.
    monitored: usize,
    dirty: VecDeque<LinkId>,
    backlog: Vec<LinkId>,
    /// Links to be ended in the next poll.
    pub(super) lost: Vec<LinkId>,
    /// Links whose peers have sent a Ping that is not answered yet.
    pub(super) pinged: Vec<LinkId>,
    /// Links that wait for room in the send buffer.
    pub(super) starved: Vec<LinkId>,
    wheel: Wheel<LinkId>,
    pub(super) replies: Vec<Reply<A>>,
    /// Links that we called, with the names of their data channels from their Welcomes.
    pub(super) named: Vec<(LinkId, [u8; 1 + DATA_NAME_MAX])>,
    /// Bytes kept in all reassemblies, without each one's own allowance; see [`shared`].
    pub(super) early_bytes: usize,
    pub(super) round: Round<A>,
    /// Bookkeeping of a packet that was delivered first; `None`: none is pending.
    pub(super) deferred: Option<Deferred>,
    /// Whether the next packet may be delivered first.
    pub(super) fast: bool,
    pub(super) senders: Senders,
    /// Size in bytes of the largest datagram that the service can send.
    datagram_max: usize,
    pub(super) same_host: fn(A, A) -> bool,
    /// Logged versions, other than ours, of peers that have called or refused us.
    pub(super) other_versions: LogLimit<u8>,
}

/// Receive window in bytes that a peer always has: a few small datagrams. Early data up to this size is kept even if
/// all shared memory is used, enough to tell the sender that something is lost.
pub(super) const RECEIVE_WINDOW_MIN: usize = 8 << 10;

/// Returns how many of the bytes kept for a peer count against the shared memory.
pub(super) fn shared(kept: usize) -> usize {
    kept.saturating_sub(RECEIVE_WINDOW_MIN)
}

/// Mean time between two Pings to monitored peers, however many there are: 4000 a second take a few hundredths of a
/// core.
const QUESTIONS: Duration = Duration::from_micros(250);

/// Resolution of timers: well below the shortest time-out and the delay of acknowledgements.
const LATENESS: Duration = Duration::from_micros(50);

impl<A: Copy + Eq + Hash + fmt::Debug> Links<A> {
    pub(super) fn new(
        config: ReliableConfig,
        key: [u8; 16],
        datagram_max: usize,
        receive_buffer: usize,
        same_host: fn(A, A) -> bool,
        source: fn(A) -> Source,
    ) -> Self {
        let limits = BodyLimits {
            kept: config.packet_max,
            any: (config.packet_max.max(config.data_max)).max(EAGER_TAKEN),
        };
        Self {
            config,
            stats: ReliableStats::default(),
            limits,
            part_max: usize::MAX,
            send_buffer: SendBuffer::new(config.send_bytes_all).from(config.supply),
            cookies: Cookies::new(key, config.source_share),
            table: Roster::new(config, datagram_max),
            by_cookie: HashMap::default(),
            trials: Shares::new(config.max_links.min(TRIALS_MAX), config.source_share),
            places: Shares::new(config.max_links, config.source_share),
            source,
            monitored: 0,
            dirty: VecDeque::new(),
            backlog: Vec::new(),
            lost: Vec::new(),
            pinged: Vec::new(),
            starved: Vec::new(),
            wheel: Wheel::new(LATENESS),
            replies: Vec::new(),
            named: Vec::new(),
            early_bytes: 0,
            round: Round::default(),
            deferred: None,
            fast: true,
            senders: Senders::new(receive_buffer, config.early_bytes),
            datagram_max,
            same_host,
            other_versions: LogLimit::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn of_mut(&mut self, id: LinkId) -> Option<&mut Link<A>> {
        self.table.get_mut(id)
    }

    /// Returns a link that the layer above may use.
    pub(super) fn attached(&mut self, id: LinkId) -> Option<&mut Link<A>> {
        self.of_mut(id).filter(|link| !link.session.is_closing())
    }

    /// Begins a session with the peer at `address`. `None`: there is no room.
    pub(super) fn call(&mut self, now: Instant, address: A) -> Option<LinkId> {
        let (ours, first) = (self.cookies.draw(), Seq(self.cookies.draw() as u32));
        self.add(now, address, ours, first, None)
    }

    /// Adds a session; `caller`: the peer began it. Sessions that are not accepted yet take no room from our own calls.
    /// `None`: there is no room.
    pub(super) fn add(
        &mut self,
        now: Instant,
        address: A,
        ours: u64,
        first: Seq,
        caller: Option<Caller>,
    ) -> Option<LinkId> {
        let source = (self.source)(address);
        let has_place = match caller {
            Some(_) => self.config.supply.is_ample() && self.has_place(source),
            None => self.table.len() - self.trials.used() < self.config.max_links,
        };
        if !has_place || self.by_cookie.contains_key(&ours) {
            self.stats.refused += 1;
            return None;
        }
        let first = self.config.first_seq.map_or(first, Seq);
        let trial = caller.map(|_| PeerDeadline::new(now.after(ACCEPTED_WITHIN)));
        if trial.is_some() {
            self.trials.take(source, 1);
            self.places.take(source, 1);
        } else {
            self.places.take(Source::TRUSTED, 1);
        }
        let session = Session::new(now, ours, first, caller, self.datagram_max, &self.config);
        let mut link = Link::new(address, session, caller.is_none());
        link.trial = trial;
        link.sum = self.config.always_sum.then_some(true);
        let id = self.table.insert(link);
        self.by_cookie.insert(ours, id);
        self.touch(id);
        Some(id)
    }

    /// Returns whether one more link from this source may be added.
    pub(super) fn has_place(&mut self, source: Source) -> bool {
        let may = self.places.may_take(source, 1) && self.trials.may_take(source, 1);
        if !may && self.places.used() < self.config.max_links {
            self.stats.over_share += 1;
        }
        may
    }

    pub(super) fn accept(&mut self, id: LinkId) {
        let source = self.source;
        let Some(link) = self.attached(id) else {
            return;
        };
        if link.trial.take().is_some() {
            let source = source(link.address);
            self.trials.give_back(source, 1);
        }
    }

    pub(super) fn remove(&mut self, now: Instant, id: LinkId) -> Option<Box<Link<A>>> {
        let mut link = self.table.remove(id)?;
        self.by_cookie.remove(&link.session.ours);
        let source = if link.called {
            (self.source)(link.address)
        } else {
            Source::TRUSTED
        };
        self.places.give_back(source, 1);
        if link.trial.is_some() {
            self.trials.give_back(source, 1);
        }
        self.monitored -= usize::from(link.session.keep_alive.monitored.is_some());
        if link.called {
            self.cookies.remember(link.session.ours, source, now);
        }
        if let Some((_, timer)) = link.timer.take() {
            self.wheel.clear(timer);
        }
        let send = &mut link.session.recovery.send;
        send.release_all(&mut self.send_buffer);
        self.early_bytes -= shared(link.reassembly.kept_bytes());
        Some(link)
    }

    /// Sets the address of the peer's data channel, which gets at most `credit` bytes before it is proven.
    pub(super) fn set_data(&mut self, id: LinkId, address: A, credit: usize) {
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        link.session.proof = self.cookies.proof(&address, link.session.ours);
        link.data = Some(address);
        link.data_credit = credit;
    }

    /// Begins or ends monitoring a link, because operations wait for its peer, whose machine reports its end at once;
    /// or no longer do.
    pub(super) fn monitor(&mut self, now: Instant, id: LinkId, wanted: bool) {
        let pause = wanted.then(|| self.monitored_pause());
        let Some(link) = self.of_mut(id) else { return };
        let before = std::mem::replace(&mut link.session.keep_alive.monitored, pause).is_some();
        self.monitored = self.monitored - usize::from(before) + usize::from(wanted);
        self.plan(now, id);
        self.suspend(now, id);
    }

    /// Returns the silence after which a monitored peer is sent a Ping.
    fn monitored_pause(&self) -> Duration {
        let all = u32::try_from(self.monitored).unwrap_or(u32::MAX);
        let pause = self.config.monitored_keepalive;
        pause.max(QUESTIONS.saturating_mul(all))
    }

    /// Returns the number of bytes that a peer may have in flight to us.
    pub(super) fn window_limit(&self) -> usize {
        self.senders.share().max(RECEIVE_WINDOW_MIN)
    }

    /// Notes that a link may have something to send, and that its deadline may have changed.
    #[inline]
    pub(super) fn touch(&mut self, id: LinkId) {
        if let Some(link) = self.table.get_mut(id)
            && !std::mem::replace(&mut link.dirty, true)
        {
            self.dirty.push_back(id);
        }
    }

    /// Returns the number of links that may have something to send.
    pub(super) fn dirty_len(&self) -> usize {
        self.dirty.len()
    }

    /// Takes the next link that may have something to send.
    pub(super) fn take_dirty(&mut self) -> Option<LinkId> {
        let id = self.dirty.pop_front()?;
        if let Some(link) = self.of_mut(id) {
            link.dirty = false;
        }
        Some(id)
    }

    /// Sets a link's timer. A timer set for earlier stays and checks again when it fires.
    #[inline]
    pub(super) fn plan(&mut self, now: Instant, id: LinkId) {
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        let at = link.session.deadline(&self.config);
        let at = link.trial.map_or(at, |trial| at.min(trial.at()));
        match link.timer {
            Some((planned, _)) if planned <= at => return,
            Some((_, timer)) => self.wheel.clear(timer),
            None => {}
        }
        link.timer = Some((at, self.wheel.set(now, at, id)));
    }

    /// Suspends a link after its turn, if nothing has happened on it for long.
    #[inline]
    pub(super) fn suspend(&mut self, now: Instant, id: LinkId) {
        self.table.suspend(now, id);
    }

    /// Returns the time at which work is due although nothing arrives; `None`: no such time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.has_backlog() || !self.pinged.is_empty() {
            return Some(Instant(0));
        }
        self.wheel.next()
    }

    /// Returns whether packets wait for the next poll.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty() || self.deferred.is_some()
    }

    pub(super) fn take_backlog(&mut self) -> Vec<LinkId> {
        let backlog = std::mem::take(&mut self.backlog);
        for id in &backlog {
            if let Some(link) = self.table.get_mut(*id) {
                link.backlogged = false;
            }
        }
        backlog
    }

    #[inline]
    pub(super) fn note_backlog(&mut self, id: LinkId) {
        if let Some(link) = self.table.get_mut(id)
            && link.reassembly.has_ready()
            && !std::mem::replace(&mut link.backlogged, true)
        {
            self.backlog.push(id);
        }
    }

    /// Tells the peer of a link that its session is over.
    pub(super) fn reset(&mut self, id: LinkId) {
        let Some(link) = self.of_mut(id) else {
            return;
        };
        if link.session.theirs != 0 {
            let (theirs, ours) = (link.session.theirs, link.session.ours);
            let header = Header::new(DatagramKind::Reset, theirs, ours);
            let to = link.address;
            self.replies.push(Reply { to, header });
        }
    }

    /// Ends a session, and reports it to the layer above if that knew it.
    pub(super) fn fail(&mut self, now: Instant, id: LinkId, reason: LinkDown) {
        let Some(link) = self.remove(now, id) else {
            return;
        };
        log::debug!("link {id:?} to {:?} is down: {reason}", link.address);
        if link.known && !link.session.is_closing() {
            self.round.queue(PortEvent::Down(id, reason));
        }
    }

    /// Ends the links marked as lost.
    pub(super) fn end_lost(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.lost) {
            self.fail(now, id, LinkDown::Reset);
        }
    }

    /// Checks a link after a change: it may have room again, or have finished closing.
    #[inline]
    pub(super) fn look_at(&mut self, now: Instant, id: LinkId) {
        let config = self.config;
        let Some(link) = self.of_mut(id) else { return };
        if link.session.is_over() {
            self.remove(now, id);
            return;
        }
        if link.midway.is_some() {
            self.touch(id);
            if !self.push_rest(id) {
                return;
            }
        }
        let Some(link) = self.of_mut(id) else { return };
        let Some(need) = link.blocked else { return };
        if link.session.is_open() && link.has_room(need, &config) {
            link.blocked = None;
            self.round.queue(PortEvent::Writable(id));
        }
    }

    /// Returns whether the link's window has room for a packet now; otherwise marks the link as blocked.
    #[inline]
    pub(super) fn may_send(&mut self, id: LinkId, need: Need) -> bool {
        let config = self.config;
        let may = |link: &Link<A>| link.session.is_open() && link.has_room(need, &config);
        if self.of_mut(id).is_some_and(|link| may(link)) {
            return true;
        }
        // An acknowledgement that is not processed yet may have freed space.
        let finished = self.finish_fast_receive_of(id);
        let Some(link) = self.of_mut(id) else {
            return false;
        };
        if finished && may(link) {
            return true;
        }
        link.blocked = Some(need);
        false
    }

    /// Lets links that waited for the send buffer try again.
    pub(super) fn feed_starved(&mut self, now: Instant) {
        if self.starved.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.starved) {
            self.look_at(now, id);
        }
    }

    /// Handles every link whose timer is due. Returns whether there was one.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let mut busy = false;
        let pause = self.monitored_pause();
        while let Some((id, due)) = self.wheel.expired(now) {
            let Some(link) = self.table.get_mut(id) else {
                continue;
            };
            busy = true;
            link.timer = None;
            if let Some(known) = &mut link.session.keep_alive.monitored {
                *known = pause;
            }
            link.session.exclude_pause(due, now, &self.config);
            let mut over = link.session.on_timer(now, &self.config, &mut self.stats);
            if link.trial.as_mut().is_some_and(|trial| trial.is_over(now)) {
                self.stats.unbound += 1;
                over = Some(LinkDown::TimedOut);
            }
            if let Some(black_hole) = link.session.pmtu.take_black_hole() {
                log::warn!("{:?}: {black_hole}", link.address);
            }
            if link.session.is_quiet(now, QUIET) {
                link.session.shrink();
                link.reassembly.shrink();
                self.send_buffer.trim_if_idle();
            }
            match over {
                Some(reason) => {
                    self.reset(id);
                    self.fail(now, id, reason);
                }
                None => self.touch(id),
            }
        }
        busy
    }
}
