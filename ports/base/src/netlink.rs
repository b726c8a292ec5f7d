//! Kinds of the kernel's network interfaces, and notification of changes (rtnetlink).
//!
//! ```text
//!   kinds:   RTM_GETLINK ---> kernel ---> name, kind, kind of its master, for each interface
//!   Watch:   kernel ---> a message for each change ---> readable, changed
//! ```
//!
//! `getifaddrs` cannot tell a bridge from a card. The files below `/sys/class/net` can, but they show the network
//! namespace in which they were mounted, which may not be the caller's.
//!
//! Owns: the sockets, and the meaning of the messages; headers and lengths are netlink-packet-core's.
//! Out of scope: which interfaces are used.

use crate::close_on_fork::CloseOnForkFd;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NLMSG_ALIGNTO, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Driver kinds of an interface and its master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceKind {
    /// The interface's name.
    pub name: String,
    /// Driver kind, such as `bridge` or `veth`; empty for a card.
    pub kind: String,
    /// Driver kind of the interface that this one is a port of; empty if there is none.
    pub master: String,
}

/// Size of the receive buffer in bytes. The kernel's messages of a dump are at most this long (32 KiB).
const ANSWER: usize = 32 << 10;

/// Bytes of a netlink message header.
const HEADER: usize = 16;

/// Bytes of the `ifinfomsg` before an interface's attributes.
const LINK: usize = 16;

/// Attribute of `linux/if_link.h` that `libc` lacks.
const IFLA_INFO_SLAVE_KIND: u16 = 4;

/// Returns the kinds of all interfaces in this thread's network namespace, in the kernel's order.
pub fn kinds() -> io::Result<Vec<InterfaceKind>> {
    // Closed below, so a child of fork cannot inherit it for long: no need to list it.
    let fd = open(0)?;
    send(fd.as_raw_fd(), &question(), MsgFlags::empty())?;
    let mut buffer = vec![0; ANSWER];
    let mut kinds = Vec::new();
    loop {
        // The kernel answers within this thread's calls, so there is nothing to wait for.
        let len = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT)?;
        if !take_in(&buffer[..len], &mut kinds)? {
            return Ok(kinds);
        }
    }
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let route = SockProtocol::NetlinkRoute;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, route)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(fd)
}

/// Builds a request for all interfaces.
fn question() -> Vec<u8> {
    let mut bytes = vec![0; HEADER + LINK];
    let mut message = NetlinkBuffer::new(&mut bytes);
    message.set_length((HEADER + LINK) as u32);
    message.set_message_type(libc::RTM_GETLINK);
    message.set_flags(NLM_F_REQUEST | NLM_F_DUMP);
    bytes
}

/// Appends the interfaces of one answer. Returns false at the end of the dump.
fn take_in(mut answer: &[u8], kinds: &mut Vec<InterfaceKind>) -> io::Result<bool> {
    while !answer.is_empty() {
        let message = NetlinkBuffer::new_checked(answer).map_err(io::Error::other)?;
        let content = message.payload();
        match message.message_type() {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let code = content.first_chunk();
                let code = code.map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(-code));
            }
            libc::RTM_NEWLINK => kinds.push(kind_of(content.get(LINK..).unwrap_or_default())),
            _ => {}
        }
        let end = (message.length() as usize).next_multiple_of(NLMSG_ALIGNTO.into());
        answer = answer.get(end..).unwrap_or_default();
    }
    Ok(true)
}

fn kind_of(bytes: &[u8]) -> InterfaceKind {
    let text = |value: &[u8]| {
        let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let mut of = InterfaceKind {
        name: String::new(),
        kind: String::new(),
        master: String::new(),
    };
    for attribute in NlasIterator::new(bytes).flatten() {
        match attribute.kind() {
            libc::IFLA_IFNAME => of.name = text(attribute.value()),
            libc::IFLA_LINKINFO => {
                for info in NlasIterator::new(attribute.value()).flatten() {
                    match info.kind() {
                        libc::IFLA_INFO_KIND => of.kind = text(info.value()),
                        IFLA_INFO_SLAVE_KIND => of.master = text(info.value()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    of
}

/// Interval in which a change is assumed where the kernel sends no notifications.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Subscription to changes of interfaces and addresses in the network namespace of the thread that created it.
///
/// Where the kernel sends no notifications, a change is assumed once a second. A child of fork creates its own
/// subscription and discards its parent's.
///
/// Cost: a system call per query; no message while nothing changes.
#[derive(Debug)]
pub struct Watch {
    /// Subscribed socket; `None` if notifications are unavailable.
    fd: Option<CloseOnForkFd>,
    /// True once the subscription has failed.
    deaf: bool,
    looked: Option<Instant>,
}

impl Watch {
    /// Subscribes to changes from now on. If the kernel refuses, [`Watch::changed`] returns true once a second.
    pub fn new() -> Self {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let fd = CloseOnForkFd::open(|| open(groups as u32));
        let fd = fd.inspect_err(|error| {
            log::debug!("cannot subscribe to interface changes, polling once a second: {error}");
        });
        Self {
            fd: fd.ok(),
            deaf: false,
            looked: None,
        }
    }

    /// Returns the descriptor that becomes readable on a change; `None` without a working subscription.
    pub fn raw(&self) -> Option<RawFd> {
        let fd = self.fd.as_ref().filter(|_| !self.deaf);
        fd.map(AsRawFd::as_raw_fd)
    }

    /// Takes all pending notifications, and returns true if anything may have changed since the last call; always true
    /// at the first. Without a subscription, returns true once a second.
    pub fn changed(&mut self) -> bool {
        let first = self.looked.is_none();
        let Some(fd) = self.raw() else {
            return self.is_time(Instant::now());
        };
        if first {
            self.looked = Some(Instant::now());
        }
        let mut any = first;
        // Only the fact of a change matters, so the rest of each message is dropped.
        let mut start = [0; HEADER];
        loop {
            match recv(fd, &mut start, MsgFlags::MSG_DONTWAIT) {
                // A change, or more of them than the socket's buffer holds.
                Ok(1..) | Err(Errno::ENOBUFS) => any = true,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return any,
                // The program has closed the descriptor, and may use the number for another file.
                Ok(0) | Err(Errno::EBADF | Errno::ENOTSOCK) => {
                    let _ = self.fd.take().map(ManuallyDrop::new);
                    return true;
                }
                Err(error) => {
                    log::debug!("lost the subscription to interface changes: {error}");
                    self.deaf = true;
                    return true;
                }
            }
        }
    }

    /// Closes the descriptor of a failed subscription, which would keep waking the event loop. Takes a lock.
    pub fn let_go(&mut self) {
        if self.deaf {
            self.fd = None;
        }
    }

    fn is_time(&mut self, now: Instant) -> bool {
        let last = self.looked;
        let is = last.is_none_or(|last| now.saturating_duration_since(last) >= LOOK_EVERY);
        if is {
            self.looked = Some(now);
        }
        is
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::Epoll;

    #[test]
    fn the_loopback_is_a_card_of_no_kind() {
        let kinds = kinds().unwrap();
        let lo = kinds.iter().find(|kind| kind.name == "lo").unwrap();
        assert_eq!((lo.kind.as_str(), lo.master.as_str()), ("", ""));
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = (4 + value.len()) as u16;
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, rest: &[u8]) -> Vec<u8> {
        let len = (HEADER + rest.len()) as u32;
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(rest);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn interface(name: &str, kind: &str, master: &str) -> Vec<u8> {
        let text = |text: &str| [text.as_bytes(), &[0]].concat();
        let info = [
            attribute(libc::IFLA_INFO_KIND, &text(kind)),
            attribute(IFLA_INFO_SLAVE_KIND, &text(master)),
        ];
        let nested = libc::IFLA_LINKINFO | libc::NLA_F_NESTED as u16;
        let rest = [
            vec![0; LINK],
            attribute(libc::IFLA_IFNAME, &text(name)),
            attribute(200, b"other"),
            attribute(nested, &info.concat()),
        ];
        message(libc::RTM_NEWLINK, &rest.concat())
    }

    #[test]
    fn netlink_answer_yields_kinds_until_done_or_malformed() {
        let mut kinds = Vec::new();
        let first = [
            interface("docker0", "bridge", ""),
            interface("v", "veth", "bridge"),
        ];
        assert!(take_in(&first.concat(), &mut kinds).unwrap());
        let done = message(libc::NLMSG_DONE as u16, &[0; 4]);
        let last = [interface("eth0", "", ""), done].concat();
        assert!(!take_in(&last, &mut kinds).unwrap());
        let found: Vec<_> = kinds
            .iter()
            .map(|of| (of.name.as_str(), of.kind.as_str(), of.master.as_str()))
            .collect();
        let expected = [
            ("docker0", "bridge", ""),
            ("v", "veth", "bridge"),
            ("eth0", "", ""),
        ];
        assert_eq!(found, expected);
        let refused = message(libc::NLMSG_ERROR as u16, &(-libc::EPERM).to_ne_bytes());
        let error = take_in(&refused, &mut kinds).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        // A truncated message gives an error or a shorter list.
        for len in 1..last.len() {
            let _ = take_in(&last[..len], &mut Vec::new());
        }
        assert!(take_in(&last[..7], &mut kinds).is_err());
    }

    #[test]
    fn without_messages_a_change_is_possible_once_a_second() {
        let now = Instant::now();
        let mut watch = Watch {
            fd: None,
            deaf: false,
            looked: None,
        };
        for (after, expected) in [
            (Duration::ZERO, true),
            (LOOK_EVERY / 2, false),
            (LOOK_EVERY, true),
            (LOOK_EVERY, false),
        ] {
            assert_eq!(watch.is_time(now + after), expected, "{after:?}");
        }
    }

    fn is_ready(nest: &Epoll) -> bool {
        nest.readable() != 0
    }

    #[test]
    fn one_that_hears_no_more_wakes_no_event_loop() {
        // An unconnected socket: always ready, and reading it fails.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let open = || socket(AddressFamily::Inet, SockType::Stream, flags, None);
        let mut watch = Watch {
            fd: Some(CloseOnForkFd::open(open).unwrap()),
            deaf: false,
            looked: None,
        };
        let nest = Epoll::new().unwrap();
        nest.join(3, watch.raw()).unwrap();
        assert!(is_ready(&nest));
        assert!(watch.changed(), "something may have been missed");
        watch.let_go();
        assert!(!is_ready(&nest));
        assert_eq!(watch.raw(), None);
    }

    #[test]
    fn a_descriptor_of_another_is_left_alone() {
        // Files a program may have after closing unknown descriptors: no socket, and a socket at its end.
        let null = std::fs::File::open("/dev/null").unwrap();
        let (end, other) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(other);
        for theirs in [OwnedFd::from(null), OwnedFd::from(end)] {
            let number = theirs.as_raw_fd();
            let mut watch = Watch {
                fd: Some(CloseOnForkFd::open(|| Ok::<_, io::Error>(theirs)).unwrap()),
                deaf: false,
                looked: None,
            };
            assert!(watch.changed());
            watch.let_go();
            assert_eq!(watch.raw(), None);
            // SAFETY: no pointers.
            assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0);
        }
    }

    #[test]
    fn what_has_changed_is_told_once() {
        let mut watch = Watch::new();
        assert!(watch.raw().is_some());
        assert!(watch.changed(), "before it was made");
        // Other processes may change the interfaces while the test runs, but not for long.
        let quiet = (0..100).any(|_| !watch.changed());
        assert!(quiet);
    }
}
