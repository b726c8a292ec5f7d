//! Forged datagrams: headers built field by field, with valid sums.
//!
//! ```text
//!   pattern: a true datagram's header, or a blank one
//!      `- cookies: of a session, one of them, none      `- fields: near the old values, or any
//!           `- payload: zeros, a packet, the pattern's      `- sealed: CRC-32C of both
//! ```

use crate::input::Input;
use crate::net::{Address, Datagram};
use crate::packets::put;
use mx_proto::port::BODY_LEN_AT;
use mx_sim::datagram::header::{
    ACKED, FLAGS, FRAGMENT, FROM, Field, HEADER, KIND, OFFSET, PAYLOAD, SACK, SEQ, SUMMED, TO,
    WELCOME, WHOLE, WINDOW, is_kind,
};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that a forger changes.
const FIELDS: [Field; 10] = [
    KIND, SEQ, ACKED, SACK, WINDOW, FLAGS, PAYLOAD, FRAGMENT, OFFSET, WHOLE,
];

/// Datagrams on the wire, as a machine on the path sees them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Cookies that a port has sent or received.
    pub(crate) cookies: BTreeSet<u64>,
    /// Latest Welcome to each stranger.
    pub(crate) welcomes: BTreeMap<Address, Vec<u8>>,
}

impl Seen {
    pub(crate) fn note(&mut self, datagram: &Datagram) {
        let bytes = &datagram.bytes;
        if datagram.to.0 >= 2 {
            if is_kind(bytes, WELCOME) {
                self.welcomes.insert(datagram.to, bytes.clone());
            }
            return;
        }
        self.cookies.extend([TO.of(bytes), FROM.of(bytes)]);
    }
}

/// Changes some fields of a datagram, and perhaps its payload.
pub(crate) fn mend(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    for _ in 0..input.below(6) {
        let field = input.choose(&FIELDS);
        let known = field.of(bytes);
        let value = match field.len {
            1 => u64::from(input.byte() % 10),
            2 => input.choose(&[0, 1, 2, 4, 5, 8, 12, 64]),
            8 if input.byte() & 1 == 0 => input.u64(),
            8 => 1u64.rotate_left(input.byte().into()).wrapping_neg(),
            _ => input.near(known as u32).into(),
        };
        if field != PAYLOAD {
            field.put(bytes, value);
        }
    }
    match input.byte() {
        // The length stays the same.
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
    // The length field is correct in most cases.
    if input.byte() != 1 {
        let payload = (bytes.len() - HEADER) as u64;
        PAYLOAD.put(bytes, payload);
    }
    if input.byte() & 1 == 1 {
        let flags = FLAGS.of(bytes) | SUMMED;
        FLAGS.put(bytes, flags);
    }
}

/// Makes the payload a chunk: a packet's first, with its header, or a later one.
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
        put(bytes, HEADER + BODY_LEN_AT, body as u64, 4);
        bytes[HEADER + 1] = input.byte() & 1;
    }
    OFFSET.put(bytes, offset as u64);
    WHOLE.put(bytes, len as u64);
}

const HEADER_OF_PACKET: usize = 32;

/// Mark of packets that the ends did not send.
pub(crate) const FOREIGN: u8 = 0xee;
