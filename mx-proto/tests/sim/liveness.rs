//! Remotes that fall silent, on the simulated network: they are noticed in time, and no others are
//! taken for dead.

use mx_proto::owner::Queue;
use mx_proto::port::{LinkDown, Port};
use mx_proto::reliability::{Reliable, ReliableConfig};
use mx_proto::{
    Completion, Config, Down, DownReason, Endpoint, EndpointId, Identity, Instant, MatchBits,
    MatchMask, NicId, Posted, Received, RemoteId, RequestId, Route, SendMode, SessionId, Status,
    Target,
};
use mx_sim::scenario::key;
use mx_sim::world::{NodeId, World};
use mx_sim::{
    Buffer, CallOff, Cluster, DatagramNet, Drive, Fabric, Profile, Rng, SimDatagrams, SimPort,
    Terms, VirtualClock, seeds,
};
use std::time::Duration;

const NIC: NicId = NicId(0x77);
const KEY: u32 = 7;
const STEPS: u64 = 1_000_000;

/// An endpoint and what it has said.
struct Side<P = SimPort<Buffer>> {
    endpoint: Endpoint<P, VirtualClock, Queue<Buffer>>,
    completions: Vec<(Instant, Completion)>,
    down: Vec<(Instant, DownReason)>,
    world: World,
}

impl<P: Port<Buffer>> Drive for Side<P> {
    fn progress(&mut self) -> bool {
        let busy = self.endpoint.progress();
        let now = self.world.now();
        while let Some(completion) = self.endpoint.owner_mut().next_completion() {
            self.completions.push((now, completion));
        }
        while let Some(Down { reason, .. }) = self.endpoint.owner_mut().next_down() {
            self.down.push((now, reason));
        }
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        self.endpoint.deadline()
    }
}

struct Rig<P: Port<Buffer> = SimPort<Buffer>> {
    world: World,
    cluster: Cluster<Side<P>>,
}

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

fn config(peer_timeout: Duration) -> Config {
    Config {
        peer_timeout: Some(peer_timeout),
        request_timeout: None,
        ..Config::default()
    }
}

impl Rig {
    /// Two endpoints that know each other.
    fn new(seed: u64, peer_timeout: Duration) -> (Self, RemoteId) {
        let world = World::new(seed);
        seeds::watch(&world);
        let fabric = Fabric::new(&world, None);
        let open = |node: NodeId| {
            let name = EndpointId(node as u32);
            SimPort::open(&fabric, node, NIC, name, Profile::default()).expect("a free name")
        };
        Self::with(&world, open, peer_timeout)
    }
}

impl Rig<Reliable<SimDatagrams>> {
    /// The same over datagrams, on a network that reports names that are not open.
    fn over_datagrams(seed: u64, peer_timeout: Duration) -> (Self, RemoteId) {
        let world = World::new(seed);
        seeds::watch(&world);
        let net = DatagramNet::new(&world, Terms::default());
        let open = |node: NodeId| {
            let name = EndpointId(node as u32);
            let datagrams = SimDatagrams::open(&net, node, NIC, name).expect("a free name");
            let key = key(&mut Rng::new(node as u64));
            Reliable::new(datagrams, ReliableConfig::default(), key)
        };
        Self::with(&world, open, peer_timeout)
    }
}

impl<P: Port<Buffer>> Rig<P> {
    fn with(world: &World, open: impl Fn(NodeId) -> P, peer_timeout: Duration) -> (Self, RemoteId) {
        let world = world.clone();
        let mut cluster = Cluster::new(&world);
        for node in 0..2u32 {
            let name = EndpointId(node);
            let identity = Identity {
                nic: NIC,
                endpoint: name,
                session: SessionId(0x10 + u64::from(node)),
            };
            let (port, clock) = (open(node as NodeId), world.clock());
            cluster.add(Side {
                endpoint: Endpoint::new(
                    config(peer_timeout),
                    identity,
                    KEY,
                    port,
                    clock,
                    Queue::default(),
                ),
                completions: Vec::new(),
                down: Vec::new(),
                world: world.clone(),
            });
        }
        let mut rig = Self { world, cluster };
        let remote = rig.connect();
        (rig, remote)
    }

    fn side(&mut self, node: NodeId) -> &mut Side<P> {
        self.cluster.poke(node);
        self.cluster.node(node).expect("no node dies here")
    }

    /// Packets that the first has got; it is only looked at.
    fn heard(&mut self) -> u64 {
        let side = self.cluster.node(0).expect("no node dies here");
        side.endpoint.stats().packets_in
    }

    /// The first reaches the second.
    fn connect(&mut self) -> RemoteId {
        let target = Target {
            nic: NIC,
            endpoint: EndpointId(1),
            route: Route::AUTO,
        };
        let side = self.side(0);
        side.completions.clear();
        let connect = side.endpoint.connect(target, KEY, MatchBits(0), 0);
        connect.expect("it can be started");
        self.run(millis(20));
        let (_, done) = self.side(0).completions.pop().expect("an answer");
        assert_eq!(done.status, Status::Success);
        done.remote
    }

    fn run(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(self.cluster.run_until(until, STEPS), "too busy");
    }

    /// A send that is not received.
    fn send(&mut self, to: RemoteId, len: usize) -> RequestId {
        let memory = Buffer::new(vec![1; len]);
        let (bits, mode) = (MatchBits(1), SendMode::Synchronous);
        match self.side(0).endpoint.send(to, bits, memory, 5, mode) {
            Ok(Posted::Pending(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    /// A receive for messages of that remote only, which do not come.
    fn recv_from(&mut self, node: NodeId, remote: RemoteId) -> RequestId {
        let memory = Buffer::new(vec![0; 10]);
        let (bits, mask) = (MatchBits(77), MatchMask::EXACT);
        let endpoint = &mut self.side(node).endpoint;
        match endpoint.recv_from(remote, bits, mask, (memory, 6)) {
            Ok(Received::Pending(request)) => request,
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

/// The time from `since` until the remote was lost; it has to be by silence.
fn lost_after(rig: &mut Rig, since: Instant) -> Duration {
    let (at, reason) = rig.side(0).down.pop().expect("the remote is lost");
    assert_eq!(reason, DownReason::Link(LinkDown::TimedOut));
    assert_eq!(rig.side(0).endpoint.stats().silenced, 1);
    at.since(since)
}

/// From the last packet on, and from the first operation.
fn check_span(took: Duration, timeout: Duration) {
    let least = timeout * 15 / 16;
    assert!(took >= least - millis(1), "{took:?} of {timeout:?}");
    assert!(
        took <= timeout + timeout / 50 + millis(3),
        "{took:?} of {timeout:?}"
    );
}

#[test]
fn a_frozen_remote_is_lost_within_the_time_out_and_can_be_reached_again() {
    for (seed, timeout) in [100, 500, 777, 20_000, 3_600_000].into_iter().enumerate() {
        let timeout = millis(timeout);
        for len in [10, 300_000] {
            let (mut rig, remote) = Rig::new(seed as u64, timeout);
            rig.cluster.stall(1, timeout * 3);
            let began = rig.world.now();
            rig.send(remote, len);
            rig.run(timeout * 2);
            check_span(lost_after(&mut rig, began), timeout);
            let (_, ended) = rig.side(0).completions.pop().expect("the send ends");
            assert_eq!((ended.status, ended.context), (Status::Timeout, 5));
            assert_eq!(rig.side(0).endpoint.requests(), 0);
            rig.run(timeout * 2);
            // It has come back, and found its link gone.
            assert_eq!(rig.side(1).endpoint.remotes(), 0);
            let again = rig.connect();
            rig.send(again, len);
            rig.recv(1);
            rig.run(millis(50));
            assert_eq!(rig.side(0).completions[0].1.status, Status::Success);
        }
    }
}

#[test]
fn silence_counts_from_the_last_packet_also_in_the_middle_of_a_transfer() {
    let timeout = millis(1_600);
    for moment in [0, 1, 40, 99, 100, 130, 777] {
        let (mut rig, remote) = Rig::new(moment, timeout);
        rig.send(remote, 400_000);
        rig.run(millis(moment));
        let heard = rig.heard();
        rig.recv(1);
        // Until the first part is asked for.
        while rig.heard() == heard {
            rig.cluster.step();
        }
        assert_eq!(rig.side(0).completions, []);
        let began = rig.world.now();
        rig.cluster.stall(1, timeout * 3);
        rig.run(timeout * 2);
        let took = lost_after(&mut rig, began);
        // A step may have gone by since the last packet, if it was monitored before.
        assert!(took > timeout * 7 / 8, "{took:?}");
        check_span(took.max(timeout * 15 / 16), timeout);
    }
}

#[test]
fn a_living_remote_may_leave_a_send_waiting_for_ever() {
    let timeout = millis(200);
    let (mut rig, remote) = Rig::new(1, timeout);
    let (small, large) = (rig.send(remote, 10), rig.send(remote, 100_000));
    rig.run(timeout * 1_000);
    assert_eq!(rig.side(0).completions, []);
    assert_eq!(rig.side(0).down, []);
    // It is asked each time it has been silent for a quarter, and not more often.
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
    let (mut rig, remote) = Rig::new(1, timeout);
    rig.run(timeout);
    let packets = rig.side(1).endpoint.stats().packets_in;
    assert_eq!(rig.side(0).endpoint.deadline(), None);
    rig.cluster.stall(1, timeout * 50);
    rig.run(timeout * 40);
    assert_eq!(rig.side(0).down, []);
    // Nor when there have been some, and an old silence is not counted against a new one.
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
            let (mut rig, remote) = Rig::new(seed as u64, timeout);
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
        let (mut rig, remote) = Rig::new(seed, timeout);
        rig.send(remote, 10);
        let back = rig.side(1).endpoint.remote_of(NIC, EndpointId(0));
        rig.recv_from(1, back.expect("a remote"));
        let mut rng = rig.world.fork_rng();
        for _ in 0..50 {
            // At the same time, for as long as one likes.
            let together = millis(rng.within(1..=3_000) as u64);
            rig.cluster.stall(0, together);
            rig.cluster.stall(1, together);
            rig.run(together);
            // One of them, for less than what ends it.
            let one = rng.index(2);
            rig.cluster.stall(one, timeout / 2);
            rig.run(timeout);
            for node in 0..2 {
                assert_eq!(rig.side(node).down, []);
            }
        }
    });
}

#[test]
fn a_remote_that_only_a_receive_waits_for_is_lost_and_the_receive_with_it() {
    let timeout = millis(320);
    let (mut rig, remote) = Rig::new(3, timeout);
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
    let (mut rig, remote) = Rig::new(3, timeout);
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
    let (mut rig, remote) = Rig::new(3, millis(1));
    // The shortest there is: a step of a millisecond.
    rig.send(remote, 10);
    rig.run(millis(500));
    assert_eq!(rig.side(0).down, []);
}

#[test]
fn a_dead_remote_that_is_waited_for_is_missed_at_once_where_its_machine_says_so() {
    for seed in 0..20 {
        let (mut rig, remote) = Rig::over_datagrams(seed, millis(20_000));
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
        let (at, reason) = rig.side(0).down.pop().expect("missed");
        assert_eq!(reason, DownReason::Link(LinkDown::Reset));
        let took = at.since(killed);
        assert!(took <= millis(60), "{took:?}");
        assert_eq!(rig.side(0).endpoint.requests(), 0);
    }
}

#[test]
fn a_remote_without_operations_is_asked_as_seldom_as_before() {
    let (mut rig, remote) = Rig::over_datagrams(1, millis(1_600));
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
