//! Looking up the addresses of a host name.
//!
//! ```text
//!   address  -->  itself
//!   own name -->  none: this machine
//!   name     -->  the peers file's, in its order
//!            -->  or the resolver's, IPv4 first
//! ```
//!
//! Not here: NIC ids, boards.

use super::ResolveError;
use super::machine_name;
use crate::literal::{self, BadLiteral, plain_v4};
use crate::thread;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The local knowledge about a host name.
#[derive(Debug)]
pub(super) enum Known {
    /// It is an address.
    Address(SocketAddr),
    /// It is one of this machine's names.
    Own,
    /// It has to be looked up.
    Name,
}

/// Looks `host` up without the network.
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

/// The name of the loopback.
pub(super) fn is_localhost(host: &str) -> bool {
    plain(host).eq_ignore_ascii_case("localhost")
}

fn plain(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Asks the resolver, which may ask the network. Gives at least one address.
pub(super) fn ask(host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
    let unknown = |reason: String| ResolveError::Unknown {
        host: host.to_owned(),
        reason,
    };
    let name = host.to_owned();
    // The C library's resolver takes 14 KiB of stack, and its modules what they like.
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
    // Stable: within a family the resolver's order stays.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if addresses.is_empty() {
        Err(unknown("no address".to_owned()))
    } else {
        Ok(addresses)
    }
}

/// The resolver's own words, without std's preamble.
fn reason_of(error: &io::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("failed to lookup address information: ") {
        Some(reason) => reason.to_owned(),
        None => text,
    }
}
