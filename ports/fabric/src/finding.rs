//! Verdict on a provider of this machine.
//!
//! Owns: the texts, for error messages and the provider matrix.

use libfabric_sys::Info;
use std::fmt;

/// A provider and the verdict on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Exact name of the provider, layers joined by `;`.
    pub provider: String,
    /// Version of the provider, major and minor.
    pub version: (u32, u32),
    /// Whether the provider is used.
    pub verdict: Verdict,
    /// Paths of all message classes as text; empty if the provider is refused.
    pub plan: String,
    /// Properties of the offer in use, else of the first one for reliable datagrams, else of the first one.
    pub offer: Offer,
    /// Paths of `plan`, class by class; `None` if the provider is refused.
    pub paths: Option<Paths>,
}

/// Fields of one `fi_info` that plans depend on, in libfabric's numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Offer {
    /// Version of libfabric, major and minor.
    pub release: (u32, u32),
    /// Name of the provider, layers joined by `;`.
    pub provider: String,
    /// Endpoint type, `FI_EP_*`.
    pub ep_type: u32,
    /// Wire protocol, `FI_PROTO_*`.
    pub protocol: u32,
    /// Capabilities, `FI_*` bits.
    pub caps: u64,
    /// Mode bits that the provider requires.
    pub mode: u64,
    /// Registration modes that the provider requires.
    pub mr_mode: i32,
    /// Size of a remote key, in bytes.
    pub mr_key_bytes: usize,
    /// Address format, such as `FI_SOCKADDR_IN`.
    pub address_format: u32,
    /// Length of the endpoint's address in bytes; 0 if not yet known.
    pub address_len: usize,
    /// Ordering guarantees of sends, `FI_ORDER_*`.
    pub tx_order: u64,
    /// Ordering guarantees of receives, `FI_ORDER_*`.
    pub rx_order: u64,
    /// Longest message that `fi_inject` takes, in bytes.
    pub inject_size: usize,
    /// Maximum number of outstanding sends.
    pub tx_size: usize,
    /// Maximum number of outstanding receives.
    pub rx_size: usize,
    /// Longest message, in bytes.
    pub max_msg_size: usize,
    /// Bytes before each buffer, with `FI_MSG_PREFIX`.
    pub prefix_size: usize,
    /// Resource management, `FI_RM_*`.
    pub resource_mgmt: u32,
}

/// Paths of messages over a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// Longest injected frame in bytes; 0: none is injected.
    pub inject_max: usize,
    /// Longest body, in bytes, that is copied into a send buffer prepared for it (slot).
    pub slot_bytes: usize,
    /// Path of bodies longer than `slot_bytes`, as text.
    pub large: String,
    /// True if a thread can sleep on a descriptor until an event.
    pub descriptor: bool,
}

/// Verdict on a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Used unless another is requested.
    Chosen,
    /// Used if requested by name.
    Usable,
    /// Never used, for this reason.
    Refused(String),
}

impl Offer {
    /// Reads the fields from an entry of `fi_getinfo`.
    pub fn of(info: Info<'_>) -> Self {
        Self {
            release: info.library().version(),
            provider: info.provider().into_owned(),
            ep_type: info.ep_type(),
            protocol: info.protocol(),
            caps: info.caps(),
            mode: info.mode(),
            mr_mode: info.mr_mode(),
            mr_key_bytes: info.mr_key_size(),
            address_format: info.addr_format(),
            address_len: info.src_addr().len(),
            tx_order: info.tx_msg_order(),
            rx_order: info.rx_msg_order(),
            inject_size: info.inject_size(),
            tx_size: info.tx_size(),
            rx_size: info.rx_size(),
            max_msg_size: info.max_msg_size(),
            prefix_size: info.msg_prefix_size(),
            resource_mgmt: info.resource_mgmt(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Chosen => write!(f, "{}: chosen, {}", self.provider, self.plan),
            Verdict::Usable => write!(f, "{}: usable, {}", self.provider, self.plan),
            Verdict::Refused(why) => write!(f, "{}: refused, {why}", self.provider),
        }
    }
}
