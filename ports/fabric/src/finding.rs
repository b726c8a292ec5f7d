//! The verdict on a provider of this machine.
//!
//! Owns: the texts, for error messages and the provider matrix.

use libfabric_sys::Info;
use std::fmt;

/// A provider, and the verdict on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its exact name, layers joined by `;`.
    pub provider: String,
    /// Its own version, major and minor.
    pub version: (u32, u32),
    /// The verdict.
    pub verdict: Verdict,
    /// The path of each class of message; empty when it is refused.
    pub plan: String,
    /// Its properties: in the offer that is used, else in its first for reliable datagrams, else in
    /// its first.
    pub offer: Offer,
    /// The paths of `plan`, class by class; `None` when the provider is refused.
    pub paths: Option<Paths>,
}

/// The part of one `fi_info` that plans depend on, in libfabric's numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Offer {
    /// The version of the library.
    pub release: (u32, u32),
    /// The provider, layers joined by `;`.
    pub provider: String,
    /// `FI_EP_*`.
    pub ep_type: u32,
    /// `FI_PROTO_*`.
    pub protocol: u32,
    /// Capabilities.
    pub caps: u64,
    /// The mode bits that the provider requires.
    pub mode: u64,
    /// The registration modes that the provider requires.
    pub mr_mode: i32,
    /// Bytes of a remote key.
    pub mr_key_bytes: usize,
    /// The shape of addresses.
    pub address_format: u32,
    /// Bytes of the endpoint's address, 0 where it is not known yet.
    pub address_len: usize,
    /// Order that sends keep.
    pub tx_order: u64,
    /// Order that receives keep.
    pub rx_order: u64,
    /// The longest message `fi_inject` takes.
    pub inject_size: usize,
    /// Sends that can be outstanding.
    pub tx_size: usize,
    /// Receives that can be outstanding.
    pub rx_size: usize,
    /// The longest message.
    pub max_msg_size: usize,
    /// Bytes before each buffer, with `FI_MSG_PREFIX`.
    pub prefix_size: usize,
    /// `FI_RM_*`.
    pub resource_mgmt: u32,
}

/// The paths of messages over a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// Frames up to this are injected; 0: none are.
    pub inject_max: usize,
    /// Bodies up to this are copied into a slot.
    pub slot_bytes: usize,
    /// The path of longer ones.
    pub large: String,
    /// A thread can sleep on a descriptor until something has come.
    pub descriptor: bool,
}

/// The verdict on a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The provider is used unless another is asked for.
    Chosen,
    /// The provider is used when it is asked for, or when there is no better one.
    Usable,
    /// The provider is not used, and why.
    Refused(String),
}

impl Offer {
    /// Builds the terms from an entry of `fi_getinfo`.
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
