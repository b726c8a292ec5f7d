//! A socket of its own for the peer that is written to again and again.
//!
//! ```text
//!   64 datagrams to one peer in a row --> a socket connected to it: the kernel looks up the way
//!                                         once, a tenth of an exchange of tiny messages
//!   to another peer                  --> the command socket
//!   an error                         --> closed; the command socket finds out what it is
//! ```
//!
//! Only sends: answers go to the command socket, whose number the peer knows. It is of the peer's
//! own family, for a socket of both looks up the way to an IPv4 address every time.
//!
//! Owns: the descriptor. Knows nothing of: what is sent.

use super::address::Address;
use super::sys::{self, RawAddress};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Datagrams in a row to one peer after which it gets a socket.
const ROW: u32 = 64;

/// The socket, or how near it is.
#[derive(Debug)]
pub(super) struct Express {
    /// The last peer.
    to: Option<Address>,
    row: u32,
    open: Option<(Address, OwnedFd)>,
    /// The address of this host to use.
    bound: Option<IpAddr>,
}

impl Express {
    pub(super) fn new(bound: Option<IpAddr>) -> Self {
        Self {
            to: None,
            row: 0,
            open: None,
            bound,
        }
    }

    /// Sends a datagram. False: it has not been sent, and another socket is to do it.
    #[inline]
    pub(super) fn send(&mut self, to: Address, bytes: &[u8]) -> bool {
        match &self.open {
            Some((peer, fd)) if *peer == to => {
                self.row = ROW;
                if sys::send_connected(fd, bytes).is_ok() {
                    return true;
                }
                self.close();
                false
            }
            _ => {
                self.note(to);
                false
            }
        }
    }

    fn note(&mut self, to: Address) {
        if self.to == Some(to) {
            self.row += 1;
        } else {
            (self.to, self.row) = (Some(to), 1);
        }
        if self.row >= ROW {
            self.row = 0;
            self.open = match connected(to, self.bound) {
                Ok(fd) => Some((to, fd)),
                Err(error) => {
                    log::debug!("udp: no socket for {to:?} alone: {error}");
                    None
                }
            };
        }
    }

    #[cold]
    fn close(&mut self) {
        (self.open, self.to, self.row) = (None, None, 0);
    }
}

fn connected(to: Address, bound: Option<IpAddr>) -> io::Result<OwnedFd> {
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let both = to.ip().is_ipv6();
    let fd = sys::socket(both)?;
    sys::bind(&fd, SocketAddr::new(bound.unwrap_or(any), 0))?;
    let raw = RawAddress::new(to, both);
    let raw = raw.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
    sys::connect(&fd, &raw)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn peer() -> (UdpSocket, Address) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = Address::new(socket.local_addr().unwrap());
        (socket, address)
    }

    #[test]
    fn only_the_peer_of_a_row_gets_a_socket_and_another_does_not_take_it_at_once() {
        let mut express = Express::new(None);
        let ((socket, hot), (_other, cold)) = (peer(), peer());
        (0..ROW - 1).for_each(|_| assert!(!express.send(hot, b"x")));
        assert!(!express.send(cold, b"x"), "the row is broken");
        (0..ROW).for_each(|_| assert!(!express.send(hot, b"x")));
        assert!(express.send(hot, b"first"));
        assert!(!express.send(cold, b"x"));
        assert!(express.send(hot, b"second"));
        let mut room = [0; 16];
        assert_eq!(socket.recv(&mut room).unwrap(), 5);
        assert_eq!(socket.recv(&mut room).unwrap(), 6);
    }

    #[test]
    fn a_peer_that_is_gone_costs_the_socket_and_nothing_else() {
        let mut express = Express::new(None);
        let (socket, hot) = peer();
        (0..ROW).for_each(|_| assert!(!express.send(hot, b"x")));
        drop(socket);
        // The kernel tells of the first with the second, or the third.
        let sent = (0..10).filter(|_| express.send(hot, b"x")).count();
        assert!(sent < 10);
        assert!(express.open.is_none());
    }
}
