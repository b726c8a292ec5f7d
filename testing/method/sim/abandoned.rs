//! Abandoned receives, and messages that arrive for them afterwards.

use crate::rig::Rig;
use bmi_method::abi::constants::*;
use mx_sim::Profile;
use std::time::Duration;

/// Makes a server whose answers arrive after its client has abandoned them, as after a host's own
/// time-out; and an unrelated receive of the server.
fn late_answers(count: i32, len: usize) -> (Rig, usize, usize, u64) {
    let mut rig = Rig::new(31);
    // Limits the credits that the server can be lent.
    rig.lend(80);
    let (client, server) = (rig.add(Profile::default()), rig.add(Profile::default()));
    rig.introduce(client, server);
    let other = rig.host(server).recv(client, 9_998, 10);
    for n in 0..count {
        let answer = rig.host(client).recv(server, n, len);
        rig.host(client).cancel(answer);
        assert_eq!(rig.wait(client, answer), -BMI_ECANCEL);
        rig.host(server).send(client, n, &vec![n as u8; len]);
        rig.run_for(Duration::from_micros(200));
    }
    (rig, client, server, other)
}

#[test]
fn late_answers_do_not_block_their_sender() {
    // More than may stay unreceived: in number, in bytes, and announced only; copied by their
    // sender or not.
    for (count, len) in [(1200, 8), (60, 20_000), (600, 100_000), (600, 4_000)] {
        let (mut rig, client, server, other) = late_answers(count, len);
        assert_eq!(rig.peek(server).error(other), None, "{count} times {len}");
        let answer = rig.host(client).recv(server, 9_999, 100);
        let request = rig.host(client).send_unexpected(server, 1, b"request");
        assert_eq!(rig.wait(client, request), 0);
        let sent = rig.host(server).send(client, 9_999, b"in time");
        rig.run_for(Duration::from_millis(1));
        let error = rig.peek(client).error(answer);
        assert_eq!(error, Some(0), "{count} times {len}");
        assert_eq!(rig.peek(client).bytes(answer), b"in time");
        assert_eq!(rig.wait(server, sent), 0);
    }
}

#[test]
fn late_message_is_received_by_an_equal_tag() {
    let (mut rig, client, server, _) = late_answers(50, 8);
    for n in 0..50 {
        let again = rig.host(client).recv(server, n, 8);
        assert_eq!(rig.wait(client, again), 0);
        assert_eq!(rig.peek(client).bytes(again), [n as u8; 8]);
    }
}

#[test]
fn send_of_a_cancelled_receive_always_says_so() {
    // Cancelled while it was being filled; and before its message came, which is thrown away in the
    // end.
    let (mut rig, client, server) = Rig::of_two(32);
    rig.introduce(client, server);
    let answer = rig.host(client).recv(server, 1, 3 << 20);
    let sent = rig.host(server).send(client, 1, &vec![1; 3 << 20]);
    rig.run_for(Duration::from_micros(60));
    rig.host(client).cancel(answer);
    assert_eq!(rig.wait(server, sent), -BMI_ENORECVR);
    assert_eq!(rig.peek(server).ended[&sent].size, 0);

    let (mut rig, client, server, _) = late_answers(600, 100_000);
    rig.run_for(Duration::from_millis(1));
    let ended = rig.peek(server).ended.values();
    let codes: Vec<_> = ended.map(|ended| (ended.error, ended.size)).collect();
    let refused = codes.iter().filter(|end| **end == (-BMI_ENORECVR, 0));
    // The first ones are the greetings.
    assert_eq!(codes[..2], [(0, 5); 2]);
    assert!(refused.clone().count() > 50, "{codes:?}");
    assert_eq!(refused.count(), codes.len() - 2, "{codes:?}");
    assert_eq!(rig.peek(client).error(1), Some(0));
}

#[test]
fn nothing_is_shed_while_credits_or_requests_remain() {
    for requests in [0, 200] {
        let (mut rig, client, server) = Rig::of_two(33);
        rig.introduce(client, server);
        rig.host(client).fetching = false;
        for tag in 0..100 {
            let given_up = rig.host(client).recv(server, tag, 900);
            rig.host(client).cancel(given_up);
        }
        for _ in 0..requests {
            rig.host(server).send_unexpected(client, 1, &[0; 1500]);
        }
        rig.run_for(Duration::from_millis(5));
        for tag in 0..100 {
            rig.host(server).send(client, tag, &[tag as u8; 900]);
            rig.run_for(Duration::from_micros(50));
        }
        rig.host(client).fetching = true;
        for tag in 0..100 {
            let again = rig.host(client).recv(server, tag, 900);
            assert_eq!(rig.wait(client, again), 0, "{requests} requests, {tag}");
            assert_eq!(rig.peek(client).bytes(again), [tag as u8; 900]);
        }
    }
}

#[test]
fn a_tag_whose_receive_is_posted_again_is_given_up_no_more() {
    let mut rig = Rig::new(34);
    rig.lend(80);
    let (client, server) = (rig.add(Profile::default()), rig.add(Profile::default()));
    rig.introduce(client, server);
    let given_up = rig.host(client).recv(server, 0, 8);
    rig.host(client).cancel(given_up);
    assert_eq!(rig.wait(client, given_up), -BMI_ECANCEL);
    let again = rig.host(client).recv(server, 0, 8);
    rig.host(server).send(client, 0, &[9; 8]);
    assert_eq!(rig.wait(client, again), 0);
    // Most messages that the server may leave unreceived; the first one has that tag.
    for tag in 0..100 {
        rig.host(server).send(client, tag, &[tag as u8; 8]);
        rig.run_for(Duration::from_micros(50));
    }
    for tag in 0..100 {
        let recv = rig.host(client).recv(server, tag, 8);
        assert_eq!(rig.wait(client, recv), 0, "{tag}");
        assert_eq!(rig.peek(client).bytes(recv), [tag as u8; 8]);
    }
}
