//! Control messages of the kernel: the local address of a datagram, and errors.
//!
//! ```text
//!   receive_at      one datagram, its sender, and the local address it was sent to
//!   take_failure    the error for a datagram that was sent
//! ```
//!
//! Not here: the reaction to either.

use super::address::Address;
use super::sys::Name;
use mx_proto::reliability::Quote;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

/// A buffer for the control messages of one datagram, aligned: two extended errors with an address
/// each.
type Control = [u64; 32];

/// A received datagram.
pub(super) struct Arrival {
    /// Bytes that were sent, perhaps more than fitted.
    pub(super) len: usize,
    /// The sender; `None` if its family is unknown.
    pub(super) from: Option<Address>,
    /// The local address it was sent to, if the socket is asked to report it.
    pub(super) at: Option<IpAddr>,
}

/// The error for a datagram that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    /// Its destination.
    pub(super) to: Address,
    /// The reason.
    pub(super) errno: i32,
    /// The path's MTU, headers included, if it was the reason.
    pub(super) mtu: u32,
    /// The quoted beginning of the datagram, if enough was returned.
    pub(super) quote: Option<Quote>,
}

/// Receives one datagram with its control messages.
pub(super) fn receive_at(fd: &OwnedFd, into: &mut [u8]) -> io::Result<Arrival> {
    let mut name = Name::new();
    let mut at = None;
    let len = receive(fd, into, libc::MSG_TRUNC, &mut name, |kind, data| {
        at = address_of(kind, data).or(at);
    })?;
    let from = name.address();
    Ok(Arrival { len, from, at })
}

/// The local address in a control message, if it can be answered from.
fn address_of(kind: (i32, i32), data: &[u8]) -> Option<IpAddr> {
    match kind {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let info: libc::in_pktinfo = read(data)?;
            // Not `ipi_addr`, which may be a broadcast.
            let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
            Some(IpAddr::V4(ip))
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let info: libc::in6_pktinfo = read(data)?;
            let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            // IPv4 is reported in the other message.
            (ip.to_ipv4_mapped().is_none() && !ip.is_multicast()).then_some(IpAddr::V6(ip))
        }
        _ => None,
    }
}

/// Takes the oldest entry of the socket's error queue; `Ok(None)` if it is empty. quinn-udp reads
/// that queue too, but reports the sender of the error instead of the datagram's destination.
pub(super) fn take_failure(fd: &OwnedFd) -> io::Result<Option<Failure>> {
    loop {
        match next_failure(fd) {
            Ok(Some(failure)) => return Ok(Some(failure)),
            // Not an error of the network.
            Ok(None) => {}
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

fn next_failure(fd: &OwnedFd) -> io::Result<Option<Failure>> {
    let mut name = Name::new();
    // The beginning of the datagram, behind the UDP header.
    let mut quoted = [0u8; Quote::BYTES];
    let mut error = None;
    let len = receive(
        fd,
        &mut quoted,
        libc::MSG_ERRQUEUE,
        &mut name,
        |kind, data| {
            let (v4, v6) = (
                (libc::IPPROTO_IP, libc::IP_RECVERR),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
            );
            if error.is_none() && (kind == v4 || kind == v6) {
                error = read::<libc::sock_extended_err>(data);
            }
        },
    )?;
    Ok(name.address().zip(error).map(|(to, error)| Failure {
        to,
        errno: error.ee_errno as i32,
        mtu: error.ee_info,
        quote: quoted.get(..len).and_then(Quote::read),
    }))
}

/// Structures that are valid for any bytes.
///
/// # Safety
///
/// `Self` is integers only.
unsafe trait Plain: Copy {}
// SAFETY: addresses and an interface's number.
unsafe impl Plain for libc::in_pktinfo {}
// SAFETY: as above.
unsafe impl Plain for libc::in6_pktinfo {}
// SAFETY: numbers.
unsafe impl Plain for libc::sock_extended_err {}

/// Reads the structure at the start of a control message, if that is long enough.
fn read<T: Plain>(data: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes as `T` has, and any are a value of it.
    (data.len() >= size_of::<T>()).then(|| unsafe { data.as_ptr().cast::<T>().read_unaligned() })
}

/// One `recvmsg` that does not block. Passes on each control message's level, type and data.
fn receive(
    fd: &OwnedFd,
    into: &mut [u8],
    flags: i32,
    name: &mut Name,
    mut each: impl FnMut((i32, i32), &[u8]),
) -> io::Result<usize> {
    // Not zeroed: the kernel reports how much of it is filled.
    let mut control = mem::MaybeUninit::<Control>::uninit();
    let mut part = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: `msghdr` is plain integers and pointers, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut name.0).cast();
    message.msg_namelen = Name::LEN;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the message names memory that is writable during the call, with its sizes. Not through
    // the C library, see `sys`.
    let got = unsafe { libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), &raw mut message, flags) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled in the message, whose control memory still lives.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    let end = message.msg_control as usize + message.msg_controllen as usize;
    while !header.is_null() {
        // SAFETY: not null, so a whole header that the kernel wrote into `control`.
        let found = unsafe { header.read_unaligned() };
        // SAFETY: `header` points to a whole header inside of `control`.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: plain arithmetic.
        let before = unsafe { libc::CMSG_LEN(0) } as usize;
        let len = (found.cmsg_len as usize).saturating_sub(before);
        let len = len.min(end.saturating_sub(data as usize));
        // SAFETY: the kernel wrote up to `end`, and `control` outlives the slice.
        let data = unsafe { std::slice::from_raw_parts(data, len) };
        each((found.cmsg_level, found.cmsg_type), data);
        // SAFETY: both belong together and `control` still lives.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::super::sys;
    use super::*;
    use std::net::{SocketAddr, UdpSocket};

    #[test]
    fn a_datagram_says_which_address_of_ours_it_came_to() {
        for (host, at, both) in [
            ("0.0.0.0:0", "127.0.0.2", false),
            ("[::]:0", "127.0.0.2", true),
            ("[::]:0", "::1", true),
        ] {
            let host: SocketAddr = host.parse().unwrap();
            let at: IpAddr = at.parse().unwrap();
            let fd = sys::socket(both).unwrap();
            if both {
                sys::set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0).unwrap();
            }
            sys::bind(&fd, host).unwrap();
            let from = UdpSocket::bind(SocketAddr::new(
                if at.is_ipv4() { "127.0.0.3" } else { "::1" }
                    .parse()
                    .unwrap(),
                0,
            ))
            .unwrap();
            let to = SocketAddr::new(at, sys::local_port(&fd).unwrap());
            let mut room = [0; 60];
            for told in [false, true] {
                sys::tell_addresses(&fd, both, told);
                from.send_to(&[7; 100], to).unwrap();
                let arrival = receive_at(&fd, &mut room).unwrap();
                assert_eq!(arrival.len, 100);
                assert_eq!(arrival.from, Some(Address::new(from.local_addr().unwrap())));
                assert_eq!(arrival.at, told.then_some(at));
            }
            let empty = receive_at(&fd, &mut room).err().unwrap();
            assert_eq!(empty.raw_os_error(), Some(libc::EAGAIN));
        }
    }
}
