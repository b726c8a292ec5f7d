//! Bodies longer than a packet in a ring may be: sent in consecutive pieces.
//!
//! ```text
//!   send   --no room for all--> midway --resume, when there is room--> whole
//!                                 `----detach: the rest is copied, and goes when there is room
//! ```
//!
//! The first piece has the packet's header. A link that is midway accepts no other packet, in its ring or over its
//! socket; pieces go where packets go.
//!
//! Owns: the rest of a body whose memory has been detached.
//! Out of scope: rings, sockets; reassembly ([`Incoming`](mx_port_base::incoming::Incoming)).

use super::link::State;
use super::ring::PushError;
use super::{DATA_MAX, LARGE, LocalPort, ring_doorbell};
use mx_proto::port::{Body, HEADER_LEN, HeaderBytes, SendError, Sent};
use mx_proto::round::PortEvent;
use mx_proto::{LinkId, Memory};

/// Longest body in bytes that is sent unrequested: a longer one wakes its sender twice, for Pull and for Notify.
/// Streams of 4 MiB messages sleep no less with a limit of 4 MiB.
pub(super) const STREAMED_MAX: usize = 1 << 20;

/// Rest of a body whose memory has been detached; `sent` bytes of it have been sent.
#[derive(Debug)]
pub(super) struct Rest {
    bytes: Vec<u8>,
    sent: usize,
}

impl LocalPort {
    /// Sends a body that does not fit into one packet.
    #[cold]
    #[inline(never)]
    pub(super) fn send_long<M: Memory>(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> Result<Sent, SendError> {
        match body {
            Body::Memory {
                memory,
                offset,
                len,
            } if *len <= STREAMED_MAX => {
                if self.links.get(id).is_some_and(|entry| entry.midway) {
                    return self.no_room(id);
                }
                self.send_pieces(id, Some(header), *memory, *offset, *len)
            }
            _ => {
                debug_assert!(false, "body longer than the port's limits");
                self.fail(id);
                Err(SendError::Down)
            }
        }
    }

    /// Sends `len` bytes from `offset` on: with `header` the beginning of a packet, without it the rest of one.
    pub(super) fn send_pieces<M: Memory>(
        &mut self,
        id: LinkId,
        mut header: Option<&HeaderBytes>,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let mut sent = 0;
        while sent < len {
            let body = Body::Memory {
                memory,
                offset: offset + sent,
                len: DATA_MAX.min(len - sent),
            };
            match self.send_piece(id, header.take(), &body) {
                Ok(()) => sent += body.len(),
                Err(SendError::WouldBlock) if sent != 0 => {
                    self.set_midway(id, true);
                    return Ok(Sent::Part(sent));
                }
                Err(error) => return Err(error),
            }
        }
        self.set_midway(id, false);
        Ok(Sent::Whole)
    }

    fn send_piece<M: Memory>(
        &mut self,
        id: LinkId,
        header: Option<&HeaderBytes>,
        body: &Body<'_, M>,
    ) -> Result<(), SendError> {
        let header = header.unwrap_or(&[0; HEADER_LEN]);
        let Some(entry) = self.links.get_mut(id) else {
            return Err(SendError::Down);
        };
        let State::Up(link) = &mut entry.state else {
            return self.send_over_socket(id, header, body);
        };
        if entry.socket.is_none() {
            return Err(SendError::Down);
        }
        link.producer.set_midway(false);
        let mut pushed = link.producer.push(header, body);
        if self.armed && pushed == Err(PushError::Full) {
            pushed = entry.push_armed(header, body);
        }
        let State::Up(link) = &mut entry.state else {
            return Err(SendError::Down);
        };
        link.producer.set_midway(entry.midway);
        match pushed {
            Ok(asleep) => {
                if asleep {
                    ring_doorbell(&entry.socket);
                }
                self.keep_active(id);
                Ok(())
            }
            Err(PushError::Full) => {
                if body.len() >= LARGE {
                    self.grow(id);
                }
                self.no_room(id)
            }
            Err(PushError::TooLong | PushError::Corrupt) => {
                self.fail(id);
                Err(SendError::Down)
            }
        }
    }

    /// Marks the link as blocked, so that the endpoint is told when there is room.
    fn no_room<T>(&mut self, id: LinkId) -> Result<T, SendError> {
        self.keep_active(id);
        if let Some(entry) = self.links.get_mut(id) {
            entry.blocked = true;
        }
        Err(SendError::WouldBlock)
    }

    fn set_midway(&mut self, id: LinkId, midway: bool) {
        if let Some(entry) = self.links.get_mut(id) {
            entry.midway = midway;
            if let Some(link) = entry.up() {
                link.producer.set_midway(midway);
            }
        }
    }

    /// Copies and sends the rest of a body; see [`mx_proto::port::Port::detach`].
    pub(super) fn keep_rest<M: Memory>(
        &mut self,
        id: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) {
        let mut bytes = Vec::with_capacity(len);
        memory.visit(offset, len, |piece| bytes.extend_from_slice(piece));
        if let Some(entry) = self.links.get_mut(id) {
            entry.rest = Some(Rest { bytes, sent: 0 });
            self.send_rest(id);
        }
    }

    /// Sends the rest of a body on a link that has room again, and returns the event if room is left; `None` if not, or
    /// if the endpoint has already found the room.
    pub(super) fn unblock(&mut self, id: LinkId) -> Option<PortEvent> {
        let blocked = &mut self.links.get_mut(id)?.blocked;
        (std::mem::take(blocked) && self.send_rest(id)).then_some(PortEvent::Writable(id))
    }

    /// Sends as much as fits of a detached body. Returns true if nothing of it is left.
    #[cold]
    pub(super) fn send_rest(&mut self, id: LinkId) -> bool {
        let Some(mut rest) = self.links.get_mut(id).and_then(|entry| entry.rest.take()) else {
            return true;
        };
        let left = rest.bytes.len() - rest.sent;
        match self.send_pieces(id, None, &rest.bytes, rest.sent, left) {
            Ok(Sent::Part(sent)) => rest.sent += sent,
            Err(SendError::WouldBlock) => {}
            // Done, or the link is down, which is reported separately.
            _ => return true,
        }
        if let Some(entry) = self.links.get_mut(id) {
            entry.rest = Some(rest);
        }
        false
    }
}
