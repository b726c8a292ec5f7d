//! The Unix sockets beside the rings: finding a peer, handing over memory, waking, noticing death.
//!
//! ```text
//!   listener  "\0mx-<port base>-<board>-<endpoint>"   in the abstract namespace: no file, gone
//!      `--> one SOCK_SEQPACKET connection per link    with its process
//! ```
//!
//! Nothing here blocks, whatever the peer does: descriptors from a peer are never written to, and a
//! wake-up is a `send` that is skipped when the socket is full (then the sleeper has not read
//! earlier wake-ups either).
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

/// The name at which an endpoint listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) port_base: u16,
    pub(super) board: u32,
    pub(super) endpoint: u32,
}

/// A listening or connected socket.
#[derive(Debug)]
pub(super) struct Socket(CloseOnForkFd);

/// The result of reading a socket.
#[derive(Debug)]
pub(super) enum Received {
    /// Nothing yet.
    Nothing,
    /// The peer is gone.
    HangUp,
    /// A message of this many bytes, and the descriptor that came with it.
    Message(usize, Option<CloseOnForkFd>),
    /// A message of this many bytes. A descriptor came with it, and this process has no room for one
    /// more.
    CutOff(usize),
}

/// A short message, which came without a descriptor if it is whole.
#[derive(Debug)]
pub(super) struct Short {
    bytes: [u8; MESSAGE_LEN],
    len: usize,
    pub(super) is_whole: bool,
}

impl Short {
    /// Empty when the peer is gone.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl Socket {
    /// Listens at `name`. `AddrInUse` when it is taken.
    pub(super) fn listen(name: Name) -> io::Result<Self> {
        let socket = Self::new()?;
        bind(socket.raw(), &name.address()?)?;
        // What is accepted from it does the same from its first message on.
        socket.ask_users(true)?;
        socket.listen_as_now()?;
        Ok(socket)
    }

    /// Listens, or continues to: the listener's user is from now on the one that this process is.
    pub(super) fn listen_as_now(&self) -> io::Result<()> {
        Ok(listen(&self.0, Backlog::new(BACKLOG)?)?)
    }

    /// Whether [`Socket::receive_from`] gets the senders' users. Where it does, nothing else receives.
    pub(super) fn ask_users(&self, wanted: bool) -> io::Result<()> {
        Ok(setsockopt(&self.0, PassCred, &wanted)?)
    }

    /// A socket to connect with.
    pub(super) fn new() -> io::Result<Self> {
        let open = || socket(AddressFamily::Unix, SockType::SeqPacket, FLAGS, None);
        Ok(Self(CloseOnFork::open(open)?))
    }

    /// Connects to the endpoint at `name`. `ConnectionRefused`: none in our network namespace;
    /// `WouldBlock`: its backlog is full, try again.
    pub(super) fn connect(&self, name: Name) -> io::Result<()> {
        Ok(connect(self.raw(), &name.address()?)?)
    }

    /// The next connection, or `WouldBlock`.
    pub(super) fn accept(&self) -> io::Result<Self> {
        let accepted = CloseOnFork::open(|| {
            let fd = accept4(self.raw(), FLAGS)?;
            // SAFETY: `fd` is a fresh descriptor, not owned elsewhere.
            Ok::<_, Errno>(unsafe { OwnedFd::from_raw_fd(fd) })
        });
        Ok(Self(accepted?))
    }

    /// Sends one message, with a descriptor if one is given. All of it or nothing, as such sockets do.
    pub(super) fn send(&self, message: &[u8], fd: Option<&OwnedFd>) -> io::Result<()> {
        if let Some(fd) = fd {
            return self.send_with(message, ControlMessage::ScmRights(&[fd.as_raw_fd()]));
        }
        let _off = CancellationDisabled::new();
        send(self.raw(), message, NOW)?;
        Ok(())
    }

    /// Sends one message in the name of `user`. Fails if this process is not that user, be it really,
    /// effectively or as its saved one, and may not become it.
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

    /// Wakes the peer. A full socket means that it has been woken already; a broken one is
    /// noticed elsewhere.
    pub(super) fn ring(&self) {
        let _off = CancellationDisabled::new();
        let _ = send(self.raw(), b"!", NOW);
    }

    /// Reads several short messages, for a link on which only wake-ups and control messages come. A
    /// longer message is cut off and reported. (Not inlined: its arrays are not on the stack when the messages are
    /// handled.)
    #[inline(never)]
    pub(super) fn receive_short(&self) -> io::Result<SmallVec<[Short; BATCH]>> {
        let mut bytes = [[0; MESSAGE_LEN]; BATCH];
        let mut parts = bytes.each_mut().map(|bytes| part(bytes));
        let mut headers = parts.each_mut().map(|part| libc::mmsghdr {
            msg_hdr: header(part),
            msg_len: 0,
        });
        let (at, most, now) = (headers.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT);
        // libc, as nix's allocates what it returns.
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

    /// Hangs up, also when a child process has inherited the socket.
    pub(super) fn shut_down(&self) {
        let _ = shutdown(self.raw(), Shutdown::Both);
    }

    /// The next message. (That descriptors were sent and none has come means that there is no room for
    /// them: of too many for `Control` the first ones come.) At most one descriptor is kept, and only when it came alone; the others
    /// are closed.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        Ok(self.receive_from(into)?.0)
    }

    /// Receives as [`Self::receive`] does, and returns the sender's user where that is asked for ([`Socket::ask_users`]): the
    /// one in whose name the message was sent, or else the sender's real one.
    pub(super) fn receive_from(&self, into: &mut [u8]) -> io::Result<(Received, Option<u32>)> {
        let mut part = part(into);
        let mut control = Control::new();
        let mut header = header(&mut part);
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let mut no_fork = no_fork();
        // libc, as nix's gives out no descriptor of a message that was cut off: it would stay open.
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

    /// The user at the other end of a connection when it connected, or listened; the listener's. One
    /// that the kernel cannot name is the overflow user.
    pub(super) fn user(&self) -> u32 {
        // Not connected: the kernel reports that the peer is gone.
        match getsockopt(&self.0, PeerCredentials) {
            Ok(is) if is.uid() != u32::MAX => is.uid(),
            _ => OVERFLOW_ID,
        }
    }

    /// For `epoll`.
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

/// A message that is received into one part.
fn header(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: plain integers and pointers, for which all zeroes is a value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (part, 1);
    header
}

/// True for errors that say "try again", not "it is over".
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// True when descriptors or memory have run out.
pub(super) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::ENOBUFS
                | libc::ENOSPC
                // Too many descriptors in messages that are not received yet.
                | libc::ETOOMANYREFS
        )
    )
}

/// Room for what comes with one message: a user, and more descriptors than we want, so that they can be
/// counted.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; 64]);

impl Control {
    fn new() -> Self {
        Self([MaybeUninit::zeroed(); 64])
    }
}

/// Short messages received in one go.
pub(super) const BATCH: usize = 32;

/// Flags of every socket.
const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);

/// Flags of everything that is sent.
const NOW: MsgFlags = MsgFlags::MSG_DONTWAIT.union(MsgFlags::MSG_NOSIGNAL);

/// The kernel's overflow user and group, for those without a number in this namespace.
const OVERFLOW_ID: u32 = 65534;

/// Connections the kernel keeps until we accept them. The system's own limit may be lower.
const BACKLOG: i32 = 1024;
