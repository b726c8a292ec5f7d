//! Fragments, in order, become packets again.
//!
//! ```text
//!   FIRST: header | body ...    ... body ...    LAST: ... body
//!      |
//!      +- all of it in one fragment ---------> on_packet, straight from the datagram
//!      +- place() knows where it belongs ----> written there piece by piece, then on_placed
//!      +- it is small enough ----------------> kept, then on_packet
//!      `- otherwise -------------------------> read and dropped
//! ```
//!
//! Owns: the bytes of one unfinished packet a link. Knows nothing of: numbers, windows.

use super::packet::{FIRST, LAST};
use crate::ids::LinkId;
use crate::memory::Memory;
use crate::port::{BODY_LEN_AT, HEADER_LEN, HeaderBytes, Sink};

/// The packet that is arriving on one link, if any.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    unfinished: Option<Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    header: HeaderBytes,
    len: usize,
    got: usize,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Placed,
    Kept(Vec<u8>),
    Dropped,
}

/// What arrived cannot be made into packets: the peer is none of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadFragment;

/// Largest bodies.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Of a packet that is kept.
    pub(super) kept: usize,
    /// Of any packet.
    pub(super) any: usize,
}

impl Reassembly {
    /// Takes in the next fragment of the link.
    pub(super) fn feed<M: Memory, S: Sink<M>>(
        &mut self,
        flags: u16,
        payload: &[u8],
        (link, cookie): (LinkId, u64),
        limits: BodyLimits,
        sink: &mut S,
    ) -> Result<(), BadFragment> {
        let last = flags & LAST != 0;
        let (mut packet, bytes) = match (flags & FIRST != 0, self.unfinished.take()) {
            (true, None) => {
                let (header, bytes) = payload
                    .split_first_chunk::<HEADER_LEN>()
                    .ok_or(BadFragment)?;
                let len = body_len(header);
                if len > limits.any || bytes.len() > len {
                    return Err(BadFragment);
                }
                if bytes.len() == len {
                    if !last {
                        return Err(BadFragment);
                    }
                    deliver_whole(header, bytes, (link, cookie), limits, sink);
                    return Ok(());
                }
                let body = if len <= limits.kept {
                    Body::Kept(Vec::new())
                } else {
                    Body::Dropped
                };
                (
                    Unfinished {
                        header: *header,
                        len,
                        got: 0,
                        body,
                    },
                    bytes,
                )
            }
            (false, Some(packet)) => (packet, payload),
            _ => return Err(BadFragment),
        };
        let end = packet.got + bytes.len();
        if end > packet.len || last != (end == packet.len) {
            return Err(BadFragment);
        }
        packet.take_in(bytes, link, cookie, sink);
        if !last {
            self.unfinished = Some(packet);
            return Ok(());
        }
        match packet.body {
            Body::Placed => sink.on_placed(link, cookie, &packet.header),
            Body::Kept(body) => sink.on_packet(link, cookie, &packet.header, &body[..]),
            Body::Dropped => {}
        }
        Ok(())
    }
}

impl Unfinished {
    fn take_in<M: Memory, S: Sink<M>>(
        &mut self,
        bytes: &[u8],
        link: LinkId,
        cookie: u64,
        sink: &mut S,
    ) {
        // Once some of the body has gone one way the rest cannot go another.
        let may_place = self.got == 0 || matches!(self.body, Body::Placed);
        if may_place {
            match sink.place(link, cookie, &self.header) {
                Some(place) => {
                    place
                        .memory
                        .fill(place.offset + self.got, bytes.len(), bytes, 0);
                    self.body = Body::Placed;
                }
                None if matches!(self.body, Body::Placed) => self.body = Body::Dropped,
                None => {}
            }
        }
        if let Body::Kept(body) = &mut self.body {
            body.extend_from_slice(bytes);
        }
        self.got += bytes.len();
    }
}

fn deliver_whole<M: Memory, S: Sink<M>>(
    header: &HeaderBytes,
    bytes: &[u8],
    (link, cookie): (LinkId, u64),
    limits: BodyLimits,
    sink: &mut S,
) {
    if bytes.len() <= limits.kept {
        sink.on_packet(link, cookie, header, bytes);
    } else if let Some(place) = sink.place(link, cookie, header) {
        place.memory.fill(place.offset, bytes.len(), bytes, 0);
        sink.on_placed(link, cookie, header);
    }
}

fn body_len(header: &HeaderBytes) -> usize {
    let at = BODY_LEN_AT;
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize
}
