//! Sockets of providers over IP, which a child of `fork` closes.
//!
//! ```text
//!   fi_getname, fi_av_insert ---> names, own and of peers
//!   child of fork: /proc/self/fd, of each socket  its own name is one of ours        --> closed
//!                                                 its peer's name is one of a peer's
//! ```
//!
//! libfabric opens them, when it likes and without telling. Their names are known: an endpoint listens at
//! the address that `fi_getname` gives, and connects to addresses of its vector. What else it has, such as
//! epoll instances and pairs of sockets, cannot be seen from outside the process. Providers for hardware have
//! descriptors of devices, which are not found here (docs/fabrics.md).
//!
//! Owns: the names.
//! Cost: a fork costs the child two system calls for each of its descriptors, once there has been a name.

use mx_port_base::fork::ForkLock;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem;

/// An address, IPv4 as IPv6 does it, and a port.
type Name = ([u8; 16], u16);

/// Names of this process's fabrics, with the number of users of each.
pub(super) struct Names {
    own: BTreeMap<Name, usize>,
    peers: BTreeMap<Name, usize>,
}

static NAMES: ForkLock<Names> = ForkLock::inherited(
    Names {
        own: BTreeMap::new(),
        peers: BTreeMap::new(),
    },
    Names::close_all,
);

/// A name that is known while this exists.
#[derive(Debug)]
pub(super) struct Known {
    /// `None`: an address of another kind than IP's.
    name: Option<Name>,
    of: fn(&mut Names) -> &mut BTreeMap<Name, usize>,
}

impl Known {
    /// That of an endpoint of ours, with the address that `fi_getname` gave.
    pub(super) fn own(address: &[u8]) -> Self {
        Self::new(address, |names| &mut names.own)
    }

    /// That of a peer, with an address that is in a vector.
    pub(super) fn peer(address: &[u8]) -> Self {
        Self::new(address, |names| &mut names.peers)
    }

    fn new(address: &[u8], of: fn(&mut Names) -> &mut BTreeMap<Name, usize>) -> Self {
        let name = name_of(address);
        if let Some(name) = name {
            *of(&mut NAMES.lock()).entry(name).or_default() += 1;
        }
        Self { name, of }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let Some(name) = self.name else { return };
        let mut names = NAMES.lock();
        let names = (self.of)(&mut names);
        if let Some(users) = names.get_mut(&name) {
            *users -= 1;
            if *users == 0 {
                names.remove(&name);
            }
        }
    }
}

impl Names {
    /// In a child of fork: only system calls, and memory that is there. The names are the parent's; they
    /// stay, as what has them is never dropped here.
    fn close_all(&mut self) {
        if !self.own.is_empty() {
            each_descriptor(|fd| {
                if self.has(fd) {
                    // SAFETY: a descriptor of libfabric's that nothing in this process uses.
                    unsafe { libc::close(fd) };
                }
            });
        }
    }

    fn has(&self, fd: i32) -> bool {
        let own = name_by(fd, libc::getsockname);
        let listens = own.is_some_and(|(address, port)| {
            self.own.contains_key(&(address, port))
                || (is_unspecified(&address) && self.own.keys().any(|(_, own)| *own == port))
        });
        let connects = || {
            let peer = name_by(fd, libc::getpeername);
            peer.is_some_and(|peer| self.peers.contains_key(&peer))
        };
        listens || (own.is_some() && connects())
    }
}

/// The name in a socket address.
fn name_of(address: &[u8]) -> Option<Name> {
    let family = i32::from(u16::from_ne_bytes(*address.first_chunk()?));
    let port = u16::from_be_bytes(address.get(2..4)?.try_into().ok()?);
    let mut bytes = [0; 16];
    match family {
        libc::AF_INET => {
            bytes[10..12].copy_from_slice(&[0xff; 2]);
            bytes[12..].copy_from_slice(address.get(4..8)?);
        }
        libc::AF_INET6 => bytes.copy_from_slice(address.get(8..24)?),
        _ => return None,
    }
    (port != 0).then_some((bytes, port))
}

fn is_unspecified(address: &[u8; 16]) -> bool {
    let v4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
    *address == [0; 16] || *address == v4
}

type Ask = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

/// A name that the kernel gives for a descriptor, if it is a socket.
fn name_by(fd: i32, ask: Ask) -> Option<Name> {
    let mut room = [0_u64; 16];
    let mut len = size_of_val(&room) as libc::socklen_t;
    // SAFETY: `room` is writable for `len` bytes, and aligned as a socket address has to be.
    let result = unsafe { ask(fd, room.as_mut_ptr().cast(), &raw mut len) };
    if result != 0 {
        return None;
    }
    // SAFETY: the bytes of `room`, which may be anything.
    let bytes: [u8; 128] = unsafe { mem::transmute(room) };
    name_of(bytes.get(..len as usize)?)
}

/// Calls `f` with every descriptor of this process, without memory of the C library's.
fn each_descriptor(mut f: impl FnMut(i32)) {
    const PATH: &CStr = c"/proc/self/fd";
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let list = unsafe { libc::open(PATH.as_ptr(), flags) };
    if list < 0 {
        return;
    }
    let mut room = [0_u64; 256];
    loop {
        // SAFETY: `room` is writable for so many bytes.
        let got = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                list,
                room.as_mut_ptr(),
                size_of_val(&room),
            )
        };
        // SAFETY: the bytes of `room`, which may be anything.
        let bytes =
            unsafe { std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), size_of_val(&room)) };
        let Some(mut rest) = usize::try_from(got).ok().and_then(|got| bytes.get(..got)) else {
            break;
        };
        if rest.is_empty() {
            break;
        }
        while let Some(entry) = Entry::first(rest) {
            if let Some(fd) = entry.number().filter(|fd| *fd != list) {
                f(fd);
            }
            rest = rest.get(entry.len..).unwrap_or_default();
        }
    }
    // SAFETY: from right above.
    unsafe { libc::close(list) };
}

/// One entry of a directory, as `getdents64` gives it.
struct Entry<'a> {
    len: usize,
    name: &'a [u8],
}

impl<'a> Entry<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let len = bytes.get(16..18)?.try_into().ok().map(u16::from_ne_bytes)?;
        let len = usize::from(len);
        let name = bytes.get(19..len)?.split(|byte| *byte == 0).next()?;
        Some(Self { len, name })
    }

    fn number(&self) -> Option<i32> {
        std::str::from_utf8(self.name).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn bytes(address: SocketAddr) -> Vec<u8> {
        let mut bytes = match address {
            SocketAddr::V4(v4) => [[0; 4], v4.ip().octets()].concat(),
            SocketAddr::V6(v6) => [&[0; 8][..], &v6.ip().octets()].concat(),
        };
        let family = match address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        bytes.resize(28, 0);
        bytes
    }

    fn is_open(fd: &impl AsRawFd) -> bool {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_child_has_no_socket_with_a_known_name_and_every_other_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = |listener: &TcpListener| listener.local_addr().unwrap();
        let caller = TcpStream::connect(at(&listener)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let called = TcpStream::connect(at(&peer)).unwrap();
        let to_other = TcpStream::connect(at(&other)).unwrap();
        let own = [
            Known::own(&bytes(at(&listener))),
            Known::own(&bytes(SocketAddr::new(
                "127.0.0.1".parse().unwrap(),
                at(&everywhere).port(),
            ))),
        ];
        let peers = Known::peer(&bytes(at(&peer)));
        // SAFETY: the child looks at descriptors and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let gone = [&listener, &everywhere].iter().all(|fd| !is_open(*fd))
                && [&accepted, &called].iter().all(|fd| !is_open(*fd));
            let there = [&peer, &other].iter().all(|fd| is_open(*fd))
                && [&caller, &to_other].iter().all(|fd| is_open(*fd));
            let code = i32::from(!gone) + 2 * i32::from(!there);
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status >> 8, 0);
        let name = peers.name.unwrap();
        drop((own, peers));
        assert!(!NAMES.lock().peers.contains_key(&name));
        assert!(is_open(&listener) && is_open(&called));
    }

    #[test]
    fn only_addresses_of_ip_are_names() {
        assert_eq!(name_of(b""), None);
        assert_eq!(name_of(b"fi_shm://1234567890123456789"), None);
        assert_eq!(name_of(&bytes("127.0.0.1:0".parse().unwrap())), None);
        let v4 = name_of(&bytes("127.0.0.1:7".parse().unwrap()));
        assert_eq!(v4, name_of(&bytes("[::ffff:127.0.0.1]:7".parse().unwrap())));
        assert_eq!(v4.unwrap().1, 7);
    }
}
