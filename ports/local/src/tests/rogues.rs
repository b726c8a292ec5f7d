//! Peers whose messages about memory and suspension no peer of ours sends.

use super::idle::{IDLE, Stage, send_through, stage};
use super::strangers::{GEOMETRY, HELLO, Rogue, assert_ended, pipe, sealed_memfd};
use super::{Event, Node, fresh_name, header, link_up};
use crate::handshake::{ControlMessage, MESSAGE_LEN};
use crate::layout::Geometry;
use crate::socket::{Received, Socket};
use mx_proto::port::{Close, LinkControl, LinkDown, SendError};
use mx_proto::{Clock, LinkId};
use std::os::fd::OwnedFd;

/// A server with a link to a rogue that the endpoint knows of.
fn with_rogue() -> (Node, Rogue, LinkId) {
    let mut server = Node::new();
    let rogue = Rogue::connect(&mut server);
    rogue.write_packet(0);
    server.poll_until_idle();
    let link = server.first_link();
    server.take();
    (server, rogue, link)
}

impl Rogue {
    /// Suspends the link, as a peer of ours would.
    fn suspend(&self, server: &mut Node, link: LinkId) {
        self.socket
            .send(&ControlMessage::Suspend(1).encode(), None)
            .unwrap();
        server.poll_until_idle();
        assert_eq!(stage(server, link), Stage::Plain);
        assert_eq!(Self::hear(&self.socket), ControlMessage::Suspend(0));
    }
}

fn offer_of(geometry: Geometry) -> [u8; MESSAGE_LEN] {
    ControlMessage::Offer(geometry).encode()
}

/// A packet as it comes over the socket.
fn packet(len: usize, said: usize) -> Vec<u8> {
    [header(said).as_slice(), &vec![7; len]].concat()
}

/// A message and its descriptor; the moments at which it is out of place.
type Case = (&'static str, Vec<u8>, Option<OwnedFd>, [bool; 3]);

#[test]
fn control_messages_out_of_place_fail_their_peer_and_no_other() {
    let offer = offer_of(GEOMETRY);
    let mut damaged = offer;
    damaged[17] ^= 0x40;
    let mut version = offer;
    version[8] = 9;
    let long = [offer.as_slice(), &[0]].concat();
    let memory = || Some(sealed_memfd(GEOMETRY.total()));
    let (_end, pipe_write) = pipe();
    let copy = || Some(pipe_write.try_clone().unwrap());
    let say = |control: ControlMessage| Vec::from(control.encode());
    let controls: Vec<Case> = vec![
        // Whether it is out of place while the link is up, while we suspend it, and when it has no rings.
        ("offer", offer.into(), memory(), [true, true, false]),
        ("offer without memory", offer.into(), None, [true; 3]),
        ("offer of a pipe", offer.into(), copy(), [true; 3]),
        (
            "offer, small",
            offer.into(),
            Some(sealed_memfd(4096)),
            [true; 3],
        ),
        ("offer, damaged", damaged.into(), memory(), [true; 3]),
        ("offer, version", version.into(), memory(), [true; 3]),
        ("offer, long", long, memory(), [true; 3]),
        ("hello", say(HELLO), None, [true; 3]),
        ("taken", say(ControlMessage::Taken), None, [true; 3]),
        ("later", say(ControlMessage::Later(None)), None, [true; 3]),
        (
            "suspend",
            say(ControlMessage::Suspend(1)),
            None,
            [false, false, true],
        ),
        (
            "suspend of more",
            say(ControlMessage::Suspend(2)),
            None,
            [true; 3],
        ),
        (
            "suspend of less",
            say(ControlMessage::Suspend(0)),
            None,
            [true; 3],
        ),
        (
            "suspend of all",
            say(ControlMessage::Suspend(u64::MAX)),
            None,
            [true; 3],
        ),
        (
            "suspend with memory",
            say(ControlMessage::Suspend(1)),
            memory(),
            [true; 3],
        ),
        ("bye", say(ControlMessage::Bye), None, [false; 3]),
        (
            "bye with memory",
            say(ControlMessage::Bye),
            memory(),
            [true; 3],
        ),
        ("packet", packet(100, 100), None, [true, true, false]),
        ("packet with memory", packet(100, 100), memory(), [true; 3]),
        ("packet, short", packet(99, 100), None, [true; 3]),
        ("packet, long", packet(101, 100), None, [true; 3]),
        (
            "packet, huge",
            packet(36 * 1024 + 1, 36 * 1024 + 1),
            None,
            [true; 3],
        ),
        (
            "packet, larger still",
            packet(50_000, 50_000),
            None,
            [true; 3],
        ),
        ("doorbell with memory", b"!".to_vec(), memory(), [true; 3]),
        ("nonsense", b"GET / HTTP/1.1".to_vec(), None, [true; 3]),
        ("zeroes", vec![0; MESSAGE_LEN], None, [true; 3]),
    ];
    let mut good = Node::new();
    for (what, control, fd, wrong) in &controls {
        for (moment, wrong) in wrong.iter().enumerate() {
            let (mut server, rogue, link) = with_rogue();
            let fine = link_up(&mut good, &mut server);
            server.take();
            good.take();
            match moment {
                0 => {}
                1 => {
                    while stage(&server, link) == Stage::Up {
                        server.clock.advance(IDLE / 4);
                        server.poll_until_idle();
                    }
                    assert_eq!(stage(&server, link), Stage::Suspending);
                }
                _ => rogue.suspend(&mut server, link),
            }
            server.take();
            rogue.socket.send(control, fd.as_ref()).unwrap();
            server.poll_until_idle();
            let down = server
                .take()
                .contains(&Event::Down(link, LinkDown::Protocol));
            assert_eq!(down, *wrong, "{what}, moment {moment}");
            assert_eq!(server.port.stats().violations, u64::from(*wrong));
            if *wrong {
                let mut rest = [0; MESSAGE_LEN];
                while !matches!(
                    rogue.socket.receive(&mut rest),
                    Ok(Received::HangUp) | Err(_)
                ) {}
            }
            send_through(&mut good, fine, &mut server, b"fine");
            server.poll_until_idle();
            let packets = server.take();
            let bodies = packets
                .iter()
                .filter(|event| matches!(event, Event::Packet(..)));
            assert_eq!(bodies.count(), 1);
            good.port.close(fine, Close::Now);
        }
    }
    drop((controls, pipe_write));
}

/// The same of a peer that we have called.
#[test]
fn answers_out_of_place_fail_their_peer() {
    let offer = offer_of(GEOMETRY);
    for (control, before, after) in [
        (ControlMessage::Taken.encode(), false, true),
        (ControlMessage::Later(None).encode(), false, true),
        (ControlMessage::Suspend(0).encode(), true, false),
        (offer, true, true),
        (ControlMessage::Bye.encode(), false, false),
    ] {
        for (taken, wrong) in [(false, before), (true, after)] {
            let name = fresh_name();
            let listener = Socket::listen(name).unwrap();
            let mut a = Node::new();
            let (board, endpoint) = (name.board, name.endpoint);
            let link = a.port.connect_to(board, endpoint, a.clock.now()).unwrap();
            let peer = listener.accept().unwrap();
            let welcome = ControlMessage::Welcome { asymmetric: true };
            peer.send(&welcome.encode(), None).unwrap();
            a.poll_until_idle();
            assert_eq!(stage(&a, link), Stage::Offered);
            if taken {
                peer.send(&ControlMessage::Taken.encode(), None).unwrap();
                a.poll_until_idle();
                assert_eq!(stage(&a, link), Stage::Up);
            }
            a.take();
            let memory = (control == offer).then(|| sealed_memfd(GEOMETRY.total()));
            peer.send(&control, memory.as_ref()).unwrap();
            a.poll_until_idle();
            let down = a.take() == [Event::Down(link, LinkDown::Protocol)];
            assert_eq!(
                down,
                wrong,
                "{:?}, taken: {taken}",
                ControlMessage::decode(&control)
            );
        }
    }
}

#[test]
fn descriptors_that_come_out_of_place_are_closed() {
    let (mut server, rogue, link) = with_rogue();
    let (end, pipe_write) = pipe();
    rogue.socket.send(b"!", Some(&pipe_write)).unwrap();
    server.poll_until_idle();
    assert_eq!(server.take(), [Event::Down(link, LinkDown::Protocol)]);
    let (mut server, rogue, link) = with_rogue();
    rogue.suspend(&mut server, link);
    rogue
        .socket
        .send(&offer_of(GEOMETRY), Some(&pipe_write))
        .unwrap();
    server.poll_until_idle();
    assert_eq!(server.take(), [Event::Down(link, LinkDown::Protocol)]);
    drop(pipe_write);
    assert_ended(end);
}

/// It holds no more than a link may; other peers are served.
#[test]
fn a_peer_that_does_not_suspend_with_us_keeps_no_peer_out() {
    let (mut server, rogue, link) = with_rogue();
    for _ in 0..40 {
        server.clock.advance(IDLE);
        server.poll_until_idle();
    }
    assert_eq!(stage(&server, link), Stage::Suspending);
    // Packets that it sends in the ring all the same are taken.
    rogue.write_packet(1);
    rogue.socket.ring();
    server.poll_until_idle();
    assert_eq!(server.take().len(), 1);
    assert_eq!(server.send(link, b"x"), Err(SendError::WouldBlock));
    assert_eq!(server.port.stats().bytes, GEOMETRY.total() as u64);
    link_up(&mut Node::new(), &mut server);
}
