//! A survey of every provider of this machine.
//!
//! ```text
//!   fi_getinfo(no hints) --> names --> standing --> never: Refused
//!                                         `------> find --> Usable, or Refused with the reason
//!                                                     `--> the most preferred: Chosen
//! ```
//!
//! Owns: the list that error messages and the provider matrix show. Only [`has_descriptor`] opens
//! anything.

use super::{Missing, Standing, find};
use crate::Device;
use crate::plan::{HEADERS, Plan};
use libfabric_sys::Library;
use libfabric_sys::abi::{FI_EP_RDM, fi_major, fi_minor};
use mx_port_fabric::{Domain, Finding, Offered, Paths, Verdict};
use std::sync::Arc;

/// All providers that offer anything on this machine, in libfabric's order.
pub fn survey(library: &Library) -> Vec<Finding> {
    survey_at(library, &Device::default())
}

/// As [`survey`], for endpoints on that interface.
pub(super) fn survey_at(library: &Library, device: &Device) -> Vec<Finding> {
    // Without hints: all offers. An error is an empty list.
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
        let mut found = look_at(library, &provider, device);
        if found.paths.is_none() {
            let its = || all.iter().filter(|info| info.provider() == provider);
            let reliable = its().find(|info| info.ep_type() == FI_EP_RDM);
            found.offer = Offered::of(reliable.unwrap_or(info));
        }
        if let (Verdict::Usable, Standing::Preferred(rank)) =
            (&found.verdict, Standing::of(&provider))
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

fn look_at(library: &Library, provider: &str, device: &Device) -> Finding {
    let refused = |why: String| Finding {
        provider: provider.to_owned(),
        version: (0, 0),
        verdict: Verdict::Refused(why),
        plan: String::new(),
        offer: Offered::default(),
        paths: None,
    };
    if let Standing::Never(why) = Standing::of(provider) {
        return refused(why.to_owned());
    }
    match find(library, provider, device) {
        Ok(choice) => Finding {
            verdict: Verdict::Usable,
            plan: choice.plan.to_string(),
            offer: choice.info.first().map(Offered::of).unwrap_or_default(),
            paths: Some(paths(&choice.plan)),
            ..refused(String::new())
        },
        Err(Missing::Unfit(why)) => refused(why),
        Err(Missing::Absent) => {
            refused("it has no reliable datagram endpoints with ordered messages".to_owned())
        }
    }
}

/// Opens a provider to see whether one can sleep until it has something: with a descriptor, or only by
/// looking again and again. The error says why it does not open.
pub fn has_descriptor(provider: &str, library: &Library) -> Result<bool, String> {
    let choice = match find(library, provider, &Device::default()) {
        Ok(choice) => choice,
        Err(Missing::Unfit(why)) => return Err(why),
        Err(Missing::Absent) => return Err("it has nothing here".to_owned()),
    };
    let domain = Domain::open(Arc::new(library.clone()), &choice.info, choice.plan.terms());
    let domain = domain.map_err(|error| format!("{}: {}", error.what, error.text))?;
    Ok(domain.wait_fd().is_some())
}

fn paths(plan: &Plan) -> Paths {
    Paths {
        inject_max: plan.inject_max,
        slot_bytes: plan.slot_bytes - HEADERS,
        large: plan.large().to_owned(),
    }
}
