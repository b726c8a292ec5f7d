//! Control messages over a link's Unix socket.
//!
//! ```text
//!   initiator                                    acceptor
//!      | connect ------------------------------->  |
//!      | Hello { barriers, endpoint } + user --->  |   asks who listens as that endpoint
//!      |                  <----------- Welcome     |     or Later: no room; Denied: another user's endpoint; use TCP
//!      | Offer { sizes } + memfd --------------->  |   checks, maps
//!      |                  <------------- Taken     |     or Later: less, or none for now
//!
//!   either side                                  its peer
//!      | one byte = "wake up" ------------------>  |
//!      | a packet, while there are no rings ---->  |
//!      | Suspend { packets sent in the ring } -->  |   reads those, answers with Suspend
//!      | Bye ----------------------------------->  |   closed on purpose
//! ```
//!
//! A message is one byte, the doorbell; [`MESSAGE_LEN`] bytes, a [`ControlMessage`], little endian; or a packet, header
//! and body, which is longer. Messages are checked like any packet from a stranger.
//!
//! Owns: the layout of the control messages.
//! Out of scope: sockets, memory.

use super::layout::Geometry;

/// Bytes of a control message: less than a packet's header.
pub(super) const MESSAGE_LEN: usize = 24;

const _: () = assert!(MESSAGE_LEN < mx_proto::port::HEADER_LEN);

/// Version of all that two processes share: control messages, layout, ring protocol.
pub(super) const VERSION: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlMessage {
    /// First message, the initiator's, sent with its user. `asymmetric`: see [`super::barrier`]. `endpoint`: endpoint
    /// id at which the initiator listens.
    Hello { asymmetric: bool, endpoint: u32 },
    /// Acceptor's answer to Hello.
    Welcome { asymmetric: bool },
    /// Initiator's memory for the link, sent with its descriptor. The initiator sends nothing until the answer.
    Offer(Geometry),
    /// The memory is mapped; later packets go through the rings.
    Taken,
    /// The link or its memory has no room; memory of these sizes would fit.
    Later(Option<Geometry>),
    /// The endpoint in Hello is not one of that user's.
    Denied,
    /// Number of packets sent through the ring; later ones go over the socket.
    Suspend(u64),
    /// The link is closed on purpose.
    Bye,
}

/// Reasons why a message is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadMessage {
    /// The message is not of this protocol.
    Stranger,
    /// The message is of this other version.
    Version(u32),
    /// Sizes are out of bounds.
    Sizes,
}

impl std::fmt::Display for BadMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stranger => f.write_str("not a shared-memory handshake"),
            Self::Version(version) => {
                write!(
                    f,
                    "shared-memory protocol version {version}, ours is {VERSION}"
                )
            }
            Self::Sizes => f.write_str("ring sizes out of bounds"),
        }
    }
}

impl ControlMessage {
    /// Encodes the message.
    pub(super) fn encode(self) -> [u8; MESSAGE_LEN] {
        let sizes = |it: Geometry| (it.cells, u64::from(it.far) << 32 | u64::from(it.data));
        let (magic, (small, large)) = match self {
            Self::Hello {
                asymmetric,
                endpoint,
            } => (HELLO, (asymmetric.into(), endpoint.into())),
            Self::Welcome { asymmetric } => (WELCOME, (asymmetric.into(), 0)),
            Self::Offer(geometry) => (OFFER, sizes(geometry)),
            Self::Taken => (TAKEN, (0, 0)),
            Self::Later(geometry) => (LATER, geometry.map_or((0, 0), sizes)),
            Self::Denied => (DENIED, (0, 0)),
            Self::Suspend(sent) => (SUSPEND, (0, sent)),
            Self::Bye => (BYE, (0, 0)),
        };
        let mut out = [0; MESSAGE_LEN];
        out[0..8].copy_from_slice(magic);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&small.to_le_bytes());
        out[16..24].copy_from_slice(&large.to_le_bytes());
        out
    }

    /// Parses a message and checks its bounds.
    pub(super) fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let stranger = BadMessage::Stranger;
        let message: &[u8; MESSAGE_LEN] = message.try_into().map_err(|_| stranger)?;
        let (small, large) = (u32_at(message, 12), u64::from(u32_at(message, 16)));
        let large = large | u64::from(u32_at(message, 20)) << 32;
        let sizes = Geometry {
            cells: small,
            data: large as u32,
            far: (large >> 32) as u32,
        };
        let control = match message.first_chunk().ok_or(stranger)? {
            HELLO => Self::Hello {
                asymmetric: small & 1 != 0,
                endpoint: u32_at(message, 16),
            },
            WELCOME => Self::Welcome {
                asymmetric: small & 1 != 0,
            },
            OFFER => Self::Offer(sizes),
            TAKEN => Self::Taken,
            LATER => Self::Later((small != 0).then_some(sizes)),
            DENIED => Self::Denied,
            SUSPEND => Self::Suspend(large),
            BYE => Self::Bye,
            _ => return Err(stranger),
        };
        match (u32_at(message, 8), control) {
            (VERSION, Self::Offer(sizes) | Self::Later(Some(sizes))) if !sizes.is_acceptable() => {
                Err(BadMessage::Sizes)
            }
            (VERSION, control) => Ok(control),
            (other, _) => Err(BadMessage::Version(other)),
        }
    }
}

/// Reads the number at `at`, a constant below `MESSAGE_LEN - 3` in all callers.
fn u32_at(message: &[u8; MESSAGE_LEN], at: usize) -> u32 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| message[at + byte]);
    u32::from_le_bytes([a, b, c, d])
}

const HELLO: &[u8; 8] = b"mx-hello";
const WELCOME: &[u8; 8] = b"mx-welcm";
const OFFER: &[u8; 8] = b"mx-offer";
const TAKEN: &[u8; 8] = b"mx-taken";
const LATER: &[u8; 8] = b"mx-later";
const DENIED: &[u8; 8] = b"mx-deny!";
const SUSPEND: &[u8; 8] = b"mx-rest!";
const BYE: &[u8; 8] = b"mx-bye!!";

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(asymmetric: bool, endpoint: u32) -> ControlMessage {
        ControlMessage::Hello {
            asymmetric,
            endpoint,
        }
    }

    #[test]
    fn control_messages_survive_encoding() {
        for control in [
            hello(true, 0),
            hello(false, u32::MAX),
            ControlMessage::Welcome { asymmetric: true },
            ControlMessage::Offer(Geometry::SMALLEST),
            ControlMessage::Offer(Geometry::STREAMING),
            ControlMessage::Taken,
            ControlMessage::Later(None),
            ControlMessage::Later(Some(Geometry::SMALLER)),
            ControlMessage::Denied,
            ControlMessage::Suspend(u64::MAX - 5),
            ControlMessage::Bye,
        ] {
            assert_eq!(ControlMessage::decode(&control.encode()), Ok(control));
        }
    }

    #[test]
    fn damaged_control_messages_are_named_and_refused() {
        let good = ControlMessage::Offer(Geometry::STANDARD).encode();
        assert_eq!(
            ControlMessage::decode(&good[..23]),
            Err(BadMessage::Stranger)
        );
        assert_eq!(ControlMessage::decode(&[]), Err(BadMessage::Stranger));
        assert_eq!(
            ControlMessage::decode(&[good.as_slice(), &[0]].concat()),
            Err(BadMessage::Stranger)
        );
        let damage = |at: usize, byte: u8| {
            let mut control = good;
            control[at] ^= byte;
            ControlMessage::decode(&control)
        };
        assert_eq!(damage(0, 1), Err(BadMessage::Stranger));
        assert_eq!(damage(8, 1), Err(BadMessage::Version(5)));
        for at in 12..24 {
            assert_eq!(damage(at, 0x11), Err(BadMessage::Sizes), "byte {at}");
        }
    }
}
