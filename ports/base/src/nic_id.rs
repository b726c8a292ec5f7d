//! 48-bit id of a network interface, derived from its address.
//!
//! ```text
//!            47   32      0
//!   IPv4:    4d58 aabbccdd      tag and address: reversible anywhere
//!   IPv6:    1 hash (47 bits)   not reversible
//! ```
//!
//! MX programs pass the 48 bits on as `nic_high16` and `nic_low32`.
//!
//! Part of the wire format: equal in every process of the cluster, and never changed.
//!
//! Out of scope: names.

use mx_proto::NicId;
use std::net::{IpAddr, Ipv4Addr};

/// Upper 16 bits of an IPv4 interface's id: "MX".
const IPV4_TAG: u64 = 0x4d58 << 32;

/// Bit that is set in every IPv6 interface's id and clear in every IPv4 interface's.
const IPV6_TAG: u64 = 1 << 47;

/// Returns the id of the interface with this address: a tag with the IPv4 address, or with a 47-bit hash of the IPv6
/// address.
pub fn of_address(address: IpAddr) -> NicId {
    match address.to_canonical() {
        IpAddr::V4(v4) => NicId(IPV4_TAG | u64::from(v4.to_bits())),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let hash = mix(mix(bits as u64) ^ (bits >> 64) as u64);
            NicId(IPV6_TAG | hash & (IPV6_TAG - 1))
        }
    }
}

/// Returns the address of an IPv4 interface's id; `None` for IPv6.
pub fn v4(nic: NicId) -> Option<Ipv4Addr> {
    (nic.0 & !0xffff_ffff == IPV4_TAG).then(|| Ipv4Addr::from_bits(nic.0 as u32))
}

/// Finalizer of splitmix64, a bijection that spreads every bit over all others.
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(address: &str) -> NicId {
        of_address(address.parse().unwrap())
    }

    #[test]
    fn ids_of_ipv4_addresses_contain_them() {
        assert_eq!(id("192.0.2.77"), NicId(0x4d58_c000_024d));
        assert_eq!(id("::ffff:192.0.2.77"), id("192.0.2.77"));
        assert_eq!(v4(id("192.0.2.77")), Some(Ipv4Addr::new(192, 0, 2, 77)));
        assert_eq!(v4(NicId(0x4d59_c000_024d)), None);
    }

    #[test]
    fn ids_of_ipv6_addresses_never_change() {
        let nic = id("2001:db8::1");
        assert_eq!(mix(mix(1) ^ 0x2001_0db8_0000_0000), 0x69e8_05ae_e61d_c0f2);
        assert_eq!(nic, NicId(0x85ae_e61d_c0f2));
        assert_eq!(mix(1), 0x5692_161d_100b_05e5);
        assert_eq!(v4(nic), None);
    }
}
