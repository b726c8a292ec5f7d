//! Transmit: sending of one session, in order of priority.
//!
//! ```text
//!   1. resends        data channel, at most a burst       receivers wait for them
//!   2. new segments   tiny ones: command channel          each carries the acknowledgement
//!                     others:    data channel, in GSO batches
//!   3. probes         data channel                        of the path MTU
//!   4. control        command channel                     Ping, Ack, if not piggybacked
//!
//!   a segment is sent if     in flight + its size <= congestion window
//!                            the peer's receive window has room for it
//!                            the pacer's bucket has its bytes (tiny ones do not wait)
//! ```
//!
//! Retransmissions never take the command channel, to leave it to acknowledgements.
//!
//! Out of scope: addresses, other sessions.

use super::packet::{ASK, DATAGRAM_HEADER, DatagramKind, Header, SACK_WORDS, greeting};
use super::recovery::stamp;
use super::reliable_config::ReliableConfig;
use super::send_buffer::SendBuffer;
use super::service::{Capacity, Channel, DatagramError, GsoBatch};
use super::session::Session;
use super::timers::Timer;
use crate::stats::ReliableStats;
use crate::time::Instant;

/// Service and buffers that a session sends with.
pub(super) struct SendContext<'a, E> {
    pub(super) now: Instant,
    /// Our receive window in bytes.
    pub(super) window: u32,
    /// Bytes that may be sent to the peer's data channel in probes.
    pub(super) probe_max: usize,
    pub(super) capacity: [Capacity; 2],
    pub(super) send_buffer: &'a mut SendBuffer,
    pub(super) config: &'a ReliableConfig,
    pub(super) stats: &'a mut ReliableStats,
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) emit: E,
}

/// Function that gives a GSO batch to the service.
pub(super) trait TransmitFn:
    FnMut(Channel, GsoBatch<'_>) -> Result<(), DatagramError>
{
}

impl<E> TransmitFn for E where E: FnMut(Channel, GsoBatch<'_>) -> Result<(), DatagramError> {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransmitOutcome {
    /// Nothing more can be sent now.
    Done,
    /// More could be sent at once, but it is other links' turn.
    More,
    /// The service has no room.
    WouldBlock,
}

/// Maximum number of GSO batches of one session in one pass.
const BATCHES: usize = 4;

impl Session {
    /// Sends what can be sent now, within one turn.
    pub(super) fn transmit<E: TransmitFn>(
        &mut self,
        out: &mut SendContext<'_, E>,
    ) -> TransmitOutcome {
        if self.is_connecting() {
            return self.transmit_hello(out);
        }
        let pass = self.transmit_segments(out);
        let tail = pass == TransmitOutcome::Done
            && !self.timers.is_set(Timer::Pacing)
            && self.recovery.is_to_ask(out.now);
        if tail && !self.transmit_ping(self.recovery.last_sent_on, true, out) {
            return TransmitOutcome::WouldBlock;
        }
        // A full data channel does not delay acknowledgements.
        match self.transmit_control(out) {
            TransmitOutcome::Done => pass,
            other => other,
        }
    }

    fn transmit_hello<E: TransmitFn>(&mut self, out: &mut SendContext<'_, E>) -> TransmitOutcome {
        if !self.timers.is_expired(Timer::Hello, out.now) {
            return TransmitOutcome::Done;
        }
        let mut header = Header::new(DatagramKind::Hello, 0, self.ours);
        header.seq = self.first;
        header.window = out.window;
        if !out.single(Channel::Command, header, &greeting(&[])) {
            return TransmitOutcome::WouldBlock;
        }
        self.on_hello_sent(out.now, out.config);
        TransmitOutcome::Done
    }

    fn transmit_segments<E: TransmitFn>(
        &mut self,
        out: &mut SendContext<'_, E>,
    ) -> TransmitOutcome {
        let mut resends = out.config.burst;
        for _ in 0..BATCHES {
            let send = &self.recovery.send;
            let next = send.next().and_then(|at| Some((at, send.slot(at)?)));
            let Some((index, slot)) = next else {
                return TransmitOutcome::Done;
            };
            let again = slot.again;
            let bytes = u64::from(slot.content.place.len);
            let channel = if self.pmtu.data_proven() {
                slot.channel
            } else {
                Channel::Command
            };
            let window = self.recovery.congestion.window();
            let flying = send.in_flight_bytes();
            if flying > 0 && flying + bytes > window {
                return TransmitOutcome::Done;
            }
            let free = window.saturating_sub(flying).max(bytes);
            if slot.channel == Channel::Data {
                let slow = self.recovery.congestion.is_slow_start();
                let rtt = &self.recovery.rtt;
                if let Some(at) = self.pacer.wait_until(out.now, bytes, window, slow, rtt) {
                    self.timers.set(Timer::Pacing, at);
                    return TransmitOutcome::Done;
                }
            }
            if again && resends == 0 {
                return TransmitOutcome::More;
            }
            let capacity = out.capacity[channel as usize];
            let most = if again { resends } else { usize::MAX };
            let bytes_max = free.min(capacity.batch_bytes as u64) as usize;
            let count = send.batch(index, most.min(capacity.batch_max), bytes_max);
            match self.transmit_batch(index, count, channel, out) {
                Ok(()) => {}
                Err(DatagramError::WouldBlock) => return TransmitOutcome::WouldBlock,
                // Segments are never cut again: the next attempt allows IP fragmentation. If that was allowed already,
                // or is not permitted, they count as lost.
                Err(DatagramError::TooLarge(most)) => {
                    let had_leave = self.pmtu.is_to_be_cut(bytes as usize);
                    self.on_too_large(out.now, most);
                    if had_leave || !self.pmtu.is_to_be_cut(bytes as usize) {
                        self.sent(index, count, channel, out.now);
                    }
                }
                // Counts as lost.
                Err(DatagramError::Unreachable) => self.sent(index, count, channel, out.now),
            }
            if again {
                out.stats.resent += count as u64;
                self.resent = self.resent.saturating_add(count as u32);
                resends = resends.saturating_sub(count);
            }
        }
        match self.recovery.send.next() {
            Some(_) if self.recovery.send.in_flight_bytes() < self.recovery.congestion.window() => {
                TransmitOutcome::More
            }
            _ => TransmitOutcome::Done,
        }
    }

    /// Sends `count` adjacent segments.
    fn transmit_batch<E: TransmitFn>(
        &mut self,
        index: usize,
        count: usize,
        channel: Channel,
        out: &mut SendContext<'_, E>,
    ) -> Result<(), DatagramError> {
        let mut header = self.acknowledging(DatagramKind::Data, out.window);
        let flags = header.flags;
        let mut flying = self.recovery.send.in_flight_bytes();
        let window = self
            .recovery
            .congestion
            .window()
            .min(flying + self.recovery.send.open_bytes());
        let (mut first, mut last) = (None, None);
        for at in index..index + count {
            let Some(slot) = self.recovery.send.slot(at) else {
                return Ok(());
            };
            let content = slot.content;
            let bytes = u64::from(content.place.len);
            flying += bytes;
            self.recovery.since_ask += bytes;
            header.seq = slot.seq;
            header.flags = flags | content.flags;
            header.fragment = content.fragment;
            header.offset = content.offset;
            header.whole = content.fragment_len;
            header.sum = content.crc;
            header.payload = content.payload as u16;
            // The sender cannot continue without an acknowledgement, or soon will not.
            if slot.again || flying + bytes > window || self.recovery.since_ask >= window / 4 {
                header.flags |= ASK;
                self.recovery.since_ask = 0;
            }
            header.write(out.send_buffer.bytes_of(content.place));
            first.get_or_insert(content.place);
            last = Some(content.place);
        }
        let (Some(first), Some(last)) = (first, last) else {
            return Ok(());
        };
        let segment = first.len as usize;
        let may_fragment = self.pmtu.is_to_be_cut(segment);
        let bytes = out.send_buffer.run_of(first, last);
        let len = bytes.len() as u64;
        let batch = GsoBatch {
            bytes,
            segment,
            may_fragment,
            express: channel == Channel::Command && count == 1 && self.is_settled(),
        };
        (out.emit)(channel, batch)?;
        out.stats.datagrams_out += count as u64;
        out.stats.gso_batches_out += 1;
        if channel == Channel::Data {
            self.pacer.on_sent(len);
        }
        self.on_acknowledged(out.window);
        self.sent(index, count, channel, out.now);
        Ok(())
    }

    fn sent(&mut self, index: usize, count: usize, channel: Channel, now: Instant) {
        let send = &self.recovery.send;
        // A retransmission does not begin a new flight, even if everything was lost.
        if send.in_flight_bytes() == 0 && send.slot(index).is_some_and(|slot| !slot.again) {
            self.keep_alive.progress_at = now;
        }
        let (sent, pings) = (index..index + count, self.keep_alive.pings);
        self.recovery
            .on_sent(now, sent, channel, pings, &mut self.timers);
    }

    fn transmit_control<E: TransmitFn>(&mut self, out: &mut SendContext<'_, E>) -> TransmitOutcome {
        if let Some(size) = self.pmtu.next_probe(out.now)
            && size <= out.probe_max
        {
            let mut header = self.acknowledging(DatagramKind::Probe, out.window);
            header.set_proof(self.proof);
            out.probe_max -= size;
            let timeout = self.recovery.rtt.rto();
            match out.probe(header, size) {
                Err(DatagramError::TooLarge(most)) => self.on_too_large(out.now, most),
                // Sent or not, the probe is repeated after the same time-out.
                _ => self.pmtu.on_probe_sent(out.now, size, timeout),
            }
            // The Ping's answer shows that the peer is alive even if the probe is lost.
            self.keep_alive.wanted = true;
        }
        if let Some((size, proof)) = self.answers.probed {
            let mut header = self.acknowledging(DatagramKind::Probed, out.window);
            header.seq.0 = size;
            header.set_proof(proof);
            if !out.said(true, Channel::Command, header, &[]) {
                return TransmitOutcome::WouldBlock;
            }
            self.answers.probed = None;
        }
        let overdue = self.recovery.send.in_flight_bytes() > 0;
        if self.keep_alive.wanted && !self.transmit_ping(Channel::Command, overdue, out) {
            return TransmitOutcome::WouldBlock;
        }
        // The answer to a Ping is never piggybacked.
        if self.answers.stamp.is_some() || self.timers.is_expired(Timer::Ack, out.now) {
            let header = self.acknowledging(DatagramKind::Ack, out.window);
            let (bytes, len) = self.further_words();
            let twice = self.answers.stamp.is_some() || self.recv.has_holes();
            if !out.said(twice, Channel::Command, header, &bytes[..len]) {
                return TransmitOutcome::WouldBlock;
            }
            out.stats.pure_acks += 1;
            self.answers.stamp = None;
            self.on_acknowledged(out.window);
        }
        TransmitOutcome::Done
    }

    /// Sends a Ping on `channel`. Returns false if there is no room.
    fn transmit_ping<E: TransmitFn>(
        &mut self,
        channel: Channel,
        twice: bool,
        out: &mut SendContext<'_, E>,
    ) -> bool {
        let mut header = self.acknowledging(DatagramKind::Ping, out.window);
        header.seq.0 = stamp(out.now);
        if !out.said(twice, channel, header, &[]) {
            return false;
        }
        self.on_acknowledged(out.window);
        self.keep_alive.on_pinged(out.now);
        self.recovery.on_pinged(out.now, channel);
        true
    }

    /// Returns the words of `sack` beyond the one in the header, as bytes, and their length.
    fn further_words(&self) -> ([u8; 8 * (SACK_WORDS - 1)], usize) {
        let mut bytes = [0; 8 * (SACK_WORDS - 1)];
        let mut words = [0; SACK_WORDS];
        let used = if self.unconfirmed || !self.recv.has_holes() {
            0
        } else {
            self.recv.sack_words(&mut words).saturating_sub(1)
        };
        for (place, word) in bytes.chunks_exact_mut(8).zip(&words[1..=used]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        (bytes, 8 * used)
    }
}

impl<E: TransmitFn> SendContext<'_, E> {
    /// Sends one datagram that is not kept. Returns false if there is no room.
    fn single(&mut self, channel: Channel, header: Header, payload: &[u8]) -> bool {
        header.emit(payload, self.scratch);
        let sent = (self.emit)(channel, GsoBatch::single(self.scratch));
        self.stats.datagrams_out += u64::from(sent.is_ok());
        self.stats.gso_batches_out += u64::from(sent.is_ok());
        sent != Err(DatagramError::WouldBlock)
    }

    /// Sends a datagram that is not kept, twice if its arrival matters. Returns false if there is no room.
    fn said(&mut self, twice: bool, channel: Channel, header: Header, payload: &[u8]) -> bool {
        let sent = self.single(channel, header, payload);
        if sent && twice {
            self.single(channel, header, payload);
        }
        sent
    }

    fn probe(&mut self, mut header: Header, size: usize) -> Result<(), DatagramError> {
        // Zeros need no checksum, because only their number matters.
        let payload = size.saturating_sub(DATAGRAM_HEADER);
        header.payload = payload as u16;
        self.scratch.clear();
        self.scratch.resize(DATAGRAM_HEADER + payload, 0);
        header.write(self.scratch);
        (self.emit)(Channel::Data, GsoBatch::single(self.scratch))?;
        self.stats.datagrams_out += 1;
        self.stats.gso_batches_out += 1;
        Ok(())
    }
}
