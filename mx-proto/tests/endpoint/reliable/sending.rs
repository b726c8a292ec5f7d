//! Packets on a link: channels, losses, acknowledgements, parts, back-pressure.

use super::{Pair, bytes, command, micros, millis};
use mx_proto::port::{Close, LinkControl, LinkDown, Port, SendError, Sent};
use mx_proto::reliability::{Channel, ReliableConfig};
use mx_sim::datagram::header::{ACK, ASK, DATA, FLAGS, FROM, PING, SEQ, altered, is_kind};

#[test]
fn tiny_packets_use_command_channel_others_data_channel() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let before = pair.logged();
    pair.send(0, link, 1, &bytes(700)).unwrap();
    assert_eq!(pair.sent_since(before), [(0, Channel::Command, DATA)]);
    let batches = pair.stats(0).gso_batches_out;
    let before = pair.logged();
    pair.send(0, link, 2, &bytes(30_000)).unwrap();
    let sent = pair.sent_since(before);
    assert!(sent.len() >= 4, "{sent:?}");
    assert!(sent.iter().all(|sent| *sent == (0, Channel::Data, DATA)));
    assert_eq!(pair.stats(0).gso_batches_out, batches + 1);
    pair.run(millis(1));
    let expected = [(1, bytes(700)), (2, bytes(30_000))];
    assert_eq!(pair.users[1].packets, expected);
}

#[test]
fn datagram_source_counts_until_data_channel_is_proven() {
    // Either not even the smallest probe passes, or all do.
    for (mtu, proven) in [(500, false), (9000, true)] {
        let mut pair = Pair::with_mtu(mtu, ReliableConfig::default());
        let link = pair.call(1);
        pair.run(millis(50));
        pair.send(0, link, 1, b"tiny").unwrap();
        pair.run(millis(1));
        assert_eq!(pair.users[1].packets, [(1, b"tiny".to_vec())]);
        assert_eq!(pair.seen.borrow().express > 0, proven, "{mtu}");
    }
}

#[test]
fn what_is_kept_behind_a_gap_is_counted_until_it_is_given_out() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.lose_next(1);
    for mark in 0..20 {
        pair.send(0, link, mark, &bytes(2_000)).unwrap();
    }
    pair.poll(0);
    pair.poll(1);
    let all = pair.ports[1].early_bytes();
    assert!(all > 20_000 && pair.users[1].packets.is_empty());
    // The first 8 KiB of a link are its own and not counted.
    let each = (all + (8 << 10)) / 19;
    // Three packets at a time.
    let end = pair.now().after(millis(50));
    while pair.now() < end {
        pair.poll(0);
        pair.poll_some(1, 3);
        let given = pair.users[1].packets.len();
        let kept = (20 - given.max(1)) * each;
        let counted = pair.ports[1].early_bytes();
        let expected = kept.saturating_sub(8 << 10);
        assert!(counted.abs_diff(expected) <= each, "{counted} of {kept}");
        pair.pass(micros(20));
    }
    assert_eq!(
        (pair.users[1].packets.len(), pair.ports[1].early_bytes()),
        (20, 0)
    );
}

#[test]
fn after_a_loss_the_last_segment_is_asked_for_at_once() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    for lossy in [false, true] {
        let before = pair.logged();
        pair.send(0, link, 1, &bytes(2_000)).unwrap();
        pair.poll(0);
        let sent = pair.sent_since(before);
        let asked = sent.iter().any(|(_, _, kind)| *kind == PING);
        assert_eq!(asked, lossy, "{sent:?}");
        pair.lose_next(1);
        (2..5).for_each(|mark| pair.send(0, link, mark, &bytes(2_000)).unwrap());
        pair.run(millis(100));
    }
}

#[test]
fn one_segment_of_a_large_window_asks_for_no_acknowledgement() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let before = pair.logged();
    pair.send(0, link, 1, &bytes(2_000)).unwrap();
    pair.poll(0);
    let sent = &pair.seen.borrow().log[before..];
    let flags = sent.iter().map(|(_, _, bytes)| FLAGS.of(bytes) & ASK);
    assert_eq!(flags.collect::<Vec<_>>(), [0]);
}

#[test]
fn loss_of_any_one_datagram_keeps_delivery_once_in_order() {
    for lost in 0..60 {
        let mut pair = Pair::new(ReliableConfig::default());
        pair.seen.borrow_mut().lose = vec![lost];
        let link = pair.call(1);
        pair.run(millis(100));
        for mark in 0..6 {
            let len = [10, 40_000, 900][usize::from(mark) % 3];
            pair.send(0, link, mark, &bytes(len)).unwrap();
        }
        pair.run(millis(100));
        let arrived = &pair.users[1].packets;
        let marks: Vec<u8> = arrived.iter().map(|(mark, _)| *mark).collect();
        assert_eq!(marks, [0, 1, 2, 3, 4, 5], "datagram {lost} was lost");
        assert!(arrived.iter().all(|(_, body)| *body == bytes(body.len())));
    }
}

#[test]
fn first_packet_precedes_its_bookkeeping_but_not_twice() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let before = pair.stats(1).fast_receives;
    (0..3).for_each(|mark| pair.send(0, link, mark, b"x").unwrap());
    pair.poll(1);
    assert_eq!(pair.stats(1).fast_receives, before + 1);
    assert_eq!(pair.users[1].packets.len(), 3);
    pair.send(0, link, 3, b"x").unwrap();
    pair.poll(1);
    assert_eq!(pair.users[1].packets.len(), 4);
    assert_eq!(pair.stats(1).fast_receives, before + 2);
    pair.send(0, link, 4, b"x").unwrap();
    pair.poll(1);
    assert_eq!(pair.users[1].packets.len(), 5);
    assert_eq!(pair.stats(1).fast_receives, before + 2);
    pair.run(millis(5));
    assert_eq!(pair.stats(0).resent, 0);
}

#[test]
fn ping_answer_names_what_the_service_still_holds() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.leave_out_data();
    pair.send(0, link, 1, &bytes(60_000)).unwrap();
    pair.run(millis(20));
    assert_eq!(pair.users[1].packets, [(1, bytes(60_000))]);
    let stats = pair.stats(0);
    assert_eq!((stats.asked_losses, stats.resent), (0, 0));
}

#[test]
fn ping_waits_while_more_than_one_poll_is_left() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    // The acknowledgement answers the Pings before it.
    pair.send(0, link, 0, b"first").unwrap();
    pair.run(millis(5));
    pair.leave_out_data();
    pair.send(0, link, 1, &bytes(60_000)).unwrap();
    // The Ping comes before the other end has taken in anything.
    while pair.net.waiting(command(1)) == 0 {
        pair.pass(micros(100));
        pair.poll(0);
    }
    let ping = pair.last_of(0);
    assert!(is_kind(&ping, PING));
    let data = pair.net.data_address(1).expect("it lives");
    let (waiting, before) = (pair.net.waiting(data), pair.logged());
    assert!(waiting > 4, "{waiting}");
    let answered = |pair: &Pair| {
        let seen = pair.seen.borrow();
        let mut sent = seen.log[before..].iter();
        sent.any(|(_, _, bytes)| is_kind(bytes, ACK) && SEQ.of(bytes) == SEQ.of(&ping))
    };
    for left in (0..waiting).rev() {
        pair.poll_some(1, 1);
        assert_eq!(pair.net.waiting(data), left);
        assert!(!answered(&pair), "{left} left");
    }
    pair.poll_some(1, 1);
    assert!(answered(&pair));
    pair.run(millis(20));
    assert_eq!(pair.users[1].packets[1..], [(1, bytes(60_000))]);
    assert_eq!(pair.stats(0).resent, 0);
}

#[test]
fn acks_delayed_by_a_lost_one_are_no_rtt_samples() {
    // Lost answers: the acknowledgement; then the answer to the Ping as well.
    for lost in [1, 2] {
        let (mut pair, link) = Pair::connected(ReliableConfig::default());
        for mark in 0..20 {
            let before = pair.logged();
            pair.send(0, link, mark, b"hello").unwrap();
            let mut answers = 0;
            for _ in 0..500 {
                pair.run(micros(20));
                let sent = pair.sent_since(before);
                let acks = sent.iter().filter(|(end, _, _)| *end == 1).count();
                if acks > answers && answers < lost {
                    // The answer is still on its way to the first end.
                    pair.net.discard(0);
                }
                answers = acks;
            }
            assert!(answers > lost, "nothing was asked for");
        }
        assert_eq!(pair.users[1].packets.len(), 20);
        let rto = pair.time_until_asked(link);
        assert!(rto <= micros(1_100), "{rto:?}");
    }
}

#[test]
fn link_is_bounded_by_segments_and_bytes_and_reports_room() {
    for len in [1, 40_000] {
        let (mut pair, link) = Pair::connected(ReliableConfig::default());
        pair.send(0, link, 0, b"hello").unwrap();
        pair.run(millis(50));
        let back = pair.users[1].from.unwrap();
        let config = ReliableConfig::default();
        // Nothing arrives there, so nothing is acknowledged.
        pair.lose_next(10_000);
        let mut taken = 0;
        while pair.send(0, link, 1, &bytes(len)).is_ok() {
            taken += 1;
        }
        pair.poll(0);
        assert!(taken * len <= config.send_bytes, "{taken} of {len}");
        let window = usize::from(config.window);
        let segments = taken * len.div_ceil(8_000);
        assert_eq!(segments == window, len == 1, "{taken} of {len}");
        pair.seen.borrow_mut().lose.clear();
        pair.send(1, back, 0, b"hello").unwrap();
        pair.poll(1);
        pair.poll(0);
        pair.poll(0);
        assert_eq!(pair.users[0].packets.len(), 1);
        assert_eq!(pair.users[0].writable, 0, "{len}");
        pair.run(millis(50));
        assert_eq!(pair.users[0].writable, 1, "{len}");
        pair.send(0, link, 1, &bytes(len)).unwrap();
    }
}

/// A window without room for a message of [`LONG`] bytes.
fn narrow() -> ReliableConfig {
    ReliableConfig {
        window: 32,
        ..ReliableConfig::default()
    }
}

const LONG: usize = 500_000;

#[test]
fn message_without_its_memory_is_sent_to_the_end() {
    for closed in [false, true] {
        let (mut pair, link) = Pair::connected(narrow());
        pair.send(0, link, 0, b"hello").unwrap();
        let mut memory = bytes(LONG);
        let Ok(Sent::Part(taken)) = pair.bring(link, 1, &memory) else {
            panic!("there is no room for all of it");
        };
        pair.ports[0].detach(link, &memory, taken, LONG - taken);
        memory.fill(0);
        if closed {
            pair.close(0, link, Close::Flush);
        } else {
            assert_eq!(pair.send(0, link, 2, b"no"), Err(SendError::WouldBlock));
        }
        pair.run(millis(100));
        let got = std::mem::take(&mut pair.users[1].packets);
        assert!(
            got == [(0, b"hello".to_vec()), (1, bytes(LONG))],
            "{closed}"
        );
        assert_eq!(pair.users[0].writable, usize::from(!closed), "{closed}");
        if !closed {
            pair.send(0, link, 3, b"after").unwrap();
        }
        pair.run(millis(50));
        assert_eq!(pair.users[1].packets.len(), usize::from(!closed));
        assert_eq!(
            pair.users[1].down,
            vec![LinkDown::Closed; usize::from(closed)]
        );
    }
}

#[test]
fn link_closed_between_parts_of_a_message_is_reset() {
    let (mut pair, link) = Pair::connected(narrow());
    pair.send(0, link, 0, b"hello").unwrap();
    assert!(matches!(
        pair.bring(link, 1, &bytes(LONG)),
        Ok(Sent::Part(_))
    ));
    pair.close(0, link, Close::Flush);
    pair.run(millis(50));
    assert_eq!(pair.users[1].packets.len(), 1);
    assert_eq!(pair.users[1].down, [LinkDown::Reset]);
}

#[test]
fn segments_out_of_window_or_session_are_dropped() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.lose_next(1);
    pair.send(0, link, 1, b"one").unwrap();
    let segment = pair.last_of(0);
    for other in [
        (SEQ, SEQ.of(&segment) + 100_000),
        (FROM, FROM.of(&segment) ^ 1),
    ] {
        let forged = altered(&segment, &[other]);
        pair.net.inject(command(0), command(1), &forged);
    }
    pair.poll(1);
    let stats = pair.stats(1);
    assert_eq!((stats.outside_window, stats.old_session), (1, 1));
    pair.run(millis(50));
    assert_eq!(pair.users[1].packets, [(1, b"one".to_vec())]);
}

#[test]
fn what_is_held_leaves_in_order_when_it_is_told_to() {
    // Told by a call of its own, by a poll, by a close.
    for told in 0..3 {
        let (mut pair, link) = Pair::connected(ReliableConfig::default());
        let before = pair.logged();
        let batches_before = pair.stats(0).gso_batches_out;
        pair.ports[0].hold(true);
        for mark in 0..4 {
            assert_eq!(pair.ports[0].holds(), mark > 0);
            pair.send(0, link, mark, &bytes(100)).unwrap();
        }
        assert!(pair.ports[0].holds());
        assert_eq!(pair.sent_since(before), []);
        pair.ports[0].hold(false);
        assert_eq!(pair.sent_since(before), []);
        match told {
            0 => pair.ports[0].send_held(),
            1 => pair.poll(0),
            _ => pair.close(0, link, Close::Flush),
        }
        let sent = pair.sent_since(before);
        let data = sent.iter().filter(|(_, _, kind)| *kind == DATA).count();
        // A close sends the end of the session, too.
        let expected = if told == 2 { 5 } else { 4 };
        assert_eq!(
            (data, pair.ports[0].holds()),
            (expected, false),
            "{told}: {sent:?}"
        );
        let batches = pair.stats(0).gso_batches_out;
        assert_eq!(batches - batches_before, 1, "{told}");
        pair.run(millis(1));
        let arrived: Vec<_> = (0..4).map(|mark| (mark, bytes(100))).collect();
        assert_eq!(pair.users[1].packets, arrived, "{told}");
    }
}

#[test]
fn what_may_not_be_held_leaves_at_once_with_what_is() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let before = pair.logged();
    pair.ports[0].hold(true);
    pair.send(0, link, 0, &bytes(100)).unwrap();
    pair.ports[0].hold(false);
    pair.send(0, link, 1, &bytes(100)).unwrap();
    assert_eq!(pair.sent_since(before).len(), 2);
    pair.run(millis(1));
    assert_eq!(pair.users[1].packets, [(0, bytes(100)), (1, bytes(100))]);
}
