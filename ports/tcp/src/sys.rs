//! System calls of this port that `socket2` and `nix` do not offer in this form.
//!
//! ```text
//!   sockets   socket, accept, connect, local_address, vitals, finish_sending
//!   bytes     send, send_vectored, recv, recv_into, peek, skip    never block, never raise SIGPIPE
//!   readiness readable, readable_from, finished, writable
//! ```
//!
//! Owns: nothing.
//! Out of scope: links, packets, preambles. Every error is an [`io::Error`] made from `errno`, without an allocation.

use mx_port_base::close_on_fork::{CloseOnFork, no_fork};
use mx_port_base::socket_option;
use mx_proto::Instant;
use mx_proto::port::LinkFigures;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;
use smallvec::SmallVec;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::cell::Cell;
use std::io::{self, IoSlice, Read};
use std::marker::PhantomData;
use std::mem;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Socket of this port.
pub(super) type TcpSocket = CloseOnFork<Socket>;

/// Maximum number of segments in one call: `IOV_MAX`.
pub(super) const VECTOR_MAX: usize = 1024;

/// Socket option of linux/tcp.h.
const TCP_RTO_MAX_MS: i32 = 44;

/// Opens a non-blocking TCP socket of the family of `address`.
pub(super) fn socket(address: &SocketAddr) -> io::Result<TcpSocket> {
    let kind = Type::STREAM.nonblocking();
    let domain = Domain::for_address(*address);
    CloseOnFork::open(|| Socket::new(domain, kind, Some(Protocol::TCP)))
}

/// Accepts one connection, non-blocking; returns it with its peer's address.
pub(super) fn accept(listener: &Socket) -> io::Result<(TcpSocket, SocketAddr)> {
    let mut no_fork = no_fork();
    let (socket, address) = listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)?;
    Ok((no_fork.keep(socket)?, internet(&address)?))
}

pub(super) fn connect(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match socket.connect(&address.into()) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
            Ok(())
        }
        result => result,
    }
}

/// Returns the address that a socket is bound to.
pub(super) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    internet(&socket.local_addr()?)
}

fn internet(address: &SockAddr) -> io::Result<SocketAddr> {
    let unknown = || io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
    address.as_socket().ok_or_else(unknown)
}

/// Kernel's view of a peer that owes an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpHealth {
    /// True if something was sent, at least a probe, and not acknowledged.
    pub(super) unanswered: bool,
    /// Time since the last acknowledgement arrived.
    pub(super) silent: Duration,
}

/// Returns when a peer was last heard; `None` if it owes no acknowledgement.
pub(super) fn vitals(socket: &Socket) -> io::Result<Option<TcpHealth>> {
    // Bytes not sent or not acknowledged.
    if count(socket, libc::TIOCOUTQ)? == 0 {
        return Ok(None);
    }
    let info = tcp_info(socket)?;
    Ok(Some(TcpHealth {
        unanswered: info.tcpi_unacked > 0 || info.tcpi_probes > 0,
        silent: Duration::from_millis(u64::from(info.tcpi_last_ack_recv)),
    }))
}

/// Reads the kernel's `TCP_INFO` of a connection.
fn tcp_info(socket: &Socket) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` is plain integers, for which all zeros is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    // Older kernels write only a part.
    let mut len = size_of_val(&info) as libc::socklen_t;
    let at = (&raw mut info).cast();
    // SAFETY: `info` has room for the `len` bytes that the kernel may write.
    Errno::result(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            at,
            &raw mut len,
        )
    })?;
    Ok(info)
}

/// Returns the kernel's measurements of a connection, for tools; `None` if it reports none.
pub(super) fn figures(socket: &Socket, now: Instant) -> Option<LinkFigures> {
    let info = tcp_info(socket).ok()?;
    let since = Duration::from_millis(u64::from(info.tcpi_last_data_recv));
    Some(LinkFigures {
        round_trip: Some(Duration::from_micros(u64::from(info.tcpi_rtt))),
        resent: info.tcpi_total_retrans,
        heard_at: Some(now.before(since)),
        // Kernels before 4.2 leave them 0.
        sent: Some(info.tcpi_bytes_acked),
        received: Some(info.tcpi_bytes_received),
    })
}

/// Bytes that a connection has carried since its start, and the time it needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes that the peer has acknowledged.
    pub(super) acked: u64,
    /// Time in which there was something to send, in microseconds.
    pub(super) busy_us: u64,
}

/// Returns the [`Progress`] of a connection; `None` if the kernel does not report it.
pub(super) fn progress(socket: &Socket) -> Option<Progress> {
    let info = tcp_info(socket).ok()?;
    Some(Progress {
        acked: info.tcpi_bytes_acked,
        busy_us: info.tcpi_busy_time,
    })
}

/// Sets the limit of unsent bytes in the kernel. 0: the machine's limit, which is usually none.
pub(super) fn bound_unsent(socket: &Socket, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket_option::set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Sets the longest time between two retransmissions or probes. Kernels before 6.15 lack the option.
pub(super) fn set_longest_rto(socket: &Socket, longest: Duration) -> io::Result<()> {
    let milliseconds = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    let milliseconds = milliseconds.clamp(1000, 120_000);
    socket_option::set(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, milliseconds)
}

/// Closes the sending direction.
pub(super) fn finish_sending(socket: &Socket) {
    // Fails only if the connection is broken.
    let _ = socket.shutdown(Shutdown::Write);
}

#[cfg(test)]
thread_local! {
    /// Number of calls of this thread that have sent or received bytes.
    pub(super) static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a call that sends or receives, in tests.
#[inline(always)]
fn counted(result: io::Result<usize>) -> io::Result<usize> {
    #[cfg(test)]
    CALLS.set(CALLS.get() + 1);
    result
}

/// Sends as many bytes as fit.
#[inline]
pub(super) fn send(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    counted(socket.send_with_flags(bytes, libc::MSG_NOSIGNAL))
}

/// Sends as many bytes as fit of at most [`VECTOR_MAX`] segments. `more`: another call follows at once, so the last TCP
/// segment may wait for it.
#[inline]
pub(super) fn send_vectored(
    socket: &Socket,
    runs: &[IoSlice<'_>],
    more: bool,
) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    counted(socket.send_vectored_with_flags(runs, flags))
}

/// Receives available bytes. `Ok(0)`: end of stream.
#[inline]
pub(super) fn recv(mut socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    counted(socket.read(into))
}

/// Destinations of received bytes, in order.
#[derive(Debug)]
pub(super) struct ReadVector<'a> {
    vector: SmallVec<[libc::iovec; 4]>,
    len: usize,
    lent: PhantomData<&'a Cell<u8>>,
}

impl<'a> ReadVector<'a> {
    /// Creates a vector for about `count` pieces, and one more.
    #[inline]
    pub(super) fn of(count: usize) -> Self {
        Self {
            vector: SmallVec::with_capacity(count.saturating_add(1).min(VECTOR_MAX)),
            len: 0,
            lent: PhantomData,
        }
    }

    /// Total bytes of all pieces.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if only one more piece may be added.
    pub(super) fn is_full(&self) -> bool {
        self.vector.len() + 1 >= VECTOR_MAX
    }

    /// Appends a piece.
    #[inline]
    pub(super) fn push(&mut self, place: &'a [Cell<u8>]) {
        self.len += place.len();
        self.vector.push(libc::iovec {
            iov_base: place.as_ptr().cast_mut().cast(),
            iov_len: place.len(),
        });
    }
}

/// Receives available bytes into several pieces, in order.
#[inline]
pub(super) fn recv_into(socket: &Socket, places: &ReadVector<'_>) -> io::Result<usize> {
    let (at, count) = (places.vector.as_ptr(), places.vector.len() as i32);
    // SAFETY: every entry is a run of cells that is lent until `places` is dropped, and there are at most as many as
    // the kernel takes.
    let read = Errno::result(unsafe { libc::readv(socket.as_raw_fd(), at, count) });
    counted(read.map(|n| n as usize).map_err(io::Error::from))
}

/// Copies available bytes without removing them.
pub(super) fn peek(socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    let n = nix::sys::socket::recv(socket.as_raw_fd(), into, MsgFlags::MSG_PEEK)?;
    Ok(n)
}

/// Discards the first available bytes, which [`peek`] has shown, without a copy.
pub(super) fn skip(socket: &Socket, shown: &mut [u8]) -> io::Result<usize> {
    let n = nix::sys::socket::recv(socket.as_raw_fd(), shown, MsgFlags::MSG_TRUNC)?;
    Ok(n)
}

/// Returns the number of bytes that can be read.
pub(super) fn unread(socket: &Socket) -> io::Result<usize> {
    count(socket, libc::FIONREAD)
}

fn count(socket: &Socket, request: libc::Ioctl) -> io::Result<usize> {
    let mut bytes: i32 = 0;
    // SAFETY: both requests write one `int`, which outlives the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Sets the number of bytes from which the socket is reported as readable (`SO_RCVLOWAT`); an end, a failure, or a
/// nearly closed window is reported sooner. The kernel enlarges its buffer accordingly.
pub(super) fn readable_from(socket: &Socket, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// Returns true on available bytes, end of stream, or a failure.
pub(super) fn readable(socket: &Socket) -> bool {
    ready(socket, PollFlags::POLLIN)
}

/// Returns true if nothing will arrive after the available bytes, or the socket has failed.
pub(super) fn finished(socket: &Socket) -> bool {
    // `nix` lacks `POLLRDHUP`.
    ready(socket, PollFlags::from_bits_retain(libc::POLLRDHUP))
}

/// Returns true if the socket has plenty of room, or has failed.
#[inline]
pub(super) fn writable(socket: &Socket) -> bool {
    ready(socket, PollFlags::POLLOUT)
}

#[inline]
fn ready(socket: &Socket, events: PollFlags) -> bool {
    let mut asked = [PollFd::new(socket.as_fd(), events)];
    matches!(poll(&mut asked, PollTimeout::ZERO), Ok(1))
}

/// Returns true if the call would have had to wait.
#[inline]
pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}
