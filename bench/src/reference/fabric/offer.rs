//! Choice of the provider on which the references, and therefore the method, are measured.
//!
//! ```text
//!   --provider NAME or MX_PROVIDER   that one, by its exact name
//!   otherwise                        hardware, then tcp with RDM, then tcp;ofi_rxm
//!        |
//!        v
//!   an offer on the loopback interface if addresses are those of sockets, otherwise on any
//! ```
//!
//! Owns: the hints for a provider.
//! Out of scope: endpoints.

use libfabric_sys::abi::*;
use libfabric_sys::{InfoList, Library};

/// Providers in the method's order of preference.
const PREFERENCE: [&str; 7] = [
    "verbs;ofi_rxm",
    "cxi",
    "psm3",
    "opx",
    "efa",
    "tcp",
    "tcp;ofi_rxm",
];

/// Returns the offer to use, first in a list, or the reason why there is none.
pub(super) fn find(library: &Library, provider: Option<&str>) -> Result<InfoList, String> {
    let (major, minor) = library.version();
    match provider {
        Some(name) => ask(library, name)?
            .ok_or_else(|| format!("libfabric {major}.{minor} offers no '{name}' with FI_EP_RDM")),
        None => {
            for name in PREFERENCE {
                if let Some(offers) = ask(library, name)? {
                    return Ok(offers);
                }
            }
            Err(format!(
                "libfabric {major}.{minor} offers none of {}",
                PREFERENCE.join(", ")
            ))
        }
    }
}

fn ask(library: &Library, provider: &str) -> Result<Option<InfoList>, String> {
    let no_memory = |_| "no memory for libfabric's hints";
    let mut hints = library.hints().map_err(no_memory)?;
    hints
        .set_caps(FI_TAGGED)
        .set_mode(FI_CONTEXT | FI_CONTEXT2)
        .set_ep_type(FI_EP_RDM)
        .set_threading(FI_THREAD_DOMAIN)
        .set_mr_mode(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
        .set_provider(provider)
        .map_err(|error| error.to_string())?;
    // Without this hint a provider over sockets offers the machine's first interface.
    let sockets = ["tcp", "verbs", "net", "sockets", "udp"];
    let core = provider.split(';').next().unwrap_or_default();
    if sockets.contains(&core)
        && let Some(offers) = matching(
            library.query(Some(c"127.0.0.1"), None, FI_SOURCE, Some(&hints)),
            provider,
        )
    {
        return Ok(Some(offers));
    }
    Ok(matching(
        library.query(None, None, 0, Some(&hints)),
        provider,
    ))
}

/// Returns the first offer of exactly this provider: some libraries also match parts of other
/// names.
fn matching(offers: Result<InfoList, i32>, provider: &str) -> Option<InfoList> {
    let offers = offers.ok()?;
    let info = offers.iter().find(|info| info.provider() == provider)?;
    offers.keep(info).ok()
}
