//! Kinds of faults, with their probabilities.
//!
//! ```text
//!   post ----- again, refuse -----> EAGAIN, errors of the call
//!   move ----- hold, connect -----> delays
//!   land ----- late, short, error -> late writes, short and failed completions
//!   complete - late_send, reorder -> late completions, lost order
//!   memory --- register_*, close_busy
//! ```
//!
//! Owns: probabilities and limits; all zero is a fabric that never fails.
//! Out of scope: the places that apply them.
//!
//! Everything may be changed while a fabric runs, with effect from the next call.

use std::collections::BTreeMap;

use libc::c_int;

/// Effect on others of an endpoint that was closed, killed or never existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// New operations return `-FI_EAGAIN` for ever, old ones never complete: `tcp` and `ofi_rxm`.
    Again,
    /// New operations are accepted and, like old ones, never complete: `ofi_rxd`.
    Vanish,
    /// Small sends are accepted and complete as if they had arrived, larger ones never complete:
    /// `shm`.
    Swallow,
    /// New and old operations complete with this error (positive): hardware.
    Fail(c_int),
}

/// Calls that can be made to fail as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `fi_getinfo`
    GetInfo,
    /// `fi_fabric`
    Fabric,
    /// `fi_domain`
    Domain,
    /// `fi_cq_open`
    CqOpen,
    /// `fi_av_open`
    AvOpen,
    /// `fi_endpoint`
    Endpoint,
    /// `fi_ep_bind`
    Bind,
    /// `fi_enable` of an endpoint
    Enable,
    /// `fi_getname`
    GetName,
    /// `fi_av_insert`
    AvInsert,
    /// `fi_mr_reg`
    MrReg,
    /// Every posting of an operation.
    Post,
}

impl Call {
    /// Returns the call with this C name, if it can be made to fail.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "fi_domain" => Self::Domain,
            "fi_cq_open" => Self::CqOpen,
            "fi_av_open" => Self::AvOpen,
            "fi_endpoint" => Self::Endpoint,
            "fi_ep_bind" => Self::Bind,
            "fi_enable" => Self::Enable,
            "fi_getname" => Self::GetName,
            "fi_av_insert" => Self::AvInsert,
            "fi_mr_reg" => Self::MrReg,
            "fi_recv" | "fi_recvmsg" | "fi_send" | "fi_sendmsg" | "fi_inject" | "fi_read" => {
                Self::Post
            }
            _ => return None,
        })
    }
}

/// Probabilities are from 0 to 1, for each call or event.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Calls that fail, with their error (positive), until removed.
    pub refuse: BTreeMap<Call, c_int>,
    /// An operation returns `-FI_EAGAIN`, and so do some more on that endpoint ...
    pub again: f64,
    /// ... up to this many.
    pub again_run: u32,
    /// A datagram is lost.
    pub lose: f64,
    /// A message, transfer or read makes no progress at a poll where it could.
    pub hold: f64,
    /// Maximum number of polls between the choice of a receive buffer (or a read) and the writing
    /// into it.
    pub landing_polls: u32,
    /// A send's completion comes later than its delivery ...
    pub late_send: f64,
    /// ... by up to this many polls.
    pub late_send_polls: u32,
    /// An operation ends with one of `errors`.
    pub error: f64,
    /// Possible errors, positive; by default `FI_EIO` and `FI_ECONNRESET`.
    pub errors: Vec<c_int>,
    /// The error number is negated, as by `shm` of 1.17.
    pub negative: f64,
    /// A receive completes without an error, but with less than was sent.
    pub short: f64,
    /// A completion is moved before others that it need not follow.
    pub reorder: f64,
    /// A completion queue breaks at a read: `-FI_EOVERRUN` from then on.
    pub overrun: f64,
    /// A descriptor becomes readable without a reason.
    pub spurious_wake: f64,
    /// A packet of the provider itself uses up a receive in prefix mode.
    pub empty_packet: f64,
    /// `fi_mr_reg` fails with `-FI_ENOMEM`.
    pub register: f64,
    /// More registrations than this on a machine fail with `-FI_ENOMEM`.
    pub register_limit: Option<usize>,
    /// More registered bytes than this on a machine fail with `-FI_ENOMEM`.
    pub register_bytes: Option<usize>,
    /// `fi_close` of a registration gives `-FI_EBUSY` and closes nothing.
    pub close_busy: f64,
    /// `fi_close` of a domain in which nothing is open returns `-FI_EBUSY`, and so does that of its
    /// fabric: the provider still has objects of its own there, as `ofi_rxm` of 1.17 has
    /// registrations of aborted messages.
    pub keeps_domains: bool,
    /// Whether a registration may be closed while reads into it are under way: they end with an
    /// error and write nothing, as an adapter rejects memory it does not know. Otherwise closing it
    /// breaks a rule.
    pub revocable: bool,
}

impl Faults {
    /// Returns a fabric without faults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns delays, reordering and busy calls, but no losses: a correct program must succeed.
    pub fn rough() -> Self {
        Self {
            again: 0.05,
            again_run: 20,
            hold: 0.2,
            landing_polls: 4,
            late_send: 0.3,
            late_send_polls: 30,
            reorder: 0.3,
            spurious_wake: 0.05,
            empty_packet: 0.02,
            ..Self::none()
        }
    }
}
