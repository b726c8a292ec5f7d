//! An endpoint that calls itself under each of its addresses: a session whose two ends are both
//! here.

use super::crossing::{Caller, Meeting, every_order, receive_all};
use super::pair::{self, Acts, Node, Pair, Side, Told};
use super::{EXACT, bits, completions, pattern};
use mx_proto::{DownReason, OpKind, ReceivePosted, RemoteId, Status, Target};
use mx_sim::{Reports, Rng};

const SECRETS: [Option<&str>; 2] = [None, Some("one and the same for all")];

/// Returns the names of a.
fn names(pair: &Pair) -> [Target; 2] {
    [pair.target(Side::A), pair.alias_of_a()]
}

/// Returns the remotes with which connects have ended, all of them successfully.
fn connected(node: &mut Node) -> Vec<RemoteId> {
    let done = completions(node).into_iter();
    let connects = done.filter(|done| done.kind == OpKind::Connect);
    let remote = |done: mx_sim::Completion| {
        assert_eq!(done.status, Status::Success);
        done.remote
    };
    connects.map(remote).collect()
}

/// Exchanges messages of all kinds with the other end of a session, in both directions.
fn talk(pair: &mut Pair, remote: RemoteId, what: &str) {
    let other = exchange(pair, remote, what);
    assert_ne!(other, remote, "{what}");
    assert_eq!(exchange(pair, other, what), remote, "{what}");
}

/// Sends messages of all kinds to a remote. Returns the remote from which all of them arrive.
fn exchange(pair: &mut Pair, remote: RemoteId, what: &str) -> RemoteId {
    let mut from = None;
    for (tag, len) in [0, 100, 5_000, 40_000].repeat(8).into_iter().enumerate() {
        let (tag, sent) = (bits(100 + tag as u64), pattern(len, tag as u8));
        pair.a.sends(remote, tag, sent.clone(), 1);
        pair.run();
        let buffer = pair.shared(len);
        let got = match pair.a.recv(tag, EXACT, buffer.clone(), 2).unwrap() {
            ReceivePosted::Complete(done) => mx_sim::Completion::at_once(done, 2),
            ReceivePosted::Pending(_) => {
                pair.run();
                let mut done = completions(&mut pair.a).into_iter();
                let done = done.find(|done| done.context == 2);
                done.unwrap_or_else(|| panic!("{len} bytes do not arrive; {what}"))
            }
        };
        assert_eq!(got.status, Status::Success, "{what}");
        assert_eq!(*from.get_or_insert(got.remote), got.remote, "{what}");
        assert_eq!(buffer.bytes(), sent, "{what}");
        completions(&mut pair.a);
    }
    from.expect("messages have come")
}

/// Asserts that no remote, operation or open link remains.
fn alone(pair: &mut Pair, what: &str) {
    pair.run();
    let rest = (pair.a.remotes(), pair.a.requests());
    assert_eq!(rest, (0, 0), "{what}");
    assert!((0..pair.links()).all(|cable| pair.left(cable)), "{what}");
}

#[test]
fn each_name_of_oneself_is_a_session_with_two_ends() {
    for secret in SECRETS {
        let mut pair = Pair::with_secrets(secret, secret, 0, 1);
        let what = format!("secret: {secret:?}");
        let mut found = Vec::new();
        for name in names(&pair).into_iter().chain(names(&pair)) {
            pair.a.connect(name, pair::KEY, bits(0), 1).unwrap();
            pair.run();
            found.append(&mut connected(&mut pair.a));
        }
        assert_eq!(found[..2], found[2..], "{what}");
        assert_ne!(found[0], found[1], "{what}");
        assert_eq!((pair.a.remotes(), pair.links()), (4, 2), "{what}");
        let own = pair.a.identity().session;
        let is_own = |told: &Told| match told {
            Told::Seen(remote) | Told::Joined(remote, _) => {
                pair.a.remote_identity(*remote).map(|it| it.session) == Some(own)
            }
        };
        assert!(pair.a.owner().told.iter().all(is_own), "{what}");
        for remote in found.drain(..2) {
            talk(&mut pair, remote, &what);
            pair.a.disconnect(remote);
            pair.run();
        }
        // The other ends have been told of the disconnects.
        let ended = std::iter::from_fn(|| pair.a.next_down()).map(|down| down.reason);
        assert_eq!(ended.collect::<Vec<_>>(), [DownReason::Disconnected; 2]);
        alone(&mut pair, &what);
    }
}

#[test]
fn calls_of_oneself_meet_in_every_order() {
    for (count, depth, least) in [(1, 40, 1), (2, 12, 100)] {
        let begin = || {
            let names = names(&Pair::new()).map(|name| (Side::A, name));
            Meeting::begin(None, &names[..count])
        };
        let orders = every_order(depth, begin, |meeting| {
            let known = (meeting.pair.a.remotes(), meeting.pair.links());
            assert_eq!(known, (2 * count, count));
        });
        assert!(orders >= least, "{orders}");
    }
}

/// Random calls under both names, messages and ends, with packets of each link that arrive at
/// random times.
#[test]
fn an_endpoint_comes_to_rest_with_itself_whatever_crosses() {
    mx_sim::seeds::each(400, |seed| {
        for tombstones in [0, 8] {
            for secret in SECRETS {
                anything_crosses(seed, tombstones, secret);
            }
        }
    });
}

fn anything_crosses(seed: u64, tombstones: usize, secret: Option<&str>) {
    let what = format!("seed {seed}, tombstones: {tombstones}, secret: {secret:?}");
    let mut rng = Rng::new(seed);
    let mut pair = Pair::with_secrets(secret, secret, tombstones, 1);
    let mut caller = Caller::of_itself();
    let mut slow = Vec::new();
    for _ in 0..rng.within(20..=400) {
        while slow.len() < pair.links() {
            slow.push(rng.chance(0.4));
        }
        if rng.chance(0.1) || pair.links() == 0 {
            let name = rng.pick(&names(&pair));
            caller.act(&mut pair.a, name, &mut rng);
        } else {
            let newest = pair.links() - 1;
            let link = newest - rng.index(pair.links().min(4));
            if !slow[link] || rng.chance(0.05) {
                pair.step(Side::A, link);
            }
        }
        caller.look(&mut pair.a, &what);
    }
    pair.run();
    for _ in 0..20 {
        receive_all(&mut pair.a, false);
        pair.run();
    }
    caller.look(&mut pair.a, &what);
    for name in names(&pair) {
        pair.a.connect(name, pair::KEY, bits(0), 1).unwrap();
        pair.run();
        let found = connected(&mut pair.a);
        assert_eq!(found.len(), 1, "{what}");
        talk(&mut pair, found[0], &what);
        assert_eq!(pair.a.next_down(), None, "{what}");
        caller.remotes.push(found[0]);
    }
    for remote in caller.remotes {
        pair.a.disconnect(remote);
    }
    alone(&mut pair, &what);
}
