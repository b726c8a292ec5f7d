//! The provider that was chosen.
//!
//! ```text
//!   fi_info --Plan::of--> Choice { info, plan } --> Domain::open
//! ```
//!
//! Owns: what it offers, and what is made of it.

use super::plan::Plan;
use libfabric_sys::InfoList;
/// A provider that was chosen: what it offers, and what is made of it.
#[derive(Debug)]
pub(super) struct Choice {
    /// One entry.
    pub info: InfoList,
    /// How messages go over it.
    pub plan: Plan,
}
