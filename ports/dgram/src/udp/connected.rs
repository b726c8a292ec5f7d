//! A connected socket for the peer that is sent to repeatedly.
//!
//! ```text
//!   64 datagrams to one peer in a row --> the socket is connected to it: the kernel caches the
//!                                         route, which saves a tenth of an exchange of tiny messages
//!   to another peer                  --> the command socket
//!   an error                         --> the socket is disconnected; the command socket finds the
//!                                         reason
//! ```
//!
//! Only for sending: answers go to the command socket, whose number the peer knows. It is IPv4
//! only, since a socket of both families looks up the route to an IPv4 address each time.
//!
//! Owns: the descriptor. Out of scope: the contents of datagrams.

use super::address::Address;
use super::sys::{self, UdpSocket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Datagrams in a row to one peer after which the socket is connected to it.
const ROW: u32 = 64;

/// The socket and its present or next peer.
#[derive(Debug)]
pub(super) struct ConnectedSocket {
    /// `None` without IPv4.
    fd: Option<UdpSocket>,
    /// The only address of this machine to use.
    bound: Option<IpAddr>,
    /// True if it was never connected and may send from any address.
    fresh: bool,
    connected: Option<Address>,
    /// The last other peer, and the number of datagrams to it in a row.
    to: Option<Address>,
    row: u32,
}

impl ConnectedSocket {
    /// `bound`: the only address of this machine to use.
    pub(super) fn new(bound: Option<IpAddr>) -> Self {
        let fd = open(bound);
        if let Err(error) = &fd {
            log::debug!("udp: cannot open a connected socket: {error}");
        }
        Self {
            fd: fd.ok(),
            bound,
            fresh: true,
            connected: None,
            to: None,
            row: 0,
        }
    }

    /// Sends a datagram, from `source` if given. False: not sent, another socket has to send it.
    #[inline]
    pub(super) fn send(&mut self, to: Address, source: Option<IpAddr>, bytes: &[u8]) -> bool {
        let Some(fd) = &self.fd else {
            return false;
        };
        if self.connected == Some(to) {
            self.row = 0;
            if sys::send(fd, bytes, None).is_ok() {
                return true;
            }
            self.connected = None;
            return false;
        }
        self.row = if self.to == Some(to) { self.row + 1 } else { 1 };
        self.to = Some(to);
        if self.row >= ROW {
            self.connect(to, source);
        }
        false
    }

    #[cold]
    fn connect(&mut self, to: Address, source: Option<IpAddr>) {
        self.row = 0;
        if !to.ip().is_ipv4() {
            return;
        }
        if !self.fresh || source.is_some() {
            // A socket keeps the source it has once sent from, even if the route to another peer
            // needs a different one.
            self.fd = None;
            self.fd = open(source.or(self.bound)).ok();
        }
        self.fresh = false;
        if let (Some(fd), Some(raw)) = (&self.fd, sys::raw(to, false)) {
            let connected = fd.connect(&raw);
            self.connected = connected.is_ok().then_some(to);
        }
    }
}

fn open(bound: Option<IpAddr>) -> io::Result<UdpSocket> {
    let ip = bound.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let fd = sys::socket(ip.is_ipv6())?;
    fd.bind(&SocketAddr::new(ip, 0).into())?;
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
    fn connected_socket_needs_a_row_of_sends_to_one_peer() {
        let mut express = ConnectedSocket::new(None);
        let ((socket, active), (_other, idle)) = (peer(), peer());
        (0..ROW - 1).for_each(|_| assert!(!express.send(active, None, b"x")));
        assert!(!express.send(idle, None, b"x"), "the row is broken");
        (0..ROW).for_each(|_| assert!(!express.send(active, None, b"x")));
        assert!(express.send(active, None, b"first"));
        assert!(!express.send(idle, None, b"x"));
        assert!(express.send(active, None, b"second"));
        let mut room = [0; 16];
        assert_eq!(socket.recv(&mut room).unwrap(), 5);
        assert_eq!(socket.recv(&mut room).unwrap(), 6);
    }

    #[test]
    fn a_peer_that_is_gone_costs_the_socket_and_nothing_else() {
        let mut express = ConnectedSocket::new(None);
        let (socket, active) = peer();
        (0..ROW).for_each(|_| assert!(!express.send(active, None, b"x")));
        drop(socket);
        // The kernel reports the first one's error with the second, or the third.
        let sent = (0..10).filter(|_| express.send(active, None, b"x")).count();
        assert!(sent < 10);
        assert!(express.connected.is_none());
    }
}
