//! Differences between the hosts' BMI, for the method.
//!
//! ```text
//!   OrangeFS           \
//!                       >--- is(&FACTS), as the library is loaded ---> facts()
//!   stand-alone BMI    /
//! ```
//!
//! Owns: which host it is.

use std::sync::OnceLock;

/// Properties of a host's BMI in which hosts differ.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Offset, in the struct that an operation's id points to, at which the host reads the peer's address: 72 or 80
    /// bytes.
    pub addr_at: usize,
    /// Number of operations before a completed one's id is reused: more for hosts that cancel late.
    pub reuse_delay: u32,
    /// Largest class of an unexpected message; 0: the host has no classes.
    pub class_max: u8,
    /// Longest address string that the host passes, its NUL included.
    pub max_addr_len: usize,
    /// Whether the host may listen without naming an endpoint, and asks afterwards for the number.
    pub listens_anywhere: bool,
    /// Whether the host drops its address objects after `finalize`; if not, `finalize` drops them.
    pub drops_addresses: bool,
}

/// Facts about OrangeFS.
const DEFAULT: Facts = Facts {
    addr_at: 72,
    reuse_delay: 32,
    class_max: 0,
    max_addr_len: 2048,
    listens_anywhere: false,
    drops_addresses: true,
};

static HOST: OnceLock<&'static Facts> = OnceLock::new();

/// Sets the host's facts, when the library is loaded. Only the first call counts: a library has one host.
pub fn is(facts: &'static Facts) {
    HOST.get_or_init(|| facts);
}

/// Returns the host's facts: OrangeFS's unless another host was set.
#[inline]
pub fn facts() -> &'static Facts {
    HOST.get_or_init(|| &DEFAULT)
}
