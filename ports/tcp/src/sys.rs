//! The system calls of this port, each behind a safe function.
//!
//! ```text
//!   sockets   socket, bind, listen, accept, connect, options
//!   bytes     send, send_pair, recv, recv_pair, peek, skip    never block, never raise SIGPIPE
//!   readiness Epoll, readable, readable_from, writable
//! ```
//!
//! Owns: nothing; descriptors belong to the `OwnedFd` of whoever asked for them.
//! Knows nothing of: links, packets, preambles.
//! Every error is an [`io::Error`] made from `errno`, which allocates nothing.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Longest name of a congestion control algorithm, with its NUL (`TCP_CA_NAME_MAX`).
const ALGORITHM_MAX: usize = 16;

/// The name of a congestion control algorithm, filled up with NULs.
pub(super) type Algorithm = [u8; ALGORITHM_MAX];

/// A non-blocking TCP socket of the family of `address`.
pub(super) fn socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain values in, a descriptor or -1 out.
    let fd = check(unsafe { libc::socket(family, kind, libc::IPPROTO_TCP) })?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives a socket its own address.
pub(super) fn bind(fd: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    let (storage, len) = to_raw(address);
    // SAFETY: `storage` holds an address of `len` bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const storage).cast(), len) })?;
    Ok(())
}

/// Makes a bound socket accept connections.
pub(super) fn listen(fd: &OwnedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: plain values in.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) })?;
    Ok(())
}

/// Takes one waiting connection, non-blocking, with its peer's address.
pub(super) fn accept(fd: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut storage = empty_address();
    let mut len = address_len();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: `storage` has room for the `len` bytes that the kernel may write.
    let got = check(unsafe {
        libc::accept4(
            fd.as_raw_fd(),
            (&raw mut storage).cast(),
            &raw mut len,
            flags,
        )
    })?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(got) };
    Ok((socket, from_raw(&storage)?))
}

/// Starts a connection. `Ok(true)`: it is there already; `Ok(false)`: it is under way.
pub(super) fn connect(fd: &OwnedFd, address: &SocketAddr) -> io::Result<bool> {
    let (storage, len) = to_raw(address);
    // SAFETY: `storage` holds an address of `len` bytes and outlives the call.
    match check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const storage).cast(), len) }) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The address a socket is bound to.
pub(super) fn local_address(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let mut storage = empty_address();
    let mut len = address_len();
    // SAFETY: `storage` has room for the `len` bytes that the kernel may write.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut storage).cast(), &raw mut len) })?;
    from_raw(&storage)
}

/// Sets an option whose value is an `int`.
pub(super) fn set_option(fd: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is an `int` that outlives the call, and `len` is its size.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len)
    })?;
    Ok(())
}

/// Takes the error that a socket has met, if any.
pub(super) fn take_error(fd: &OwnedFd) -> io::Result<()> {
    let mut value: i32 = 0;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is an `int` and `len` its size; both outlive the call.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    if value == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(value))
    }
}

/// Which congestion control algorithm a socket uses.
pub(super) fn algorithm(fd: &OwnedFd) -> io::Result<Algorithm> {
    let mut name: Algorithm = [0; ALGORITHM_MAX];
    let mut len = ALGORITHM_MAX as libc::socklen_t;
    // SAFETY: `name` has room for the `len` bytes that the kernel may write.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(name)
}

/// Chooses a congestion control algorithm.
pub(super) fn set_algorithm(fd: &OwnedFd, name: &Algorithm) -> io::Result<()> {
    let len = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(ALGORITHM_MAX);
    // SAFETY: `name` is readable for `len` bytes during the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            len as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// What the kernel knows about a peer that owes an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vitals {
    /// Something was sent, if only a question, that the peer has not answered.
    pub(super) unanswered: bool,
    /// Time since the last acknowledgement came in.
    pub(super) silent: Duration,
}

/// Asks the kernel when a peer was last heard, if it owes anything.
pub(super) fn vitals(fd: &OwnedFd) -> io::Result<Option<Vitals>> {
    let mut queued: i32 = 0;
    // SAFETY: TIOCOUTQ writes one `int`: bytes not sent or not acknowledged.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) })?;
    if queued == 0 {
        return Ok(None);
    }
    // SAFETY: `tcp_info` is plain integers, for which all zeros is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` has room for the `len` bytes that the kernel may write.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    })?;
    Ok(Some(Vitals {
        unanswered: info.tcpi_unacked > 0 || info.tcpi_probes > 0,
        silent: Duration::from_millis(u64::from(info.tcpi_last_ack_recv)),
    }))
}

/// Says that nothing more will be sent.
pub(super) fn finish_sending(fd: &OwnedFd) {
    // SAFETY: plain values in. A failure means that the connection is gone, which is as good.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// Sends what fits. `more`: another call follows at once, so the last segment may wait for it.
#[inline]
pub(super) fn send(fd: &OwnedFd, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    // SAFETY: `bytes` is readable for its length during the call.
    check_len(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Sends what fits of two runs of bytes, as one.
#[inline]
pub(super) fn send_pair(fd: &OwnedFd, a: &[u8], b: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    let mut parts = [IoSlice::new(a), IoSlice::new(b)];
    // SAFETY: `msghdr` is plain integers and pointers, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // `IoSlice` is guaranteed to have the layout of `iovec`.
    message.msg_iov = parts.as_mut_ptr().cast();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the message names two slices that are readable during the call.
    check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })
}

/// Receives what is there. `Ok(0)`: the peer has finished.
#[inline]
pub(super) fn recv(fd: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `into` is writable for its length during the call.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), 0) })
}

/// Reads what is there and leaves it there.
pub(super) fn peek(fd: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    let at = into.as_mut_ptr().cast();
    // SAFETY: `into` is writable for its length during the call.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), at, into.len(), libc::MSG_PEEK) })
}

/// Throws away the first bytes of what is there, which [`peek`] has shown, and copies nothing.
pub(super) fn skip(fd: &OwnedFd, shown: &mut [u8]) -> io::Result<usize> {
    let at = shown.as_mut_ptr().cast();
    // SAFETY: `shown` is writable for its length during the call; the kernel does not write to it.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), at, shown.len(), libc::MSG_TRUNC) })
}

/// How many bytes can be read.
pub(super) fn unread(fd: &OwnedFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `bytes` is writable and outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// From how many bytes on the socket is reported as readable, as a rule: sooner with the end, a failure,
/// or a window that is nearly closed. The kernel makes its buffer large enough for so many.
pub(super) fn readable_from(fd: &OwnedFd, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// Receives what is there into two places, the first filled first.
#[inline]
pub(super) fn recv_pair(fd: &OwnedFd, a: &mut [u8], b: &mut [u8]) -> io::Result<usize> {
    let mut parts = [IoSliceMut::new(a), IoSliceMut::new(b)];
    let (first, count) = (parts.as_mut_ptr(), parts.len() as i32);
    // SAFETY: `IoSliceMut` is guaranteed to have the layout of `iovec`, and both slices are
    // writable during the call.
    check_len(unsafe { libc::readv(fd.as_raw_fd(), first.cast(), count) })
}

/// True when there is something to read, or the end, or a failure.
pub(super) fn readable(fd: &OwnedFd) -> bool {
    ready(fd, libc::POLLIN)
}

/// True when nothing will come any more after what is there, or the socket has failed.
pub(super) fn finished(fd: &OwnedFd) -> bool {
    ready(fd, libc::POLLRDHUP)
}

/// True when the socket has a good deal of room, or has failed.
#[inline]
pub(super) fn writable(fd: &OwnedFd) -> bool {
    ready(fd, libc::POLLOUT)
}

#[inline]
fn ready(fd: &OwnedFd, events: libc::c_short) -> bool {
    let mut asked = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one `pollfd`, which outlives the call; a time-out of zero never blocks.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
}

/// True when a call would have had to wait.
#[inline]
pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

/// An epoll instance: level-triggered unless told otherwise, one word for each descriptor.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

/// Something to read.
pub(super) const READ: u32 = libc::EPOLLIN as u32;
/// Room to write.
pub(super) const WRITE: u32 = libc::EPOLLOUT as u32;
/// Only what is new.
pub(super) const EDGE: u32 = libc::EPOLLET as u32;

/// One event as the kernel writes it.
pub(super) type RawEvent = libc::epoll_event;

/// An event that says nothing, to make arrays of.
pub(super) const NO_EVENT: RawEvent = libc::epoll_event { events: 0, u64: 0 };

impl Epoll {
    /// A new, empty one.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: plain values in, a descriptor or -1 out.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor to sleep on.
    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Watches `fd` and reports it as `word`.
    pub(super) fn add(&self, fd: &OwnedFd, interest: u32, word: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, word)
    }

    /// Watches for something else from now on.
    pub(super) fn change(&self, fd: &OwnedFd, interest: u32, word: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, word)
    }

    /// Watches `fd` no more.
    pub(super) fn remove(&self, fd: &OwnedFd) {
        // It fails when `fd` is not watched, which is what was asked for.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Writes what is ready into `events`, without waiting. Returns how many.
    pub(super) fn look(&self, events: &mut [RawEvent]) -> usize {
        let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: `events` is writable for `room` entries; a time-out of zero never blocks.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), room, 0) };
        usize::try_from(n).unwrap_or(0)
    }

    fn control(&self, what: i32, fd: &OwnedFd, interest: u32, word: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest,
            u64: word,
        };
        // SAFETY: both descriptors are open and `event` outlives the call.
        check(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), what, fd.as_raw_fd(), &raw mut event)
        })?;
        Ok(())
    }
}

#[inline]
fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[inline]
fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn empty_address() -> libc::sockaddr_storage {
    // SAFETY: `sockaddr_storage` is plain integers, for which all zeros is a value.
    unsafe { mem::zeroed() }
}

fn address_len() -> libc::socklen_t {
    size_of::<libc::sockaddr_storage>() as libc::socklen_t
}

fn to_raw(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    let mut storage = empty_address();
    let len = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` is large enough and aligned for every address type.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: `sockaddr_storage` is large enough and aligned for every address type.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

fn from_raw(storage: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that this is an IPv4 address, and the storage is aligned.
            let raw = unsafe { (&raw const *storage).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that this is an IPv6 address, and the storage is aligned.
            let raw = unsafe { (&raw const *storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Ok(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_to_the_kernel_and_back() {
        for text in [
            "127.0.0.1:1",
            "0.0.0.0:65535",
            "[::1]:2",
            "[fe80::1%7]:3",
            "[::]:0",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let (raw, _) = to_raw(&address);
            assert_eq!(from_raw(&raw).unwrap(), address);
        }
    }

    #[test]
    fn an_unknown_family_is_an_error() {
        let mut raw = empty_address();
        raw.ss_family = libc::AF_UNIX as libc::sa_family_t;
        assert_eq!(
            from_raw(&raw).unwrap_err().raw_os_error(),
            Some(libc::EAFNOSUPPORT)
        );
    }
}
