//! The packets of the MX protocol: the only place that parses them.
//!
//! ```text
//!  0      1      2             4                           8
//!  +------+------+-------------+---------------------------+
//!  | kind |epoch | magic "MX"  | body length (u32)         |
//!  +------+------+-------------+---------------------------+
//!  | word: match bits, or the request this is about (u64)  |
//!  +---------------------------+---------------------------+
//!  | length: of message / at   | aux: status, or slot      |
//!  +---------------------------+---------------------------+
//!  | credit: running total     | slots (8) | wanted (24)   |
//!  +---------------------------+---------------------------+
//!  | body ...                                               32 bytes, little endian
//! ```
//!
//! | kind       | word         | length      | aux    | body                          |
//! |------------|--------------|-------------|--------|-------------------------------|
//! | Connect    | connect id   | -           | -      | hello, greeting               |
//! | Reply      | connect id   | -           | status | hello, greeting, perhaps a claim |
//! | Eager      | match bits   | message len | slot   | the message                   |
//! | Offer      | match bits   | message len | slot   | send id, remote key           |
//! | Pull       | send id      | offset      | number | receive id, length, perhaps a link |
//! | Data       | receive id   | offset      | that of the Pull | bytes               |
//! | Notify     | send id      | transferred | status | -                             |
//! | Withdraw   | send id      | -           | 1: answer | -                          |
//! | Credit     | -            | -           | -      | -                             |
//! | Disconnect | -            | -           | -      | -                             |
//! | Ping       | question     | -           | -      | -                             |
//! | Pong       | question     | -           | -      | -                             |
//! | Revoke     | -            | credits     | -      | -                             |
//! | Return     | -            | credits     | -      | -                             |
//! | Claim      | -            | -           | -      | claim                         |
//! | Challenge  | -            | -           | -      | identity, nonce, proof of the secret |
//! | Prove      | -            | -           | -      | proof of the secret           |
//! | Attach     | session      | link number | -      | proof of the session          |
//! | Attached   | -            | link number | links at most | proof of the session   |
//! | Lost       | -            | link number | -      | -                             |
//! | Upgrade    | -            | fabric      | why not | address on the fabric        |
//! | Fence      | -            | -           | -      | -                             |
//! | Get        | region's key | offset      | number | receive id, length, link, offset in the region, length of the whole |
//! | Put        | region's key | length      | -      | send id, offset in the region |
//!
//! Epoch, credit, slots and wanted are the sender's [`CreditFields`]: credits that the other side may have
//! used in all, its slot messages that have been received, and credits that the sender requests.
//! All packets of a session carry them except introductions: Connect and Reply carry the initial
//! credits, the others none. A Revoke asks for unused credits; the answer, a Return, says how many
//! count as used.
//!
//! Out of scope: remotes, requests, ports.

use crate::event::Identity;
use crate::flow::CreditFields;
use crate::ids::{EndpointId, NicId, SessionId};
use crate::port::{BODY_LEN_AT, FABRIC_DGRAM, FABRIC_RDM, HEADER_LEN, HeaderBytes, RemoteKey};
use crate::secret::{NONCE_LEN, Nonce, PROOF_LEN, ProofBytes};
use crate::status::Violation;

/// Version of everything in this file.
pub const VERSION: u16 = 8;

/// The oldest version that this one understands. Two sides speak the older one of theirs; if one of them does not
/// understand that, the call is refused.
pub const OLDEST: u16 = 8;

/// The most bytes that an owner says of itself in a hello.
pub const GREETING_MAX: usize = 64;

const MAGIC: [u8; 2] = *b"MX";
const HELLO_MAGIC: u32 = u32::from_le_bytes(*b"MXs1");

/// Bytes of a hello body.
pub const HELLO_LEN: usize = 64;
/// The first bytes of it, which every version has.
const HELLO_LEAST: usize = 32;
/// Bytes of a challenge's body, and of what its sender says in it.
const CHALLENGE_LEN: usize = SAID_LEN + PROOF_LEN;
pub(crate) const SAID_LEN: usize = 40;
/// Bytes of a claim.
pub(crate) const CLAIM_LEN: usize = 40;
/// Bytes of an offer's body without and with a remote key.
const OFFER_LEN: usize = 8;
const OFFER_KEY_LEN: usize = 24;
/// Bytes of a pull's body without and with a link's number.
const PULL_LEN: usize = 12;
const PULL_LINK_LEN: usize = 16;
/// Bytes of the bodies of a get and a put.
const GET_LEN: usize = 28;
const PUT_LEN: usize = 16;
/// In `aux` of a Withdraw: its sender waits for a Notify, after which its memory is not read. (Who does not
/// know of it answers nothing, and is not waited for for long.)
pub(crate) const ANSWER: u32 = 1;
/// In `aux` of a Withdraw: its word is the receive id of a get, of which no more is wanted.
pub(crate) const OF_GET: u32 = 2;
/// The feature of a hello: data links beside the session's own.
pub(crate) const DATA_LINKS: u32 = 1;
/// The feature of a hello: memory registered for the peer to reach.
pub(crate) const REGIONS: u32 = 2;
/// Features of a hello: moves to these fabrics.
pub(crate) const FABRICS: u32 = FABRIC_RDM | FABRIC_DGRAM;

/// The kind of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// I want to talk to you.
    Connect = 1,
    /// The answer to that.
    Reply = 2,
    /// A message with its data.
    Eager = 3,
    /// A message whose data is to be pulled.
    Offer = 4,
    /// Send me this part of an offered message.
    Pull = 5,
    /// A part of a pulled message.
    Data = 6,
    /// I have what I want of an offered message.
    Notify = 7,
    /// An offered message is called off.
    Withdraw = 8,
    /// Nothing but the credit fields of its header.
    Credit = 9,
    /// Goodbye.
    Disconnect = 10,
    /// Asks for a Pong.
    Ping = 11,
    /// The answer to that; one to several is enough.
    Pong = 12,
    /// A request to give back so many credits that the receiver does not need, as others want them.
    Revoke = 13,
    /// The answer to that: so many are given back, perhaps none.
    Return = 14,
    /// Another session of yours is with me, too.
    Claim = 15,
    /// Asks the caller for a proof of the site's secret, and proves it.
    Challenge = 17,
    /// The answer to that.
    Prove = 18,
    /// The caller's word that this link is a data link of a session.
    Attach = 19,
    /// The answer to that.
    Attached = 20,
    /// A data link is lost; number 0: the session does not move.
    Lost = 21,
    /// The sender's address on a fabric to which the session may move.
    Upgrade = 22,
    /// Nothing of the sender's follows on this link; on a fabric's link: that has been read.
    Fence = 23,
    /// Send me this part of a region of yours.
    Get = 24,
    /// A message whose data is to be pulled into a region of yours.
    Put = 25,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Connect,
            2 => Self::Reply,
            3 => Self::Eager,
            4 => Self::Offer,
            5 => Self::Pull,
            6 => Self::Data,
            7 => Self::Notify,
            8 => Self::Withdraw,
            9 => Self::Credit,
            10 => Self::Disconnect,
            11 => Self::Ping,
            12 => Self::Pong,
            13 => Self::Revoke,
            14 => Self::Return,
            15 => Self::Claim,
            17 => Self::Challenge,
            18 => Self::Prove,
            19 => Self::Attach,
            20 => Self::Attached,
            21 => Self::Lost,
            22 => Self::Upgrade,
            23 => Self::Fence,
            24 => Self::Get,
            25 => Self::Put,
            _ => return None,
        })
    }

    /// Whether its header has the sender's credit fields. Introductions come before there are any.
    #[inline]
    pub(crate) fn has_credit_fields(self) -> bool {
        !matches!(
            self,
            Self::Connect
                | Self::Reply
                | Self::Claim
                | Self::Challenge
                | Self::Prove
                | Self::Attach
                | Self::Attached
        )
    }
}

/// A packet's header, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of packet.
    pub kind: Kind,
    /// Bytes of the body.
    pub body_len: u32,
    /// Match bits or a request id.
    pub word: u64,
    /// Message length, offset or bytes transferred.
    pub length: u32,
    /// A status; of a message, the slot it is in; of a Withdraw, whether an answer is wanted.
    pub aux: u32,
    /// The sender's credit fields.
    pub credit_fields: CreditFields,
}

impl Header {
    /// A header with everything but kind, word and length zero.
    #[inline]
    pub fn new(kind: Kind, word: u64, length: u32) -> Self {
        Self {
            kind,
            body_len: 0,
            word,
            length,
            aux: 0,
            credit_fields: CreditFields::default(),
        }
    }

    /// The header as it goes over the wire.
    #[inline]
    pub fn emit(&self) -> HeaderBytes {
        let mut bytes = [0; HEADER_LEN];
        let (credit, more, epoch) = self.credit_fields.words();
        (bytes[0], bytes[1]) = (self.kind as u8, epoch);
        bytes[2..4].copy_from_slice(&MAGIC);
        bytes[BODY_LEN_AT..8].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.word.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.aux.to_le_bytes());
        bytes[24..28].copy_from_slice(&credit.to_le_bytes());
        bytes[28..32].copy_from_slice(&more.to_le_bytes());
        bytes
    }

    /// `None` when the bytes are no header of ours.
    #[inline]
    pub fn parse(bytes: &HeaderBytes) -> Option<Self> {
        // Whole words, which stay in registers.
        let word_at = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_le_bytes);
        let (first, word) = (word_at(0)?, word_at(8)?);
        let (third, fourth) = (word_at(16)?, word_at(24)?);
        if (first >> 16) as u16 != u16::from_le_bytes(MAGIC) {
            return None;
        }
        let (credit, more) = (fourth as u32, (fourth >> 32) as u32);
        Some(Self {
            kind: Kind::from_byte(first as u8)?,
            body_len: (first >> (8 * BODY_LEN_AT)) as u32,
            word,
            length: third as u32,
            aux: (third >> 32) as u32,
            credit_fields: CreditFields::from_words(credit, more, (first >> 8) as u8),
        })
    }
}

/// The first part of the body of Connect and Reply: the identity of the sender, and its destination. The greeting
/// of the sender's owner and, in a Reply, a claim may follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    /// The oldest version that the sender understands.
    pub(crate) oldest: u16,
    /// Abilities of the sender beyond its version, a bit each.
    pub(crate) features: u32,
    /// Bytes of the greeting.
    pub(crate) greeting: u8,
    /// The number of the association at the sender.
    pub(crate) epoch: u16,
    pub(crate) key: u32,
    /// Its interface is what the sender believes it to be: for log lines only.
    pub(crate) identity: Identity,
    /// Under which name the receiver was called, or has called.
    pub(crate) to: (NicId, EndpointId),
    /// In a Connect, and in a Reply that accepts: a number that no other remote of the sender's has.
    pub(crate) nonce: Nonce,
}

impl Hello {
    pub(crate) fn emit(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[0..4].copy_from_slice(&HELLO_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.identity.endpoint.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.identity.nic.0.to_le_bytes());
        // Interfaces have 48 bits; what stands above them are other fields.
        bytes[22..24].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.identity.session.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.to.0.0.to_le_bytes());
        bytes[38] = self.greeting;
        bytes[40..44].copy_from_slice(&self.to.1.0.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.features.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.nonce);
        bytes
    }

    /// Whether both sides understand a version.
    pub(crate) fn is_understood(&self) -> bool {
        self.oldest <= VERSION && self.version >= OLDEST
    }

    /// The parts of a body behind the hello: the greeting, and what follows it. A later version's greeting may be
    /// longer than ours: its first bytes count. `None`: the greeting is longer than the body.
    pub(crate) fn behind<'a>(&self, body: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let behind = body.get(HELLO_LEN..).unwrap_or_default();
        let (greeting, rest) = behind.split_at_checked(self.greeting.into())?;
        Some((&greeting[..greeting.len().min(GREETING_MAX)], rest))
    }

    /// Parses the body. A later version may append to it; the first 32 bytes keep their meaning, so
    /// that a peer of a version that is not understood can be told so. Missing fields count as zeros.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Violation> {
        let mut bytes = [0; HELLO_LEN];
        let len = body.len().min(HELLO_LEN);
        bytes[..len].copy_from_slice(&body[..len]);
        let nic = |at| NicId(u64_at(&bytes, at) & NicId::MAX.0);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&bytes[48..64]);
        let hello = Self {
            version: u16::from_le_bytes([bytes[4], bytes[5]]),
            oldest: u16::from_le_bytes([bytes[22], bytes[23]]),
            features: u32_at(&bytes, 44),
            greeting: bytes[38],
            epoch: u16::from_le_bytes([bytes[6], bytes[7]]),
            key: u32_at(&bytes, 8),
            identity: Identity {
                endpoint: EndpointId(u32_at(&bytes, 12)),
                nic: nic(16),
                session: SessionId(u64_at(&bytes, 24)),
            },
            to: (nic(32), EndpointId(u32_at(&bytes, 40))),
            nonce,
        };
        let least = if hello.is_understood() {
            HELLO_LEN
        } else {
            HELLO_LEAST
        };
        if len < least || u32_at(&bytes, 0) != HELLO_MAGIC {
            return Err(Violation::Introduction);
        }
        Ok(hello)
    }
}

/// The body of a challenge. Its answer is nothing but a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChallengeBody {
    /// The identity of the called endpoint.
    pub(crate) identity: Identity,
    pub(crate) nonce: Nonce,
    /// Its proof.
    pub(crate) proof: ProofBytes,
}

impl ChallengeBody {
    /// All of it but the proof, which is about that.
    pub(crate) fn said(identity: &Identity, nonce: &Nonce) -> [u8; SAID_LEN] {
        let mut bytes = [0; SAID_LEN];
        bytes[0..8].copy_from_slice(&identity.nic.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&identity.session.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&identity.endpoint.0.to_le_bytes());
        bytes[24..40].copy_from_slice(nonce);
        bytes
    }

    pub(crate) fn emit(&self) -> [u8; CHALLENGE_LEN] {
        let mut bytes = [0; CHALLENGE_LEN];
        bytes[..SAID_LEN].copy_from_slice(&Self::said(&self.identity, &self.nonce));
        bytes[SAID_LEN..].copy_from_slice(&self.proof);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CHALLENGE_LEN] = bytes.try_into().ok()?;
        let mut nonce = Nonce::default();
        nonce.copy_from_slice(&bytes[24..SAID_LEN]);
        let mut proof = ProofBytes::default();
        proof.copy_from_slice(&bytes[SAID_LEN..]);
        Some(Self {
            identity: Identity {
                nic: NicId::new(u64_at(bytes, 0))?,
                session: SessionId(u64_at(bytes, 8)),
                endpoint: EndpointId(u32_at(bytes, 16)),
            },
            nonce,
            proof,
        })
    }
}

/// A process says that another session is its, too: behind the hello of a Reply, or in a Claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClaimBody {
    /// The receiver's number of that session.
    pub(crate) number: u64,
    /// The receiver's interfaces, as the sender knows them from this session and from that one.
    pub(crate) called: [NicId; 2],
    pub(crate) proof: Nonce,
}

impl ClaimBody {
    pub(crate) fn emit(&self) -> [u8; CLAIM_LEN] {
        let mut bytes = [0; CLAIM_LEN];
        bytes[0..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.called[0].0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.called[1].0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.proof);
        bytes
    }

    /// Parses a claim; a later version may append to it. `None`: there is none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..CLAIM_LEN)?;
        let mut proof = Nonce::default();
        proof.copy_from_slice(&bytes[24..]);
        Some(Self {
            number: u64_at(bytes, 0),
            called: [8, 16].map(|at| NicId(u64_at(bytes, at))),
            proof,
        })
    }
}

/// The body of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OfferBody {
    pub(crate) send_id: u64,
    pub(crate) key: Option<RemoteKey>,
}

impl OfferBody {
    /// The bytes, of which as many count as the second value says.
    pub(crate) fn emit(&self) -> ([u8; OFFER_KEY_LEN], usize) {
        let mut bytes = [0; OFFER_KEY_LEN];
        bytes[0..8].copy_from_slice(&self.send_id.to_le_bytes());
        let Some(key) = self.key else {
            return (bytes, OFFER_LEN);
        };
        bytes[8..16].copy_from_slice(&key.address.to_le_bytes());
        bytes[16..24].copy_from_slice(&key.key.to_le_bytes());
        (bytes, OFFER_KEY_LEN)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            OFFER_LEN => Some(Self {
                send_id: u64_at(bytes, 0),
                key: None,
            }),
            OFFER_KEY_LEN => Some(Self {
                send_id: u64_at(bytes, 0),
                key: Some(RemoteKey {
                    address: u64_at(bytes, 8),
                    key: u64_at(bytes, 16),
                }),
            }),
            _ => None,
        }
    }
}

/// The body of a pull.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PullBody {
    pub(crate) recv_id: u64,
    pub(crate) len: u32,
    /// Number of the link that the data is to come on, 0 for the command link; `None` without data links.
    pub(crate) link: Option<u32>,
}

impl PullBody {
    /// Returns the bytes, of which as many count as the second value says.
    pub(crate) fn emit(&self) -> ([u8; PULL_LINK_LEN], usize) {
        let mut bytes = [0; PULL_LINK_LEN];
        bytes[0..8].copy_from_slice(&self.recv_id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        let Some(link) = self.link else {
            return (bytes, PULL_LEN);
        };
        bytes[12..16].copy_from_slice(&link.to_le_bytes());
        (bytes, PULL_LINK_LEN)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let link = match bytes.len() {
            PULL_LEN => None,
            PULL_LINK_LEN => Some(u32_at(bytes, 12)),
            _ => return None,
        };
        Some(Self {
            recv_id: u64_at(bytes, 0),
            len: u32_at(bytes, 8),
            link,
        })
    }
}

/// The body of a get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GetBody {
    pub(crate) recv_id: u64,
    pub(crate) len: u32,
    /// Number of the link that the data is to come on, 0 for the command link.
    pub(crate) link: u32,
    /// Offset in the region of the first byte of the whole get.
    pub(crate) offset: u64,
    /// Bytes of the whole get.
    pub(crate) whole: u32,
}

impl GetBody {
    pub(crate) fn emit(&self) -> [u8; GET_LEN] {
        let mut bytes = [0; GET_LEN];
        bytes[0..8].copy_from_slice(&self.recv_id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.link.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.whole.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; GET_LEN] = bytes.try_into().ok()?;
        Some(Self {
            recv_id: u64_at(bytes, 0),
            len: u32_at(bytes, 8),
            link: u32_at(bytes, 12),
            offset: u64_at(bytes, 16),
            whole: u32_at(bytes, 24),
        })
    }
}

/// The body of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PutBody {
    pub(crate) send_id: u64,
    /// Offset in the region of the first byte.
    pub(crate) offset: u64,
}

impl PutBody {
    pub(crate) fn emit(&self) -> [u8; PUT_LEN] {
        let mut bytes = [0; PUT_LEN];
        bytes[0..8].copy_from_slice(&self.send_id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PUT_LEN] = bytes.try_into().ok()?;
        Some(Self {
            send_id: u64_at(bytes, 0),
            offset: u64_at(bytes, 8),
        })
    }
}

/// Callers pass an `at` that lies within the fixed-size array they hold.
#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind) -> Header {
        Header {
            kind,
            body_len: 0x0102_0304,
            word: 0x1122_3344_5566_7788,
            length: 77,
            aux: 5,
            credit_fields: CreditFields::from_words(u32::MAX, 0x1234_5678, 7),
        }
    }

    #[test]
    fn every_kind_survives_the_wire() {
        for byte in 0..=255u8 {
            let Some(kind) = Kind::from_byte(byte) else {
                continue;
            };
            assert_eq!(kind as u8, byte);
            assert_eq!(Header::parse(&header(kind).emit()), Some(header(kind)));
        }
    }

    #[test]
    fn a_wrong_kind_or_magic_is_no_header() {
        let good = header(Kind::Eager).emit();
        for (at, value) in [(0, 0), (0, 16), (0, 26), (0, 255), (2, b'm'), (3, b'x')] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Header::parse(&bad), None, "byte {at} = {value}");
        }
    }

    #[test]
    fn bodies_survive_the_wire_and_wrong_lengths_are_refused() {
        let hello = Hello {
            version: VERSION,
            oldest: OLDEST,
            features: 0x8000_0001,
            greeting: 3,
            epoch: 0x0405,
            key: 0x7076_6673,
            identity: Identity {
                nic: NicId(0xfeed),
                endpoint: EndpointId(3),
                session: SessionId(u64::MAX),
            },
            to: (NicId(0xbeef), EndpointId(7)),
            nonce: [9; NONCE_LEN],
        };
        assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
        assert!(Hello::parse(&hello.emit()[..HELLO_LEN - 1]).is_err());
        let claim = ClaimBody {
            number: 0xcafe,
            called: [NicId(7), NicId(8)],
            proof: hello.nonce,
        };
        let longer = [&claim.emit()[..], &[7]].concat();
        assert_eq!(ClaimBody::parse(&longer), Some(claim));
        assert_eq!(ClaimBody::parse(&longer[..CLAIM_LEN - 1]), None);
        let challenge = ChallengeBody {
            identity: hello.identity,
            nonce: [7; NONCE_LEN],
            proof: [8; PROOF_LEN],
        };
        assert_eq!(ChallengeBody::parse(&challenge.emit()), Some(challenge));
        assert_eq!(ChallengeBody::parse(&challenge.emit()[1..]), None);
        let said = [&hello.emit()[..], b"abc", b"more"].concat();
        assert_eq!(hello.behind(&said), Some((&b"abc"[..], &b"more"[..])));
        assert_eq!(hello.behind(&said[..HELLO_LEN + 2]), None);
        let longer = Hello {
            greeting: GREETING_MAX as u8 + 1,
            ..hello
        };
        let said = [0; HELLO_LEN + GREETING_MAX + 3];
        let parts = (&[0; GREETING_MAX][..], &[0; 2][..]);
        assert_eq!(longer.behind(&said), Some(parts));
        // Another version is recognised by what all have.
        for (version, oldest) in [(4, 0), (60_000, 60_000)] {
            let other = Hello {
                version,
                oldest,
                ..hello
            };
            let short = Hello::parse(&other.emit()[..HELLO_LEAST]).unwrap();
            assert_eq!((short.version, short.oldest), (version, oldest));
            assert_eq!(short.identity, hello.identity);
            assert_eq!((short.nonce, short.features), (Nonce::default(), 0));
            assert!(Hello::parse(&other.emit()[..HELLO_LEAST - 1]).is_err());
        }
        let key = Some(RemoteKey { address: 1, key: 2 });
        for offer in [
            OfferBody {
                send_id: 7,
                key: None,
            },
            OfferBody { send_id: 7, key },
        ] {
            let (bytes, len) = offer.emit();
            assert_eq!(OfferBody::parse(&bytes[..len]), Some(offer));
        }
        assert_eq!(OfferBody::parse(&[0; 9]), None);
        for link in [None, Some(0), Some(7)] {
            let pull = PullBody {
                recv_id: 8,
                len: 9,
                link,
            };
            let (bytes, len) = pull.emit();
            assert_eq!(PullBody::parse(&bytes[..len]), Some(pull));
        }
        for wrong in [11, 13, 15, 17] {
            assert_eq!(PullBody::parse(&[0; 17][..wrong]), None);
        }
        let get = GetBody {
            recv_id: 8,
            len: 9,
            link: 10,
            offset: u64::MAX - 11,
            whole: 0x0102_0304,
        };
        assert_eq!(GetBody::parse(&get.emit()), Some(get));
        let put = PutBody {
            send_id: 12,
            offset: u64::MAX - 13,
        };
        assert_eq!(PutBody::parse(&put.emit()), Some(put));
        let (get, put) = (get.emit(), put.emit());
        assert_eq!(GetBody::parse(&get[1..]), None);
        assert_eq!(PutBody::parse(&put[1..]), None);
        assert_eq!(PutBody::parse(&get), None);
    }

    #[test]
    fn two_versions_speak_if_one_understands_the_other() {
        let hello = |version, oldest| Hello {
            version,
            oldest,
            features: u32::MAX,
            greeting: 0,
            epoch: 1,
            key: 2,
            identity: Identity {
                nic: NicId::MAX,
                endpoint: EndpointId(3),
                session: SessionId(1),
            },
            to: (NicId::MAX, EndpointId(7)),
            nonce: [5; NONCE_LEN],
        };
        for (version, oldest, understood) in [
            (VERSION, OLDEST, true),
            (VERSION + 1, VERSION, true),
            (u16::MAX, 0, true),
            (u16::MAX, VERSION + 1, false),
            (OLDEST - 1, 0, false),
            (0, 0, false),
            (0, u16::MAX, false),
        ] {
            let hello = hello(version, oldest);
            assert_eq!(hello.is_understood(), understood, "{version} {oldest}");
            assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
        }
    }

    #[test]
    fn a_challenge_with_a_nic_id_of_more_than_48_bits_is_refused() {
        for (nic, fits) in [(NicId::MAX.0, true), (1 << 48, false)] {
            let challenge = ChallengeBody {
                identity: Identity {
                    nic: NicId(nic),
                    endpoint: EndpointId(3),
                    session: SessionId(1),
                },
                nonce: [5; NONCE_LEN],
                proof: [8; PROOF_LEN],
            };
            assert_eq!(ChallengeBody::parse(&challenge.emit()).is_some(), fits);
        }
    }
}
