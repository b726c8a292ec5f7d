//! Packets whose body comes in several frames.
//!
//! ```text
//!   Packet: header, body's beginning
//!   Rest:   more of it
//! ```
//!
//! Pings may come between them, other packets do not.
//!
//! Not here: putting the pieces together ([`Incoming`]), the order of frames.

use super::frame::FrameKind;
use super::links::Link;
use mx_port_base::incoming::Incoming;
use mx_proto::Memory;
use mx_proto::port::{HEADER_LEN, Sink, body_len};

/// Bytes of the longest body that comes in several frames.
pub(super) const STREAMED_MAX: usize = 256 << 10;

/// Takes in one frame of a packet. False when no peer of ours sends it there.
#[inline]
pub(super) fn take<M: Memory, S: Sink<M>>(
    link: Option<&mut Link>,
    kind: FrameKind,
    bytes: &[u8],
    sink: &mut S,
) -> bool {
    let Some(link) = link else { return true };
    let name = link.id;
    let (header, piece) = match kind {
        FrameKind::Packet => match bytes.split_first_chunk::<HEADER_LEN>() {
            Some((header, body)) => (Some(header), body),
            None => return false,
        },
        _ => (None, bytes),
    };
    if let Some(header) = header
        && link.incoming.is_none()
        && body_len(header) <= piece.len()
    {
        // The sink checks that the body is not too long.
        sink.on_packet(name, header, piece);
        return true;
    }
    !link.is_stranger()
        && Incoming::take(
            &mut link.incoming,
            name,
            (header, piece),
            STREAMED_MAX,
            sink,
        )
}
