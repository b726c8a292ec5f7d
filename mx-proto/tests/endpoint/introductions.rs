//! Strangers with false claims, which gain nothing that belongs to others.

use super::crossing::check_told;
use super::pair::{self, Acts, Node, Pair, Side, Told};
use super::{EXACT, bits};
use mx_proto::port::LinkDown;
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{DownReason, NicId, OpKind, ReceivePosted, RemoteId, Status};
use mx_sim::Reports;
use std::time::Duration;

/// Makes an introduction to b, as endpoint 3 of interface `nic` in the life `session`.
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
    say(pair, cable, Kind::Connect, body);
}

/// Sends a packet to b from the calling end of a link.
fn say(pair: &mut Pair, cable: usize, kind: Kind, body: Vec<u8>) {
    let mut header = Header::new(kind, 7, 0);
    header.body_len = body.len() as u32;
    if kind == Kind::Eager {
        header.length = header.body_len;
    }
    pair.inject(cable, header.emit(), body);
    pair.run();
}

/// Returns the codes of the replies on a link, and whether b has closed it.
fn replies(pair: &mut Pair, cable: usize) -> (Vec<u32>, bool) {
    let (packets, closed) = pair.told(cable);
    let code = |(header, _): &([u8; 32], Vec<u8>)| Header::parse(header).expect("a header");
    let replies = packets
        .iter()
        .map(code)
        .filter(|header| header.kind == Kind::Reply);
    (replies.map(|header| header.aux).collect(), closed)
}

/// Asserts that neither side has lost a peer.
fn nothing_lost(pair: &mut Pair) {
    let lost = |node: &mut Node| node.next_down();
    assert_eq!((lost(&mut pair.a), lost(&mut pair.b)), (None, None));
}

#[test]
fn a_message_instead_of_an_answer_ends_a_call() {
    let mut pair = Pair::new();
    let target = pair.impostor();
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let mut header = Header::new(Kind::Eager, 1, 1);
    header.body_len = 1;
    pair.a.posts(bits(1), pair.shared(1), 2);
    pair.answer(0, header.emit(), vec![9]);
    pair.run();
    let done = pair.a.next_completion().expect("the call ends");
    assert_eq!(
        (done.kind, done.status),
        (OpKind::Connect, Status::Unreachable)
    );
    assert_eq!((pair.a.stats().malformed, pair.a.stats().matched), (1, 0));
    assert_eq!((pair.a.remotes(), pair.a.posted_receives()), (0, 1));
    assert!(pair.left(0));
}

#[test]
fn a_name_is_the_proven_interface_whatever_is_claimed() {
    let mut pair = Pair::new();
    let b = pair.connected();
    let a = pair.b.named(100);
    for (claimed, seen) in [(100, 555), (0, 556), (101, 557)] {
        let stranger = pair.stranger();
        pair.seen_as(stranger, seen);
        connect(&mut pair, stranger, hello(claimed, seen));
        pair.run();
        assert_eq!(replies(&mut pair, stranger), (vec![0], false));
        let remote = pair.b.named(seen)[0];
        let identity = pair.b.remote_identity(remote).unwrap();
        assert_eq!((identity.nic, identity.session.0), (NicId(seen), seen));
    }
    assert_eq!((pair.b.named(100), pair.b.named(0)), (a, vec![]));
    assert_eq!(pair.b.remotes(), 4);
    pair.talk(b);
}

/// The peer time-out of these tests.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Makes a stranger call b with the name of a, which has called already, and with another life: a
/// further remote at once. Returns b's names for the two, and the stranger's link.
fn with_a_namesake(pair: &mut Pair) -> (RemoteId, RemoteId, usize) {
    let link = pair.stranger();
    pair.seen_as(link, 100);
    connect(pair, link, hello(100, 0xbad));
    assert_eq!(replies(pair, link), (vec![0], false));
    let [old, new] = pair.b.named(100)[..] else {
        panic!("both are there");
    };
    (old, new, link)
}

#[test]
fn the_older_one_of_a_name_is_asked_and_lives_if_it_answers() {
    let mut pair = Pair::losing(TIMEOUT);
    let b = pair.connected();
    let asked = pair.b.stats().packets_out;
    with_a_namesake(&mut pair);
    // The reply and a Ping for the older remote.
    assert_eq!(pair.b.stats().packets_out, asked + 2);
    assert_eq!(pair.b.stats().same_name_pings, 1);
    pair.advance(2 * TIMEOUT);
    assert_eq!(pair.b.remotes(), 2);
    nothing_lost(&mut pair);
    pair.talk(b);
}

#[test]
fn silent_older_remote_of_a_name_times_out_as_usual() {
    let mut pair = Pair::losing(TIMEOUT);
    pair.connected();
    pair.hold(&[0]);
    let (old, new, _) = with_a_namesake(&mut pair);
    pair.advance(TIMEOUT * 3 / 4);
    assert_eq!(pair.b.named(100), [old, new], "a stranger shortens no time");
    pair.advance(TIMEOUT / 2);
    let down = pair.b.next_down().expect("it is lost");
    assert_eq!(down.remote, old);
    assert_eq!(down.reason, DownReason::Link(LinkDown::TimedOut));
    // The newcomer is not affected.
    pair.advance(2 * TIMEOUT);
    assert_eq!((pair.b.named(100), pair.b.next_down()), (vec![new], None));
}

/// A busy peer, which answers late but whose messages arrive.
#[test]
fn a_peer_of_which_something_comes_is_there() {
    let mut pair = Pair::losing(TIMEOUT);
    pair.connected();
    pair.hold(&[0]);
    let (old, new, _) = with_a_namesake(&mut pair);
    for _ in 0..4 {
        pair.advance(TIMEOUT * 3 / 4);
        pair.hold(&[]);
        pair.freeze_b = false;
        say(&mut pair, 0, Kind::Eager, vec![1]);
        pair.hold(&[0]);
    }
    assert_eq!(
        (pair.b.named(100), pair.b.next_down()),
        (vec![old, new], None)
    );
}

#[test]
fn without_a_peer_time_out_each_newcomer_has_the_others_asked() {
    let mut pair = Pair::new();
    let b = pair.connected();
    with_a_namesake(&mut pair);
    for life in 0..4 {
        let link = pair.stranger();
        pair.seen_as(link, 100);
        connect(&mut pair, link, hello(100, 0xbad00 + life));
    }
    assert_eq!((pair.b.remotes(), pair.b.stats().same_name_pings), (6, 15));
    pair.talk(b);
    nothing_lost(&mut pair);
}

/// Returns the pairs of remotes that a node has been told are of one process.
fn joins(node: &Node) -> Vec<(RemoteId, RemoteId)> {
    let told = node.owner().told.iter();
    let joined = told.filter_map(|told| match *told {
        Told::Joined(one, other) => Some((one, other)),
        Told::Seen(_) => None,
    });
    joined.collect()
}

/// Lives are not secret: every rejection contains one. A hello can be overheard.
#[test]
fn a_claim_to_a_peers_life_gains_nothing() {
    for secret in [None, Some("one and the same for all")] {
        let mut pair = Pair::with_secrets(secret, secret, 0, 64);
        let b = pair.connected();
        let a = pair.b.named(100);
        let overheard = pair.overheard(Kind::Connect);
        let hellos = [(100, hello(100, 1)), (666, hello(100, 1)), (667, overheard)];
        let mut forgers = Vec::new();
        for (nic, body) in [hellos.clone(), hellos].concat() {
            let forger = pair.stranger();
            pair.seen_as(forger, nic);
            connect(&mut pair, forger, body);
            if secret.is_some() {
                assert_eq!(replies(&mut pair, forger), (vec![], false));
                continue;
            }
            assert_eq!(replies(&mut pair, forger), (vec![0], false));
            // Its messages are its own.
            say(&mut pair, forger, Kind::Eager, vec![1]);
            let got = pair.b.recv(bits(7), EXACT, pair.shared(1), 0);
            let Ok(ReceivePosted::Complete(done)) = got else {
                panic!("it has come: {got:?}");
            };
            assert!(!a.contains(&done.remote) && !forgers.contains(&done.remote));
            assert_eq!(pair.b.named(nic).last(), Some(&done.remote));
            forgers.push(done.remote);
            pair.talk(b);
            assert_eq!(pair.b.remotes(), 1 + forgers.len());
        }
        assert_eq!((joins(&pair.a), joins(&pair.b)), (vec![], vec![]));
        nothing_lost(&mut pair);
        // A's own sessions are joined as if there were no others, whichever of the two calls.
        let (alias, own) = (pair.alias_of_b(), pair.target(Side::A));
        pair.a.connect(alias, pair::KEY, bits(0), 1).unwrap();
        pair.b.connect(own, pair::KEY, bits(0), 1).unwrap();
        pair.run();
        check_told(&pair.a);
        for node in [&mut pair.a, &mut pair.b] {
            assert_eq!(node.ended(), Status::Success);
            assert!(joins(node).len() >= 2, "{:?}", joins(node));
        }
        let joined = joins(&pair.b).into_iter();
        let mut joined = joined.flat_map(|(one, other)| [one, other]);
        assert!(joined.all(|remote| !forgers.contains(&remote)));
    }
}

/// Returns two endpoints that have called each other, and a's claim of its second session, which b
/// received on link 0.
fn claimed() -> (Pair, Vec<u8>) {
    let mut pair = Pair::with_keys();
    let (a, b) = (pair.target(Side::A), pair.target(Side::B));
    pair.a.connect(b, pair::KEY, bits(0), 1).unwrap();
    pair.b.connect(a, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let said = pair.said(0).into_iter();
    let mut claims = said.filter(|(header, _)| header[0] == Kind::Claim as u8);
    let (_, claim) = claims
        .next()
        .expect("of two calls that cross one is claimed");
    assert_eq!((joins(&pair.a).len(), joins(&pair.b).len()), (1, 1));
    (pair, claim)
}

#[test]
fn a_claim_counts_for_one_session_and_one_claimant() {
    // The same claim again is no news.
    let (mut pair, claim) = claimed();
    say(&mut pair, 0, Kind::Claim, claim.clone());
    assert_eq!(joins(&pair.b), [joins(&pair.b)[0]; 2]);
    let before = joins(&pair.b);
    // Changed claims: another session, an interface, the proof, or the session on which it comes.
    let itself = pair.overheard(Kind::Reply)[48..56].to_vec();
    let mut wrong: Vec<_> = [0, 8, 16, 24, 39].map(|at| flipped(&claim, at)).into();
    wrong.push([&itself[..], &claim[8..]].concat());
    wrong.push(vec![0; claim.len()]);
    for (stale, claim) in (1..).zip(wrong) {
        say(&mut pair, 0, Kind::Claim, claim);
        assert_eq!(
            (joins(&pair.b), pair.b.stats().stale),
            (before.clone(), stale)
        );
    }
    // Claims on other sessions: that of a's second call, and a forger's.
    pair.a
        .connect(pair.alias_of_b(), pair::KEY, bits(0), 2)
        .unwrap();
    pair.run();
    let forger = pair.stranger();
    pair.seen_as(forger, 100);
    connect(&mut pair, forger, hello(100, 1));
    let (before, stale) = (joins(&pair.b), pair.b.stats().stale);
    for (count, link) in (1..).zip([2, forger, 1]) {
        if link == 1 {
            // The caller of this session is b.
            let mut header = Header::new(Kind::Claim, 0, 0);
            header.body_len = claim.len() as u32;
            pair.answer(link, header.emit(), claim.clone());
            pair.run();
        } else {
            say(&mut pair, link, Kind::Claim, claim.clone());
        }
        assert_eq!(
            (joins(&pair.b), pair.b.stats().stale),
            (before.clone(), stale + count)
        );
    }
    // A claim on a session that has ended.
    let own = pair.b.named(100)[0];
    pair.b.disconnect(own);
    pair.run();
    say(&mut pair, 0, Kind::Claim, claim);
    assert_eq!(joins(&pair.b), before);
    assert_eq!((pair.b.stats().malformed, pair.b.next_down()), (0, None));
}

fn flipped(claim: &[u8], at: usize) -> Vec<u8> {
    let mut claim = claim.to_vec();
    claim[at] ^= 1;
    claim
}

#[test]
fn a_claim_before_a_hello_or_too_short_is_a_violation() {
    let (mut pair, claim) = claimed();
    let before = joins(&pair.b);
    let stranger = pair.stranger();
    say(&mut pair, stranger, Kind::Claim, claim.clone());
    assert!(pair.told(stranger).1, "it says nothing of itself first");
    assert_eq!((pair.b.remotes(), pair.b.stats().malformed), (2, 1));
    // A claim on the link of a call that is not answered yet.
    pair.b
        .connect(pair.impostor(), pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    let link = pair.links() - 1;
    let mut header = Header::new(Kind::Claim, 0, 0);
    header.body_len = claim.len() as u32;
    pair.answer(link, header.emit(), claim.clone());
    pair.run();
    assert_eq!((pair.b.stats().stale, pair.left(link)), (1, false));
    // A claim that is too short.
    let forger = pair.stranger();
    pair.seen_as(forger, 666);
    connect(&mut pair, forger, hello(666, 9));
    let remote = pair.b.named(666)[0];
    say(&mut pair, forger, Kind::Claim, claim[1..].to_vec());
    let down = pair.b.next_down().expect("it is left");
    assert_eq!(down.remote, remote);
    let why = "a malformed claim";
    assert!(down.reason.to_string().contains(why), "{}", down.reason);
    assert_eq!((joins(&pair.b), pair.b.stats().malformed), (before, 2));
}

/// Nothing is kept for strangers: a challenge is made anew when its link has room, and a link
/// without room for a rejection ends.
#[test]
fn stranger_without_room_waits_and_is_dropped_silently() {
    let secret = Some("one and the same for all");
    let mut pair = Pair::with_secrets(secret, secret, 0, 64);
    let (asked, refused) = (pair.stranger(), pair.stranger());
    for (stranger, key) in [(asked, pair::KEY), (refused, !pair::KEY)] {
        pair.read_nothing(stranger);
        let mut hello = hello(666, stranger as u64);
        hello[8..12].copy_from_slice(&key.to_le_bytes());
        connect(&mut pair, stranger, hello);
        assert_eq!(pair.told(stranger), (vec![], stranger == refused));
    }
    for _ in 0..2 {
        // The second time the link had room already.
        pair.read_again(asked);
    }
    let (packets, closed) = pair.told(asked);
    let [(challenge, _)] = &packets[..] else {
        panic!("{packets:?}")
    };
    let kind = Header::parse(challenge).expect("a header").kind;
    assert_eq!((kind, closed), (Kind::Challenge, false));
    assert_eq!(pair.b.remotes(), 0);
}

/// A rejected stranger may have sent a valid hello in the same round.
#[test]
fn rejected_stranger_keeps_its_link_if_its_next_hello_is_valid() {
    for secret in [None, Some("one and the same for all")] {
        let mut pair = Pair::with_secrets(secret, secret, 0, 64);
        for keys in [&[!pair::KEY, pair::KEY][..], &[!pair::KEY]] {
            let stranger = pair.stranger();
            pair.seen_as(stranger, 666);
            let mut header = Header::new(Kind::Connect, 7, 0);
            header.body_len = HELLO_LEN as u32;
            for key in keys {
                let mut hello = hello(666, stranger as u64);
                hello[8..12].copy_from_slice(&key.to_le_bytes());
                pair.inject(stranger, header.emit(), hello);
            }
            pair.run();
            assert_eq!(pair.told(stranger).1, keys.len() == 1, "{secret:?}");
        }
        assert_eq!(pair.b.remotes(), usize::from(secret.is_none()));
    }
}

/// Calls of our own wait for room.
#[test]
fn a_connect_goes_when_its_link_has_room() {
    let mut pair = Pair::new();
    let target = pair.target(Side::B);
    pair.read_nothing(0);
    for context in 0..2 {
        pair.a.connect(target, pair::KEY, bits(0), context).unwrap();
    }
    pair.run();
    assert_eq!((pair.b.remotes(), pair.a.next_completion()), (0, None));
    pair.read_again(0);
    let ends = std::iter::from_fn(|| pair.a.next_completion());
    let ends: Vec<_> = ends.map(|done| (done.context, done.status)).collect();
    assert_eq!(ends, [0, 1].map(|context| (context, Status::Success)));
    assert_eq!((pair.b.remotes(), pair.b.stats().packets_in), (1, 2));
}

/// A relay presents its own session to each of the two as one with the other; each claims it in
/// good faith.
#[test]
fn a_session_by_way_of_a_relay_is_not_joined() {
    let mut pair = Pair::with_keys();
    pair.translate_none();
    pair.a
        .connect(pair.impostor(), pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    let (called, calls) = (0, pair.stranger());
    pair.seen_as(calls, pair::IMPOSTOR);
    for (header, body) in pair.said(called) {
        pair.inject(calls, header, body);
    }
    pair.run();
    for (header, body) in pair.told(calls).0 {
        pair.answer(called, header, body);
    }
    pair.run();
    assert_eq!(pair.a.ended(), Status::Success);
    // Both have it under the relay's name, with the life of the other.
    let relayed = [&pair.a, &pair.b].map(|node| node.named(pair::IMPOSTOR)[0]);
    let life = pair.b.remote_identity(relayed[1]).map(|it| it.session);
    assert_eq!(life, Some(pair.a.identity().session));
    // Now a calls b itself, and the relay passes on all packets in both directions.
    let b = pair.connected();
    for _ in 0..4 {
        for (header, body) in pair.said(called) {
            pair.inject(calls, header, body);
        }
        for (header, body) in pair.told(calls).0 {
            pair.answer(called, header, body);
        }
        pair.run();
    }
    let claims = pair.overheard(Kind::Claim);
    assert_eq!(claims.len(), 40, "a has claimed it");
    assert_eq!((joins(&pair.a), joins(&pair.b)), (vec![], vec![]));
    pair.talk(b);
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
            // The rejection contains nothing that would help the forger elsewhere.
            assert!(packets[0].1[32..].iter().all(|byte| *byte == 0));
        }
    }
    assert_eq!((pair.b.stats().unproven, pair.b.remotes()), (4, 1));
    pair.talk(b);
    // The rejected caller is told so.
    let (status, _) = {
        pair.reopen_a(0);
        pair.call()
    };
    assert_eq!(status, Status::Refused);
}

/// Makes b call an impostor, which answers with that life and nonce. Returns the link.
fn answered(life: u64, nonce: impl Fn(&[u8]) -> Vec<u8>) -> (Pair, usize) {
    let mut pair = Pair::with_keys();
    // B has a session with another peer, which called it.
    pair.connected();
    pair.b
        .connect(pair.impostor(), pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    let (asked, said) = pair.said(1).pop().expect("it is called");
    let mut header = Header::parse(&asked).expect("a header");
    let mut body = hello(pair::IMPOSTOR, life);
    body[48..64].copy_from_slice(&nonce(&said[48..64]));
    (header.kind, header.body_len) = (Kind::Reply, body.len() as u32);
    pair.answer(1, header.emit(), body);
    pair.run();
    (pair, 1)
}

#[test]
fn a_peer_that_answers_as_ourselves_is_left() {
    let (mut pair, _) = answered(9, |_| vec![1; 16]);
    assert_eq!(pair.b.ended(), Status::Success);
    let of_another = pair.overheard(Kind::Reply)[48..64].to_vec();
    let own = |called: &[u8]| called.to_vec();
    for nonce in [own, |_: &[u8]| vec![1; 16]] {
        let (mut pair, link) = answered(2, nonce);
        assert_eq!(pair.b.ended(), Status::Unreachable);
        assert!(pair.left(link));
        assert_eq!((pair.b.remotes(), pair.b.stats().malformed), (1, 1));
    }
    // The nonce of another peer's session that began here.
    let (mut pair, link) = answered(2, |_| of_another.clone());
    assert_eq!(pair.b.ended(), Status::Unreachable);
    assert!(pair.left(link));
}

/// A link with two ends at one endpoint. TCP makes such a link if two sockets dial each other's
/// port, or one dials its own.
#[test]
fn a_call_that_comes_back_on_its_own_link_is_over() {
    for secret in [None, Some("one and the same for all")] {
        let mut pair = Pair::with_secrets(secret, secret, 0, 64);
        pair.a
            .connect(pair.impostor(), pair::KEY, bits(0), 1)
            .unwrap();
        pair.run();
        let (header, body) = pair.said(0).remove(0);
        pair.answer(0, header, body);
        pair.run();
        let status = pair.a.ended();
        assert!(matches!(status, Status::Unreachable | Status::BadSecret));
        assert!(pair.left(0));
        assert_eq!((pair.a.remotes(), pair.a.requests()), (0, 0));
    }
}
