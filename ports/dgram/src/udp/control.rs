//! Control messages of the kernel: the local address of a datagram, and errors.
//!
//! ```text
//!   receive_at      one datagram, its sender, and the local address it was sent to
//!   take_failure    the error for a datagram that was sent
//! ```
//!
//! Out of scope: the reaction to either.

use super::address::Address;
use super::sys::UdpSocket;
use mx_proto::reliability::Quote;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// Room for the control messages of one datagram: two extended errors with an address each.
#[repr(C, align(8))]
struct Control([u8; 256]);

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
pub(super) fn receive_at(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Arrival> {
    let mut at = None;
    let (len, from) = receive(socket, into, MsgFlags::MSG_TRUNC, |message| {
        at = address_of(message).or(at);
    })?;
    Ok(Arrival { len, from, at })
}

/// The local address in a control message, if it can be answered from.
fn address_of(message: ControlMessageOwned) -> Option<IpAddr> {
    match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            // Not `ipi_addr`, which may be a broadcast.
            let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
            Some(IpAddr::V4(ip))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            // IPv4 is reported in the other message.
            (ip.to_ipv4_mapped().is_none() && !ip.is_multicast()).then_some(IpAddr::V6(ip))
        }
        _ => None,
    }
}

/// Takes the oldest entry of the socket's error queue; `Ok(None)` if it is empty. quinn-udp reads
/// that queue too, but reports the sender of the error instead of the datagram's destination.
pub(super) fn take_failure(socket: &UdpSocket) -> io::Result<Option<Failure>> {
    loop {
        match next_failure(socket) {
            Ok(Some(failure)) => return Ok(Some(failure)),
            // Not an error of the network.
            Ok(None) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

fn next_failure(socket: &UdpSocket) -> Result<Option<Failure>, Errno> {
    // The beginning of the datagram, behind the UDP header.
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

/// Receives one message without blocking: the length and the address. Passes on each control message.
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
    // Those for which there was no room are an error, and are not needed.
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
