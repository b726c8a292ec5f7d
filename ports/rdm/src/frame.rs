//! The header of every frame, with the link it is for.
//!
//! ```text
//!  0      1         2        4                8                     16
//!  +------+---------+--------+----------------+---------------------+
//!  | kind | version | number | receiver's     | receiver's cookie   |  body ...
//!  |      |         | (u16)  | link (u32)     | for the link (u64)  |  little endian
//!  +------+---------+--------+----------------+---------------------+
//!
//!  Packet    header of one packet of the endpoints, and its body or what fits of it
//!  Rest      more of that body (see `incoming`)
//!  Hello     does this reach you? My address  HelloAck   it does
//!  Ping      are you there?                   Pong       I am: with the byte of the Ping, if it has one
//!  Bye       the link is over
//!  Reading   the sender is still reading what was registered (see `reading`)
//! ```
//!
//! The cookie is drawn for each link, 64 bits from the kernel. That of the called side is sent only to its peer, over
//! the session that has been met, and that of the caller in its Hello: frames of an earlier life of the peer, and those of
//! strangers, do not have it and are dropped, whatever sender the fabric reports.
//!
//! Out of scope: links, libfabric.

/// Bytes in front of a body. With a packet's 32 and a payload of 8 they make 56, which every
/// provider we know injects.
pub(super) const FRAME_LEN: usize = 16;

/// The version of this layout. Sides with different ones stay where they have met: an address has [`mx_port_fabric::endpoint_address::VERSION`].
const VERSION: u8 = 4;

/// The body of a Ping to which only an answer that was not on its way before it will do.
pub(super) const AT_ONCE: [u8; 1] = [1];

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum FrameKind {
    /// A packet of the endpoints.
    Packet = 1,
    /// The fabric is tried.
    Hello = 2,
    /// The answer to a Hello: the link works.
    HelloAck = 3,
    /// Nothing has been heard for a while.
    Ping = 4,
    /// The answer to that.
    Pong = 5,
    /// The sender has closed the link.
    Bye = 6,
    /// A read by RMA goes on.
    Reading = 7,
    /// The sender's end of the link is no more. Taken out of turn, for what was sent before it may
    /// never come.
    Reset = 8,
    /// More of the body of the packet before it.
    Rest = 9,
}

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// The kind.
    pub(super) kind: FrameKind,
    /// Its place in the order of the link's frames (see `sequence`).
    pub(super) number: u16,
    /// The receiver's number for the link.
    pub(super) link: u32,
    /// The receiver's cookie for it.
    pub(super) cookie: u64,
}

impl Frame {
    /// The header as it travels.
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

    /// The header and what follows it; `None` when the bytes are no frame.
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
