//! The last things that happened, to be read when a run has failed.
//!
//! ```text
//!      12.345678 ms  n0 -> n1  Eager     word 7 length 100 body 100
//!      12.400000 ms  n1        posted recv 17
//! ```
//!
//! Keeps entries as values and makes text of them only when it is printed, so that a run that
//! succeeds pays little. Owns a bounded number of entries; the oldest go first.

use crate::world::NodeId;
use mx_proto::Instant;
use mx_proto::port::HeaderBytes;
use mx_proto::reliability::{Channel, describe};
use mx_proto::wire::Header;
use std::collections::VecDeque;
use std::fmt;

/// Entries kept: enough for the last few hundred messages with all their packets.
const KEPT: usize = 3000;

/// Bytes of a datagram kept: all of a header.
pub const HEAD: usize = 64;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A packet was taken by a port.
    Sent {
        /// Its sender.
        from: NodeId,
        /// Its receiver.
        to: NodeId,
        /// Its header.
        header: HeaderBytes,
        /// Bytes of body taken.
        taken: usize,
        /// The amount that was taken: whole or part.
        how: &'static str,
    },
    /// A datagram was given to a faulty link.
    Datagram {
        /// Its sender.
        from: NodeId,
        /// Its receiver.
        to: NodeId,
        /// On which channel of the sender's.
        channel: Channel,
        /// Its first bytes.
        head: [u8; HEAD],
        /// Its length.
        len: usize,
        /// Its fate: "passed", "lost", ...
        fate: &'static str,
    },
    /// A remark.
    Note {
        /// Its node.
        node: NodeId,
        /// The remark.
        text: String,
    },
}

/// A bounded log.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    entries: VecDeque<(Instant, Entry)>,
    dropped: u64,
}

impl Trace {
    /// Adds an entry; forgets the oldest when there are too many.
    pub fn push(&mut self, at: Instant, entry: Entry) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back((at, entry));
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dropped > 0 {
            writeln!(f, "  ({} earlier entries are not kept)", self.dropped)?;
        }
        for (at, entry) in &self.entries {
            write!(f, "{:14.6} ms  ", at.0 as f64 / 1e6)?;
            match entry {
                Entry::Sent {
                    from,
                    to,
                    header,
                    taken,
                    how,
                } => {
                    writeln!(f, "n{from} -> n{to}  {how} {taken} of {}", Packet(header))?;
                }
                Entry::Datagram {
                    from,
                    to,
                    channel,
                    head,
                    len,
                    fate,
                } => {
                    let head = &head[..HEAD.min(*len)];
                    let arrow = match channel {
                        Channel::Command => "->",
                        Channel::Data => "=>",
                    };
                    writeln!(f, "n{from} {arrow} n{to}  {fate} {len}: {}", describe(head))?;
                }
                Entry::Note { node, text } => writeln!(f, "n{node}        {text}")?,
            }
        }
        Ok(())
    }
}

/// A header in words.
struct Packet<'a>(&'a HeaderBytes);

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&self.0[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let kind = Header::parse(self.0)
            .map_or_else(|| "(no packet)".into(), |it| format!("{:?}", it.kind));
        write!(
            f,
            "{kind:10} body {} word {:08x}.{:08x} length {} aux {} credit {}/{}",
            word(4),
            word(12),
            word(8),
            word(16),
            word(20),
            word(24),
            word(28),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_go_first_and_are_counted() {
        let mut trace = Trace::default();
        for i in 0..KEPT + 2 {
            trace.push(
                Instant(0),
                Entry::Note {
                    node: i,
                    text: String::new(),
                },
            );
        }
        let text = trace.to_string();
        assert!(text.contains("(2 earlier"), "{text}");
        assert!(!text.contains("n1  "));
        assert!(text.contains("n2  "));
    }
}
