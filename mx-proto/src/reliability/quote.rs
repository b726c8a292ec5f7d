//! Quote: parsing of the datagram that an ICMP error quotes.
//!
//! ```text
//!   ICMP: unreachable, too large      the beginning of the datagram
//!                                     IP | UDP | header: magic, version .. from: our cookie
//!                                     '--- known ----'                     '---- secret ----'
//!
//!   quoted by      Linux    512 bytes and more         the least allowed (RFC 792)    none
//!                  a router that knows RFC 4884 100
//! ```
//!
//! Addresses and port numbers are public, so any machine can forge an error about them. Our cookie is known only to the
//! two ends and to the path, so an error that quotes it is about a datagram that was sent.
//!
//! Out of scope: sessions.

use super::packet::sender_of;

/// Proof that an ICMP error is about a datagram of ours: the secret number of our session, quoted from that datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Quote(u64);

impl Quote {
    /// Number of bytes of the quoted datagram that [`Self::read`] needs.
    pub const BYTES: usize = 24;

    /// Reads the quote from the beginning of the datagram that an error quotes. `None`: it is too short, or not of this
    /// protocol.
    pub fn read(quoted: &[u8]) -> Option<Self> {
        quoted.first_chunk().and_then(sender_of).map(Self)
    }

    pub(super) fn session(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::{DatagramKind, Header};
    use super::*;

    #[test]
    fn complete_quote_of_our_datagram_names_its_sender() {
        let mut bytes = Vec::new();
        Header::new(DatagramKind::Ping, 5, 0x1122_3344_5566_7788).emit(&[], &mut bytes);
        for len in 0..Quote::BYTES {
            assert_eq!(Quote::read(&bytes[..len]), None, "{len} bytes");
        }
        for len in [Quote::BYTES, bytes.len()] {
            let quote = Quote::read(&bytes[..len]);
            assert_eq!(quote.map(Quote::session), Some(0x1122_3344_5566_7788));
        }
        for at in 0..3 {
            bytes[at] ^= 1;
            assert_eq!(Quote::read(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
    }
}
