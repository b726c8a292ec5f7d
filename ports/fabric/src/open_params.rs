//! Parameters with which a provider's objects are opened and used.
//!
//! ```text
//!   rdm's Plan ------.
//!                     >-- OpenParams --> Domain, Ep, Queue, Mr
//!   dgram's Choice --'
//! ```
//!
//! Owns: the parameters, and the conversion of old registration modes.

use libfabric_sys::abi::{
    FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED, FI_MR_ALLOCATED, FI_MR_BASIC, FI_MR_PROV_KEY,
    FI_MR_SCALABLE, FI_MR_VIRT_ADDR, fi_cq_format,
};
use std::ffi::c_int;

/// Parameters of a domain and all objects opened from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenParams {
    /// Name of the provider, layers joined by `;`.
    pub provider: String,
    /// Address format, such as `FI_SOCKADDR_IN`.
    pub address_format: u32,
    /// True if the domain has a completion queue for its main endpoint; false if every endpoint has a queue of its own.
    pub shared_queue: bool,
    /// Format of completions.
    pub entries: Entries,
    /// Requested way to wait for completions; the actual one once the queue is open.
    pub wait: Wait,
    /// Bytes before the frame in every buffer.
    pub prefix: Prefix,
    /// Longest frame that `Ep::inject` takes, in bytes without the prefix.
    pub inject_max: usize,
    /// Longest frame, in bytes without the prefix.
    pub frame_max: usize,
    /// True if a posted buffer of the shared endpoint takes many messages.
    pub multi_recv: bool,
    /// True if registrations are bound to an endpoint.
    pub mr_endpoint: bool,
    /// True if the provider chooses the keys of registrations.
    pub mr_prov_key: bool,
    /// Size in bytes of a key that we choose.
    pub mr_key_bytes: usize,
    /// True if remote addresses are the peer's virtual addresses; otherwise offsets.
    pub virt_addr: bool,
    /// Maximum number of outstanding sends per endpoint.
    pub tx_depth: usize,
    /// Maximum number of outstanding receives per endpoint.
    pub rx_depth: usize,
}

/// Number of bytes that a provider requires before each frame in a buffer (`FI_MSG_PREFIX`), per direction; `verbs`
/// requires them only on receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// Bytes before a frame in a send buffer; 0: none.
    pub send: usize,
    /// Bytes before a frame in a receive buffer; 0: none.
    pub receive: usize,
}

/// Format of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entries {
    /// All fields (`FI_CQ_FORMAT_TAGGED`).
    Tagged,
    /// Context, flags and length (`FI_CQ_FORMAT_MSG`), the most that `usnic` has.
    Plain,
}

impl Entries {
    /// Returns libfabric's number for the format.
    pub(super) fn number(self) -> fi_cq_format {
        match self {
            Self::Tagged => FI_CQ_FORMAT_TAGGED,
            Self::Plain => FI_CQ_FORMAT_MSG,
        }
    }
}

/// Way to wait for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Sleep on the completion queue's descriptor.
    Fd,
    /// Poll periodically: there is no descriptor.
    Poll,
}

/// Converts a provider's `mr_mode`: replaces `FI_MR_BASIC` and `FI_MR_SCALABLE` by the bits that took their place in
/// version 1.5, and keeps all other bits.
pub fn modern_mr_mode(mr_mode: c_int) -> c_int {
    let mut modern = mr_mode & !(FI_MR_BASIC | FI_MR_SCALABLE);
    // With both set, the user may choose: take the one with fewer requirements.
    if mr_mode & FI_MR_BASIC != 0 && mr_mode & FI_MR_SCALABLE == 0 {
        modern |= FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    }
    modern
}
