//! Rank of a provider by its name.
//!
//! ```text
//!   hardware   cxi, opx, efa, verbs;ofi_rxm, psm3       first that works
//!   software   tcp, tcp;ofi_rxm                         if hardware is not required
//!   others     psm2, ucx, ...                           only by name
//!   never      shm, sockets, net, udp, *;ofi_rxd, ...   not even by name; each with its reason
//! ```
//!
//! Owns: the order of preference and the reasons.

use crate::plan::is_software;
use mx_port_fabric::offers;

/// Rank of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProviderRank {
    /// Chosen by default, the lowest number first.
    Preferred(usize),
    /// Used only on request by name.
    OnRequest,
    /// Never used, for this reason.
    Never(&'static str),
}

impl ProviderRank {
    /// Returns the rank of the provider with this exact name, layers joined by `;`.
    pub(crate) fn of(name: &str) -> Self {
        if let Some(why) = offers::refused(name, NEVER) {
            return Self::Never(why);
        }
        match PREFERENCE.iter().position(|preferred| *preferred == name) {
            Some(rank) => Self::Preferred(rank),
            None => Self::OnRequest,
        }
    }
}

/// Returns the providers that are chosen by default, best first.
pub(crate) fn preference(hardware_only: bool) -> impl Iterator<Item = &'static str> {
    PREFERENCE
        .into_iter()
        .filter(move |name| !(hardware_only && is_software(name)))
}

/// Returns whether a provider has IP addresses, so that it can be bound to one.
pub(crate) fn has_ip_addresses(name: &str) -> bool {
    let core = name.split(';').next().unwrap_or(name);
    is_software(name) || core == "verbs"
}

/// Default providers, best first. A card's own provider comes before those for several makes: hfi1 cards appear under
/// verbs too, and psm3 also runs over plain Ethernet. `tcp` comes before `tcp;ofi_rxm`, which adds a layer.
const PREFERENCE: [&str; 7] = [
    "cxi",
    "opx",
    "efa",
    "verbs;ofi_rxm",
    "psm3",
    "tcp",
    "tcp;ofi_rxm",
];

/// Layers that are never used, by measurement or by their own manual.
const NEVER: &[(&str, &str)] = &[
    (
        "shm",
        "a message longer than its receive hangs it, and it does not notice that a peer has died; \
         peers on this host go over shared memory without it",
    ),
    (
        "sm2",
        "it has no descriptor to wait on and hangs on discarded messages; peers on this host go \
         over shared memory without it",
    ),
    ("sockets", "it is deprecated and only there for development"),
    (
        "net",
        "it stops after the first unmatched message, and 1.18 removed it; use tcp",
    ),
    ("udp", "it has no reliable messages"),
    (
        "ofi_rxd",
        "it is unfinished by its own manual: it loses truncation errors and crashes when a peer \
         restarts",
    ),
    (
        "psm",
        "its hardware has been out of support for years, and so has it",
    ),
    (
        "ofi_mrail",
        "it is experimental; bind one of its rails instead",
    ),
    (
        "lnx",
        "it is experimental; name one of the providers it joins instead",
    ),
    (
        "linkx",
        "it is experimental; name one of the providers it joins instead",
    ),
    ("rstream", "it has no messages"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_comes_before_software_and_tcp_before_rxm() {
        let all: Vec<_> = preference(false).collect();
        let hardware: Vec<_> = preference(true).collect();
        assert_eq!(all[..5], hardware);
        assert_eq!(all[5..], ["tcp", "tcp;ofi_rxm"]);
        for (rank, name) in all.into_iter().enumerate() {
            assert_eq!(ProviderRank::of(name), ProviderRank::Preferred(rank));
        }
    }

    #[test]
    fn what_is_known_to_fail_is_refused_in_every_layer() {
        for name in [
            "shm",
            "sm2",
            "sockets",
            "net",
            "net;ofi_rxm",
            "udp",
            "udp;ofi_rxd",
            "verbs;ofi_rxd",
            "tcp;ofi_rxm;ofi_mrail",
            "ofi_hook_perf",
            "psm",
            "lnx",
        ] {
            assert!(
                matches!(ProviderRank::of(name), ProviderRank::Never(_)),
                "{name}"
            );
        }
    }

    #[test]
    fn the_outermost_layer_gives_the_reason() {
        let ProviderRank::Never(why) = ProviderRank::of("udp;ofi_rxd") else {
            panic!("refused");
        };
        assert!(why.starts_with("it is unfinished"));
    }

    #[test]
    fn names_count_exactly() {
        for name in [
            "psm2",
            "ucx",
            "verbs",
            "TCP",
            "tcp,ofi_rxm",
            "tcp;ofi_rxm ",
            "",
        ] {
            assert_eq!(ProviderRank::of(name), ProviderRank::OnRequest, "{name:?}");
        }
    }

    #[test]
    fn a_bind_address_means_something_to_ip_only() {
        for name in ["tcp", "tcp;ofi_rxm", "verbs;ofi_rxm"] {
            assert!(has_ip_addresses(name), "{name}");
        }
        for name in ["cxi", "opx", "psm3", "efa", "psm2"] {
            assert!(!has_ip_addresses(name), "{name}");
        }
    }
}
