//! Every provider of this machine, and what is thought of it.
//!
//! ```text
//!   fi_getinfo(no hints) --> names --> standing --> never: Refused
//!                                         `------> find --> Usable, or Refused with the reason
//!                                                     `--> the most preferred: Chosen
//! ```
//!
//! Owns: the list that error messages and the provider matrix show.
//! Knows nothing of: who shows it. Only [`Finding::has_descriptor`] opens anything.

use super::{Missing, Standing, find};
use crate::ports::fabric::Domain;
use crate::ports::rdm::plan::{HEADERS, Plan};
use libfabric_sys::abi::{FI_EP_RDM, fi_major, fi_minor};
use libfabric_sys::{Info, Library};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its exact name, layers joined by `;`.
    pub provider: String,
    /// Its own version, major and minor.
    pub version: (u32, u32),
    /// What is thought of it.
    pub verdict: Verdict,
    /// Which path each class of message takes over it; empty when it is refused.
    pub plan: String,
    /// What it says of itself: in the offer that is used, else in its first for reliable datagrams,
    /// else in its first.
    pub offer: Offered,
    /// The same as `plan`, class by class; `None` when it is refused.
    pub paths: Option<Paths>,
}

/// What an offer says, in libfabric's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Offered {
    /// `FI_EP_*`.
    pub ep_type: u32,
    /// Capabilities.
    pub caps: u64,
    /// What it wants of its user.
    pub mode: u64,
    /// What it wants of registrations.
    pub mr_mode: i32,
    /// The longest message it takes at once.
    pub inject_size: usize,
    /// The shape of its addresses.
    pub address_format: u32,
}

/// How messages go over a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// Frames up to this are injected; 0: none are.
    pub inject_max: usize,
    /// Bodies up to this are copied into a slot.
    pub slot_bytes: usize,
    /// How what is longer goes.
    pub large: String,
}

/// What is thought of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is used unless another is asked for.
    Chosen,
    /// It is used when it is asked for, or when there is no better one.
    Usable,
    /// It is not used, and why.
    Refused(String),
}

/// All providers that offer anything on this machine, in libfabric's order.
pub fn survey(library: &Library) -> Vec<Finding> {
    survey_at(library, None)
}

/// As [`survey`], for endpoints at one address.
pub(super) fn survey_at(library: &Library, bind: Option<IpAddr>) -> Vec<Finding> {
    // Without hints: everything there is. An error is an empty list: nothing there.
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
        let mut found = look_at(library, &provider, bind);
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

fn look_at(library: &Library, provider: &str, bind: Option<IpAddr>) -> Finding {
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
    match find(library, provider, bind) {
        Ok(choice) => Finding {
            verdict: Verdict::Usable,
            plan: choice.plan.to_string(),
            offer: choice.info.first().map(Offered::of).unwrap_or_default(),
            paths: Some(Paths::of(&choice.plan)),
            ..refused(String::new())
        },
        Err(Missing::Unfit(why)) => refused(why),
        Err(Missing::Absent) => {
            refused("it has no reliable datagram endpoints with ordered messages".to_owned())
        }
    }
}

impl Finding {
    /// Opens the provider to see whether one can sleep until it has something: with a descriptor,
    /// or only by looking again and again. The error says why it does not open.
    pub fn has_descriptor(&self, library: &Library) -> Result<bool, String> {
        let choice = match find(library, &self.provider, None) {
            Ok(choice) => choice,
            Err(Missing::Unfit(why)) => return Err(why),
            Err(Missing::Absent) => return Err("it has nothing here".to_owned()),
        };
        let domain = Domain::open(Arc::new(library.clone()), &choice.info, choice.plan.terms());
        let domain = domain.map_err(|error| format!("{}: {}", error.what, error.text))?;
        Ok(domain.wait_fd().is_some())
    }
}

impl Offered {
    fn of(info: Info<'_>) -> Self {
        Self {
            ep_type: info.ep_type(),
            caps: info.caps(),
            mode: info.mode(),
            mr_mode: info.mr_mode(),
            inject_size: info.inject_size(),
            address_format: info.addr_format(),
        }
    }
}

impl Paths {
    fn of(plan: &Plan) -> Self {
        Self {
            inject_max: plan.inject_max,
            slot_bytes: plan.slot_bytes - HEADERS,
            large: plan.large().to_owned(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Chosen => write!(f, "{}: chosen, {}", self.provider, self.plan),
            Verdict::Usable => write!(f, "{}: usable, {}", self.provider, self.plan),
            Verdict::Refused(why) => write!(f, "{}: refused, {why}", self.provider),
        }
    }
}
