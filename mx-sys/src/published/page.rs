//! A published page as a tool reads it.
//!
//! ```text
//!   8192 bytes --parse--> Page, or None: not a page, or not one of this version
//! ```
//!
//! The bytes belong to another process: each is read once, numbers are checked before use, and texts must be printable.
//!
//! Owns: a copy.

use super::layout::{self, halves};
use mx_port_base::ports::PORTS;
use mx_proto::{EndpointId, NicId, SessionId};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Contents of an endpoint's page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Library that opened the endpoint: `bmi_mx`, `myriexpress` or `na_plugin_mx`.
    pub library: String,
    /// Process id in the owner's PID namespace; in a container it differs from [`Found::pid`](super::Found::pid).
    pub own_pid: u32,
    /// Board number.
    pub board: u32,
    /// Endpoint number.
    pub endpoint: EndpointId,
    /// NIC id of the endpoint's interface.
    pub nic: NicId,
    /// Number of this opening of the endpoint.
    pub session: SessionId,
    /// Time of opening.
    pub opened: SystemTime,
    /// Names of the open ports.
    pub ports: Vec<&'static str>,
    /// Name of libfabric's provider; empty if none is open.
    pub provider: String,
    /// Counters: label and value.
    pub counters: Vec<(String, u64)>,
    /// Whether all counters are of one moment; false if the owner was stopped while it wrote them.
    pub consistent: bool,
    /// Number of rows that may contain a peer.
    pub(super) peers: usize,
}

/// Bytes of a page.
pub(super) type Bytes = [u8; layout::LEN];

fn word(bytes: &Bytes, at: usize) -> Option<u64> {
    let bytes = bytes.get(at * 8..)?.first_chunk::<8>()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// Returns the sequence number in a page.
pub(super) fn sequence(bytes: &Bytes) -> u64 {
    word(bytes, layout::SEQUENCE_AT).unwrap_or(1)
}

impl Page {
    pub(super) fn parse(bytes: &Bytes, consistent: bool) -> Option<Self> {
        if word(bytes, layout::MAGIC_AT)? != layout::MAGIC {
            return None;
        }
        let (version, count) = halves(word(bytes, layout::VERSION_AT)?);
        let count = usize::try_from(count).ok()?;
        if version != layout::VERSION || count > layout::COUNTERS_MAX {
            return None;
        }
        let (own_pid, board) = halves(word(bytes, layout::PROCESS_AT)?);
        let (endpoint, ports) = halves(word(bytes, layout::ENDPOINT_AT)?);
        let opened = Duration::from_nanos(word(bytes, layout::OPENED_AT)?);
        let mut counters = Vec::with_capacity(count);
        for place in 0..count {
            let label = layout::LABELS_AT + place * layout::LABEL_WORDS;
            let label = text(bytes, label, layout::LABEL_WORDS)?;
            counters.push((label, word(bytes, layout::VALUES_AT + place)?));
        }
        Some(Self {
            library: text(bytes, layout::LIBRARY_AT, layout::LIBRARY_WORDS)?,
            own_pid,
            board,
            endpoint: EndpointId(endpoint),
            nic: NicId::new(word(bytes, layout::NIC_AT)?)?,
            session: SessionId(word(bytes, layout::SESSION_AT)?),
            opened: UNIX_EPOCH.checked_add(opened)?,
            ports: {
                let open = PORTS
                    .iter()
                    .filter(|port| ports & layout::port_bit(port) != 0);
                open.map(|port| port.name).collect()
            },
            provider: text(bytes, layout::PROVIDER_AT, layout::PROVIDER_WORDS)?,
            counters,
            consistent,
            peers: usize::try_from(word(bytes, layout::PEERS_AT)?)
                .unwrap_or(usize::MAX)
                .min(layout::PEERS_MAX),
        })
    }
}

/// Parses a text of printable ASCII with a final 0 in `words` words; `None` otherwise.
fn text(bytes: &Bytes, at: usize, words: usize) -> Option<String> {
    let room = bytes.get(at * 8..(at + words) * 8)?;
    let text = room.split(|byte| *byte == 0).next()?;
    let printable = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    if text.len() < room.len() && printable {
        String::from_utf8(text.to_vec()).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[(usize, u64)]) -> Bytes {
        let mut bytes = [0; layout::LEN];
        for (at, word) in words {
            bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn good(count: u32) -> Vec<(usize, u64)> {
        vec![
            (layout::MAGIC_AT, layout::MAGIC),
            (layout::VERSION_AT, layout::word(layout::VERSION, count)),
        ]
    }

    #[test]
    fn pages_of_other_kinds_are_no_pages() {
        assert!(Page::parse(&page(&good(0)), true).is_some());
        assert!(Page::parse(&page(&[]), true).is_none());
        assert!(Page::parse(&[0xff; layout::LEN], true).is_none());
        let mut other = good(0);
        other[1].1 += 1;
        assert!(Page::parse(&page(&other), true).is_none());
    }

    #[test]
    fn more_counters_than_there_is_room_for_are_none() {
        let most = layout::COUNTERS_MAX as u32;
        let full = Page::parse(&page(&good(most)), true).unwrap();
        assert_eq!(full.counters.len(), layout::COUNTERS_MAX);
        assert!(Page::parse(&page(&good(most + 1)), true).is_none());
        assert!(Page::parse(&page(&good(u32::MAX)), true).is_none());
    }

    #[test]
    fn texts_that_do_not_end_or_cannot_be_printed_are_refused() {
        for at in [layout::LIBRARY_AT, layout::PROVIDER_AT, layout::LABELS_AT] {
            let with = |text: &[u8; 8], words: usize| {
                let mut all = good(1);
                for offset in 0..words {
                    all.push((at + offset, u64::from_ne_bytes(*text)));
                }
                Page::parse(&page(&all), true)
            };
            assert!(with(b"library\0", 1).is_some());
            assert!(with(b"libr\x1b[0m", 1).is_none());
            assert!(with(b"libr\xff\0\0\0", 1).is_none());
            assert!(with(b"libraryx", 6).is_none());
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        let mut word = 1u64;
        for _ in 0..2000 {
            let mut bytes = page(&[]);
            for at in 0..layout::LEN / 8 {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                bytes[at * 8..][..8].copy_from_slice(&(word >> 7).to_ne_bytes());
            }
            let count = (word >> 40) as u32 % 256;
            for (at, word) in good(count) {
                bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            let _ = Page::parse(&bytes, false);
        }
        let latest = [(layout::OPENED_AT, u64::MAX)];
        assert!(Page::parse(&page(&[good(0), latest.to_vec()].concat()), true).is_some());
    }
}
