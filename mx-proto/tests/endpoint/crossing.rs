//! Both call each other, part and call again, and the links between them take their time.
//!
//! ```text
//!   link 0   b ---- calls ----> a      slow
//!   link 1   a ---- calls ----> b      they talk; a parts, which b has not heard
//!   link 2   a -- calls again -> b     slow, too: a's new association meets b's old one on link 0
//! ```

use super::pair::{self, Acts, Node, Pair, Side};
use super::{EXACT, bits};
use mx_proto::port::LinkDown;
use mx_proto::{Down, DownReason, OpKind, Received, RemoteId, RequestId, Status, Target};
use mx_sim::Buffer;
use mx_sim::Completion;
use mx_sim::Rng;

/// The ends of a node's connects, the oldest first.
fn connected(node: &mut Node) -> Vec<(Status, RemoteId)> {
    std::iter::from_fn(|| node.next_completion())
        .filter(|done| done.kind == OpKind::Connect)
        .map(|done| (done.status, done.remote))
        .collect()
}

/// Why its remotes have gone.
fn gone(node: &mut Node) -> Vec<DownReason> {
    std::iter::from_fn(|| node.next_down())
        .map(|Down { reason, .. }| reason)
        .collect()
}

fn of(pair: &mut Pair, side: Side) -> &mut Node {
    match side {
        Side::A => &mut pair.a,
        Side::B => &mut pair.b,
    }
}

fn send(node: &mut Node, to: RemoteId, tag: u64, len: usize) {
    let data = Buffer::from(vec![tag as u8; len]);
    node.sends(to, bits(tag), data, 0);
}

/// Takes out a message that has come.
fn receive(node: &mut Node, tag: u64) -> Completion {
    match node.recv(bits(tag), EXACT, Buffer::from(vec![0; 1000]), tag) {
        Ok(Received::Complete(done)) => Completion::at_once(done, tag),
        other => panic!("message {tag} is not there: {other:?}"),
    }
}

/// More messages each way than a first window has, one after the other.
fn talk(pair: &mut Pair, of_a: RemoteId, of_b: RemoteId, what: &str) {
    for tag in 1..=20 {
        send(&mut pair.a, of_a, 100 + tag, 900);
        send(&mut pair.b, of_b, 200 + tag, 900);
        pair.run();
        for (node, tag) in [(&mut pair.b, 100 + tag), (&mut pair.a, 200 + tag)] {
            assert!(node.probe(bits(tag), EXACT).is_some(), "{tag}, {what}");
            let done = receive(node, tag);
            assert_eq!((done.status, done.transferred), (Status::Success, 900));
        }
    }
}

#[test]
fn an_old_association_that_meets_a_new_one_takes_no_credit_along() {
    for tombstones in [0, 8] {
        for heard_first in [false, true] {
            met_by_an_old_one(tombstones, heard_first);
        }
    }
}

/// `heard_first`: b hears of a's end before its own call is answered, which has met a's next.
fn met_by_an_old_one(tombstones: usize, heard_first: bool) {
    let what = format!("tombstones: {tombstones}, heard first: {heard_first}");
    let mut pair = Pair::keeping(tombstones);
    let (a, b) = (pair.target(Side::A), pair.target(Side::B));
    pair.hold(&[0]);
    pair.b.connect(a, pair::KEY, bits(0), 1).unwrap();
    pair.a.connect(b, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let (status, of_a) = connected(&mut pair.a)[0];
    assert_eq!(status, Status::Success);
    // B learns a's name by a message, and both have used more than a first window.
    send(&mut pair.a, of_a, 1, 10);
    pair.run();
    let of_b = receive(&mut pair.b, 1).remote;
    talk(&mut pair, of_a, of_b, &what);

    pair.hold(&[0, 1, 2]);
    pair.a.disconnect(of_a);
    pair.a.connect(b, pair::KEY, bits(0), 2).unwrap();
    assert_eq!(pair.links(), 3);
    if heard_first {
        // B's Connect is on its way when it hears of the end.
        pair.step(Side::B, 0);
        pair.hold(&[0, 2]);
        pair.run();
        assert_eq!(gone(&mut pair.b), [DownReason::Disconnected], "{what}");
    }
    pair.hold(&[1, 2]);
    pair.run();
    let (status, of_b) = connected(&mut pair.b)[0];
    assert_eq!(status, Status::Success, "{what}");
    // Packets of the old link are delayed, and a's own call is answered at last.
    send(&mut pair.b, of_b, 2, 10);
    pair.hold(&[2]);
    pair.run();
    let of_a = receive(&mut pair.a, 2).remote;
    talk(&mut pair, of_a, of_b, &what);
    pair.hold(&[]);
    pair.run();
    assert_eq!(connected(&mut pair.a), [(Status::Success, of_a)], "{what}");
    talk(&mut pair, of_a, of_b, &what);
    let late = if heard_first {
        vec![]
    } else {
        vec![DownReason::Disconnected]
    };
    assert_eq!(
        (gone(&mut pair.a), gone(&mut pair.b)),
        (vec![], late),
        "{what}"
    );
    assert_eq!((pair.a.remotes(), pair.b.remotes()), (1, 1), "{what}");
}

/// A reaches b under another address, where b has begun a later association, or had an earlier one.
#[test]
fn the_later_of_two_associations_goes_on_whichever_address_leads_to_it() {
    let mut pair = Pair::new();
    let of_a = pair.connected();
    send(&mut pair.a, of_a, 1, 10);
    pair.run();
    let of_b = receive(&mut pair.b, 1).remote;
    pair.hold(&[0]);
    pair.b.disconnect(of_b);
    let alias = pair.alias_of_b();
    pair.a.connect(alias, pair::KEY, bits(0), 2).unwrap();
    pair.run();
    let [(Status::Success, later)] = connected(&mut pair.a)[..] else {
        panic!("it gets there");
    };
    pair.hold(&[]);
    send(&mut pair.a, later, 2, 10);
    pair.run();
    assert_eq!(gone(&mut pair.a), [DownReason::Disconnected]);
    let of_b = receive(&mut pair.b, 2).remote;
    talk(&mut pair, later, of_b, "the later one");

    // One packet at a time: the answer, before what ends its association.
    let mut pair = Pair::with_secrets(None, None, 0, 1);
    pair.a.connect(alias, pair::KEY, bits(0), 1).unwrap();
    pair.step(Side::A, 0);
    pair.step(Side::B, 0);
    let a = pair.target(Side::A);
    let old = pair.b.remote_of(a.nic, a.endpoint);
    pair.b.disconnect(old.expect("a has introduced itself"));
    pair.hold(&[0]);
    pair.b.connect(a, pair::KEY, bits(0), 2).unwrap();
    pair.run();
    let (status, of_b) = connected(&mut pair.b)[0];
    assert_eq!(status, Status::Success);
    send(&mut pair.b, of_b, 1, 10);
    pair.run();
    let of_a = receive(&mut pair.a, 1).remote;
    pair.step(Side::A, 0);
    let [(Status::Success, earlier)] = connected(&mut pair.a)[..] else {
        panic!("it was accepted");
    };
    pair.run();
    assert_eq!(gone(&mut pair.a), [DownReason::Disconnected]);
    pair.a.connect(alias, pair::KEY, bits(0), 3).unwrap();
    pair.run();
    assert_eq!(connected(&mut pair.a), [(Status::Success, of_a)]);
    assert_ne!(of_a, earlier);
    talk(&mut pair, of_a, of_b, "after the answer of the earlier one");
    assert_eq!((gone(&mut pair.a), gone(&mut pair.b)), (vec![], vec![]));
}

/// Each calls the other over another network; before the answer comes, one of them calls the other once more, by the
/// name that the other's call has come from.
#[test]
fn a_call_by_the_name_of_one_who_calls_meanwhile_makes_no_second_association() {
    for second in [Side::A, Side::B] {
        for first_answered in [true, false] {
            let what = format!("{second:?} calls twice, {first_answered}");
            let mut pair = Pair::new();
            let (a, b) = (pair.target(Side::A), pair.target(Side::B));
            let (alias_of_a, alias_of_b) = (pair.alias_of_a(), pair.alias_of_b());
            let (other, its_name, its_alias) = match second {
                Side::A => (Side::B, b, alias_of_b),
                Side::B => (Side::A, a, alias_of_a),
            };
            let name = pair.target(second);
            let node = of(&mut pair, other);
            node.connect(name, pair::KEY, bits(0), 1).unwrap();
            let node = of(&mut pair, second);
            node.connect(its_alias, pair::KEY, bits(0), 2).unwrap();
            // The links come up, both calls are accepted, and the answers are under way.
            for (side, link) in [(other, 0), (second, 1), (second, 0), (other, 1)] {
                pair.step(side, link);
            }
            assert_eq!(pair.links(), 2);
            let node = of(&mut pair, second);
            node.connect(its_name, pair::KEY, bits(0), 3).unwrap();
            if first_answered {
                pair.hold(&[1]);
                pair.run();
                pair.hold(&[]);
            }
            pair.run();
            let ours = connected(of(&mut pair, second));
            assert_eq!(ours.len(), 2, "{what}");
            assert!(
                ours.iter().all(|end| *end == (Status::Success, ours[0].1)),
                "{what}: {ours:?}"
            );
            let theirs = connected(of(&mut pair, other));
            let [(Status::Success, of_second)] = theirs[..] else {
                panic!("{what}: {theirs:?}");
            };
            assert_eq!((pair.a.remotes(), pair.b.remotes()), (1, 1), "{what}");
            let (of_a, of_b) = match second {
                Side::A => (ours[0].1, of_second),
                Side::B => (of_second, ours[0].1),
            };
            talk(&mut pair, of_a, of_b, &what);
        }
    }
}

/// Calls, messages and ends in any order, and packets of each link at any time.
#[test]
fn no_peer_is_taken_for_a_stranger_whatever_crosses() {
    mx_sim::seeds::each(500, |seed| {
        for tombstones in [0, 8] {
            for secret in [None, Some("one and the same for all")] {
                anything_crosses(seed, tombstones, secret);
            }
        }
    });
}

/// One side of a run with random operations.
#[derive(Default)]
pub(super) struct Caller {
    connects: Vec<RequestId>,
    pub(super) remotes: Vec<RemoteId>,
    calls_itself: bool,
}

impl Caller {
    /// One whose remotes are itself.
    pub(super) fn of_itself() -> Self {
        Self {
            calls_itself: true,
            ..Self::default()
        }
    }

    /// Takes in what has happened.
    pub(super) fn look(&mut self, node: &mut Node, what: &str) {
        while let Some(event) = node.next_down() {
            let Down { remote, reason, .. } = event;
            let ours = match reason {
                DownReason::Link(LinkDown::Closed) => !self.calls_itself,
                _ => reason == DownReason::Disconnected,
            };
            assert!(ours, "down: {reason}; {what}");
            self.remotes.retain(|known| *known != remote);
        }
        while let Some(done) = node.next_completion() {
            self.connects.retain(|connect| *connect != done.request);
            let lives = node.remote_identity(done.remote).is_some();
            if done.kind == OpKind::Connect && done.status == Status::Success && lives {
                self.remotes.push(done.remote);
            }
        }
    }

    pub(super) fn act(&mut self, node: &mut Node, other: Target, rng: &mut Rng) {
        match rng.below(8) {
            0 | 1 => {
                let connect = node.connect(other, pair::KEY, bits(0), 1).unwrap();
                self.connects.push(connect);
            }
            2 if !self.connects.is_empty() => {
                let connect = self.connects.swap_remove(rng.index(self.connects.len()));
                node.cancel_unmatched(connect);
            }
            3 if !self.remotes.is_empty() => {
                let remote = self.remotes[0];
                node.disconnect(remote);
                self.remotes.retain(|known| *known != remote);
            }
            4..=6 if !self.remotes.is_empty() => {
                let to = self.remotes[rng.index(self.remotes.len())];
                for _ in 0..rng.within(1..=12) {
                    send(node, to, 7, rng.pick(&[0, 100, 5_000, 40_000]));
                }
            }
            _ => receive_all(node, !self.calls_itself),
        }
    }
}

/// Receives what waits here, and what comes `next`.
pub(super) fn receive_all(node: &mut Node, next: bool) {
    for _ in 0..100 {
        let there = node.probe(bits(7), EXACT).is_some();
        if there || next {
            let memory = Buffer::from(vec![0; 40_000]);
            node.recv(bits(7), EXACT, memory, 0).unwrap();
        }
        if !there {
            return;
        }
    }
}

fn anything_crosses(seed: u64, tombstones: usize, secret: Option<&str>) {
    let what = format!("seed {seed}, tombstones: {tombstones}, secret: {secret:?}");
    let mut rng = Rng::new(seed);
    let mut pair = Pair::with_secrets(secret, secret, tombstones, 1);
    let (a, b) = (pair.target(Side::A), pair.target(Side::B));
    let mut callers = [Caller::default(), Caller::default()];
    let mut slow = Vec::new();
    for _ in 0..rng.within(20..=400) {
        while slow.len() < pair.links() {
            slow.push(rng.chance(0.4));
        }
        if rng.chance(0.1) || pair.links() == 0 {
            if rng.chance(0.5) {
                callers[0].act(&mut pair.a, b, &mut rng);
            } else {
                callers[1].act(&mut pair.b, a, &mut rng);
            }
        } else {
            let side = if rng.chance(0.5) { Side::A } else { Side::B };
            // The newest links are those where something happens.
            let newest = pair.links() - 1;
            let link = newest - rng.index(pair.links().min(4));
            if !slow[link] || rng.chance(0.05) {
                pair.step(side, link);
            }
        }
        callers[0].look(&mut pair.a, &what);
        callers[1].look(&mut pair.b, &what);
    }
    // All arrives; then they can talk.
    pair.run();
    callers[0].look(&mut pair.a, &what);
    callers[1].look(&mut pair.b, &what);
    pair.a.connect(b, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let (status, of_a) = connected(&mut pair.a).pop().expect("it has ended");
    assert_eq!(status, Status::Success, "{what}");
    pair.b.connect(a, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let (status, of_b) = connected(&mut pair.b).pop().expect("it has ended");
    assert_eq!(status, Status::Success, "{what}");
    // Whatever waits here of before is received.
    for _ in 0..20 {
        receive_all(&mut pair.a, true);
        receive_all(&mut pair.b, true);
        pair.run();
    }
    while pair.a.next_completion().is_some() || pair.b.next_completion().is_some() {}
    talk(&mut pair, of_a, of_b, &what);
    assert_eq!((gone(&mut pair.a), gone(&mut pair.b)), (vec![], vec![]));
}
