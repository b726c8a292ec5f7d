//! The beginning and the end of links, and idle links.

use super::{Pair, bytes, command, micros, millis, target};
use mx_proto::Instant;
use mx_proto::port::{Close, ConnectError, LinkControl, LinkDown};
use mx_proto::reliability::{Quote, ReliableConfig};
use mx_sim::Polled;
use mx_sim::datagram::header::DATA;
use mx_sim::{Recorder, SinkCall};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn quote_names_the_link_of_its_destination_address() {
    let (mut pair, _) = Pair::connected(ReliableConfig::default());
    let quote = Quote::read(&pair.last_of(0));
    let [ours, theirs] = [0, 1].map(|node| pair.net.data_address(node).expect("it lives"));
    for (to, quote, known) in [
        (command(1), quote, true),
        (theirs, quote, true),
        (ours, quote, false),
        (theirs, None, false),
    ] {
        let before = pair.stats(0).old_session;
        pair.net.inject_error(command(0), to, Some(9000), quote);
        pair.poll(0);
        assert_eq!(
            pair.stats(0).old_session - before,
            u64::from(!known),
            "{to:?}"
        );
    }
}

#[test]
fn close_delivers_accepted_packets_and_leaves_no_state() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.send(0, link, 1, &bytes(200_000)).unwrap();
    pair.close(0, link, Close::Flush);
    pair.run(millis(100));
    assert_eq!(pair.users[1].packets, [(1, bytes(200_000))]);
    assert_eq!(pair.users[1].down, [LinkDown::Closed]);
    assert_eq!(pair.sessions(), 0);
}

#[test]
fn undelivered_packets_are_dropped_at_close() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    // All packets but the first are here when the first arrives.
    pair.lose_next(1);
    for (mark, len) in [(0, 1), (1, 1), (2, 60_000)] {
        pair.send(0, link, mark, &bytes(len)).unwrap();
    }
    pair.close(0, link, Close::Flush);
    while pair.users[1].packets.is_empty() {
        pair.poll(0);
        pair.poll_some(1, 1);
        pair.pass(micros(20));
    }
    assert_eq!(pair.users[1].packets.len(), 1);
    let called = pair.users[1].from.expect("a packet came");
    pair.send(1, called, 3, b"no").unwrap();
    pair.close(1, called, Close::Flush);
    pair.run(millis(100));
    assert_eq!(pair.users[1].packets.len(), 1);
    assert_eq!(pair.users[1].down, []);
    assert_eq!(pair.sessions(), 0);
}

#[test]
fn an_idle_link_is_suspended_and_keeps_its_word() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    pair.send(0, link, 1, &bytes(200_000)).unwrap();
    pair.run(millis(500));
    assert_eq!([0, 1].map(|end| pair.ports[end].suspended()), [0, 0]);
    pair.run(12 * SECOND);
    let suspended = [0, 1].map(|end| pair.ports[end].suspended());
    assert_eq!(suspended, [1, 1]);
    assert_ne!(pair.ports[1].deadline(), Some(Instant(0)));
    assert_eq!(pair.users[1].packets.len(), 1);
    pair.send(0, link, 2, b"awake").unwrap();
    let (now, mut heard) = (pair.now(), Recorder::default());
    pair.ports[1].poll(now, 10, &mut heard);
    let called = pair.users[1].from.unwrap();
    assert_eq!(heard.seen, [SinkCall::packet(called, 2, b"awake")]);
}

fn impatient() -> ReliableConfig {
    ReliableConfig {
        give_up: 2 * SECOND,
        ..ReliableConfig::default()
    }
}

#[test]
fn a_peer_that_takes_nothing_in_but_says_so_is_not_given_up() {
    let (mut pair, link) = Pair::connected(impatient());
    pair.send(0, link, 1, &bytes(5_000)).unwrap();
    // Only one end is polled; the other only does the work that is due.
    let end = pair.now().after(10 * SECOND);
    while pair.now() < end {
        pair.poll(0);
        let now = pair.now();
        let due = pair.ports[1].keep_alive_due();
        if due.is_some_and(|due| due <= now) {
            pair.ports[1].keep_alive(now);
        }
        pair.pass(micros(100));
    }
    assert_eq!(pair.users[0].down, []);
    let heard = pair.ports[0].heard_at(link).unwrap();
    assert!(pair.now().since(heard) < 2 * SECOND);
    pair.run(2 * SECOND);
    assert_eq!(pair.users[1].packets, [(1, bytes(5_000))]);
    // A silent peer is given up.
    pair.send(0, link, 2, &bytes(5_000)).unwrap();
    pair.run_alone(10 * SECOND);
    assert_eq!(pair.users[0].down, [LinkDown::TimedOut]);
}

#[test]
fn a_peer_that_is_silent_on_an_idle_link_is_given_up_in_time() {
    let (mut pair, _) = Pair::connected(impatient());
    pair.run_alone(millis(1900));
    assert_eq!(pair.users[0].down, []);
    pair.run_alone(millis(400));
    assert_eq!(pair.users[0].down, [LinkDown::TimedOut]);
}

#[test]
fn service_below_minimum_size_ends_the_link() {
    for passed_before in [false, true] {
        let mut pair = Pair::new(impatient());
        let narrow = |pair: &Pair| pair.seen.borrow_mut().refuse_above = Some(500);
        if !passed_before {
            narrow(&pair);
        }
        let link = pair.call(1);
        pair.introduce(link);
        narrow(&pair);
        pair.send(0, link, 1, &bytes(20_000)).unwrap();
        pair.run(SECOND);
        // Fewer than one rejection per poll, of which there were 50 000.
        let refused = pair.seen.borrow().refused;
        assert!(refused < 5_000, "{refused} times");
        assert_eq!(pair.users[0].down, []);
        pair.run(5 * SECOND);
        assert_eq!(pair.users[0].down, [LinkDown::TimedOut]);
    }
}

#[test]
fn unbound_caller_is_dropped_in_time_whatever_it_sends() {
    let (mut pair, link) = Pair::strange(ReliableConfig::default());
    pair.send(0, link, 1, b"my hello").unwrap();
    pair.run(millis(4850));
    assert_eq!(pair.ports[1].sessions(), 1);
    pair.run(millis(200));
    assert_eq!(pair.ports[1].sessions(), 0);
    assert_eq!(pair.stats(1).unbound, 1);
    assert_eq!(pair.users[1].packets.len(), 1);
    // The link had brought a packet, so the user knows of it.
    assert_eq!(pair.users[1].down, [LinkDown::TimedOut]);
    assert_eq!(pair.users[0].down, [LinkDown::Reset]);
}

#[test]
fn unbound_caller_may_send_no_more_than_an_introduction() {
    let (mut pair, link) = Pair::strange(ReliableConfig::default());
    let before = pair.logged();
    for (mark, len) in [(1, 100), (2, 20_000), (3, 2_000), (4, 100)] {
        pair.send(0, link, mark, &bytes(len)).unwrap();
    }
    pair.run(SECOND);
    assert_eq!(pair.users[1].packets, [(1, bytes(100))]);
    // Every other segment is dropped whenever it comes.
    let sent = pair.sent_since(before);
    let segments = sent.iter().filter(|(_, _, kind)| *kind == DATA).count();
    assert!(segments > 5);
    assert_eq!(pair.stats(1).outside_window, segments as u64 - 1);
    pair.accept(1);
    pair.run(2 * SECOND);
    let lengths: Vec<usize> = pair.users[1].packets.iter().map(|it| it.1.len()).collect();
    assert_eq!(lengths, [100, 20_000, 2_000, 100]);
}

#[test]
fn a_caller_that_is_not_bound_takes_no_place_of_our_own_calls() {
    let config = ReliableConfig {
        max_links: 1,
        ..ReliableConfig::default()
    };
    let (mut pair, link) = Pair::strange(config);
    let call = |pair: &mut Pair| {
        let now = pair.now();
        pair.ports[1].connect(target(0), now)
    };
    let ours = call(&mut pair).expect("a place");
    assert_eq!(call(&mut pair), Err(ConnectError::NoResources));
    assert_eq!(pair.stats(1).refused, 1);
    pair.close(1, ours, Close::Now);
    pair.accept(1);
    pair.send(0, link, 1, &bytes(20_000)).unwrap();
    pair.run(millis(50));
    assert_eq!(pair.users[1].packets.len(), 1);
    assert_eq!(call(&mut pair), Err(ConnectError::NoResources));
    pair.close(0, link, Close::Flush);
    pair.run(millis(50));
    call(&mut pair).expect("the place of the one that is over");
}

#[test]
fn links_that_are_cut_off_end_in_the_next_poll_and_others_stay() {
    for (cut_off, end) in [(1, vec![LinkDown::Reset]), (0, vec![])] {
        let (mut pair, link) = Pair::connected(ReliableConfig::default());
        pair.net.cut_off(command(cut_off));
        pair.ports[0].leave_old_addresses();
        assert_eq!(LinkControl::arm(&mut pair.ports[0]), end.is_empty());
        pair.poll(0);
        assert_eq!(pair.users[0].down, end);
        assert_eq!(pair.ports[0].address(link).is_none(), !end.is_empty());
    }
}
