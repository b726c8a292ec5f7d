//! Peers that say and write about sleeping what no peer of ours does.

use super::cycles::Random;
use super::slumber::{IDLE, send_through, stage};
use super::strangers::{GEOMETRY, Rogue, assert_ended, pipe, sealed_memfd};
use super::{Event, Node, last_link, link_up};
use crate::LocalOptions;
use crate::handshake::{MESSAGE_LEN, Wake, Word};
use crate::layout::{Geometry, REST_AT};
use crate::link_states::Stage;
use crate::socket::Received;
use mx_proto::LinkId;
use mx_proto::port::{Close, LinkDown, SendError};
use std::os::fd::OwnedFd;

impl Rogue {
    fn set_rest(&self, word: u64) {
        self.write(REST_AT, &word.to_le_bytes());
    }

    /// Agrees to sleep when it is asked.
    fn agree(&self, server: &mut Node, link: LinkId) {
        while stage(server, link) == Stage::Up {
            server.clock.advance(IDLE / 4);
            server.settle();
        }
        self.set_rest(3);
        self.socket.ring();
        server.settle();
        assert_eq!(stage(server, link), Stage::Asleep);
        let mut byte = [0; MESSAGE_LEN];
        while let Ok(Received::Message(1, None)) = self.socket.receive(&mut byte) {}
    }
}

/// A server with a link to a rogue that the endpoint knows of.
fn with_rogue() -> (Node, Rogue, LinkId) {
    let mut server = Node::new();
    let rogue = Rogue::connect(&mut server);
    rogue.write_packet(0);
    server.settle();
    let link = server.first_link();
    server.take();
    (server, rogue, link)
}

fn wake_of(geometry: Geometry) -> [u8; MESSAGE_LEN] {
    Word::Wake(Wake { geometry }).encode()
}

/// What is said, with which descriptor, and at which moments it is out of place.
type Case = (&'static str, Vec<u8>, Option<OwnedFd>, [bool; 3]);

#[test]
fn words_out_of_place_fail_their_peer_and_no_other() {
    let wake = wake_of(GEOMETRY);
    let mut damaged = wake;
    damaged[17] ^= 0x40;
    let mut version = wake;
    version[8] = 9;
    let long = [wake.as_slice(), &[0]].concat();
    let memory = || Some(sealed_memfd(GEOMETRY.total()));
    let (_end, pipe_write) = pipe();
    let copy = || Some(pipe_write.try_clone().unwrap());
    let words: Vec<Case> = vec![
        // Whether it is out of place while the link is up, asleep, and being woken by us.
        ("wake", wake.into(), memory(), [true, false, false]),
        ("wake without memory", wake.into(), None, [true; 3]),
        ("wake with a pipe", wake.into(), copy(), [true; 3]),
        (
            "wake, small",
            wake.into(),
            Some(sealed_memfd(4096)),
            [true; 3],
        ),
        ("wake, damaged", damaged.into(), memory(), [true; 3]),
        ("wake, version", version.into(), memory(), [true; 3]),
        ("wake, long", long, memory(), [true; 3]),
        (
            "woken",
            Word::Woken.encode().into(),
            None,
            [true, true, false],
        ),
        (
            "woken with memory",
            Word::Woken.encode().into(),
            memory(),
            [true; 3],
        ),
        (
            "later",
            Word::Later.encode().into(),
            None,
            [true, true, false],
        ),
        ("bye", Word::Bye.encode().into(), None, [false; 3]),
        (
            "bye with memory",
            Word::Bye.encode().into(),
            memory(),
            [true; 3],
        ),
        ("doorbell with memory", b"!".to_vec(), memory(), [true; 3]),
        ("nonsense", b"GET / HTTP/1.1".to_vec(), None, [true; 3]),
        ("zeroes", vec![0; MESSAGE_LEN], None, [true; 3]),
    ];
    let mut good = Node::new();
    for (what, word, fd, wrong) in &words {
        for (moment, wrong) in wrong.iter().enumerate() {
            let (mut server, rogue, link) = with_rogue();
            let fine = link_up(&mut good, &mut server);
            server.take();
            good.take();
            if moment > 0 {
                rogue.agree(&mut server, link);
            }
            if moment > 1 {
                assert_eq!(server.send(link, b"x"), Err(SendError::WouldBlock));
                assert_eq!(stage(&server, link), Stage::Waking);
            }
            server.take();
            rogue.socket.send(word, fd.as_ref()).unwrap();
            server.settle();
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
            server.settle();
            let packets = server.take();
            let bodies = packets
                .iter()
                .filter(|event| matches!(event, Event::Packet(..)));
            assert_eq!(bodies.count(), 1);
            good.port.close(fine, Close::Now);
        }
    }
    drop((words, pipe_write));
}

#[test]
fn descriptors_that_come_out_of_place_are_closed() {
    let (mut server, rogue, link) = with_rogue();
    let (end, pipe_write) = pipe();
    rogue.socket.send(b"!", Some(&pipe_write)).unwrap();
    server.settle();
    assert_eq!(server.take(), [Event::Down(link, LinkDown::Protocol)]);
    let (mut server, rogue, link) = with_rogue();
    rogue.agree(&mut server, link);
    rogue
        .socket
        .send(&wake_of(GEOMETRY), Some(&pipe_write))
        .unwrap();
    server.settle();
    assert_eq!(server.take(), [Event::Down(link, LinkDown::Protocol)]);
    drop(pipe_write);
    assert_ended(end);
}

#[test]
fn nonsense_in_the_word_fails_the_link_or_is_refused() {
    for word in [
        1u64,
        1 | 7 << 2,
        1 | 1 << 33,
        2,
        3,
        u64::MAX,
        u64::MAX - 1,
        4,
        1 << 40,
    ] {
        for asking in [false, true] {
            let (mut server, rogue, link) = with_rogue();
            if asking {
                while stage(&server, link) == Stage::Up {
                    server.clock.advance(IDLE / 4);
                    server.settle();
                }
            }
            rogue.set_rest(word);
            rogue.socket.ring();
            server.settle();
            // Asleep is an answer to a question only, and a question none to another. One packet
            // has been sent, and none taken.
            let right = word == 1 | 1 << 33;
            match (server.take().as_slice(), word & 3, asking) {
                ([], 0, _) => assert_eq!(stage(&server, link), Stage::Up),
                ([], 3, true) => assert_eq!(stage(&server, link), Stage::Asleep),
                ([], 1, _) if right => assert_eq!(stage(&server, link), Stage::Asleep),
                ([], 1, _) => assert_eq!(stage(&server, link), Stage::Up),
                // Noticed when it is taken back.
                ([], 2, true) => {
                    assert_eq!(server.send(link, b"x"), Err(SendError::Down));
                    server.settle();
                    assert_eq!(server.take(), [Event::Down(link, LinkDown::Protocol)]);
                }
                ([Event::Down(_, LinkDown::Protocol)], _, _) => {}
                (events, ..) => panic!("{word:#x}, asking: {asking}: {events:?}"),
            }
        }
    }
}

#[test]
fn a_peer_that_does_not_sleep_may_not_wake() {
    let mut server = Node::with_options(LocalOptions {
        idle: None,
        ..LocalOptions::default()
    });
    let rogue = Rogue::connect(&mut server);
    rogue.write_packet(0);
    server.settle();
    let link = server.first_link();
    server.take();
    rogue.set_rest(3);
    rogue.socket.ring();
    let memory = sealed_memfd(GEOMETRY.total());
    rogue
        .socket
        .send(&wake_of(GEOMETRY), Some(&memory))
        .unwrap();
    server.settle();
    assert_eq!(server.take(), [Event::Down(link, LinkDown::Protocol)]);
}

#[test]
fn random_words_and_scribbling_never_hurt_more_than_their_own_link() {
    let mut random = Random(0x5eed_0007);
    let mut server = Node::new();
    let mut good = Node::new();
    let link = link_up(&mut good, &mut server);
    let good_link = server.first_link();
    let mut ended = 0;
    for _ in 0..150 {
        let rogue = Rogue::connect(&mut server);
        rogue.write_packet(0);
        server.settle();
        let from = last_link(&server.take());
        for _ in 0..40 {
            match random.below(8) {
                0 => rogue.set_rest(random.next() & 0xff),
                1 => rogue.set_rest(3),
                2 => {
                    let memory = sealed_memfd(GEOMETRY.total());
                    let _ = rogue.socket.send(&wake_of(GEOMETRY), Some(&memory));
                }
                3 => {
                    let _ = rogue.socket.send(&Word::Woken.encode(), None);
                }
                4 => {
                    let _ = rogue.socket.send(&Word::Later.encode(), None);
                }
                5 => server.clock.advance(IDLE / 2),
                6 => {
                    let _ = server.send(from, &[1; 300]);
                }
                _ => rogue.socket.ring(),
            }
            if server.port.arm() {
                server.port.disarm();
            }
            server.port.note_control();
            server.poll();
            good.clock.advance(IDLE / 8);
            good.settle();
        }
        send_through(&mut good, link, &mut server, b"fine");
        server.settle();
        let fine = Event::Packet(good_link, b"fine".to_vec());
        ended += server
            .log
            .events
            .iter()
            .filter(|event| matches!(event, Event::Down(..)))
            .count();
        assert!(server.take().contains(&fine));
        drop(rogue);
        server.settle();
        ended += server
            .take()
            .iter()
            .filter(|event| matches!(event, Event::Down(..)))
            .count();
    }
    assert_eq!(ended, 150);
    assert_eq!(server.port.link_count(), 1);
    assert!(server.port.stats().bytes <= Geometry::STANDARD.total() as u64);
}
