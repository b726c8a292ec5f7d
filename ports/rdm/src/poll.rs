//! Steps of a round: completions, then the clock, then work that waits for room.
//!
//! ```text
//!   begin --> Completions --none left--> clock, buffers --> Reports --none left--> room, broken links --> Over
//!               |     ^
//!       a frame |     | no held frame follows
//!               v     |
//!             Frame  Held <-.       Frame: deferred to the next step if its link has just come up
//!               |     ^ |   |
//!               |     | `---' a held frame follows
//!               `Part-'
//! ```
//!
//! Queued events are handed out before the next step. Between two events the endpoint may call the port in any way, so
//! each step looks up its link again.
//!
//! All input is checked: a frame must have a link and that link's cookie, a completion a known operation, and a
//! position in a buffer must be inside it.

use super::fabric::NotSent;
use super::frame::FrameKind;
use super::links::{Alarm, Link};
use super::ops::Op;
use super::remote::{Remote, Report};
use super::{KEPT_FOR, RdmPort};
use libfabric_sys::abi::FI_MULTI_RECV;
use mx_port_fabric::{CqEvent, Done};
use mx_proto::port::{LinkDown, Place, RemoteUse};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::{Instant, LinkId, Memory};

/// Maximum number of completions read in one call.
const BATCH: usize = 32;

/// Queued frames on a link above which it gets no more progress reports.
const CONTROL_MAX: usize = 64;

/// Maximum number of blocked links that retry per round.
const UNBLOCKED: usize = 32;

/// Position in a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) phase: Phase,
    /// Number of completions that may still be handled.
    left: usize,
    /// True once a completion has been handled.
    moved: bool,
    /// True once anything has happened.
    any: bool,
}

/// Next step of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Phase {
    /// A completion to handle.
    Completions,
    /// The current frame to handle, whose link has just come up.
    Frame(LinkId, FrameKind),
    /// The piece in the current frame to end, which the endpoint has read or not.
    Part(LinkId),
    /// A held frame to handle, if one follows the current frame.
    Held(LinkId),
    /// A report of a remote read to hand out.
    Reports,
    #[default]
    Over,
}

impl<M: Memory> Rounds<M> for RdmPort {
    type Lent<'a> = &'a [u8];

    fn begin(&mut self, now: Instant, budget: usize) {
        self.now = now;
        let away = now.since(self.polled);
        if away > self.links.absence_max() {
            // The process was stopped or busy: answers may have arrived unread.
            self.links.forgive(away, now);
        }
        self.polled = now;
        self.round = Round {
            phase: Phase::Completions,
            left: budget,
            moved: false,
            any: false,
        };
    }

    #[inline]
    fn next(&mut self) -> Next {
        match self.next_event() {
            Some(event) => Next::Event(event),
            None => Next::End {
                any: self.round.any,
            },
        }
    }

    #[inline]
    fn body(&self) -> &[u8] {
        self.frame()
    }

    fn read(&mut self, place: Place<'_, M>) {
        if let Phase::Part(id) = self.round.phase
            && let Some(fabric) = &self.fabric
            && let Some(incoming) = self
                .links
                .of_mut(id)
                .and_then(|link| link.incoming.as_mut())
        {
            incoming.read_piece(place, fabric.receive.frame());
        }
    }

    /// Does nothing: a piece that is not read is dropped.
    fn skip(&mut self) {}
}

impl RdmPort {
    /// Returns the next event of the round.
    fn next_event(&mut self) -> Option<PortEvent> {
        let event = loop {
            if let Some(event) = self.queued.pop_front() {
                break event;
            }
            let event = match self.round.phase {
                Phase::Completions => self.take_completion(),
                Phase::Frame(id, kind) => self.take_frame(id, kind),
                Phase::Part(id) => self.end_part(id),
                Phase::Held(id) => self.take_held(id),
                Phase::Reports => self.next_report(),
                Phase::Over => {
                    if self.round.any {
                        self.busy = self.now;
                    }
                    return None;
                }
            };
            if let Some(event) = event {
                break event;
            }
        };
        self.round.any = true;
        Some(event)
    }

    fn take_completion(&mut self) -> Option<PortEvent> {
        match self.next_completion() {
            Some(completion) => {
                (self.round.moved, self.round.any) = (true, true);
                self.handle_completion(completion)
            }
            None => {
                self.end_completions();
                None
            }
        }
    }

    /// Returns the next completion within the budget.
    #[inline]
    fn next_completion(&mut self) -> Option<CqEvent> {
        let fabric = self.fabric.as_mut()?;
        if fabric.backlog.is_empty() && self.round.left > 0 {
            match fabric.domain.read(&mut fabric.backlog, BATCH) {
                // On most providers another read would only cost a system call.
                Ok(found) if found < BATCH => self.round.left = self.round.left.min(found),
                Ok(_) => {}
                Err(error) => {
                    log::error!("{}: {error}", self.choice.place());
                    self.renew();
                    return None;
                }
            }
        }
        self.round.left = self.round.left.checked_sub(1)?;
        fabric.backlog.pop_front()
    }

    #[inline]
    fn handle_completion(&mut self, completion: CqEvent) -> Option<PortEvent> {
        let CqEvent {
            context,
            flags,
            outcome,
        } = completion;
        let fabric = self.fabric.as_mut()?;
        let Some(op) = fabric.ops.of(context) else {
            // Injections have no context. A failed one means a silent peer, which its link notices.
            let injected = context.is_null() && outcome.is_err();
            self.stats.strange += u64::from(!injected);
            return None;
        };
        // An error concerns one frame; the multi-receive buffer stays in use for others.
        let last = !matches!(op, Op::Receive(_))
            || !fabric.plan().terms.multi_recv
            || flags & FI_MULTI_RECV != 0;
        if last {
            fabric.ops.end(context);
        }
        match op {
            Op::Receive(number) => {
                if last {
                    fabric.receive.returned(number);
                }
                match outcome {
                    Ok(Done { buf, len }) => return self.handle_frame(number, buf, len),
                    Err(code) => {
                        log::debug!("a receive failed: {}", self.library.strerror(code));
                        self.stats.malformed += 1;
                    }
                }
            }
            Op::Send(slot) => self.handle_sent(slot, outcome.err()),
            Op::Read(piece) => {
                let outcome = outcome.map(|_| ());
                self.with_remote(|remote, outlet| remote.on_event(outlet, piece, outcome));
            }
        }
        None
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

    /// Does the work after the last completion of a round.
    fn end_completions(&mut self) {
        self.round.phase = Phase::Reports;
        let now = self.now;
        if self.links.is_due(now) || now >= self.give_back_at {
            self.keep_time();
        }
        self.post_buffers();
        self.with_remote(|remote, outlet| remote.poll(outlet, now));
        self.send_readings();
    }

    fn keep_time(&mut self) {
        let mut alarms = std::mem::take(&mut self.alarms);
        self.links.tick(self.now, &mut alarms);
        for alarm in alarms.drain(..) {
            self.handle_alarm(alarm);
        }
        self.alarms = alarms;
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
        if let Err(code) = fabric.post_buffers() {
            let text = self.library.strerror(code);
            log::error!("{}: fi_recv: {text}", self.choice.place());
            self.renew();
        }
    }

    /// Tells peers that their memory is being read; skipped on links where many frames wait.
    fn send_readings(&mut self) {
        while let Some((id, reading)) = self.fabric.as_mut().and_then(|f| f.out.pop_front()) {
            let full = |link: &Link| link.control.len() >= CONTROL_MAX;
            if !self.links.of(id).is_some_and(full) {
                self.send_control(id, FrameKind::Reading, &reading.emit());
            }
        }
    }

    /// Returns the next report of a remote read.
    fn next_report(&mut self) -> Option<PortEvent> {
        let remote = self.fabric.as_mut().and_then(|it| it.remote.as_mut());
        let Some(report) = remote.and_then(Remote::next_report) else {
            self.end_reports();
            return None;
        };
        self.round.any = true;
        let link = report.link();
        self.links.of(link)?;
        match report {
            Report::ReadDone { token, ok, .. } => Some(PortEvent::RemoteRead { link, token, ok }),
            Report::Registered { token, .. } => {
                let what = RemoteUse::Registered(token);
                Some(PortEvent::RemoteActivity(link, what))
            }
            Report::Reading { token, .. } => {
                Some(PortEvent::RemoteActivity(link, RemoteUse::Reading(token)))
            }
            Report::Broken { .. } => {
                self.disconnect(link);
                None
            }
        }
    }

    /// Does the work after the last report of a round.
    fn end_reports(&mut self) {
        self.round.phase = Phase::Over;
        if self.round.moved || self.now >= self.room_at {
            self.unblock();
        }
        if self.fabric.as_ref().is_some_and(super::Fabric::is_clogged) {
            log::warn!("frames to dead peers fill the send slots: reopening the endpoint");
            self.renew();
        }
        while let Some(id) = self.broken.pop() {
            let reason = self.links.of(id).map_or(LinkDown::Reset, Link::broken);
            self.fail(id, reason);
        }
    }

    /// Retries the links that have waited longest for room: small frames here, the rest in the endpoint. If nothing has
    /// made room, a link waits for the end of its pause: the endpoint takes every attempt for progress, and would never
    /// sleep.
    fn unblock(&mut self) {
        let mut tried = 0;
        self.room_at = Instant(u64::MAX);
        for _ in 0..self.blocked.len() {
            let Some(id) = self.blocked.pop_front() else {
                break;
            };
            let Some(link) = self.links.of_mut(id) else {
                continue;
            };
            let due = self.round.moved || link.retry_at <= self.now;
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
                self.queued.push_back(PortEvent::Writable(id));
            }
        }
    }

    /// Sends the queued small frames of a link. Returns false if there is no room for all.
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
}

#[cfg(test)]
mod tests;
