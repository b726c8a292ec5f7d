//! How the hosts' BMI differ, for the method.
//!
//! ```text
//!   OrangeFS           \
//!                       >--- is(&FACTS), as the library is loaded ---> facts()
//!   stand-alone BMI    /
//! ```
//!
//! Owns: which host it is.

use std::sync::OnceLock;

/// Facts about a host's BMI.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Bytes from the beginning of an operation to the address that the host reads: 72 or 80.
    pub addr_at: usize,
    /// Operations before the id of one that is over is used again: more for hosts that cancel late.
    pub reuse_delay: u32,
    /// The largest class of an unexpected message; 0: the host knows none.
    pub class_max: u8,
    /// Longest address string that the host passes, its NUL included.
    pub max_addr_len: usize,
    /// The host may listen without naming an endpoint: it asks afterwards where that is.
    pub listens_anywhere: bool,
    /// The host drops its addresses after `finalize`.
    pub drops_addresses: bool,
}

/// OrangeFS, as far as the method is concerned.
const DEFAULT: Facts = Facts {
    addr_at: 72,
    reuse_delay: 32,
    class_max: 0,
    max_addr_len: 2048,
    listens_anywhere: false,
    drops_addresses: true,
};

static HOST: OnceLock<&'static Facts> = OnceLock::new();

/// The host is this one. The first call counts: a library has one host.
pub fn is(facts: &'static Facts) {
    HOST.get_or_init(|| facts);
}

/// The host: OrangeFS, if no other has said so.
#[inline]
pub fn facts() -> &'static Facts {
    HOST.get_or_init(|| &DEFAULT)
}
