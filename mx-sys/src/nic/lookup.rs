//! Lookup of the addresses of a host name.
//!
//! ```text
//!   address  -->  itself
//!   own name -->  none: this machine
//!   name     -->  the addresses in the peers file, in its order
//!            -->  else those of the resolver, IPv4 first
//!
//!   place 1 of  A4 B4 C4 A6 B6  is tried in the order  B4 A6 A4 B6 C4
//! ```
//!
//! Out of scope: NIC ids, boards.

use super::ResolveError;
use super::machine_name;
use crate::literal::{self, BadLiteral, plain_v4};
use crate::thread;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The kind of a host name, as far as it is known without the network.
#[derive(Debug)]
pub(super) enum Known {
    /// An address.
    Address(SocketAddr),
    /// A name of this machine.
    Own,
    /// A name that has to be looked up.
    Name,
}

/// Classifies `host` without the network.
pub(super) fn classify(host: &str) -> Result<Known, ResolveError> {
    if host.is_empty() {
        return Err(ResolveError::EmptyHost);
    }
    match literal::parse(host) {
        Ok(Some(address)) => Ok(Known::Address(address)),
        Ok(None) if is_own_name(host) => Ok(Known::Own),
        Ok(None) => Ok(Known::Name),
        Err(BadLiteral::Brackets) => Err(ResolveError::BadBrackets {
            host: host.to_owned(),
        }),
        Err(BadLiteral::NoHost) => Err(ResolveError::NoHost {
            host: host.to_owned(),
        }),
    }
}

fn is_own_name(host: &str) -> bool {
    is_localhost(host) || plain(host).eq_ignore_ascii_case(machine_name())
}

/// Returns whether `host` is the loopback's name.
pub(super) fn is_localhost(host: &str) -> bool {
    plain(host).eq_ignore_ascii_case("localhost")
}

fn plain(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Asks the resolver, which may use the network. Returns at least one address.
pub(super) fn ask(host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
    let unknown = |reason: String| ResolveError::Unknown {
        host: host.to_owned(),
        reason,
    };
    let name = host.to_owned();
    // The resolver and its NSS modules may need more stack than the caller has ([`thread::RESOLVER_STACK`]).
    let found = thread::apart("mx-lookup", move || -> io::Result<Vec<SocketAddr>> {
        Ok((name.as_str(), 0).to_socket_addrs()?.collect())
    });
    let found = found.map_err(|error| unknown(reason_of(&error)))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found
        .into_iter()
        .map(plain_v4)
        .filter(|address| !address.ip().is_unspecified())
    {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    // The sort is stable: within a family the resolver's order stays.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if addresses.is_empty() {
        Err(unknown("no address".to_owned()))
    } else {
        Ok(addresses)
    }
}

/// Returns the addresses in the order of trial, each with its place in `addresses`: first the one at `first`, then
/// alternating between the families (RFC 8305, section 4), so that a network without one of the families costs one
/// attempt.
pub(super) fn in_order_of_trial(
    addresses: &[SocketAddr],
    first: usize,
) -> Vec<(usize, SocketAddr)> {
    let mut rest: Vec<_> = addresses.iter().copied().enumerate().collect();
    let mut order = Vec::with_capacity(rest.len());
    let mut next = Some(first);
    while let Some(at) = next.filter(|at| *at < rest.len()) {
        let (place, address) = rest.remove(at);
        order.push((place, address));
        let is_of_other = |(_, other): &(usize, SocketAddr)| other.is_ipv6() != address.is_ipv6();
        next = rest.iter().position(is_of_other).or(Some(0));
    }
    order
}

/// Returns the resolver's message without std's prefix.
fn reason_of(error: &io::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("failed to lookup address information: ") {
        Some(reason) => reason.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the addresses in the order of trial, as written.
    fn tried(addresses: &[&str], first: usize) -> Vec<String> {
        let all: Vec<SocketAddr> = addresses
            .iter()
            .map(|text| SocketAddr::new(text.parse().unwrap(), 0))
            .collect();
        let order = in_order_of_trial(&all, first).into_iter();
        order
            .inspect(|(place, address)| assert_eq!(all[*place], *address))
            .map(|(place, _)| addresses[place].to_owned())
            .collect()
    }

    #[test]
    fn families_alternate_behind_the_address_of_the_board() {
        let mixed = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2"];
        let first = ["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2", "10.0.0.3"];
        assert_eq!(tried(&mixed, 0), first);
        let second = ["10.0.0.2", "fd00::1", "10.0.0.1", "fd00::2", "10.0.0.3"];
        assert_eq!(tried(&mixed, 1), second);
        let fourth = ["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2", "10.0.0.3"];
        assert_eq!(tried(&mixed, 3), fourth);
    }

    #[test]
    fn addresses_of_one_family_keep_the_order_of_the_list() {
        let v4 = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        assert_eq!(tried(&v4, 0), v4);
        assert_eq!(tried(&v4, 2), ["10.0.0.3", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(tried(&["fd00::1"], 0), ["fd00::1"]);
    }
}
