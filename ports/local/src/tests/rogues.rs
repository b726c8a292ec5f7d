//! Peers whose messages about memory and suspension violate the protocol.

use super::idle::{IDLE, Stage, send_through, stage};
use super::strangers::{GEOMETRY, HELLO, Rogue, pipe, sealed_memfd};
use super::{Event, Node, fresh_name, header, link_up};
use crate::handshake::{ControlMessage, MESSAGE_LEN};
use crate::layout::Geometry;
use crate::socket::{Received, Socket};
use mx_proto::port::{Close, LinkControl, LinkDown};
use mx_proto::{Clock, LinkId};
use std::os::fd::OwnedFd;

/// Creates a server with a link to a rogue that the endpoint knows.
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
    /// Suspends the link, as a correct peer would.
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

/// Builds a packet as sent over the socket.
fn packet(len: usize, said: usize) -> Vec<u8> {
    [header(said).as_slice(), &vec![7; len]].concat()
}

/// A message and its descriptor; whether it is a violation while the link is up, while we suspend it, and while it has
/// no rings.
type Case = (&'static str, Vec<u8>, Option<OwnedFd>, [bool; 3]);

#[test]
fn control_messages_out_of_place_fail_their_peer_and_no_other() {
    const ALL: [bool; 3] = [true; 3];
    const NONE: [bool; 3] = [false; 3];
    let offer = offer_of(GEOMETRY);
    let changed = |at: usize, byte: u8| {
        let mut offer = offer;
        offer[at] = byte;
        offer
    };
    let memory = || Some(sealed_memfd(GEOMETRY.total()));
    let small = Some(sealed_memfd(4096));
    let (_end, pipe_write) = pipe();
    let copy = || Some(pipe_write.try_clone().unwrap());
    let mut controls: Vec<Case> = Vec::new();
    let mut add = |what, message: &[u8], fd, wrong| {
        controls.push((what, message.to_vec(), fd, wrong));
    };
    add("offer", &offer, memory(), [true, true, false]);
    add("offer without memory", &offer, None, ALL);
    add("offer of a pipe", &offer, copy(), ALL);
    add("offer, small", &offer, small, ALL);
    add(
        "offer, damaged",
        &changed(17, offer[17] ^ 0x40),
        memory(),
        ALL,
    );
    add("offer, version", &changed(8, 9), memory(), ALL);
    add("offer, long", &[&offer[..], &[0]].concat(), memory(), ALL);
    add("hello", &HELLO.encode(), None, ALL);
    add("taken", &ControlMessage::Taken.encode(), None, ALL);
    add("later", &ControlMessage::Later(None).encode(), None, ALL);
    let suspend = |count| ControlMessage::Suspend(count).encode();
    add("suspend", &suspend(1), None, [false, false, true]);
    add("suspend of more", &suspend(2), None, ALL);
    add("suspend of less", &suspend(0), None, ALL);
    add("suspend of all", &suspend(u64::MAX), None, ALL);
    add("suspend with memory", &suspend(1), memory(), ALL);
    let bye = ControlMessage::Bye.encode();
    add("bye", &bye, None, NONE);
    add("bye with memory", &bye, memory(), ALL);
    add("packet", &packet(100, 100), None, [true, true, false]);
    add("packet with memory", &packet(100, 100), memory(), ALL);
    add("packet, short", &packet(99, 100), None, ALL);
    add("packet, long", &packet(101, 100), None, ALL);
    let huge = 36 * 1024 + 1;
    add("packet, huge", &packet(huge, huge), None, ALL);
    add("packet, larger still", &packet(50_000, 50_000), None, ALL);
    add("doorbell with memory", b"!", memory(), ALL);
    add("nonsense", b"GET / HTTP/1.1", None, ALL);
    add("zeroes", &[0; MESSAGE_LEN], None, ALL);
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

/// A peer that we called answers out of order.
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
