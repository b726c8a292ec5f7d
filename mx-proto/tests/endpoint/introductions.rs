//! Strangers with false claims: which are believed, and which peers that may harm.

use super::bits;
use super::pair::{self, Pair, Side};
use mx_proto::flow::CREDIT;
use mx_proto::origin::{Address, Proof};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{Down, DownReason, NicId, Status, Target};
use std::time::Duration;

/// An introduction as that interface, endpoint 3, in that life, to b.
fn hello(nic: u64, session: u64, token: u64) -> Vec<u8> {
    let mut bytes = vec![0; HELLO_LEN];
    bytes[0..4].copy_from_slice(b"MXs1");
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6] = 1;
    bytes[8..12].copy_from_slice(&pair::KEY.to_le_bytes());
    bytes[12] = 3;
    bytes[16..24].copy_from_slice(&nic.to_le_bytes());
    bytes[24..32].copy_from_slice(&session.to_le_bytes());
    bytes[32..40].copy_from_slice(&101u64.to_le_bytes());
    bytes[40] = 3;
    bytes[48..56].copy_from_slice(&token.to_le_bytes());
    bytes
}

fn connect(pair: &mut Pair, cable: usize, body: Vec<u8>) {
    let mut header = Header::new(Kind::Connect, 7, 0);
    header.body_len = body.len() as u32;
    pair.inject(cable, header.emit(), body);
}

/// The codes of the replies on a link.
fn replies(pair: &mut Pair, cable: usize) -> (Vec<u32>, bool) {
    let (packets, closed) = pair.told(cable);
    let code = |(header, _): &([u8; 32], Vec<u8>)| Header::parse(header).expect("a header");
    let replies = packets
        .iter()
        .map(code)
        .filter(|header| header.kind == Kind::Reply);
    (replies.map(|header| header.aux).collect(), closed)
}

#[test]
fn a_claim_to_a_living_peers_place_changes_nothing_for_it() {
    let mut pair = Pair::new();
    let b = pair.connected();
    for attempt in 1..=8 {
        let forger = pair.stranger();
        connect(&mut pair, forger, hello(100, 0xbad, 0));
        pair.run();
        assert_eq!(replies(&mut pair, forger), (vec![3], true));
        assert_eq!(pair.b.stats().intruders, attempt);
        pair.talk(b);
    }
    assert_eq!(
        (
            pair.a.owner_mut().next_down(),
            pair.b.owner_mut().next_down()
        ),
        (None, None)
    );
    assert_eq!(pair.b.remotes(), 1);
    pair.advance(Duration::from_secs(5));
    pair.talk(b);
}

#[test]
fn a_peer_whose_link_is_down_is_replaced_at_once() {
    let mut pair = Pair::new();
    pair.connected();
    pair.hold(&[0]);
    pair.reopen_a(0);
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    // Nothing has been heard of the end yet.
    assert_eq!(pair.a.owner_mut().next_completion(), None);
    pair.hold(&[]);
    pair.run();
    assert_eq!(
        pair.a.owner_mut().next_completion().map(|done| done.status),
        Some(Status::Success)
    );
    assert!(matches!(pair.b.owner_mut().next_down(), Some(Down { .. })));
    assert_eq!(pair.b.remotes(), 1);
}

#[test]
fn a_newcomer_with_a_silent_peers_address_replaces_it_at_once() {
    let mut pair = Pair::with_keys();
    let a = pair.target(Side::A);
    pair.proves_machines_only(a);
    pair.connected();
    pair.hold(&[0]);
    pair.reopen_a(0);
    let b = pair.connected();
    pair.talk(b);
    assert!(matches!(
        pair.b.owner_mut().next_down(),
        Some(Down {
            reason: DownReason::Restarted,
            ..
        })
    ));
    assert_eq!((pair.b.stats().confirms, pair.b.remotes()), (1, 1));
}

#[test]
fn a_claim_to_a_silent_peers_place_from_another_address_does_not_hurry_its_end() {
    let mut pair = Pair::with_keys();
    let a = pair.target(Side::A);
    pair.proves_machines_only(a);
    let b = pair.connected();
    for session in [0xbad, 0xbee] {
        // The old one has not been heard yet. The endpoint at that address knows nothing of the claim.
        pair.hold(&[0]);
        let forger = pair.stranger();
        connect(&mut pair, forger, hello(100, session, 0));
        pair.run();
        assert_eq!(replies(&mut pair, forger), (vec![3], true));
        pair.advance(Duration::from_secs(2));
        assert_eq!(pair.b.remotes(), 1);
        pair.hold(&[]);
        pair.run();
        pair.talk(b);
    }
    // There is no endpoint to ask.
    let nowhere = pair.nowhere();
    pair.proves_machines_only(nowhere);
    let forger = pair.stranger();
    connect(&mut pair, forger, hello(100, 0xbad, 0));
    pair.run();
    assert_eq!(replies(&mut pair, forger), (vec![3], true));
    pair.talk(b);
    assert_eq!(
        (
            pair.a.owner_mut().next_down(),
            pair.b.owner_mut().next_down()
        ),
        (None, None)
    );
    let stats = pair.b.stats();
    assert_eq!((stats.unproven, stats.intruders), (2, 1));
    assert_eq!(pair.b.remotes(), 1);
}

/// Sessions are no secret: every refusal tells them.
#[test]
fn a_stranger_that_knows_a_peers_session_can_neither_end_it_nor_join_it() {
    let mut pair = Pair::with_keys();
    let a = pair.target(Side::A);
    let b = pair.connected();
    pair.proves_machines_only(a);
    // Plainly and afresh, as that peer is known and as it is not.
    for (epoch, manner) in [(1, 0), (1, 1), (7, 0), (7, 1)] {
        let forger = pair.stranger();
        let mut body = hello(100, 1, 0);
        body[6..8].copy_from_slice(&u16::to_le_bytes(epoch));
        let mut header = Header::new(Kind::Connect, 77, manner);
        header.body_len = body.len() as u32;
        pair.inject(forger, header.emit(), body);
        pair.run();
        assert_eq!(
            replies(&mut pair, forger),
            (vec![3], true),
            "{epoch} {manner}"
        );
        pair.talk(b);
    }
    assert_eq!(
        (
            pair.a.owner_mut().next_down(),
            pair.b.owner_mut().next_down()
        ),
        (None, None)
    );
    assert_eq!((pair.b.remotes(), pair.b.stats().unproven), (1, 4));
}

/// A question about a newcomer ends with its introduction.
#[test]
fn a_question_about_a_newcomer_that_is_let_in_meanwhile_is_closed() {
    let mut pair = Pair::with_keys();
    pair.connected();
    let silent = Target {
        nic: NicId(pair::IMPOSTOR),
        ..pair.target(Side::A)
    };
    pair.proves_machines_only(silent);
    pair.hold(&[0]);
    let newcomer = pair.stranger();
    connect(&mut pair, newcomer, hello(100, 0xbad, 0));
    pair.run();
    assert_eq!(pair.begun_by_b(), 1);
    pair.advance(Duration::from_secs(2));
    assert_eq!(replies(&mut pair, newcomer), (vec![0], false));
    assert_eq!(pair.begun_by_b(), 0);
}

#[test]
fn a_refuted_claim_is_refused_and_adds_no_remote() {
    let mut pair = Pair::new();
    let b = pair.connected();
    pair.prove(Proof::Refuted);
    for nic in [100, 555] {
        for session in [1, 0xbad] {
            let forger = pair.stranger();
            connect(&mut pair, forger, hello(nic, session, 0));
            pair.run();
            assert_eq!(replies(&mut pair, forger), (vec![3], true));
        }
    }
    assert_eq!((pair.b.stats().unproven, pair.b.remotes()), (4, 1));
    assert!(
        pair.b
            .remote_of(NicId(555), mx_proto::EndpointId(3))
            .is_none()
    );
    pair.talk(b);
}

#[test]
fn a_claimed_address_is_asked_and_confirms_or_does_not() {
    // The endpoint at a's address is asked; only a itself has the token for b.
    let mut pair = Pair::with_keys();
    let a = pair.target(Side::A);
    pair.prove(Proof::Ask(a, Address(0)));
    let b = pair.connected();
    pair.talk(b);
    assert_eq!(pair.b.stats().confirms, 1);
    assert_eq!(pair.b.remotes(), 1);
    for (nic, session, token) in [(100, 1, 0), (100, 0xbad, 0), (100, 1, u64::MAX)] {
        let forger = pair.stranger();
        connect(&mut pair, forger, hello(nic, session, token));
        pair.run();
        assert_eq!(replies(&mut pair, forger), (vec![3], true));
    }
    assert_eq!((pair.b.stats().confirms, pair.b.stats().unproven), (4, 3));
    assert_eq!(pair.b.remotes(), 1);
    pair.talk(b);
    // There is no endpoint, or it does not answer.
    let nowhere = pair.nowhere();
    pair.prove(Proof::Ask(nowhere, Address(0)));
    let forger = pair.stranger();
    connect(&mut pair, forger, hello(1, 5, 0));
    pair.run();
    assert_eq!(replies(&mut pair, forger), (vec![3], true));
    let links = pair.links();
    pair.prove(Proof::Ask(a, Address(0)));
    pair.hold(&[links + 1]);
    let forger = pair.stranger();
    connect(&mut pair, forger, hello(100, 5, 0));
    pair.run();
    assert_eq!(replies(&mut pair, forger), (vec![], false));
    pair.advance(Duration::from_secs(4));
    assert_eq!(replies(&mut pair, forger), (vec![3], true));
    assert_eq!(pair.b.remotes(), 1);
}

#[test]
fn a_hello_from_another_address_is_not_confirmed() {
    let mut pair = Pair::with_keys();
    let a = pair.target(Side::A);
    let b = pair.connected();
    let genuine = pair.overheard(Kind::Connect);
    // It comes from elsewhere, and a is asked: its own hello, but not from where it is.
    pair.prove(Proof::Ask(a, Address(666)));
    for attempt in 1..=3 {
        let forger = pair.stranger();
        connect(&mut pair, forger, genuine.clone());
        pair.run();
        assert_eq!(replies(&mut pair, forger), (vec![3], true));
        assert_eq!(pair.b.stats().unproven, attempt);
    }
    assert_eq!(pair.b.remotes(), 1);
    pair.talk(b);
    // From another address of a's machine it is as good as from the first.
    pair.prove(Proof::Ask(a, Address(pair::ALIAS_OF_A)));
    pair.reopen_a(0);
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let done = pair.a.owner_mut().next_completion().map(|done| done.status);
    assert_eq!(done, Some(Status::Success));
}

#[test]
fn what_comes_behind_a_breach_of_the_rules_begins_nothing() {
    for secret in [None, Some("one and the same for all")] {
        let mut pair = Pair::with_secrets(secret, secret, 0, 64);
        for _ in 0..5 {
            let link = pair.stranger();
            pair.inject(link, [0xff; 32], Vec::new());
            connect(&mut pair, link, hello(555, 1, 0));
            pair.run();
            assert_eq!(replies(&mut pair, link), (vec![], true));
        }
        let left = (pair.b.introductions(), pair.b.remotes());
        assert_eq!(left, (0, 0), "{secret:?}");
    }
}

/// B has called a peer, which has called b on the returned link and not answered yet.
fn called_by_its_callee() -> (Pair, usize) {
    let mut pair = Pair::new();
    pair.b
        .connect(pair.impostor(), pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    let link = pair.stranger();
    connect(&mut pair, link, hello(pair::IMPOSTOR, 9, 0));
    pair.run();
    (pair, link)
}

/// B calls a peer that has called b, too, and that parts before it answers.
#[test]
fn an_association_that_is_over_is_not_begun_again_and_a_later_one_is() {
    for (epoch, manner, code) in [(1, 0, 4), (1, 1, 0), (2, 0, 0)] {
        let (mut pair, link) = called_by_its_callee();
        let bye = Header::new(Kind::Disconnect, 0, 0);
        pair.inject(link, bye.emit(), Vec::new());
        pair.run();
        assert_eq!(replies(&mut pair, link), (vec![0], true));
        let link = pair.stranger();
        let mut body = hello(pair::IMPOSTOR, 9, 0);
        body[6] = epoch;
        let mut header = Header::new(Kind::Connect, 7, manner);
        header.body_len = body.len() as u32;
        pair.inject(link, header.emit(), body);
        pair.run();
        let (told, _) = replies(&mut pair, link);
        assert_eq!(told, [code], "{epoch} {manner}");
    }
}

/// B calls, and the answer is of another peer, about which b asks.
#[test]
fn packets_behind_an_unproven_answer_are_kept_up_to_the_promised_bytes() {
    for beyond in [0, 1] {
        let mut pair = Pair::new();
        let silent = pair.impostor();
        pair.prove(Proof::Ask(silent, Address(0)));
        pair.b.connect(silent, pair::KEY, bits(0), 1).unwrap();
        pair.run();
        let (asked, _) = pair.said(0).pop().expect("it is called");
        let promised = Header::parse(&asked)
            .expect("a header")
            .credit_fields
            .credit;
        let answer = |kind, body: Vec<u8>| {
            let mut header = Header::new(kind, 0, body.len() as u32);
            header.body_len = body.len() as u32;
            (header.emit(), body)
        };
        let (mut reply, body) = answer(Kind::Reply, hello(200, 5, 0));
        reply[8..16].copy_from_slice(&asked[8..16]);
        pair.answer(0, reply, body);
        // Each packet counts with its header and the place of its body.
        let mut left = (promised as usize + 2) * CREDIT + 64 * 256;
        while left > 2 * (1_000 + 56) {
            let (header, body) = answer(Kind::Eager, vec![0; 1_000]);
            pair.answer(0, header, body);
            left -= 1_000 + 56;
        }
        let (header, body) = answer(Kind::Eager, vec![0; left - 56 + beyond]);
        pair.answer(0, header, body);
        pair.run();
        assert_eq!(pair.b.introductions(), 1 - beyond);
        assert_eq!(pair.b.stats().malformed, beyond as u64);
    }
}

/// B calls a peer that has called b meanwhile, and another one answers at its address.
#[test]
fn nonsense_behind_an_impostors_answer_does_not_end_the_session_of_its_victim() {
    let (mut pair, link) = called_by_its_callee();
    assert_eq!(replies(&mut pair, link), (vec![0], false));
    let body = hello(200, 5, 0);
    let mut reply = Header::new(Kind::Reply, 0, 0);
    reply.body_len = body.len() as u32;
    pair.answer(0, reply.emit(), body);
    pair.answer(0, [0xff; 32], Vec::new());
    pair.run();
    assert!(pair.left(0));
    assert_eq!(pair.b.stats().malformed, 1);
    assert_eq!(pair.b.owner_mut().next_down(), None);
    assert_eq!(pair.b.remotes(), 1);
}

#[test]
fn a_peer_that_says_it_is_another_known_one_is_not_taken_for_it() {
    let mut pair = Pair::new();
    // B has let in a peer called 555, and a.
    let link = pair.stranger();
    connect(&mut pair, link, hello(555, 9, 0));
    pair.run();
    assert_eq!(replies(&mut pair, link), (vec![0], false));
    pair.connected();
    // It calls the former, which says: I know you already, as a's association.
    let other = Target {
        nic: NicId(555),
        ..pair.target(Side::A)
    };
    pair.b.connect(other, pair::KEY, bits(0), 5).unwrap();
    pair.run();
    let (asked, _) = pair.told(link).0.pop().expect("it is asked");
    let mut header = Header::parse(&asked).expect("a header");
    assert_eq!(header.kind, Kind::Connect);
    (header.kind, header.aux, header.length) = (Kind::Reply, 4, 2);
    let body = hello(100, 1, 0);
    header.body_len = body.len() as u32;
    pair.inject(link, header.emit(), body);
    pair.run();
    let done = pair.b.owner_mut().next_completion().expect("it ends");
    assert_ne!(done.status, Status::Success);
    assert_eq!(pair.b.remotes(), 1, "a is still there");
}

#[test]
fn a_token_is_not_told_before_a_name_is_proven() {
    let mut pair = Pair::with_keys();
    pair.prove(Proof::Refuted);
    let forger = pair.stranger();
    connect(&mut pair, forger, hello(100, 5, 0));
    pair.run();
    let (packets, _) = pair.told(forger);
    assert_eq!(packets.len(), 1);
    assert!(packets[0].1[32..].iter().all(|byte| *byte == 0));
}

#[test]
fn one_source_has_its_share_of_the_places_and_others_get_in() {
    let mut pair = Pair::with_places(16);
    let (mut in_, mut links) = (0, Vec::new());
    for n in 0..16 {
        let link = pair.stranger();
        pair.comes_from(link, 0x0a00_0001);
        connect(&mut pair, link, hello(200 + n, 5, 0));
        pair.run();
        in_ += u32::from(replies(&mut pair, link).0 == [0]);
        links.push(link);
    }
    assert_eq!((in_, pair.b.remotes()), (8, 8));
    let other = pair.stranger();
    pair.comes_from(other, 0x0a00_0002);
    connect(&mut pair, other, hello(300, 5, 0));
    pair.run();
    assert_eq!(replies(&mut pair, other).0, [0]);
    // A remote that leaves gives its place back.
    let bye = Header::new(Kind::Disconnect, 0, 0);
    // The other one's place makes the share one less.
    pair.inject(links[0], bye.emit(), Vec::new());
    pair.inject(links[1], bye.emit(), Vec::new());
    pair.run();
    assert!(matches!(
        pair.b.owner_mut().next_down(),
        Some(Down {
            reason: DownReason::Disconnected,
            ..
        })
    ));
    let link = pair.stranger();
    pair.comes_from(link, 0x0a00_0001);
    connect(&mut pair, link, hello(400, 5, 0));
    pair.run();
    assert_eq!((replies(&mut pair, link).0, pair.b.remotes()), (vec![0], 8));
}
