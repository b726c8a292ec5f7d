//! The queries of `get_info` about credits.
//!
//! ```text
//!   C: size, addr --checked--> instance --gauges--> struct --as much as `size` allows--> C
//! ```
//!
//! Owns: the conversion of gauges to members of the C structs.

use crate::Error;
use crate::sized::{copy, whole_members};
use bmi_method::abi::constants as bmi;
use bmi_method::abi::types::{bmi_mx_credits, bmi_mx_peer_credits};
use bmi_method::instance;
use bmi_method::peer::state::StateName;
use libc::c_int;
use mx_boundary::required;
use std::mem::offset_of;
use std::ptr::NonNull;

/// Answers `BMI_MX_GET_CREDITS`.
///
/// # Safety
///
/// `out` points to as many bytes as its `size` says.
pub(crate) unsafe fn all(out: NonNull<bmi_mx_credits>) -> Result<(), Box<Error>> {
    // SAFETY: `size` is in every version of the struct.
    let size = unsafe { (*out.as_ptr()).size };
    // The struct must have room for at least one result.
    let least = offset_of!(bmi_mx_credits, free);
    let size = whole_members::<bmi_mx_credits>(size, least, size_of::<u64>())?;
    let report = instance::report()?;
    let (flow, inbox) = (report.flow, report.inbox);
    let (used_bytes, limit_bytes) = report.usage;
    let mut answer = bmi_mx_credits {
        size,
        total: flow.total.into(),
        free: flow.free.into(),
        lent: flow.lent.into(),
        drawn: flow.drawn.into(),
        copies: flow.copies.into(),
        tombstones: flow.tombstones.into(),
        peers: flow.remotes.into(),
        waiting_peers: flow.waiting.into(),
        asked_peers: flow.asked.into(),
        messages: flow.messages,
        violations: flow.violations,
        draws_refused: flow.draws_refused,
        wants: flow.wants,
        granted: flow.granted,
        revoked: flow.revoked,
        returned: flow.returned,
        narrowed: flow.narrowed,
        epochs: flow.epochs,
        credit_stalls: report.credit_stalls,
        peers_without_credits: report.stalled,
        operations: report.operations,
        ready: report.ready,
        coming: inbox.fetching as u64,
        held: inbox.waiting as u64,
        unexpected_bytes: inbox.bytes as u64,
        early_bytes: report.early_bytes,
        used_bytes,
        limit_bytes,
    };
    // SAFETY: the caller's promise, and `size` is no more than the caller's.
    unsafe { copy(NonNull::from(&mut answer), out, size) };
    Ok(())
}

/// Answers `BMI_MX_GET_PEER_CREDITS`.
///
/// # Safety
///
/// `out` points to as many bytes as its `size` says.
pub(crate) unsafe fn of_peer(out: NonNull<bmi_mx_peer_credits>) -> Result<(), Box<Error>> {
    // SAFETY: `size` is in every version of the struct.
    let size = unsafe { (*out.as_ptr()).size };
    // The struct must have room for at least one result.
    let least = offset_of!(bmi_mx_peer_credits, credit_limit);
    let size = whole_members::<bmi_mx_peer_credits>(size, least, size_of::<u32>())?;
    // SAFETY: the caller's promise; `size` covers `addr`.
    let addr = required("addr", unsafe { (*out.as_ptr()).addr })?;
    let peer = instance::peer_gauges(addr)?;
    let account = peer.account.unwrap_or_default();
    let mut answer = bmi_mx_peer_credits {
        size,
        addr: addr.as_ptr(),
        state: state_number(peer.state),
        credit_limit: account.credit_limit,
        free: account.free,
        waiting: account.waiting,
        owed: account.owed,
        wanted: account.wanted,
        asked: account.asked.into(),
        send_free: account.send_free,
        send_waiting: peer.pending + account.send_waiting,
        send_stalled: account.send_stalled.into(),
    };
    // SAFETY: the caller's promise, and `size` is no more than the caller's.
    unsafe { copy(NonNull::from(&mut answer), out, size) };
    Ok(())
}

fn state_number(state: StateName) -> c_int {
    match state {
        // DISCONNECT ends within the call that began it.
        StateName::Init | StateName::Disconnect => bmi::BMI_MX_PEER_INIT,
        StateName::Connecting | StateName::Requested => bmi::BMI_MX_PEER_WAIT,
        StateName::Ready => bmi::BMI_MX_PEER_READY,
    }
}
