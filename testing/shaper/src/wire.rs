//! An end of the link: receives every frame that arrives at an interface, and sends any frame from
//! it.
//!
//! ```text
//!   interface --> packet socket (AF_PACKET, bound to it) --> receive()
//!   interface <------------------------------------------- send()
//! ```
//!
//! Owns: the socket.

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, recvfrom, send,
    setsockopt, socket, sockopt,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Receive buffer for the time when this process does not run: several milliseconds at 10 Gbit/s.
const RECEIVE_BUFFER: usize = 32 << 20;

/// A packet socket on one interface.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: OwnedFd,
}

impl Wire {
    /// Opens the socket, which needs CAP_NET_RAW.
    pub(crate) fn open(interface: &str) -> Result<Self, Errno> {
        let index = if_nametoindex(interface)?;
        // Without a protocol until it is bound: otherwise it would receive from every interface.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        bind(socket.as_raw_fd(), &address(index)?)?;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        Ok(Self { socket })
    }

    /// Returns the next frame from another host, if there is one.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), buffer) {
                // Frames that this machine sends through the interface are received, too.
                Ok((_, Some(from))) if from.pkttype() == libc::PACKET_OUTGOING => {}
                Ok((len, _)) => return Ok(Some(len)),
                Err(Errno::EAGAIN) => return Ok(None),
                // The interface has gone down; it may come up again.
                Err(Errno::EINTR | Errno::ENETDOWN) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a frame. Returns false if the interface does not accept it: down, full, or too large.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT).is_ok()
    }

    /// Returns the number of frames dropped by the socket since the last call.
    pub(crate) fn missed(&self) -> u64 {
        let mut seen = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = size_of_val(&seen) as libc::socklen_t;
        let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let to: *mut libc::c_void = (&raw mut seen).cast();
        // SAFETY: `to` has room for the `len` bytes of a tpacket_stats, and both live during the call.
        let asked =
            unsafe { libc::getsockopt(self.socket.as_raw_fd(), level, option, to, &raw mut len) };
        Errno::result(asked).map_or(0, |_| u64::from(seen.tp_drops))
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the address for all protocols of one interface.
fn address(index: u32) -> Result<LinkAddr, Errno> {
    let raw = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: i32::try_from(index).map_err(|_| Errno::ENODEV)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of_val(&raw) as u32;
    // SAFETY: `raw` is a whole sockaddr_ll, whose length this is, and is only read during the call.
    unsafe { LinkAddr::from_raw((&raw const raw).cast(), Some(len)) }.ok_or(Errno::EINVAL)
}
