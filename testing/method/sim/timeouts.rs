//! Time-outs of the method on the simulated network: which operations end, when, how, and which
//! stay.

use crate::rig::Rig;
use bmi_method::abi::constants::*;
use bmi_method::method::Settings;
use bmi_method::peer::state::State;
use mx_proto::Instant;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(800);

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// Makes two connected nodes.
fn pair(seed: u64, settings: Settings) -> (Rig, NodeId, NodeId) {
    let mut rig = Rig::new(seed);
    rig.settings = settings;
    pair_of(rig)
}

fn pair_of(mut rig: Rig) -> (Rig, NodeId, NodeId) {
    rig.endpoint.peer_timeout = Some(TIMEOUT);
    let (a, b) = (rig.add(Profile::default()), rig.add(Profile::default()));
    rig.introduce(a, b);
    (rig, a, b)
}

/// Runs until the operation has ended; returns its code and duration.
fn end(rig: &mut Rig, node: NodeId, label: u64, began: Instant) -> (i32, Duration) {
    let code = rig.wait(node, label);
    (code, rig.now().since(began))
}

fn is_ready(rig: &mut Rig, node: NodeId, with: NodeId) -> bool {
    let addr = rig.host(node).addr(with);
    matches!(rig.peek(node).state(addr), State::Ready(_))
}

#[test]
fn frozen_peer_ends_operations_and_is_reached_again() {
    type Post = fn(&mut Rig, NodeId, NodeId) -> u64;
    let posts: [Post; 5] = [
        |rig, a, b| rig.host(a).recv(b, 1, 10),
        |rig, a, b| rig.host(a).recv(b, 1, 1 << 20),
        |rig, a, b| rig.host(a).send(b, 2, &[1; 300_000]),
        |rig, a, b| rig.host(a).send_unexpected(b, 3, &[1; 300_000]),
        // More small messages than there are credits for: the last one has to wait.
        |rig, a, b| {
            let all: Vec<_> = (0..600).map(|_| rig.host(a).send(b, 4, &[1; 10])).collect();
            all[599]
        },
    ];
    // Small sends that have to wait are copied and complete at once, or they are not.
    let cases = posts
        .into_iter()
        .flat_map(|post| [(post, 0), (post, usize::MAX)]);
    for (seed, (post, copies)) in cases.enumerate() {
        let mut rig = Rig::new(seed as u64);
        rig.endpoint.copies = copies;
        let (mut rig, a, b) = pair_of(rig);
        rig.cluster.stall(b, TIMEOUT * 4);
        let began = rig.now();
        let first = post(&mut rig, a, b);
        let at_once = rig.peek(a).error(first);
        // All other operations end with it.
        let more = rig.host(a).recv(b, 77, 5);
        if at_once.is_none() {
            let (code, took) = end(&mut rig, a, first, began);
            assert_eq!(code, -BMI_ETIMEDOUT, "operation {seed}");
            assert!(took >= TIMEOUT * 15 / 16 - millis(1), "{took:?}");
            assert!(took <= TIMEOUT + TIMEOUT / 16, "{took:?}");
        } else {
            assert_eq!((seed, at_once), (9, Some(0)));
        }
        assert_eq!(rig.wait(a, more), -BMI_ETIMEDOUT);
        assert_eq!(rig.peek(a).method.endpoint().flow_stats().copies, 0);
        assert!(rig.now().since(began) <= TIMEOUT + TIMEOUT / 16);
        assert_eq!(rig.peek(a).outstanding(), [0u64; 0]);
        assert_eq!(rig.peek(a).method.operations(), 0);
        let addr = rig.host(a).addr(b);
        assert_eq!(rig.peek(a).state(addr), State::Init);
        // While the peer is still away, the next post waits for it.
        let again = rig.host(a).send_unexpected(b, 5, b"again");
        rig.run_for(TIMEOUT * 4);
        assert_eq!(rig.peek(b).got.last().unwrap().bytes, b"again");
        assert_eq!(rig.wait(a, again), 0);
        let caller = rig.peek(b).got.last().unwrap().addr();
        rig.host(b).use_addr(a, caller);
        rig.talk(a, b);
    }
}

#[test]
fn our_own_absence_is_not_held_against_the_peer() {
    let (mut rig, a, b) = pair(22, Settings::default());
    let recv = rig.host(a).recv(b, 2, 10);
    for _ in 0..20 {
        rig.cluster.stall(a, TIMEOUT * 3);
        rig.run_for(TIMEOUT * 4);
    }
    assert_eq!(rig.peek(a).outstanding(), [recv]);
    rig.host(b).send(a, 2, b"hello");
    assert_eq!(rig.wait(a, recv), 0);
}

/// Sets the time-out of each class; 0 is none.
fn classes(send: u64, unexpected: u64, recv: u64) -> Settings {
    let limit = |span| (span > 0).then(|| millis(span));
    Settings {
        send_timeout: limit(send),
        unexpected_timeout: limit(unexpected),
        recv_timeout: limit(recv),
        ..Settings::default()
    }
}

/// Checks the code of an ended operation, and that it took about `span`.
fn check(rig: &mut Rig, node: NodeId, label: u64, began: Instant, span: u64) {
    let (code, took) = end(rig, node, label, began);
    assert_eq!(code, -BMI_ETIMEDOUT);
    let most = millis(span) + millis(130);
    assert!(
        took >= millis(span) && took <= most,
        "{took:?}, not {span} ms"
    );
}

#[test]
fn each_operation_class_has_its_own_timeout() {
    let (mut rig, a, b) = pair(30, classes(1_000, 2_000, 3_000));
    rig.peek(b).fetching = false;
    let began = rig.now();
    let send = rig.host(a).send(b, 1, &[1; 100_000]);
    // The first message fills the queue, so that the second one stays with its sender.
    rig.host(a).send_unexpected(b, 3, &[1; 3 << 20]);
    let full: Vec<_> = (0..30)
        .map(|_| rig.host(a).send_unexpected(b, 3, &[1; 3 << 20]))
        .collect();
    let recv = rig.host(a).recv(b, 2, 10);
    check(&mut rig, a, send, began, 1_000);
    check(&mut rig, a, full[29], began, 2_000);
    check(&mut rig, a, recv, began, 3_000);
    assert!(is_ready(&mut rig, a, b));
    rig.talk(a, b);
    // A cancelled message never arrives.
    let late = rig.host(b).recv(a, 1, 100_000);
    rig.run_for(millis(2_000));
    assert_eq!(rig.peek(b).error(late), None);
}

#[test]
fn the_time_before_the_connection_counts() {
    let mut rig = Rig::new(33);
    rig.settings = classes(2_000, 0, 2_000);
    let (a, b) = (rig.add(Profile::default()), rig.add(Profile::default()));
    rig.cluster.stall(b, millis(1_500));
    let began = rig.now();
    let recv = rig.host(a).recv(b, 2, 10);
    let send = rig.host(a).send(b, 1, &[1; 100_000]);
    // Without a limit it waits as long as the peer lives.
    let unexpected = rig.host(a).send_unexpected(b, 3, b"x");
    rig.run_for(millis(1_600));
    assert_eq!(rig.peek(a).error(unexpected), Some(0));
    assert!(is_ready(&mut rig, a, b));
    check(&mut rig, a, send, began, 2_000);
    check(&mut rig, a, recv, began, 2_000);
}
