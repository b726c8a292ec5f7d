//! UDP socket: sends and receives batches, and collects network errors.
//!
//! ```text
//!   batch of one ----------- sendto ------------------> kernel
//!   batch of many ---------- sendmsg, GSO ------------> kernel or card splits it
//!            `-- without GSO: sendto, one by one
//!
//!   one buffer <-------- recvmsg, GRO ------------- kernel leaves a batch in one piece, or has joined datagrams
//!   some buffers <------ recvmmsg, GRO -----------'
//!
//!   a call fails --> the error queue ---> failures: refused, too large
//! ```
//!
//! The kernel reports a network error once, at whatever call comes next; the socket's error queue has the destination.
//! It is read when a call has failed, and after a wake-up without a datagram.
//!
//! Owns: the descriptor, quinn-udp's state of it, failures not yet reported.
//! Out of scope: channels, the contents of datagrams.

use super::address::Address;
use super::control::{self, Arrival, Failure};
use super::sys::{self, UdpSocket};
use mx_port_base::socket_option;
use mx_proto::reliability::{DatagramError, GsoBatch};
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::SockAddr;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// Maximum number of unreported failures; further ones are dropped, because peers retry and failures recur.
const FAILURES: usize = 64;

/// Attempts of a call that fails with errors of other datagrams.
const TRIES: u32 = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// Only address to bind to; `None`: all of this machine's.
    pub(super) ip: Option<IpAddr>,
    /// Port number; 0: chosen by the kernel.
    pub(super) port: u16,
    /// Requested size of the kernel's receive buffer, in bytes.
    pub(super) receive_buffer: usize,
    /// True to have the kernel report the local address of each datagram.
    pub(super) tells: bool,
}

/// UDP socket of one family or both.
#[derive(Debug)]
pub(super) struct Socket {
    fd: UdpSocket,
    state: UdpSocketState,
    /// True for an IPv6 socket that, unless bound to an address, also carries IPv4.
    both: bool,
    tells: bool,
    port: u16,
    /// True while sent datagrams may be fragmented.
    fragmenting: bool,
    receive_buffer: usize,
    failures: Vec<Failure>,
}

impl Socket {
    pub(super) fn open(opening: Opening) -> io::Result<Self> {
        let (fd, both) = match opening.ip {
            Some(ip) => (bound(SocketAddr::new(ip, opening.port))?, ip.is_ipv6()),
            None => everywhere(opening.port)?,
        };
        let receive_buffer = enlarge(&fd, opening.receive_buffer)?;
        let tells = opening.tells;
        let state = prepare(&fd, both, tells)?;
        state.enable_transport_errors((&fd).into())?;
        Ok(Self {
            state,
            both,
            tells,
            port: sys::local_port(&fd)?,
            fd,
            fragmenting: false,
            receive_buffer,
            failures: Vec::with_capacity(FAILURES),
        })
    }

    /// Has the kernel report the local address of each datagram from now on.
    pub(super) fn tell_addresses(&mut self) {
        if !self.tells {
            self.tells = true;
            sys::tell_addresses(&self.fd, self.both, true);
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns true if the socket reaches addresses of both families.
    pub(super) fn carries_both(&self) -> bool {
        self.both
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Size of the receive buffer, in bytes.
    pub(super) fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Maximum number of datagrams in a GSO batch.
    pub(super) fn batch_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends a batch that fits into one kernel call, from the local address `source`, or the route's if `None`.
    #[inline]
    pub(super) fn send(
        &mut self,
        to: Address,
        source: Option<IpAddr>,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError> {
        if batch.may_fragment != self.fragmenting {
            self.allow_fragments(batch.may_fragment);
        }
        let Some(raw) = sys::raw(to, self.both) else {
            return Err(DatagramError::Unreachable);
        };
        let there = SendTarget {
            to,
            raw: &raw,
            source,
        };
        if batch.bytes.len() <= batch.segment {
            return self.send_one(batch.bytes, there);
        }
        // The kernel does not fragment the segments of a GSO batch.
        if batch.may_fragment || self.state.max_gso_segments() < 2 {
            return self.send_each(batch, there);
        }
        self.send_batch(batch, there)
    }

    #[inline]
    fn send_one(&mut self, bytes: &[u8], there: SendTarget<'_>) -> Result<(), DatagramError> {
        for _ in 0..TRIES {
            let sent = match there.source {
                None => sys::send(&self.fd, bytes, Some(there.raw)),
                Some(_) => {
                    let transmit = there.transmit(bytes, None);
                    self.state.try_send((&self.fd).into(), &transmit)
                }
            };
            let Err(error) = sent else {
                return Ok(());
            };
            self.judge(&error, there.to, bytes.len())?;
        }
        Err(DatagramError::WouldBlock)
    }

    /// Sends datagrams one by one; once the first is sent, the rest is sent or lost.
    fn send_each(
        &mut self,
        batch: GsoBatch<'_>,
        there: SendTarget<'_>,
    ) -> Result<(), DatagramError> {
        for (nth, bytes) in batch.bytes.chunks(batch.segment.max(1)).enumerate() {
            match self.send_one(bytes, there) {
                Err(error) if nth == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    #[inline]
    fn send_batch(
        &mut self,
        batch: GsoBatch<'_>,
        there: SendTarget<'_>,
    ) -> Result<(), DatagramError> {
        let transmit = there.transmit(batch.bytes, Some(batch.segment));
        for _ in 0..TRIES {
            let Err(error) = self.state.try_send((&self.fd).into(), &transmit) else {
                return Ok(());
            };
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO)) {
                return self.without_gso(batch, there);
            }
            self.judge(&error, there.to, batch.segment)?;
        }
        Err(DatagramError::WouldBlock)
    }

    /// Handles a rejected batch. Kernels before 6.14 also reject one whose segment is too large for the interface,
    /// which is no reason to give up GSO.
    #[cold]
    fn without_gso(
        &mut self,
        batch: GsoBatch<'_>,
        there: SendTarget<'_>,
    ) -> Result<(), DatagramError> {
        let sent = self.send_each(batch, there);
        // Unreachable: the source is no longer a local address.
        let no_reason = matches!(
            sent,
            Err(DatagramError::TooLarge(_) | DatagramError::Unreachable)
        );
        if no_reason && let Ok(state) = prepare(&self.fd, self.both, self.tells) {
            self.state = state;
            self.fragmenting = false;
        }
        sent
    }

    /// Interprets an error of a send. `Ok`: the error concerns another datagram; try again.
    #[cold]
    fn judge(&mut self, error: &io::Error, to: Address, len: usize) -> Result<(), DatagramError> {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => {
                Err(DatagramError::WouldBlock)
            }
            Some(libc::EMSGSIZE) => {
                // The error is also in the queue, where it would keep the descriptor readable.
                self.take_failures();
                self.failures
                    .retain(|failure| (failure.to, failure.errno) != (to, libc::EMSGSIZE));
                let most = sys::link_mtu(to).map_or(0, |mtu| mtu.saturating_sub(to.headers()));
                let less = len.saturating_sub(1);
                Err(DatagramError::TooLarge(match most {
                    0 => less,
                    most => most.min(less),
                }))
            }
            _ if self.take_failures() => Ok(()),
            _ => Err(DatagramError::Unreachable),
        }
    }

    /// Receives into one buffer: one datagram, or some of one sender that GRO joined. `None`: nothing is queued.
    #[inline]
    pub(super) fn receive_one(&mut self, into: &mut [u8]) -> Option<Arrival> {
        for _ in 0..TRIES {
            match control::receive_one(&self.fd, into) {
                Ok(Some(arrival)) => return Some(arrival),
                // The sender's family is unknown.
                Ok(None) => {}
                Err(error) => {
                    if !self.receiving_failed(&error) {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Receives into as many buffers as there are; returns the number filled.
    #[inline]
    pub(super) fn receive(&mut self, into: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]) -> usize {
        for _ in 0..TRIES {
            match self.state.recv((&self.fd).into(), into, metas) {
                Ok(count) => return count,
                Err(error) => {
                    if !self.receiving_failed(&error) {
                        return 0;
                    }
                }
            }
        }
        0
    }

    /// Returns true if the call should be repeated.
    #[inline]
    fn receiving_failed(&mut self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => false,
            // The sender's family is unknown.
            None => true,
            _ => {
                self.take_failures();
                true
            }
        }
    }

    /// Empties the kernel's error queue. Returns true if it had an entry.
    #[cold]
    pub(super) fn take_failures(&mut self) -> bool {
        let mut any = false;
        loop {
            match control::take_failure(&self.fd) {
                Ok(Some(failure)) => {
                    any = true;
                    if self.failures.len() < FAILURES && !self.failures.contains(&failure) {
                        self.failures.push(failure);
                    }
                }
                Ok(None) => return any,
                Err(error) => {
                    log::debug!("udp: the queue of errors: {error}");
                    return any;
                }
            }
        }
    }

    /// Returns true if there are failures to report.
    #[inline]
    pub(super) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Removes and returns a failure to report.
    pub(super) fn next_failure(&mut self) -> Option<Failure> {
        self.failures.pop()
    }

    /// Allows or forbids fragmentation of datagrams sent from now on.
    #[cold]
    fn allow_fragments(&mut self, may: bool) {
        let (v4, v6) = if may {
            (libc::IP_PMTUDISC_DONT, libc::IPV6_PMTUDISC_DONT)
        } else {
            // Sends whatever fits the interface, regardless of the path MTU that the kernel has cached.
            (libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE)
        };
        let mut options = vec![(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, v4)];
        if self.both {
            options.push((libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, v6));
            options.push((libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, i32::from(!may)));
        }
        for (level, name, value) in options {
            if let Err(error) = socket_option::set(&self.fd, level, name, value) {
                log::debug!("udp: fragments allowed: {may}: {error}");
            }
        }
        self.fragmenting = may;
    }
}

/// Destination and source of a send.
#[derive(Clone, Copy)]
struct SendTarget<'a> {
    to: Address,
    /// Destination in the kernel's format.
    raw: &'a SockAddr,
    source: Option<IpAddr>,
}

impl SendTarget<'_> {
    fn transmit<'a>(&self, contents: &'a [u8], segment_size: Option<usize>) -> Transmit<'a> {
        Transmit {
            destination: if self.raw.is_ipv6() {
                SocketAddr::V6(self.to.v6())
            } else {
                self.to.socket_address()
            },
            ecn: None,
            contents,
            segment_size,
            src_ip: self.source,
        }
    }
}

/// Opens a socket on all addresses, of both families where the machine has both.
fn everywhere(port: u16) -> io::Result<(UdpSocket, bool)> {
    let v6 = bound(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    match v6 {
        Ok(fd) => Ok((fd, true)),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
            ) =>
        {
            log::debug!("udp: no IPv6: {error}");
            let v4 = bound(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
            Ok((v4, false))
        }
        Err(error) => Err(error),
    }
}

fn bound(address: SocketAddr) -> io::Result<UdpSocket> {
    let fd = sys::socket(address.is_ipv6())?;
    if address.is_ipv6() {
        fd.set_only_v6(!address.ip().is_unspecified())?;
    }
    fd.bind(&address.into())?;
    Ok(fd)
}

/// Requests buffer sizes; returns the payload bytes of the receive buffer. The kernel counts its overhead, for which it
/// doubles the request.
fn enlarge(fd: &UdpSocket, bytes: usize) -> io::Result<usize> {
    let asked = bytes.min(i32::MAX as usize / 2);
    // Only root may exceed `net.core.rmem_max`.
    if setsockopt(fd, sockopt::RcvBufForce, &asked).is_err() {
        fd.set_recv_buffer_size(asked)?;
    }
    if setsockopt(fd, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        fd.set_send_buffer_size(SEND_BUFFER)?;
    }
    Ok((fd.recv_buffer_size()? / 2).max(1))
}

/// Send buffer in bytes: a dozen of the largest batches. The layer above decides the order of sending, so a longer
/// queue would only add delay.
const SEND_BUFFER: usize = 1 << 20;

/// Creates quinn-udp's state of a socket, and turns off kernel options that it enables and this port does not use.
fn prepare(fd: &UdpSocket, both: bool, tells: bool) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(fd.into())?;
    quieten(fd, both, tells);
    Ok(state)
}

/// Turns off unused options of quinn-udp, which cost a tenth of a small datagram; `tells`: keeps the local address.
fn quieten(fd: &UdpSocket, both: bool, tells: bool) {
    let v6 = both.then_some((libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS));
    let v4 = [
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
        (libc::IPPROTO_IP, libc::IP_RECVTOS),
    ];
    for (level, name) in v4.into_iter().chain(v6) {
        // The port works even if this fails.
        let _ = socket_option::set(fd, level, name, 0);
    }
    sys::tell_addresses(fd, both, tells);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_reopened_with_batches_keeps_its_options() {
        let mut socket = Socket::open(Opening {
            ip: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            receive_buffer: 1 << 16,
            tells: false,
        })
        .unwrap();
        let options = |socket: &Socket| {
            let of = |level, name| socket_option::get(&socket.fd, level, name).unwrap();
            [
                of(libc::SOL_UDP, libc::UDP_GRO),
                of(libc::IPPROTO_IP, libc::IP_PKTINFO),
                of(libc::IPPROTO_IP, libc::IP_RECVTOS),
                of(libc::IPPROTO_IP, libc::IP_RECVERR),
            ]
        };
        let before = options(&socket);
        assert_eq!(before, [1, 0, 0, 1]);
        let to = Address::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
        let raw = sys::raw(to, false).unwrap();
        // Nothing can be sent from a foreign address.
        let source = Some(Ipv4Addr::new(192, 0, 2, 1).into());
        let there = SendTarget {
            to,
            raw: &raw,
            source,
        };
        let batch = GsoBatch {
            segment: 10,
            ..GsoBatch::single(&[0; 20])
        };
        let sent = socket.without_gso(batch, there);
        assert_eq!(sent, Err(DatagramError::Unreachable));
        assert_eq!(options(&socket), before);
    }
}
