//! Where a link comes from, and what that proves about a peer's claim.
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
//! Knows nothing of: links, how somebody is asked.

use super::host::ROUTE_TCP;
use crate::nic;
use mx_proto::origin::{Claim, Proof, Source};
use mx_proto::{Identity, NicId, Target};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Where a link comes from, or leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// This very endpoint.
    Oneself,
    /// A process on this machine, of the user whom the kernel names.
    User(u32),
    /// An address, of this machine or another.
    Address(SocketAddr),
    /// The port cannot tell.
    Unknown,
}

impl Origin {
    /// Whose share it counts against.
    pub(super) fn source(self) -> Source {
        match self {
            Self::Oneself | Self::Unknown => Source::TRUSTED,
            // SAFETY: plain system call.
            Self::User(uid) if uid == 0 || uid == unsafe { libc::geteuid() } => Source::TRUSTED,
            Self::User(uid) => Source(u64::from(uid) | USER),
            Self::Address(address) => Source(nic::id_of_address(network(address.ip())).0),
        }
    }
}

/// Of IPv6 the first half counts: whoever has one address of a network has, as a rule, all 2^64 of
/// it. So the machines of one such network have one share together.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

/// Set in no interface's id below an IPv6 one's, and clear in all users that count.
const USER: u64 = 1 << 32;

/// What `origin` proves about a claim made to `own`. `owns`: the endpoint of this machine is one of
/// that user's. Before a claim is refuted, this machine's interfaces are looked at again: one may have come.
pub(super) fn prove(
    origin: Origin,
    own: &Identity,
    claim: &Claim,
    owns: impl Fn(u32) -> bool,
) -> Proof {
    match judge(origin, own, claim, &owns) {
        Proof::Refuted if nic::look_again() => judge(origin, own, claim, &owns),
        proof => proof,
    }
}

fn judge(origin: Origin, own: &Identity, claim: &Claim, owns: &impl Fn(u32) -> bool) -> Proof {
    let proven = |is: bool| if is { Proof::Proven } else { Proof::Refuted };
    let claims_us = || nic::is_local(claim.nic);
    match origin {
        Origin::Oneself => proven((claim.nic, claim.endpoint) == (own.nic, own.endpoint)),
        Origin::User(uid) => proven(claims_us() && owns(uid)),
        Origin::Address(address) if is_this_machine(address.ip()) => proven(claims_us()),
        Origin::Address(address) if nic::id_of_address(address.ip()) == claim.nic => Proof::Proven,
        Origin::Address(_) | Origin::Unknown => {
            let (nic, endpoint) = claim.to;
            let means_us = endpoint == own.endpoint && nic::is_local(nic);
            let stolen = origin != Origin::Unknown && claims_us();
            if stolen || !means_us || nic::socket_addresses(claim.nic, 0).is_empty() {
                return Proof::Refuted;
            }
            let from = match origin {
                Origin::Address(address) => nic::id_of_address(address.ip()),
                _ => NicId(0),
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

fn is_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || nic::is_local(nic::id_of_address(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::{EndpointId, SessionId};

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
        let from = nic::id_of_address("192.0.2.8".parse().unwrap());
        let ask = Proof::Ask(at(there), from);
        let (ask_there, ask_here) = (
            Proof::Ask(at(there), NicId(0)),
            Proof::Ask(at(here), NicId(0)),
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
        let oneself = prove(Origin::Oneself, &own, &claim(here, 3, us), |_| false);
        assert_eq!(oneself, Proof::Proven);
    }

    #[test]
    fn users_and_addresses_have_shares_and_those_who_could_harm_us_anyway_none() {
        // SAFETY: plain system call.
        let me = Origin::User(unsafe { libc::geteuid() });
        assert_eq!(me.source(), Source::TRUSTED);
        assert_eq!(Origin::User(0).source(), Source::TRUSTED);
        assert_eq!(Origin::Oneself.source(), Source::TRUSTED);
        let (a, b) = (Origin::User(70_001).source(), Origin::User(70_002).source());
        assert!(a != b && a != Source::TRUSTED && a == Origin::User(70_001).source());
        let one = address("192.0.2.7:1").source();
        assert_eq!(one, address("192.0.2.7:2").source());
        assert_eq!(one, address("[::ffff:192.0.2.7]:2").source());
        assert!(one != address("192.0.2.8:1").source() && one != a);
        let net = address("[2001:db8:0:1::5]:1").source();
        assert_eq!(net, address("[2001:db8:0:1:ffff::9]:2").source());
        assert_ne!(net, address("[2001:db8:0:2::5]:1").source());
        assert_ne!(net, Source::TRUSTED);
    }
}
