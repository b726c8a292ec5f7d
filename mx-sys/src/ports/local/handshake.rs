//! What two sides of a new link say to each other over the Unix socket.
//!
//! ```text
//!   initiator                               acceptor
//!      | connect ------------------------------> |
//!      | Hello { version, flags, sizes } + memfd |   checks, maps
//!      | -------------------------------------> |
//!      | <----------- Welcome { version, flags } |
//!      |      afterwards: one byte = "wake up"   |
//! ```
//!
//! Both messages are 32 bytes, little endian. The process that receives one treats it as any
//! packet from a stranger.
//!
//! Owns: the layout of the two messages.
//! Knows nothing of: sockets, memory.

use super::layout::Geometry;

/// Bytes of either message.
pub(super) const MESSAGE_LEN: usize = 32;

/// The version of everything the two processes share: handshake, layout, ring protocol.
pub(super) const VERSION: u32 = 1;

/// The first message, from the initiator. The memory's descriptor comes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) geometry: Geometry,
    /// See [`super::barrier`].
    pub(super) asymmetric: bool,
}

/// The answer, from the acceptor, which has mapped the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Welcome {
    /// See [`super::barrier`].
    pub(super) asymmetric: bool,
}

/// Why a message is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadMessage {
    /// Not of this protocol at all.
    Stranger,
    /// Another version of it.
    Version(u32),
    /// Sizes out of bounds.
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

impl Hello {
    /// As it is sent.
    pub(super) fn encode(&self) -> [u8; MESSAGE_LEN] {
        let mut out = encode_start(HELLO_MAGIC, self.asymmetric);
        out[16..20].copy_from_slice(&self.geometry.cells.to_le_bytes());
        out[20..24].copy_from_slice(&self.geometry.data.to_le_bytes());
        out[24..32].copy_from_slice(&(self.geometry.total() as u64).to_le_bytes());
        out
    }

    /// What a message says, if everything in it is within bounds.
    pub(super) fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (message, asymmetric) = decode_start(message, HELLO_MAGIC)?;
        let geometry = Geometry {
            cells: u32_at(message, 16),
            data: u32_at(message, 20),
        };
        let total = u64::from(u32_at(message, 24)) | u64::from(u32_at(message, 28)) << 32;
        if !geometry.is_acceptable() || total != geometry.total() as u64 {
            return Err(BadMessage::Sizes);
        }
        Ok(Self {
            geometry,
            asymmetric,
        })
    }
}

impl Welcome {
    /// As it is sent.
    pub(super) fn encode(&self) -> [u8; MESSAGE_LEN] {
        encode_start(WELCOME_MAGIC, self.asymmetric)
    }

    /// What a message says.
    pub(super) fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (_, asymmetric) = decode_start(message, WELCOME_MAGIC)?;
        Ok(Self { asymmetric })
    }
}

fn encode_start(magic: [u8; 8], asymmetric: bool) -> [u8; MESSAGE_LEN] {
    let mut out = [0; MESSAGE_LEN];
    out[0..8].copy_from_slice(&magic);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&u32::from(asymmetric).to_le_bytes());
    out
}

fn decode_start(message: &[u8], magic: [u8; 8]) -> Result<(&[u8; MESSAGE_LEN], bool), BadMessage> {
    let message: &[u8; MESSAGE_LEN] = message.try_into().map_err(|_| BadMessage::Stranger)?;
    if message[0..8] != magic {
        return Err(BadMessage::Stranger);
    }
    match u32_at(message, 8) {
        VERSION => Ok((message, u32_at(message, 12) & ASYMMETRIC != 0)),
        other => Err(BadMessage::Version(other)),
    }
}

/// The number at `at`, which is a constant below `MESSAGE_LEN - 3` in all callers.
fn u32_at(message: &[u8; MESSAGE_LEN], at: usize) -> u32 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| message[at + byte]);
    u32::from_le_bytes([a, b, c, d])
}

const HELLO_MAGIC: [u8; 8] = *b"mx-hello";
const WELCOME_MAGIC: [u8; 8] = *b"mx-welcm";
const ASYMMETRIC: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_encoding() {
        for asymmetric in [false, true] {
            let hello = Hello {
                geometry: Geometry::STANDARD,
                asymmetric,
            };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            let welcome = Welcome { asymmetric };
            assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
    }

    #[test]
    fn damaged_messages_are_named_and_refused() {
        let good = Hello {
            geometry: Geometry::STANDARD,
            asymmetric: true,
        }
        .encode();
        assert_eq!(Hello::decode(&good[..31]), Err(BadMessage::Stranger));
        assert_eq!(Hello::decode(&[]), Err(BadMessage::Stranger));
        assert_eq!(Welcome::decode(&good), Err(BadMessage::Stranger));
        let damage = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] ^= byte;
            Hello::decode(&bytes)
        };
        assert_eq!(damage(0, 1), Err(BadMessage::Stranger));
        assert_eq!(damage(8, 2), Err(BadMessage::Version(3)));
        for at in 16..32 {
            assert_eq!(damage(at, 0x10), Err(BadMessage::Sizes), "byte {at}");
        }
    }
}
