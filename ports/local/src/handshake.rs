//! What the two sides of a link say to each other over the Unix socket.
//!
//! ```text
//!   initiator                                    acceptor
//!      | connect ------------------------------->  |
//!      | Hello { version, flags, sizes } + memfd   |   checks, maps
//!      | --------------------------------------->  |
//!      |           <------- Welcome { version, flags }     or Later: no room, come over tcp
//!
//!   either                                       the other
//!      | one byte = "wake up" ------------------>  |
//!      |                       ...                 |   the link has gone to sleep (`rest`)
//!      | Wake { version, flags, sizes } + memfd    |
//!      | --------------------------------------->  |   checks, maps
//!      |           <----------------- Woken                or Later: no room, I shall wake you
//!      | Bye ----------------------------------->  |   closed on purpose, while it slept
//! ```
//!
//! All messages but the doorbell are 32 bytes, little endian. The process that receives one treats it
//! as any packet from a stranger.
//!
//! Owns: the layout of the messages.
//! Knows nothing of: sockets, memory, when which message is in place.

use super::layout::Geometry;

/// Bytes of every message but the doorbell.
pub(super) const MESSAGE_LEN: usize = 32;

/// The version of everything the two processes share: handshake, layout, ring protocol.
pub(super) const VERSION: u32 = 1;

/// What a side says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Traits {
    /// See [`super::barrier`].
    pub(super) asymmetric: bool,
    /// Its links can sleep.
    pub(super) sleeps: bool,
}

/// The first message, from the initiator. The memory's descriptor comes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) geometry: Geometry,
    pub(super) traits: Traits,
}

/// The answer, from the acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Welcome {
    pub(super) traits: Traits,
    /// It has not taken the memory, because that is too much; it hands over less with a [`Wake`].
    pub(super) asleep: bool,
}

/// Memory for a link that sleeps. Its descriptor comes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wake {
    pub(super) geometry: Geometry,
}

/// What comes over the socket of a link, doorbells aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// The link sleeps; here is memory.
    Wake(Wake),
    /// The memory is taken.
    Woken,
    /// There is no room for memory. Who says so about a [`Wake`] hands over some when there is.
    Later,
    /// The link is closed on purpose.
    Bye,
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

impl Traits {
    fn flags(self) -> u32 {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        flag(self.asymmetric, ASYMMETRIC) | flag(self.sleeps, SLEEPS)
    }

    fn of(flags: u32) -> Self {
        Self {
            asymmetric: flags & ASYMMETRIC != 0,
            sleeps: flags & SLEEPS != 0,
        }
    }
}

impl Hello {
    /// As it is sent.
    pub(super) fn encode(&self) -> [u8; MESSAGE_LEN] {
        encode_sizes(HELLO_MAGIC, self.traits.flags(), self.geometry)
    }

    /// What a message says, if everything in it is within bounds.
    pub(super) fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (message, flags) = decode_start(message, HELLO_MAGIC)?;
        Ok(Self {
            geometry: decode_sizes(message)?,
            traits: Traits::of(flags),
        })
    }
}

impl Welcome {
    /// As it is sent.
    pub(super) fn encode(&self) -> [u8; MESSAGE_LEN] {
        let asleep = if self.asleep { ASLEEP } else { 0 };
        encode_start(WELCOME_MAGIC, self.traits.flags() | asleep)
    }

    /// What a message says.
    pub(super) fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let (_, flags) = decode_start(message, WELCOME_MAGIC)?;
        Ok(Self {
            traits: Traits::of(flags),
            asleep: flags & ASLEEP != 0,
        })
    }
}

impl Word {
    /// As it is sent.
    pub(super) fn encode(&self) -> [u8; MESSAGE_LEN] {
        match self {
            Self::Wake(wake) => encode_sizes(WAKE_MAGIC, 0, wake.geometry),
            Self::Woken => encode_start(WOKEN_MAGIC, 0),
            Self::Later => encode_start(LATER_MAGIC, 0),
            Self::Bye => encode_start(BYE_MAGIC, 0),
        }
    }

    /// What a message says, if everything in it is within bounds.
    pub(super) fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let is = |magic: [u8; 8]| decode_start(message, magic).map(|(message, _)| message);
        match message.first_chunk() {
            Some(&WAKE_MAGIC) => Ok(Self::Wake(Wake {
                geometry: decode_sizes(is(WAKE_MAGIC)?)?,
            })),
            Some(&WOKEN_MAGIC) => is(WOKEN_MAGIC).map(|_| Self::Woken),
            Some(&LATER_MAGIC) => is(LATER_MAGIC).map(|_| Self::Later),
            Some(&BYE_MAGIC) => is(BYE_MAGIC).map(|_| Self::Bye),
            _ => Err(BadMessage::Stranger),
        }
    }
}

fn encode_start(magic: [u8; 8], flags: u32) -> [u8; MESSAGE_LEN] {
    let mut out = [0; MESSAGE_LEN];
    out[0..8].copy_from_slice(&magic);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&flags.to_le_bytes());
    out
}

fn encode_sizes(magic: [u8; 8], flags: u32, geometry: Geometry) -> [u8; MESSAGE_LEN] {
    let mut out = encode_start(magic, flags);
    out[16..20].copy_from_slice(&geometry.cells.to_le_bytes());
    out[20..24].copy_from_slice(&geometry.data.to_le_bytes());
    out[24..32].copy_from_slice(&(geometry.total() as u64).to_le_bytes());
    out
}

fn decode_start(message: &[u8], magic: [u8; 8]) -> Result<(&[u8; MESSAGE_LEN], u32), BadMessage> {
    let message: &[u8; MESSAGE_LEN] = message.try_into().map_err(|_| BadMessage::Stranger)?;
    if message[0..8] != magic {
        return Err(BadMessage::Stranger);
    }
    match u32_at(message, 8) {
        VERSION => Ok((message, u32_at(message, 12))),
        other => Err(BadMessage::Version(other)),
    }
}

fn decode_sizes(message: &[u8; MESSAGE_LEN]) -> Result<Geometry, BadMessage> {
    let geometry = Geometry {
        cells: u32_at(message, 16),
        data: u32_at(message, 20),
    };
    let total = u64::from(u32_at(message, 24)) | u64::from(u32_at(message, 28)) << 32;
    if !geometry.is_acceptable() || total != geometry.total() as u64 {
        return Err(BadMessage::Sizes);
    }
    Ok(geometry)
}

/// The number at `at`, which is a constant below `MESSAGE_LEN - 3` in all callers.
fn u32_at(message: &[u8; MESSAGE_LEN], at: usize) -> u32 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| message[at + byte]);
    u32::from_le_bytes([a, b, c, d])
}

const HELLO_MAGIC: [u8; 8] = *b"mx-hello";
const WELCOME_MAGIC: [u8; 8] = *b"mx-welcm";
const WAKE_MAGIC: [u8; 8] = *b"mx-wake!";
const WOKEN_MAGIC: [u8; 8] = *b"mx-woken";
const LATER_MAGIC: [u8; 8] = *b"mx-later";
const BYE_MAGIC: [u8; 8] = *b"mx-bye!!";

const ASYMMETRIC: u32 = 1;
const SLEEPS: u32 = 1 << 1;
const ASLEEP: u32 = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Hello = Hello {
        geometry: Geometry::STANDARD,
        traits: Traits {
            asymmetric: true,
            sleeps: true,
        },
    };

    #[test]
    fn messages_survive_encoding() {
        for flags in 0..8 {
            let traits = Traits {
                asymmetric: flags & 1 != 0,
                sleeps: flags & 2 != 0,
            };
            let hello = Hello { traits, ..GOOD };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            let asleep = flags & 4 != 0;
            let welcome = Welcome { traits, asleep };
            assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
        let geometry = Geometry::SMALLEST;
        for word in [
            Word::Wake(Wake { geometry }),
            Word::Woken,
            Word::Later,
            Word::Bye,
        ] {
            assert_eq!(Word::decode(&word.encode()), Ok(word));
            assert!(Hello::decode(&word.encode()).is_err());
            assert!(Welcome::decode(&word.encode()).is_err());
        }
    }

    #[test]
    fn damaged_messages_are_named_and_refused() {
        let good = GOOD.encode();
        assert_eq!(Hello::decode(&good[..31]), Err(BadMessage::Stranger));
        assert_eq!(Hello::decode(&[]), Err(BadMessage::Stranger));
        assert_eq!(Welcome::decode(&good), Err(BadMessage::Stranger));
        assert_eq!(Word::decode(&good), Err(BadMessage::Stranger));
        assert_eq!(Word::decode(&[]), Err(BadMessage::Stranger));
        let wake = Word::Wake(Wake {
            geometry: Geometry::STANDARD,
        })
        .encode();
        assert_eq!(Word::decode(&wake[..31]), Err(BadMessage::Stranger));
        let damage = |at: usize, byte: u8| {
            let (mut hello, mut word) = (good, wake);
            hello[at] ^= byte;
            word[at] ^= byte;
            let hello = Hello::decode(&hello).map(|_| ());
            assert_eq!(Word::decode(&word).map(|_| ()), hello, "byte {at}");
            hello
        };
        assert_eq!(damage(0, 1), Err(BadMessage::Stranger));
        assert_eq!(damage(8, 2), Err(BadMessage::Version(3)));
        for at in 16..32 {
            assert_eq!(damage(at, 0x10), Err(BadMessage::Sizes), "byte {at}");
        }
    }
}
