//! Queries for a provider's offers, and the choice of the best.
//!
//! ```text
//!   hints --query, perhaps at an address--> offers --best--> the first of those with the lowest rank
//! ```
//!
//! Out of scope: the ranking, which is up to the ports.

use super::modern_mr_mode;
use libfabric_sys::abi::{
    FI_CONTEXT, FI_CONTEXT2, FI_ENODATA, FI_LOCAL_MR, FI_MR_HMEM, FI_MSG_PREFIX,
    FI_PROGRESS_MANUAL, FI_RX_CQ_DATA, FI_SOURCE, FI_THREAD_DOMAIN,
};
use libfabric_sys::{Hints, Info, InfoList, Library};
use std::ffi::{CString, c_int};
use std::net::IpAddr;

/// Mode bits that we support. `FI_RX_CQ_DATA` costs nothing, because we send no such data; `FI_LOCAL_MR` is
/// `FI_MR_LOCAL` before version 1.5.
const MODES: u64 = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_RX_CQ_DATA | FI_LOCAL_MR;

/// Creates hints for a provider by its exact name, or for any.
pub fn hints(library: &Library, provider: Option<&str>, mr_modes: c_int) -> Result<Hints, i32> {
    let mut hints = library.hints()?;
    hints.set_mode(MODES).set_mr_mode(mr_modes);
    if let Some(name) = provider {
        // A provider's name is always a C string.
        hints.set_provider(name).map_err(|_| FI_ENODATA)?;
    }
    Ok(hints)
}

/// Creates hints for endpoints of this type.
pub fn endpoint_hints(
    library: &Library,
    provider: Option<&str>,
    (ep_type, caps, mr_modes): (u32, u64, c_int),
) -> Result<Hints, i32> {
    let mut hints = hints(library, provider, mr_modes)?;
    hints
        .set_caps(caps)
        .set_ep_type(ep_type)
        // All calls are made under one lock.
        .set_threading(FI_THREAD_DOMAIN)
        // Manual progress is enough; a provider with threads may keep them.
        .set_data_progress(FI_PROGRESS_MANUAL);
    Ok(hints)
}

/// Queries the offers, at this address if one is given.
pub fn query(library: &Library, hints: &Hints, bind: Option<IpAddr>) -> Result<InfoList, i32> {
    match bind.map(|address| CString::new(address.to_string())) {
        Some(Ok(node)) => library.query(Some(&node), None, FI_SOURCE, Some(hints)),
        // An address contains no zero byte.
        Some(Err(_)) | None => library.query(None, None, 0, Some(hints)),
    }
}

/// Returns the best offer and its plan, or the reason why the first offer fails; `None` if there is no offer. `judge`
/// ranks an offer, lower is better, and plans its use.
pub fn best<'a, R: Ord, P>(
    offers: impl Iterator<Item = Info<'a>>,
    judge: impl Fn(Info<'a>) -> Result<(R, P), String>,
) -> Result<(Info<'a>, P), Option<String>> {
    let mut why = None;
    let mut best: Option<(R, Info<'a>, P)> = None;
    for info in offers {
        match judge(info) {
            // The provider's own order decides between equals.
            Ok((rank, plan)) => {
                if best.as_ref().is_none_or(|(other, ..)| rank < *other) {
                    best = Some((rank, info, plan));
                }
            }
            Err(reason) => {
                why.get_or_insert(reason);
            }
        }
    }
    best.map(|(_, info, plan)| (info, plan)).ok_or(why)
}

/// Checks that all modes required by an offer are supported. `FI_MR_HMEM` concerns only device memory, which is never
/// used.
pub fn check_modes(mode: u64, mr_mode: c_int, mr_modes: c_int) -> Result<(), String> {
    let mode = mode & !MODES;
    if mode != 0 {
        return Err(format!("it wants mode {mode:#x}, which is not supported"));
    }
    match modern_mr_mode(mr_mode) & !mr_modes & !FI_MR_HMEM {
        0 => Ok(()),
        mode => Err(format!(
            "it wants registration mode {mode:#x}, which is not supported"
        )),
    }
}

/// Returns the reason why a provider is never used. The outermost layer, which peers talk to, comes first.
pub fn refused(name: &str, never: &'static [(&'static str, &'static str)]) -> Option<&'static str> {
    name.rsplit(';').find_map(|layer| {
        if layer.starts_with("ofi_hook") {
            return Some("it only watches other providers");
        }
        let known = never.iter().find(|(refused, _)| *refused == layer);
        known.map(|(_, why)| *why)
    })
}

/// Formats a request.
pub fn request(asked: &str, bind: Option<IpAddr>) -> String {
    match bind {
        Some(address) => format!("{asked} at {address}"),
        None => asked.to_owned(),
    }
}
