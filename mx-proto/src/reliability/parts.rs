//! Parts: puts packets into the send window, a large one in several parts.
//!
//! ```text
//!   send   --no room for all--> midway --resume, when there is room--> whole
//!                                 `----detach: the rest is copied and sent when there is room
//! ```
//!
//! All parts belong to one fragment. A link that is midway through a packet accepts no other.
//!
//! Owns: the rest of a packet whose memory has been released.
//! Out of scope: the segments that have been cut.

use super::checksum::crc32c;
use super::link::{Link, Need};
use super::links::Links;
use super::packet::{DATAGRAM_HEADER, SUMMED};
use super::send_buffer::{Segment, SendBuffer};
use super::send_window::Content;
use crate::ids::LinkId;
use crate::memory::Memory;
use crate::port::{Body, SendError, Sent};
use std::fmt;
use std::hash::Hash;

/// A packet of which a part has been taken.
#[derive(Debug)]
pub(super) struct PartialSend {
    fragment: u32,
    /// Length of the packet in bytes, its header included; `taken`: bytes already taken.
    len: u32,
    taken: u32,
    /// Last bytes of the packet, if their memory has been released; `None`: the sender still has them.
    rest: Option<Vec<u8>>,
}

impl PartialSend {
    fn left(&self) -> usize {
        (self.len - self.taken) as usize
    }
}

/// Part of a packet that is taken now.
#[derive(Clone, Copy, Debug)]
struct Part {
    bytes: usize,
    need: Need,
}

impl Part {
    /// Returns the part of `segments` segments, of a packet of which `left` bytes are left.
    fn of(segments: usize, payload: usize, left: usize) -> Self {
        let bytes = left.min(segments * payload);
        let need = Need {
            segments,
            bytes: bytes + segments * DATAGRAM_HEADER,
        };
        Self { bytes, need }
    }
}

impl<A: Copy + Eq + Hash + fmt::Debug> Links<A> {
    /// Queues a packet, or a part of one longer than [`Self::part_max`].
    #[inline]
    pub(super) fn push<M: Memory>(
        &mut self,
        id: LinkId,
        head: &[u8],
        body: &Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let most = self.part_max;
        let link = self.attached(id).ok_or(SendError::Down)?;
        let (payload, left) = (link.payload(), head.len() + body.len());
        let part = Part::of(left.min(most).div_ceil(payload), payload, left);
        if link.midway.is_some() && !head.is_empty() {
            link.blocked = Some(part.need);
            return Err(SendError::WouldBlock);
        }
        if !self.may_send(id, part.need) {
            return Err(SendError::WouldBlock);
        }
        let sent = self.cut(id, (head, body), part);
        if sent == Err(SendError::WouldBlock)
            && let Some(link) = self.table.get_mut(id)
        {
            link.blocked = Some(part.need);
            self.starve(id);
        }
        sent
    }

    /// Copies the rest of a packet whose memory is about to be released.
    pub(super) fn keep_rest<M: Memory>(&mut self, id: LinkId, memory: &M, at: usize, len: usize) {
        let Some(midway) = self.of_mut(id).and_then(|link| link.midway.as_mut()) else {
            return;
        };
        debug_assert_eq!(len, midway.left(), "the rest is the rest");
        let mut rest = Vec::with_capacity(midway.left());
        memory.visit(at, len, |piece| rest.extend_from_slice(piece));
        // If the memory was shorter than promised, the packet still ends.
        rest.resize(midway.left(), 0);
        midway.rest = Some(rest);
        self.push_rest(id);
    }

    /// Queues as much as possible of a packet whose memory has been released. Returns true if no such packet is left.
    pub(super) fn push_rest(&mut self, id: LinkId) -> bool {
        let (config, most) = (self.config, self.part_max);
        let Some(link) = self.of_mut(id) else {
            return true;
        };
        let payload = link.payload();
        let Some(midway) = &mut link.midway else {
            return true;
        };
        let Some(rest) = midway.rest.take() else {
            return true;
        };
        let left = midway.left();
        let part = Part::of(left.min(most).div_ceil(payload), payload, left);
        if link.has_room(part.need, &config) {
            let body = Body::Memory {
                memory: &rest,
                offset: rest.len() - left,
                len: left,
            };
            match self.cut(id, (&[], &body), part) {
                Ok(Sent::Whole) => return true,
                Ok(_) => {}
                Err(_) => self.starve(id),
            }
        }
        if let Some(midway) = self.of_mut(id).and_then(|link| link.midway.as_mut()) {
            midway.rest = Some(rest);
        }
        false
    }

    /// Lists a link as waiting for room in the send buffer.
    #[cold]
    fn starve(&mut self, id: LinkId) {
        if !self.starved.contains(&id) {
            self.starved.push(id);
        }
    }

    /// Cuts as much as there is room for into segments, at least this part.
    #[inline]
    fn cut<M: Memory>(
        &mut self,
        id: LinkId,
        (head, body): (&[u8], &Body<'_, M>),
        least: Part,
    ) -> Result<Sent, SendError> {
        let Self {
            table,
            send_buffer,
            config,
            part_max,
            ..
        } = self;
        let link = table.get_mut(id).ok_or(SendError::Down)?;
        let (payload, left) = (link.payload(), head.len() + body.len());
        let (mut part, mut writer) = (least, None);
        if least.bytes < left {
            let most = link.room(config) / (DATAGRAM_HEADER + payload);
            let most = most.min(link.session.recovery.send.free());
            let all = left.div_ceil(payload);
            let segments = if most < all {
                (most - most % least.need.segments).max(least.need.segments)
            } else {
                all
            };
            part = Part::of(segments, payload, left);
            writer = send_buffer.writer(part.bytes, payload);
        }
        if writer.is_none() {
            part = least;
            writer = send_buffer.writer(part.bytes, payload);
        }
        let mut writer = writer.ok_or(SendError::WouldBlock)?;
        let midway = link.midway.take().unwrap_or_else(|| {
            let fragment = link.session.next_fragment;
            link.session.next_fragment = fragment.wrapping_add(1);
            PartialSend {
                fragment,
                len: left as u32,
                taken: 0,
                rest: None,
            }
        });
        let tiny = midway.len as usize <= config.tiny.min(payload);
        let sum = link.sum.unwrap_or(true);
        let window = &mut link.session.recovery.send;
        let mut done = |send_buffer: &mut SendBuffer, segment: Segment| {
            let (flags, crc) = if sum {
                let payload = &send_buffer.bytes_of(segment.place)[DATAGRAM_HEADER..];
                (SUMMED, crc32c(payload))
            } else {
                (0, 0)
            };
            window.push(Content {
                place: segment.place,
                fragment: midway.fragment,
                offset: midway.taken + segment.offset,
                fragment_len: midway.len,
                payload: segment.payload,
                flags,
                crc,
                tiny,
            });
        };
        writer.push(send_buffer, head, &mut done);
        let of_body = part.bytes - head.len();
        match body {
            Body::Bytes(bytes) => writer.push(send_buffer, bytes, &mut done),
            Body::Memory { memory, offset, .. } => memory.visit(*offset, of_body, |piece| {
                writer.push(send_buffer, piece, &mut done);
            }),
        }
        // If the memory was shorter than promised, the packet is padded to its length.
        writer.fill_up(send_buffer, &mut done);
        if part.bytes == left {
            return Ok(Sent::Whole);
        }
        let taken = midway.taken + part.bytes as u32;
        let midway = PartialSend { taken, ..midway };
        let left = midway.left();
        let next = Part::of(left.min(*part_max).div_ceil(payload), payload, left);
        link.blocked = Some(next.need);
        link.midway = Some(midway);
        Ok(Sent::Part(of_body))
    }
}

impl<A: Copy + Eq> Link<A> {
    /// Returns the number of packet bytes in a segment.
    #[inline]
    fn payload(&self) -> usize {
        self.session.pmtu.size() - DATAGRAM_HEADER
    }

    /// Returns whether the link is midway through a packet whose rest the sender still has.
    pub(super) fn is_torn(&self) -> bool {
        let midway = self.midway.as_ref();
        midway.is_some_and(|midway| midway.rest.is_none())
    }
}
