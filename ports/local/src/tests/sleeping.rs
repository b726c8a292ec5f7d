//! Wake-ups of sleepers: no superfluous ones, none lost.

use super::{Event, Node, link_up, linked, readable};
use crate::link::UNREAD_MAX;
use crate::{ACTIVE_KEPT, ACTIVE_MAX, DATA_MAX, IDLE_AFTER, LISTEN_EVERY_EMPTY};
use mx_proto::LinkId;
use mx_proto::port::{Close, LinkControl, LinkDown, SendError};

#[test]
fn arming_fails_while_something_is_there() {
    let (mut a, ab, mut b, ba) = linked();
    b.poll_until_idle();
    a.send(ab, b"there").unwrap();
    assert!(!b.port.arm());
    b.poll_until_idle();
    assert_eq!(b.take(), [Event::Packet(ba, b"there".to_vec())]);
    assert!(b.port.arm());
    b.port.note_control();
    assert!(!b.port.arm());
}

#[test]
fn control_is_readable_for_new_and_lost_links_only() {
    let (mut a, mut b) = (Node::new(), Node::new());
    let control = b.port.descriptors().control;
    let ab = a.connect(&b).unwrap();
    assert!(readable(control));
    b.poll_until_idle();
    a.poll_until_idle();
    assert!(!readable(control));
    assert!(b.port.arm());
    a.send(ab, b"data").unwrap();
    assert!(!readable(control) && readable(b.port.descriptors().data));
    b.port.disarm();
    b.poll_until_idle();
    a.port.close(ab, Close::Flush);
    assert!(readable(control));
    b.poll_until_idle();
    assert!(!readable(control));
}

#[test]
fn no_wake_up_is_lost_between_two_threads() {
    const ROUNDS: u32 = 20_000;
    let (mut a, ab, mut b, ba) = linked();
    b.poll_until_idle();
    a.poll_until_idle();
    let echo = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            let bytes = next_body(&mut b);
            b.send(ba, &bytes).unwrap();
        }
        b
    });
    for round in 0..ROUNDS {
        a.send(ab, &round.to_le_bytes()).unwrap();
        assert_eq!(next_body(&mut a), round.to_le_bytes());
    }
    echo.join().unwrap();
}

/// Sleeps for the next packet immediately, with as few polls as possible.
fn next_body(node: &mut Node) -> Vec<u8> {
    loop {
        node.poll();
        if let Some(bytes) = node.bodies().pop() {
            return bytes;
        }
        if node.port.arm() {
            wait(node);
            node.port.disarm();
        }
    }
}

#[test]
fn no_wake_up_for_room_is_lost_between_two_threads() {
    // The longer bodies exceed one batch of freed space, so the first wake-up does not mean that there is room for the
    // next body.
    for len in [3_000, DATA_MAX] {
        wake_ups_for_room(len);
    }
}

fn wake_ups_for_room(len: usize) {
    const PACKETS: usize = 30_000;
    let bytes = vec![1; len];
    let (mut a, ab, mut b, _) = linked();
    b.poll_until_idle();
    a.poll_until_idle();
    let reader = std::thread::spawn(move || {
        let mut got = 0;
        while got < PACKETS {
            if b.poll() {
                got += b.bodies().len();
            } else if b.port.arm() {
                wait(&b);
                b.port.disarm();
            }
        }
        b
    });
    let mut sent = 0;
    while sent < PACKETS {
        match a.send(ab, &bytes) {
            Ok(_) => sent += 1,
            Err(SendError::Down) => panic!("down"),
            Err(SendError::WouldBlock) => {
                while a.take().is_empty() {
                    if !a.poll() && a.port.arm() {
                        wait(&a);
                        a.port.disarm();
                    }
                }
            }
        }
    }
    reader.join().unwrap();
}

fn wait(node: &Node) {
    let fds = node.port.descriptors();
    let mut poll = [fds.control, fds.data].map(|fd| libc::pollfd {
        fd: fd.unwrap(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: two valid elements.
    let n = unsafe { libc::poll(poll.as_mut_ptr(), 2, 20_000) };
    assert_ne!(n, 0, "slept for 20 seconds: a wake-up is lost");
}

#[test]
fn doorbell_taken_by_another_thread_rings_again() {
    // Few enough for nearly all to stay active, and enough for some to be always idle.
    for clients in [ACTIVE_KEPT + 2, ACTIVE_MAX + 8] {
        doorbells_for_a_sleeper(clients);
    }
}

fn doorbells_for_a_sleeper(clients: usize) {
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..clients).map(|_| Node::new()).collect();
    let links: Vec<LinkId> = clients
        .iter_mut()
        .map(|client| link_up(client, &mut server))
        .collect();
    server.take();
    for _ in 0..=IDLE_AFTER {
        server.poll();
    }
    for sleep in 0..3 {
        server.poll_until_idle();
        while !server.port.arm() {
            server.poll_until_idle();
        }
        // Another thread polls, repeatedly, before the sleeper reacts.
        for round in 0..3u8 {
            for (client, link) in clients.iter_mut().zip(&links) {
                assert!(!readable(server.port.descriptors().data));
                client.send(*link, &[round]).unwrap();
                assert!(readable(server.port.descriptors().data), "sleep {sleep}");
                while readable(server.port.descriptors().data) {
                    server.poll();
                }
                while server.poll() {}
                assert_eq!(server.bodies(), [[round]]);
            }
        }
        server.port.disarm();
        // After waking no link is forgotten, active or idle.
        for (client, link) in clients.iter_mut().zip(&links) {
            client.send(*link, b"x").unwrap();
            for _ in 0..LISTEN_EVERY_EMPTY {
                server.poll();
            }
            assert_eq!(server.bodies(), [b"x"]);
        }
    }
}

/// Unread wake-ups must not fill the socket, which would lose a later one.
#[test]
fn unread_wake_ups_never_keep_a_later_one_away() {
    let (mut a, ab, mut b, ba) = linked();
    b.poll_until_idle();
    for round in 0..2_000u32 {
        if !b.port.arm() {
            assert!(!b.poll(), "nothing but wake-ups");
            assert!(b.port.arm());
        }
        a.send(ab, &round.to_le_bytes()).unwrap();
        b.port.disarm();
        // The packet is found without reading the doorbells.
        b.port.note_told();
        while b.poll_active(8) {}
        let unread = b.port.links.get(ba).unwrap().unread;
        assert!(unread <= 2 * UNREAD_MAX, "{unread} in round {round}");
        assert_eq!(b.bodies(), [round.to_le_bytes()]);
    }
    b.poll_until_idle();
    assert!(b.port.arm());
    assert!(!readable(b.port.descriptors().data));
    a.send(ab, b"last").unwrap();
    assert!(readable(b.port.descriptors().data));
    b.port.disarm();
    b.poll_until_idle();
    assert_eq!(b.bodies(), [b"last".to_vec()]);
}

/// Doorbells of a link that carries packets stay unread; any other message is read at once.
#[test]
fn a_control_message_behind_unread_wake_ups_is_heard() {
    let (mut a, ab, mut b, ba) = linked();
    b.poll_until_idle();
    for _ in 0..3 {
        assert!(b.port.arm());
        a.send(ab, b"x").unwrap();
        assert!(b.port.take_doorbells());
        b.port.disarm();
        b.poll_until_idle();
    }
    assert_eq!(b.port.links.get(ba).unwrap().unread, 3);
    b.take();
    a.port
        .links
        .get(ab)
        .unwrap()
        .socket
        .as_ref()
        .unwrap()
        .send(&[7; 32], None)
        .unwrap();
    b.port.take_doorbells();
    assert_eq!(b.port.queue, [ba]);
    b.poll_until_idle();
    assert_eq!(b.take(), [Event::Down(ba, LinkDown::Protocol)]);
}
