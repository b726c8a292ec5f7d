//! Bodies that are longer than a packet.

use super::idle::suspend;
use super::{Event, Node, header, linked, readable};
use crate::pieces::STREAMED_MAX;
use mx_proto::LinkId;
use mx_proto::port::{Body, LinkControl, LinkDown, Port, SendError, Sent};

/// Returns bytes that identify their position.
fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8).collect()
}

fn send_long(from: &mut Node, link: LinkId, memory: &Vec<u8>) -> Result<Sent, SendError> {
    let body = Body::Memory {
        memory,
        offset: 0,
        len: memory.len(),
    };
    from.port.send(link, &header(memory.len()), &body)
}

/// Sends a long body and a packet after it; the receiver takes a few pieces at a time.
fn send_and_take(a: &mut Node, ab: LinkId, b: &mut Node, memory: &Vec<u8>) {
    let mut sent = match send_long(a, ab, memory) {
        Ok(Sent::Whole) => memory.len(),
        Ok(Sent::Part(sent)) => sent,
        other => panic!("{other:?}"),
    };
    while sent < memory.len() {
        assert_eq!(a.send(ab, b"between"), Err(SendError::WouldBlock));
        b.poll_some(3);
        b.poll_until_idle();
        a.poll_until_idle();
        assert!(b.take().iter().all(|event| matches!(event, Event::Up(_))));
        a.take();
        match Port::resume(&mut a.port, ab, memory, sent, memory.len() - sent) {
            Ok(Sent::Whole) => sent = memory.len(),
            Ok(Sent::Part(more)) => sent += more,
            other => assert_eq!(other, Err(SendError::WouldBlock)),
        }
    }
    assert_eq!(send_retrying(a, ab, b), Sent::Whole);
    b.poll_until_idle();
}

fn send_retrying(a: &mut Node, ab: LinkId, b: &mut Node) -> Sent {
    loop {
        match a.send(ab, b"behind") {
            Err(SendError::WouldBlock) => {
                b.poll_until_idle();
                a.poll_until_idle();
            }
            sent => return sent.unwrap(),
        }
    }
}

#[test]
fn long_bodies_arrive_in_one_piece_whatever_fits_into_the_ring() {
    let (mut a, ab, mut b, ba) = linked();
    for len in [36 * 1024 + 1, 64 << 10, 200_001, 256 << 10, STREAMED_MAX] {
        let memory = body(len);
        send_and_take(&mut a, ab, &mut b, &memory);
        let behind = Event::Packet(ba, b"behind".to_vec());
        assert!(b.take() == [Event::Packet(ba, memory), behind], "{len}");
    }
}

#[test]
fn long_body_continues_over_the_socket_after_suspend() {
    let (mut a, ab, mut b, ba) = linked();
    let memory = body(STREAMED_MAX);
    let Ok(Sent::Part(mut sent)) = send_long(&mut a, ab, &memory) else {
        panic!("all of it found room");
    };
    suspend(&mut [&mut b, &mut a]);
    while sent < memory.len() {
        match Port::resume(&mut a.port, ab, &memory, sent, memory.len() - sent) {
            Ok(Sent::Whole) => sent = memory.len(),
            Ok(Sent::Part(more)) => sent += more,
            other => assert_eq!(other, Err(SendError::WouldBlock)),
        }
        b.poll_until_idle();
        a.poll_until_idle();
    }
    b.poll_until_idle();
    assert!(b.take() == [Event::Packet(ba, memory)]);
}

#[test]
fn rest_of_a_body_without_its_memory_is_sent_first() {
    let (mut a, ab, mut b, ba) = linked();
    let memory = body(STREAMED_MAX);
    let Ok(Sent::Part(sent)) = send_long(&mut a, ab, &memory) else {
        panic!("all of it found room");
    };
    Port::detach(&mut a.port, ab, &memory, sent, memory.len() - sent);
    let whole = memory.clone();
    drop(memory);
    assert_eq!(a.send(ab, b"too early"), Err(SendError::WouldBlock));
    assert_eq!(send_retrying(&mut a, ab, &mut b), Sent::Whole);
    b.poll_until_idle();
    let behind = Event::Packet(ba, b"behind".to_vec());
    assert!(b.take() == [Event::Packet(ba, whole), behind]);
}

#[test]
fn armed_sleeping_sender_is_woken_for_room() {
    for long in [true, false] {
        let (mut a, ab, mut b, _) = linked();
        a.poll_until_idle();
        // Prevents far areas, for which the sides would exchange messages over the socket.
        a.port.links.get_mut(ab).unwrap().streaming = true;
        assert!(a.port.arm());
        let memory = body(STREAMED_MAX);
        if long {
            assert!(matches!(send_long(&mut a, ab, &memory), Ok(Sent::Part(_))));
        } else {
            while a.send(ab, &memory[..32 << 10]) == Ok(Sent::Whole) {}
        }
        assert!(!readable(a.port.descriptors().data), "{long}");
        b.poll_until_idle();
        assert!(readable(a.port.descriptors().data), "{long}");
    }
}

#[test]
fn pieces_that_do_not_fit_together_end_their_link() {
    // A piece longer than the rest, a body that is too long, two inconsistent lengths.
    for (len, piece) in [(40_000, 10_000), (STREAMED_MAX + 1, 0), (4, 0), (33_000, 0)] {
        let (mut a, ab, mut b, ba) = linked();
        let first = body(32 << 10);
        let up = a.port.links.get_mut(ab).unwrap().up().unwrap();
        let pushed = up
            .producer
            .push::<Vec<u8>>(&header(len), &Body::Bytes(&first));
        assert!(pushed.is_ok());
        if piece != 0 {
            let more = body(piece);
            let pushed = up.producer.push::<Vec<u8>>(&[0; 32], &Body::Bytes(&more));
            assert!(pushed.is_ok());
        }
        b.poll_until_idle();
        assert_eq!(b.take(), [Event::Down(ba, LinkDown::Protocol)]);
    }
}

#[test]
fn a_piece_is_no_packet_whatever_its_header_says() {
    let (mut a, ab, mut b, _) = linked();
    let all = body(42_000);
    let up = a.port.links.get_mut(ab).unwrap().up().unwrap();
    let (first, more) = all.split_at(32 << 10);
    for (header, piece) in [(header(all.len()), first), (header(more.len()), more)] {
        let pushed = up.producer.push::<Vec<u8>>(&header, &Body::Bytes(piece));
        assert!(pushed.is_ok());
    }
    b.poll_until_idle();
    assert_eq!(b.bodies(), [all]);
}
