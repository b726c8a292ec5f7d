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
//! Not here: rings.

use super::handshake::MESSAGE_LEN;
use mx_port_base::cancellation::Off;
use mx_port_base::close_on_fork::{CloseOnFork, CloseOnForkFd, no_fork};
use smallvec::SmallVec;
use std::io;
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
        let (address, len) = name.address();
        // SAFETY: `address` is valid for `len` bytes for the time of the call.
        check(unsafe { libc::bind(socket.raw(), (&raw const address).cast(), len) })?;
        // What is accepted from it does the same from its first message on.
        socket.ask_users(true)?;
        socket.listen_as_now()?;
        Ok(socket)
    }

    /// Listens, or continues to: the listener's user is from now on the one that this process is.
    pub(super) fn listen_as_now(&self) -> io::Result<()> {
        // SAFETY: plain system call on a descriptor we own.
        check(unsafe { libc::listen(self.raw(), BACKLOG) })?;
        Ok(())
    }

    /// Whether [`Socket::receive_from`] gets the senders' users. Where it does, nothing else receives.
    pub(super) fn ask_users(&self, wanted: bool) -> io::Result<()> {
        let wanted = i32::from(wanted);
        // SAFETY: `wanted` is an `int` and lives for the time of the call.
        check(unsafe {
            libc::setsockopt(
                self.raw(),
                libc::SOL_SOCKET,
                libc::SO_PASSCRED,
                (&raw const wanted).cast(),
                size_of::<i32>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// A socket to connect with.
    pub(super) fn new() -> io::Result<Self> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = CloseOnFork::open(|| {
            // SAFETY: plain system call.
            let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
            // SAFETY: `fd` is a fresh descriptor, not owned elsewhere.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
        });
        Ok(Self(fd?))
    }

    /// Connects to the endpoint at `name`. `ConnectionRefused`: none in our network namespace;
    /// `WouldBlock`: its backlog is full, try again.
    pub(super) fn connect(&self, name: Name) -> io::Result<()> {
        let (address, len) = name.address();
        // SAFETY: `address` is valid for `len` bytes for the time of the call.
        check(unsafe { libc::connect(self.raw(), (&raw const address).cast(), len) })?;
        Ok(())
    }

    /// The next connection, or `WouldBlock`.
    pub(super) fn accept(&self) -> io::Result<Self> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let nothing = std::ptr::null_mut();
        let fd = CloseOnFork::open(|| {
            // SAFETY: null address and length are allowed: its address says nothing.
            let fd = check(unsafe { libc::accept4(self.raw(), nothing, nothing.cast(), flags) })?;
            // SAFETY: `fd` is a fresh descriptor, not owned elsewhere.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
        });
        Ok(Self(fd?))
    }

    /// Sends one message, with a descriptor if one is given.
    pub(super) fn send(&self, message: &[u8], fd: Option<&OwnedFd>) -> io::Result<()> {
        let fd = fd.map(|fd| fd.as_raw_fd().to_ne_bytes());
        let with = fd.as_ref().map(|fd| (libc::SCM_RIGHTS, fd.as_slice()));
        self.send_with(message, with)
    }

    /// Sends one message in the name of `user`. Fails if this process is not that user, be it really,
    /// effectively or as its saved one, and may not become it.
    pub(super) fn send_as(&self, user: u32, message: &[u8]) -> io::Result<()> {
        // SAFETY: plain system call.
        let group = unsafe { libc::getegid() };
        // `struct ucred`.
        let said = [std::process::id(), user, group].map(u32::to_ne_bytes);
        self.send_with(message, Some((libc::SCM_CREDENTIALS, said.as_flattened())))
    }

    fn send_with(&self, message: &[u8], with: Option<(i32, &[u8])>) -> io::Result<()> {
        let mut iov = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        let mut control = Control::new();
        // SAFETY: `msghdr` is plain integers and pointers, for which all zeroes is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        if let Some((kind, bytes)) = with {
            let len = bytes.len() as u32;
            header.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: arithmetic only.
            header.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as _;
            debug_assert!(header.msg_controllen as usize <= size_of::<Control>());
            // SAFETY: `control` has room for one header and the most that comes with a message,
            // credentials. So the first header is there and CMSG_DATA lies behind it, inside.
            unsafe {
                let cmsg = libc::CMSG_FIRSTHDR(&raw const header);
                (*cmsg).cmsg_level = libc::SOL_SOCKET;
                (*cmsg).cmsg_type = kind;
                (*cmsg).cmsg_len = libc::CMSG_LEN(len) as _;
                let data = libc::CMSG_DATA(cmsg);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
            }
        }
        let _off = Off::new();
        // SAFETY: `header` points to `iov`, `message` and `control`, which live until here.
        let sent = unsafe {
            libc::sendmsg(
                self.raw(),
                &raw const header,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        match sent {
            -1 => Err(io::Error::last_os_error()),
            sent if sent as usize == message.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Wakes the peer. A full socket means that it has been woken already; a broken one is
    /// noticed elsewhere.
    pub(super) fn ring(&self) {
        let _off = Off::new();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: one byte of a static.
        unsafe { libc::send(self.raw(), c"!".as_ptr().cast(), 1, flags) };
    }

    /// Reads several short messages, for a link on which only wake-ups and control messages come. A
    /// longer message is cut off and reported. (Not inlined: its arrays are not on the stack when the messages are
    /// handled.)
    #[inline(never)]
    pub(super) fn receive_short(&self) -> io::Result<SmallVec<[Short; BATCH]>> {
        // SAFETY: plain integers and pointers, for which all zeroes is a value.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut bytes = [[0; MESSAGE_LEN]; BATCH];
        let mut parts = bytes.each_mut().map(|bytes| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        });
        for (header, part) in headers.iter_mut().zip(&mut parts) {
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the headers point to `parts` and those to `bytes`, which live until here.
        let got = check(unsafe {
            libc::recvmmsg(
                self.raw(),
                headers.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        })?;
        let each = headers.iter().zip(bytes).take(got as usize);
        Ok(each
            .map(|(header, bytes)| Short {
                bytes,
                len: header.msg_len as usize,
                is_whole: header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0,
            })
            .collect())
    }

    /// Hangs up, also when a child process has inherited the socket.
    pub(super) fn shut_down(&self) {
        // SAFETY: plain system call on a descriptor we own.
        unsafe { libc::shutdown(self.raw(), libc::SHUT_RDWR) };
    }

    /// The next message. (That descriptors were sent and none has come means that there is no room for
    /// them: of too many for `Control` the first ones come.) At most one descriptor is kept, and only when it came alone; the others
    /// are closed.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        Ok(self.receive_from(into)?.0)
    }

    /// The same with the sender's user, where that is asked for ([`Socket::ask_users`]): the one in whose
    /// name it was sent, or else the sender's real one.
    pub(super) fn receive_from(&self, into: &mut [u8]) -> io::Result<(Received, Option<u32>)> {
        let mut iov = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let mut control = Control::new();
        // SAFETY: `msghdr` is plain integers and pointers, for which all zeroes is a value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        let mut no_fork = no_fork();
        // SAFETY: `header` points to `iov`, `into` and `control`, which live until here.
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
        let mut is = libc::ucred {
            pid: 0,
            uid: OVERFLOW_ID,
            gid: OVERFLOW_ID,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `is` is valid for `len` bytes, which is what the kernel writes at most.
        let got = unsafe {
            let is = (&raw mut is).cast();
            libc::getsockopt(
                self.raw(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                is,
                &raw mut len,
            )
        };
        // Not connected: the kernel reports that the peer is gone.
        if got == 0 && is.uid != u32::MAX {
            is.uid
        } else {
            OVERFLOW_ID
        }
    }

    /// For `epoll`.
    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Name {
    fn address(self) -> (libc::sockaddr_un, libc::socklen_t) {
        // SAFETY: `sockaddr_un` is plain integers, for which all zeroes is a value.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let text = format!("\0mx-{}-{}-{}", self.port_base, self.board, self.endpoint);
        // At most 32 of the 108 bytes there are.
        for (to, from) in address.sun_path.iter_mut().zip(text.as_bytes()) {
            *to = *from as libc::c_char;
        }
        let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + text.len();
        (address, len as libc::socklen_t)
    }
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

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
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

/// The kernel's overflow user and group, for those without a number in this namespace.
const OVERFLOW_ID: u32 = 65534;

/// Connections the kernel keeps until we accept them. The system's own limit may be lower.
const BACKLOG: i32 = 1024;
