//! Arrived frames: their order, their links, and packets whose body arrives in several of them.
//!
//! ```text
//!   frame --> link --> order --InOrder--> signal: handled here
//!                       |  |              Packet: header, body or its beginning  --> Packet, or Part
//!                       |  |              Rest:   more of it                     --> Part
//!                       |  `---Early----> held until the missing frames have arrived
//!                       `---Duplicate---> dropped
//! ```
//!
//! Pings may come between a packet's frames, other packets may not. The current frame's bytes stay in their receive
//! buffer while an event lends them.
//!
//! Out of scope: reassembly ([`Incoming`]), the order of frames (`sequence`).

use super::RdmPort;
use super::frame::{AT_ONCE, FRAME_LEN, Frame, FrameKind};
use super::links::{FrameEffect, State};
use super::poll::Phase;
use super::reading::Reading;
use super::sequence::FrameOrder;
use libc::c_void;
use mx_port_base::incoming::Incoming;
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_proto::LinkId;
use mx_proto::port::{HEADER_LEN, LinkDown, body_len};
use mx_proto::round::PortEvent;

/// Longest body that is sent in several frames, in bytes.
pub(super) const STREAMED_MAX: usize = 256 << 10;

impl RdmPort {
    /// Returns the rest of the current frame.
    #[inline]
    pub(super) fn frame(&self) -> &[u8] {
        let fabric = self.fabric.as_ref();
        fabric.map_or(&[], |fabric| fabric.receive.frame())
    }

    /// Handles a frame that has arrived in a receive buffer.
    #[inline]
    pub(super) fn handle_frame(
        &mut self,
        number: u32,
        start: *const c_void,
        len: usize,
    ) -> Option<PortEvent> {
        let fabric = self.fabric.as_mut()?;
        if len == 0 {
            // The buffer was returned without a message.
            return None;
        }
        fabric.receive.arrived(number, start, len);
        fabric.receive.cut(fabric.plan().prefix());
        let Some((frame, body)) = Frame::parse(fabric.receive.frame()) else {
            self.stats.malformed += 1;
            return None;
        };
        let Some(link) = self.links.addressed(frame.link, frame.cookie, self.now) else {
            self.stats.stale += 1;
            return None;
        };
        let id = link.id;
        if link.state == State::Offered {
            // The caller sends nothing else before the answer.
            if (frame.kind, frame.number) == (FrameKind::Hello, 0) {
                link.sequence.arrived(frame.number);
                let theirs = EndpointAddress::parse(body);
                self.on_hello(id, theirs);
            } else {
                self.stats.stale += 1;
            }
            return None;
        }
        if frame.kind == FrameKind::Reset {
            // While connecting, timeouts decide.
            if matches!(link.state, State::Up | State::Closing { .. }) {
                self.end(id, LinkDown::Reset);
            }
            return None;
        }
        match link.sequence.arrived(frame.number) {
            FrameOrder::InOrder => {}
            FrameOrder::Duplicate => {
                self.stats.stale += 1;
                return None;
            }
            FrameOrder::Early => {
                self.stats.early += 1;
                if !self.links.hold(id, &frame, body, self.now) {
                    log::debug!("link {id:?}: too many frames arrived out of order");
                    self.fail(id, LinkDown::Reset);
                }
                return None;
            }
        }
        fabric.receive.cut(FRAME_LEN);
        self.take_frame(id, frame.kind)
    }

    /// Handles the current frame, which is next in sequence.
    #[inline]
    pub(super) fn take_frame(&mut self, id: LinkId, kind: FrameKind) -> Option<PortEvent> {
        self.round.phase = Phase::Held(id);
        match self.links.on_frame(id, kind) {
            FrameEffect::Carries => {}
            FrameEffect::CameUp => {
                self.round.phase = Phase::Frame(id, kind);
                return Some(PortEvent::Up(id));
            }
            FrameEffect::Ignored => return None,
            FrameEffect::Over => {
                self.drop_link(id);
                return None;
            }
        }
        match kind {
            FrameKind::Packet | FrameKind::Rest => self.take_packet(id, kind),
            kind => {
                self.handle_signal(id, kind);
                None
            }
        }
    }

    /// Handles the current frame as part of a packet, and leaves only body bytes in it.
    #[inline]
    fn take_packet(&mut self, id: LinkId, kind: FrameKind) -> Option<PortEvent> {
        let (fabric, link) = (self.fabric.as_mut()?, self.links.of_mut(id)?);
        let mut header = None;
        if kind == FrameKind::Packet {
            let Some(first) = fabric.receive.frame().first_chunk::<HEADER_LEN>() else {
                return self.violated(id);
            };
            header = Some(*first);
            fabric.receive.cut(HEADER_LEN);
        }
        let len = fabric.receive.frame().len();
        if let Some(header) = header
            && link.incoming.is_none()
            && body_len(&header) <= len
        {
            // The endpoint checks that the body is not too long.
            return Some(PortEvent::Packet { link: id, header });
        }
        let packet = &mut link.incoming;
        match Incoming::take_piece(packet, id, header.as_ref(), len, STREAMED_MAX) {
            Ok(event) => {
                if event.is_some() {
                    self.round.phase = Phase::Part(id);
                }
                event
            }
            Err(_) => self.violated(id),
        }
    }

    /// Ends the piece in the current frame, which the endpoint has read or not.
    pub(super) fn end_part(&mut self, id: LinkId) -> Option<PortEvent> {
        self.round.phase = Phase::Held(id);
        Incoming::end_piece(&mut self.links.of_mut(id)?.incoming, id)
    }

    /// Ends the link of a peer that has violated the protocol.
    #[cold]
    fn violated(&mut self, id: LinkId) -> Option<PortEvent> {
        log::debug!("link {id:?}: not a packet of this protocol");
        self.stats.malformed += 1;
        self.fail(id, LinkDown::Protocol);
        None
    }

    /// Handles the frame after the current one, if it arrived early and was held.
    #[inline]
    pub(super) fn take_held(&mut self, id: LinkId) -> Option<PortEvent> {
        self.round.phase = Phase::Completions;
        let (kind, frame) = self.links.next_held(id, self.now)?;
        self.fabric.as_mut()?.receive.take_early(frame);
        self.take_frame(id, kind)
    }

    /// Handles the current frame, which is not part of a packet.
    fn handle_signal(&mut self, id: LinkId, kind: FrameKind) {
        let Some(fabric) = &mut self.fabric else {
            return;
        };
        let body = fabric.receive.frame();
        let at_once = *body == AT_ONCE;
        match kind {
            FrameKind::Reading => match (Reading::parse(body), &mut fabric.remote) {
                (Some(reading), Some(remote)) => remote.on_reading(id, reading),
                (Some(_), None) => {}
                (None, _) => self.stats.malformed += 1,
            },
            FrameKind::Ping if at_once => self.send_control(id, FrameKind::Pong, &AT_ONCE),
            FrameKind::Ping => self.send_control(id, FrameKind::Pong, &[]),
            FrameKind::Pong if at_once => self.links.trust(id),
            // The peer waits for the answer.
            FrameKind::Bye => self.fail(id, LinkDown::Closed),
            FrameKind::Hello
            | FrameKind::HelloAck
            | FrameKind::Pong
            | FrameKind::Packet
            | FrameKind::Rest
            | FrameKind::Reset => {}
        }
    }
}
