//! Unix sockets beside the rings: find a peer, pass memory, wake, notice a peer's end.
//!
//! ```text
//!   listener  "\0mx-<port base>-<board>-<endpoint>"   in the abstract namespace: no file, removed
//!      `--> one SOCK_SEQPACKET connection per link    with its process
//! ```
//!
//! Nothing here blocks, whatever the peer does: descriptors from a peer are never written to, and a wake-up is a `send`
//! that is skipped if the socket is full (then the sleeper has not read earlier wake-ups either).
//!
//! Owns: descriptors, all close-on-exec.
//! Out of scope: rings.

use super::handshake::MESSAGE_LEN;
use mx_port_base::cancellation::CancellationDisabled;
use mx_port_base::close_on_fork::{CloseOnFork, CloseOnForkFd, no_fork};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{PassCred, PeerCredentials};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr,
    accept4, bind, connect, getsockopt, listen, send, sendmsg, setsockopt, shutdown, socket,
};
use nix::unistd::getegid;
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Name at which an endpoint listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) port_base: u16,
    pub(super) board: u32,
    pub(super) endpoint: u32,
}

/// Listening or connected socket.
#[derive(Debug)]
pub(super) struct Socket(CloseOnForkFd);

/// Result of reading a socket.
#[derive(Debug)]
pub(super) enum Received {
    /// No message is queued.
    Nothing,
    /// The peer has closed.
    HangUp,
    /// A message of this many bytes, and the descriptor that came with it.
    Message(usize, Option<CloseOnForkFd>),
    /// A message of this many bytes, with a descriptor for which this process had no room.
    CutOff(usize),
}

/// Short message; `is_whole` if nothing of it was cut off, including descriptors.
#[derive(Debug)]
pub(super) struct Short {
    bytes: [u8; MESSAGE_LEN],
    len: usize,
    pub(super) is_whole: bool,
}

impl Short {
    /// Returns the message; empty if the peer has closed.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl Socket {
    /// Listens at `name`. Fails with `AddrInUse` if it is taken.
    pub(super) fn listen(name: Name) -> io::Result<Self> {
        let socket = Self::new()?;
        bind(socket.raw(), &name.address()?)?;
        // Accepted sockets inherit the option, from their first message on.
        socket.ask_users(true)?;
        socket.listen_as_now()?;
        Ok(socket)
    }

    /// Listens, or continues to: the listener's user becomes the current one of this process.
    pub(super) fn listen_as_now(&self) -> io::Result<()> {
        Ok(listen(&self.0, Backlog::new(BACKLOG)?)?)
    }

    /// Sets whether [`Socket::receive_from`] gets the senders' users. While it does, no other function receives.
    pub(super) fn ask_users(&self, wanted: bool) -> io::Result<()> {
        Ok(setsockopt(&self.0, PassCred, &wanted)?)
    }

    /// Creates a socket to connect with.
    pub(super) fn new() -> io::Result<Self> {
        let open = || socket(AddressFamily::Unix, SockType::SeqPacket, FLAGS, None);
        Ok(Self(CloseOnFork::open(open)?))
    }

    /// Connects to the endpoint at `name`. Fails with `ConnectionRefused` if there is none in our network namespace,
    /// with `WouldBlock` if its backlog is full.
    pub(super) fn connect(&self, name: Name) -> io::Result<()> {
        Ok(connect(self.raw(), &name.address()?)?)
    }

    /// Accepts the next connection, or fails with `WouldBlock`.
    pub(super) fn accept(&self) -> io::Result<Self> {
        let accepted = CloseOnFork::open(|| {
            let fd = accept4(self.raw(), FLAGS)?;
            // SAFETY: `fd` is a fresh descriptor, not owned elsewhere.
            Ok::<_, Errno>(unsafe { OwnedFd::from_raw_fd(fd) })
        });
        Ok(Self(accepted?))
    }

    /// Sends one message, whole or not at all, with a descriptor if one is given.
    pub(super) fn send(&self, message: &[u8], fd: Option<&OwnedFd>) -> io::Result<()> {
        if let Some(fd) = fd {
            return self.send_with(message, ControlMessage::ScmRights(&[fd.as_raw_fd()]));
        }
        let _off = CancellationDisabled::new();
        send(self.raw(), message, NOW)?;
        Ok(())
    }

    /// Sends one message in the name of `user`. Fails unless that is the real, effective or saved user of this process,
    /// or the process may take any.
    pub(super) fn send_as(&self, user: u32, message: &[u8]) -> io::Result<()> {
        let said = libc::ucred {
            pid: std::process::id() as libc::pid_t,
            uid: user,
            gid: getegid().as_raw(),
        };
        self.send_with(message, ControlMessage::ScmCredentials(&said.into()))
    }

    fn send_with(&self, message: &[u8], with: ControlMessage<'_>) -> io::Result<()> {
        let _off = CancellationDisabled::new();
        sendmsg::<UnixAddr>(self.raw(), &[IoSlice::new(message)], &[with], NOW, None)?;
        Ok(())
    }

    /// Wakes the peer. A full socket means that it has already been woken; a broken one is noticed elsewhere.
    pub(super) fn ring(&self) {
        let _off = CancellationDisabled::new();
        let _ = send(self.raw(), b"!", NOW);
    }

    /// Reads several short messages, for a link on which only wake-ups and control messages come. A longer message is
    /// cut off and reported. (Not inlined, so that its arrays are not on the stack while the messages are handled.)
    #[inline(never)]
    pub(super) fn receive_short(&self) -> io::Result<SmallVec<[Short; BATCH]>> {
        let mut bytes = [[0; MESSAGE_LEN]; BATCH];
        let mut parts = bytes.each_mut().map(|bytes| part(bytes));
        let mut headers = parts.each_mut().map(|part| libc::mmsghdr {
            msg_hdr: header(part),
            msg_len: 0,
        });
        let (at, most, now) = (headers.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT);
        // libc's call, because nix's allocates its result.
        // SAFETY: the headers point to `parts` and those to `bytes`, which live until here.
        let got = unsafe { libc::recvmmsg(self.raw(), at, most, now, std::ptr::null_mut()) };
        let got = Errno::result(got)?;
        let each = headers.iter().zip(&bytes).take(got as usize);
        Ok(each
            .map(|(header, bytes)| Short {
                bytes: *bytes,
                len: header.msg_len as usize,
                is_whole: header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0,
            })
            .collect())
    }

    /// Hangs up, even if a child process has inherited the socket.
    pub(super) fn shut_down(&self) {
        let _ = shutdown(self.raw(), Shutdown::Both);
    }

    /// Reads the next message. Keeps at most one descriptor, and only if it came alone; others are closed. (If the
    /// control data were cut off and no descriptor came, this process had no room for one: of too many for `Control`
    /// the first ones come.)
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        Ok(self.receive_from(into)?.0)
    }

    /// Receives like [`Self::receive`], and returns the sender's user if requested ([`Socket::ask_users`]): the one in
    /// whose name the message was sent, or else the sender's real one.
    pub(super) fn receive_from(&self, into: &mut [u8]) -> io::Result<(Received, Option<u32>)> {
        let mut part = part(into);
        let mut control = Control::new();
        let mut header = header(&mut part);
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let mut no_fork = no_fork();
        // libc's call, because nix returns no descriptor of a truncated message: it would stay open.
        // SAFETY: `header` points to `part`, `into` and `control`, which live until here.
        let got = unsafe { libc::recvmsg(self.raw(), &raw mut header, flags) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if is_transient(&error) {
                Ok((Received::Nothing, None))
            } else {
                Err(error)
            };
        }
        let (mut fds, mut kept, mut user) = (0, None, None);
        // SAFETY: the kernel filled `control` with well-formed headers and set `msg_controllen`
        // accordingly; the CMSG functions stay inside that. Each descriptor found is ours alone
        // and is taken into an `OwnedFd` exactly once.
        unsafe {
            let mut cmsg = libc::CMSG_FIRSTHDR(&raw const header);
            while !cmsg.is_null() {
                if (*cmsg).cmsg_level == libc::SOL_SOCKET && (*cmsg).cmsg_type == libc::SCM_RIGHTS {
                    let bytes = (*cmsg).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                    let data = libc::CMSG_DATA(cmsg).cast::<RawFd>();
                    for index in 0..bytes / size_of::<RawFd>() {
                        let fd = OwnedFd::from_raw_fd(data.add(index).read_unaligned());
                        fds += 1;
                        if fds == 1 {
                            kept = Some(no_fork.keep(fd)?);
                        }
                    }
                }
                if ((*cmsg).cmsg_level, (*cmsg).cmsg_type)
                    == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS)
                {
                    let said = libc::CMSG_DATA(cmsg).cast::<libc::ucred>();
                    user = Some(said.read_unaligned().uid);
                }
                cmsg = libc::CMSG_NXTHDR(&raw const header, cmsg);
            }
        }
        drop(no_fork);
        if got == 0 && fds == 0 {
            return Ok((Received::HangUp, user));
        }
        let lacks = (libc::MSG_CTRUNC, 0);
        if (header.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC), fds) == lacks {
            return Ok((Received::CutOff(got as usize), user));
        }
        if fds > 1 || header.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((Received::Message(got as usize, kept), user))
    }

    /// Returns the peer's user when it connected, or that of its listener; the overflow user if the kernel cannot name
    /// one.
    pub(super) fn user(&self) -> u32 {
        // Fails if not connected; the kernel then reports that the peer has closed.
        match getsockopt(&self.0, PeerCredentials) {
            Ok(is) if is.uid() != u32::MAX => is.uid(),
            _ => OVERFLOW_ID,
        }
    }

    /// Descriptor for `epoll`.
    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Name {
    fn address(self) -> nix::Result<UnixAddr> {
        let text = format!("mx-{}-{}-{}", self.port_base, self.board, self.endpoint);
        UnixAddr::new_abstract(text.as_bytes())
    }
}

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// Creates a message header for one part.
fn header(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: plain integers and pointers, for which all zeroes is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (part, 1);
    header
}

/// Returns true for errors that mean "try again".
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Returns true if descriptors or memory have run out.
pub(super) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::ENOBUFS
                | libc::ENOSPC
                // Too many descriptors are in messages not yet received.
                | libc::ETOOMANYREFS
        )
    )
}

/// Space for the control data of one message: a user, and more descriptors than wanted, so that they can be counted.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; 64]);

impl Control {
    fn new() -> Self {
        Self([MaybeUninit::zeroed(); 64])
    }
}

/// Maximum number of short messages received in one call.
pub(super) const BATCH: usize = 32;

/// Flags of every socket.
const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);

/// Flags of every send.
const NOW: MsgFlags = MsgFlags::MSG_DONTWAIT.union(MsgFlags::MSG_NOSIGNAL);

/// Kernel's overflow user and group, for those without a number in this namespace.
const OVERFLOW_ID: u32 = 65534;

/// Connections that the kernel queues until they are accepted. The system's limit may be lower.
const BACKLOG: i32 = 1024;
