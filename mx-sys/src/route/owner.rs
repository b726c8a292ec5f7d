//! Which port a link belongs to, told by its name.
//!
//! ```text
//!   31 .. 29 28                               0
//!   +-----+----------------------------------+
//!   | 000 | index of the local port's link   |   the same name inside and outside
//!   | 001 |          of the TCP port's       |
//!   | 010 |          of the loopback's       |
//!   | 011 |          of the rdm port's       |
//!   | 100 |          of the dgram port's     |
//!   +-----+----------------------------------+
//! ```
//!
//! Knows nothing of: the ports.

use mx_proto::LinkId;

/// Bits of a link's index that say whose it is.
const OWNER_BITS: u32 = 7 << 29;
/// The local port's links keep their names, so that nothing is translated for them.
pub(super) const LOCAL: u32 = 0;
pub(super) const TCP: u32 = 1 << 29;
pub(super) const LOOPBACK: u32 = 2 << 29;
pub(super) const RDM: u32 = 3 << 29;
pub(super) const DGRAM: u32 = 4 << 29;

/// One of the ports and a link's name there.
pub(super) enum Owner {
    Local(LinkId),
    Tcp(LinkId),
    Loopback(LinkId),
    Rdm(LinkId),
    Dgram(LinkId),
    /// No port gave out such a name.
    Nobody,
}

#[inline]
pub(super) fn owner(link: LinkId) -> Owner {
    let inner = LinkId::new(link.index() & !OWNER_BITS, link.generation());
    match link.index() & OWNER_BITS {
        LOCAL => Owner::Local(link),
        TCP => Owner::Tcp(inner),
        LOOPBACK => Owner::Loopback(inner),
        RDM => Owner::Rdm(inner),
        DGRAM => Owner::Dgram(inner),
        _ => Owner::Nobody,
    }
}

#[inline]
pub(super) fn outer(link: LinkId, owner: u32) -> LinkId {
    debug_assert_eq!(link.index() & OWNER_BITS, 0, "a port with 2^29 links");
    LinkId::new(link.index() | owner, link.generation())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_gets_back_the_name_it_gave() {
        let inside = LinkId::new((1 << 29) - 1, 7);
        for bits in [LOCAL, TCP, LOOPBACK, RDM, DGRAM] {
            let found = match owner(outer(inside, bits)) {
                Owner::Local(link) if bits == LOCAL => link,
                Owner::Tcp(link) if bits == TCP => link,
                Owner::Loopback(link) if bits == LOOPBACK => link,
                Owner::Rdm(link) if bits == RDM => link,
                Owner::Dgram(link) if bits == DGRAM => link,
                _ => panic!("{bits:#x} belongs to somebody else"),
            };
            assert_eq!(found, inside);
        }
    }
}
