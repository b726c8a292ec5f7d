//! Layout of a published page.
//!
//! ```text
//!   word   0        1               2          3             4                 5     6         7
//!          magic    version, count  sequence   pid, board    endpoint, ports   nic   session   opened
//!   8      library (16 bytes)      10  provider (48 bytes)
//!   16     labels, 32 bytes each, 200 of them                           texts end at the first 0
//!   816    values, a word each, 200 of them                             to 1016
//!   1016   number of rows that may have a peer                          one word; to 1024
//!   1024   peers, 14 words each, 4096 of them                            see `peers`
//! ```
//!
//! Words have the machine's byte order; of two halves the first is the lower one. Ports, provider and values change;
//! while they do, the sequence is odd. Everything else is written once, the magic last. Labels are in the page, so that
//! a tool shows the counters of an older or newer library.
//!
//! Out of scope: mapping and reading.

use mx_port_base::ports::PortInfo;

/// Length in bytes of the part under the sequence number: two pages of 4 KiB.
pub(super) const LEN: usize = 8192;

/// Length in bytes with the peers' rows, of which only used ones occupy memory.
pub(super) const LEN_WITH_PEERS: usize = (LEN + PEERS_MAX * PEER_WORDS * 8).next_multiple_of(LEN);

/// Maximum number of peers shown.
pub(super) const PEERS_MAX: usize = 4096;

pub(super) const PEER_WORDS: usize = 14;

/// `MXENDPT` and a 0 byte, read as a word.
pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"MXENDPT\0");

/// Version of this layout, incremented with every change.
pub(super) const VERSION: u32 = 4;

/// Name of the memory file.
pub(super) const NAME: &std::ffi::CStr = c"mx-endpoint";

/// Target of the link in `/proc` for a page's descriptor.
pub(super) const LINK: &[u8] = b"/memfd:mx-endpoint (deleted)";

pub(super) const MAGIC_AT: usize = 0;
pub(super) const VERSION_AT: usize = 1;
pub(super) const SEQUENCE_AT: usize = 2;
pub(super) const PROCESS_AT: usize = 3;
pub(super) const ENDPOINT_AT: usize = 4;
pub(super) const NIC_AT: usize = 5;
pub(super) const SESSION_AT: usize = 6;
/// Time of opening, in nanoseconds since 1970.
pub(super) const OPENED_AT: usize = 7;
pub(super) const LIBRARY_AT: usize = 8;
pub(super) const LIBRARY_WORDS: usize = 2;
pub(super) const PROVIDER_AT: usize = 10;
pub(super) const PROVIDER_WORDS: usize = 6;
pub(super) const LABELS_AT: usize = 16;
pub(super) const LABEL_WORDS: usize = 4;
pub(super) const VALUES_AT: usize = 816;
pub(super) const PEERS_AT: usize = 1016;

/// Maximum number of counters in a page.
pub(super) const COUNTERS_MAX: usize = 200;

/// Returns the bit of an open port; 0 for loopback, which is not shown.
pub(crate) fn port_bit(port: &PortInfo) -> u32 {
    port.route.map_or(0, |route| 1 << (route.0 - 1))
}

const _: () = {
    assert!(LIBRARY_AT + LIBRARY_WORDS == PROVIDER_AT);
    assert!(PROVIDER_AT + PROVIDER_WORDS == LABELS_AT);
    assert!(LABELS_AT + LABEL_WORDS * COUNTERS_MAX == VALUES_AT);
    assert!(VALUES_AT + COUNTERS_MAX == PEERS_AT);
    assert!((PEERS_AT + 1) * 8 <= LEN);
};

/// Joins two halves to a word, the lower first.
pub(super) const fn word(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Splits a word into halves, the lower first.
pub(super) const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Returns a text in `N` words, truncated to leave room for a final 0. Unprintable bytes become `?`.
pub(super) fn text<const N: usize>(text: &str) -> [u64; N] {
    let mut words = [0u64; N];
    // The last byte stays 0.
    let bytes = text.bytes().take(N * 8 - 1);
    for (index, byte) in bytes.enumerate() {
        let mut bytes = words[index / 8].to_ne_bytes();
        bytes[index % 8] = match byte {
            b' '..=b'~' => byte,
            _ => b'?',
        };
        words[index / 8] = u64::from_ne_bytes(bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_printable_and_end_in_the_room_there_is() {
        let bytes = |words: [u64; 2]| words.map(u64::to_ne_bytes).concat();
        assert_eq!(bytes(text("bmi_mx")), *b"bmi_mx\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes(text("0123456789abcdefg")), *b"0123456789abcde\0");
        assert_eq!(bytes(text("a\n\u{e4}")), *b"a???\0\0\0\0\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn halves_come_back_from_their_word() {
        assert_eq!(halves(word(1, u32::MAX)), (1, u32::MAX));
        assert_eq!(halves(word(u32::MAX, 0)), (u32::MAX, 0));
    }
}
