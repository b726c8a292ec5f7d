//! Address ranges of export options.
//!
//! ```text
//!   mx://10.1.*         mask -1 or 0    text with `*` in places, against the peer's address and name
//!   mx://10.1.0.0       mask 16         the first bits of the peer's address
//!   mx://0.0.0.0        mask 0          every address of that family
//!   mx://10.1.0.7       mask 32         that address
//!   mx://[2001:db8::7]  mask 32         that address: OrangeFS knows no larger mask, and passes 32 as the default
//!   mx://node7          mask 32         that name, for the same reason
//! ```
//!
//! A peer's address is the one that the network has proven, not a claimed one. Peers on this machine have all its
//! addresses.
//!
//! Out of scope: peers, the method.

use crate::error::Error;
use mx_proto::NicId;
use mx_sys::nic;
use std::net::{IpAddr, SocketAddr};

/// Mask of entries without one in OrangeFS's configuration: all bits of an IPv4 address.
const ALL_BITS: i32 = 32;

/// Returns whether an address or the name of the interface `nic` is in a range (see the module): `wildcard` is an
/// address of which the first `netmask` bits count, or a text with `*` in places. False for an unknown interface
/// (`None`); fails if the range is malformed.
pub fn contains(nic: Option<NicId>, wildcard: &str, netmask: i32) -> Result<bool, Box<Error>> {
    let bad = || {
        Error::invalid(format!(
            "{wildcard:?} with {netmask} mask bits is no range of addresses"
        ))
    };
    let pattern = wildcard.trim();
    let pattern = match pattern.split_once("://") {
        Some(("mx", rest)) => rest,
        // Another method's range contains no peer of this one.
        Some(_) => return Ok(false),
        None => pattern,
    };
    let pattern = pattern.split_once('@').map_or(pattern, |(_, host)| host);
    let pattern = host_part(pattern);
    if pattern.is_empty() {
        return Err(bad());
    }
    let addresses = nic.map(addresses_of).unwrap_or_default();
    let network = pattern.parse::<IpAddr>();
    let is_text = network.is_err() && (netmask <= 0 || netmask == ALL_BITS);
    if netmask >= 0 && !is_text {
        let network = network.map_err(|_| bad())?;
        let bits = bits_of(network, netmask);
        let shared = addresses.iter().any(|ip| shares_bits(*ip, network, bits));
        if !shared && too_long(network, bits) {
            return Err(bad());
        }
        return Ok(shared);
    }
    let name = nic.and_then(nic::host_name);
    let name = name.as_deref().map(|name| name.trim_matches(['[', ']']));
    let local = nic.is_some_and(nic::is_local).then_some("localhost");
    let texts = addresses.iter().map(IpAddr::to_string);
    let names = [name, local].into_iter().flatten().map(str::to_owned);
    Ok(texts.chain(names).any(|text| matches(pattern, &text)))
}

fn addresses_of(nic: NicId) -> Vec<IpAddr> {
    if nic::is_local(nic) {
        return nic::own_addresses();
    }
    let addresses = nic::socket_addresses(nic, 0);
    addresses.iter().map(SocketAddr::ip).collect()
}

/// Returns the number of bits to compare: for 32 and an IPv6 address with bits beyond them, all 128.
fn bits_of(network: IpAddr, netmask: i32) -> i32 {
    match network {
        IpAddr::V6(v6) if netmask == ALL_BITS && v6.to_bits() << ALL_BITS != 0 => 128,
        _ => netmask,
    }
}

/// Returns the part before the numbers: `10.*` of `10.*:3`.
fn host_part(pattern: &str) -> &str {
    if let Some(inner) = pattern.strip_prefix('[') {
        return inner.split(']').next().unwrap_or_default();
    }
    let pattern = pattern.split('/').next().unwrap_or_default();
    match pattern.matches(':').count() {
        // More colons are an IPv6 address without brackets.
        1 | 2 if !pattern.contains("::") => pattern.split(':').next().unwrap_or_default(),
        _ => pattern,
    }
}

fn too_long(network: IpAddr, bits: i32) -> bool {
    bits > if network.is_ipv4() { 32 } else { 128 }
}

fn shares_bits(ip: IpAddr, network: IpAddr, bits: i32) -> bool {
    if too_long(network, bits) {
        return false;
    }
    let (a, b) = match (ip, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            (u128::from(a.to_bits()) << 96, u128::from(b.to_bits()) << 96)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits()),
        _ => return false,
    };
    // 0 to 128 bits.
    (a ^ b).leading_zeros() >= bits as u32
}

/// Matches `text` with `pattern`, where `*` stands for any run of characters. Takes time proportional to the product of
/// the lengths.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Positions to continue from when the text after the last star does not match.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(byte) if byte.eq_ignore_ascii_case(&text[t]) => (p, t) = (p + 1, t + 1),
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_name;

    fn of(name: &str) -> Option<NicId> {
        let name = peer_name::parse(name).unwrap().unwrap();
        let found = nic::resolve(&name.host, name.board).ok()?;
        Some(found.nic)
    }

    fn lies(name: &str, wildcard: &str, netmask: i32) -> bool {
        contains(of(name), wildcard, netmask).unwrap()
    }

    #[test]
    fn masks_compare_the_first_bits() {
        let peer = "mx://192.0.2.77:0:3";
        for (network, bits, inside) in [
            ("mx://192.0.2.0", 24, true),
            ("mx://192.0.2.77", 32, true),
            ("mx://192.0.2.76", 32, false),
            ("mx://192.0.2.76", 31, true),
            ("mx://192.0.3.0", 24, false),
            ("192.0.2.0:3", 24, true),
            ("mx://10.0.0.0", 1, false),
            ("mx://[2001:db8::]", 32, false),
            ("mx://0.0.0.0", 0, true),
            ("mx://10.0.0.0", 0, true),
            ("mx://[::]", 0, false),
        ] {
            assert_eq!(lies(peer, network, bits), inside, "{network}@{bits}");
        }
        let peer = "mx://[2001:db8::5]:3";
        assert!(lies(peer, "mx://[2001:db8::]", 64));
        assert!(!lies(peer, "mx://[2001:db9::]", 32));
        assert!(lies(peer, "mx://[2001:db8::]", 32));
        assert!(lies(peer, "mx://[2001:db8::5]", 32));
        assert!(!lies(peer, "mx://[2001:db8::6]", 32));
        assert!(lies(peer, "mx://[2001:db8::6]", 31));
    }

    #[test]
    fn stars_stand_for_anything() {
        let peer = "mx://192.0.2.77:0:3";
        for (pattern, inside) in [
            ("mx://*", true),
            ("*", true),
            ("mx://192.0.2.*", true),
            ("mx://192.*.77:0:3", true),
            ("mx://192.0.2.7*8", false),
            ("mx://tcp@192.*.77:0:3", true),
            ("mx://tcp@192.*.78", false),
            ("mx://*.78", false),
            ("tcp://*", false),
        ] {
            assert_eq!(lies(peer, pattern, 0), inside, "{pattern}");
            assert_eq!(lies(peer, pattern, -1), inside, "{pattern}");
        }
        assert!(!lies(peer, "mx://192.0.2.7", -1));
    }

    #[test]
    fn peers_here_have_all_addresses_and_names_of_this_machine() {
        for own in nic::own_addresses() {
            assert!(
                lies("mx://localhost:3", &format!("mx://{own}"), 32),
                "{own}"
            );
            assert!(lies("mx://localhost:3", &own.to_string(), -1), "{own}");
        }
        for name in ["localhost", "LOCAL*", nic::machine_name()] {
            for mask in [-1, 0, 32] {
                assert!(lies("mx://localhost:3", name, mask), "{name} {mask}");
                assert!(!lies("mx://192.0.2.77:3", name, mask), "{name} {mask}");
            }
        }
        assert!(lies("mx://localhost:3", "mx://127.0.0.0", 8));
        assert!(!lies("mx://localhost:3", "mx://192.0.2.77", 32));
    }

    #[test]
    fn ranges_that_make_no_sense_are_named() {
        let peer = of("mx://192.0.2.77:0:3");
        for (wildcard, netmask) in [
            ("", 0),
            ("mx://", 0),
            ("mx://host", 8),
            ("mx://host", 31),
            ("mx://host", 33),
            ("mx://10.0.0.0", 33),
        ] {
            let error = contains(peer, wildcard, netmask).unwrap_err();
            let text = error.to_string();
            assert!(
                text.ends_with("is no range of addresses"),
                "{wildcard}@{netmask}"
            );
        }
    }
}
