//! Receive path: datagrams are dispatched to sessions and reassembled into packets.
//!
//! ```text
//!   datagrams of a batch, cut --> Header::parse --> Hello -----------> Welcome, and nothing is kept
//!                                  |
//!                  to: a known session, and its peer's address
//!                                  |        `- unknown: OPENING and valid? a session; else Reset
//!                                  v
//!                        Session::on_header        acknowledgements, Pings, Probes
//!                                  v  Data
//!                        Session::on_segment --> Reassembly --> round
//! ```
//!
//! Fast receive (as in the usnic notes): if the first datagram of a round is a whole packet and the next in order, it
//! is delivered before any bookkeeping. The bookkeeping follows when the next round begins; that round has no fast
//! receive, so nothing starves.
//!
//! Every field is checked against the window or table it refers to; a mismatch is counted and dropped.

use super::links::{Deferred, Links, RECEIVE_WINDOW_MIN, Reply, shared};
use super::packet::{BadDatagram, DATAGRAM_HEADER, DatagramKind, FIN, Header, UnsupportedVersion};
use super::quote::Quote;
use super::reassembly::{Admission, Chunk, Reassembly};
use super::recv_window::Verdict;
use super::round::{Batch, Current};
use super::service::{Channel, Incoming};
use crate::ids::LinkId;
use crate::port::LinkDown;
use crate::time::Instant;
use std::fmt;
use std::hash::Hash;

impl<A: Copy + Eq + Hash + fmt::Debug> Links<A> {
    /// Does the deferred work of a fast receive, if there is any. Returns its link, which needs attention.
    #[inline]
    pub(super) fn finish_fast_receive(&mut self) -> Option<LinkId> {
        let Deferred {
            link: id,
            arrived_at: now,
            header,
        } = self.deferred.take()?;
        if let Some(link) = self.table.get_mut(id) {
            link.note_data(now, &header, &mut self.senders, &self.config);
            let (send_buffer, stats) = (&mut self.send_buffer, &mut self.stats);
            link.session
                .on_header(now, &header, &[], send_buffer, stats);
            self.touch(id);
        }
        Some(id)
    }

    /// Does the deferred work of a fast receive for this link only. Returns true if there was any.
    #[inline]
    pub(super) fn finish_fast_receive_of(&mut self, id: LinkId) -> bool {
        let deferred = self.deferred.as_ref();
        deferred.is_some_and(|deferred| deferred.link == id) && self.finish_fast_receive().is_some()
    }

    /// Handles an event of the service.
    pub(super) fn on_incoming(&mut self, now: Instant, incoming: Incoming<A>) {
        match incoming {
            Incoming::Datagrams {
                channel,
                from,
                segment,
            } => self.round.batch = Some(Batch::new((channel, from), segment)),
            Incoming::Refused { to, quote } => self.on_refused(now, (to, quote)),
            Incoming::TooLarge { to, most, quote } => self.on_too_large(now, (to, quote), most),
        }
    }

    /// Handles the datagram that lies at `at` in its batch.
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        (channel, from): (Channel, A),
        at: usize,
        bytes: &[u8],
    ) {
        self.stats.datagrams_in += 1;
        let (header, payload) = match Header::parse(bytes) {
            Ok(parsed) => parsed,
            Err(BadDatagram::Malformed) => {
                self.stats.malformed += 1;
                if let Some(foreign) = UnsupportedVersion::parse(bytes) {
                    self.on_unsupported_version(now, (channel, from), &foreign);
                }
                return;
            }
            Err(BadDatagram::Damaged) => return self.stats.damaged += 1,
        };
        if header.kind == DatagramKind::Hello {
            return self.on_hello(now, (channel, from), &header);
        }
        let known = self.by_cookie.get(&header.to).copied();
        let Some(id) = known.or_else(|| self.on_stranger(now, (channel, from), &header)) else {
            return;
        };
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        if header.kind == DatagramKind::Welcome {
            if link.address == from {
                self.on_welcome(now, id, &header, payload);
            }
            return;
        }
        if link.session.theirs != header.from
            || !link.is_home((channel, from), header.kind, self.same_host)
        {
            self.stats.old_session += 1;
            return;
        }
        if channel == Channel::Data {
            if link.data == Some(from) {
                link.data_credit = link.data_credit.saturating_add(bytes.len());
            } else {
                self.set_data(id, from, bytes.len());
            }
        }
        if header.kind == DatagramKind::Reset {
            return self.on_reset(now, id, &header);
        }
        if self.fast
            && header.kind == DatagramKind::Data
            && self.receive_fast(now, id, &header, payload, at)
        {
            return;
        }
        // Datagrams of a link are processed in order of arrival.
        if let Some(id) = self.finish_fast_receive() {
            self.look_at(now, id);
        }
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        let (send_buffer, stats) = (&mut self.send_buffer, &mut self.stats);
        if !link
            .session
            .on_header(now, &header, payload, send_buffer, stats)
        {
            return;
        }
        self.touch(id);
        if header.kind == DatagramKind::Ping {
            self.pinged.push(id);
        }
        if header.kind != DatagramKind::Data || !self.on_data(now, id, &header, payload, at) {
            self.look_at(now, id);
        }
    }

    /// Answers Pings, once the data channel has been read (`empty`).
    pub(super) fn answer_pings(&mut self, now: Instant, empty: bool) {
        for id in std::mem::take(&mut self.pinged) {
            let Some(link) = self.table.get_mut(id) else {
                continue;
            };
            let session = &mut link.session;
            if session.answers.answer_ping(now, empty, &mut session.timers) {
                self.touch(id);
            } else {
                self.pinged.push(id);
            }
        }
    }

    /// Delivers a whole packet that is the next in order, and defers the bookkeeping. Returns false if the datagram is
    /// no such packet.
    #[inline]
    fn receive_fast(
        &mut self,
        now: Instant,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        at: usize,
    ) -> bool {
        let Some(link) = self.table.get_mut(id) else {
            return false;
        };
        let whole = header.offset == 0 && header.whole as usize == payload.len();
        let plain = whole && header.flags & FIN == 0;
        if !plain
            || self.round.packets == 0
            || link.is_too_early(header, payload)
            || !link.session.is_open()
            || link.session.recv.verdict(header.seq) != Verdict::Next
            || link.session.recv.has_holes()
            || link.reassembly.kept_bytes() > 0
        {
            return false;
        }
        let chunk = chunk_of(header, payload);
        if link.reassembly.admits(&chunk, true, 0) != Admission::Yes {
            return false;
        }
        // An acknowledgement that is due may be piggybacked on the answer.
        link.session.on_segment(now, header, Verdict::Next);
        link.session.recv.mark(header.seq);
        link.known = true;
        if !self.take_chunk(now, id, &chunk, (at, true)) {
            return true;
        }
        self.deferred = Some(Deferred {
            link: id,
            arrived_at: now,
            header: *header,
        });
        self.stats.fast_receives += 1;
        true
    }

    fn on_too_large(&mut self, now: Instant, what: (A, Option<Quote>), most: usize) {
        if let Some(id) = self.whose(what)
            && let Some(link) = self.of_mut(id)
        {
            link.session.on_too_large(now, most);
            self.touch(id);
        }
    }

    /// Returns the link whose datagram to `to` was reported in an error. Only a process on the path can quote the
    /// datagram; without a quote the error may be forged and is ignored.
    pub(super) fn whose(&mut self, (to, quote): (A, Option<Quote>)) -> Option<LinkId> {
        let id = quote.and_then(|quote| self.by_cookie.get(&quote.session()).copied());
        let whose = id.filter(|id| {
            let link = self.of_mut(*id);
            link.is_some_and(|link| link.address == to || link.data == Some(to))
        });
        self.stats.old_session += u64::from(whose.is_none());
        whose
    }

    /// Handles a segment. Returns true if packets may follow, after which the link is checked.
    fn on_data(
        &mut self,
        now: Instant,
        id: LinkId,
        header: &Header,
        payload: &[u8],
        at: usize,
    ) -> bool {
        let Self {
            table,
            config,
            stats,
            senders,
            early_bytes,
            ..
        } = self;
        let Some(link) = table.get_mut(id) else {
            return false;
        };
        link.note_data(now, header, senders, config);
        let verdict = link.session.recv.verdict(header.seq);
        match verdict {
            Verdict::Duplicate => stats.duplicates += 1,
            Verdict::Outside => stats.outside_window += 1,
            Verdict::Next | Verdict::Early => {}
        }
        let is_new = matches!(verdict, Verdict::Next | Verdict::Early);
        // After a close nothing is delivered, but acknowledged, so that the peer can close, too.
        if !is_new || link.session.is_closing() {
            link.session.on_segment(now, header, verdict);
            link.session.recv.mark(header.seq);
            return false;
        }
        if verdict != Verdict::Next && link.trial.is_some() || link.is_too_early(header, payload) {
            // Dropped; the peer retransmits it.
            stats.outside_window += 1;
            return false;
        }
        let before = link.reassembly.kept_bytes();
        let left = config.early_bytes_all.saturating_sub(*early_bytes);
        let window = (config.early_bytes.saturating_sub(before))
            .min(left + RECEIVE_WINDOW_MIN.saturating_sub(before));
        let chunk = chunk_of(header, payload);
        let in_order = verdict == Verdict::Next;
        if config.supply.is_critical() && !(in_order && chunk.is_whole()) {
            // No memory to keep it: dropped, and retransmitted.
            stats.outside_window += 1;
            return false;
        }
        match link.reassembly.admits(&chunk, in_order, window) {
            Admission::Yes => {}
            Admission::Full => {
                stats.outside_window += 1;
                return false;
            }
            Admission::Bad => {
                self.on_bad(now, id);
                return false;
            }
        }
        link.session.on_segment(now, header, verdict);
        link.session.recv.mark(header.seq);
        link.known = true;
        self.take_chunk(now, id, &chunk, (at, false))
    }

    /// Gives a chunk of the datagram at `at` to the link's reassembly, and makes that the current one. Returns false if
    /// the link has ended.
    #[inline]
    fn take_chunk(
        &mut self,
        now: Instant,
        id: LinkId,
        chunk: &Chunk<'_>,
        (at, fast): (usize, bool),
    ) -> bool {
        let taken = self.reassemble(id, |reassembly, limits, budget| {
            reassembly.take(chunk, limits, budget)
        });
        let Some(Ok(is_next)) = taken else {
            self.on_bad(now, id);
            return false;
        };
        let at = at + DATAGRAM_HEADER;
        self.round.current = Some(Current {
            link: id,
            chunk: at..at + chunk.payload.len(),
            whole: chunk.payload.first_chunk().filter(|_| is_next).copied(),
            fast,
        });
        true
    }

    /// Drops the undelivered data of a closed link, and opens its receive window, for which its peer may have waited.
    pub(super) fn discard(&mut self, now: Instant, id: LinkId) {
        let limit = self.window_limit();
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        self.early_bytes -= shared(link.reassembly.kept_bytes());
        link.reassembly = Reassembly::new(0);
        let window = u32::try_from(limit).unwrap_or(u32::MAX);
        link.session.on_drained(now, window, limit);
        self.touch(id);
    }

    /// Ends a session whose peer has sent everything and closed.
    pub(super) fn on_fin(&mut self, now: Instant, id: LinkId) {
        if let Some(link) = self.of_mut(id) {
            // The last acknowledgement is sent before the link is removed.
            let (to, header) = (link.address, link.session.farewell());
            self.replies.push(Reply { to, header });
        }
        self.fail(now, id, LinkDown::Closed);
    }

    /// Ends a session because of a violation.
    #[cold]
    fn on_bad(&mut self, now: Instant, id: LinkId) {
        self.reset(id);
        self.fail(now, id, LinkDown::Protocol);
    }
}

fn chunk_of<'a>(header: &Header, payload: &'a [u8]) -> Chunk<'a> {
    Chunk {
        fragment: header.fragment,
        offset: header.offset,
        len: header.whole,
        fin: header.flags & FIN != 0,
        payload,
    }
}
