//! One provider, in words.
//!
//! ```text
//!   Finding (mx-port-rdm: numbers)  +  has it a descriptor?  -->  Row (strings, for every style)
//! ```
//!
//! Owns: the words for what was found.
//! Not here: tables.

use crate::names;
use libfabric_sys::Library;
use mx_port_rdm::{Finding, Verdict, has_descriptor};

/// The common part of all rows.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) version: (u32, u32),
    pub(crate) adapters: Vec<String>,
}

/// One provider.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) provider: String,
    pub(crate) version: String,
    pub(crate) verdict: &'static str,
    /// Why it is refused, or does not open; empty otherwise.
    pub(crate) reason: String,
    pub(crate) ep_type: String,
    pub(crate) caps: Vec<&'static str>,
    pub(crate) mode: Vec<String>,
    pub(crate) mr_mode: Vec<String>,
    pub(crate) inject: usize,
    pub(crate) address: String,
    pub(crate) paths: Option<Paths>,
}

/// The path of each class of message.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) small: String,
    pub(crate) medium: String,
    pub(crate) large: String,
    pub(crate) waits: &'static str,
}

impl Row {
    /// Opens the provider, unless it is refused.
    pub(crate) fn new(library: &Library, finding: &Finding) -> Self {
        let (mut verdict, mut reason) = match &finding.verdict {
            Verdict::Chosen => ("chosen", String::new()),
            Verdict::Usable => ("usable", String::new()),
            Verdict::Refused(why) => ("refused", why.clone()),
        };
        let paths = finding.paths.as_ref().and_then(|paths| {
            let descriptor = has_descriptor(&finding.provider, library);
            if let Err(why) = &descriptor {
                (verdict, reason) = ("broken", why.clone());
            }
            Some(Paths {
                small: match paths.inject_max {
                    0 => "slot copy".to_owned(),
                    most => format!("inject, up to {most} B"),
                },
                medium: format!("slot copy, up to {}", kib(paths.slot_bytes)),
                large: paths.large.clone(),
                waits: if descriptor.ok()? {
                    "descriptor"
                } else {
                    "polled"
                },
            })
        });
        let offer = finding.offer;
        Self {
            provider: finding.provider.clone(),
            version: format!("{}.{}", finding.version.0, finding.version.1),
            verdict,
            reason,
            ep_type: names::ep_type(offer.ep_type),
            caps: names::caps(offer.caps),
            mode: names::modes(offer.mode),
            mr_mode: names::mr_modes(offer.mr_mode),
            inject: offer.inject_size,
            address: names::format(offer.address_format),
            paths,
        }
    }

    /// In which order rows are shown.
    pub(crate) fn rank(&self) -> usize {
        ["chosen", "usable", "broken"]
            .iter()
            .position(|verdict| *verdict == self.verdict)
            .unwrap_or(usize::MAX)
    }

    /// Whether it can be used.
    pub(crate) fn is_usable(&self) -> bool {
        self.paths.is_some()
    }
}

fn kib(bytes: usize) -> String {
    match bytes % 1024 {
        0 => format!("{} KiB", bytes / 1024),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_kib_where_they_are() {
        assert_eq!(kib(16384), "16 KiB");
        assert_eq!(kib(4144), "4144 B");
    }
}
