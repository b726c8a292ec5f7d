//! Datagrams that were never sent: headers field by field, with sums that are right.
//!
//! ```text
//!   pattern: a true datagram's header, or a blank one
//!      `- cookies: of a session, half of them, none     `- fields: near what they were, or any
//!           `- payload: zeros, a packet, the pattern's      `- sealed: CRC-32C of both
//! ```
//!
//! Written from the description of the header (`reliability/packet.rs`), not with its code: what
//! both get wrong would go unseen.

use crate::input::Input;
use crate::net::{Address, Datagram};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a datagram's header.
pub(crate) const HEADER: usize = 64;

pub(crate) const HELLO: u8 = 1;
pub(crate) const WELCOME: u8 = 2;
pub(crate) const DATA: u8 = 3;

pub(crate) const SUMMED: u16 = 4;
pub(crate) const OPENING: u16 = 8;

/// Where fields stand, and how long they are.
const FIELDS: [(usize, usize); 10] = [
    (3, 1),
    (24, 4),
    (28, 4),
    (32, 8),
    (40, 4),
    (44, 2),
    (46, 2),
    (48, 4),
    (52, 4),
    (56, 4),
];

/// The datagrams on the wire, as a machine on the path sees them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// All cookies that were ever said by a port, or to one.
    pub(crate) cookies: BTreeSet<u64>,
    /// The last Welcome to a stranger.
    pub(crate) welcomes: BTreeMap<Address, Vec<u8>>,
}

impl Seen {
    pub(crate) fn note(&mut self, datagram: &Datagram) {
        let bytes = &datagram.bytes;
        if datagram.to.0 >= 2 {
            if bytes[3] == WELCOME {
                self.welcomes.insert(datagram.to, bytes.clone());
            }
            return;
        }
        self.cookies.extend([to_of(bytes), from_of(bytes)]);
    }
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u64_at(bytes, at.min(56)).wrapping_shr(8 * (at - at.min(56)) as u32) as u32
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn to_of(bytes: &[u8]) -> u64 {
    u64_at(bytes, 8)
}

pub(crate) fn from_of(bytes: &[u8]) -> u64 {
    u64_at(bytes, 16)
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: u64, len: usize) {
    bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
}

/// A header of this kind with nothing else in it, and `payload` zeros behind it.
pub(crate) fn blank(kind: u8, to: u64, from: u64, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER + payload];
    bytes[..4].copy_from_slice(&[b'm', b'R', 3, kind]);
    put(&mut bytes, 8, to, 8);
    put(&mut bytes, 16, from, 8);
    put(&mut bytes, 46, payload as u64, 2);
    bytes
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Makes the sums right. Anything shorter than a header is left as it is.
pub(crate) fn seal(bytes: &mut [u8]) {
    if bytes.len() < HEADER {
        return;
    }
    let (head, payload) = bytes.split_at_mut(HEADER);
    if u16_at(head, 44) & SUMMED != 0 {
        put(head, 60, crc32c(payload).into(), 4);
    }
    head[4..8].fill(0);
    let sum = crc32c(head);
    put(head, 4, sum.into(), 4);
}

/// Changes some of the numbers of a datagram, and perhaps its payload.
pub(crate) fn mend(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    for _ in 0..input.below(6) {
        let (at, len) = input.choose(&FIELDS);
        let known = u64_at(bytes, at.min(HEADER - 8)) >> (8 * (at - at.min(HEADER - 8)));
        let value = match len {
            1 => u64::from(input.byte() % 10),
            2 => input.choose(&[0, 1, 2, 4, 5, 8, 12, 64]),
            8 if input.byte() & 1 == 0 => input.u64(),
            8 => 1u64.rotate_left(input.byte().into()).wrapping_neg(),
            _ => input.near(known as u32).into(),
        };
        if at != 46 {
            put(bytes, at, value, len);
        }
    }
    match input.byte() {
        // As long as it was.
        0 => {}
        1 => bytes.resize(HEADER, 0),
        2 => bytes.resize(HEADER + 65, 0),
        3 => bytes.resize(HEADER + 8 * input.below(20), 0xff),
        4 => pack(bytes, input),
        5 => bytes.resize(HEADER + input.below(1500), 7),
        6 => bytes.resize(HEADER + input.below(20_000), 7),
        _ => {
            let len = input.below(60);
            bytes.truncate(HEADER);
            bytes.extend_from_slice(input.bytes(len));
        }
    }
    // Mostly the length is told as it is.
    if input.byte() != 1 {
        let payload = (bytes.len() - HEADER) as u64;
        put(bytes, 46, payload, 2);
    }
    if input.byte() & 1 == 1 {
        let flags = u16_at(bytes, 44) | SUMMED;
        put(bytes, 44, flags.into(), 2);
    }
}

/// The payload becomes a chunk that begins with a packet's header, or a later one of it.
fn pack(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    let body = input.choose(&[0usize, 1, 10, 500, 3000, 8192, 8193, 16_384, 20_000]);
    let len = HEADER_OF_PACKET + body;
    let offset = match input.byte() {
        0 | 1 => 0,
        2 => HEADER_OF_PACKET,
        _ => input.below(len + 1),
    };
    let part = match input.byte() {
        0 => len.saturating_sub(offset),
        _ => input.below(1400).min(len.saturating_sub(offset)),
    };
    bytes.truncate(HEADER);
    bytes.resize(HEADER + part, FOREIGN);
    if offset == 0 && part >= HEADER_OF_PACKET {
        put(bytes, HEADER + 4, body as u64, 4);
        bytes[HEADER + 1] = input.byte() & 1;
    }
    put(bytes, 52, offset as u64, 4);
    put(bytes, 56, len as u64, 4);
}

const HEADER_OF_PACKET: usize = 32;

/// Marks packets that the ends did not send.
pub(crate) const FOREIGN: u8 = 0xee;
