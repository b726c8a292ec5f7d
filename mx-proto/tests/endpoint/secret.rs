//! A site's secret: only peers that know it are accepted and believed.

use super::pair::{self, Acts, Pair, Side};
use super::{bits, waiting};
use mx_proto::port::HeaderBytes;
use mx_proto::wire::{Header, Kind};
use mx_proto::{MatchMask, Status};
use mx_sim::{CallOff, Cancelled, Reports};

const OURS: Option<&str> = Some("one and the same for all");
const ANOTHER: Option<&str> = Some("something else altogether");

type Packet = (HeaderBytes, Vec<u8>);
/// The impostor's answer to a Connect.
type Answer = fn(&Packet) -> Packet;

fn pair(a: Option<&str>, b: Option<&str>) -> Pair {
    Pair::with_secrets(a, b, 0, 64)
}

fn kind(packet: &Packet) -> Kind {
    Header::parse(&packet.0).expect("a header").kind
}

fn kinds(packets: &[Packet]) -> Vec<Kind> {
    packets.iter().map(kind).collect()
}

fn packet(kind: Kind, aux: u32, body: Vec<u8>) -> Packet {
    let mut header = Header::new(kind, 0, 0);
    (header.aux, header.body_len) = (aux, body.len() as u32);
    (header.emit(), body)
}

/// Makes a message that carries its data.
fn message(body: Vec<u8>) -> Packet {
    let mut header = Header::new(Kind::Eager, 0, body.len() as u32);
    header.body_len = header.length;
    (header.emit(), body)
}

/// Asserts that there is no remote and nothing is under way.
fn no_remotes(pair: &mut Pair) {
    assert_eq!((pair.a.remotes(), pair.b.remotes()), (0, 0));
    assert_eq!((pair.a.requests(), pair.b.requests()), (0, 0));
    assert_eq!((pair.a.next_down(), pair.b.next_down()), (None, None));
}

/// Has a call an impostor without the secret. Returns the link and a's Connect.
fn lured(pair: &mut Pair) -> (usize, Packet) {
    let target = pair.impostor();
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let link = pair.links() - 1;
    let mut said = pair.said(link);
    assert_eq!(kinds(&said), [Kind::Connect]);
    (link, said.remove(0))
}

/// Returns genuine packets of a session that has ended: a's Connect, b's Challenge, a's Prove.
fn recorded(pair: &mut Pair) -> [Packet; 3] {
    let (called, connect) = lured(pair);
    let calls = pair.stranger();
    pair.inject(calls, connect.0, connect.1.clone());
    pair.run();
    let (mut told, _) = pair.told(calls);
    assert_eq!(kinds(&told), [Kind::Challenge]);
    let challenge = told.remove(0);
    pair.answer(called, challenge.0, challenge.1.clone());
    pair.run();
    let mut said = pair.said(called);
    assert_eq!(kinds(&said), [Kind::Prove]);
    let b = pair.a.named(pair::IMPOSTOR)[0];
    pair.a.disconnect(b);
    pair.run();
    assert_eq!(
        pair.a.next_completion().map(|done| done.status),
        Some(Status::Unreachable)
    );
    no_remotes(pair);
    [connect, challenge, said.remove(0)]
}

#[test]
fn another_secret_or_none_ends_the_connect_at_once() {
    for (a, b) in [(OURS, ANOTHER), (ANOTHER, OURS), (OURS, None), (None, OURS)] {
        let mut pair = pair(a, b);
        for _ in 0..3 {
            assert_eq!(pair.call().0, Status::BadSecret, "{a:?} {b:?}");
            while pair.b.next_down().is_some() {}
            no_remotes(&mut pair);
        }
        let counted = [&pair.a, &pair.b].map(|of| of.stats().refused);
        assert!(
            counted[0] >= 3 && (b.is_none() || counted[1] >= 3),
            "{counted:?}"
        );
    }
    // A program that connects again does not retry this call.
    let mut pair = Pair::with_secrets(OURS, None, 8, 64);
    assert_eq!(pair.call().0, Status::BadSecret);
    assert_eq!(pair.links(), 1);
}

#[test]
fn nothing_recorded_is_worth_anything_again() {
    let mut pair = pair(OURS, OURS);
    let [connect, challenge, prove] = recorded(&mut pair);
    // Replayed to b, whose challenge has another nonce now.
    for proof in [
        prove.1.clone(),
        challenge.1[40..].to_vec(),
        vec![],
        vec![0; 32],
    ] {
        let (header, body) = packet(Kind::Prove, 0, proof);
        // Sent before the challenge has come, and after it; in both cases the proof counts as the
        // answer.
        for early in [true, false] {
            let link = pair.stranger();
            pair.inject(link, connect.0, connect.1.clone());
            if !early {
                pair.run();
                assert_eq!(kinds(&pair.told(link).0), [Kind::Challenge]);
                // The challenge that was recorded, and this one.
                assert_eq!(pair.b.introductions(), 2);
            }
            pair.inject(link, header, body.clone());
            pair.run();
            let (told, closed) = pair.told(link);
            let told = told.last().map(|last| Header::parse(&last.0).unwrap());
            let told = told.map(|header| (header.kind, header.aux));
            let refused = (Kind::Reply, 5);
            assert_eq!((told, closed), (Some(refused), true), "early: {early}");
            no_remotes(&mut pair);
        }
    }
    // Replayed to a, whose nonce is another.
    let (link, _) = lured(&mut pair);
    pair.answer(link, challenge.0, challenge.1.clone());
    pair.run();
    assert_eq!(pair.said(link), []);
    assert_eq!(
        pair.a.next_completion().map(|done| done.status),
        Some(Status::BadSecret)
    );
    no_remotes(&mut pair);
}

#[test]
fn what_comes_behind_a_wrong_proof_does_not_keep_the_link() {
    let mut pair = pair(OURS, OURS);
    let [connect, challenge, _] = recorded(&mut pair);
    let (wrong, proof) = packet(Kind::Prove, 0, vec![0; 32]);
    // A connect with a wrong key is rejected, and its sender may have sent one with the right key
    // behind it.
    let mut other_key = connect.clone();
    other_key.1[8] ^= 1;
    // With room for the rejection, and with the room full of unread answers.
    for unread in [0, 7] {
        let link = pair.stranger();
        pair.inject(link, connect.0, connect.1.clone());
        pair.run();
        for _ in 0..unread {
            pair.inject(link, other_key.0, other_key.1.clone());
        }
        pair.run();
        pair.inject(link, wrong, proof.clone());
        pair.inject(link, connect.0, connect.1.clone());
        pair.run();
        pair.inject(link, connect.0, connect.1.clone());
        pair.run();
        let (mut told, _) = pair.told(link);
        pair.run();
        let (rest, closed) = pair.told(link);
        told.extend(rest);
        let asked = kinds(&told)
            .iter()
            .filter(|it| **it == Kind::Challenge)
            .count();
        let last = Header::parse(&told.last().expect("an answer").0).unwrap();
        assert_eq!(
            (asked, last.kind, last.aux),
            (1, Kind::Reply, 5),
            "{unread} unread"
        );
        assert!(closed, "{unread} unread");
        no_remotes(&mut pair);
    }
    // The same for a called peer with a wrong proof.
    let (link, connect) = lured(&mut pair);
    let (mut reply, hello) = packet(Kind::Reply, 0, hello_of(&connect));
    reply[8..16].copy_from_slice(&connect.0[8..16]);
    for (header, body) in [challenge.clone(), challenge, (reply, hello)] {
        pair.answer(link, header, body);
    }
    pair.run();
    assert_eq!(pair.said(link), []);
    assert!(pair.left(link), "closed by the caller");
    let done = pair.a.next_completion().map(|done| done.status);
    assert_eq!(done, Some(Status::BadSecret));
    no_remotes(&mut pair);
}

#[test]
fn called_peer_without_secret_can_only_reject() {
    let answers: [(Answer, Status); 7] = [
        (
            |said| packet(Kind::Reply, 0, hello_of(said)),
            Status::BadSecret,
        ),
        (
            |said| packet(Kind::Reply, 1, hello_of(said)),
            Status::BadKey,
        ),
        (
            |said| packet(Kind::Reply, 3, hello_of(said)),
            Status::NoResources,
        ),
        (
            |said| packet(Kind::Connect, 0, hello_of(said)),
            Status::BadSecret,
        ),
        (|_| packet(Kind::Eager, 0, vec![1]), Status::BadSecret),
        (|_| message(vec![1]), Status::BadSecret),
        (|_| packet(Kind::Disconnect, 0, vec![]), Status::BadSecret),
    ];
    for (n, (answer, status)) in answers.into_iter().enumerate() {
        let mut pair = pair(OURS, OURS);
        let (link, said) = lured(&mut pair);
        // No message may match a receive before the peer has answered.
        let buffer = pair.shared(8);
        let receive = waiting(pair.a.recv(bits(0), MatchMask(0), buffer, 2).unwrap());
        let (mut header, body) = answer(&said);
        header[8..16].copy_from_slice(&said.0[8..16]);
        pair.answer(link, header, body);
        pair.run();
        let done = pair.a.next_completion().expect("it ends at once");
        assert_eq!(done.status, status, "answer {n}");
        assert_eq!(pair.a.cancel(receive), Cancelled::Withdrawn);
        no_remotes(&mut pair);
    }
}

fn hello_of(connect: &Packet) -> Vec<u8> {
    connect.1.clone()
}

/// Has a relay without the secret, which a calls, pass a's Connect on to b, which proves that it
/// knows the secret. Returns the link from a to the relay, on which b's proof has been accepted,
/// and a's Connect.
fn laundered(pair: &mut Pair) -> (usize, Packet) {
    let (called, connect) = lured(pair);
    let calls = pair.stranger();
    pair.inject(calls, connect.0, connect.1.clone());
    pair.run();
    let challenge = pair.told(calls).0.remove(0);
    pair.answer(called, challenge.0, challenge.1);
    pair.run();
    let proof = pair.said(called).remove(0);
    pair.inject(calls, proof.0, proof.1);
    pair.run();
    let (header, body) = packet(Kind::Disconnect, 0, vec![]);
    pair.inject(calls, header, body);
    pair.run();
    assert!(pair.b.next_down().is_some());
    (called, connect)
}

#[test]
fn relay_does_not_pass_for_a_peer_with_the_secret() {
    // The relay introduces itself under its own name.
    let mut pair = pair(OURS, OURS);
    let (link, connect) = laundered(&mut pair);
    let (mut header, mut body) = packet(Kind::Reply, 0, hello_of(&connect));
    header[8..16].copy_from_slice(&connect.0[8..16]);
    body[16..24].copy_from_slice(&pair::IMPOSTOR.to_le_bytes());
    pair.answer(link, header, body);
    pair.run();
    let done = pair.a.next_completion().expect("it ends at once");
    assert_eq!(done.status, Status::BadSecret);
    no_remotes(&mut pair);
}

#[test]
fn a_call_to_another_address_than_ours_is_a_relays_and_refused() {
    for secret in [None, OURS] {
        let mut pair = pair(secret, secret);
        pair.translate_none();
        let (_, connect) = lured(&mut pair);
        let calls = pair.stranger();
        pair.inject(calls, connect.0, connect.1);
        pair.run();
        let (told, closed) = pair.told(calls);
        let aux = Header::parse(&told[0].0).expect("a header").aux;
        let (code, is_refused) = if secret.is_some() {
            (6, true)
        } else {
            (0, false)
        };
        assert_eq!((told.len(), aux, closed), (1, code, is_refused));
        assert_eq!(pair.b.stats().unproven, is_refused.into());
    }
    // A call to another address of b's is accepted.
    let mut pair = pair(OURS, OURS);
    pair.translate_none();
    let alias = pair.alias_of_b();
    pair.a.connect(alias, pair::KEY, bits(0), 1).unwrap();
    pair.connected();
}

#[test]
fn peer_that_challenges_for_ever_without_reading_fails() {
    let mut pair = pair(OURS, OURS);
    let (called, connect) = lured(&mut pair);
    let calls = pair.stranger();
    pair.inject(calls, connect.0, connect.1);
    pair.run();
    let challenge = pair.told(calls).0.remove(0);
    pair.read_nothing(called);
    let mut answered = 0;
    while pair.a.stats().malformed == 0 {
        assert!(answered < 20_000, "its proofs are kept for ever");
        pair.answer(called, challenge.0, challenge.1.clone());
        pair.a.progress();
        answered += 1;
    }
    assert!(answered > 256, "a few repeated ones are no violation");
}

#[test]
fn a_stranger_that_says_anything_before_its_proof_is_gone() {
    let mut pair = pair(OURS, OURS);
    let [connect, ..] = recorded(&mut pair);
    for (kind, len) in [(Kind::Eager, 1), (Kind::Reply, 72), (Kind::Challenge, 72)] {
        let link = pair.stranger();
        pair.inject(link, connect.0, connect.1.clone());
        let (header, body) = packet(kind, 0, vec![0; len]);
        pair.inject(link, header, body);
        pair.run();
        assert!(pair.told(link).1, "{kind:?}");
        no_remotes(&mut pair);
    }
    // A stranger may not begin with a proof either.
    let link = pair.stranger();
    let (header, body) = packet(Kind::Prove, 0, vec![0; 32]);
    pair.inject(link, header, body);
    pair.run();
    assert!(pair.told(link).1);
}

#[test]
fn several_connects_on_a_link_are_asked_once() {
    for wrong in 0..3 {
        let mut pair = pair(OURS, OURS);
        let target = pair.target(Side::B);
        for n in 0..3 {
            let key = pair::KEY + u32::from(n == wrong);
            pair.a.connect(target, key, bits(0), n).unwrap();
        }
        pair.run();
        let mut ends: Vec<_> = std::iter::from_fn(|| pair.a.next_completion())
            .map(|done| (done.context, done.status))
            .collect();
        ends.sort_by_key(|(n, _)| *n);
        let expected = |n| {
            if n == wrong {
                (n, Status::BadKey)
            } else {
                (n, Status::Success)
            }
        };
        assert_eq!(ends, [0, 1, 2].map(expected));
        // Three answers and one challenge.
        assert_eq!(pair.a.stats().packets_in, 4);
        assert_eq!(pair.links(), 1);
    }
}
