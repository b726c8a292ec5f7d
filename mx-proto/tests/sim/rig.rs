//! Endpoints to which the first one is connected, with their events.

use mx_proto::port::Port;
use mx_proto::{
    Config, Down, Endpoint, EndpointId, Identity, Instant, Key, MatchBits, NicId, RemoteId, Route,
    SessionId, Status, Target,
};
use mx_sim::Completion;
use mx_sim::world::{NodeId, World};
use mx_sim::{Buffer, Cluster, Drive, Fabric, Profile, SimPort, VirtualClock, seeds};
use mx_sim::{Queue, Reports};
use std::time::Duration;

pub(crate) const NIC: NicId = NicId(0x77);
const KEY: u32 = 7;
const STEPS: u64 = 1_000_000;

/// An endpoint with its completions and lost remotes, and their times.
pub(crate) struct Side<P = SimPort<Buffer>> {
    pub(crate) endpoint: Endpoint<P, VirtualClock, Queue<Buffer>>,
    pub(crate) completions: Vec<(Instant, Completion)>,
    pub(crate) down: Vec<(Instant, Down)>,
    world: World,
}

impl<P: Port<Buffer>> Drive for Side<P> {
    fn progress(&mut self) -> bool {
        let busy = self.endpoint.progress();
        let now = self.world.now();
        while let Some(completion) = self.endpoint.next_completion() {
            self.completions.push((now, completion));
        }
        while let Some(down) = self.endpoint.next_down() {
            self.down.push((now, down));
        }
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        self.endpoint.deadline()
    }
}

pub(crate) struct Rig<P: Port<Buffer> = SimPort<Buffer>> {
    pub(crate) world: World,
    pub(crate) cluster: Cluster<Side<P>>,
}

impl Rig {
    /// Makes `count` endpoints on a network that loses nothing.
    pub(crate) fn reliable(seed: u64, count: NodeId, peer_timeout: Duration) -> Self {
        let world = World::new(seed);
        let fabric = Fabric::new(&world, None);
        let open = |node: NodeId| {
            let name = EndpointId(node as u32);
            SimPort::open(&fabric, node, NIC, name, Profile::default()).expect("a free name")
        };
        Self::with(&world, count, open, peer_timeout)
    }
}

impl<P: Port<Buffer>> Rig<P> {
    pub(crate) fn with(
        world: &World,
        count: NodeId,
        open: impl Fn(NodeId) -> P,
        peer_timeout: Duration,
    ) -> Self {
        seeds::watch(world);
        let mut cluster = Cluster::new(world);
        for node in 0..count {
            let identity = Identity {
                nic: NIC,
                endpoint: EndpointId(node as u32),
                session: SessionId(0x10 + node as u64),
            };
            let config = Config {
                peer_timeout: Some(peer_timeout),
                regions: true,
                key: Key([node as u8; 16]),
                request_timeout: None,
                ..Config::default()
            };
            let (port, clock) = (open(node), world.clock());
            cluster.add(Side {
                endpoint: Endpoint::new(config, identity, KEY, port, clock, Queue::default()),
                completions: Vec::new(),
                down: Vec::new(),
                world: world.clone(),
            });
        }
        let world = world.clone();
        Self { world, cluster }
    }

    pub(crate) fn side(&mut self, node: NodeId) -> &mut Side<P> {
        self.cluster.poke(node);
        self.look(node)
    }

    /// Returns a side without making it work.
    pub(crate) fn look(&mut self, node: NodeId) -> &mut Side<P> {
        self.cluster.node(node).expect("it lives")
    }

    /// Connects the first endpoint to another. Returns its name for that.
    pub(crate) fn connect(&mut self, to: NodeId) -> RemoteId {
        self.call(to);
        self.run(Duration::from_millis(20));
        let (_, done) = self.side(0).completions.pop().expect("an answer");
        assert_eq!(done.status, Status::Success);
        done.remote
    }

    /// Begins to connect the first endpoint to another.
    pub(crate) fn call(&mut self, to: NodeId) {
        let target = Target {
            nic: NIC,
            endpoint: EndpointId(to as u32),
            route: Route::AUTO,
        };
        let side = self.side(0);
        side.completions.clear();
        let connect = side.endpoint.connect(target, KEY, MatchBits(0), 0);
        connect.expect("it can be started");
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(self.cluster.run_until(until, STEPS), "too busy");
    }
}
