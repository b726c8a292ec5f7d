//! The peers file: names and addresses of hosts that the resolver does not know.
//!
//! ```text
//!   # address          names                        server7    --> 10.0.0.7, 10.1.0.7
//!   10.0.0.7           server7 s7                   s7         --> 10.0.0.7
//!   10.1.0.7           server7                      10.1.0.7   --> server7, its second
//!   2001:db8::8        server8   # no brackets      [..::8]    --> server8
//! ```
//!
//! The format is that of `/etc/hosts`, and the file takes precedence over the resolver. A name on several lines has
//! several addresses, in the order of the lines: its boards. Errors in a line are reported; the rest of the line and
//! all other lines are used.
//!
//! Owns: the contents of one file.
//! Out of scope: files (`reload` reads them), NIC ids, the resolver.
//! Cost: finding a name or an address is O(1).

mod reload;

pub(crate) use reload::PeersFile;

use crate::literal;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Entry of the peers file: one address with its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// IP address; the port is 0.
    pub address: SocketAddr,
    /// Names in the order of the file; may be empty.
    pub names: Vec<String>,
}

/// The contents of a peers file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peers {
    peers: Vec<Peer>,
    /// Indices in `peers` by name in lower case, in the order of the file.
    by_name: HashMap<String, Vec<usize>>,
    by_address: HashMap<IpAddr, usize>,
}

/// An invalid line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadLine {
    /// Line number, from 1.
    pub line: usize,
    /// Error in the line.
    pub problem: Problem,
}

/// Errors in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// The line does not begin with the address of a host.
    Address,
    /// No name follows the address.
    NoName,
    /// A word is not a valid host name.
    Name,
}

/// Omits the line's text: readers of the log may not be allowed to read the file.
impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem {
            Problem::Address => f.write_str("the first word is not a host address"),
            Problem::NoName => f.write_str("no name after the address"),
            Problem::Name => f.write_str("a word after the address cannot be a host's name"),
        }
    }
}

/// Parses a peers file. The second list has each invalid line once.
pub fn parse(text: &str) -> (Peers, Vec<BadLine>) {
    let mut peers = Peers::default();
    let mut bad = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next() else {
            continue;
        };
        if let Err(problem) = peers.add(address, words) {
            let line = index + 1;
            bad.push(BadLine { line, problem });
        }
    }
    (peers, bad)
}

impl Peers {
    /// Returns all hosts in the order of the file; lines with one address are merged.
    pub fn all(&self) -> &[Peer] {
        &self.peers
    }

    /// Returns the addresses of the host called `name`, in the order of the file; empty if the file does not have the
    /// name. Case is ignored.
    pub fn addresses_of(&self, name: &str) -> Vec<SocketAddr> {
        let places = self.by_name.get(&key(name)).map(Vec::as_slice);
        let places = places.unwrap_or_default().iter();
        places
            .filter_map(|place| Some(self.peers.get(*place)?.address))
            .collect()
    }

    /// Returns the entry with this address; `None` if the file does not have it.
    pub fn with_address(&self, address: IpAddr) -> Option<&Peer> {
        self.peers.get(*self.by_address.get(&address)?)
    }

    fn add<'a>(
        &mut self,
        address: &str,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<(), Problem> {
        let Ok(Some(address)) = literal::parse(address) else {
            return Err(Problem::Address);
        };
        let place = *self.by_address.entry(address.ip()).or_insert_with(|| {
            let names = Vec::new();
            self.peers.push(Peer { address, names });
            self.peers.len() - 1
        });
        let mut result = Err(Problem::NoName);
        for name in names {
            if !is_name(name) {
                result = Err(Problem::Name);
                continue;
            }
            if result == Err(Problem::NoName) {
                result = Ok(());
            }
            let places = self.by_name.entry(key(name)).or_default();
            if !places.contains(&place) {
                places.push(place);
                self.peers[place].names.push(name.to_owned());
            }
        }
        result
    }
}

/// Returns the key of a name: lower case, without a trailing dot.
fn key(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Returns whether a text is a valid host name in `mx://`.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.len() <= NAME_MAX
        && name.chars().all(allowed)
        && !name.starts_with('.')
        && !name.contains("..")
        // A name that parses as an address would never be looked up.
        && literal::parse(name) == Ok(None)
}

/// Longest host name, as in the DNS (RFC 1035).
const NAME_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(peers: &Peers, name: &str) -> Vec<String> {
        let found = peers.addresses_of(name).into_iter();
        found.map(|address| address.ip().to_string()).collect()
    }

    fn told(bad: &[BadLine]) -> Vec<String> {
        bad.iter()
            .map(|bad| format!("{}: {bad}", bad.line))
            .collect()
    }

    #[test]
    fn names_have_addresses_in_the_order_of_the_file() {
        let (peers, bad) = parse(
            "# the cluster\n\n10.0.0.7\tserver7 S7 # the first\r\n  10.1.0.7 server7\n\
             2001:db8::8 server8.example.\n[2001:db8::9] server9\n::ffff:10.0.0.7 also7\n",
        );
        assert_eq!(bad, []);
        assert_eq!(addresses(&peers, "server7"), ["10.0.0.7", "10.1.0.7"]);
        assert_eq!(addresses(&peers, "s7"), ["10.0.0.7"]);
        assert_eq!(addresses(&peers, "ALSO7"), ["10.0.0.7"]);
        assert_eq!(addresses(&peers, "server8.example"), ["2001:db8::8"]);
        assert_eq!(addresses(&peers, "server9."), ["2001:db8::9"]);
        assert!(addresses(&peers, "server10").is_empty());
        let seven = peers.with_address("10.0.0.7".parse().unwrap()).unwrap();
        assert_eq!(seven.names, ["server7", "S7", "also7"]);
        assert_eq!(peers.all().len(), 4);
        assert_eq!(peers.with_address("10.0.0.8".parse().unwrap()), None);
    }

    #[test]
    fn a_bad_line_is_told_once_and_costs_only_what_is_wrong_in_it() {
        let long = "n".repeat(NAME_MAX + 1);
        let text = format!(
            "server7 10.0.0.7\n10.0.0.8\n10.0.0.9 ok bad:name b\u{e4}d also-ok\n0.0.0.0 absent\n\
             10.0.0.300 x\n10.0.0.10 {long} {}\n10.0.0.11 10.0.0.12\n10.0.0.13 a..b .c last\n",
            "n".repeat(NAME_MAX)
        );
        let (peers, bad) = parse(&text);
        let address = "the first word is not a host address";
        let name = "a word after the address cannot be a host's name";
        let expected = [
            format!("1: {address}"),
            "2: no name after the address".to_owned(),
            format!("3: {name}"),
            format!("4: {address}"),
            format!("5: {address}"),
            format!("6: {name}"),
            format!("7: {name}"),
            format!("8: {name}"),
        ];
        assert_eq!(told(&bad), expected);
        for (name, address) in [
            ("ok", "10.0.0.9"),
            ("also-ok", "10.0.0.9"),
            ("last", "10.0.0.13"),
        ] {
            assert_eq!(addresses(&peers, name), [address]);
        }
        assert_eq!(addresses(&peers, &"n".repeat(NAME_MAX)), ["10.0.0.10"]);
        // An address without a name is kept.
        assert!(
            peers
                .with_address("10.0.0.8".parse().unwrap())
                .unwrap()
                .names
                .is_empty()
        );
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        for text in [
            "",
            "\n\n",
            "#",
            "\0",
            "%",
            "[",
            "1.2.3.4 \0 \u{fffd}",
            "::1%",
        ] {
            let (peers, _) = parse(text);
            assert!(peers.addresses_of("").is_empty());
        }
    }
}
