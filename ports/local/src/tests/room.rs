//! Full rings, and who is served next.

use super::{Event, Node, link_up, linked, readable};
use crate::LARGE;
use mx_proto::port::{SendError, Sent};

#[test]
fn a_full_ring_blocks_and_says_when_there_is_room() {
    for len in [8, 2000, LARGE - 1] {
        let (mut a, ab, mut b, _) = linked();
        let body = vec![1; len];
        let mut sent = 0;
        while a.send(ab, &body) == Ok(Sent::Whole) {
            sent += 1;
        }
        assert!(sent >= 7, "{sent} packets of {len} bytes");
        assert_eq!(a.send(ab, &body), Err(SendError::WouldBlock));
        for _ in 0..10 {
            a.poll();
        }
        assert_eq!(a.take(), [], "no room yet");
        b.poll_until_idle();
        assert_eq!(b.bodies().len(), sent);
        assert!(a.poll());
        assert_eq!(a.take(), [Event::Writable(ab)]);
        assert!(!a.poll(), "said once");
        assert_eq!(a.send(ab, &body), Ok(Sent::Whole));
    }
}

#[test]
fn a_sleeper_that_waits_for_room_is_woken() {
    let (mut a, ab, mut b, _) = linked();
    a.poll_until_idle();
    while a.send(ab, &[1; 5000]) == Ok(Sent::Whole) {}
    assert!(a.port.arm());
    assert!(!readable(a.port.descriptors().data));
    b.poll_until_idle();
    assert!(readable(a.port.descriptors().data));
    a.port.disarm();
    assert!(a.poll());
    assert_eq!(a.take(), [Event::Writable(ab)]);
    // The wake-up itself does not keep it from sleeping again.
    a.poll_until_idle();
    assert!(a.port.arm());
    assert!(!readable(a.port.descriptors().data));
}

#[test]
fn a_poll_takes_about_its_budget_and_is_fair() {
    let (mut a, mut c, mut b) = (Node::new(), Node::new(), Node::new());
    let ab = link_up(&mut a, &mut b);
    let cb = link_up(&mut c, &mut b);
    b.take();
    for at in 0..100 {
        a.send(ab, &[at]).unwrap();
        c.send(cb, &[at]).unwrap();
    }
    b.poll();
    let events = b.take();
    assert!((16..=80).contains(&events.len()), "{}", events.len());
    b.poll_some(1);
    assert_eq!(b.take().len(), 1);
    let mut seen = std::collections::HashMap::new();
    while b.poll() {
        for event in b.take() {
            let Event::Packet(link, _) = event else {
                panic!("{event:?}")
            };
            *seen.entry(link).or_insert(0) += 1;
        }
        let counts: Vec<i32> = seen.values().copied().collect();
        assert!(
            counts.iter().all(|n| counts[0].abs_diff(*n) <= 70),
            "{counts:?}"
        );
    }
}
