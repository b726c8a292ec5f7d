//! Handles of endpoints, requests and addresses, as words that can be checked.
//!
//! ```text
//!   mx_endpoint_t       64 bits   generation (32) | slot + 1 (32)             slot of the process's table
//!   mx_request_t        64 bits   generation (30) | request (24) | slot + 1 (10)
//!   mx_endpoint_addr_t 128 bits   an mx_endpoint_t, then  generation (32) | peer + 1 (32)
//! ```
//!
//! None of them is a pointer, although their C types are: a stale or invalid one is recognised and not dereferenced.
//! Zero is never valid. Calls that take a request or an address without an endpoint find the endpoint in it.

use mx_proto::RequestId;
use mx_proto::table::Key;

/// Maximum number of open endpoints of a process, bounded by the slot part of a request.
pub const SLOTS_MAX: usize = 1023;

/// Maximum number of requests of an endpoint at a time.
pub const REQUESTS_MAX: usize = 1 << REQUEST_BITS;

const SLOT_BITS: u32 = 10;
const REQUEST_BITS: u32 = 24;

/// Handle of an endpoint, as C has it: its slot in the process's table, and a generation that marks handles of earlier
/// endpoints there as stale.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EndpointHandle(pub u64);

impl EndpointHandle {
    /// Composes a handle. `slot` is below [`SLOTS_MAX`].
    pub fn new(slot: usize, generation: u32) -> Self {
        debug_assert!(slot < SLOTS_MAX);
        Self(u64::from(generation) << 32 | (slot as u64 + 1))
    }

    /// Returns the slot in the process's table; `None` for a number that never was a handle.
    pub fn slot(self) -> Option<usize> {
        let slot = (self.0 as u32).checked_sub(1)? as usize;
        (slot < SLOTS_MAX).then_some(slot)
    }

    /// Returns the generation, which differs for each endpoint opened in a slot.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Handle of a request, as C has it; stale once the request's result has been reported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestHandle(pub u64);

impl RequestHandle {
    /// Composes a handle from the endpoint's slot and the request's id in that endpoint. Uses the lower bits of the
    /// id's generation.
    #[inline]
    pub fn new(slot: usize, request: RequestId) -> Self {
        debug_assert!(slot < SLOTS_MAX && (request.index() as usize) < REQUESTS_MAX);
        // Bits that do not fit are shifted out at the top.
        let word = u64::from(request.generation()) << (SLOT_BITS + REQUEST_BITS)
            | u64::from(request.index()) << SLOT_BITS
            | (slot as u64 + 1);
        Self(word)
    }

    /// Returns the endpoint's slot in the process's table; `None` for a number that never was a handle.
    pub fn slot(self) -> Option<usize> {
        let slot = self.0 & ((1 << SLOT_BITS) - 1);
        (slot as usize).checked_sub(1)
    }

    /// Returns the place among the endpoint's requests, below [`REQUESTS_MAX`].
    #[inline]
    pub fn place(self) -> u32 {
        (self.0 >> SLOT_BITS) as u32 & ((1 << REQUEST_BITS) - 1)
    }
}

/// A peer of one endpoint: `mx_endpoint_addr_t`, passed in two integer registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Address {
    words: [u64; 2],
}

/// A peer's place in the table of its endpoint, and the generation that marks an address of an earlier peer there as
/// stale. The second word of an [`Address`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerKey {
    /// Place in the endpoint's table.
    pub index: u32,
    /// Generation of the place.
    pub generation: u32,
}

impl Key for PeerKey {
    fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> u32 {
        self.generation
    }
}

impl Address {
    /// No address: the source in a status without one.
    pub const NONE: Self = Self { words: [0, 0] };

    /// Composes the address of a peer of `endpoint`.
    pub fn new(endpoint: EndpointHandle, peer: PeerKey) -> Self {
        let peer = u64::from(peer.generation) << 32 | (u64::from(peer.index) + 1);
        Self {
            words: [endpoint.0, peer],
        }
    }

    /// Returns the endpoint, which may be closed already.
    pub fn endpoint(self) -> EndpointHandle {
        EndpointHandle(self.words[0])
    }

    /// Returns the peer's key; `None` for a number that never was an address.
    pub fn peer(self) -> Option<PeerKey> {
        let index = (self.words[1] as u32).checked_sub(1)?;
        let generation = (self.words[1] >> 32) as u32;
        Some(PeerKey { index, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_a_handle_comes_out() {
        let handle = EndpointHandle::new(SLOTS_MAX - 1, u32::MAX);
        assert_eq!(handle.slot(), Some(SLOTS_MAX - 1));
        assert_eq!(handle.generation(), u32::MAX);
        let of = |generation| {
            let request = RequestId::new(REQUESTS_MAX as u32 - 1, generation);
            RequestHandle::new(SLOTS_MAX - 1, request)
        };
        let request = of((1 << 30) - 1);
        assert_eq!(request, RequestHandle(u64::MAX));
        assert_eq!(request.slot(), Some(SLOTS_MAX - 1));
        assert_eq!(request.place(), REQUESTS_MAX as u32 - 1);
        for (generation, same) in [((1 << 31) - 1, true), (1 << 29, false), (0, false)] {
            assert_eq!(of(generation) == request, same);
            assert_eq!(of(generation).place(), request.place());
        }
        let peer = PeerKey {
            index: 7,
            generation: 9,
        };
        let address = Address::new(handle, peer);
        assert_eq!(address.endpoint(), handle);
        assert_eq!(address.peer(), Some(peer));
    }

    #[test]
    fn zero_is_no_handle_and_what_is_out_of_range_is_refused() {
        assert_eq!(EndpointHandle(0).slot(), None);
        assert_eq!(EndpointHandle(SLOTS_MAX as u64 + 1).slot(), None);
        assert_eq!(RequestHandle(0).slot(), None);
        assert_eq!(Address::NONE.peer(), None);
    }
}
