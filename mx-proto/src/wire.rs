//! Wire: the packets of the MX protocol; the only place that parses them.
//!
//! ```text
//!  0      1      2             4                           8
//!  +------+------+-------------+---------------------------+
//!  | kind |epoch | magic "MX"  | body length (u32)         |
//!  +------+------+-------------+---------------------------+
//!  | word: match bits, or the id of a request (u64)        |
//!  +---------------------------+---------------------------+
//!  | length: of message, offset| aux: status, or slot      |
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
//! | Data       | receive id   | offset      | number of the Pull | bytes             |
//! | Notify     | send id      | transferred | status | -                             |
//! | Withdraw   | send id, or receive id of a get | - | 1: answer, 2: of a get | -     |
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
//! | Attached   | -            | link number | maximum number of links | proof of the session |
//! | Lost       | -            | link number | -      | -                             |
//! | Upgrade    | -            | fabric      | reason for refusal | address on the fabric |
//! | Fence      | -            | -           | -      | -                             |
//! | Get        | region's key | offset      | number | receive id, length, link, offset in the region, length of the whole |
//! | Put        | region's key | length      | -      | send id, offset in the region |
//!
//! Epoch, credit, slots and wanted are the sender's [`CreditFields`]: the total of credits that the other side's
//! messages may have cost, its slot messages that have been taken, and the credits that the sender requests. All
//! packets of a session carry them except introductions: Connect and Reply carry the initial credits, the others none.
//! A Revoke requests unused credits back; the answer, a Return, says how many count as used.
//!
//! Out of scope: remotes, requests, ports.

use crate::event::Identity;
use crate::flow::CreditFields;
use crate::ids::{EndpointId, NicId, SessionId};
use crate::port::{BODY_LEN_AT, FABRIC_DGRAM, FABRIC_RDM, HEADER_LEN, HeaderBytes, RemoteKey};
use crate::secret::{NONCE_LEN, Nonce, PROOF_LEN, ProofBytes};
use crate::status::Violation;

/// Newest version of the packet format that this code understands, which it states in its hellos.
pub const VERSION: u16 = 8;

/// Oldest version of the packet format that this code understands. Two sides use the older of their newest versions; if
/// one of them does not understand it, the call is refused.
pub const OLDEST: u16 = 8;

/// Maximum length in bytes of an owner's greeting in a hello.
pub const GREETING_MAX: usize = 64;

const MAGIC: [u8; 2] = *b"MX";
const HELLO_MAGIC: u32 = u32::from_le_bytes(*b"MXs1");

/// Length in bytes of a hello, the first part of the body of a Connect or Reply. The owner's greeting follows.
pub const HELLO_LEN: usize = 64;
/// Length of its first part, which every version has.
const HELLO_LEAST: usize = 32;
/// Length in bytes of a challenge's body; `SAID_LEN`: of its part before the proof.
const CHALLENGE_LEN: usize = SAID_LEN + PROOF_LEN;
pub(crate) const SAID_LEN: usize = 40;
/// Length in bytes of a claim.
pub(crate) const CLAIM_LEN: usize = 40;
/// Length in bytes of an offer's body without a remote key; `OFFER_KEY_LEN`: with one.
const OFFER_LEN: usize = 8;
const OFFER_KEY_LEN: usize = 24;
/// Length in bytes of a pull's body without a link number; `PULL_LINK_LEN`: with one.
const PULL_LEN: usize = 12;
const PULL_LINK_LEN: usize = 16;
/// Lengths in bytes of the bodies of a get and a put.
const GET_LEN: usize = 28;
const PUT_LEN: usize = 16;
/// `aux` of a Withdraw whose sender waits for a Notify, after which its memory is not read. (A peer that does not know
/// of it sends none, and the wait is short.)
pub(crate) const ANSWER: u32 = 1;
/// `aux` of a Withdraw whose word is the receive id of a cancelled get.
pub(crate) const OF_GET: u32 = 2;
/// Feature of a hello: data links beside the session's command link.
pub(crate) const DATA_LINKS: u32 = 1;
/// Feature of a hello: registered memory that the peer may access.
pub(crate) const REGIONS: u32 = 2;
/// Features of a hello: moves to these fabrics.
pub(crate) const FABRICS: u32 = FABRIC_RDM | FABRIC_DGRAM;

/// Kind of a packet; the table in the module's documentation lists the fields of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Request to begin a session.
    Connect = 1,
    /// Answer to a Connect.
    Reply = 2,
    /// Message with its data.
    Eager = 3,
    /// Message whose data is to be pulled.
    Offer = 4,
    /// Request for a part of an offered message.
    Pull = 5,
    /// Part of a pulled message.
    Data = 6,
    /// End of an offered message: the receiver wants no more of it.
    Notify = 7,
    /// Withdrawal of an offered message.
    Withdraw = 8,
    /// Packet with nothing but the credit fields of its header.
    Credit = 9,
    /// End of the session.
    Disconnect = 10,
    /// Request for a Pong.
    Ping = 11,
    /// Answer to a Ping; one Pong may answer several.
    Pong = 12,
    /// Request to return this many unneeded credits, because other peers want them.
    Revoke = 13,
    /// Answer to a Revoke: the number of credits returned, perhaps none.
    Return = 14,
    /// Claim that another session of the receiver's belongs to the sender, too.
    Claim = 15,
    /// Request for a proof of the site's secret, with the sender's own proof.
    Challenge = 17,
    /// Answer to a Challenge.
    Prove = 18,
    /// Claim by the caller that this link is a data link of a session.
    Attach = 19,
    /// Answer to an Attach.
    Attached = 20,
    /// Loss of a data link; number 0: the session does not move.
    Lost = 21,
    /// Sender's address on a fabric to which the session may move.
    Upgrade = 22,
    /// Last packet of the sender on this link; on a fabric's link: confirms that the other side's Fence has been read.
    Fence = 23,
    /// Request for a part of a region of the receiver's.
    Get = 24,
    /// Message whose data is to be pulled into a region of the receiver's.
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

    /// Returns whether the header has the sender's credit fields. Introductions come before there are any.
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

/// Parsed header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the packet.
    pub kind: Kind,
    /// Length of the body in bytes.
    pub body_len: u32,
    /// Match bits or the id of a request, depending on the kind.
    pub word: u64,
    /// Length of the whole message, offset, number of bytes transferred, or number of credits, depending on the kind.
    /// The body's length is `body_len`.
    pub length: u32,
    /// Status or another small number, depending on the kind; in a message the slot that pays for it, 0 for credits
    /// ([`Payment::aux`](crate::flow::Payment::aux)).
    pub aux: u32,
    /// Sender's credit fields.
    pub credit_fields: CreditFields,
}

impl Header {
    /// Makes a header with the fields `word` (match bits or a request id) and `length` (message length, offset or bytes
    /// transferred). All other fields are 0, the length of the body too.
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

    /// Returns the header's 32 bytes in wire format.
    #[inline]
    pub fn emit(&self) -> HeaderBytes {
        let (credit, more, epoch) = self.credit_fields.words();
        let magic = u32::from(u16::from_le_bytes(MAGIC)) << 16;
        let first = u32::from(self.kind as u8) | u32::from(epoch) << 8 | magic;
        // Whole words, which stay in registers.
        let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let (first, third) = (word(first, self.body_len), word(self.length, self.aux));
        let words = [first, self.word, third, word(credit, more)];
        let mut bytes = [0; HEADER_LEN];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses a header. `None`: the bytes are no header of this protocol, or of an unknown kind. The body's length is
    /// not checked.
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

/// First part of the body of Connect and Reply: the identity of the sender, and its destination. The greeting of the
/// sender's owner and, in a Reply, a claim may follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    /// Oldest version that the sender understands.
    pub(crate) oldest: u16,
    /// Abilities of the sender beyond its version, a bit each.
    pub(crate) features: u32,
    /// Length of the greeting in bytes.
    pub(crate) greeting: u8,
    /// Sender's number of the association.
    pub(crate) epoch: u16,
    pub(crate) key: u32,
    /// Identity of the sender; its interface is what the sender believes it to be, for log lines only.
    pub(crate) identity: Identity,
    /// Name under which the receiver was called, or has called.
    pub(crate) to: (NicId, EndpointId),
    /// Number that no other remote of the sender has; in a Connect, and in a Reply that accepts.
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
        // Interfaces have 48 bits; the bits above are other fields.
        bytes[22..24].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.identity.session.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.to.0.0.to_le_bytes());
        bytes[38] = self.greeting;
        bytes[40..44].copy_from_slice(&self.to.1.0.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.features.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.nonce);
        bytes
    }

    /// Returns whether there is a version that both sides understand.
    pub(crate) fn is_understood(&self) -> bool {
        self.oldest <= VERSION && self.version >= OLDEST
    }

    /// Returns the parts of a body after the hello: the greeting, and what follows it. Only the first bytes count if a
    /// later version's greeting is longer than ours can be. `None`: the greeting is longer than the body.
    pub(crate) fn behind<'a>(&self, body: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let behind = body.get(HELLO_LEN..).unwrap_or_default();
        let (greeting, rest) = behind.split_at_checked(self.greeting.into())?;
        Some((&greeting[..greeting.len().min(GREETING_MAX)], rest))
    }

    /// Parses the body. A later version may append to it; the first 32 bytes keep their meaning, so that a peer with an
    /// unknown version can be told so. Missing fields count as zeros.
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

/// Body of a challenge. The body of its answer is just a proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChallengeBody {
    pub(crate) identity: Identity,
    pub(crate) nonce: Nonce,
    pub(crate) proof: ProofBytes,
}

impl ChallengeBody {
    /// Returns the part before the proof, which the proof covers.
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

/// Claim of a process that another session belongs to it, too: after the hello of a Reply, or in a Claim packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClaimBody {
    /// Receiver's number of that session.
    pub(crate) number: u64,
    /// Receiver's interfaces, as the sender knows them from this session and from that one.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OfferBody {
    pub(crate) send_id: u64,
    pub(crate) key: Option<RemoteKey>,
}

impl OfferBody {
    /// Returns the bytes in wire format, and how many of them count.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PullBody {
    pub(crate) recv_id: u64,
    pub(crate) len: u32,
    /// Number of the link for the data, 0 for the command link; `None` without data links.
    pub(crate) link: Option<u32>,
}

impl PullBody {
    /// Returns the bytes in wire format, and how many of them count.
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GetBody {
    pub(crate) recv_id: u64,
    pub(crate) len: u32,
    /// Number of the link for the data, 0 for the command link.
    pub(crate) link: u32,
    /// Offset in the region of the first byte of the whole get.
    pub(crate) offset: u64,
    /// Length of the whole get in bytes.
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

/// Reads a number. Callers pass an `at` that lies within the fixed-size array they hold.
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
        // Another version is recognised by the part that all have.
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
