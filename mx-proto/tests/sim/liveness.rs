//! Remotes that fall silent on the simulated network: they are noticed in time, and no others count
//! as dead.

use crate::rig::{NIC, Rig, Side};
use mx_proto::port::{LinkDown, Port};
use mx_proto::reliability::{Reliable, ReliableConfig};
use mx_proto::{
    Down, DownReason, EndpointId, Instant, MatchBits, MatchMask, ReceivePosted, RemoteId,
    RequestId, SendMode, SendPosted, Status,
};
use mx_sim::scenario::key;
use mx_sim::world::{NodeId, World};
use mx_sim::{Buffer, CallOff, DatagramNet, Rng, SimDatagrams, Terms, seeds};
use std::time::Duration;

/// Makes two connected endpoints.
fn rig(seed: u64, peer_timeout: Duration) -> (Rig, RemoteId) {
    let mut rig = Rig::reliable(seed, 2, peer_timeout);
    let remote = rig.connect(1);
    (rig, remote)
}

/// Makes two connected endpoints over datagrams, on a network that reports names that are not open.
fn over_datagrams(seed: u64, peer_timeout: Duration) -> (Rig<Reliable<SimDatagrams>>, RemoteId) {
    let mut rig = datagram_rig(seed, peer_timeout);
    let remote = rig.connect(1);
    (rig, remote)
}

/// Makes two endpoints over datagrams that are not connected.
fn datagram_rig(seed: u64, peer_timeout: Duration) -> Rig<Reliable<SimDatagrams>> {
    let world = World::new(seed);
    let net = DatagramNet::new(&world, Terms::default());
    let open = |node: NodeId| {
        let name = EndpointId(node as u32);
        let datagrams = SimDatagrams::open(&net, node, NIC, name).expect("a free name");
        let key = key(&mut Rng::new(node as u64));
        Reliable::new(datagrams, ReliableConfig::default(), key)
    };
    Rig::with(&world, 2, open, peer_timeout)
}

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

impl<P: Port<Buffer>> Rig<P> {
    /// Returns the number of packets that the first endpoint has received, without making it work.
    fn heard(&mut self) -> u64 {
        self.look(0).endpoint.stats().packets_in
    }

    /// Begins a send that is not received.
    fn send(&mut self, to: RemoteId, len: usize) -> RequestId {
        let memory = Buffer::new(vec![1; len]);
        let (bits, mode) = (MatchBits(1), SendMode::Synchronous);
        match self.side(0).endpoint.send(to, bits, memory, 5, mode) {
            Ok(SendPosted::Pending(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    /// Posts a receive for messages of that remote only, none of which comes.
    fn recv_from(&mut self, node: NodeId, remote: RemoteId) -> RequestId {
        let memory = Buffer::new(vec![0; 10]);
        let (bits, mask) = (MatchBits(77), MatchMask::EXACT);
        let endpoint = &mut self.side(node).endpoint;
        match endpoint.recv_from(remote, bits, mask, (memory, 6)) {
            Ok(ReceivePosted::Pending(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn recv(&mut self, node: NodeId) {
        let memory = Buffer::new(vec![0; 1 << 20]);
        let (bits, mask) = (MatchBits(1), MatchMask::EXACT);
        let received = self.side(node).endpoint.recv(bits, mask, memory, 6);
        received.expect("good bits");
    }
}

/// Returns the time from `since` until the remote was lost, which must be because of its silence.
fn lost_after(rig: &mut Rig, since: Instant) -> Duration {
    let (at, Down { reason, .. }) = rig.side(0).down.pop().expect("the remote is lost");
    assert_eq!(reason, DownReason::Link(LinkDown::TimedOut));
    assert_eq!(rig.side(0).endpoint.stats().peer_timeouts, 1);
    at.since(since)
}

/// Asserts that a remote was lost in time, counted from the last packet and the first operation.
fn check_span(took: Duration, timeout: Duration) {
    let least = timeout * 15 / 16;
    assert!(took >= least - millis(1), "{took:?} of {timeout:?}");
    assert!(
        took <= timeout + timeout / 50 + millis(3),
        "{took:?} of {timeout:?}"
    );
}

#[test]
fn frozen_remote_times_out_and_can_be_reached_again() {
    for (seed, timeout) in [100, 500, 777, 20_000, 3_600_000].into_iter().enumerate() {
        let timeout = millis(timeout);
        for len in [10, 300_000] {
            let (mut rig, remote) = rig(seed as u64, timeout);
            rig.cluster.stall(1, timeout * 3);
            let began = rig.world.now();
            rig.send(remote, len);
            rig.run(timeout * 2);
            check_span(lost_after(&mut rig, began), timeout);
            let (_, ended) = rig.side(0).completions.pop().expect("the send ends");
            assert_eq!((ended.status, ended.context), (Status::Timeout, 5));
            assert_eq!(rig.side(0).endpoint.requests(), 0);
            rig.run(timeout * 2);
            // The remote runs again and has noticed that its link has ended.
            assert_eq!(rig.side(1).endpoint.remotes(), 0);
            let again = rig.connect(1);
            rig.send(again, len);
            rig.recv(1);
            rig.run(millis(50));
            assert_eq!(rig.side(0).completions[0].1.status, Status::Success);
        }
    }
}

#[test]
fn silence_counts_from_the_last_packet_in_a_transfer() {
    let timeout = millis(1_600);
    for moment in [0, 1, 40, 99, 100, 130, 777] {
        let (mut rig, remote) = rig(moment, timeout);
        rig.send(remote, 400_000);
        rig.run(millis(moment));
        let heard = rig.heard();
        rig.recv(1);
        // Wait until the first part is asked for.
        while rig.heard() == heard {
            rig.cluster.step();
        }
        assert_eq!(rig.side(0).completions, []);
        let began = rig.world.now();
        rig.cluster.stall(1, timeout * 3);
        rig.run(timeout * 2);
        let took = lost_after(&mut rig, began);
        // If the remote was monitored before, a step may have passed since the last packet.
        assert!(took > timeout * 7 / 8, "{took:?}");
        check_span(took.max(timeout * 15 / 16), timeout);
    }
}

#[test]
fn a_living_remote_may_leave_a_send_waiting_for_ever() {
    let timeout = millis(200);
    let (mut rig, remote) = rig(1, timeout);
    let (small, large) = (rig.send(remote, 10), rig.send(remote, 100_000));
    rig.run(timeout * 1_000);
    assert_eq!(rig.side(0).completions, []);
    assert_eq!(rig.side(0).down, []);
    // The remote is asked each time that it has been silent for a quarter of the time-out, and not
    // more often.
    let packets = rig.side(1).endpoint.stats().packets_in;
    assert!((3_000..3_500).contains(&packets), "{packets} packets");
    rig.recv(1);
    rig.recv(1);
    rig.run(millis(50));
    let ended: Vec<_> = rig.side(0).completions.drain(..).collect();
    assert_eq!([ended[0].1.request, ended[1].1.request], [small, large]);
    assert!(ended.iter().all(|(_, done)| done.status == Status::Success));
}

#[test]
fn without_operations_there_is_no_timer_and_no_remote_is_asked() {
    let timeout = millis(200);
    let (mut rig, remote) = rig(1, timeout);
    rig.run(timeout);
    let packets = rig.side(1).endpoint.stats().packets_in;
    assert_eq!(rig.side(0).endpoint.deadline(), None);
    rig.cluster.stall(1, timeout * 50);
    rig.run(timeout * 40);
    assert_eq!(rig.side(0).down, []);
    // The same after operations have ended, and an old silence does not add to a new one.
    let send = rig.send(remote, 10);
    rig.run(timeout * 3 / 4);
    rig.side(0).endpoint.cancel(send);
    rig.run(timeout * 2);
    assert_eq!(rig.side(0).down, []);
    assert_eq!(rig.side(0).endpoint.deadline(), None);
    let began = rig.world.now();
    rig.send(remote, 10);
    rig.run(timeout * 2);
    check_span(lost_after(&mut rig, began), timeout);
    assert_eq!(rig.side(1).endpoint.stats().packets_in, packets);
}

#[test]
fn a_process_that_did_not_run_takes_no_remote_for_dead() {
    let timeout = millis(400);
    for (seed, pause) in [1, 100, 399, 400, 1_000, 60_000].into_iter().enumerate() {
        for begin in [0, 130, 390] {
            let (mut rig, remote) = rig(seed as u64, timeout);
            rig.send(remote, 10);
            rig.run(millis(begin));
            rig.cluster.stall(0, millis(pause));
            rig.run(millis(pause) + timeout * 20);
            assert_eq!(rig.side(0).down, [], "away for {pause} ms");
        }
    }
}

#[test]
fn remotes_that_are_both_away_at_times_keep_each_other() {
    seeds::each(30, |seed| {
        let timeout = millis(400);
        let (mut rig, remote) = rig(seed, timeout);
        rig.send(remote, 10);
        let back = rig.side(1).endpoint.remotes_of(NIC, EndpointId(0)).next();
        rig.recv_from(1, back.expect("a remote"));
        let mut rng = rig.world.fork_rng();
        for _ in 0..50 {
            // Both at the same time, for any span.
            let together = millis(rng.within(1..=3_000) as u64);
            rig.cluster.stall(0, together);
            rig.cluster.stall(1, together);
            rig.run(together);
            // One of them, for less than the time that ends a remote.
            let one = rng.index(2);
            rig.cluster.stall(one, timeout / 2);
            rig.run(timeout);
            for node in 0..2 {
                assert_eq!(rig.side(node).down, []);
            }
        }
    });
}

/// Checks a clock that jumps by minutes while a megabyte is being sent or received, or before the
/// connect is answered, with one side that runs a while later than the other.
fn jump<P: Port<Buffer>>(seed: u64, rig: impl FnOnce(u64, Duration) -> Rig<P>) {
    let timeout = millis(20_000);
    let mut rig = rig(seed, timeout);
    let mut rng = rig.world.fork_rng();
    for node in 0..2 {
        let endpoint = &mut rig.side(node).endpoint;
        endpoint.set_request_timeout(Some(timeout));
    }
    let mut moments = [rng.index(12), usize::MAX];
    if rng.chance(0.8) {
        moments = [usize::MAX, rng.index(400)];
    }
    let (pause, late) = (rng.span(millis(120_000)), rng.index(2));
    let gap = rng.span(millis(400));
    let jump = |rig: &mut Rig<P>, moment: &mut usize| {
        if *moment == 0 {
            rig.world.clock().advance(timeout + pause);
            rig.cluster.stall(late, gap);
        }
        *moment = moment.wrapping_sub(1);
    };
    rig.call(1);
    while rig.look(0).completions.is_empty() {
        jump(&mut rig, &mut moments[0]);
        rig.cluster.step().expect("the connect ends");
    }
    let (_, done) = rig.side(0).completions.remove(0);
    assert_eq!(done.status, Status::Success, "the connect");
    rig.recv(1);
    rig.send(done.remote, 1 << 20);
    while rig.look(0).completions.is_empty() {
        jump(&mut rig, &mut moments[1]);
        rig.cluster.step().expect("the send ends");
    }
    rig.run(millis(1_000));
    for node in 0..2 {
        assert_eq!(rig.look(node).down, []);
        assert_eq!(rig.look(node).completions[0].1.status, Status::Success);
    }
}

#[test]
fn a_clock_that_jumps_forward_ends_nothing() {
    seeds::each(200, |seed| {
        jump(seed, |seed, timeout| Rig::reliable(seed, 2, timeout));
    });
}

#[test]
fn a_clock_that_jumps_forward_ends_nothing_over_datagrams() {
    seeds::each(200, |seed| jump(seed, datagram_rig));
}

#[test]
fn remote_with_only_a_receive_waiting_is_lost_with_it() {
    let timeout = millis(320);
    let (mut rig, remote) = rig(3, timeout);
    let receive = rig.recv_from(0, remote);
    rig.run(timeout * 10);
    assert_eq!(rig.side(0).down, []);
    assert_eq!(rig.side(0).completions, []);
    let began = rig.world.now();
    rig.cluster.stall(1, timeout * 9);
    rig.run(timeout * 2);
    let took = lost_after(&mut rig, began);
    // The last packet may have come up to five steps before.
    assert!(
        (timeout / 2..=timeout + millis(10)).contains(&took),
        "{took:?}"
    );
    let (_, done) = rig.side(0).completions.pop().expect("it has ended");
    assert_eq!((done.request, done.status), (receive, Status::Timeout));
    assert!(!done.matched);
}

#[test]
fn a_remote_whose_receive_was_called_off_is_left_alone() {
    let timeout = millis(320);
    let (mut rig, remote) = rig(3, timeout);
    let receive = rig.recv_from(0, remote);
    assert!(rig.side(0).endpoint.end(receive, Status::Cancelled));
    rig.run(timeout);
    assert_eq!(rig.side(0).endpoint.deadline(), None);
    rig.cluster.stall(1, timeout * 9);
    rig.run(timeout * 3);
    assert_eq!(rig.side(0).down, []);
}

#[test]
fn the_shortest_time_out_there_is_leaves_a_living_remote_alone() {
    let (mut rig, remote) = rig(3, millis(1));
    // The shortest time-out has a step of a millisecond.
    rig.send(remote, 10);
    rig.run(millis(500));
    assert_eq!(rig.side(0).down, []);
}

#[test]
fn dead_remote_is_missed_at_once_if_its_machine_says_so() {
    for seed in 0..20 {
        let (mut rig, remote) = over_datagrams(seed, millis(20_000));
        let idle = [0, 10, 500, 3_000, 30_000][seed as usize % 5];
        rig.run(millis(idle));
        match seed % 3 {
            0 => drop(rig.recv_from(0, remote)),
            1 => drop(rig.send(remote, 10)),
            _ => drop(rig.send(remote, 300_000)),
        }
        rig.run(millis(7 * seed * seed));
        drop(rig.cluster.kill(1));
        let killed = rig.world.now();
        rig.run(millis(100));
        let (at, Down { reason, .. }) = rig.side(0).down.pop().expect("missed");
        assert_eq!(reason, DownReason::Link(LinkDown::Reset));
        let took = at.since(killed);
        assert!(took <= millis(60), "{took:?}");
        assert_eq!(rig.side(0).endpoint.requests(), 0);
    }
}

#[test]
fn a_remote_without_operations_is_asked_as_seldom_as_before() {
    let (mut rig, remote) = over_datagrams(1, millis(1_600));
    let receive = rig.recv_from(0, remote);
    rig.run(millis(5_000));
    let sent = |rig: &mut Rig<_>| {
        let side: &mut Side<Reliable<SimDatagrams>> = rig.side(0);
        side.endpoint.port().stats().datagrams_out
    };
    let before = sent(&mut rig);
    rig.run(millis(5_000));
    let monitored = sent(&mut rig) - before;
    assert!(monitored >= 50, "{monitored}");
    assert!(rig.side(0).endpoint.end(receive, Status::Cancelled));
    rig.run(millis(500));
    let before = sent(&mut rig);
    rig.run(millis(5_000));
    let unmonitored = sent(&mut rig) - before;
    assert!(unmonitored <= 4, "{unmonitored}");
}
