//! Two endpoints that call each other, as often and in whatever order they like. Each call becomes
//! a session, and both sides know that all the sessions are those of one process.
//!
//! ```text
//!   link 0   a ---- Connect ----> b ---- Reply ----> a   Claim: link 1 is mine, too
//!   link 1   b ---- Connect ----> a ---- Reply ----> b   Claim: link 0 is mine, too     in every order
//! ```

use super::pair::{self, Acts, Node, Pair, Side, Told};
use super::{EXACT, bits};
use mx_proto::port::LinkDown;
use mx_proto::{Down, DownReason, OpKind, ReceivePosted, RemoteId, RequestId, Status, Target};
use mx_sim::node::are_joined;
use mx_sim::{Buffer, Completion, Reports, Rng};
use std::collections::HashMap;

const SECRETS: [Option<&str>; 2] = [None, Some("one and the same for all")];

/// Returns how a node's connects have ended, the oldest first.
fn connected(node: &mut Node) -> Vec<(Status, RemoteId)> {
    std::iter::from_fn(|| node.next_completion())
        .filter(|done| done.kind == OpKind::Connect)
        .map(|done| (done.status, done.remote))
        .collect()
}

/// Returns the remotes that a node has lost, and why.
fn gone(node: &mut Node) -> Vec<(RemoteId, DownReason)> {
    std::iter::from_fn(|| node.next_down())
        .map(|Down { remote, reason, .. }| (remote, reason))
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

/// Receives a message that is there.
fn receive(node: &mut Node, tag: u64) -> Completion {
    match node.recv(bits(tag), EXACT, Buffer::from(vec![0; 1000]), tag) {
        Ok(ReceivePosted::Complete(done)) => Completion::at_once(done, tag),
        other => panic!("message {tag} is not there: {other:?}"),
    }
}

/// Exchanges more messages each way than the first credits pay for, one after the other.
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

/// Asserts that a node whose remotes are all of one process was told so for each before it saw
/// anything of that remote.
pub(super) fn check_told(node: &Node) {
    let (mut seen, mut joined) = (Vec::new(), Vec::new());
    for told in &node.owner().told {
        match *told {
            Told::Joined(one, other) => joined.push((one, other)),
            Told::Seen(remote) if !seen.contains(&remote) => {
                let is_joined = |other: &RemoteId| are_joined(&joined, remote, *other);
                let in_time = seen.is_empty() || seen.iter().any(is_joined);
                assert!(
                    in_time,
                    "{remote:?} is seen too early: {:?}",
                    node.owner().told
                );
                seen.push(remote);
            }
            Told::Seen(_) => {}
        }
    }
}

/// Messages of one side so far, by remote; their contents are their numbers.
#[derive(Default)]
struct Talker {
    sent: HashMap<RemoteId, u8>,
    got: HashMap<RemoteId, u8>,
}

impl Talker {
    fn say(&mut self, node: &mut Node, to: RemoteId) {
        let sent = self.sent.entry(to).or_default();
        *sent += 1;
        node.sends(to, bits(1), vec![*sent], 0);
    }

    /// Processes events: sends a message to each remote that has accepted a call, and answers the
    /// first message of each.
    fn listen(&mut self, node: &mut Node) {
        assert_eq!(gone(node), []);
        for (status, remote) in connected(node) {
            assert_eq!(status, Status::Success);
            self.say(node, remote);
        }
        while node.probe(bits(1), EXACT).is_some() {
            let buffer = Buffer::from(vec![0; 1]);
            let got = node.recv(bits(1), EXACT, buffer.clone(), 0);
            let Ok(ReceivePosted::Complete(done)) = got else {
                panic!("it is there: {got:?}");
            };
            let count = self.got.entry(done.remote).or_default();
            *count += 1;
            assert_eq!(buffer.bytes(), [*count], "in order, and none twice");
            if *count == 1 {
                self.say(node, done.remote);
            }
        }
        check_told(node);
    }

    fn sum(counts: &HashMap<RemoteId, u8>) -> u32 {
        counts.values().map(|count| u32::from(*count)).sum()
    }
}

/// Two endpoints that have called each other, or an endpoint that has called itself; they talk as
/// soon as they can.
pub(super) struct Meeting {
    pub(super) pair: Pair,
    talkers: [Talker; 2],
}

impl Meeting {
    /// Begins the calls in `calls`, each of which names the caller and the target.
    pub(super) fn begin(secret: Option<&str>, calls: &[(Side, Target)]) -> Self {
        let mut pair = Pair::with_secrets(secret, secret, 0, 1);
        for (side, target) in calls {
            let node = of(&mut pair, *side);
            node.connect(*target, pair::KEY, bits(0), 1).unwrap();
        }
        Self {
            pair,
            talkers: Default::default(),
        }
    }

    fn listen(&mut self) {
        let [a, b] = &mut self.talkers;
        a.listen(&mut self.pair.a);
        b.listen(&mut self.pair.b);
    }

    /// Lets everything arrive; asserts that each message arrives once.
    fn finish(&mut self) {
        while !self.pair.due().is_empty() {
            self.pair.run();
            self.listen();
        }
        let sent = self.talkers.each_ref().map(|it| Talker::sum(&it.sent));
        let got = self.talkers.each_ref().map(|it| Talker::sum(&it.got));
        assert_eq!(sent[0] + sent[1], got[0] + got[1], "{sent:?} {got:?}");
        let stats = [self.pair.a.stats(), self.pair.b.stats()];
        assert!(stats.iter().all(|it| it.stale == 0 && it.malformed == 0));
    }
}

/// Runs meetings in every order of the first `depth` arrivals. After these everything else arrives,
/// and `end` checks the result. Returns the number of orders.
pub(super) fn every_order(
    depth: usize,
    begin: impl Fn() -> Meeting,
    end: impl Fn(&mut Meeting),
) -> usize {
    let (mut path, mut orders) = (Vec::new(), 0);
    loop {
        let mut meeting = begin();
        let mut widths = Vec::new();
        while widths.len() < depth {
            let due = meeting.pair.due();
            let next = path.get(widths.len()).copied().unwrap_or(0);
            let Some((side, link)) = due.get(next).copied() else {
                break;
            };
            widths.push(due.len());
            meeting.pair.step(side, link);
            meeting.listen();
        }
        meeting.finish();
        end(&mut meeting);
        orders += 1;
        // The next path changes the last choice that has another alternative.
        path.resize(widths.len(), 0);
        while path.pop().is_some_and(|last| {
            let more = last + 1 < widths[path.len()];
            if more {
                path.push(last + 1);
            }
            !more
        }) {}
        if path.is_empty() {
            return orders;
        }
    }
}

/// Asserts that each call has become a session, and that there are no other links.
fn all_stand(meeting: &mut Meeting, sessions: usize) {
    let Pair { a, b, .. } = &meeting.pair;
    assert_eq!((a.remotes(), b.remotes()), (sessions, sessions));
    assert_eq!(meeting.pair.links(), sessions);
    let talkers = &meeting.talkers;
    assert!(talkers.iter().all(|it| it.got.len() == sessions));
}

#[test]
fn two_that_call_each_other_have_two_sessions_in_every_order() {
    for secret in SECRETS {
        let begin = || {
            let pair = Pair::new();
            let (a, b) = (pair.target(Side::A), pair.target(Side::B));
            Meeting::begin(secret, &[(Side::A, b), (Side::B, a)])
        };
        let orders = every_order(13, begin, |meeting| all_stand(meeting, 2));
        assert!(orders > 1_000, "{orders}");
    }
}

#[test]
fn calls_of_two_names_are_two_sessions_of_one_process() {
    let begin = || {
        let pair = Pair::new();
        let (b, alias) = (pair.target(Side::B), pair.alias_of_b());
        Meeting::begin(None, &[(Side::A, b), (Side::A, alias)])
    };
    let orders = every_order(13, begin, |meeting| all_stand(meeting, 2));
    assert!(orders > 1_000, "{orders}");
    // Meanwhile the other endpoint calls.
    let begin = || {
        let pair = Pair::new();
        let (b, alias) = (pair.target(Side::B), pair.alias_of_b());
        let a = pair.target(Side::A);
        Meeting::begin(None, &[(Side::A, b), (Side::A, alias), (Side::B, a)])
    };
    let orders = every_order(8, begin, |meeting| all_stand(meeting, 3));
    assert!(orders > 1_000, "{orders}");
}

/// Returns two endpoints that have called each other; a's names for the session of its own call and
/// that of b's call; b's names for its own and that of a's call.
fn crossed() -> (Pair, [RemoteId; 2], [RemoteId; 2]) {
    let mut pair = Pair::new();
    let (a, b) = (pair.target(Side::A), pair.target(Side::B));
    pair.a.connect(b, pair::KEY, bits(0), 1).unwrap();
    pair.b.connect(a, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let mut sides = [(&mut pair.a, 101), (&mut pair.b, 100)].map(|(node, peer)| {
        let [(Status::Success, own)] = connected(node)[..] else {
            panic!("it is accepted");
        };
        let mut all = node.named(peer);
        all.retain(|remote| *remote != own);
        [own, all[0]]
    });
    let [of_a, of_b] = &mut sides;
    (pair, *of_a, *of_b)
}

#[test]
fn of_two_sessions_one_ends_and_the_other_goes_on() {
    for cut in [false, true] {
        let (mut pair, [own, called], [own_of_b, called_of_b]) = crossed();
        // Messages that wait in the session that ends do not arrive, and nothing else is lost.
        pair.freeze_b = true;
        send(&mut pair.a, called, 2, 10);
        if cut {
            pair.cut_link(0);
        } else {
            pair.a.disconnect(own);
        }
        pair.freeze_b = false;
        pair.run();
        assert_eq!(receive(&mut pair.b, 2).remote, own_of_b);
        let reason = if cut {
            assert_eq!(gone(&mut pair.a)[0].0, own);
            DownReason::Link(LinkDown::Reset)
        } else {
            DownReason::Disconnected
        };
        assert_eq!(gone(&mut pair.b), [(called_of_b, reason)]);
        assert_eq!((pair.a.remotes(), pair.b.remotes()), (1, 1));
        talk(&mut pair, called, own_of_b, "the other one");
        // A further call is again a session of its own with the same process.
        let again = pair.connected();
        assert_eq!((pair.links(), pair.a.remotes()), (3, 2));
        let last = [&pair.a, &pair.b].map(|node| *node.owner().told.last().expect("told"));
        assert_eq!(last[0], Told::Seen(again));
        assert!(pair.a.owner().told.contains(&Told::Joined(again, called)));
        assert_eq!((gone(&mut pair.a), gone(&mut pair.b)), (vec![], vec![]));
    }
}

#[test]
fn a_call_that_is_hung_up_takes_nothing_of_another_along() {
    let mut pair = Pair::new();
    let (b, alias) = (pair.target(Side::B), pair.alias_of_b());
    let given_up = pair.a.connect(b, pair::KEY, bits(0), 1).unwrap();
    pair.step(Side::A, 0);
    pair.step(Side::B, 0);
    // The call has been accepted, and a has not received the answer.
    pair.a.connect(alias, pair::KEY, bits(0), 2).unwrap();
    pair.step(Side::A, 1);
    pair.step(Side::B, 1);
    pair.step(Side::A, 1);
    let [(Status::Success, of_b)] = connected(&mut pair.a)[..] else {
        panic!("it is accepted");
    };
    send(&mut pair.a, of_b, 1, 10);
    assert!(pair.a.cancel_unmatched(given_up));
    pair.run();
    let of_a = receive(&mut pair.b, 1).remote;
    let lost = gone(&mut pair.b);
    assert!(lost.len() == 1 && lost[0].0 != of_a, "{lost:?}");
    assert_eq!(gone(&mut pair.a), []);
    talk(&mut pair, of_b, of_a, "the second");
    assert_eq!((pair.a.remotes(), pair.b.remotes()), (1, 1));
}

/// Random calls, messages and ends, with packets of each link that arrive at random times.
#[test]
fn no_peer_is_taken_for_a_stranger_whatever_crosses() {
    mx_sim::seeds::each(500, |seed| {
        for tombstones in [0, 8] {
            for secret in SECRETS {
                anything_crosses(seed, tombstones, secret);
            }
        }
    });
}

/// A side of a run with random operations.
#[derive(Default)]
pub(super) struct Caller {
    connects: Vec<RequestId>,
    pub(super) remotes: Vec<RemoteId>,
    calls_itself: bool,
}

impl Caller {
    /// Makes a caller that calls itself.
    pub(super) fn of_itself() -> Self {
        Self {
            calls_itself: true,
            ..Self::default()
        }
    }

    /// Processes events.
    pub(super) fn look(&mut self, node: &mut Node, what: &str) {
        for (remote, reason) in gone(node) {
            let ours = [DownReason::Disconnected, DownReason::Link(LinkDown::Closed)];
            assert!(ours.contains(&reason), "down: {reason}; {what}");
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

/// Receives the waiting messages; if `next`, also leaves a receive for the next one.
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

/// Returns the number of sessions of a node, without the kept names of ended ones.
fn sessions(node: &Node) -> usize {
    let places = 0..node.view_places();
    places
        .filter(|place| node.view_at(*place).is_some())
        .count()
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
            // The newest links are those on which something happens.
            let newest = pair.links() - 1;
            let link = newest - rng.index(pair.links().min(4));
            if !slow[link] || rng.chance(0.05) {
                pair.step(side, link);
            }
        }
        callers[0].look(&mut pair.a, &what);
        callers[1].look(&mut pair.b, &what);
    }
    // Everything arrives; then the two can talk.
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
    // Messages that still wait here are received.
    for _ in 0..20 {
        receive_all(&mut pair.a, true);
        receive_all(&mut pair.b, true);
        pair.run();
    }
    while pair.a.next_completion().is_some() || pair.b.next_completion().is_some() {}
    talk(&mut pair, of_a, of_b, &what);
    assert_eq!((gone(&mut pair.a), gone(&mut pair.b)), (vec![], vec![]));
    // Each has one session that the other one called.
    assert_eq!((sessions(&pair.a), sessions(&pair.b)), (2, 2), "{what}");
}
