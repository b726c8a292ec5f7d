//! Reliable: a [`Port`] over a [`DatagramPort`].
//!
//! ```text
//!   send: packet = fragment -> segments, adjacent in a block -> GSO batches -> service
//!   next: GSO batches -> sessions -> fragments, placed or in order -> packets
//!
//!   a pass      answers to strangers, then one turn for every link that may have something to send
//! ```
//!
//! Bodies are copied into segments, so the memory of accepted bytes is free when `send` returns. A packet on an idle
//! link is sent before `send` returns; acknowledgements of received data are sent at the end of the round.

use super::links::{Links, RECEIVE_WINDOW_MIN, Reply};
use super::packet::{DATAGRAM_HEADER, DatagramKind, FIN, GREETING, greeting, name_of};
use super::reliable_config::ReliableConfig;
use super::round::Stage;
use super::send_window::Content;
use super::service::{
    Capacity, Channel, DATA_NAME_MAX, DatagramError, DatagramPort, GsoBatch, Received,
};
use super::transmit::{SendContext, TransmitOutcome};
use crate::event::Identity;
use crate::ids::{LinkId, Target};
use crate::memory::{Memory, Source as Bytes};
use crate::origin::{LinkOrigin, Source};
use crate::port::{
    Body, Close, ConnectError, HEADER_LEN, HeaderBytes, Limits, LinkControl, LinkFigures, Place,
    Port, SendError, Sent, WakeDescriptors, has_places_beside,
};
use crate::round::{Next, Rounds};
use crate::secret::Binding;
use crate::stats::ReliableStats;
use crate::time::Instant;
use std::time::Duration;

/// Port that carries reliable, ordered links over the unreliable datagram service `D`.
#[derive(Debug)]
pub struct Reliable<D: DatagramPort> {
    datagrams: D,
    pub(super) links: Links<D::Address>,
    /// Capacity of each channel.
    capacity: [Capacity; 2],
    limits: Limits,
    /// Time of the next try after the service had no room; `None`: it had room.
    retry_at: Option<Instant>,
    /// Time at which peers need a keep-alive although no packets are polled.
    alive_until: Instant,
    /// Whether small packets may be held ([`LinkControl::hold`]).
    may_hold: bool,
    scratch: Vec<u8>,
}

/// Smallest window in segments: half of it takes a packet of 4 KiB, which every port can carry, however small the
/// segments.
const WINDOW_MIN: u16 = 32;

/// Largest body in bytes of a packet that may be held: a longer one fills a datagram, or more.
const HELD_MAX: usize = 1024;

/// Pause if the service has no room and cannot say when it will.
const RETRY: Duration = Duration::from_micros(100);

impl<D: DatagramPort> Reliable<D> {
    /// Makes a port over `datagrams`. `key` is secret and differs between lives of one address, because session cookies
    /// are derived from it. No packet is sent that is larger than the window can hold; received packets may be larger,
    /// because the peer has its own window.
    pub fn new(datagrams: D, mut config: ReliableConfig, key: [u8; 16]) -> Self {
        let capacity = [Channel::Command, Channel::Data].map(|channel| datagrams.capacity(channel));
        config.window = config.window.clamp(WINDOW_MIN, 1 << 15);
        // A packet that needs the whole window would always wait until it is empty, and it must fit while only the
        // smallest datagrams are known to pass.
        let most = SMALLEST * usize::from(config.window) / 2 - HEADER_LEN;
        let limits = Limits {
            packet_max: config.packet_max.min(most),
            streamed_max: config.streamed_max,
            data_max: config.data_max.min(most),
            pull_block: config.pull_block,
            remote_read: false,
            refusal_ends_link: false,
            data_links: config.data_links,
        };
        let datagram_max = capacity[Channel::Data as usize]
            .datagram_max
            .min(config.datagram_max);
        let buffer = datagrams.receive_buffer();
        let mut links = Links::new(config, key, datagram_max, buffer, D::same_host, D::source);
        links.part_max = HEADER_LEN + limits.data_max.max(limits.packet_max);
        Self {
            datagrams,
            links,
            capacity,
            limits,
            retry_at: None,
            alive_until: Instant(0),
            may_hold: false,
            scratch: Vec::new(),
        }
    }

    /// Returns the counters since the port was made.
    pub fn stats(&self) -> &ReliableStats {
        &self.links.stats
    }

    /// Returns the measurements of a link's network path (round-trip time, retransmissions, bytes), for tools; `None`
    /// if the id is stale.
    pub fn figures(&self, link: LinkId) -> Option<LinkFigures> {
        self.links.table.figures(link)
    }

    /// Returns the number of sessions with peers, including those that are being set up or closed.
    pub fn sessions(&self) -> usize {
        self.links.len()
    }

    /// Returns the address of the peer at the other end of a link; `None` if the id is stale. A peer that called has
    /// proven the address by receiving there.
    pub fn address(&self, link: LinkId) -> Option<D::Address> {
        let place = self.links.table.monitored(link);
        place.map(|(address, _)| address)
    }

    /// Returns the number of suspended links: idle ones, of which only a small record is kept until something happens.
    pub fn suspended(&self) -> usize {
        self.links.table.suspended()
    }

    /// Returns the number of received bytes that wait for earlier data or a destination, beyond the first 8 KiB of each
    /// peer; [`ReliableConfig::early_bytes_all`] limits it.
    pub fn early_bytes(&self) -> usize {
        self.links.early_bytes
    }

    /// Marks the links that a change of this machine's addresses has cut off; they go down in the next round.
    pub fn leave_old_addresses(&mut self) {
        let all = self.links.table.addresses();
        let lost = all.filter(|(_, address)| self.datagrams.is_cut_off(*address));
        self.links.lost = lost.map(|(id, _)| id).collect();
    }

    /// Starts a link to an address of the service, for callers that know it already.
    /// [`PortEvent::Up`](crate::round::PortEvent::Up) or [`PortEvent::Down`](crate::round::PortEvent::Down) follows in
    /// a later round.
    pub fn call_at(&mut self, address: D::Address, now: Instant) -> Result<LinkId, ConnectError> {
        let id = self.links.call(now, address);
        let id = id.ok_or(ConnectError::NoResources)?;
        self.flush(now);
        Ok(id)
    }

    /// Returns the datagram service underneath.
    pub fn datagrams(&self) -> &D {
        &self.datagrams
    }

    /// Returns the datagram service underneath, to change settings of its own.
    pub fn datagrams_mut(&mut self) -> &mut D {
        &mut self.datagrams
    }

    /// Sends what can be sent on all links that may have something to send. Returns true if a datagram was sent.
    fn flush(&mut self, now: Instant) -> bool {
        let before = self.links.stats.datagrams_out;
        self.retry_at = None;
        if !self.links.replies.is_empty() {
            self.answer();
        }
        if !self.links.named.is_empty() {
            self.find_data_channels();
        }
        for _ in 0..self.links.dirty_len() {
            let Some(id) = self.links.take_dirty() else {
                break;
            };
            self.pump(id, now);
        }
        self.links.stats.datagrams_out != before
    }

    /// Sends the answers due to strangers.
    #[cold]
    fn answer(&mut self) {
        let name = greeting(self.datagrams.data_name());
        for Reply { to, header } in std::mem::take(&mut self.links.replies) {
            let payload: &[u8] = match header.kind {
                DatagramKind::Welcome => &name,
                _ => &[],
            };
            header.emit(payload, &mut self.scratch);
            let batch = GsoBatch::single(&self.scratch);
            // An error counts as loss: the peer asks again.
            if self.datagrams.send(Channel::Command, to, batch).is_ok() {
                self.links.stats.datagrams_out += 1;
                self.links.stats.gso_batches_out += 1;
            }
        }
    }

    /// Sets the addresses of the data channels of peers that have welcomed us.
    #[cold]
    fn find_data_channels(&mut self) {
        for (id, name) in std::mem::take(&mut self.links.named) {
            let Some(link) = self.links.of_mut(id) else {
                continue;
            };
            let name = name_of(&name).filter(|name| !name.is_empty());
            let data = name.and_then(|name| self.datagrams.data_address(link.address, name));
            if data.is_none() {
                log::warn!("{:?} sent no address of a data channel", link.address);
            }
            // The data channel is at the address that we called, so the peer cannot name another machine.
            if let Some(data) = data {
                self.links.set_data(id, data, usize::MAX);
            }
            self.links.touch(id);
        }
    }

    /// Queues a packet, or the rest or a part of one, and sends what can be sent.
    #[inline]
    fn push<M: Memory>(
        &mut self,
        id: LinkId,
        head: &[u8],
        body: &Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let now = self.datagrams.now();
        let link = self.links.attached(id).ok_or(SendError::Down)?;
        let (datagrams, address) = (&self.datagrams, link.address);
        link.sum.get_or_insert_with(|| !datagrams.is_safe(address));
        let sent = self.links.push(id, head, body)?;
        if self.may_hold && body.len() <= HELD_MAX {
            self.links.touch(id);
            return Ok(sent);
        }
        self.pump(id, now);
        Ok(sent)
    }

    /// Sends what can be sent on one link.
    #[inline]
    fn pump(&mut self, id: LinkId, now: Instant) {
        let Self {
            datagrams,
            links,
            capacity,
            scratch,
            retry_at,
            ..
        } = self;
        let window = links.window_limit();
        let Links {
            table,
            send_buffer,
            stats,
            config,
            ..
        } = links;
        let Some(link) = table.get_mut(id) else {
            return;
        };
        if link.session.fin && link.midway.is_none() && link.session.recovery.send.free() > 0 {
            link.session.push_fin(send_buffer);
        }
        let (address, data_address) = (link.address, link.data);
        let left = window.saturating_sub(link.reassembly.kept_bytes());
        let window = if link.reassembly.has_ready() {
            left
        } else {
            // Incomplete packets need the next segment: without a window they would never complete.
            left.max(RECEIVE_WINDOW_MIN)
        };
        let mut outlet = SendContext {
            now,
            window: u32::try_from(window).unwrap_or(u32::MAX),
            probe_max: data_address.map_or(0, |_| {
                if link.session.pmtu.data_proven() {
                    usize::MAX
                } else {
                    link.data_credit
                }
            }),
            capacity: *capacity,
            send_buffer,
            config,
            stats,
            scratch,
            emit: |channel, batch: GsoBatch<'_>| {
                let to = match channel {
                    Channel::Command => address,
                    Channel::Data => data_address.ok_or(DatagramError::Unreachable)?,
                };
                datagrams.send(channel, to, batch)
            },
        };
        let pass = link.session.transmit(&mut outlet);
        link.data_credit = outlet.probe_max;
        match pass {
            TransmitOutcome::Done => {}
            TransmitOutcome::More => links.touch(id),
            TransmitOutcome::WouldBlock => {
                *retry_at = Some(now.after(RETRY));
                links.touch(id);
            }
        }
        links.plan(now, id);
        links.suspend(now, id);
    }
}

/// Bytes of a fragment in a segment while only the smallest datagrams are known to pass.
const SMALLEST: usize = 548 - DATAGRAM_HEADER;

impl super::session::Session {
    /// Queues the last segment of a session, if there is memory for it.
    fn push_fin(&mut self, send_buffer: &mut super::send_buffer::SendBuffer) {
        let Some(mut writer) = send_buffer.writer(0, 1) else {
            return;
        };
        let fragment = self.next_fragment;
        writer.fill_up(send_buffer, &mut |_, segment| {
            self.recovery.send.push(Content {
                place: segment.place,
                fragment,
                offset: 0,
                fragment_len: 0,
                payload: 0,
                flags: FIN,
                crc: 0,
                tiny: true,
            });
        });
        self.next_fragment = fragment.wrapping_add(1);
        self.fin = false;
    }
}

impl<D: DatagramPort> LinkControl for Reliable<D> {
    fn link_count(&self) -> usize {
        self.sessions()
    }

    fn limits(&self, _link: LinkId) -> Limits {
        self.limits
    }

    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError> {
        let address = self.datagrams.resolve(target)?;
        self.call_at(address, now)
    }

    fn connect_beside(&mut self, link: LinkId, now: Instant) -> Result<LinkId, ConnectError> {
        if !self.has_places_beside(link) {
            return Err(ConnectError::NoResources);
        }
        let address = self.address(link).ok_or(ConnectError::NoRoute)?;
        self.call_at(address, now)
    }

    /// Reserves the last slots for command links.
    fn has_places_beside(&self, _link: LinkId) -> bool {
        has_places_beside(self.links.len(), self.links.config.max_links)
    }

    fn accept(&mut self, link: LinkId) {
        self.links.accept(link);
    }

    fn link_origin(&self, link: LinkId, claimed: &Identity) -> LinkOrigin {
        LinkOrigin {
            source: self.address(link).map_or(Source::TRUSTED, D::source),
            ..LinkOrigin::trusted(claimed)
        }
    }

    fn binding(&self, link: LinkId) -> Binding {
        self.links.table.cookies(link).unwrap_or([0; 2])
    }

    fn close(&mut self, id: LinkId, how: Close) {
        let now = self.datagrams.now();
        self.links.finish_fast_receive_of(id);
        self.links.forget(id);
        let linger = self.links.config.linger;
        let Some(link) = self.links.attached(id) else {
            return;
        };
        if how == Close::Flush && link.session.is_open() && !link.is_torn() {
            link.session.close(now.after(linger));
            self.links.discard(now, id);
        } else {
            self.links.reset(id);
            self.links.remove(now, id);
        }
        self.flush(now);
    }

    fn probe_peer(&mut self, link: LinkId, now: Instant) -> bool {
        if let Some(link) = self.links.attached(link) {
            link.session.keep_alive.probe_peer(now);
        }
        self.links.touch(link);
        self.flush(now);
        true
    }

    fn hold(&mut self, may: bool) {
        self.may_hold = may;
    }

    fn holds(&self) -> bool {
        self.links.dirty_len() > 0
    }

    fn send_held(&mut self) {
        let now = self.datagrams.now();
        // One pass sends only a few batches of each link.
        while self.flush(now) && self.links.dirty_len() > 0 {}
    }

    fn deadline(&self) -> Option<Instant> {
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        if self.links.dirty_len() > 0 || !self.links.replies.is_empty() {
            return Some(Instant(0));
        }
        self.links.deadline()
    }

    fn monitor(&mut self, link: LinkId, wanted: bool) {
        let Some((address, monitored)) = self.links.table.monitored(link) else {
            return;
        };
        let wanted = wanted && self.datagrams.refuses_at_once(address);
        if wanted != monitored {
            self.links.monitor(self.datagrams.now(), link, wanted);
        }
    }

    fn heard_at(&self, link: LinkId) -> Option<Instant> {
        self.links.table.heard_at(link)
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        (self.links.len() > 0).then_some(self.alive_until)
    }

    fn keep_alive(&mut self, now: Instant) {
        self.alive_until = now.after(self.links.config.give_up / 4);
        let all: Vec<_> = self.links.table.addresses().map(|(id, _)| id).collect();
        for id in all {
            if let Some(link) = self.links.of_mut(id)
                && link.session.is_open()
            {
                let (to, header) = (link.address, link.session.sign_of_life(now));
                self.links.replies.push(Reply { to, header });
                self.links.suspend(now, id);
            }
        }
        self.answer();
    }

    fn arm(&mut self) -> bool {
        !self.links.has_backlog()
            && self.links.pinged.is_empty()
            && self.links.lost.is_empty()
            && self.datagrams.arm()
    }

    fn disarm(&mut self) {
        self.datagrams.disarm();
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.datagrams.descriptors()
    }
}

impl<M: Memory, D: DatagramPort> Port<M> for Reliable<D> {
    fn send(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        self.push(id, header, &body)
    }

    fn resume(
        &mut self,
        id: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let rest = Body::Memory {
            memory,
            offset,
            len,
        };
        self.push(id, &[], &rest)
    }

    fn detach(&mut self, id: LinkId, memory: &M, offset: usize, len: usize) {
        let now = self.datagrams.now();
        self.links.keep_rest(id, memory, offset, len);
        self.pump(id, now);
    }
}

impl<M: Memory, D: DatagramPort> Rounds<M> for Reliable<D> {
    type Lent<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn begin(&mut self, now: Instant, budget: usize) {
        self.alive_until = now.after(self.links.config.give_up / 4);
        self.links.begin(now, budget);
    }

    #[inline]
    fn next(&mut self) -> Next {
        let Self {
            datagrams, links, ..
        } = self;
        links.take_back();
        loop {
            if let Some(event) = links.next_event() {
                return Next::Event(event);
            }
            if links.next_datagram(datagrams.bytes()) {
                continue;
            }
            let now = links.round.now;
            match links.round.stage {
                Stage::Backlog => {
                    if !links.next_of_backlog() {
                        links.end_lost(now);
                        datagrams.begin(links.round.datagrams);
                        links.round.stage = Stage::Datagrams;
                    }
                }
                Stage::Datagrams => match datagrams.next() {
                    Received::Incoming(incoming) => links.on_incoming(now, incoming),
                    Received::End { any, .. } => {
                        links.round.any |= any;
                        links.round.stage = if links.pinged.is_empty() {
                            Stage::Timers
                        } else {
                            datagrams.begin_data(links.round.datagrams);
                            Stage::Data
                        };
                    }
                },
                // All data is read first, because segments that the answer does not name count as lost.
                Stage::Data => match datagrams.next() {
                    Received::Incoming(incoming) => links.on_incoming(now, incoming),
                    Received::End { drained, .. } => {
                        links.answer_pings(now, drained);
                        links.round.stage = Stage::Timers;
                    }
                },
                Stage::Timers => {
                    links.round.any |= links.expire(now);
                    links.feed_starved(now);
                    links.round.stage = Stage::Over;
                }
                Stage::Over => {
                    let any = links.round.any | self.flush(now);
                    return Next::End { any };
                }
            }
        }
    }

    fn body(&self) -> &[u8] {
        self.links.round.body(self.datagrams.bytes())
    }

    fn read(&mut self, place: Place<'_, M>) {
        self.links.answer(Some(place), self.datagrams.bytes());
    }

    fn skip(&mut self) {
        self.links.answer::<M>(None, self.datagrams.bytes());
    }
}

// A Hello and a Welcome fit into the smallest datagrams.
const _: () = assert!(DATAGRAM_HEADER + GREETING <= 548 && DATA_NAME_MAX < 256);
