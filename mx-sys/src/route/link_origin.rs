//! The identity of a link's peer, from the link's origin.
//!
//! ```text
//!   origin                     interface of the peer
//!   this endpoint              our own
//!   a user of this machine     this machine's, if the claimed endpoint is that user's
//!   an address of this one     this machine's
//!   another address            that address's, unless its id belongs to another one (IPv6)
//!   the port cannot tell       none: refused
//! ```
//!
//! Out of scope: links.

use crate::{literal, nic};
use mx_port_base::origin::Origin;
use mx_proto::origin::{LinkOrigin, Source};
use mx_proto::{Identity, NetworkId, NicId};
use std::net::Ipv6Addr;

/// Returns the origin of a link as the endpoint `own` sees it. `user_has`: whether the endpoint of this machine that
/// the peer claims to be belongs to that user.
pub(super) fn link_origin(
    origin: Origin,
    own: &Identity,
    user_has: impl Fn(u32) -> bool,
) -> LinkOrigin {
    // An interface may have come or gone.
    nic::look_again();
    let here = || Some(nic::first());
    let nic = match origin {
        Origin::Oneself => Some(own.nic),
        Origin::User(uid) => here().filter(|_| user_has(uid)),
        Origin::Address(address) if nic::is_source_here(address) => here(),
        Origin::Address(address) => {
            let nic = nic::id_of_address(address.ip());
            nic::is_address_of(nic, address).then_some(nic)
        }
        Origin::Unknown => None,
    };
    LinkOrigin {
        source: origin.source(),
        user: match origin {
            Origin::User(uid) => Some(uid),
            _ => None,
        },
        nic,
        oneself: origin == Origin::Oneself,
    }
}

/// Formats a place for the log ([`mx_proto::Config::name_of`]).
pub(crate) fn name_of(place: NetworkId) -> String {
    let nic = match place {
        NetworkId::Nic(nic) => nic,
        NetworkId::Source(Source::TRUSTED) => return "a link without a source".to_owned(),
        NetworkId::User(uid) => return format!("user {uid} of this machine"),
        NetworkId::Source(Source(number)) => match nic::ipv4(NicId(number)) {
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

    fn own() -> Identity {
        Identity {
            nic: nic::own_nic(None).unwrap(),
            endpoint: EndpointId(3),
            session: SessionId(1),
        }
    }

    #[test]
    fn a_peers_interface_is_where_its_link_comes_from() {
        let own = own();
        let there = nic::id_of_address("192.0.2.7".parse().unwrap());
        for (origin, nic) in [
            (Origin::Oneself, Some(own.nic)),
            (Origin::User(7), Some(own.nic)),
            (Origin::User(8), None),
            (address("127.0.0.9:1"), Some(own.nic)),
            (address("[::1]:1"), Some(own.nic)),
            (address("192.0.2.7:1"), Some(there)),
            (address("[::ffff:192.0.2.7]:1"), Some(there)),
            (Origin::Unknown, None),
        ] {
            let seen = link_origin(origin, &own, |uid| uid == 7);
            assert_eq!(seen.nic, nic, "{origin:?}");
            assert_eq!(seen.oneself, origin == Origin::Oneself);
            assert_eq!(seen.source, origin.source());
            assert_eq!(
                seen.user.map(Origin::User),
                Some(origin).filter(|it| matches!(it, Origin::User(_)))
            );
        }
    }

    /// Ids of IPv6 addresses are hashes that can be inverted: these addresses have the same id.
    const VICTIM: &str = "[2001:db8:1::10]:1";
    const TWINS: [&str; 2] = [
        "[2001:db8:66:0:b51:268:ccb7:c837]:1",
        "[fe80::b559:ab5f:452:c825%9]:1",
    ];

    #[test]
    fn an_ipv6_address_with_the_id_of_another_proves_nothing() {
        let victim: SocketAddr = VICTIM.parse().unwrap();
        let twins = TWINS.map(|twin| twin.parse::<SocketAddr>().unwrap());
        let id = nic::id_of_address(victim.ip());
        assert!(twins.iter().all(|twin| nic::id_of_address(twin.ip()) == id));
        let own = own();
        let from = |address| link_origin(Origin::Address(address), &own, |_| false).nic;
        // The first address to connect has the id ...
        assert_eq!(from(twins[0]), Some(id));
        assert_eq!(from(victim), None);
        // ... until the address is resolved.
        let found = nic::resolve("2001:db8:1::10", None).unwrap();
        assert_eq!(found.nic, id);
        for twin in twins {
            assert_eq!(from(twin), None);
        }
        assert_eq!(from(victim), Some(id));
        assert_eq!(nic::socket_addresses(id, 1), [victim]);
    }

    #[test]
    fn the_log_names_addresses_and_users() {
        let nic = nic::id_of_address("192.0.2.7".parse().unwrap());
        assert_eq!(name_of(NetworkId::Nic(nic)), "192.0.2.7");
        let from = |origin: Origin| name_of(NetworkId::Source(origin.source()));
        assert_eq!(from(address("192.0.2.7:1")), "192.0.2.7");
        assert_eq!(name_of(NetworkId::User(0)), "user 0 of this machine");
        assert_eq!(from(Origin::Oneself), "a link without a source");
        assert_eq!(from(address("[2001:db8:0:1::5]:1")), "2001:db8:0:1::/64");
        assert_eq!(name_of(NetworkId::Nic(NicId(7))), "interface 0x7");
    }
}
