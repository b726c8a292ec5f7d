//! A stranger that cannot see the packets between two peers, and does not change anything at a
//! port.
//!
//! ```text
//!   Hello  ------> any number: no session, one answer each, never larger
//!   OPENING -----> only from the address that the Welcome went to, only once, only for a while
//!   Reset, Data -> with the wrong cookies: dropped
//!   ICMP --------> that quotes nothing that was sent: ignored
//! ```

use super::peer::target;
use super::sessions::{SECOND, Stage, Tape, address, begin_anew, replay};
use super::strangers::nonsense;
use mx_proto::port::{Close, LinkDown};
use mx_proto::reliability::{Channel, Quote};
use mx_sim::datagram::header::{
    DATA, FLAGS, FROM, HEADER, HELLO, OPENING, RESET, TO, altered, build, is_kind, seal,
};
use mx_sim::link::Fate;
use mx_sim::{Rng, log_lines, seeds};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

fn is_opening(bytes: &[u8]) -> bool {
    FLAGS.of(bytes) & OPENING != 0
}

/// Runs a session to its end. Returns the datagrams of its two sides.
fn a_session_that_ended(stage: &mut Stage) -> [Tape; 2] {
    let tapes = stage.record_another_session();
    stage.exchange(3);
    stage.close(0, Close::Flush);
    stage.run(Duration::from_millis(100));
    assert_eq!(stage.down(1), Some(LinkDown::Closed));
    stage.at(1).hang_up();
    for (from, to) in [(0, 1), (1, 0)] {
        stage.net.set_script(from, to, None);
    }
    tapes
}

#[test]
fn a_flood_of_callers_leaves_no_trace_and_gets_one_answer_each() {
    let mut stage = Stage::new(1);
    stage.net.change(|terms| terms.answers_refused = false);
    let [tape, _] = stage.record_another_session();
    stage.exchange(3);
    let (_, hello) = tape.borrow()[0].clone();
    assert!(is_kind(&hello, HELLO));
    for caller in 0..5_000 {
        let cookie = stage.rng.bits() | 1;
        let hello = altered(&hello, &[(FROM, cookie)]);
        let from = address(1_000 + caller);
        stage.net.inject(from, address(1), &hello);
    }
    stage.run(Duration::from_millis(1));
    assert_eq!(stage.at(1).port.sessions(), 1);
    stage.exchange(3);
    stage.run(30 * SECOND);
    let len = hello.len() as u64;
    let answered = (0..5_000).map(|caller| stage.net.bytes_to(address(1_000 + caller)));
    let answered: Vec<u64> = answered.collect();
    assert!(answered.iter().all(|bytes| *bytes <= len));
    assert!(
        answered.iter().any(|bytes| *bytes > 0),
        "no caller is answered"
    );
    assert_eq!(stage.at(1).port.sessions(), 1);
}

#[test]
fn unproven_address_gets_no_more_than_it_sent() {
    seeds::each(3, |seed| {
        let mut stage = Stage::new(seed);
        stage.net.change(|terms| terms.answers_refused = false);
        let tapes = a_session_that_ended(&mut stage);
        let seen: Vec<_> = tapes.iter().flat_map(|tape| tape.take()).collect();
        let mut sent = Vec::new();
        for victim in 0..500 {
            let from = address(1_000 + victim);
            let bytes = if stage.rng.chance(0.5) {
                seen[stage.rng.index(seen.len())].1.clone()
            } else {
                nonsense(&mut stage.rng, &seen)
            };
            let to = stage.rng.index(2);
            let data = stage.net.data_address(to).expect("it lives");
            let to = stage.rng.pick(&[address(to as u32), data]);
            sent.push((from, bytes.len() as u64));
            stage.net.inject(from, to, &bytes);
            if victim % 10 == 0 {
                stage.run(Duration::from_micros(10));
            }
        }
        stage.run(60 * SECOND);
        for (victim, bytes) in sent {
            let got = stage.net.bytes_to(victim);
            assert!(got <= bytes, "{got} bytes to {victim:?}, who sent {bytes}");
        }
        let left = |stage: &mut Stage, id| {
            let port = &stage.at(id).port;
            (port.sessions(), port.early_bytes())
        };
        assert_eq!([0, 1].map(|id| left(&mut stage, id)), [(0, 0); 2]);
    });
}

#[test]
fn replayed_start_of_an_ended_session_opens_nothing() {
    seeds::each(3, |seed| {
        let mut stage = Stage::new(seed);
        let [there, _] = a_session_that_ended(&mut stage);
        let opening: Vec<_> = there.take();
        let opening = opening.into_iter().filter(|(_, bytes)| is_opening(bytes));
        let opening: Vec<_> = opening.collect();
        let with_data = opening.iter().filter(|(_, bytes)| is_kind(bytes, DATA));
        assert!(with_data.count() > 0, "a session begins with data");
        for pause in [0, 1, 4, 4, 6, 10, 20, 60] {
            stage.run(pause * SECOND);
            for sent in &opening {
                replay(&stage.net, 0, 1, sent.clone());
            }
            stage.run(Duration::from_millis(1));
            assert_eq!(stage.at(1).port.sessions(), 0);
            assert!(stage.at(1).heard.received.is_empty());
        }
        stage.at(0).call(target(1));
        stage.exchange(3);
    });
}

#[test]
fn session_start_from_another_address_opens_nothing() {
    let mut stage = Stage::new(1);
    stage.net.change(|terms| terms.answers_refused = false);
    let [there, _] = stage.record_another_session();
    stage.run(Duration::from_millis(1));
    for (_, bytes) in there.take() {
        stage.net.inject(address(9), address(1), &bytes);
    }
    stage.run(Duration::from_millis(1));
    assert_eq!(stage.at(1).port.sessions(), 1);
    stage.exchange(3);
}

#[test]
fn restarted_port_ignores_packets_for_its_former_life() {
    let mut stage = Stage::new(1);
    let [there, _] = stage.record_another_session();
    stage.exchange(3);
    begin_anew(&mut stage, 1, 9);
    for sent in there.take() {
        replay(&stage.net, 0, 1, sent);
    }
    stage.run(Duration::from_millis(1));
    assert_eq!(stage.at(1).port.sessions(), 0);
    assert!(stage.at(1).heard.received.is_empty());
}

#[test]
fn forged_resets_end_nothing() {
    let mut stage = Stage::new(1);
    let tapes = stage.record_another_session();
    stage.exchange(5);
    for (to, tape) in [1, 0].into_iter().zip(tapes) {
        let (_, last) = tape.borrow().last().expect("they talk").clone();
        let cookies = [TO, FROM].map(|cookie| (cookie, cookie.of(&last)));
        let reset = build(RESET, &cookies, &[]);
        for _ in 0..200 {
            let (which, cookie) = stage.rng.pick(&cookies);
            let near = stage.rng.pick(&[0, 1, stage.rng.clone().bits()]);
            let forged = altered(&reset, &[(which, cookie.wrapping_add(near).max(1))]);
            if near != 0 {
                replay(&stage.net, 1 - to, to, (Channel::Command, forged));
            }
            // The true one, from another address.
            stage.net.inject(address(77), address(to as u32), &reset);
            stage.run(Duration::from_micros(1));
        }
    }
    stage.exchange(5);
}

#[test]
fn strangers_are_told_so_in_answers_that_are_not_larger() {
    let mut stage = Stage::new(1);
    stage.net.change(|terms| terms.answers_refused = false);
    let tapes = a_session_that_ended(&mut stage);
    let mut rng = Rng::new(1);
    let seen = tapes[0].take();
    let (_, data) = seen
        .into_iter()
        .rfind(|(_, bytes)| is_kind(bytes, DATA) && !is_opening(bytes))
        .expect("data");
    let len = data.len() as u64;
    for _ in 0..10_000 {
        let data = altered(&data, &[(TO, rng.bits() | 1)]);
        stage.net.inject(address(77), address(1), &data);
    }
    let before = stage.at(1).port.stats().datagrams_out;
    stage.run(Duration::from_micros(1));
    let answers = stage.at(1).port.stats().datagrams_out - before;
    assert!((1..=10_000).contains(&answers), "{answers}");
    assert!(stage.net.bytes_to(address(77)) <= answers * len);
}

/// Returns a quote of the beginning of `bytes`, with another cookie of the sender.
fn misquoted(bytes: &[u8], cookie: u64) -> Option<Quote> {
    Quote::read(&altered(bytes, &[(FROM, cookie)]))
}

#[test]
fn network_errors_count_only_if_they_quote_our_packets() {
    let mut stage = Stage::new(1);
    let [tape, other] = stage.record_another_session();
    stage.exchange(10);
    let (_, ours) = tape.borrow().last().cloned().expect("it has sent");
    let (_, theirs) = other.borrow().last().cloned().expect("it has sent");
    stage.run(Duration::from_millis(100));
    let (at, peer) = (address(0), address(1));
    let data = stage.net.data_address(1).expect("it lives");
    let before = stage.at(0).port.stats().old_session;
    for round in 0..100 {
        let guess = misquoted(&ours, stage.rng.bits());
        for (to, quote) in [
            (peer, None),
            (peer, guess),
            (peer, Quote::read(&theirs)),
            (peer, Quote::read(&ours[..Quote::BYTES - 1])),
            // A true quote, reported about another peer.
            (address(7), Quote::read(&ours)),
            (data, guess),
        ] {
            for most in [None, Some(548)] {
                stage.net.inject_error(at, to, most, quote);
            }
        }
        stage.run(Duration::from_millis(10 * (round % 3)));
    }
    let ignored = stage.at(0).port.stats().old_session - before;
    assert_eq!(ignored, 1200);
    let each = stage.size_of_datagrams(30_000, Duration::from_millis(5));
    assert!(each > 1_000, "{each} bytes each");
    assert_eq!(stage.down(0), None);
    // A true error counts: a size at once, an unreachable peer the third time.
    stage
        .net
        .inject_error(at, data, Some(548), Quote::read(&ours));
    let each = stage.size_of_datagrams(30_000, Duration::from_millis(5));
    assert!(each <= 548, "{each} bytes each");
    for _ in 0..3 {
        assert_eq!(stage.down(0), None);
        stage.net.inject_error(at, peer, None, Quote::read(&ours));
        stage.run(Duration::from_micros(10));
    }
    assert_eq!(stage.down(0), Some(LinkDown::Reset));
}

/// Returns the datagram as that of another version, with a correct checksum.
fn of_version(version: u8, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[2] = version;
    seal(&mut bytes);
    bytes
}

#[test]
fn callers_of_other_versions_only_get_a_rejection() {
    let mut stage = Stage::new(1);
    stage.net.change(|terms| terms.answers_refused = false);
    let [tape, _] = stage.record_another_session();
    stage.exchange(3);
    let seen = tape.take();
    let lines = log_lines(|| {
        for version in [2, 4, u8::MAX] {
            for caller in 0..100 {
                let from = address(1_000 + u32::from(version) * 100 + caller);
                let hello = altered(&seen[0].1, &[(FROM, u64::from(caller) + 7)]);
                stage
                    .net
                    .inject(from, address(1), &of_version(version, &hello));
                stage.run(Duration::from_micros(10));
                assert_eq!(stage.net.bytes_to(from), HEADER as u64);
            }
        }
    });
    let of_four = lines
        .iter()
        .filter(|line| line.contains("with datagram version 4; ours is 3"));
    assert_eq!(of_four.count(), 7, "{lines:?}");
    let stranger = address(77);
    for (_, bytes) in &seen[1..] {
        stage
            .net
            .inject(stranger, address(1), &of_version(4, bytes));
    }
    // A damaged one, and one without a cookie.
    let mut damaged = of_version(4, &seen[0].1);
    damaged[40] ^= 1;
    let nameless = altered(&seen[0].1, &[(FROM, 0)]);
    for bytes in [damaged, of_version(4, &nameless)] {
        stage.net.inject(stranger, address(1), &bytes);
    }
    stage.run(Duration::from_millis(1));
    assert_eq!(stage.net.bytes_to(stranger), 0);
    assert_eq!(stage.at(1).port.sessions(), 1);
    stage.exchange(3);
}

#[test]
fn rejection_by_version_with_the_cookie_ends_the_call() {
    let mut stage = Stage::new(1);
    let calls = Rc::new(RefCell::new(Vec::new()));
    let tape = Rc::clone(&calls);
    let silence = move |_: Channel, bytes: &[u8]| {
        tape.borrow_mut().push(bytes.to_vec());
        Fate::Drop
    };
    stage.close(0, Close::Now);
    stage.run(Duration::from_millis(20));
    stage.net.set_script(0, 1, Some(Box::new(silence)));
    stage.at(0).call(target(1));
    stage.run(Duration::from_millis(20));
    let hello = calls.borrow().last().cloned().expect("it has called");
    assert!(is_kind(&hello, HELLO));
    let cookie = FROM.of(&hello);
    let refusal = |cookie| of_version(4, &build(RESET, &[(TO, cookie), (FROM, cookie)], &[]));
    let wrong = [
        (address(1), refusal(cookie + 1)),
        (address(9), refusal(cookie)),
        (
            address(1),
            of_version(4, &build(DATA, &[(TO, cookie), (FROM, 1)], &[1])),
        ),
    ];
    for (from, bytes) in wrong {
        stage.net.inject(from, address(0), &bytes);
        stage.run(Duration::from_millis(20));
        assert_eq!(stage.down(0), None);
    }
    let lines = log_lines(|| {
        stage.net.inject(address(1), address(0), &refusal(cookie));
        stage.run(Duration::from_micros(10));
    });
    assert_eq!(stage.down(0), Some(LinkDown::Protocol));
    let told = lines
        .iter()
        .filter(|line| line.contains("rejected our call: with datagram version 4"));
    assert_eq!(told.count(), 1, "{lines:?}");
}

#[test]
fn a_call_is_ended_by_an_error_that_quotes_it_and_by_no_other() {
    let mut stage = Stage::new(1);
    stage.exchange(1);
    stage.close(0, Close::Now);
    stage.run(Duration::from_millis(20));
    let calls = Rc::new(RefCell::new(Vec::new()));
    let tape = Rc::clone(&calls);
    let silence = move |_: Channel, bytes: &[u8]| {
        tape.borrow_mut().push(bytes.to_vec());
        Fate::Drop
    };
    stage.net.set_script(0, 1, Some(Box::new(silence)));
    stage.at(0).call(target(1));
    stage.run(Duration::from_millis(20));
    let hello = calls.borrow().last().cloned().expect("it has called");
    assert!(is_kind(&hello, HELLO));
    let guess = misquoted(&hello, stage.rng.bits());
    for quote in [None, guess] {
        let (at, to) = (address(0), address(1));
        stage.net.inject_error(at, to, None, quote);
        stage.run(Duration::from_millis(20));
        assert_eq!(stage.down(0), None);
    }
    let quote = Quote::read(&hello);
    stage.net.inject_error(address(0), address(1), None, quote);
    stage.run(Duration::from_micros(10));
    assert_eq!(stage.down(0), Some(LinkDown::Refused));
}
