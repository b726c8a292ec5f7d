//! Survey of every provider of this machine.
//!
//! ```text
//!   fi_getinfo(no hints) --> names --> rank --> never: Refused
//!                                         `--> find, open --> Usable, or Refused with the reason
//!                                                        `--> the best rank: Chosen
//! ```
//!
//! Owns: the list that error messages and the provider matrix show.

use super::{Choice, Missing, ProviderRank, find};
use crate::plan::HEADERS;
use crate::{Device, RdmError};
use libfabric_sys::Library;
use libfabric_sys::abi::{FI_EP_RDM, fi_major, fi_minor};
use mx_port_fabric::{Finding, Offer, Paths, Verdict};
use std::sync::Arc;

/// Examines all providers of this machine and returns a verdict on each, in libfabric's order. Opens and closes every
/// usable one to be sure. Empty if libfabric lists none.
pub fn survey(library: &Library) -> Vec<Finding> {
    let shared = Arc::new(library.clone());
    survey_with(library, &Device::default(), |choice| {
        let (choice, fabric) = choice.open(&shared)?;
        let descriptor = fabric.domain.wait_fd().is_some();
        Ok((choice, descriptor))
    })
}

/// Examines providers for endpoints on that interface, without opening anything.
pub(super) fn unopened(library: &Library, device: &Device) -> Vec<Finding> {
    survey_with(library, device, |choice| Ok((choice, false)))
}

/// Examines providers; `open` also returns whether there is a descriptor to sleep on.
fn survey_with(
    library: &Library,
    device: &Device,
    open: impl Fn(Choice) -> Result<(Choice, bool), RdmError>,
) -> Vec<Finding> {
    // Without hints libfabric lists all offers. An error counts as an empty list.
    let Ok(all) = library.query(None, None, 0, None) else {
        return Vec::new();
    };
    let mut findings: Vec<Finding> = Vec::new();
    let mut best: Option<(usize, usize)> = None;
    for info in &all {
        let provider = info.provider().into_owned();
        if findings.iter().any(|finding| finding.provider == provider) {
            continue;
        }
        let version = info.provider_version();
        let mut found = look_at(library, &provider, device, &open);
        if found.paths.is_none() {
            let its = || all.iter().filter(|info| info.provider() == provider);
            let reliable = its().find(|info| info.ep_type() == FI_EP_RDM);
            found.offer = Offer::of(reliable.unwrap_or(info));
        }
        if let (Verdict::Usable, ProviderRank::Preferred(rank)) =
            (&found.verdict, ProviderRank::of(&provider))
            && best.is_none_or(|(other, _)| rank < other)
        {
            best = Some((rank, findings.len()));
        }
        findings.push(Finding {
            version: (fi_major(version), fi_minor(version)),
            ..found
        });
    }
    if let Some(finding) = best.and_then(|(_, index)| findings.get_mut(index)) {
        finding.verdict = Verdict::Chosen;
    }
    findings
}

fn look_at(
    library: &Library,
    provider: &str,
    device: &Device,
    open: impl Fn(Choice) -> Result<(Choice, bool), RdmError>,
) -> Finding {
    let refused = |why: String| Finding {
        provider: provider.to_owned(),
        version: (0, 0),
        verdict: Verdict::Refused(why),
        plan: String::new(),
        offer: Offer::default(),
        paths: None,
    };
    if let ProviderRank::Never(why) = ProviderRank::of(provider) {
        return refused(why.to_owned());
    }
    let (choice, descriptor) = match find(library, provider, device) {
        Ok(choice) => match open(choice) {
            Ok(opened) => opened,
            Err(error) => return refused(error.to_string()),
        },
        Err(Missing::Unfit(why)) => return refused(why),
        Err(Missing::Absent) => {
            return refused(
                "it has no reliable datagram endpoints with ordered messages".to_owned(),
            );
        }
    };
    let plan = &choice.plan;
    Finding {
        verdict: Verdict::Usable,
        plan: plan.to_string(),
        offer: choice.info.first().map(Offer::of).unwrap_or_default(),
        paths: Some(Paths {
            inject_max: plan.terms.inject_max,
            slot_bytes: plan.terms.frame_max - HEADERS,
            large: plan.large(),
            descriptor,
        }),
        ..refused(String::new())
    }
}
