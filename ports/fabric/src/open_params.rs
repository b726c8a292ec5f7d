//! The parameters with which a provider's objects are opened and used.
//!
//! ```text
//!   rdm's Plan ------.
//!                     >-- OpenParams --> Domain, Ep, Queue, Mr
//!   dgram's Choice --'
//! ```
//!
//! Owns: the parameters, and the interpretation of old registration modes.

use libfabric_sys::abi::{
    FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED, FI_MR_ALLOCATED, FI_MR_BASIC, FI_MR_PROV_KEY,
    FI_MR_SCALABLE, FI_MR_VIRT_ADDR, fi_cq_format,
};
use std::ffi::c_int;

/// Parameters of a domain and all objects opened from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenParams {
    /// The provider, layers joined by `;`.
    pub provider: String,
    /// The shape of addresses: `FI_SOCKADDR_IN` and the like.
    pub address_format: u32,
    /// There is an endpoint that uses the domain's own queue.
    pub shared_queue: bool,
    /// The contents of completions.
    pub entries: Entries,
    /// The way to wait for completions. Final when the queue is open: before, it is the one
    /// requested.
    pub wait: Wait,
    /// Bytes before the frame in every buffer.
    pub prefix: Prefix,
    /// The longest frame `Ep::inject` takes, the prefix not counted.
    pub inject_max: usize,
    /// The longest frame, prefix not counted.
    pub frame_max: usize,
    /// A posted buffer of the shared endpoint takes many messages.
    pub multi_recv: bool,
    /// Registrations belong to an endpoint.
    pub mr_endpoint: bool,
    /// The provider chooses the keys of registrations.
    pub mr_prov_key: bool,
    /// Bytes of a key that we choose.
    pub mr_key_bytes: usize,
    /// Remote addresses are the peer's virtual ones.
    pub virt_addr: bool,
    /// Sends that can be outstanding on an endpoint.
    pub tx_depth: usize,
    /// Receives that can be outstanding on an endpoint.
    pub rx_depth: usize,
}

/// Bytes that a provider wants before a frame: `verbs` in the buffers of receives only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// In a buffer that is sent.
    pub send: usize,
    /// In one that is received into.
    pub receive: usize,
}

/// The contents of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entries {
    /// All there is.
    Tagged,
    /// The operation and its length: all that `usnic` has.
    Plain,
}

impl Entries {
    /// As `fi_cq_open` takes it.
    pub(super) fn number(self) -> fi_cq_format {
        match self {
            Self::Tagged => FI_CQ_FORMAT_TAGGED,
            Self::Plain => FI_CQ_FORMAT_MSG,
        }
    }
}

/// The way to wait for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The completion queue has a descriptor to sleep on.
    Fd,
    /// There is no descriptor: look again after a while.
    Poll,
}

/// `mr_mode` in the bits that replaced `FI_MR_BASIC` and `FI_MR_SCALABLE` with version 1.5.
pub fn modern_mr_mode(mr_mode: c_int) -> c_int {
    let mut modern = mr_mode & !(FI_MR_BASIC | FI_MR_SCALABLE);
    // With both, the user may choose: the one with fewer requirements.
    if mr_mode & FI_MR_BASIC != 0 && mr_mode & FI_MR_SCALABLE == 0 {
        modern |= FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    }
    modern
}
