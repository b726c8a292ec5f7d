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

/// Creates hints for offers of one provider, by its exact name, or of any (`None`). `mr_modes`: registration modes that
/// the caller supports, `FI_MR_*`. Fails with the error `FI_E*`, positive.
pub fn hints(library: &Library, provider: Option<&str>, mr_modes: c_int) -> Result<Hints, i32> {
    let mut hints = library.hints()?;
    hints.set_mode(MODES).set_mr_mode(mr_modes);
    if let Some(name) = provider {
        // A provider's name is always a C string.
        hints.set_provider(name).map_err(|_| FI_ENODATA)?;
    }
    Ok(hints)
}

/// Creates hints like [`hints`] for endpoints of a type (`FI_EP_*`) with certain capabilities, used under one lock. The
/// tuple has the type, the capabilities, and the registration modes that the caller supports.
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

/// Queries the offers that match the hints, best first; with `bind`, those at this local address only. Fails with the
/// error `FI_E*`, positive; `FI_ENODATA` if there are none.
pub fn query(library: &Library, hints: &Hints, bind: Option<IpAddr>) -> Result<InfoList, i32> {
    match bind.map(|address| CString::new(address.to_string())) {
        Some(Ok(node)) => library.query(Some(&node), None, FI_SOURCE, Some(hints)),
        // An address contains no zero byte.
        Some(Err(_)) | None => library.query(None, None, 0, Some(hints)),
    }
}

/// Returns the usable offer of the lowest rank, the first of equals, and its plan. `judge` returns the rank and the
/// plan of an offer, or why it cannot be used. Fails with the first such reason, or with `None` if there are no offers.
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

/// Checks that all modes that an offer requires are supported: `mode` by this crate, `mr_mode` by the caller
/// (`mr_modes`). Fails with the reason, as text. `FI_MR_HMEM` is ignored: it concerns only device memory, which is
/// never used.
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

/// Returns the reason why a provider is never used; `None` if it may be. `never` lists names of layers, with reasons.
/// Layers are checked from the outermost, which peers talk to (the last in the name); hooking layers are always
/// refused.
pub fn refused(name: &str, never: &'static [(&'static str, &'static str)]) -> Option<&'static str> {
    name.rsplit(';').find_map(|layer| {
        if layer.starts_with("ofi_hook") {
            return Some("it only watches other providers");
        }
        let known = never.iter().find(|(refused, _)| *refused == layer);
        known.map(|(_, why)| *why)
    })
}

/// Formats a request for error messages: the provider asked for, and the address if one is required.
pub fn request(asked: &str, bind: Option<IpAddr>) -> String {
    match bind {
        Some(address) => format!("{asked} at {address}"),
        None => asked.to_owned(),
    }
}
