//! Textual addresses.
//!
//! ```text
//!   "10.0.0.5"  "fe80::1%eth0"  "[::1]"  "::ffff:10.0.0.5"  --parse-->  SocketAddr, port 0
//!   "server7"                                               --parse-->  None: a name
//!   "[fe80::1%2]"  "10.0.0.5"                               <--text---
//! ```
//!
//! Out of scope: names, NIC ids.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Reasons why a text in the form of an address is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadLiteral {
    /// The brackets contain something other than an IPv6 address.
    Brackets,
    /// An unspecified, multicast or broadcast address, which no host has.
    NoHost,
}

/// Parses an address; `None` if `text` can only be a name. Link-local addresses keep their scope.
pub(crate) fn parse(text: &str) -> Result<Option<SocketAddr>, BadLiteral> {
    let address = if text.starts_with('[') || text.ends_with(']') {
        let inner = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let address = inner.and_then(v6).ok_or(BadLiteral::Brackets)?;
        SocketAddr::V6(address)
    } else if let Some(address) = v6(text) {
        SocketAddr::V6(address)
    } else if let Ok(address) = text.parse::<Ipv4Addr>() {
        SocketAddr::from((address, 0))
    } else {
        return Ok(None);
    };
    let address = plain_v4(address);
    let ip = address.ip();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if ip.is_unspecified() || ip.is_multicast() || broadcast {
        Err(BadLiteral::NoHost)
    } else {
        Ok(Some(address))
    }
}

/// Formats an address as [`parse`] accepts it and as `mx://` contains it.
pub(crate) fn text(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) if v6.scope_id() != 0 && v6.ip().is_unicast_link_local() => {
            format!("[{}%{}]", v6.ip(), v6.scope_id())
        }
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    }
}

/// Converts an IPv4-mapped IPv6 address (`::ffff:10.0.0.5`) to IPv4; other addresses are returned unchanged.
pub(crate) fn plain_v4(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// Parses an IPv6 address with an optional scope: `fe80::1%eth0` or `fe80::1%2`.
fn v6(text: &str) -> Option<SocketAddrV6> {
    let (address, scope) = match text.split_once('%') {
        Some((address, scope)) => (address, scope_number(scope)?),
        None => (text, 0),
    };
    let address: Ipv6Addr = address.parse().ok()?;
    Some(SocketAddrV6::new(address, 0, 0, scope))
}

fn scope_number(scope: &str) -> Option<u32> {
    if let Ok(number) = scope.parse() {
        return Some(number);
    }
    nix::net::if_::if_nametoindex(scope).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(literal: &str) -> String {
        text(parse(literal).unwrap().expect(literal))
    }

    #[test]
    fn addresses_are_read_and_written() {
        for (literal, plain) in [
            ("10.0.0.5", "10.0.0.5"),
            ("::ffff:10.0.0.5", "10.0.0.5"),
            ("2001:db8:0::5", "[2001:db8::5]"),
            ("[2001:db8::5]", "[2001:db8::5]"),
            ("fe80::1%7", "[fe80::1%7]"),
            ("[fe80::1%lo]", "[fe80::1%1]"),
        ] {
            assert_eq!(good(literal), plain);
            assert_eq!(good(plain), plain);
        }
    }

    #[test]
    fn names_are_no_addresses() {
        for name in ["", "server7", "10.0.0", "10.0.0.5.", "a:b", "fe80::1%", "%"] {
            assert_eq!(parse(name), Ok(None), "{name:?}");
        }
    }

    #[test]
    fn an_address_that_no_host_can_have_is_refused() {
        for address in [
            "0.0.0.0",
            "::",
            "[::]",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
        ] {
            assert_eq!(parse(address), Err(BadLiteral::NoHost), "{address}");
        }
        for brackets in ["[", "]", "[]", "[::1", "::1]", "[10.0.0.1]", "[fe80::1%]"] {
            assert_eq!(parse(brackets), Err(BadLiteral::Brackets), "{brackets}");
        }
    }
}
