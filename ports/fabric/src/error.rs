//! Errors of opening the port.
//!
//! ```text
//!   load ----> NoLibrary
//!   choose --> NoProvider, Refused, Unfit
//!   open ----> Open, System
//! ```
//!
//! Every message names the request, the finding, and the remedy.
//!
//! Owns: the texts.

use super::{Finding, Verdict};
use crate::{FabricError, REGISTER};
use libfabric_sys::LoadError;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::fmt;
use std::io;

/// Errors of opening a port over libfabric, for reliable or plain datagrams; other ports are not affected.
#[derive(Debug)]
pub enum RdmError {
    /// libfabric is missing, too old or cannot be loaded.
    NoLibrary(LoadError),
    /// No provider matches the request.
    NoProvider {
        /// Requested provider and address.
        asked: String,
        /// Providers of this machine.
        found: Vec<Finding>,
    },
    /// The requested provider is never used.
    Refused {
        /// Name of the provider.
        provider: String,
        /// Reason, as text.
        why: String,
    },
    /// The requested provider offers no usable endpoint.
    Unfit {
        /// Name of the provider.
        provider: String,
        /// Reason, as text.
        why: String,
    },
    /// An object of libfabric cannot be opened.
    Open(FabricError),
    /// Descriptors, memory or random numbers are unavailable.
    System(io::Error),
}

impl From<LoadError> for RdmError {
    fn from(error: LoadError) -> Self {
        Self::NoLibrary(error)
    }
}

impl From<FabricError> for RdmError {
    fn from(error: FabricError) -> Self {
        Self::Open(error)
    }
}

impl fmt::Display for RdmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary(error) => error.fmt(f),
            Self::NoProvider { asked, found } => no_provider(f, asked, found),
            Self::Refused { provider, why } => {
                write!(
                    f,
                    "provider {provider} is not used: {why}; unset MX_PROVIDER"
                )
            }
            Self::Unfit { provider, why } => write!(
                f,
                "provider {provider} cannot be used: {why}; set MX_PROVIDER to another or unset it"
            ),
            Self::Open(error) => {
                let FabricError { what, code, text } = error;
                write!(f, "cannot open the fabric: {what}: {text} ({code})")?;
                match hint(error) {
                    Some(hint) => write!(f, "; {hint}"),
                    None => Ok(()),
                }
            }
            Self::System(error) => write!(f, "cannot open the fabric: {error}"),
        }
    }
}

impl std::error::Error for RdmError {}

fn no_provider(f: &mut fmt::Formatter<'_>, asked: &str, found: &[Finding]) -> fmt::Result {
    write!(f, "no matching libfabric provider ({asked}); found ")?;
    if found.is_empty() {
        return f.write_str("none; install the provider of the card, or another libfabric");
    }
    for (index, finding) in found.iter().enumerate() {
        let between = if index == 0 { "" } else { "; " };
        write!(f, "{between}{finding}")?;
    }
    let usable: Vec<&str> = found
        .iter()
        .filter(|finding| !matches!(finding.verdict, Verdict::Refused(_)))
        .map(|finding| finding.provider.as_str())
        .collect();
    if usable.is_empty() {
        f.write_str("; install the provider of the card, or another libfabric")
    } else {
        write!(f, "; MX_PROVIDER can be {}", usable.join(" or "))
    }
}

/// Returns the remedy for a failed call, if known.
fn hint(error: &FabricError) -> Option<String> {
    if error.what == "fi_enable" && matches!(error.code, libc::EINVAL | libc::ENOMEM) {
        return Some(UNIVERSE.to_owned());
    }
    let memory = matches!(error.code, libc::ENOMEM | libc::EPERM | libc::EAGAIN);
    (error.what == REGISTER && memory).then(|| {
        let any = || "any amount".to_owned();
        let most = memlock_limit().map_or_else(any, |bytes| format!("{} KiB", bytes / 1024));
        format!(
            "memory may be locked up to {most} (RLIMIT_MEMLOCK): raise it with ulimit -l or in \
             limits.conf"
        )
    })
}

/// `ofi_rxm` opens its queue when it enables an endpoint, and reports only the error code.
const UNIVERSE: &str = "the device may have fewer completion entries than the number of peers expected \
    takes (128 each over ofi_rxm): set FI_UNIVERSE_SIZE to a smaller one, such as 32, before the \
    start";

/// Returns how many bytes this process may lock, which limits registrations (soft `RLIMIT_MEMLOCK`); `None`: no limit,
/// or not known.
pub fn memlock_limit() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(provider: &str, verdict: Verdict, plan: &str) -> Finding {
        Finding {
            provider: provider.into(),
            version: (117, 0),
            verdict,
            plan: plan.into(),
            offer: Default::default(),
            paths: None,
        }
    }

    #[test]
    fn missing_provider_error_says_what_was_found_and_helps() {
        let error = RdmError::NoProvider {
            asked: "cxi".into(),
            found: vec![
                finding("shm", Verdict::Refused("it hangs".into()), ""),
                finding("tcp;ofi_rxm", Verdict::Chosen, "inject up to 64"),
            ],
        };
        assert_eq!(
            error.to_string(),
            "no matching libfabric provider (cxi); found shm: refused, it hangs; tcp;ofi_rxm: \
             chosen, inject up to 64; MX_PROVIDER can be tcp;ofi_rxm"
        );
    }

    #[test]
    fn without_any_provider_there_is_something_to_install() {
        let error = RdmError::NoProvider {
            asked: "fabric hardware".into(),
            found: Vec::new(),
        };
        assert_eq!(
            error.to_string(),
            "no matching libfabric provider (fabric hardware); found none; install the provider of \
             the card, or another libfabric"
        );
    }

    #[test]
    fn a_registration_without_memory_names_the_limit() {
        let failed = |what, code| {
            RdmError::from(FabricError {
                what,
                code,
                text: "Cannot allocate memory".into(),
            })
            .to_string()
        };
        let text = failed(REGISTER, libc::ENOMEM);
        assert!(text.starts_with(
            "cannot open the fabric: fi_mr_reg: Cannot allocate memory (12); memory may be locked"
        ));
        let limit = memlock_limit().map_or_else(
            || "any amount".into(),
            |most| format!("{} KiB", most / 1024),
        );
        assert!(text.contains(&limit) && text.contains("RLIMIT_MEMLOCK"));
        assert!(failed(REGISTER, libc::EPERM).contains("RLIMIT_MEMLOCK"));
        assert_eq!(
            failed("fi_domain", libc::ENOMEM),
            "cannot open the fabric: fi_domain: Cannot allocate memory (12)"
        );
        assert!(!failed(REGISTER, libc::EINVAL).contains("RLIMIT_MEMLOCK"));
    }
}
