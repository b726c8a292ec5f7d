//! Origin of a link, and the share that it counts against.
//!
//! Out of scope: links.

use crate::nic_id;
use mx_proto::origin::Source;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Origin of a link, or the address that it was made to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The endpoint itself.
    Oneself,
    /// A process on this machine, with its user id as reported by the kernel.
    User(u32),
    /// A socket address, on this machine or another.
    Address(SocketAddr),
    /// The port cannot tell; trusted.
    Unknown,
}

impl Origin {
    /// Returns the source whose share the link counts against: the user, the IPv4 address or the /64 of the IPv6
    /// address. [`Source::TRUSTED`], which has no share, for the endpoint itself, root, this process's user and unknown
    /// origins.
    pub fn source(self) -> Source {
        match self {
            Self::Oneself | Self::Unknown => Source::TRUSTED,
            Self::User(uid) if uid == 0 || is_ourselves(uid) => Source::TRUSTED,
            Self::User(uid) => Source(u64::from(uid) | USER),
            Self::Address(address) => match address.ip().to_canonical() {
                v4 @ IpAddr::V4(_) => Source(nic_id::of_address(v4).0),
                IpAddr::V6(Ipv6Addr::LOCALHOST) => {
                    Source(nic_id::of_address(Ipv4Addr::LOCALHOST.into()).0)
                }
                // A machine with one address of a network usually has the whole /64, so all machines of a /64 share one
                // source.
                IpAddr::V6(v6) => Source((v6.to_bits() >> 64) as u64),
            },
        }
    }
}

/// Returns whether this process's real, effective and saved user ids are all `uid`. A process that can become root
/// again is more than its current user.
fn is_ourselves(uid: u32) -> bool {
    let mut users = [!uid; 3];
    let [real, effective, saved] = &mut users;
    // SAFETY: three places for numbers.
    unsafe { libc::getresuid(real, effective, saved) };
    users == [uid; 3]
}

/// Bit that marks a user id as a source. No IPv6 network (0000::/8 is reserved) and no id of an IPv4 interface has only
/// this bit set in its upper half.
pub const USER: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Origin {
        Origin::Address(text.parse().unwrap())
    }

    #[test]
    fn users_and_addresses_have_shares_except_trusted_users() {
        // SAFETY: plain system call.
        let me = Origin::User(unsafe { libc::geteuid() });
        assert_eq!(me.source(), Source::TRUSTED);
        if me == Origin::User(0) {
            let user = Origin::User(70_001);
            let trusted_as = |users: [u32; 3]| {
                let become_user = move || {
                    let [real, effective, saved] = users;
                    // SAFETY: plain system call, which changes this thread alone.
                    let done =
                        unsafe { libc::syscall(libc::SYS_setresuid, real, effective, saved) };
                    assert_eq!(done, 0);
                    user.source() == Source::TRUSTED
                };
                std::thread::spawn(become_user).join().unwrap()
            };
            assert!(trusted_as([70_001; 3]));
            assert!(!trusted_as([0, 70_001, 0]) && !trusted_as([70_002; 3]));
        }
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
