//! A [`Port`] over a [`DatagramPort`].
//!
//! ```text
//!   send: packet -> fragments of at most one datagram each -> send window -> datagrams
//!   poll: datagrams -> receive window -> fragments in order -> packets -> Sink
//! ```
//!
//! Bodies are copied into fragments, so memory is the caller's again when `send` returns: a packet
//! is taken whole or not at all. Nothing is sent from inside a poll's callbacks; what they cause
//! goes out when the poll ends.

use super::config::ReliableConfig;
use super::links::Links;
use super::packet::{DATAGRAM_HEADER, FIRST, Header, Kind, LAST};
use super::send_window::SendWindow;
use super::service::{DatagramError, DatagramPort};
use super::stats::ReliableStats;
use crate::ids::{LinkId, Target};
use crate::memory::Memory;
use crate::port::{
    Body, Close, ConnectError, HEADER_LEN, HeaderBytes, Limits, Port, SendError, Sent, Sink,
    WakeDescriptors,
};
use crate::time::{Clock, Instant};
use std::time::Duration;

/// Reliable, ordered links over the datagrams of `D`.
#[derive(Debug)]
pub struct Reliable<D: DatagramPort> {
    datagrams: D,
    links: Links<D::Address>,
    /// Bytes of a packet in one fragment.
    payload_max: usize,
    /// The service had no room; when to try again.
    retry_at: Option<Instant>,
    scratch: Vec<u8>,
}

/// Fragments given out for one link before it is the next one's turn, as usnic does.
const BURST: usize = 16;

/// How soon to try again when the service has no room and cannot say when it will.
const RETRY: Duration = Duration::from_micros(100);

impl<D: DatagramPort> Reliable<D> {
    /// A port over `datagrams`. `seed` must differ between lives of one address: session cookies
    /// follow from it. Limits that no window can hold are lowered to what it can.
    pub fn new(datagrams: D, mut config: ReliableConfig, seed: u64) -> Self {
        let payload_max = datagrams
            .mtu()
            .saturating_sub(DATAGRAM_HEADER)
            .max(HEADER_LEN + 1);
        config.window = config.window.clamp(8, 1 << 15);
        // A packet that needs the whole window would wait for it to be empty every time.
        let most = payload_max * usize::from(config.window) / 2 - HEADER_LEN;
        config.packet_max = config.packet_max.min(most);
        config.data_max = config.data_max.min(most);
        let links = Links::new(config, seed);
        Self {
            datagrams,
            links,
            payload_max,
            retry_at: None,
            scratch: Vec::new(),
        }
    }

    /// What has been counted.
    pub fn stats(&self) -> &ReliableStats {
        &self.links.stats
    }

    /// Sessions there are: open, half open and closing ones.
    pub fn sessions(&self) -> usize {
        self.links.len()
    }

    /// The service underneath.
    pub fn datagrams(&self) -> &D {
        &self.datagrams
    }

    /// Sends what can be sent on all links that may have something. True when there was anything.
    fn flush(&mut self) -> bool {
        let before = self.links.stats.datagrams_out;
        let now = self.datagrams.now();
        self.retry_at = None;
        for (address, header) in std::mem::take(&mut self.links.resets) {
            header.emit(&[], &mut self.scratch);
            // Lost or not: whoever needs it asks again.
            if self.datagrams.send(address, &self.scratch).is_ok() {
                self.links.stats.datagrams_out += 1;
            }
        }
        for _ in 0..self.links.dirty.len() {
            let Some(id) = self.links.take_dirty() else {
                break;
            };
            self.pump(id, now);
            if self.retry_at.is_some() {
                break;
            }
        }
        self.links.stats.datagrams_out != before
    }

    /// Sends what can be sent on one link.
    fn pump(&mut self, id: LinkId, now: Instant) {
        let Self {
            datagrams,
            links,
            scratch,
            ..
        } = self;
        let (config, mut stats) = (links.config, links.stats);
        let Some(link) = links.of_mut(id) else { return };
        let address = link.address;
        let (mut no_room, mut sent) = (false, 0);
        let done = link
            .channel
            .transmit(now, BURST, &config, &mut stats, |header, payload| {
                header.emit(payload, scratch);
                no_room = datagrams.send(address, scratch) == Err(DatagramError::WouldBlock);
                sent += u64::from(!no_room);
                !no_room
            });
        stats.datagrams_out += sent;
        links.stats = stats;
        if no_room {
            self.retry_at = Some(now.after(RETRY));
        }
        if !done {
            links.touch(id);
        }
        links.plan(id);
    }

    fn fragments(&self, body_len: usize) -> usize {
        (HEADER_LEN + body_len).div_ceil(self.payload_max)
    }
}

/// Cuts a packet into fragments.
struct Cutter<'a> {
    window: &'a mut SendWindow,
    fragment: Vec<u8>,
    flags: u16,
    size: usize,
    left: usize,
}

impl<'a> Cutter<'a> {
    /// A packet of `len` bytes, header included.
    fn new(window: &'a mut SendWindow, size: usize, len: usize) -> Self {
        let fragment = window.buffer();
        Self {
            window,
            fragment,
            flags: FIRST,
            size,
            left: len,
        }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.left > 0 {
            let take = bytes
                .len()
                .min(self.size - self.fragment.len())
                .min(self.left);
            let (now, later) = bytes.split_at(take);
            self.fragment.extend_from_slice(now);
            self.left -= take;
            bytes = later;
            if self.left == 0 {
                self.flags |= LAST;
            }
            if self.left == 0 || self.fragment.len() == self.size {
                let next = if self.left == 0 {
                    Vec::new()
                } else {
                    self.window.buffer()
                };
                let full = std::mem::replace(&mut self.fragment, next);
                self.window.push(full, self.flags);
                self.flags = 0;
            }
        }
    }

    /// Memory that was shorter than promised leaves a packet that must still end.
    fn fill_up(&mut self) {
        while self.left > 0 {
            self.push(&[0; 64]);
        }
    }
}

impl<M: Memory, D: DatagramPort> Port<M> for Reliable<D> {
    fn limits(&self, _link: LinkId) -> Limits {
        let config = &self.links.config;
        Limits {
            packet_max: config.packet_max,
            data_max: config.data_max,
            pull_block: config.pull_block,
            remote_read: false,
        }
    }

    fn connect(&mut self, target: Target, _clock: &dyn Clock) -> Result<LinkId, ConnectError> {
        let address = self.datagrams.resolve(target)?;
        let now = self.datagrams.now();
        let id = self
            .links
            .add(now, address, None)
            .ok_or(ConnectError::NoResources)?;
        self.flush();
        Ok(id)
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        if let Some(link) = self.links.attached(link) {
            link.cookie = cookie;
        }
    }

    fn send(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let need = self.fragments(body.len());
        let size = self.payload_max;
        let link = self.links.attached(id).ok_or(SendError::Down)?;
        if !link.channel.is_open() || link.channel.send.free() < need {
            link.blocked = Some(need);
            return Err(SendError::WouldBlock);
        }
        let len = HEADER_LEN + body.len();
        let mut cutter = Cutter::new(&mut link.channel.send, size, len);
        cutter.push(header);
        match body {
            Body::Bytes(bytes) => cutter.push(bytes),
            Body::Memory {
                memory,
                offset,
                len,
            } => {
                memory.visit(offset, len, |piece| cutter.push(piece));
            }
        }
        cutter.fill_up();
        let now = self.datagrams.now();
        self.pump(id, now);
        Ok(Sent::Whole)
    }

    fn resume(
        &mut self,
        _link: LinkId,
        _memory: &M,
        _offset: usize,
        _len: usize,
    ) -> Result<Sent, SendError> {
        // Nothing is ever taken in part.
        Err(SendError::Down)
    }

    fn detach(&mut self, _link: LinkId, _memory: &M, _offset: usize, _len: usize) {}

    fn poll<S: Sink<M>>(&mut self, _clock: &dyn Clock, budget: usize, sink: &mut S) -> bool {
        let now = self.datagrams.now();
        let Self {
            datagrams, links, ..
        } = self;
        let mut busy = links.begin(now, budget, sink);
        busy |= datagrams.poll(budget, |incoming| links.on_incoming(now, incoming, sink));
        busy |= links.expire(now, sink);
        busy | self.flush()
    }

    fn close(&mut self, id: LinkId, how: Close) {
        let now = self.datagrams.now();
        let linger = self.links.config.linger;
        let Some(link) = self.links.attached(id) else {
            return;
        };
        link.attached = false;
        if how == Close::Flush && link.channel.is_open() {
            link.channel.close(now.after(linger));
            self.links.touch(id);
        } else if let Some(link) = self.links.remove(id)
            && link.channel.theirs() != 0
        {
            let header = Header::new(Kind::Reset, link.channel.theirs(), link.channel.ours());
            self.links.resets.push((link.address, header));
        }
        self.flush();
    }

    fn deadline(&self) -> Option<Instant> {
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        if !self.links.dirty.is_empty() || !self.links.resets.is_empty() {
            return Some(Instant(0));
        }
        self.links.deadline()
    }

    fn arm(&mut self) -> bool {
        !self.links.has_backlog() && self.datagrams.arm()
    }

    fn disarm(&mut self) {
        self.datagrams.disarm();
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.datagrams.descriptors()
    }
}
