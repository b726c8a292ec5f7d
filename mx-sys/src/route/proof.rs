//! Checks a peer's claimed address against its link's origin.
//!
//! ```text
//!   origin                     claimed interface               proof
//!   oneself                    our own, our own endpoint       proven
//!   a user of this machine     this machine's, and the         proven
//!                              endpoint is that user's
//!   an address of this one     this machine's                  proven
//!   another address            that address                    proven
//!                              another, and it means us        ask there
//!   the port cannot tell       any, and it means us            ask there
//!   anything else                                              refuted
//! ```
//!
//! Not here: links.

use super::host::ROUTE_TCP;
use crate::{literal, nic};
use mx_port_base::origin::{Origin, USER};
use mx_proto::origin::{Address, Claim, Proof, Source};
use mx_proto::{Identity, NicId, Place, Target};
use std::net::{IpAddr, Ipv6Addr};

/// Checks a claim made to `own` against `origin`. `user_has`: whether the endpoint of this machine
/// is one of that user's.
pub(super) fn prove(
    origin: Origin,
    own: &Identity,
    claim: &Claim,
    user_has: impl Fn(u32) -> bool,
) -> Proof {
    let proven = |is: bool| if is { Proof::Proven } else { Proof::Refuted };
    let claims_us = || nic::is_local(claim.nic);
    // An interface may have come or gone.
    nic::look_again();
    match origin {
        Origin::Oneself => proven((claim.nic, claim.endpoint) == (own.nic, own.endpoint)),
        Origin::User(uid) => proven(claims_us() && user_has(uid)),
        // Ourselves we meet by the loopback only.
        Origin::Address(address) if nic::is_source_here(address) => {
            proven(claims_us() && claim.endpoint != own.endpoint)
        }
        Origin::Address(address) if nic::id_of_address(address.ip()) == claim.nic => {
            proven(nic::is_address_of(claim.nic, address))
        }
        Origin::Address(_) | Origin::Unknown => {
            let (nic, endpoint) = claim.to;
            let means_us = endpoint == own.endpoint && nic::is_local(nic);
            let stolen = origin != Origin::Unknown && claims_us();
            if stolen || !means_us || nic::socket_addresses(claim.nic, 0).is_empty() {
                return Proof::Refuted;
            }
            let from = match origin {
                Origin::Address(address) => address_of(address.ip()),
                _ => Address::default(),
            };
            let target = Target {
                nic: claim.nic,
                endpoint: claim.endpoint,
                route: ROUTE_TCP,
            };
            Proof::Ask(target, from)
        }
    }
}

/// An address as the protocol carries it: that of IPv6, or the mapped one of IPv4.
fn address_of(ip: IpAddr) -> Address {
    Address(match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    })
}

/// The way back.
pub(super) fn ip_of(address: Address) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(address.0)).to_canonical()
}

/// The text of a place for the log ([`mx_proto::Config::name_of`]).
pub(crate) fn name_of(place: Place) -> String {
    let nic = match place {
        Place::Nic(nic) => nic,
        Place::Source(Source::TRUSTED) => return "a link without a source".to_owned(),
        Place::Source(Source(number)) if number >> 32 == USER >> 32 => {
            return format!("user {} of this machine", number ^ USER);
        }
        Place::Source(Source(number)) => match nic::ipv4(NicId(number)) {
            Some(v4) => return v4.to_string(),
            None => return format!("{}/64", Ipv6Addr::from_bits(u128::from(number) << 64)),
        },
    };
    let unknown = || format!("interface {:#x}", nic.0);
    nic::address(nic).map_or_else(unknown, literal::text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::{EndpointId, SessionId};
    use std::net::SocketAddr;

    fn address(text: &str) -> Origin {
        Origin::Address(text.parse().unwrap())
    }

    #[test]
    fn a_claim_is_proven_refuted_or_asked_about() {
        let here = nic::own_nic(None).unwrap();
        let there = nic::id_of_address("192.0.2.7".parse().unwrap());
        let own = Identity {
            nic: here,
            endpoint: EndpointId(3),
            session: SessionId(1),
        };
        let us = (here, EndpointId(3));
        let claim = |nic: NicId, endpoint: u32, to| Claim {
            nic,
            endpoint: EndpointId(endpoint),
            to,
        };
        let at = |nic| Target {
            nic,
            endpoint: EndpointId(5),
            route: ROUTE_TCP,
        };
        let from = address_of("192.0.2.8".parse().unwrap());
        assert_eq!(ip_of(from).to_string(), "192.0.2.8");
        let ask = Proof::Ask(at(there), from);
        let (ask_there, ask_here) = (
            Proof::Ask(at(there), Address::default()),
            Proof::Ask(at(here), Address::default()),
        );
        let other = (there, EndpointId(3));
        for (origin, nic, to, expected) in [
            (Origin::Oneself, here, us, Proof::Refuted),
            (Origin::User(7), here, us, Proof::Proven),
            (Origin::User(8), here, us, Proof::Refuted),
            (Origin::User(7), there, us, Proof::Refuted),
            (address("127.0.0.9:1"), here, us, Proof::Proven),
            (address("[::1]:1"), here, us, Proof::Proven),
            (address("127.0.0.9:1"), there, us, Proof::Refuted),
            (address("192.0.2.7:1"), there, us, Proof::Proven),
            (address("[::ffff:192.0.2.7]:1"), there, us, Proof::Proven),
            (address("192.0.2.8:1"), there, us, ask),
            (address("192.0.2.8:1"), there, other, Proof::Refuted),
            (
                address("192.0.2.8:1"),
                there,
                (here, EndpointId(4)),
                Proof::Refuted,
            ),
            (address("192.0.2.8:1"), here, us, Proof::Refuted),
            (address("192.0.2.8:1"), NicId(1), us, Proof::Refuted),
            (Origin::Unknown, there, us, ask_there),
            (Origin::Unknown, here, us, ask_here),
        ] {
            let proof = prove(origin, &own, &claim(nic, 5, to), |uid| uid == 7);
            assert_eq!(proof, expected, "{origin:?} {nic:?} {to:?}");
        }
        // Ourselves we meet by the loopback only.
        for origin in [address("127.0.0.1:1"), address("[::1]:1")] {
            let proof = prove(origin, &own, &claim(here, 3, us), |_| true);
            assert_eq!(proof, Proof::Refuted, "{origin:?}");
        }
        let oneself = prove(Origin::Oneself, &own, &claim(here, 3, us), |_| false);
        assert_eq!(oneself, Proof::Proven);
    }

    /// Ids of IPv6 addresses are hashes that can be inverted: both have the same.
    const VICTIM: &str = "[2001:db8:1::10]:1";
    const TWINS: [&str; 2] = [
        "[2001:db8:66:0:b51:268:ccb7:c837]:1",
        "[fe80::b559:ab5f:452:c825%9]:1",
    ];

    #[test]
    fn an_ipv6_address_with_the_id_of_another_proves_nothing() {
        let (here, endpoint) = (nic::own_nic(None).unwrap(), EndpointId(3));
        let victim: SocketAddr = VICTIM.parse().unwrap();
        let twins = TWINS.map(|twin| twin.parse::<SocketAddr>().unwrap());
        let id = nic::id_of_address(victim.ip());
        assert!(twins.iter().all(|twin| nic::id_of_address(twin.ip()) == id));
        let own = Identity {
            nic: here,
            endpoint,
            session: SessionId(1),
        };
        let claim = Claim {
            nic: id,
            endpoint: EndpointId(5),
            to: (here, endpoint),
        };
        let from = |address| prove(Origin::Address(address), &own, &claim, |_| false);
        // The first to come has it ...
        assert_eq!(from(twins[0]), Proof::Proven);
        assert_eq!(from(victim), Proof::Refuted);
        // ... until the address is resolved.
        let found = nic::resolve("2001:db8:1::10", None).unwrap();
        assert_eq!(found.nic, id);
        for twin in twins {
            assert_eq!(from(twin), Proof::Refuted);
        }
        assert_eq!(from(victim), Proof::Proven);
        assert_eq!(nic::socket_addresses(id, 1), [victim]);
    }

    #[test]
    fn the_log_names_addresses_and_users() {
        let nic = nic::id_of_address("192.0.2.7".parse().unwrap());
        assert_eq!(name_of(Place::Nic(nic)), "192.0.2.7");
        let from = |origin: Origin| name_of(Place::Source(origin.source()));
        assert_eq!(from(address("192.0.2.7:1")), "192.0.2.7");
        assert_eq!(from(Origin::User(70_001)), "user 70001 of this machine");
        assert_eq!(from(Origin::Oneself), "a link without a source");
        assert_eq!(from(address("[2001:db8:0:1::5]:1")), "2001:db8:0:1::/64");
        assert_eq!(name_of(Place::Nic(NicId(7))), "interface 0x7");
    }
}
