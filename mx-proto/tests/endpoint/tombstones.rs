//! Messages whose sender has ended: they are received as if it were still there, and only as many
//! as allowed.

use super::pair::{self, Acts, Pair, Side, defer};
use super::{EXACT, bits, completions, connected};
use mx_proto::{
    Arrival, Decision, MatchMask, PostError, ReceivePosted, RemoteId, SendMode, Status,
};
use mx_sim::Reports;

/// Returns two connected endpoints, a's name for b, and b's name for a.
fn associated(tombstones: usize) -> (Pair, RemoteId, RemoteId) {
    let mut pair = Pair::keeping(tombstones);
    let (b, a) = connected(&mut pair);
    assert!(pair.b.set_remote_context(a, 42));
    (pair, b, a)
}

fn send(pair: &mut Pair, to: RemoteId, tag: u64, data: Vec<u8>) {
    pair.a.sends(to, bits(tag), data, 0);
}

/// Sends messages 1 to `count` from a, each as long as its number, and closes a.
fn sent_and_gone(pair: &mut Pair, to: RemoteId, count: u8) {
    for tag in 1..=count {
        send(pair, to, tag.into(), vec![tag; tag.into()]);
    }
    pair.run();
    pair.a.close();
    pair.run();
    let down = pair.b.next_down().expect("told");
    let left = probed(pair, 1).map(|message| message.source);
    assert_eq!((down.context, down.tombstone), (42, left));
}

fn probed(pair: &mut Pair, tag: u64) -> Option<Arrival> {
    pair.b.probe(bits(tag), EXACT)
}

#[test]
fn what_a_sender_left_behind_is_received_under_its_name() {
    let (mut pair, b, a) = associated(8);
    let name = pair.b.remote_identity(a).unwrap();
    sent_and_gone(&mut pair, b, 3);
    assert_eq!(pair.b.remote_identity(a), None);
    assert_eq!(pair.b.unexpected_bytes(), 1 + 2 + 3);
    for tag in [2, 1, 3] {
        let seen = probed(&mut pair, tag).expect("it waits");
        assert_eq!(
            (seen.identity, seen.source_context, seen.length),
            (name, 42, tag as u32)
        );
        let buffer = pair.shared(8);
        let ReceivePosted::Complete(done) =
            pair.b.recv(bits(tag), EXACT, buffer.clone(), 9).unwrap()
        else {
            panic!("message {tag} is there");
        };
        assert_eq!(
            (done.status, done.transferred),
            (Status::Success, tag as u32)
        );
        assert_eq!(
            buffer.bytes()[..tag as usize],
            vec![tag as u8; tag as usize]
        );
        // The receiver may ask for the name of the sender, even after its last message.
        assert_eq!(pair.b.remote_identity(done.remote), Some(name));
        assert_eq!(pair.b.remote_context(done.remote), Some(42));
        assert!(pair.b.is_tombstone(done.remote));
    }
    pair.run();
    assert_eq!((pair.b.remotes(), pair.b.unexpected_bytes()), (0, 0));
}

#[test]
fn no_more_than_allowed_stay_and_the_oldest_do() {
    let (mut pair, b, _) = associated(2);
    sent_and_gone(&mut pair, b, 5);
    let here = |pair: &mut Pair| (1..=5).filter(|tag| probed(pair, *tag).is_some()).count();
    assert_eq!(here(&mut pair), 2);
    assert!(probed(&mut pair, 1).is_some() && probed(&mut pair, 2).is_some());
    assert_eq!(pair.b.unexpected_bytes(), 1 + 2);
    // Space that has become free is used again.
    let one = pair.shared(8);
    pair.b.recv(bits(1), EXACT, one, 0).unwrap();
    pair.restart_a_silently();
    let (b, _) = {
        let target = pair.target(Side::B);
        pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
        pair.run();
        let done = pair.a.next_completion().unwrap();
        (done.remote, ())
    };
    send(&mut pair, b, 4, vec![4; 4]);
    send(&mut pair, b, 5, vec![5; 5]);
    pair.run();
    pair.a.close();
    pair.run();
    assert_eq!(here(&mut pair), 2);
    assert!(probed(&mut pair, 2).is_some() && probed(&mut pair, 4).is_some());
}

#[test]
fn own_disconnect_leaves_nothing_and_forget_clears_all() {
    let (mut pair, b, a) = associated(8);
    send(&mut pair, b, 1, vec![1]);
    pair.run();
    pair.b.disconnect(a);
    assert!(probed(&mut pair, 1).is_none());

    let (mut pair, b, a) = associated(8);
    let name = pair.b.remote_identity(a).unwrap();
    sent_and_gone(&mut pair, b, 2);
    let other = mx_proto::EndpointId(name.endpoint.0 + 1);
    assert!(pair.b.tombstones_of(name.nic, other).is_empty());
    let left = pair.b.tombstones_of(name.nic, name.endpoint);
    assert_eq!(left, [probed(&mut pair, 1).unwrap().source]);
    pair.b.forget_tombstone(left[0]);
    assert!(probed(&mut pair, 1).is_none() && probed(&mut pair, 2).is_none());
    assert_eq!((pair.b.remotes(), pair.b.unexpected_bytes()), (0, 0));
}

#[test]
fn no_peer_is_reached_by_the_name_of_a_tombstone() {
    let (mut pair, b, _) = associated(8);
    sent_and_gone(&mut pair, b, 1);
    let tombstone = probed(&mut pair, 1).unwrap().source;
    let refused = pair.b.send(
        tombstone,
        bits(1),
        pair.filled(vec![1]),
        0,
        SendMode::Standard,
    );
    assert_eq!(refused, Err(PostError::UnknownRemote));
    pair.b.disconnect(tombstone);
    assert!(probed(&mut pair, 1).is_none());
    assert_eq!(pair.b.remotes(), 0);
}

#[test]
fn deferred_message_outlives_a_sender_lost_in_one_poll() {
    let (mut pair, b, _) = associated(8);
    send(&mut pair, b, 1, vec![1]);
    send(&mut pair, b, 2, vec![2, 2]);
    pair.a.close();
    pair.run_with(defer);
    let first = pair.b.next_deferred().expect("the first is shown");
    assert_eq!(
        (first.arrival.bits, first.body()),
        (bits(1), Some(&[1][..]))
    );
    assert_eq!(first.arrival.source_context, 42);
    pair.b.decide(first, Decision::Finished);
    let second = pair.b.next_deferred().expect("and the second");
    pair.b.posts(bits(2), pair.shared(2), 7);
    pair.b.decide(second, Decision::Continue);
    let done = completions(&mut pair.b);
    assert_eq!(
        (done.len(), done[0].status, done[0].context),
        (1, Status::Success, 7)
    );
    pair.run();
    assert_eq!((pair.b.remotes(), pair.b.unexpected_bytes()), (0, 0));
    assert!(pair.b.probe(bits(0), MatchMask(0)).is_none());
}
