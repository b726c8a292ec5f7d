//! System calls that quinn-udp does not make, each behind a safe function.
//!
//! ```text
//!   sockets   socket, local_port, tell_addresses
//!   bytes     send                                 never blocks, never raises SIGPIPE
//!   routes    link_mtu                             the interface's MTU
//! ```
//!
//! Batches go through quinn-udp; for a single small datagram without control messages `sendto` is a tenth cheaper. It
//! bypasses the C library's function, whose cancellation point costs 15 ns in a program with threads. Calls with control
//! messages are in `control`.
//!
//! Out of scope: channels, peers; descriptors belong to the caller's [`UdpSocket`].

use super::address::Address;
use mx_port_base::close_on_fork::CloseOnFork;
use mx_port_base::socket_option;
use nix::errno::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::ptr;

/// Socket of this port.
pub(super) type UdpSocket = CloseOnFork<Socket>;

/// Converts an address for a dual-stack socket (`both`) or an IPv4 one. `None`: unreachable from it.
#[inline]
pub(super) fn raw(address: Address, both: bool) -> Option<SockAddr> {
    let v6 = address.v6();
    if both {
        return Some(v6.into());
    }
    let ip = v6.ip().to_ipv4_mapped()?;
    Some(SocketAddrV4::new(ip, v6.port()).into())
}

/// Opens a non-blocking UDP socket; `both`: an IPv6 one, which can carry IPv4 too.
pub(super) fn socket(both: bool) -> io::Result<UdpSocket> {
    let domain = if both { Domain::IPV6 } else { Domain::IPV4 };
    let kind = Type::DGRAM.nonblocking();
    CloseOnFork::open(|| Socket::new(domain, kind, Some(Protocol::UDP)))
}

/// Returns the port number that a socket is bound to.
pub(super) fn local_port(socket: &Socket) -> io::Result<u16> {
    let unknown = || io::Error::from(Errno::EAFNOSUPPORT);
    let address = socket.local_addr()?.as_socket().ok_or_else(unknown)?;
    Ok(address.port())
}

/// Enables or disables reporting of local addresses, if the kernel supports it; `both`: for both families.
pub(super) fn tell_addresses(socket: &UdpSocket, both: bool, tell: bool) {
    let v4 = (libc::IPPROTO_IP, libc::IP_PKTINFO);
    let v6 = both.then_some((libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO));
    for (level, name) in [v4].into_iter().chain(v6) {
        let _ = socket_option::set(socket, level, name, i32::from(tell));
    }
}

/// Sends one datagram to `to`, or to the connected peer if that is `None`.
#[inline]
pub(super) fn send(socket: &UdpSocket, bytes: &[u8], to: Option<&SockAddr>) -> io::Result<()> {
    let (name, len) = to.map_or((ptr::null(), 0), |to| (to.as_ptr(), to.len()));
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `bytes`, and the address of `len` bytes if there is one, are readable during the call.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            socket.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            flags,
            name,
            len,
        )
    };
    // A datagram is sent whole or not at all.
    Errno::result(sent)?;
    Ok(())
}

/// Returns the MTU in bytes, headers included, of the interface towards `to`.
pub(super) fn link_mtu(to: Address) -> io::Result<usize> {
    let address = to.socket_address();
    let (level, name) = match address.ip() {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let socket = socket(address.is_ipv6())?;
    // Connecting sends nothing.
    socket.connect(&address.into())?;
    let mtu = socket_option::get(&socket, level, name)?;
    Ok(usize::try_from(mtu).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;
    use std::net::SocketAddr;

    fn address(text: &str) -> Address {
        Address::new(text.parse().unwrap())
    }

    #[test]
    fn datagram_is_sent_to_an_address_of_either_family() {
        for (host, both) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let host: SocketAddr = host.parse().unwrap();
            let [a, b] = [socket(both).unwrap(), socket(both).unwrap()];
            for fd in [&a, &b] {
                fd.bind(&host.into()).unwrap();
            }
            let at = |fd: &UdpSocket| Address::new(host).with_port(local_port(fd).unwrap());
            let to = raw(at(&b), both).unwrap();
            send(&a, &[7; 100], Some(&to)).unwrap();
            let mut bytes = [MaybeUninit::uninit(); 200];
            let (len, from) = b.recv_from(&mut bytes).unwrap();
            assert_eq!(
                (len, from.as_socket()),
                (100, Some(at(&a).socket_address()))
            );
        }
    }

    #[test]
    fn a_socket_of_ipv4_alone_cannot_reach_ipv6() {
        assert!(raw(address("[2001:db8::1]:1"), false).is_none());
        assert!(raw(address("10.0.0.1:1"), false).is_some());
        assert!(raw(address("10.0.0.1:1"), true).is_some());
    }

    #[test]
    fn the_loopback_says_what_it_takes() {
        assert!(link_mtu(address("127.0.0.1:9")).unwrap() >= 1280);
    }
}
