//! Strangers with false claims, and what they gain: nothing of others'.

use super::bits;
use super::pair::{self, Acts, Pair};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{EndpointId, NicId, RemoteId, Status};
use std::time::Duration;

/// An introduction as that interface, endpoint 3, in that life, to b.
fn hello(nic: u64, session: u64) -> Vec<u8> {
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
    bytes[48..64].copy_from_slice(&[0x77; 16]);
    bytes
}

fn connect(pair: &mut Pair, cable: usize, body: Vec<u8>) {
    connect_so(pair, cable, body, 0);
}

/// `denied`: so many remotes that b has named are not its own.
fn connect_so(pair: &mut Pair, cable: usize, body: Vec<u8>, denied: u32) {
    let mut header = Header::new(Kind::Connect, 7, denied);
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

fn named(pair: &Pair, nic: u64) -> Option<RemoteId> {
    pair.b.remote_of(NicId(nic), EndpointId(3))
}

/// Neither of the two has lost a peer.
fn nothing_lost(pair: &mut Pair) {
    let lost = |node: &mut pair::Node| node.next_down();
    assert_eq!((lost(&mut pair.a), lost(&mut pair.b)), (None, None));
}

#[test]
fn a_name_is_the_proven_interface_whatever_is_claimed() {
    let mut pair = Pair::new();
    let b = pair.connected();
    let a = named(&pair, 100);
    for (claimed, seen) in [(100, 555), (0, 556), (101, 557)] {
        let stranger = pair.stranger();
        pair.seen_as(stranger, seen);
        connect(&mut pair, stranger, hello(claimed, seen));
        pair.run();
        assert_eq!(replies(&mut pair, stranger), (vec![0], false));
        let remote = named(&pair, seen).expect("it has that name");
        let identity = pair.b.remote_identity(remote).unwrap();
        assert_eq!((identity.nic, identity.session.0), (NicId(seen), seen));
    }
    assert_eq!((named(&pair, 100), named(&pair, 0)), (a, None));
    assert_eq!(pair.b.remotes(), 4);
    pair.talk(b);
}

/// A peer that is busy: its answer comes late, and its messages do not.
#[test]
fn a_peer_of_which_something_comes_is_there() {
    let mut pair = Pair::with_keys();
    let b = pair.connected();
    let link = pair.stranger();
    connect(&mut pair, link, hello(100, 0xbad));
    for _ in 0..4 {
        // The question and its answer wait, on whichever side.
        pair.hold(&[0]);
        pair.advance(Duration::from_millis(600));
        pair.hold(&[]);
        pair.b.progress();
        let eager = Header {
            body_len: 1,
            ..Header::new(Kind::Eager, 9, 1)
        };
        pair.inject_from_a(eager.emit(), vec![1]);
        pair.b.progress();
        pair.hold(&[0]);
        pair.advance(Duration::from_millis(600));
    }
    pair.hold(&[]);
    pair.run();
    nothing_lost(&mut pair);
    assert_eq!(
        (replies(&mut pair, link), pair.b.remotes()),
        ((vec![0], false), 2)
    );
    let _ = b;
}

/// Sessions are no secret: every refusal tells them. A hello can be overheard.
#[test]
fn a_claim_to_a_peers_life_gains_nothing() {
    let mut pair = Pair::with_keys();
    let b = pair.connected();
    let a = named(&pair, 100);
    let overheard = pair.overheard(Kind::Connect);
    let mut others = 0;
    for (nic, body) in [(100, hello(100, 1)), (666, hello(100, 1)), (667, overheard)] {
        for (denied, answer) in [(0, 4), (u32::MAX, 0)] {
            let forger = pair.stranger();
            pair.seen_as(forger, nic);
            connect_so(&mut pair, forger, body.clone(), denied);
            pair.run();
            assert_eq!(
                replies(&mut pair, forger),
                (vec![answer], false),
                "{nic} {denied}"
            );
            others += usize::from(denied > 0);
            pair.talk(b);
            pair.advance(Duration::from_secs(2));
            assert_eq!((pair.b.remotes(), named(&pair, 100)), (1 + others, a));
        }
    }
    nothing_lost(&mut pair);
    // It is found by its life as before: a calls under another name, and gets there.
    let alias = pair.alias_of_b();
    pair.a.connect(alias, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let done = pair.a.next_completion().expect("it ends");
    assert_eq!((done.status, done.remote), (Status::Success, b));
}

#[test]
fn a_peer_of_unknown_source_is_refused_and_adds_no_remote() {
    let mut pair = Pair::new();
    let b = pair.connected();
    pair.unname();
    for nic in [100, 555] {
        for session in [1, 0xbad] {
            let forger = pair.stranger();
            connect(&mut pair, forger, hello(nic, session));
            pair.run();
            let (packets, closed) = pair.told(forger);
            let header = Header::parse(&packets[0].0).unwrap();
            assert_eq!((packets.len(), header.aux, closed), (1, 6, true));
            // Nothing that would help it elsewhere.
            assert!(packets[0].1[32..].iter().all(|byte| *byte == 0));
        }
    }
    assert_eq!((pair.b.stats().unproven, pair.b.remotes()), (4, 1));
    pair.talk(b);
    // The refused one is told so.
    let (status, _) = {
        pair.reopen_a(0);
        pair.call()
    };
    assert_eq!(status, Status::Refused);
}

/// B has called a peer, which has called b on the returned link and not answered yet.
fn called_by_its_callee(session: u64) -> (Pair, usize) {
    let mut pair = Pair::with_keys();
    pair.b
        .connect(pair.impostor(), pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    let link = pair.stranger();
    // From another of its addresses.
    pair.seen_as(link, 700);
    connect(&mut pair, link, hello(pair::IMPOSTOR, session));
    pair.run();
    assert_eq!(replies(&mut pair, link), (vec![0], false));
    assert_eq!(pair.b.remotes(), 2);
    (pair, link)
}

/// The peer that b has called answers, with this code and this nonce.
fn answers(pair: &mut Pair, session: u64, code: u32, nonce: [u8; 16]) {
    let (asked, _) = pair.said(0).pop().expect("it is called");
    let mut header = Header::parse(&asked).expect("a header");
    (header.kind, header.aux, header.length) = (Kind::Reply, code, 6);
    let mut body = hello(pair::IMPOSTOR, session);
    body[48..64].copy_from_slice(&nonce);
    header.body_len = body.len() as u32;
    pair.answer(0, header.emit(), body);
    pair.run();
}

fn confirmed(pair: &mut Pair, yes: u32) {
    pair.answer(0, Header::new(Kind::Confirmed, 0, yes).emit(), Vec::new());
    pair.run();
}

#[test]
fn of_two_calls_that_cross_that_of_the_smaller_session_stays() {
    // B, whose session is 2, goes on with its own.
    let (mut pair, link) = called_by_its_callee(9);
    answers(&mut pair, 9, 0, [0; 16]);
    let done = pair.b.next_completion().expect("it ends");
    assert_eq!(
        (done.status, Some(done.remote)),
        (Status::Success, named(&pair, pair::IMPOSTOR))
    );
    assert!(!pair.left(0) && pair.b.remotes() == 2);
    // The peer closes the other one, or b ends it, as it is silent.
    pair.advance(Duration::from_secs(2));
    assert!(pair.told(link).1 && pair.b.remotes() == 1);

    // B gives its own up if the peer says that the other one is its.
    for yes in [1, 0] {
        let (mut pair, link) = called_by_its_callee(1);
        let caller = named(&pair, 700);
        answers(&mut pair, 1, 0, [0; 16]);
        assert_eq!(pair.b.next_completion(), None);
        let asked = pair.said(0);
        let (header, body) = asked.last().expect("it is asked");
        assert_eq!(Header::parse(header).unwrap().kind, Kind::Confirm);
        assert_eq!(body[..16], [0x77; 16]);
        assert_eq!(body[16..], u128::to_be_bytes(700));
        confirmed(&mut pair, yes);
        // It asks once more whether it is welcome, there or here.
        if yes == 1 {
            let (asked, _) = pair.told(link).0.pop().expect("it is called");
            let mut header = Header::parse(&asked).expect("a header");
            assert_eq!((header.kind, header.length), (Kind::Connect, 0));
            let body = hello(pair::IMPOSTOR, 1);
            header.kind = Kind::Reply;
            header.body_len = body.len() as u32;
            pair.inject(link, header.emit(), body);
            pair.run();
        } else {
            answers(&mut pair, 1, 0, [0; 16]);
        }
        let done = pair.b.next_completion().expect("it ends");
        assert_eq!(done.status, Status::Success);
        assert_eq!(
            (Some(done.remote) == caller, pair.left(0)),
            (yes == 1, yes == 1)
        );
        assert_eq!(
            (pair.b.remotes(), pair.told(link).1),
            (2 - yes as usize, false)
        );
        // An answer that was not asked for changes nothing.
        if yes == 0 {
            confirmed(&mut pair, 1);
            assert_eq!((pair.left(0), pair.b.remotes()), (false, 2));
        }
    }
}

#[test]
fn a_call_is_confirmed_only_to_the_life_it_went_to_and_from_where_it_came() {
    let mut pair = Pair::with_keys();
    let a = pair.target(pair::Side::A);
    pair.b.connect(a, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    // A calls b under another name, which b does not hear yet.
    let alias = pair.alias_of_b();
    pair.a.connect(alias, pair::KEY, bits(0), 1).unwrap();
    pair.step(pair::Side::A, 1);
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&pair.overheard_last(Kind::Connect)[48..64]);
    let mut other = nonce;
    other[15] ^= 1;
    let ask = |pair: &mut Pair, nonce: [u8; 16], from: u128| {
        let body = [&nonce[..], &from.to_be_bytes()].concat();
        let mut header = Header::new(Kind::Confirm, 0, 0);
        header.body_len = body.len() as u32;
        // As if b asked.
        pair.inject_to_a(header.emit(), body);
        pair.step(pair::Side::A, 0);
        let answer = pair.overheard_header(Kind::Confirmed);
        answer.length
    };
    for (nonce, from, yes) in [
        (nonce, 100, 1),
        (nonce, pair::ALIAS_OF_A, 1),
        (nonce, 666, 0),
        (other, 100, 0),
        ([0; 16], 100, 0),
    ] {
        assert_eq!(ask(&mut pair, nonce, from), yes, "{from}");
    }
    // Not when a has used the remote that asks.
    let b = pair.target(pair::Side::B);
    pair.hold(&[1]);
    pair.a.connect(b, pair::KEY, bits(0), 2).unwrap();
    pair.run();
    assert_eq!(ask(&mut pair, nonce, 100), 0);
}

#[test]
fn a_peer_that_says_it_is_another_known_one_is_not_taken_for_it() {
    let mut pair = Pair::with_keys();
    pair.b
        .connect(pair.impostor(), pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    pair.connected();
    // It says: I know you already, in a's life. It would have to know the nonce of a's call.
    let nonce = pair.overheard(Kind::Connect)[48..64].try_into().unwrap();
    answers(&mut pair, 1, 4, nonce);
    assert_eq!(pair.b.next_completion(), None);
    let again = pair.said(0);
    let (header, _) = again.last().expect("b denies it");
    assert_eq!(Header::parse(header).unwrap().length, 3 | 1 << 24);
    assert!(!pair.left(0));
    assert_eq!(pair.b.remotes(), 2);
}

#[test]
fn a_peer_that_names_one_remote_after_the_other_is_left() {
    let mut pair = Pair::with_keys();
    pair.b
        .connect(pair.impostor(), pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    let mut named = 0;
    while !pair.left(0) {
        assert!(named < 1000, "b denies for ever");
        answers(&mut pair, 9, 4, [named as u8; 16]);
        named += 1;
    }
    assert!(named > 4);
    let done = pair.b.next_completion().expect("it ends");
    assert_eq!((done.status, pair.b.remotes()), (Status::Unreachable, 0));
}

#[test]
fn of_several_that_have_called_one_after_the_other_is_asked_about() {
    let (mut pair, _) = called_by_its_callee(1);
    let second = pair.stranger();
    pair.seen_as(second, 701);
    connect_so(&mut pair, second, hello(pair::IMPOSTOR, 1), u32::MAX);
    pair.run();
    assert_eq!(replies(&mut pair, second), (vec![0], false));
    answers(&mut pair, 1, 0, [0; 16]);
    for caller in [700, 701] {
        let asked = pair.said(0);
        let (header, body) = asked.last().expect("it is asked");
        assert_eq!(Header::parse(header).unwrap().kind, Kind::Confirm);
        assert_eq!(body[16..], u128::to_be_bytes(caller));
        assert_eq!(pair.b.next_completion(), None);
        confirmed(&mut pair, 0);
    }
    // It is none of them.
    answers(&mut pair, 1, 0, [0; 16]);
    assert_eq!(pair.b.next_completion().unwrap().status, Status::Success);
    assert_eq!((pair.b.remotes(), pair.left(0)), (3, false));
}
