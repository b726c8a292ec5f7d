//! Connected socket for the peer that is sent to repeatedly.
//!
//! ```text
//!   64 datagrams to one peer in a row --> connect: the kernel caches the route, which saves a tenth
//!                                         of an exchange of tiny messages
//!   to another peer                   --> the command socket
//!   an error                          --> no longer connected; the command socket finds the reason
//! ```
//!
//! Used only for sending: answers go to the command socket, whose port the peer knows. IPv4 only, since a dual-stack
//! socket looks up the route to an IPv4 address each time.
//!
//! Owns: the descriptor. Out of scope: the contents of datagrams.

use super::address::Address;
use super::sys::{self, UdpSocket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Datagrams in a row to one peer after which the socket connects to it.
const ROW: u32 = 64;

/// Socket with its current and its next peer.
#[derive(Debug)]
pub(super) struct ConnectedSocket {
    /// `None` if the socket cannot be opened.
    fd: Option<UdpSocket>,
    /// Only address of this machine to use; `None`: any.
    bound: Option<IpAddr>,
    /// True if the socket was never connected, and so may send from any address.
    fresh: bool,
    connected: Option<Address>,
    /// Latest peer that the socket is not connected to; `row` counts the datagrams in a row to it.
    to: Option<Address>,
    row: u32,
}

impl ConnectedSocket {
    /// Opens the socket; `bound`: the only address of this machine to use.
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

    /// Sends a datagram, from `source` if given. Returns false if it was not sent, and another socket has to send it.
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
            // A socket keeps the source address of its first connection, even if the route to another peer needs a
            // different one.
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
        // The kernel reports the error of the first datagram at the second or third.
        let sent = (0..10).filter(|_| express.send(active, None, b"x")).count();
        assert!(sent < 10);
        assert!(express.connected.is_none());
    }
}
