//! Every provider of this machine, and what is thought of it.
//!
//! ```text
//!   fi_getinfo(no hints) --> names --> standing --> never: Refused
//!                                         `------> find --> Usable, or Refused with the reason
//!                                                     `--> the most preferred: Chosen
//! ```
//!
//! Owns: the list that error messages and the provider matrix show.
//! Knows nothing of: opening.

use super::{Missing, Standing, find};
use libfabric_sys::Library;
use libfabric_sys::abi::{fi_major, fi_minor};
use std::fmt;
use std::net::IpAddr;

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
        let (verdict, plan) = look_at(library, &provider, bind);
        if let (Verdict::Usable, Standing::Preferred(rank)) = (&verdict, Standing::of(&provider))
            && best.is_none_or(|(other, _)| rank < other)
        {
            best = Some((rank, findings.len()));
        }
        findings.push(Finding {
            provider,
            version: (fi_major(version), fi_minor(version)),
            verdict,
            plan,
        });
    }
    if let Some(finding) = best.and_then(|(_, index)| findings.get_mut(index)) {
        finding.verdict = Verdict::Chosen;
    }
    findings
}

fn look_at(library: &Library, provider: &str, bind: Option<IpAddr>) -> (Verdict, String) {
    if let Standing::Never(why) = Standing::of(provider) {
        return (Verdict::Refused(why.to_owned()), String::new());
    }
    match find(library, provider, bind) {
        Ok(choice) => (Verdict::Usable, choice.plan.to_string()),
        Err(Missing::Unfit(why)) => (Verdict::Refused(why), String::new()),
        Err(Missing::Absent) => {
            let why = "it has no reliable datagram endpoints with ordered messages".to_owned();
            (Verdict::Refused(why), String::new())
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
