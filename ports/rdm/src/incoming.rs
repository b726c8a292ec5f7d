//! Packets whose body comes in several frames.
//!
//! ```text
//!   Packet: header, body's beginning --begin--> where it belongs, or nowhere
//!   Rest:   more of it               --place-->        "
//!   Rest:   the end                  --place-->        "               --> on_placed
//! ```
//!
//! Each frame is copied once, out of the buffer it came in. Signs of life may come between them, other
//! packets do not.
//!
//! Owns: how much of a link's packet has come.
//! Knows nothing of: the order of frames.

use super::frame::Kind;
use super::links::Link;
use mx_proto::Memory;
use mx_proto::port::{BODY_LEN_AT, HEADER_LEN, HeaderBytes, Sink};

/// A packet of which not all is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    header: HeaderBytes,
    got: usize,
    /// It has a place.
    wanted: bool,
}

/// Bytes of the longest body that comes in several frames.
pub(super) const STREAMED_MAX: usize = 256 << 10;

/// Takes in one frame of a packet. False when no peer of ours sends it there.
#[inline]
pub(super) fn take<M: Memory, S: Sink<M>>(
    link: Option<&mut Link>,
    kind: Kind,
    bytes: &[u8],
    sink: &mut S,
) -> bool {
    let Some(link) = link else { return true };
    let (id, word) = (link.id, link.word);
    let (mut incoming, piece) = match (link.incoming.take(), kind) {
        (None, Kind::Packet) => {
            let Some((header, body)) = bytes.split_first_chunk::<HEADER_LEN>() else {
                return false;
            };
            if body_len(header) <= body.len() {
                // That it is not shorter is checked there.
                sink.on_packet(id, word, header, body);
                return true;
            }
            let incoming = Incoming {
                header: *header,
                got: 0,
                wanted: true,
            };
            (incoming, body)
        }
        (Some(incoming), Kind::Rest) => (incoming, bytes),
        _ => return false,
    };
    let (header, at) = (incoming.header, incoming.got);
    incoming.got += piece.len();
    let len = body_len(&header);
    if len > STREAMED_MAX || incoming.got > len || link.is_stranger() {
        return false;
    }
    if incoming.wanted {
        let place = match kind {
            Kind::Packet => sink.begin(id, word, &header),
            _ => sink.place(id, word, &header),
        };
        incoming.wanted = place.is_some();
        if let Some(mut place) = place {
            place.memory.fill(place.offset + at, piece.len(), piece, 0);
        }
    }
    if incoming.got < len {
        link.incoming = Some(incoming);
    } else if incoming.wanted {
        sink.on_placed(id, word, &header);
    }
    true
}

/// The length a header speaks of.
fn body_len(header: &HeaderBytes) -> usize {
    let bytes = header[BODY_LEN_AT..].first_chunk().copied();
    u32::from_le_bytes(bytes.unwrap_or_default()) as usize
}
