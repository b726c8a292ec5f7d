//! All sessions of one port: who they are, what arrived for them, when they want to be looked at.
//!
//! ```text
//!   datagram -- cookie --> Link: Channel (numbers), Reassembly (packets), address, the user's word
//!                            |
//!                            +-- dirty    may have something to send
//!                            +-- backlog  has fragments the sink has not been given yet
//!                            `-- agenda   heap of (when, link); stale entries are skipped
//! ```
//!
//! Knows nothing of: how datagrams are sent.

use super::channel::Channel;
use super::config::ReliableConfig;
use super::packet::{BadDatagram, FIN, Header, Kind};
use super::reassembly::{BodyLimits, Reassembly};
use super::recv_window::{Fragment, Verdict};
use super::seq::Seq;
use super::service::Incoming;
use super::stats::ReliableStats;
use crate::ids::LinkId;
use crate::memory::Memory;
use crate::port::{LinkDown, Sink};
use crate::table::Table;
use crate::time::Instant;
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;

/// One session and what the layer above knows of it.
#[derive(Debug)]
pub(super) struct Link<A> {
    pub(super) address: A,
    pub(super) channel: Channel,
    /// The word [`crate::port::Port::bind`] attached.
    pub(super) cookie: u64,
    /// The layer above still has it.
    pub(super) attached: bool,
    /// The layer above has heard of it, or began it.
    known: bool,
    /// Fragments the packet needs that found no room.
    pub(super) blocked: Option<usize>,
    reassembly: Reassembly,
    /// The earliest entry in the agenda.
    planned: Option<Instant>,
    dirty: bool,
    backlogged: bool,
}

/// All links.
#[derive(Debug)]
pub(super) struct Links<A> {
    pub(super) config: ReliableConfig,
    pub(super) stats: ReliableStats,
    limits: BodyLimits,
    table: Table<Link<A>>,
    by_cookie: HashMap<u64, LinkId, RandomState>,
    /// Sessions that others began: by their address and cookie.
    callers: HashMap<(A, u64), LinkId, RandomState>,
    /// Those of them that may not be confirmed yet, oldest first.
    half_open: VecDeque<LinkId>,
    pub(super) dirty: VecDeque<LinkId>,
    backlog: Vec<LinkId>,
    agenda: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Answers that belong to no session.
    pub(super) resets: Vec<(A, Header)>,
    /// Bytes kept in all receive windows.
    early_bytes: usize,
    /// Packets the sink may still be given in this poll.
    budget: usize,
    random: u64,
}

/// Resets sent in answer to one poll's datagrams; the peer asks again for those left out.
const RESETS_MAX: usize = 64;

impl<A: Copy + Eq + Hash + std::fmt::Debug> Links<A> {
    pub(super) fn new(config: ReliableConfig, seed: u64) -> Self {
        let limits = BodyLimits {
            kept: config.packet_max,
            any: config.packet_max.max(config.data_max),
        };
        Self {
            config,
            stats: ReliableStats::default(),
            limits,
            table: Table::new(),
            by_cookie: HashMap::default(),
            callers: HashMap::default(),
            half_open: VecDeque::new(),
            dirty: VecDeque::new(),
            backlog: Vec::new(),
            agenda: BinaryHeap::new(),
            resets: Vec::new(),
            early_bytes: 0,
            budget: 0,
            random: seed,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn of_mut(&mut self, id: LinkId) -> Option<&mut Link<A>> {
        self.table.get_mut(id.index(), id.generation())
    }

    /// A link the layer above may use.
    pub(super) fn attached(&mut self, id: LinkId) -> Option<&mut Link<A>> {
        self.of_mut(id).filter(|link| link.attached)
    }

    /// Begins a session with whoever is at `address`, or, with `caller`, the one they began.
    pub(super) fn add(
        &mut self,
        now: Instant,
        address: A,
        caller: Option<&Header>,
    ) -> Option<LinkId> {
        if self.table.len() >= self.config.max_links {
            self.stats.refused += 1;
            return None;
        }
        let ours = loop {
            let cookie = self.random();
            if cookie != 0 && !self.by_cookie.contains_key(&cookie) {
                break cookie;
            }
        };
        let drawn = (self.random() >> 32) as u32;
        let first = Seq(self.config.first_seq.unwrap_or(drawn));
        let channel = Channel::new(now, ours, first, caller, &self.config);
        let (index, generation) = self.table.insert(Link {
            address,
            channel,
            cookie: 0,
            attached: true,
            known: caller.is_none(),
            blocked: None,
            reassembly: Reassembly::default(),
            planned: None,
            dirty: false,
            backlogged: false,
        });
        let id = LinkId::new(index, generation);
        self.by_cookie.insert(ours, id);
        self.touch(id);
        Some(id)
    }

    /// SplitMix64: cookies need not be secret, only not to repeat and not to be guessed by chance.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link<A>> {
        let link = self.table.remove(id.index(), id.generation())?;
        self.by_cookie.remove(&link.channel.ours());
        self.callers.remove(&(link.address, link.channel.theirs()));
        self.early_bytes = self
            .early_bytes
            .saturating_sub(link.channel.recv.kept_bytes());
        Some(link)
    }

    /// Notes that a link may have something to send and that its deadline may have changed.
    pub(super) fn touch(&mut self, id: LinkId) {
        if let Some(link) = self.table.get_mut(id.index(), id.generation())
            && !std::mem::replace(&mut link.dirty, true)
        {
            self.dirty.push_back(id);
        }
    }

    /// The next link that may have something to send.
    pub(super) fn take_dirty(&mut self) -> Option<LinkId> {
        let id = self.dirty.pop_front()?;
        if let Some(link) = self.of_mut(id) {
            link.dirty = false;
        }
        Some(id)
    }

    /// Puts a link's deadline into the agenda.
    pub(super) fn plan(&mut self, id: LinkId) {
        let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        let Some(at) = link.channel.deadline(&self.config) else {
            return;
        };
        if link.planned.is_none_or(|planned| at < planned) {
            link.planned = Some(at);
            self.agenda.push(Reverse((at, id.to_word())));
        }
    }

    /// When something is to be done although nothing arrives.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if !self.backlog.is_empty() {
            return Some(Instant(0));
        }
        self.agenda.peek().map(|Reverse((at, _))| *at)
    }

    /// Fragments wait for the next poll.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// A poll begins: so many packets may be given to the sink.
    pub(super) fn begin<M: Memory, S: Sink<M>>(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut S,
    ) -> bool {
        self.budget = budget.max(1);
        let backlog = std::mem::take(&mut self.backlog);
        let busy = !backlog.is_empty();
        for id in backlog {
            if let Some(link) = self.of_mut(id) {
                link.backlogged = false;
                self.give_out(now, id, sink);
            }
        }
        busy
    }

    /// Takes in something the service has.
    pub(super) fn on_incoming<M: Memory, S: Sink<M>>(
        &mut self,
        now: Instant,
        incoming: Incoming<'_, A>,
        sink: &mut S,
    ) {
        let (from, bytes) = match incoming {
            Incoming::Datagram { from, bytes } => (from, bytes),
            Incoming::Refused { to } => return self.on_refused(to, sink),
        };
        self.stats.datagrams_in += 1;
        let (header, payload) = match Header::parse(bytes) {
            Ok(parsed) => parsed,
            Err(BadDatagram::Malformed) => return self.stats.malformed += 1,
            Err(BadDatagram::Damaged) => return self.stats.damaged += 1,
        };
        if header.kind == Kind::Hello {
            return self.on_hello(now, from, &header);
        }
        let Some(&id) = self.by_cookie.get(&header.to) else {
            self.stats.old_session += 1;
            if header.kind != Kind::Reset && self.resets.len() < RESETS_MAX {
                self.resets
                    .push((from, Header::new(Kind::Reset, header.from, header.to)));
            }
            return;
        };
        let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        if link.address != from {
            self.stats.old_session += 1;
            return;
        }
        if header.kind == Kind::Welcome {
            return self.on_welcome(now, id, &header, sink);
        }
        if link.channel.theirs() != header.from {
            self.stats.old_session += 1;
            return;
        }
        if header.kind == Kind::Reset {
            return self.fail(id, LinkDown::Reset, sink);
        }
        if !link.channel.on_header(now, &header, &mut self.stats) {
            return;
        }
        self.touch(id);
        if header.kind == Kind::Data {
            self.on_data(now, id, &header, payload, sink);
        }
        self.look_at(id, sink);
    }

    fn on_hello(&mut self, now: Instant, from: A, header: &Header) {
        if let Some(&id) = self.callers.get(&(from, header.from)) {
            if let Some(link) = self.of_mut(id) {
                link.channel.on_hello_again(now);
            }
            return self.touch(id);
        }
        self.half_open.retain(|id| {
            let link = self.table.get(id.index(), id.generation());
            link.is_some_and(|link| link.channel.is_half_open())
        });
        if self.half_open.len() >= self.config.half_open_max
            && let Some(oldest) = self.half_open.pop_front()
        {
            self.stats.refused += 1;
            self.remove(oldest);
        }
        if let Some(id) = self.add(now, from, Some(header)) {
            self.callers.insert((from, header.from), id);
            self.half_open.push_back(id);
        }
    }

    fn on_welcome<M: Memory, S: Sink<M>>(
        &mut self,
        now: Instant,
        id: LinkId,
        header: &Header,
        sink: &mut S,
    ) {
        let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        if link.channel.theirs() != 0 && link.channel.theirs() != header.from {
            // An answer to an earlier copy of our Hello, after the called one forgot it.
            self.stats.old_session += 1;
            return;
        }
        let opened = link.channel.on_welcome(now, header, &self.config);
        let (cookie, blocked) = (link.cookie, link.blocked.is_some());
        self.touch(id);
        if opened {
            sink.on_up(id, cookie);
            if blocked {
                self.look_at(id, sink);
            }
        }
    }

    fn on_refused<M: Memory, S: Sink<M>>(&mut self, to: A, sink: &mut S) {
        let ids: Vec<LinkId> = self
            .table
            .iter()
            .filter(|(_, link)| link.address == to)
            .map(|((index, generation), _)| LinkId::new(index, generation))
            .collect();
        for id in ids {
            let Some(link) = self.of_mut(id) else {
                continue;
            };
            let calling = link.channel.is_calling();
            if link.channel.on_refused() {
                let reason = if calling {
                    LinkDown::Refused
                } else {
                    LinkDown::Reset
                };
                self.fail(id, reason, sink);
            }
        }
    }

    fn on_data<M: Memory, S: Sink<M>>(
        &mut self,
        now: Instant,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        sink: &mut S,
    ) {
        let (budget, early_bytes) = (self.budget, self.early_bytes);
        let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        let verdict = link.channel.on_fragment(now, header);
        match verdict {
            Verdict::Duplicate => self.stats.duplicates += 1,
            Verdict::Outside => self.stats.outside_window += 1,
            Verdict::Next if budget > 0 => {
                link.channel.recv.on_given();
                self.give(id, header.flags, payload, sink);
                self.give_out(now, id, sink);
            }
            Verdict::Next | Verdict::Early => {
                if early_bytes + payload.len() > self.config.early_bytes {
                    self.stats.outside_window += 1;
                    return;
                }
                self.early_bytes += payload.len();
                let fragment = Fragment {
                    flags: header.flags,
                    bytes: payload.to_vec(),
                };
                link.channel.recv.keep(header.seq, fragment);
                self.note_backlog(id);
            }
        }
    }

    /// Gives out what is there in order, as far as the budget goes.
    fn give_out<M: Memory, S: Sink<M>>(&mut self, now: Instant, id: LinkId, sink: &mut S) {
        while self.budget > 0 {
            let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
                return;
            };
            let Some(fragment) = link.channel.recv.take_next() else {
                break;
            };
            self.early_bytes = self.early_bytes.saturating_sub(fragment.bytes.len());
            link.channel.on_drained(now);
            self.give(id, fragment.flags, &fragment.bytes, sink);
        }
        self.note_backlog(id);
        self.touch(id);
    }

    fn note_backlog(&mut self, id: LinkId) {
        let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        if link.channel.recv.has_next() && !std::mem::replace(&mut link.backlogged, true) {
            self.backlog.push(id);
        }
    }

    /// The next fragment of a link, in order.
    fn give<M: Memory, S: Sink<M>>(
        &mut self,
        id: LinkId,
        flags: u16,
        payload: &[u8],
        sink: &mut S,
    ) {
        let limits = self.limits;
        let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
            return;
        };
        if flags & FIN != 0 {
            // The last acknowledgement goes out before the link is forgotten.
            let header = link.channel.farewell();
            self.resets.push((link.address, header));
            return self.fail(id, LinkDown::Closed, sink);
        }
        if link.channel.is_closing() || !link.attached {
            return;
        }
        link.known = true;
        self.budget = self.budget.saturating_sub(1);
        let fed = link
            .reassembly
            .feed(flags, payload, (id, link.cookie), limits, sink);
        if fed.is_err() {
            let header = Header::new(Kind::Reset, link.channel.theirs(), link.channel.ours());
            self.resets.push((link.address, header));
            self.fail(id, LinkDown::Protocol, sink);
        }
    }

    /// Something changed: perhaps there is room again, perhaps a closing link is done.
    fn look_at<M: Memory, S: Sink<M>>(&mut self, id: LinkId, sink: &mut S) {
        let Some(link) = self.of_mut(id) else { return };
        if link.channel.is_over() {
            self.remove(id);
            return;
        }
        if link.channel.is_open()
            && link
                .blocked
                .is_some_and(|need| link.channel.send.free() >= need)
        {
            link.blocked = None;
            if link.attached {
                sink.on_writable(id, link.cookie);
            }
        }
    }

    /// A session is over; the layer above hears of it if it knew it.
    pub(super) fn fail<M: Memory, S: Sink<M>>(
        &mut self,
        id: LinkId,
        reason: LinkDown,
        sink: &mut S,
    ) {
        let Some(link) = self.remove(id) else { return };
        log::debug!("link {id:?} to {:?} is down: {reason}", link.address);
        if link.attached && link.known {
            sink.on_down(id, link.cookie, reason);
        }
    }

    /// Looks at every link whose time has come.
    pub(super) fn expire<M: Memory, S: Sink<M>>(&mut self, now: Instant, sink: &mut S) -> bool {
        let mut busy = false;
        while let Some(Reverse((at, word))) = self.agenda.peek().copied() {
            if at > now {
                break;
            }
            self.agenda.pop();
            let id = LinkId::from_word(word);
            let Some(link) = self.table.get_mut(id.index(), id.generation()) else {
                continue;
            };
            if link.planned != Some(at) {
                continue;
            }
            busy = true;
            link.planned = None;
            match link.channel.on_timer(now, &self.config, &mut self.stats) {
                Some(reason) => {
                    if link.channel.theirs() != 0 {
                        let header =
                            Header::new(Kind::Reset, link.channel.theirs(), link.channel.ours());
                        self.resets.push((link.address, header));
                    }
                    self.fail(id, reason, sink);
                }
                None => self.touch(id),
            }
        }
        busy
    }
}
