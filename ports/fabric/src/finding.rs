//! The verdict on a provider of this machine.
//!
//! Owns: the texts, for error messages and the provider matrix.

use libfabric_sys::Info;
use std::fmt;

/// One provider.
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
    pub offer: Offered,
    /// The same as `plan`, class by class; `None` when it is refused.
    pub paths: Option<Paths>,
}

/// An offer, in libfabric's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Offered {
    /// `FI_EP_*`.
    pub ep_type: u32,
    /// Capabilities.
    pub caps: u64,
    /// The mode bits it requires.
    pub mode: u64,
    /// The registration modes it requires.
    pub mr_mode: i32,
    /// The longest message it takes at once.
    pub inject_size: usize,
    /// The shape of its addresses.
    pub address_format: u32,
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
    /// One can sleep on a descriptor until something has come.
    pub descriptor: bool,
}

/// The verdict on a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is used unless another is asked for.
    Chosen,
    /// It is used when it is asked for, or when there is no better one.
    Usable,
    /// It is not used, and why.
    Refused(String),
}

impl Offered {
    /// Of one entry.
    pub fn of(info: Info<'_>) -> Self {
        Self {
            ep_type: info.ep_type(),
            caps: info.caps(),
            mode: info.mode(),
            mr_mode: info.mr_mode(),
            inject_size: info.inject_size(),
            address_format: info.addr_format(),
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
