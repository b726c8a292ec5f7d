//! System calls that quinn-udp does not make, each behind a safe function.
//!
//! ```text
//!   sockets   socket, bind, options
//!   bytes     send_to, receive_from                never block, never raise SIGPIPE
//!   routes    link_mtu                             the interface's MTU
//! ```
//!
//! Batches go through quinn-udp; a single small datagram without control messages is a tenth
//! cheaper through `sendto` and `recvfrom`. Calls with control messages are in `control`.
//!
//! These two bypass the C library's functions, which are cancellation points: in a program with
//! threads that costs 15 ns each.
//!
//! Not here: channels, peers; descriptors belong to the caller's `OwnedFd`.

use super::address::Address;
use mx_port_base::close_on_fork::{CloseOnFork, CloseOnForkFd};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An address as the kernel takes it: an IPv4 one for a socket of IPv4 alone.
#[derive(Clone, Copy)]
pub(super) enum RawAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl RawAddress {
    /// For a socket of both families (`both`), or of IPv4 alone. `None`: unreachable from it.
    #[inline]
    pub(super) fn new(address: Address, both: bool) -> Option<Self> {
        let v6 = address.v6();
        if both {
            return Some(Self::V6(raw_v6(&v6)));
        }
        let ip = v6.ip().to_ipv4_mapped()?;
        Some(Self::V4(raw_v4(&SocketAddrV4::new(ip, v6.port()))))
    }

    /// The address unchanged, for a socket of its family.
    fn plain(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(raw_v4(&v4)),
            SocketAddr::V6(v6) => Self::V6(raw_v6(&v6)),
        }
    }

    #[inline]
    fn parts(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            Self::V4(raw) => (
                (&raw const *raw).cast(),
                size_of_val(raw) as libc::socklen_t,
            ),
            Self::V6(raw) => (
                (&raw const *raw).cast(),
                size_of_val(raw) as libc::socklen_t,
            ),
        }
    }
}

fn raw_v4(address: &SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

#[inline]
fn raw_v6(address: &SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: address.ip().octets(),
        },
        sin6_scope_id: address.scope_id(),
    }
}

/// Space for an address that the kernel writes.
pub(super) struct Name(pub(super) libc::sockaddr_storage);

impl Name {
    pub(super) const LEN: libc::socklen_t = size_of::<libc::sockaddr_storage>() as libc::socklen_t;

    pub(super) fn new() -> Self {
        // SAFETY: `sockaddr_storage` is plain integers, for which all zeros is a value.
        Self(unsafe { mem::zeroed() })
    }

    #[inline]
    pub(super) fn address(&self) -> Option<Address> {
        match i32::from(self.0.ss_family) {
            libc::AF_INET6 => {
                // SAFETY: the family says that this is an IPv6 address; the storage is aligned.
                let raw = unsafe { (&raw const self.0).cast::<libc::sockaddr_in6>().read() };
                let (ip, port) = (raw.sin6_addr.s6_addr.into(), u16::from_be(raw.sin6_port));
                let v6 = SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id);
                Some(Address::new(SocketAddr::V6(v6)))
            }
            libc::AF_INET => {
                // SAFETY: the family says that this is an IPv4 address; the storage is aligned.
                let raw = unsafe { (&raw const self.0).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                let v4 = SocketAddrV4::new(ip, u16::from_be(raw.sin_port));
                Some(Address::new(SocketAddr::V4(v4)))
            }
            _ => None,
        }
    }
}

/// Opens a non-blocking UDP socket; `both`: of IPv6, to carry IPv4 too.
pub(super) fn socket(both: bool) -> io::Result<CloseOnForkFd> {
    let family = if both { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    CloseOnFork::open(|| {
        // SAFETY: plain values in, a descriptor or -1 out.
        let fd = check(unsafe { libc::socket(family, kind, libc::IPPROTO_UDP) })?;
        // SAFETY: a fresh descriptor, not owned elsewhere.
        Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
    })
}

/// Binds a socket to an address of its family.
pub(super) fn bind(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::plain(address);
    let (name, len) = raw.parts();
    // SAFETY: `raw` holds an address of `len` bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), name, len) })?;
    Ok(())
}

/// Connects a socket to a peer.
pub(super) fn connect(fd: &OwnedFd, to: &RawAddress) -> io::Result<()> {
    let (name, len) = to.parts();
    // SAFETY: `to` holds an address of `len` bytes and outlives the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), name, len) })?;
    Ok(())
}

/// The port number a socket is bound to.
pub(super) fn local_port(fd: &OwnedFd) -> io::Result<u16> {
    let (mut name, mut len) = (Name::new(), Name::LEN);
    // SAFETY: `name` has room for the `len` bytes that the kernel may write.
    check(unsafe {
        libc::getsockname(
            fd.as_raw_fd(),
            (&raw mut name.0).cast::<libc::sockaddr>(),
            &raw mut len,
        )
    })?;
    let unknown = || io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
    Ok(name.address().ok_or_else(unknown)?.v6().port())
}

/// Sets an option whose value is an `int`.
pub(super) fn set_option(fd: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is an `int` that outlives the call, and `len` is its size.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len)
    })?;
    Ok(())
}

/// Enables or disables reporting of local addresses, if the kernel can; `both`: for both families.
pub(super) fn tell_addresses(fd: &OwnedFd, both: bool, tell: bool) {
    let v4 = (libc::IPPROTO_IP, libc::IP_PKTINFO);
    let v6 = both.then_some((libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO));
    for (level, name) in [v4].into_iter().chain(v6) {
        let _ = set_option(fd, level, name, i32::from(tell));
    }
}

/// The value of an option that is an `int`.
pub(super) fn option(fd: &OwnedFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is an `int` and `len` its size; both outlive the call.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value)
}

/// Sends one datagram.
#[inline]
pub(super) fn send_to(fd: &OwnedFd, bytes: &[u8], to: &RawAddress) -> io::Result<()> {
    let (name, len) = to.parts();
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `bytes` and the address of `len` bytes are readable during the call.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            flags,
            name,
            len,
        )
    };
    // A datagram is sent whole or not at all.
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends one datagram to the connected peer.
#[inline]
pub(super) fn send_connected(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `bytes` are readable during the call; there is no address.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            flags,
            0usize,
            0usize,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Receives one datagram. The length is what was sent, perhaps more than fitted. The sender is
/// `None` if its family is unknown.
#[inline]
pub(super) fn receive_from(fd: &OwnedFd, into: &mut [u8]) -> io::Result<(usize, Option<Address>)> {
    let (mut name, mut len) = (Name::new(), Name::LEN);
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: `into` is writable for its length, and `name` for the `len` bytes of an address.
    let got = unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.as_raw_fd(),
            into.as_mut_ptr(),
            into.len(),
            flags,
            (&raw mut name.0).cast::<libc::sockaddr>(),
            &raw mut len,
        )
    };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    Ok((got, name.address()))
}

/// The MTU, headers included, of the interface towards `to`.
pub(super) fn link_mtu(to: Address) -> io::Result<usize> {
    let address = to.socket_address();
    let (level, name) = match address.ip() {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let fd = socket(address.is_ipv6())?;
    let raw = RawAddress::plain(address);
    let (peer, len) = raw.parts();
    // SAFETY: `raw` holds an address of `len` bytes and outlives the call. Nothing is sent.
    check(unsafe { libc::connect(fd.as_raw_fd(), peer, len) })?;
    let mtu = option(&fd, level, name)?;
    Ok(usize::try_from(mtu).unwrap_or(0))
}

#[inline]
fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::new(text.parse().unwrap())
    }

    #[test]
    fn a_datagram_comes_from_where_it_was_sent_and_says_how_long_it_was() {
        for (host, both) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let host: SocketAddr = host.parse().unwrap();
            let [a, b] = [socket(both).unwrap(), socket(both).unwrap()];
            for fd in [&a, &b] {
                bind(fd, host).unwrap();
            }
            let at = |fd: &OwnedFd| Address::new(host).with_port(local_port(fd).unwrap());
            let raw = RawAddress::new(at(&b), both).unwrap();
            send_to(&a, &[7; 100], &raw).unwrap();
            let mut room = [0; 60];
            assert_eq!(receive_from(&b, &mut room).unwrap(), (100, Some(at(&a))));
            assert_eq!(room, [7; 60]);
            let empty = receive_from(&b, &mut room).unwrap_err();
            assert_eq!(empty.raw_os_error(), Some(libc::EAGAIN));
        }
    }

    #[test]
    fn a_socket_of_ipv4_alone_cannot_reach_ipv6() {
        assert!(RawAddress::new(address("[2001:db8::1]:1"), false).is_none());
        assert!(RawAddress::new(address("10.0.0.1:1"), false).is_some());
        assert!(RawAddress::new(address("10.0.0.1:1"), true).is_some());
    }

    #[test]
    fn the_loopback_says_what_it_takes() {
        assert!(link_mtu(address("127.0.0.1:9")).unwrap() >= 1280);
    }
}
