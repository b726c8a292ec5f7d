//! A provider, as text.
//!
//! ```text
//!   Finding (mx-port-rdm: numbers)  -->  Row (strings, for every style)
//! ```
//!
//! Owns: the text form of a finding.
//! Out of scope: headings, and the table of a row.

use super::names;
use mx_port_rdm::{Finding, Verdict};
use serde_json::{Value, json};

/// A provider, and whether a port can use it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) provider: String,
    pub(crate) version: String,
    pub(crate) verdict: &'static str,
    /// Reason of a refusal; empty otherwise.
    pub(crate) reason: String,
    pub(crate) ep_type: String,
    pub(crate) caps: Vec<&'static str>,
    pub(crate) mode: Vec<String>,
    pub(crate) mr_mode: Vec<String>,
    pub(crate) inject: usize,
    pub(crate) address: String,
    pub(crate) paths: Option<Paths>,
}

/// Path of each class of message.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) small: String,
    pub(crate) medium: String,
    pub(crate) large: String,
    pub(crate) waits: &'static str,
}

impl Row {
    pub(crate) fn new(finding: &Finding) -> Self {
        let (verdict, reason) = verdict(finding);
        let paths = finding.paths.as_ref().map(|paths| Paths {
            small: match paths.inject_max {
                0 => "slot copy".to_owned(),
                most => format!("inject, up to {most} B"),
            },
            medium: format!("slot copy, up to {}", kib(paths.slot_bytes)),
            large: paths.large.clone(),
            waits: if paths.descriptor {
                "descriptor"
            } else {
                "polled"
            },
        });
        let offer = &finding.offer;
        Self {
            provider: finding.provider.clone(),
            version: format!("{}.{}", finding.version.0, finding.version.1),
            verdict,
            reason: reason.to_owned(),
            ep_type: names::ep_type(offer.ep_type),
            caps: names::caps(offer.caps),
            mode: names::modes(offer.mode),
            mr_mode: names::mr_modes(offer.mr_mode),
            inject: offer.inject_size,
            address: names::format(offer.address_format),
            paths,
        }
    }

    /// Returns a line of the paths table; `None` for an unusable provider.
    pub(super) fn path(&self) -> Option<Vec<String>> {
        let it = self.paths.as_ref()?;
        let (small, medium, large) = (&*it.small, &*it.medium, &*it.large);
        Some(line([
            &self.provider,
            self.verdict,
            small,
            medium,
            large,
            it.waits,
        ]))
    }

    /// Returns a line of the offers table.
    pub(super) fn offer(&self) -> Vec<String> {
        let joined = |bits: &[String]| match bits {
            [] => "0".to_owned(),
            bits => bits.join(" "),
        };
        line([
            &self.provider,
            &self.version,
            &self.ep_type,
            &self.inject.to_string(),
            &self.address,
            &self.caps.join(" "),
            &joined(&self.mode),
            &joined(&self.mr_mode),
        ])
    }

    /// Returns a line of the table of unused providers.
    pub(super) fn refusal(&self) -> Vec<String> {
        line([&self.provider, self.verdict, &self.reason])
    }

    pub(super) fn json(&self) -> Value {
        let mut row = json!({
            "provider": self.provider,
            "version": self.version,
            "verdict": self.verdict,
            "reason": self.reason,
            "endpoint": self.ep_type,
            "inject": self.inject,
            "address": self.address,
            "capabilities": self.caps,
            "mode": self.mode,
            "mr_mode": self.mr_mode,
        });
        if let Some(paths) = &self.paths {
            row["small"] = json!(paths.small);
            row["medium"] = json!(paths.medium);
            row["large"] = json!(paths.large);
            row["waits"] = json!(paths.waits);
        }
        row
    }

    /// Returns the position of the row's group in the output.
    pub(crate) fn rank(&self) -> usize {
        ["chosen", "usable"]
            .iter()
            .position(|verdict| *verdict == self.verdict)
            .unwrap_or(usize::MAX)
    }

    /// Returns whether the provider is usable.
    pub(crate) fn is_usable(&self) -> bool {
        self.paths.is_some()
    }
}

fn line<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Returns a verdict, and the reason of a refusal.
pub(crate) fn verdict(finding: &Finding) -> (&'static str, &str) {
    match &finding.verdict {
        Verdict::Chosen => ("chosen", ""),
        Verdict::Usable => ("usable", ""),
        Verdict::Refused(why) => ("refused", why),
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
