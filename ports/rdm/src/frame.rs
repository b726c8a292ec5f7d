//! Header of every frame, with the link it is for.
//!
//! ```text
//!  0      1         2        4                8                     16
//!  +------+---------+--------+----------------+---------------------+
//!  | kind | version | number | receiver's     | receiver's cookie   |  body ...
//!  |      |         | (u16)  | link (u32)     | for the link (u64)  |  little endian
//!  +------+---------+--------+----------------+---------------------+
//!
//!  Packet    header of a packet, and its body or the part of it that fits
//!  Rest      more of that body (see `incoming`)
//!  Hello     request to open, with the caller's address    HelloAck   response
//!  Ping      liveness probe                                Pong       response, with the Ping's byte if it has one
//!  Bye       the link is closed
//!  Reading   the sender is still reading registered memory (see `reading`)
//! ```
//!
//! Each link end has a random cookie of 64 bits. The called side sends its cookie only to its peer, over the session
//! that began on another port, and the caller in its Hello. Frames of an earlier process of the peer, and those of
//! strangers, lack the cookie and are dropped, whatever sender the fabric reports.
//!
//! Out of scope: links, libfabric.

/// Bytes before a body. With a packet's header of 32 and a payload of 8 they make 56, which every known provider
/// injects.
pub(super) const FRAME_LEN: usize = 16;

/// Version of this layout. Peers with different versions stay on the port where their session began: an address has
/// [`mx_port_fabric::endpoint_address::VERSION`].
const VERSION: u8 = 4;

/// Body of a Ping that only a Pong sent in response clears.
pub(super) const AT_ONCE: [u8; 1] = [1];

/// Type of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum FrameKind {
    /// A packet, or its beginning.
    Packet = 1,
    /// Request to open the link, with the caller's address.
    Hello = 2,
    /// Response to Hello: the link works.
    HelloAck = 3,
    /// Liveness probe after a silence.
    Ping = 4,
    /// Response to Ping.
    Pong = 5,
    /// The sender has closed the link.
    Bye = 6,
    /// Progress report of an RMA read.
    Reading = 7,
    /// The sender's end of the link no longer exists. Handled out of order, because earlier frames may never arrive.
    Reset = 8,
    /// More of the body of the preceding packet.
    Rest = 9,
}

/// Header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// Sequence number on the link (see `sequence`).
    pub(super) number: u16,
    /// Receiver's number for the link.
    pub(super) link: u32,
    /// Receiver's cookie for the link.
    pub(super) cookie: u64,
}

impl Frame {
    /// Encodes the header.
    #[inline]
    pub(super) fn emit(&self) -> [u8; FRAME_LEN] {
        let mut bytes = [0; FRAME_LEN];
        bytes[0] = self.kind as u8;
        bytes[1] = VERSION;
        bytes[2..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.link.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_le_bytes());
        bytes
    }

    /// Returns the header and the body; `None` if the bytes are not a frame.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, body) = bytes.split_first_chunk::<FRAME_LEN>()?;
        let [kind, VERSION, n, m, a, b, c, d, cookie @ ..] = *head else {
            return None;
        };
        let kind = match kind {
            1 => FrameKind::Packet,
            2 => FrameKind::Hello,
            3 => FrameKind::HelloAck,
            4 => FrameKind::Ping,
            5 => FrameKind::Pong,
            6 => FrameKind::Bye,
            7 => FrameKind::Reading,
            8 => FrameKind::Reset,
            9 => FrameKind::Rest,
            _ => return None,
        };
        let frame = Self {
            kind,
            number: u16::from_le_bytes([n, m]),
            link: u32::from_le_bytes([a, b, c, d]),
            cookie: u64::from_le_bytes(cookie),
        };
        Some((frame, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire() {
        for kind in [
            FrameKind::Packet,
            FrameKind::Hello,
            FrameKind::HelloAck,
            FrameKind::Ping,
            FrameKind::Pong,
            FrameKind::Bye,
            FrameKind::Reading,
            FrameKind::Reset,
            FrameKind::Rest,
        ] {
            let frame = Frame {
                kind,
                number: 0x0506,
                link: 0x0102_0304,
                cookie: u64::MAX - 7,
            };
            let mut bytes = frame.emit().to_vec();
            bytes.extend_from_slice(b"body");
            assert_eq!(Frame::parse(&bytes), Some((frame, &b"body"[..])));
        }
    }

    #[test]
    fn what_is_no_frame_is_none() {
        let good = Frame {
            kind: FrameKind::Ping,
            number: 0,
            link: 1,
            cookie: 2,
        }
        .emit();
        assert!(Frame::parse(&good).is_some());
        assert_eq!(Frame::parse(&good[..FRAME_LEN - 1]), None);
        for (at, value) in [(0, 0), (0, 10), (1, 3), (1, 5)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Frame::parse(&bad), None, "byte {at} = {value}");
        }
    }
}
