//! The steps of a poll: completions, then the clock, then work that waits for room.
//!
//! ```text
//!   backlog, completion queue --> receive: frame --> link --> Sink, remote, or an answer
//!                             --> send:    slot free
//!                             --> remote:  its own
//!   clock  --> ping, silence, links that were not completed
//!   room   --> buffers to post, small frames, then "writable" in the order of waiting
//!   remote --> reads done --> Sink
//! ```
//!
//! Everything that arrives is checked: a frame has to have a link and that link's cookie, a
//! completion a known operation, and a position in a buffer has to be inside it.

use super::fabric::NotSent;
use super::frame::{AT_ONCE, Frame, FrameKind};
use super::incoming;
use super::links::{Alarm, Heard, Link, State};
use super::ops::Op;
use super::reading::Reading;
use super::remote::Report;
use super::sequence::FrameTurn;
use super::{KEPT_FOR, RdmPort};
use libc::c_void;
use libfabric_sys::abi::FI_MULTI_RECV;
use mx_port_fabric::{CqEvent, Done};
use mx_proto::port::{LinkDown, RemoteUse, Sink};
use mx_proto::{Instant, LinkId, Memory};

/// Events taken from the queue at a time.
const BATCH: usize = 32;

/// Frames that may wait on one link before it gets no more signs of life.
const CONTROL_MAX: usize = 64;

/// Links told in one poll that there may be room again.
const UNBLOCKED: usize = 32;

impl RdmPort {
    /// One poll. Returns true when anything happened.
    pub(super) fn turn<M: Memory, S: Sink<M>>(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut S,
    ) -> bool {
        self.now = now;
        let away = now.since(self.polled);
        if away > self.links.absence_max() {
            // The process was stopped or busy: answers may have arrived unread.
            self.links.forgive(away, now);
        }
        self.polled = now;
        if self.fabric.is_none() && self.links.len() == 0 {
            return self.report_downs(sink);
        }
        self.links.next_round();
        let mut any = self.take_in(budget, sink);
        let moved = any;
        if self.links.is_due(now) || now >= self.give_back_at {
            self.keep_time();
        }
        self.post_buffers();
        self.with_remote(|remote, outlet| remote.poll(outlet, now));
        self.send_readings();
        any |= self.report_remote(sink);
        if moved || now >= self.room_at {
            any |= self.unblock(moved, sink);
        }
        if self.fabric.as_ref().is_some_and(super::Fabric::is_clogged) {
            log::warn!("frames to dead peers fill the send slots: the endpoint is closed");
            self.renew();
        }
        any |= self.report_downs(sink);
        if any {
            self.busy = now;
        }
        any
    }

    fn take_in<M: Memory, S: Sink<M>>(&mut self, budget: usize, sink: &mut S) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let mut taken = 0;
        while taken < budget {
            let Some(fabric) = &mut self.fabric else {
                break;
            };
            if fabric.backlog.is_empty() {
                if let Err(error) = fabric.domain.read(&mut events, BATCH) {
                    log::error!("{}: {error}", self.choice.place());
                    // The events are of operations that no longer exist.
                    events.clear();
                    self.renew();
                    break;
                }
            } else {
                events.extend(fabric.backlog.drain(..));
            }
            let found = events.len();
            taken += found;
            let renewals = self.stats.renewals;
            for event in events.drain(..) {
                if self.stats.renewals == renewals {
                    self.handle_event(event, sink);
                }
                // Otherwise the operation no longer exists.
            }
            if found < BATCH {
                // On most providers another read would only cost a system call.
                break;
            }
        }
        self.events = events;
        taken > 0
    }

    fn handle_event<M: Memory, S: Sink<M>>(&mut self, event: CqEvent, sink: &mut S) {
        let CqEvent {
            context,
            flags,
            outcome,
        } = event;
        let Some(fabric) = &mut self.fabric else {
            return;
        };
        let Some(op) = fabric.ops.of(context) else {
            // Injections have no context. A failed one means a silent peer, which its link notices.
            let injected = context.is_null() && outcome.is_err();
            self.stats.strange += u64::from(!injected);
            return;
        };
        // An error ends one frame, not the buffer it was written to: others use that, too.
        let last = !matches!(op, Op::Receive(_))
            || !fabric.plan().terms.multi_recv
            || flags & FI_MULTI_RECV != 0;
        if last {
            fabric.ops.end(context);
        }
        match op {
            Op::Receive(number) => {
                match outcome {
                    Ok(Done { buf, len }) => self.handle_frame(number, buf, len, sink),
                    Err(code) => {
                        log::debug!("a receive failed: {}", self.library.strerror(code));
                        self.stats.malformed += 1;
                    }
                }
                if last && let Some(fabric) = &mut self.fabric {
                    fabric.receive.returned(number);
                }
            }
            Op::Send(slot) => self.handle_sent(slot, outcome.err()),
            Op::Read(piece) => {
                let outcome = outcome.map(|_| ());
                self.with_remote(|remote, outlet| remote.on_event(outlet, piece, outcome));
            }
        }
    }

    fn handle_sent(&mut self, slot: u32, error: Option<i32>) {
        let Some(fabric) = &mut self.fabric else {
            return;
        };
        let Some(owner) = fabric.slots.put(slot) else {
            return;
        };
        let Some(link) = self.links.of_mut(owner) else {
            return fabric.tombstone_returned(owner);
        };
        link.slots -= 1;
        if let Some(code) = error {
            // Links are ordered and lossless, so this one ends.
            let text = self.library.strerror(code);
            log::debug!("link {owner:?}: a send failed: {text}");
            let reason = link.broken();
            self.fail(owner, reason);
        }
    }

    #[inline]
    fn handle_frame<M: Memory, S: Sink<M>>(
        &mut self,
        number: u32,
        start: *const c_void,
        len: usize,
        sink: &mut S,
    ) {
        let Some(fabric) = &mut self.fabric else {
            return;
        };
        if len == 0 {
            // A buffer returned without a message.
            return;
        }
        let prefix = fabric.plan().prefix();
        let arrived = fabric.receive.arrived(number, start, len);
        let parsed = arrived
            .and_then(|bytes| bytes.get(prefix..))
            .and_then(Frame::parse);
        let Some((frame, body)) = parsed else {
            self.stats.malformed += 1;
            return;
        };
        let Some(link) = self.links.addressed(frame.link, frame.cookie, self.now) else {
            self.stats.stale += 1;
            return;
        };
        let id = link.id;
        if frame.kind == FrameKind::Reset {
            // While connecting, or before the peer is known to be there, timeouts decide.
            if matches!(link.state, State::Up | State::Closing { .. }) {
                self.end(id, LinkDown::Reset);
            }
            return;
        }
        if !link.takes(frame.kind, body.len()) {
            log::debug!("link {id:?}: a stranger sends more than an introduction");
            self.stats.malformed += 1;
            self.fail(id, LinkDown::Protocol);
            return;
        }
        match link.sequence.arrived(frame.number) {
            FrameTurn::Now => {}
            FrameTurn::Past => {
                self.stats.stale += 1;
                return;
            }
            FrameTurn::Early => {
                self.stats.early += 1;
                if !self.links.hold(id, &frame, body, self.now) {
                    log::debug!("link {id:?}: too much of it comes before its turn");
                    self.fail(id, LinkDown::Reset);
                }
                return;
            }
        }
        match self.links.on_frame(id, frame.kind) {
            Heard::Carries => {}
            Heard::CameUp => sink.on_up(id),
            Heard::Ignored => return,
            Heard::Over => {
                self.drop_link(id);
                return;
            }
        }
        match frame.kind {
            kind @ (FrameKind::Packet | FrameKind::Rest) => {
                if !incoming::take(self.links.of_mut(id), kind, body, sink) {
                    return self.violated(id);
                }
            }
            kind => {
                let (reading, at_once) = (Reading::parse(body), *body == AT_ONCE);
                self.handle_signal(id, kind, (reading, at_once));
            }
        }
        self.handle_held(id, sink);
    }

    /// A peer has sent what none of ours does.
    #[cold]
    fn violated(&mut self, id: LinkId) {
        log::debug!("link {id:?}: no packet of a peer of ours");
        self.stats.malformed += 1;
        self.fail(id, LinkDown::Protocol);
    }

    /// Frames that came before the one that has just been taken, and follow it.
    fn handle_held<M: Memory, S: Sink<M>>(&mut self, id: LinkId, sink: &mut S) {
        while let Some((kind, body)) = self.links.next_held(id, self.now) {
            match kind {
                FrameKind::Packet | FrameKind::Rest => {
                    if !incoming::take(self.links.of_mut(id), kind, &body, sink) {
                        return self.violated(id);
                    }
                }
                kind => {
                    let body = (Reading::parse(&body), *body == AT_ONCE);
                    self.handle_signal(id, kind, body);
                }
            }
        }
    }

    /// A frame without a packet; of its body, what the kinds that have one say in it.
    fn handle_signal(
        &mut self,
        id: LinkId,
        kind: FrameKind,
        (reading, at_once): (Option<Reading>, bool),
    ) {
        match kind {
            FrameKind::Reading => match (reading, &mut self.fabric) {
                (Some(reading), Some(fabric)) => {
                    if let Some(remote) = &mut fabric.remote {
                        remote.on_reading(id, reading);
                    }
                }
                _ => self.stats.malformed += 1,
            },
            FrameKind::Hello => self.send_control(id, FrameKind::HelloAck, &[]),
            FrameKind::Ping if at_once => self.send_control(id, FrameKind::Pong, &AT_ONCE),
            FrameKind::Ping => self.send_control(id, FrameKind::Pong, &[]),
            FrameKind::Pong if at_once => self.links.trust(id),
            // The peer waits for the answer.
            FrameKind::Bye => self.fail(id, LinkDown::Closed),
            FrameKind::HelloAck
            | FrameKind::Pong
            | FrameKind::Packet
            | FrameKind::Rest
            | FrameKind::Reset => {}
        }
    }

    fn keep_time(&mut self) {
        let mut alarms = std::mem::take(&mut self.alarms);
        self.links.tick(self.now, &mut alarms);
        for alarm in alarms.drain(..) {
            self.handle_alarm(alarm);
        }
        self.alarms = alarms;
        while let Some(alarm) = self.links.overdue(self.now) {
            self.handle_alarm(alarm);
        }
        if self.now >= self.give_back_at {
            self.give_back_at = self.now.after(KEPT_FOR);
            if let Some(fabric) = &mut self.fabric {
                fabric.slots.give_back();
            }
            self.watch_device();
        }
    }

    fn handle_alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Ping(id) => self.send_control(id, FrameKind::Ping, &[]),
            Alarm::Down(id, reason) => self.fail(id, reason),
            Alarm::Gone(id) => {
                self.drop_link(id);
            }
        }
    }

    fn post_buffers(&mut self) {
        let Some(fabric) = &mut self.fabric else {
            return;
        };
        if !fabric.receive.owes() {
            return;
        }
        if let Err(code) = fabric.post_buffers() {
            let text = self.library.strerror(code);
            log::error!("{}: fi_recv: {text}", self.choice.place());
            self.renew();
        }
    }

    /// Tells peers that they are being read. Where that waits already, more of it says nothing new.
    fn send_readings(&mut self) {
        while let Some((id, reading)) = self.fabric.as_mut().and_then(|f| f.out.pop_front()) {
            let full = |link: &Link| link.control.len() >= CONTROL_MAX;
            if !self.links.of(id).is_some_and(full) {
                self.send_control(id, FrameKind::Reading, &reading.emit());
            }
        }
    }

    fn report_remote<M: Memory, S: Sink<M>>(&mut self, sink: &mut S) -> bool {
        let mut any = false;
        while let Some(report) = self
            .fabric
            .as_mut()
            .and_then(|fabric| fabric.remote.as_mut()?.next_report())
        {
            any = true;
            let id = report.link();
            if self.links.of(id).is_none() {
                continue;
            }
            match report {
                Report::ReadDone { token, ok, .. } => sink.on_remote_read(id, token, ok),
                Report::Registered { token, .. } => {
                    sink.on_remote_activity(id, RemoteUse::Registered(token));
                }
                Report::Reading { token, .. } => {
                    sink.on_remote_activity(id, RemoteUse::Reading(token));
                }
                Report::Broken { .. } => self.disconnect(id),
            }
        }
        any
    }

    /// Links that have waited longest for room try again: their small frames here, the rest in the
    /// endpoint. If nothing has made room, only after their pause: the endpoint takes every try for
    /// progress, and would never sleep.
    fn unblock<M: Memory, S: Sink<M>>(&mut self, moved: bool, sink: &mut S) -> bool {
        let mut any = false;
        let mut tried = 0;
        self.room_at = Instant(u64::MAX);
        for _ in 0..self.blocked.len() {
            let Some(id) = self.blocked.pop_front() else {
                break;
            };
            let Some(link) = self.links.of_mut(id) else {
                continue;
            };
            let due = moved || link.retry_at <= self.now;
            if !due || tried == UNBLOCKED {
                self.room_at = self.room_at.min(link.retry_at);
                self.blocked.push_back(id);
                continue;
            }
            tried += 1;
            link.blocked = false;
            if !self.flush_control(id) {
                self.block(id);
                continue;
            }
            if let Some(link) = self.links.of_mut(id)
                && std::mem::take(&mut link.wanted)
            {
                any = true;
                sink.on_writable(id);
            }
        }
        any
    }

    /// Sends what small frames wait on a link. False when there is no room for all of them.
    pub(super) fn flush_control(&mut self, id: LinkId) -> bool {
        loop {
            let Some(link) = self.links.of_mut(id) else {
                return true;
            };
            let Some(control) = link.control.pop_front() else {
                return true;
            };
            if self.send_now(id, control.kind, &control.body) == Err(NotSent::Busy)
                && let Some(link) = self.links.of_mut(id)
            {
                link.control.push_front(control);
                return false;
            }
        }
    }

    /// Tells the endpoint which links have ended.
    fn report_downs<M: Memory, S: Sink<M>>(&mut self, sink: &mut S) -> bool {
        while let Some(id) = self.broken.pop() {
            let reason = self.links.of(id).map_or(LinkDown::Reset, Link::broken);
            self.fail(id, reason);
        }
        let any = !self.downs.is_empty();
        for (id, reason) in std::mem::take(&mut self.downs) {
            sink.on_down(id, reason);
        }
        any
    }
}
