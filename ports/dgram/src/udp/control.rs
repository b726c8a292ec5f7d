//! Control messages of the kernel: segment sizes and local addresses of datagrams, and errors.
//!
//! ```text
//!   receive_one     one buffer: a datagram, or some that GRO joined; the sender, and the local address
//!   take_failure    the error for a datagram that was sent
//! ```
//!
//! Out of scope: reactions to either.

use super::address::Address;
use super::sys::UdpSocket;
use mx_proto::reliability::Quote;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// Buffer for the control messages of one datagram: two extended errors with an address each.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// Content of one receive buffer: a datagram, or some of one sender that GRO joined.
pub(super) struct Arrival {
    /// Length of all datagrams in bytes.
    pub(super) len: usize,
    /// Size in bytes of every datagram but the last, as the kernel reports it.
    pub(super) segment: usize,
    /// Sender.
    pub(super) from: Address,
    /// Local address that the datagrams were sent to; `None` unless the socket reports it.
    pub(super) at: Option<IpAddr>,
}

/// Error for a datagram that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    /// Destination of the datagram.
    pub(super) to: Address,
    /// Error number.
    pub(super) errno: i32,
    /// Path MTU in bytes, headers included, if `errno` is `EMSGSIZE`.
    pub(super) mtu: u32,
    /// Quoted beginning of the datagram; `None` if too little of it came back.
    pub(super) quote: Option<Quote>,
}

/// Receives into one buffer, which is at least as large as the largest datagram. `Ok(None)`: the sender's family is
/// unknown.
#[inline]
pub(super) fn receive_one(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Option<Arrival>> {
    let (mut segment, mut at) = (None, None);
    let (len, from) = receive(socket, into, MsgFlags::empty(), |message| match message {
        ControlMessageOwned::UdpGroSegments(size) => segment = usize::try_from(size).ok(),
        message => at = address_of(&message).or(at),
    })?;
    Ok(from.map(|from| Arrival {
        len,
        segment: segment.unwrap_or(len),
        from,
        at,
    }))
}

/// Returns the local address in a control message, if answers can be sent from it.
fn address_of(message: &ControlMessageOwned) -> Option<IpAddr> {
    match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            // `ipi_addr` may be a broadcast address, `ipi_spec_dst` is not.
            let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
            Some(IpAddr::V4(ip))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            // IPv4 addresses are in the other message.
            (ip.to_ipv4_mapped().is_none() && !ip.is_multicast()).then_some(IpAddr::V6(ip))
        }
        _ => None,
    }
}

/// Removes the oldest entry of the socket's error queue; `Ok(None)` if it is empty. quinn-udp reads that queue too, but
/// reports the sender of the error instead of the datagram's destination.
pub(super) fn take_failure(socket: &UdpSocket) -> io::Result<Option<Failure>> {
    loop {
        match next_failure(socket) {
            Ok(Some(failure)) => return Ok(Some(failure)),
            // The entry is not a network error.
            Ok(None) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

fn next_failure(socket: &UdpSocket) -> Result<Option<Failure>, Errno> {
    // The queue returns the datagram without its UDP header.
    let mut quoted = [0u8; Quote::BYTES];
    let mut error = None;
    let (len, to) = receive(socket, &mut quoted, MsgFlags::MSG_ERRQUEUE, |message| {
        if let ControlMessageOwned::Ipv4RecvErr(first, _)
        | ControlMessageOwned::Ipv6RecvErr(first, _) = message
        {
            error.get_or_insert(first);
        }
    })?;
    Ok(to.zip(error).map(|(to, error)| Failure {
        to,
        errno: error.ee_errno as i32,
        mtu: error.ee_info,
        quote: quoted.get(..len).and_then(Quote::read),
    }))
}

/// Receives one message without blocking; returns its length and address, and passes each control message to `each`.
#[inline]
fn receive(
    socket: &UdpSocket,
    into: &mut [u8],
    flags: MsgFlags,
    each: impl FnMut(ControlMessageOwned),
) -> Result<(usize, Option<Address>), Errno> {
    let mut control = Control([0; 256]);
    let mut parts = [IoSliceMut::new(into)];
    let flags = flags | MsgFlags::MSG_DONTWAIT;
    let got = recvmsg(socket.as_raw_fd(), &mut parts, Some(&mut control.0), flags)?;
    // Truncated control messages are an error of the iterator, and are not needed.
    got.cmsgs().into_iter().flatten().for_each(each);
    let from = got.address.and_then(crate::socket_address);
    Ok((got.bytes, from.map(Address::new)))
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
                fd.set_only_v6(false).unwrap();
            }
            fd.bind(&host.into()).unwrap();
            let from = UdpSocket::bind(SocketAddr::new(
                if at.is_ipv4() { "127.0.0.3" } else { "::1" }
                    .parse()
                    .unwrap(),
                0,
            ))
            .unwrap();
            let to = SocketAddr::new(at, sys::local_port(&fd).unwrap());
            let mut room = [0; 200];
            for told in [false, true] {
                sys::tell_addresses(&fd, both, told);
                from.send_to(&[7; 100], to).unwrap();
                let arrival = receive_one(&fd, &mut room).unwrap().unwrap();
                assert_eq!((arrival.len, arrival.segment), (100, 100));
                assert_eq!(arrival.from, Address::new(from.local_addr().unwrap()));
                assert_eq!(arrival.at, told.then_some(at));
            }
            let empty = receive_one(&fd, &mut room).err().unwrap();
            assert_eq!(empty.raw_os_error(), Some(libc::EAGAIN));
        }
    }
}
