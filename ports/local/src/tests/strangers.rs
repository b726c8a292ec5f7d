//! Peers that violate the protocol.

use super::cycles::Random;
use super::limit::TCP;
use super::{Event, Node, fresh_name, header, last_link, link_up};
use crate::handshake::{ControlMessage, MESSAGE_LEN};
use crate::layout::{BODY_MAX, CELL, CELL_TAIL_AT, Geometry};
use crate::socket::{Received, Socket};
use mx_port_base::sealed::Region;
use mx_proto::port::LinkControl;
use mx_proto::port::{BODY_LEN_AT, LinkDown, SendError};
use mx_proto::{Clock, Instant};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

/// Hand-made initiator.
pub(super) struct Rogue {
    pub(super) socket: Socket,
    pub(super) region: Region,
}

pub(super) const GEOMETRY: Geometry = Geometry::STANDARD;

pub(super) const HELLO: ControlMessage = ControlMessage::Hello {
    asymmetric: true,
    endpoint: 0,
};

impl Rogue {
    pub(super) fn connect(to: &mut Node) -> Self {
        let (region, fd) = Region::create(c"test", GEOMETRY.total()).unwrap();
        let socket = Socket::new().unwrap();
        socket.connect(to.name()).unwrap();
        socket.send(&HELLO.encode(), None).unwrap();
        let offer = ControlMessage::Offer(GEOMETRY);
        socket.send(&offer.encode(), Some(&fd)).unwrap();
        to.poll_until_idle();
        assert!(matches!(
            Self::hear(&socket),
            ControlMessage::Welcome { .. }
        ));
        assert_eq!(Self::hear(&socket), ControlMessage::Taken);
        Self { socket, region }
    }

    /// Returns the next control message on `socket`, skipping doorbells and packets.
    pub(super) fn hear(socket: &Socket) -> ControlMessage {
        let mut message = [0; 40_000];
        loop {
            match socket.receive(&mut message).unwrap() {
                Received::Message(MESSAGE_LEN, None) => {
                    return ControlMessage::decode(&message[..MESSAGE_LEN]).unwrap();
                }
                Received::Message(_, None) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.region.size());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the region, as just checked.
            unsafe { self.region.base().add(at + index).write_volatile(*byte) };
        }
    }

    /// Writes a packet with an empty body into cell `cell` of the first lap.
    pub(super) fn write_packet(&self, cell: usize) {
        let at = GEOMETRY.cells_at(0) + cell * CELL;
        self.write(at + 8, &header(0));
        self.write(at, &1u64.to_le_bytes());
    }
}

#[test]
fn impossible_tails_end_the_link() {
    let mut server = Node::new();
    let rogue = Rogue::connect(&mut server);
    rogue.write_packet(0);
    server.poll_until_idle();
    let from = server.first_link();
    server.take();
    rogue.write(GEOMETRY.head_at(1) + CELL_TAIL_AT, &u64::MAX.to_le_bytes());
    let outcome = (0..1000)
        .map(|_| server.send(from, b"x"))
        .find(Result::is_err);
    assert_eq!(outcome, Some(Err(SendError::Down)));
    server.poll_until_idle();
    assert_eq!(server.take(), [Event::Down(from, LinkDown::Protocol)]);
}

#[test]
fn random_scribbling_never_hurts_more_than_its_own_link() {
    let mut generator = Random(0x9e37_79b9_7f4a_7c15);
    let mut random = || generator.next();
    let mut server = Node::new();
    let mut good = Node::new();
    let link = link_up(&mut good, &mut server);
    let answer_on = server.first_link();
    let mut ended = 0;
    for _ in 0..200 {
        let rogue = Rogue::connect(&mut server);
        rogue.write_packet(0);
        server.poll_until_idle();
        let from = last_link(&server.take());
        for _ in 0..50 {
            // Mostly in the heads and the cells.
            let span = if random() % 4 == 0 {
                GEOMETRY.total()
            } else {
                GEOMETRY.data_at(0)
            };
            let at = (random() as usize % (span - 8)) & !7;
            let value = match random() % 4 {
                0 => random(),
                1 => (random() % 4) | ((random() % 40_000) << 32),
                2 => random() % 200,
                _ => u64::MAX - random() % 200,
            };
            rogue.write(at, &value.to_le_bytes());
            rogue.write_packet(random() as usize % 128);
            rogue.socket.ring();
            let _ = server.send(from, &[1; 300]);
            if server.port.arm() {
                server.port.disarm();
            }
            server.poll();
        }
        good.send(link, b"fine").unwrap();
        server.poll_until_idle();
        assert!(
            server
                .take()
                .contains(&Event::Packet(answer_on, b"fine".to_vec()))
        );
        drop(rogue);
        server.poll_until_idle();
        ended += server
            .take()
            .iter()
            .filter(|event| matches!(event, Event::Down(..)))
            .count();
    }
    assert!(ended > 0);
    // The last link's end may not have been noticed yet.
    for _ in 0..1000 {
        if server.port.link_count() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        server.poll_until_idle();
    }
    assert_eq!(server.port.link_count(), 1);
}

#[test]
fn scribbling_while_we_read_is_no_worse() {
    let mut server = Node::new();
    for round in 0..30u64 {
        let rogue = Rogue::connect(&mut server);
        rogue.write_packet(0);
        server.poll_until_idle();
        let from = server.first_link();
        let scribbler = std::thread::spawn(move || {
            let mut random = Random(round * 2 + 1);
            for _ in 0..20_000 {
                let seed = random.next();
                // Slightly wrong flags, lengths and headers of a few cells.
                let cell = (seed % 128) as usize;
                let at = GEOMETRY.cells_at(0) + cell * CELL;
                let len = seed >> 20 & 0xffff;
                rogue.write(at + 8 + BODY_LEN_AT, &(len as u32).to_le_bytes());
                rogue.write(at, &(1 | len << 32).to_le_bytes());
            }
        });
        while !scribbler.is_finished() {
            server.poll();
            let _ = server.send(from, &[1; 1000]);
            for event in server.take() {
                if let Event::Packet(_, body) = event {
                    assert!(body.len() <= BODY_MAX);
                }
            }
        }
        scribbler.join().unwrap();
        server.poll_until_idle();
        assert_eq!(server.port.link_count(), 0);
        server.take();
    }
}

/// Sends `message` with a descriptor as a stranger's first message; returns the socket.
fn say(to: &mut Node, message: &[u8], fd: Option<&OwnedFd>) -> Socket {
    let socket = Socket::new().unwrap();
    socket.connect(to.name()).unwrap();
    socket.send(message, fd).unwrap();
    to.poll_until_idle();
    socket
}

pub(super) fn sealed_memfd(len: usize) -> OwnedFd {
    let (_, fd) = Region::create(c"test", len).unwrap();
    fd.try_clone().unwrap()
}

#[test]
fn bad_handshakes_are_refused_and_their_descriptors_closed() {
    let good = HELLO.encode();
    let mut bad_magic = good;
    bad_magic[0] ^= 1;
    let out_of_place = ControlMessage::Taken.encode();
    let long = [good.as_slice(), &[0]].concat();
    let mut server = Node::new();
    let cases: [(&str, &[u8]); 5] = [
        ("magic", &bad_magic),
        ("out of place", &out_of_place),
        ("short", &good[..23]),
        ("long", &long),
        ("nonsense", b"GET / HTTP/1.1"),
    ];
    for (count, (what, message)) in cases.into_iter().enumerate() {
        let socket = say(&mut server, message, None);
        let mut answer = [0; MESSAGE_LEN];
        assert!(
            matches!(socket.receive(&mut answer), Ok(Received::HangUp)),
            "{what}"
        );
        assert_eq!(server.port.stats().refused, count as u64 + 1, "{what}");
        assert_eq!(server.port.link_count(), 0, "{what}");
    }
    // A descriptor where none belongs.
    let (pipe_read, pipe_write) = pipe();
    let socket = say(&mut server, &good, Some(&pipe_write));
    let mut answer = [0; MESSAGE_LEN];
    assert!(matches!(socket.receive(&mut answer), Ok(Received::HangUp)));
    assert_eq!(server.port.stats().refused, 6);
    // No memory, memory of another size, unsealed memory, a file.
    let small = sealed_memfd(4096);
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    for fd in [None, Some(&small), Some(&pipe_write), Some(&file)] {
        let socket = say(&mut server, &good, None);
        assert!(matches!(
            Rogue::hear(&socket),
            ControlMessage::Welcome { .. }
        ));
        socket
            .send(&ControlMessage::Offer(GEOMETRY).encode(), fd)
            .unwrap();
        server.poll_until_idle();
        assert!(matches!(socket.receive(&mut answer), Ok(Received::HangUp)));
    }
    drop(pipe_write);
    assert_ended(pipe_read);
    assert_eq!(server.port.stats().violations, 4);
    assert_eq!((server.port.link_count(), server.take()), (0, vec![]));
}

/// Hello of version 4, whose bytes never change.
const KEPT_HELLO: [u8; MESSAGE_LEN] = *b"mx-hello\x04\0\0\0\x01\0\0\0\x03\0\0\0\0\0\0\0";

#[test]
fn other_version_is_told_ours_and_version_4_is_accepted() {
    let mut server = Node::new();
    for (count, version) in (1..).zip([0, 3, 5, u32::MAX]) {
        let mut hello = KEPT_HELLO;
        hello[8..12].copy_from_slice(&version.to_le_bytes());
        let socket = say(&mut server, &hello, None);
        let mut answer = [0; MESSAGE_LEN];
        let heard = socket.receive(&mut answer);
        assert!(matches!(heard, Ok(Received::Message(MESSAGE_LEN, None))));
        assert_eq!(answer[..12], *b"mx-later\x04\0\0\0");
        assert!(matches!(socket.receive(&mut answer), Ok(Received::HangUp)));
        assert_eq!(server.port.stats().refused, count);
        assert_eq!(server.port.link_count(), 0);
    }
    let socket = say(&mut server, &KEPT_HELLO, None);
    let mut answer = [0; MESSAGE_LEN];
    let heard = socket.receive(&mut answer);
    assert!(matches!(heard, Ok(Received::Message(MESSAGE_LEN, None))));
    assert_eq!(answer[..12], *b"mx-welcm\x04\0\0\0");
    assert_eq!(server.port.link_count(), 1);
}

#[test]
fn more_descriptors_than_expected_are_closed_and_refused() {
    for count in [2usize, 5, 100] {
        let mut server = Node::new();
        let (pipe_read, pipe_write) = pipe();
        let socket = Socket::new().unwrap();
        socket.connect(server.name()).unwrap();
        send_with_copies(&socket, &HELLO.encode(), &pipe_write, count);
        server.poll_until_idle();
        assert_eq!(server.port.stats().refused, 1);
        drop(pipe_write);
        assert_ended(pipe_read);
    }
}

/// Checks that all copies of a pipe's write end are closed.
pub(super) fn assert_ended(pipe_read: OwnedFd) {
    let mut rest = Vec::new();
    std::fs::File::from(pipe_read)
        .read_to_end(&mut rest)
        .unwrap();
    assert_eq!(rest, b"");
}

pub(super) fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: `fds` is writable; the descriptors are fresh and not owned elsewhere.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

fn send_with_copies(socket: &Socket, message: &[u8], fd: &OwnedFd, count: usize) {
    use std::os::fd::AsRawFd;
    let bytes = count * size_of::<i32>();
    let mut control = vec![0u64; 128];
    let mut iov = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    // SAFETY: the header points to `iov` and `control`, which is large enough for 100 descriptors.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
        let cmsg = libc::CMSG_FIRSTHDR(&raw const header);
        (*cmsg).cmsg_level = libc::SOL_SOCKET;
        (*cmsg).cmsg_type = libc::SCM_RIGHTS;
        (*cmsg).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
        for at in 0..count {
            let slot = libc::CMSG_DATA(cmsg).cast::<i32>().add(at);
            slot.write_unaligned(fd.as_raw_fd());
        }
        let sent = libc::sendmsg(socket.raw(), &raw const header, 0);
        assert_eq!(
            sent,
            message.len() as isize,
            "{}",
            std::io::Error::last_os_error()
        );
    }
}

#[test]
fn a_silent_stranger_is_dropped_after_a_while() {
    let mut server = Node::new();
    let socket = Socket::new().unwrap();
    socket.connect(server.name()).unwrap();
    server.poll_until_idle();
    assert_eq!(server.port.link_count(), 1);
    assert_eq!(server.port.deadline(), Some(Instant(5_000_000_000)));
    server.clock.advance(Duration::from_millis(4999));
    server.poll_until_idle();
    assert_eq!(server.port.link_count(), 1);
    // The last check came late: the stranger's messages may be unread.
    server.clock.advance(Duration::from_millis(1));
    server.poll_until_idle();
    assert_eq!(
        (server.port.link_count(), server.port.deadline()),
        (1, Some(Instant(5_249_000_000)))
    );
    server.clock.advance(Duration::from_millis(249));
    server.poll_until_idle();
    assert_eq!(
        (server.port.link_count(), server.port.deadline()),
        (0, None)
    );
    assert_eq!(server.port.stats().refused, 1);
}

#[test]
fn many_silent_strangers_do_not_keep_others_out() {
    let mut server = Node::with_limit(70);
    let strangers: Vec<Socket> = (0..200)
        .map(|_| {
            let socket = Socket::new().unwrap();
            socket.connect(server.name()).unwrap();
            server.poll_until_idle();
            socket
        })
        .collect();
    assert_eq!(server.port.link_count(), 70);
    link_up(&mut Node::new(), &mut server);
    assert_eq!(server.bodies(), [b"hello"]);
    drop(strangers);
    server.poll_until_idle();
}

#[test]
fn anything_but_a_welcome_ends_the_link_or_falls_back() {
    let mut old = ControlMessage::Welcome { asymmetric: true }.encode();
    old[8] -= 1;
    let (later, denied) = (ControlMessage::Later(None), ControlMessage::Denied);
    let answers: [(&[u8], LinkDown); 7] = [
        (b"nonsense", LinkDown::Protocol),
        (&[0; 32], LinkDown::Protocol),
        (&[0; 100], LinkDown::Protocol),
        (&old, LinkDown::Protocol),
        (&later.encode(), LinkDown::Unreachable),
        (&denied.encode(), LinkDown::Denied),
        (&[], LinkDown::Refused),
    ];
    let each = answers
        .into_iter()
        .flat_map(|it| [(it, None), (it, Some(TCP))]);
    for ((answer, reason), instead) in each {
        let name = fresh_name();
        let listener = Socket::listen(name).unwrap();
        let mut a = Node::new();
        let link = a
            .port
            .connect_or(name.board, name.endpoint, instead, a.clock.now())
            .unwrap();
        let peer = listener.accept().unwrap();
        let mut hello = [0; MESSAGE_LEN];
        for memory in [false, true] {
            let heard = peer.receive(&mut hello);
            assert!(matches!(
                heard,
                Ok(Received::Message(MESSAGE_LEN, fd)) if fd.is_some() == memory
            ));
        }
        if !answer.is_empty() {
            peer.send(answer, None).unwrap();
        }
        drop(peer);
        a.poll_until_idle();
        let reason = instead.map_or(reason, LinkDown::Elsewhere);
        assert_eq!(a.take(), [Event::Down(link, reason)]);
        assert_eq!(a.port.link_count(), 0);
    }
}
