//! The system calls of this port that `socket2` and `nix` do not offer in this form.
//!
//! ```text
//!   sockets   socket, accept, connect, local_address, vitals, finish_sending
//!   bytes     send, send_vectored, recv, recv_into, peek, skip    never block, never raise SIGPIPE
//!   readiness readable, readable_from, finished, writable
//! ```
//!
//! Owns: nothing.
//! Out of scope: links, packets, preambles. Every error is an [`io::Error`] made from `errno`, which
//! allocates nothing.

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

/// A socket of this port.
pub(super) type TcpSocket = CloseOnFork<Socket>;

/// Most runs of bytes in one call: `IOV_MAX`.
pub(super) const VECTOR_MAX: usize = 1024;

/// From linux/tcp.h.
const TCP_RTO_MAX_MS: i32 = 44;

/// A non-blocking TCP socket of the family of `address`.
pub(super) fn socket(address: &SocketAddr) -> io::Result<TcpSocket> {
    let kind = Type::STREAM.nonblocking();
    let domain = Domain::for_address(*address);
    CloseOnFork::open(|| Socket::new(domain, kind, Some(Protocol::TCP)))
}

/// Takes one waiting connection, non-blocking, with its peer's address.
pub(super) fn accept(listener: &Socket) -> io::Result<(TcpSocket, SocketAddr)> {
    let mut no_fork = no_fork();
    let (socket, address) = listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)?;
    Ok((no_fork.keep(socket)?, internet(&address)?))
}

/// Starts a connection.
pub(super) fn connect(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match socket.connect(&address.into()) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
            Ok(())
        }
        result => result,
    }
}

/// The address a socket is bound to.
pub(super) fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    internet(&socket.local_addr()?)
}

fn internet(address: &SockAddr) -> io::Result<SocketAddr> {
    let unknown = || io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
    address.as_socket().ok_or_else(unknown)
}

/// The kernel's state of a peer that owes an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpHealth {
    /// Something was sent, if only a question, that the peer has not answered.
    pub(super) unanswered: bool,
    /// Time since the last acknowledgement came in.
    pub(super) silent: Duration,
}

/// Asks the kernel when a peer was last heard, if it owes anything.
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

/// The kernel's figures of a connection.
fn tcp_info(socket: &Socket) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` is plain integers, for which all zeros is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    // Older kernels write less of it.
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

/// The figures of a connection, for tools.
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

/// Bytes that a connection has carried since it began, and the time which that took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes that the peer has acknowledged.
    pub(super) acked: u64,
    /// The time in which there was something to send, in microseconds.
    pub(super) busy_us: u64,
}

/// Returns the [`Progress`] of a connection. `None`: the kernel does not tell.
pub(super) fn progress(socket: &Socket) -> Option<Progress> {
    let info = tcp_info(socket).ok()?;
    Some(Progress {
        acked: info.tcpi_bytes_acked,
        busy_us: info.tcpi_busy_time,
    })
}

/// Bounds the bytes that the kernel keeps and has not sent. 0: the bound of the machine, which is none as a rule.
pub(super) fn bound_unsent(socket: &Socket, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket_option::set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Longest time between two retransmissions or questions. Kernels before 6.15 do not know the option.
pub(super) fn set_longest_rto(socket: &Socket, longest: Duration) -> io::Result<()> {
    let milliseconds = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    let milliseconds = milliseconds.clamp(1000, 120_000);
    socket_option::set(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, milliseconds)
}

/// Says that nothing more will be sent.
pub(super) fn finish_sending(socket: &Socket) {
    // A failure means that the connection is gone.
    let _ = socket.shutdown(Shutdown::Write);
}

#[cfg(test)]
thread_local! {
    /// Calls of this thread that have sent or received bytes.
    pub(super) static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// The result of a call that sends or receives: tests count them.
#[inline(always)]
fn counted(result: io::Result<usize>) -> io::Result<usize> {
    #[cfg(test)]
    CALLS.set(CALLS.get() + 1);
    result
}

/// Sends what fits.
#[inline]
pub(super) fn send(socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    counted(socket.send_with_flags(bytes, libc::MSG_NOSIGNAL))
}

/// Sends what fits of several runs of bytes, as one; at most [`VECTOR_MAX`]. `more`: another call follows
/// at once, so the last segment may wait for it.
#[inline]
pub(super) fn send_vectored(
    socket: &Socket,
    runs: &[IoSlice<'_>],
    more: bool,
) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    counted(socket.send_vectored_with_flags(runs, flags))
}

/// Receives what is there. `Ok(0)`: the peer has finished.
#[inline]
pub(super) fn recv(mut socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    counted(socket.read(into))
}

/// Where bytes are received to, one place after the other.
#[derive(Debug)]
pub(super) struct ReadVector<'a> {
    vector: SmallVec<[libc::iovec; 4]>,
    len: usize,
    lent: PhantomData<&'a Cell<u8>>,
}

impl<'a> ReadVector<'a> {
    /// Places for about so many pieces, and one more.
    #[inline]
    pub(super) fn of(count: usize) -> Self {
        Self {
            vector: SmallVec::with_capacity(count.saturating_add(1).min(VECTOR_MAX)),
            len: 0,
            lent: PhantomData,
        }
    }

    /// Bytes in all of them.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Only one more may be added.
    pub(super) fn is_full(&self) -> bool {
        self.vector.len() + 1 >= VECTOR_MAX
    }

    /// Adds one, behind the others.
    #[inline]
    pub(super) fn push(&mut self, place: &'a [Cell<u8>]) {
        self.len += place.len();
        self.vector.push(libc::iovec {
            iov_base: place.as_ptr().cast_mut().cast(),
            iov_len: place.len(),
        });
    }
}

/// Receives what is there into several places, the first filled first.
#[inline]
pub(super) fn recv_into(socket: &Socket, places: &ReadVector<'_>) -> io::Result<usize> {
    let (at, count) = (places.vector.as_ptr(), places.vector.len() as i32);
    // SAFETY: every entry is a run of cells that is lent until `places` is dropped, and at most as many as the
    // kernel takes.
    let read = Errno::result(unsafe { libc::readv(socket.as_raw_fd(), at, count) });
    counted(read.map(|n| n as usize).map_err(io::Error::from))
}

/// Reads what is there and leaves it there.
pub(super) fn peek(socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    let n = nix::sys::socket::recv(socket.as_raw_fd(), into, MsgFlags::MSG_PEEK)?;
    Ok(n)
}

/// Throws away the first bytes of what is there, which [`peek`] has shown, and copies nothing.
pub(super) fn skip(socket: &Socket, shown: &mut [u8]) -> io::Result<usize> {
    let n = nix::sys::socket::recv(socket.as_raw_fd(), shown, MsgFlags::MSG_TRUNC)?;
    Ok(n)
}

/// The number of bytes that can be read.
pub(super) fn unread(socket: &Socket) -> io::Result<usize> {
    count(socket, libc::FIONREAD)
}

fn count(socket: &Socket, request: libc::Ioctl) -> io::Result<usize> {
    let mut bytes: i32 = 0;
    // SAFETY: both requests write one `int`, which outlives the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// From how many bytes on the socket is reported as readable, as a rule: sooner with the end, a failure,
/// or a window that is nearly closed. The kernel makes its buffer large enough for so many.
pub(super) fn readable_from(socket: &Socket, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// True when there is something to read, or the end, or a failure.
pub(super) fn readable(socket: &Socket) -> bool {
    ready(socket, PollFlags::POLLIN)
}

/// True when nothing will come any more after what is there, or the socket has failed.
pub(super) fn finished(socket: &Socket) -> bool {
    // `nix` has no name for it.
    ready(socket, PollFlags::from_bits_retain(libc::POLLRDHUP))
}

/// True when the socket has a good deal of room, or has failed.
#[inline]
pub(super) fn writable(socket: &Socket) -> bool {
    ready(socket, PollFlags::POLLOUT)
}

#[inline]
fn ready(socket: &Socket, events: PollFlags) -> bool {
    let mut asked = [PollFd::new(socket.as_fd(), events)];
    matches!(poll(&mut asked, PollTimeout::ZERO), Ok(1))
}

/// True when a call would have had to wait.
#[inline]
pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}
